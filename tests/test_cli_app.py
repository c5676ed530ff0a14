"""The command table: what it lists, what it imports, how it refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from xla_cost.cli import app as cli

SEARCH = ["search", "tiny", "--machine", "b300", "--batch", "8"]


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = cli.run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_help_lists_every_command_that_exists(capsys):
    code, out, err = run(capsys, "--help")
    assert code == 0
    assert err == ""
    for name in ("estimate", "demo", "models", "plans"):
        assert name in out


def test_no_command_prints_the_help(capsys):
    assert run(capsys)[0] == 0


def test_help_imports_neither_jax_nor_typer_nor_any_command():
    code = (
        "import sys; from xla_cost.cli.app import run; assert run(['--help']) == 0; "
        "print([m for m in ('jax', 'typer', 'numpy', 'pandas', 'rich', 'xla_cost.cli.estimate') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version_is_the_installed_one(capsys):
    from importlib.metadata import version

    assert run(capsys, "--version") == (0, f"xla-cost {version('xla-cost')}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "no such command 'nosuch'"),
        (["--nosuch"], "no such option '--nosuch'"),
        (["estimate"], "missing argument"),
        (["estimate", "tiny", "--batch", "many"], "valid integer"),
        (["estimate", "tiny", "--nosuch", "1"], "no such option: --nosuch"),
        (["estimate", "own.py"], "expected own.py:function"),
        (["estimate", "own.py:fn", "--mesh", "2x4x1"], "--mesh: only for models"),
        (["estimate", "a.hlo", "--seq", "64"], "--seq: only for models"),
        (["estimate", "tiny", "--mesh", "16x144x1"], "2304 devices: XLA partitions for at most"),
        ([*SEARCH, "--devices", "100000", "--seq", "256"], "100000 devices"),
        ([*SEARCH, "--devices", "8", "--seq", "-1"], "seq = -1"),
        ([*SEARCH, "--devices", "8", "--seq", "256", "--format", "q"], "format 'q'"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("xla-cost: ")
    assert message in err


def test_interrupt_is_one_line_and_exit_130(capsys, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.app, "invoke", interrupted)
    assert run(capsys, "demo") == (130, "", "xla-cost: interrupted\n")


def test_reader_that_goes_away_leaves_no_traceback():
    """`xla-cost plans | true`: the pipe is closed before anything is written."""
    code = (
        "import os, sys; from xla_cost.cli.app import run; r, w = os.pipe(); os.dup2(w, 1); "
        "os.close(r); os.close(w); sys.exit(run(['plans']))"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert done.stderr == ""
    assert done.returncode == 141


@pytest.mark.parametrize("arguments", [["plans"], ["plans", "--json", "-"], ["machines"]])
def test_a_full_disk_is_one_line_and_exit_2(arguments):
    """Not 1, which would say that a check does not hold."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "xla_cost", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.stderr == (
        "xla-cost: standard output: cannot be written (No space left on device)\n"
    )
    assert done.returncode == 2


def test_plans_as_json(capsys):
    import json

    code, out, err = run(capsys, "plans", "--json", "-")
    assert (code, err) == (0, "")
    assert {"study", "dp-attention"} <= {plan["name"] for plan in json.loads(out)["plans"]}


def test_models_are_counted(capsys):
    """Published or derived totals, active in brackets: V3 670.9B (37.4B), R1 846.6B (42.0B)."""
    import json

    code, out, err = run(capsys, "models", "--json", "-")
    assert (code, err) == (0, "")
    counted = {row["name"]: row for row in json.loads(out)["models"]}
    assert round(counted["deepseek-v3"]["parameters"] / 1e9, 1) == 670.9
    assert round(counted["deepseek-v3"]["active_parameters"] / 1e9, 1) == 37.4
    assert round(counted["r1"]["parameters"] / 1e9, 1) == 846.6
    assert run(capsys, "models", "nosuch")[0] == 2
