"""Every kind of file, spoiled in every place and at random: read, or refused in one line."""

import json
import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damage import mutated, outcome, spoiled, toml
from report_results import RESULTS
from test_machine_loader import GOOD
from test_program_io import program
from test_serving_spec import GIVEN

from xla_cost.cli.app import run
from xla_cost.gate.lock import lock_of, render
from xla_cost.gate.lock import parse as parse_lock
from xla_cost.jsonio import read_json
from xla_cost.machine import load
from xla_cost.models import get_config
from xla_cost.program_io import from_json, to_json
from xla_cost.report.page import page
from xla_cost.report.result_file import read_result
from xla_cost.serving.spec import read_spec as read_scenario
from xla_cost.serving.trace import read_trace
from xla_cost.sweep.spec import read_spec as read_sweep

SWEEP: dict[str, Any] = {
    "name": "s",
    "models": ["tiny"],
    "machines": ["b300"],
    "devices": [4],
    "workloads": [{"seq": 64, "batch": 8}],
    "formats": ["fp4"],
    "plans": ["study"],
    "policies": ["study"],
    "phase": "prefill",
    "meshes": ["1x4x1"],
}
CONFIG: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 3,
    "first_k_dense_replace": 1, "num_attention_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "intermediate_size": 96,
    "moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "vocab_size": 250, "n_group": 4, "topk_group": 2,
    "scoring_func": "sigmoid", "rope_theta": 10000.0,
}  # fmt: skip
CSV = "arrival_s,input_tokens,output_tokens\n0.0,100,10\n0.5,2000,1\n1.25,7,300\n"
JSONL = (
    '{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}\n'
    '{"timestamp": 40, "input_length": 900, "output_length": 9, "hash_ids": [1, 3]}\n'
)


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def lock_text() -> str:
    found = program()
    return render(lock_of(found))


#: (name of the file, its text, how it is read)
Case = tuple[str, str, Callable[[Path], Any]]
CASES: dict[str, Case] = {
    "machine": ("m.toml", GOOD, load),
    "sweep": ("s.toml", toml(SWEEP), read_sweep),
    "scenario": ("v.toml", GIVEN, read_scenario),
    "trace as CSV": ("t.csv", CSV, read_trace),
    "trace as JSON lines": ("t.jsonl", JSONL, read_trace),
    "configuration": ("config.json", json.dumps(CONFIG), get_config),
    "ledger": ("p.json", json.dumps(to_json(program())), lambda path: from_json(read_json(path))),
    "lock": ("c.lock", lock_text(), lambda path: parse_lock(path.read_text("latin-1"), "c.lock")),
    **{
        f"{kind} result": ("r.json", json.dumps(make()), lambda path: page(read_result(path)))
        for kind, make in RESULTS.items()
    },
}


@pytest.mark.parametrize("kind", CASES)
def test_random_damage(kind: str, tmp_path: Path) -> None:
    name, text, read = CASES[kind]
    dice = random.Random(kind)
    assert outcome(lambda: read(written(tmp_path, name, text.encode()))) == "read"
    outcomes = []
    for _ in range(100):
        path = written(tmp_path, name, mutated(text.encode(), dice))
        outcomes.append(outcome(lambda path=path: read(path)))  # type: ignore[misc]
    assert sum(found != "read" for found in outcomes) > 20


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("machine", tomllib.loads(GOOD)),
        ("machine", tomllib.loads(GOOD) | {"compute_pJ_per_FLOP": {
            "bf16": {"value": 0.5, "source": "s", "doubt": "none"}}}),
        ("sweep", SWEEP),
        ("scenario", tomllib.loads(GIVEN)),
        ("configuration", CONFIG),
    ],
)  # fmt: skip
def test_every_field_missing_wrong_or_unknown(
    kind: str, given: dict[str, Any], tmp_path: Path
) -> None:
    name, _, read = CASES[kind]
    as_text = json.dumps if name.endswith(".json") else toml
    silent = []
    for what, value in spoiled(given):
        path = written(tmp_path, name, as_text(value).encode())
        found = outcome(lambda path=path: read(path))  # type: ignore[misc]
        if found == "read" and what.endswith(("nan", "-1", "inf")):
            silent.append(what)
    assert silent == []
    unknown = {**given, "no_such_key": 1}
    found = outcome(lambda: read(written(tmp_path, name, as_text(unknown).encode())))
    assert "no_such_key" in found or kind == "configuration"  # Hugging Face files have many more


@pytest.mark.parametrize("kind", RESULTS)
def test_every_field_of_a_result_missing_or_wrong(kind: str, tmp_path: Path) -> None:
    """What is read can be shown: a page comes out, or one line says what is wrong."""
    value = RESULTS[kind]()
    dice = random.Random(kind)
    cases = [case for case in spoiled(value) if "nan" not in case[0] and "inf" not in case[0]]
    for _, changed in dice.sample(cases, min(len(cases), 150)):
        path = written(tmp_path, "r.json", json.dumps(changed).encode())
        outcome(lambda path=path: page(read_result(path)))  # type: ignore[misc]


@pytest.mark.parametrize("version", [0, 2, -1, "1", None, [], True, 1.5])
def test_results_of_another_version_are_refused(version: Any, tmp_path: Path) -> None:
    value = RESULTS["estimate"]()
    value["provenance"] = {**value.get("provenance", {}), "result_version": version}
    path = written(tmp_path, "r.json", json.dumps(value).encode())
    assert "result_version" in outcome(lambda: read_result(path))


def test_a_word_of_a_megabyte_does_not_fill_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "m.toml", (GOOD + "a" * 1_000_000 + " = 1\n").encode())
    assert run(["machines", str(path)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("xla-cost: m.toml: ")
    assert err.count("\n") == 1
    assert len(err) < 1300
