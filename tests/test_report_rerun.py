"""`rerun`: the same numbers, or what differs and why; nothing in a stranger's file is run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from report_results import sweep_result

from xla_cost.cli import app as cli
from xla_cost.errors import XlaCostError
from xla_cost.hlo.fingerprint import hlo_sha256
from xla_cost.report.differences import differences
from xla_cost.report.rerun import rerun
from xla_cost.report.result_file import checked

HLO = """HloModule m, num_partitions=4, replica_count=1
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main { p = bf16[128,128]{1,0} parameter(0)
  d = bf16[128,128]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = bf16[128,128]{1,0} all-reduce(d), replica_groups={{0,1,2,3}}, to_apply=add }
"""


@pytest.fixture(scope="module")
def hlo(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hlo") / "m.hlo"
    path.write_text(HLO)
    return path


@pytest.fixture(scope="module")
def stored(hlo, tmp_path_factory) -> dict[str, Any]:
    """`estimate m.hlo` on copper and photons, as a file."""
    path = tmp_path_factory.mktemp("results") / "r.json"
    command = ["estimate", str(hlo), "--against", "b300-photonic", "--json", str(path), "--quiet"]
    assert cli.run(command) == 0
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def run(tmp_path: Path, result: dict[str, Any], *more: str) -> int:
    path = tmp_path / "stored.json"
    path.write_text(json.dumps(result))
    return cli.run(["rerun", str(path), *more])


def changed(result: dict[str, Any], **places: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(result))
    copy.update(places)
    return copy


def test_the_same_numbers(tmp_path, stored, capfd):
    assert run(tmp_path, stored) == 0
    assert "numbers, all the same" in capfd.readouterr().out


def test_the_command_is_recorded(stored, hlo):
    assert stored["provenance"]["command"][:3] == ["xla-cost", "estimate", str(hlo)]
    assert stored["provenance"]["result_version"] == 1


def test_a_changed_number_is_found_by_its_place(tmp_path, stored, capfd):
    result = changed(stored)
    result["results"][1]["latency_s"] *= 1 + 1e-12
    assert run(tmp_path, result) == 1
    out = capfd.readouterr().out
    assert "1 values differ" in out
    assert "results[1].latency_s" in out


def test_a_changed_program_machine_or_version_is_said(tmp_path, stored, capfd):
    result = changed(stored)
    result["program"]["provenance"]["hlo_sha256"] = "0" * 64
    result["results"][0]["machine_hash"] = "1" * 64
    result["provenance"]["versions"]["jax"] = "0.0.1"
    assert run(tmp_path, result, "--json", str(tmp_path / "rerun.json")) == 1
    found = json.loads((tmp_path / "rerun.json").read_text())
    assert [row["place"] for row in found["different"]] == ["results[0].machine_hash"]
    text = " ".join(found["changed"])
    assert "jax: 0.0.1 in the file" in text
    assert "machine b300: 111111111111 in the file" in text


def test_a_model_is_built_again_from_its_fields(tmp_path, monkeypatch):
    """tiny, partitioned twice: the second time from the JSON alone."""
    monkeypatch.setenv("XLA_COST_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.json"
    command = ["estimate", "tiny", "--mesh", "2x4x1", "--policy", "study", "--imbalance", "1.5"]
    assert cli.run([*command, "--json", str(path), "--quiet"]) == 0
    monkeypatch.setenv("XLA_COST_CACHE", "off")
    found = rerun(checked(json.loads(path.read_text()), "tiny.json"))
    assert found.same
    assert found.changed == ()
    assert found.compared > 100


def test_python_code_is_not_run_unless_trusted(tmp_path, stored, monkeypatch, capfd):
    (tmp_path / "stranger.py").write_text("open('was_run', 'w').close()\ndef target(): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = changed(stored, model="stranger:target")
    for command in ("rerun", "explain"):
        path = tmp_path / "stored.json"
        path.write_text(json.dumps(result))
        assert cli.run([command, str(path)]) == 2
        assert "would run; expected --trust" in capfd.readouterr().err
    assert not (tmp_path / "was_run").exists()
    assert "stranger" not in sys.modules


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"model": None}, "model is missing"),
        ({"model": "/nowhere/x.hlo"}, "cannot be read (No such file or directory)"),
        ({"model": "tiny", "mesh": {"shape": [2, "4", 1]}, "seq": 16, "batch": 8}, "three sizes"),
        ({"model": "tiny", "mesh": {"shape": [2, 4, 1]}, "seq": 16}, "batch is missing"),
        ({"model": "tiny", "mesh": {"shape": [2, 4, 1]}, "seq": "16"}, "seq = '16'; expected a va"),
    ],
)
def test_what_cannot_be_built_is_said(stored, places, said):
    with pytest.raises(XlaCostError) as caught:
        rerun(checked(changed(stored, **places), "r.json"))
    assert said in str(caught.value)
    assert str(caught.value).startswith("r.json: ")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("kernel_rates", "fast", "policy.kernel_rates = 'fast'; expected one of peak, fitted"),
        ("latency", 1, "policy.latency = 1; expected a value of type bool"),
        ("top_k", True, "policy.top_k = True; expected a value of type int"),
        ("priced_kinds", "matmul", "policy.priced_kinds = 'matmul'; expected a list of strings"),
        ("expert_imbalance", 0.5, "expert_imbalance = 0.5; must be >= 1"),
        ("nonsense", 1, "policy.nonsense is unknown"),
    ],
)
def test_policies_are_read_strictly(stored, field, value, said):
    result = changed(stored)
    result["results"][0]["policy"][field] = value
    with pytest.raises(XlaCostError) as caught:
        rerun(checked(result, "r.json"))
    assert said in str(caught.value)


def test_a_command_is_repeated_with_its_outputs_elsewhere(tmp_path, hlo, capfd):
    path = tmp_path / "inspect.json"
    assert cli.run(["inspect", str(hlo), "--json", str(path)]) == 0
    result = json.loads(path.read_text())
    path.unlink()
    capfd.readouterr()
    assert run(tmp_path, result) == 0
    assert not path.exists()
    result["modules"][0]["flops"] += 1
    assert run(tmp_path, result) == 1
    assert "modules[0].flops: 4194305 in the file, 4194304 now" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (None, "provenance.command is missing"),
        (["xla-cost"], "provenance.command is missing"),
        (["xla-cost", 3], "provenance.command is missing"),
        (["xla-cost", "check", "os:abort"], "provenance.command[1] = 'check'; expected one of"),
        (["xla-cost", "inspect", "/nowhere/x.hlo"], "repeating xla-cost inspect failed: "),
    ],
)
def test_commands_that_cannot_be_repeated(command, said):
    result = sweep_result() | {"provenance": {"command": command}}
    with pytest.raises(XlaCostError) as caught:
        rerun(checked(result, "r.json"))
    assert said in str(caught.value)


def test_differences():
    old = {"a": [1, 2.0, {"b": "x"}], "elapsed_s": 1.0, "gone": 1, "flag": True}
    new = {"a": [1, 2.5, {"b": "x", "more": 1}], "elapsed_s": 9.0, "flag": 1}
    assert list(differences(old, new)) == [
        ("a[1]", 2.0, 2.5), ("gone", 1, "(nothing)"), ("flag", True, 1)]  # fmt: skip
    assert list(differences(old, old)) == []
    assert list(differences([1], [1, 2], "x")) == [("x", [1], [1, 2])]


def test_hash_of_hlo_leaves_out_who_asked():
    """Source tables and positions differ by caller; the instructions do not."""
    table = 'HloModule m\n\nFileNames\n1 "a.py"\n2 "b.py"\n\nStackFrames\n1 {x=1}\n\nENTRY e {\n'
    first = table + '  a = f32[] add(b, c), metadata={op_name="f/add" stack_frame_id=7}\n}\n'
    second = first.replace('1 "a.py"\n', "").replace("frame_id=7", "frame_id=12")
    third = first.replace("f/add", "g/add")
    assert hlo_sha256(first) == hlo_sha256(second)
    assert hlo_sha256(first) != hlo_sha256(third)
    assert hlo_sha256(first) != hlo_sha256(first.replace("add(b, c)", "add(c, b)"))
    old = '  a = f32[] add(b, c), metadata={op_name="f" source_file="x.py" source_line=3}'
    assert hlo_sha256(old) == hlo_sha256(old.replace("x.py", "y.py").replace("=3", "=4"))
