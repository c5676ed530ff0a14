"""`xla-cost check` from the command line, the same lock every time, and docs/ci.md replayed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from xla_cost.cli import app as cli
from xla_cost.gate.compare import Change
from xla_cost.gate.report import annotation

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "ci.md"

SOURCE = """
import jax, jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P
MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
def step(x, w):
    with jax.named_scope("ffn"):
        return x @ w
def target():
    x, w = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((64, 32), (32, 16)))
    return {"fn": step, "args": (x, w), "mesh": MESH,
            "in_shardings": (P("data", "model"), P("model"))}
"""
#: every device sums its 32 x 16 part over the 4 of `model`
LOCK = """\
# xla-cost lock 1. What one device computes and moves; rewrite with `xla-cost check --update`.
made-with jax {jax}, target cpu
devices 8
tolerance collective_bytes 0 %
tolerance flops 0 %
tolerance memory 2 %
flops bf16 8192
flops bf16 scope=ffn 8192
collective all-reduce bf16 4 devices x 2 [0:4:1] scope=ffn bytes=1024 executions=1
memory parameters 768
memory peak {peak}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path


def run(capfd, *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["check", "mine.py:target", "--lock", "costs.lock", *arguments])
    out, err = capfd.readouterr()
    return code, out, err


def expected_lock(text: str) -> str:
    import jax

    peak = next(line.split()[-1] for line in text.splitlines() if line.startswith("memory peak"))
    assert int(peak) >= 768 + 1024  # arguments and the product
    return LOCK.format(jax=jax.__version__, peak=peak)


def test_a_lock_is_written_checked_and_refused(folder: Path, capfd):
    code, _, err = run(capfd)
    assert (code, err) == (
        2, "xla-cost: costs.lock: there is no lock yet; expected a file made with --update\n",
    )  # fmt: skip
    assert run(capfd, "--update")[:2] == (0, "costs.lock: written\n")
    text = (folder / "costs.lock").read_text()
    assert text == expected_lock(text)
    assert 2 * (64 // 2) * (32 // 4) * 16 == 8192
    assert (32 * 8 + 8 * 16) * 2 == 768
    assert run(capfd)[:2] == (0, "costs.lock: nothing changed\n")
    assert run(capfd, "--update")[:2] == (0, "costs.lock: nothing changed\n")

    mine = folder / "mine.py"
    mine.write_text(SOURCE.replace('P("data", "model"), P("model")', 'P("data"), P("model")'))
    code, out, err = run(capfd, "--annotate", "--json", "out.json")
    assert code == 1
    assert "accept with: xla-cost check mine.py:target --lock costs.lock --update\n" in out
    answer = json.loads((folder / "out.json").read_text())
    assert answer["ok"] is False
    worse = [change for change in answer["changes"] if change["worse"]]
    assert worse
    assert {tuple(c["sources"]) for c in worse if c["what"] == "collective"} <= {
        (f"{mine}:7",), (),
    }  # fmt: skip
    assert answer["lock"].startswith("# xla-cost lock 1.")
    assert "::error " in out


def test_savings_pass_unless_exact(folder: Path, capfd):
    assert run(capfd, "--update")[0] == 0
    (folder / "mine.py").write_text(
        SOURCE.replace('P("data", "model"), P("model")', 'P("data"), P()')
    )
    path = folder / "costs.lock"
    text = path.read_text()
    for old, new in (
        ("flops bf16 8192", "flops bf16 99999"),
        ("memory peak", "memory peak 9"),
        ("memory parameters ", "memory parameters 99"),
        ("scope=ffn 8192", "scope=ffn 99999"),
    ):
        text = text.replace(old, new)
    path.write_text(text.replace("memory peak 9 ", "memory peak 9"))
    code, out, _ = run(capfd)
    assert (code, "other  gone: all-reduce bf16" in out) == (0, True)
    assert out.endswith("costs.lock: no change for the worse\n")
    code, out, _ = run(capfd, "--exact")
    assert (code, "WORSE  gone: all-reduce bf16" in out) == (1, True)


def test_json_on_standard_output_is_only_json(folder: Path, capfd):
    run(capfd, "--update")
    code, out, _ = run(capfd, "--json", "-")
    assert code == 0
    assert json.loads(out)["changes"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch.py:f", "--lock", "a.lock", "--update"), "nosuch.py"),
        (("mine.py", "--lock", "a.lock", "--update"), "check 'mine.py': expected module:function"),
        (("nosuch.hlo", "--lock", "a.lock", "--update"), "nosuch.hlo: cannot be read"),
        (("mine.py:target",), "--lock"),
        (("mine.py:target", "--lock", "bad.lock"), "bad.lock: line 1 is 'nonsense'"),
        (("mine.py:target", "--lock", "."), ".: cannot be read as a lock"),
        (("mine.py:target", "--lock", "a.lock", "--machine", "nosuch"), "'nosuch' is unknown"),
        (("mine.py:target", "--lock", "no/a.lock", "--update"), "no/a.lock: cannot be written"),
    ],
)
def test_bad_input_is_one_clear_line(folder: Path, capfd, arguments, message):
    (folder / "bad.lock").write_text("nonsense\n")
    code = cli.run(["check", *arguments])
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("xla-cost: ")
    assert err.count("\n") == 1
    assert message in err


