"""Scenarios from TOML, assembled, run and written by the command line; the exported curves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from xla_cost.errors import XlaCostError
from xla_cost.serving.assemble import assemble
from xla_cost.serving.export import export_npz
from xla_cost.serving.lowered import WorkerModel
from xla_cost.serving.results import summarise
from xla_cost.serving.simulate import simulate
from xla_cost.serving.spec import read_spec
from xla_cost.serving.study import changes, study_spec

GIVEN = """
routing = "least-loaded"

[prefill]
workers = 2
token_budget = 4096
[prefill.curve]
devices = 8
prefill_fixed_ms = 1.0
prefill_per_token_us = 10.0

[decode]
workers = 1
max_batch = 16
kv_tokens = 100000
[decode.curve]
devices = 24
decode_fixed_ms = 5.0
decode_per_request_us = 20.0
decode_per_context_token_ns = 0.5

[transfer]
bytes_per_token = 70000
bandwidth_GBps = 50.0
latency_us = 5.0

[load]
arrivals = "poisson"
rate_per_s = 5.0
requests = 60
warmup = 5
seed = 3
[load.input_tokens]
kind = "fixed"
mean = 1000
[load.output_tokens]
kind = "uniform"
low = 5
high = 50

[slo]
ttft_s = 0.5
tpot_ms = 6.0
"""


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process; gives its exit code."""
    from xla_cost.__main__ import main

    monkeypatch.setattr("sys.argv", ["xla-cost", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def write(folder: Path, text: str) -> Path:
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def test_a_spec_becomes_a_system(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, GIVEN))
    system = assemble(spec).system
    assert system.devices == 2 * 8 + 24
    assert system.transfer.sender_bytes_per_s == 8 * 50e9
    assert system.transfer.receiver_bytes_per_s == 24 * 50e9
    assert system.transfer.latency_s == 5e-6
    assert spec.slo.tpot_s == 6e-3
    assert system.decode is not None
    assert system.decode.kv_tokens == 100_000
    # 5 ms + 16 * 20 us + 16 * 2000 * 0.5 ns
    assert system.decode.curves.decode_step_s(16, 2000) == pytest.approx(5.336e-3, rel=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("workers = 2", "workers = 0", r"spec\.toml: prefill\.workers = 0; must be a whole number"),
        ("token_budget = 4096", "tokens = 4096", r"spec\.toml: prefill\.tokens: unknown key; must"),
        ('routing = "least-loaded"', 'routing = "any"', r"routing = 'any'; must be one of round-"),
        ("rate_per_s = 5.0", "", r"spec\.toml: load\.rate_per_s: missing; expected a value"),
        (
            "latency_us = 5.0",
            "latency_us = -1",
            r"transfer\.latency_us = -1; must be a number in 0",
        ),
        (
            "mean = 1000",
            'mean = "x"',
            r"load\.input_tokens\.mean = 'x'; must be a number in 1",
        ),
        ("bandwidth_GBps = 50.0", "", r"transfer\.bandwidth_GBps: missing; expected one"),
        ("[slo]", "[slo]\nttft_ms = 1", r"spec\.toml: slo\.ttft_ms: unknown key; must be one of"),
        ("[slo]", "[goal]", r"spec\.toml: goal: unknown key"),
        ('arrivals = "poisson"', 'arrivals = "burst"', r"load\.arrivals = 'burst'; must be one of"),
        ("seed = 3", 'seed = 3\ntrace = "x.csv"', r"trace: beside arrivals = 'poisson'; must be"),
        (
            "rate_per_s = 5.0",
            "rate_per_s = 0",
            r"load\.rate_per_s = 0; must be a number in 1e-09 \.\. 1",
        ),
        (
            "rate_per_s = 5.0",
            "rate_per_s = inf",
            r"rate_per_s = inf; must be a number in 1e-09 \.\.",
        ),
        (
            "rate_per_s = 5.0",
            "rate_per_s = 1e18",
            r"rate_per_s = 1e\+18; must be a number in 1e-09",
        ),
        (
            '"poisson"\nrate_per_s = 5.0',
            '"closed"',
            r"spec\.toml: load\.in_flight: missing; expected",
        ),
        (
            "low = 5",
            "low = 51",
            r"toml: load\.output_tokens: low = 51, high = 50; must be low <= high",
        ),
        ("ttft_s = 0.5", "ttft_s = 0", r"spec\.toml: slo\.ttft_s = 0; must be a finite number > 0"),
        ("tpot_ms = 6.0", "tpot_ms = 0.0", r"slo\.tpot_ms = 0\.0; must be a finite number > 0"),
        ("ttft_s = 0.5", "e2e_s = nan", r"slo\.e2e_s = nan; must be a finite number > 0"),
        (
            "bytes_per_token = 70000",
            "",
            r"transfer\.bytes_per_token: missing; expected one, as the",
        ),
        (
            "latency_us = 5.0",
            'tier = "x"',
            r"transfer\.tier = 'x': the pools name no machine; expec",
        ),
        (
            "max_batch = 16",
            "kv_watermark = 0.1",
            r"decode\.kv_watermark: beside kv_policy = \"queue\"",
        ),
        (
            "budget = 4096",
            "budget = 999",
            r"prefill\.token_budget = 999: the longest prompt has 1000",
        ),
        (
            "mean = 1000",
            "mean = 1e30",
            r"input_tokens\.mean = 1e\+30; must be a number in 1 \.\. 1",
        ),
        (
            "high = 50",
            f"high = {1 << 62}",
            r"output_tokens: low = 5, high = 4611.*high <= 1000000000",
        ),
        (
            "decode_fixed_ms = 5.0",
            "decode_fixed_ms = 1e300",
            r"_ms = 1e\+300; must be a number in 0 ",
        ),
        (
            '"poisson"',
            '"gamma"\ncv = 1e200',
            r"load\.cv = 1e\+200; must be a number in 0\.001 \.\. 1000",
        ),
        ("seed = 3", "seed 3", r"spec\.toml: .*; expected TOML"),
    ],
)
def test_bad_specs(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GIVEN
    with pytest.raises(XlaCostError, match=message):
        assemble(read_spec(write(tmp_path, GIVEN.replace(old, new, 1))))


def test_the_documented_scenario_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "serving.md").read_text(encoding="utf-8")
    part = page.split("## A scenario as TOML")[1].split("\n## ")[0]
    example = "\n".join(line[4:] for line in part.splitlines() if line.startswith("    "))
    spec = read_spec(write(tmp_path, example))
    assert [pool.role for pool in spec.pools] == ["prefill", "decode"]
    assert (spec.pools[1].kv_watermark, spec.mtp.draft_step_share) == (0.01, 1 / 61)
    assert "kv_watermark = 0.01" in example
    assert "draft_step_share = 1/61" in example