def test_an_hlo_file_has_a_lock_too(folder: Path, capfd):
    text = (
        "HloModule m, num_partitions=4\n\nENTRY main {\n  a = bf16[128,64]{1,0} parameter(0)\n"
        "  ROOT g = bf16[512,64]{1,0} all-gather(a), channel_id=1, dimensions={0}, "
        "replica_groups={{0,1,2,3}}, use_global_device_ids=true, "
        'metadata={op_name="jit(f)/a/b"}\n}\n'
    )
    (folder / "m.hlo").write_text(text)
    assert cli.run(["check", "m.hlo", "--lock", "m.lock", "--update"]) == 0
    line = "collective all-gather bf16 4 devices x 1 [0:4:1] scope=a bytes=16384 executions=1"
    assert line in (folder / "m.lock").read_text().splitlines()
    (folder / "m.hlo").write_text(text.replace("128,64", "256,64").replace("512,64", "1024,64"))
    assert cli.run(["check", "m.hlo", "--lock", "m.lock"]) == 1
    assert "1 x 16,384 bytes -> 1 x 32,768 bytes (+100.0 % bytes)" in capfd.readouterr().out


def test_the_same_lock_from_any_process(folder: Path):
    """Fresh processes, other hash seeds, and a caller that is not the command line."""
    program = "from xla_cost.cli.app import run; raise SystemExit(run())"
    for seed, lock in (("1", "a.lock"), ("2", "b.lock")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "XLA_COST_CACHE": "off"}
        environment.pop("XLA_FLAGS", None)
        subprocess.run(
            [sys.executable, "-c", program, "check", "mine.py:target", "--lock", lock, "--update"],
            env=environment, check=True, capture_output=True,
        )  # fmt: skip
    assert cli.run(["check", "mine.py:target", "--lock", "c.lock", "--update"]) == 0
    texts = {(folder / name).read_bytes() for name in ("a.lock", "b.lock", "c.lock")}
    assert len(texts) == 1


def test_annotations_escape_what_github_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    change = Change(True, "flops", "FLOPs: 1 -> 2\n(+100 %)", sources=(f"{tmp_path}/a,b.py:7",))
    assert annotation(change) == (
        "::error file=a%2Cb.py,line=7,title=xla-cost::FLOPs: 1 -> 2%0A(+100 %25)  <- a,b.py:7"
    )
    assert annotation(Change(True, "memory", "more")) == "::error title=xla-cost::more"


def test_the_session_in_the_document_is_what_happens(tmp_path: Path):
    place = ROOT / "scripts" / "replay.py"
    spec = importlib.util.spec_from_file_location("replay_script", place)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = DOCUMENT.read_text()
    assert script.Session(tmp_path.resolve()).replay(text) == text
    # and it shows what it is there to show: the all-gather at the line of the mistake
    wrong = (tmp_path / "train.py").read_text().splitlines()[13 - 1]
    assert wrong == '        h = jax.lax.with_sharding_constraint(h, P("data", None))'
    assert "new: all-gather bf16 over 4 devices x 2 [0:4:1] in ffn" in text
    assert "       at train.py:12, for train.py:13, " in text
    assert "involuntary-full-rematerialization" in text


def test_the_workflow_is_the_file_beside_the_document():
    workflow = (DOCUMENT.parent / "ci-workflow.yml").read_text()
    assert f'```yaml title=".github/workflows/costs.yml"\n{workflow}```' in DOCUMENT.read_text()
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    commands = [step["run"].split()[0] for step in job["steps"] if "run" in step]
    assert commands == ["pip", "xla-cost", "pytest"]