def test_a_mixed_pool_passes_no_cache_on(tmp_path: Path) -> None:
    mixed = """
    [mixed.curve]
    prefill_per_token_us = 1
    decode_fixed_ms = 1
    [load]
    arrivals = "closed"
    in_flight = 2
    [load.input_tokens]
    mean = 9
    [load.output_tokens]
    mean = 1
    """
    assert read_spec(write(tmp_path, mixed)).pools[0].role == "mixed"
    with pytest.raises(
        XlaCostError, match=r"spec\.toml: transfer: beside \[mixed\], whose workers"
    ):
        read_spec(write(tmp_path, mixed + "[transfer]\nlatency_us = 1\n"))
    with pytest.raises(XlaCostError, match=r"spec\.toml: claim: beside \[mixed\]"):
        read_spec(write(tmp_path, 'claim = "before-prefill"\n' + mixed))


def test_files_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(XlaCostError) as refusal:
        read_spec(path)
    assert str(refusal.value) == f"{path}: cannot be read (No such file or directory)"
    path.write_bytes(b"a = 1\n\xff")
    with pytest.raises(XlaCostError) as refusal:
        read_spec(path)
    assert str(refusal.value) == f"{path}: byte 6 is not UTF-8; expected TOML"


def test_model_workers_and_a_trace(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("arrival_s,input_tokens,output_tokens\n0,64,4\n1,64,4\n")
    text = """
    [mixed]
    model = "tiny"
    mesh = "1x2x1"
    machine = "h100"
    format = "bf16"
    token_budget = 256
    max_batch = 8
    [load]
    arrivals = "trace"
    trace = "load.csv"
    """
    spec = read_spec(write(tmp_path, text))
    pool = spec.pools[0]
    assert isinstance(pool.worker, WorkerModel)
    assert pool.worker.mesh == (1, 2, 1)
    assert pool.chunked
    assert spec.load.trace is not None
    assert len(spec.load.trace.rows) == 2


def test_the_command_prints_json_and_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path, GIVEN))
    answers = []
    for _ in range(2):
        assert command(monkeypatch, "serve", path, "--json", "-") == 0
        answer = json.loads(capsys.readouterr().out)
        answer.pop("elapsed_s")
        answers.append(answer)
    assert json.dumps(answers[0]) == json.dumps(answers[1])
    answer = answers[0]
    assert answer["requests"] == 60
    assert set(answer["ttft_s"]) >= {"mean", "p50", "p90", "p99"}
    assert set(answer["decode_batch"]) == {"mean", "max"}
    assert {
        "tpot_s", "e2e_s", "inter_token_s", "input_tokens_per_s_per_gpu", "events",
        "output_tokens_per_s_per_gpu", "goodput_per_s", "bottleneck",
    } <= set(answer)  # fmt: skip
    assert command(monkeypatch, "serve", path) == 0
    table = capsys.readouterr().out
    assert "time to first token p99" in table
    assert "bottleneck, as specified:" in table


def test_command_mistakes_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "serve", "--scenario", "other") == 2
    assert capsys.readouterr().err == "xla-cost: --scenario 'other': unknown; expected study\n"


def test_curves_for_dynamo_replay(tmp_path: Path) -> None:
    system = assemble(read_spec(write(tmp_path, GIVEN))).system
    data = np.load(export_npz(system, tmp_path / "curves.npz"))
    assert set(data) == {"prefill_isl", "prefill_ttft_ms", "decode_active_kv_tokens",
                         "decode_context_length", "decode_itl"}  # fmt: skip
    # the replay takes nothing but float64, silently
    assert {str(data[key].dtype) for key in data} == {"float64"}
    # 1 ms + 10 us a token
    assert data["prefill_ttft_ms"] == pytest.approx(1.0 + 0.01 * data["prefill_isl"])
    kv, context = data["decode_active_kv_tokens"], data["decode_context_length"]
    assert (np.diff(kv) > 0).all()
    assert (np.diff(context) > 0).all()
    # 5 ms + 20 us a request + 0.5 ns a token of cache: rows are cache tokens, columns contexts
    expected = 5 + 0.02 * kv[:, None] / context[None, :] + 0.5e-6 * kv[:, None]
    assert data["decode_itl"] == pytest.approx(expected)


def test_the_study_scenario_is_the_study_s() -> None:
    spec = study_spec(4096)
    assert [(p.role, p.workers) for p in spec.pools] == [("prefill", 6), ("decode", 1)]
    devices = [p.workers * p.worker.devices for p in spec.pools]
    assert devices == [48, 24]
    assert (spec.load.rate_per_s, spec.load.in_flight) == (250.0, 4096)
    assert (spec.load.input_tokens.mean, spec.load.output_tokens.mean) == (8192, 1024)


def test_changes_stand_beside_the_study(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, GIVEN))
    system = assemble(spec).system
    result = summarise(system, simulate(system, spec.load), spec.slo)
    found = {c.what: c for c in changes(result, result)}
    assert found["p99 TTFT"].change == 0.0
    assert found["p99 TTFT"].deviation == pytest.approx(0.12)  # the study: at least 12 % better
    assert found["p99 TPOT"].deviation == pytest.approx(-0.77)
