"""A sweep killed with -9 at any moment and started again ends as one that nothing disturbed."""

import os
import signal
import subprocess
import sys

import pytest

from xla_cost.cli.app import run as command

TOML = """
name = "killed"
models = ["tiny"]
machines = ["b300", "b300-photonic"]
devices = [2, 4]
workloads = [{ seq = 64, batch = 8 }]
meshes = ["1x2x1", "1x4x1", "2x2x1"]
"""
TABLES = ("table.csv", "table.parquet", "cube.nc")

#: Runs the command line, and kills itself at the N-th call of a function: before it, or, where
#: the function writes a file, when half of the data is in a temporary file beside it.
KILLER = """
import importlib, os, signal, sys
import xla_cost.cache, xla_cost.sweep.tables  # which take their names before one is replaced
from pathlib import Path
from xla_cost.cli.app import run

place, suffix, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
module, _, name = place.rpartition(".")
module = importlib.import_module(module)
real, calls = getattr(module, name), []

def killing(*given, **named):
    if name != "replace_file" or str(given[0]).endswith(suffix):
        calls.append(given)
        if len(calls) == number:
            if name == "replace_file":
                path, data = given
                beside = Path(named.get("scratch") or path.parent)
                (beside / ".half.tmp").write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **named)

setattr(module, name, killing)
sys.exit(run(sys.argv[4:]))
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The bytes of the tables of a sweep that ran through."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_COST_CACHE", str(folder / "cache"))
        assert command(arguments(folder)) == 0
    return {name: (folder / "out" / name).read_bytes() for name in TABLES}


def arguments(folder, *more):
    spec = folder / "spec.toml"
    spec.write_text(TOML)
    return ["sweep", str(spec), "--out", str(folder / "out"), "--processes", "0", "-q", *more]


@pytest.mark.parametrize(
    ("place", "suffix", "number", "points"),
    [
        ("xla_cost.lowering.partition.compile_until_partitioned", "-", 1, 0),
        ("xla_cost.lowering.partition.compile_until_partitioned", "-", 3, 2),
        ("xla_cost.cache.replace_file", ".json", 2, 0),  # the first program and its price
        ("xla_cost.sweep.run._search_point", "-", 2, 1),  # between two points
        ("xla_cost.jsonio.replace_file", ".json", 1, 0),  # spec.json
        ("xla_cost.jsonio.replace_file", ".json", 3, 1),  # the second point
        ("xla_cost.sweep.tables.replace_file", ".csv", 1, 4),
    ],
    ids=lambda value: str(value).rpartition("xla_cost.")[2],
)
def test_it_goes_on_where_it_was_killed(
    place, suffix, number, points, undisturbed, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XLA_COST_CACHE", str(tmp_path / "cache"))
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, place, suffix, str(number), *arguments(tmp_path)],
        env=os.environ, capture_output=True, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list(tmp_path.glob("out/points/*.json"))) == points
    assert not (tmp_path / "out" / "cube.nc").exists()
    assert command(arguments(tmp_path, "--list")) == 0
    assert f"{points} points done, {4 - points} missing" in capsys.readouterr().out
    assert command(arguments(tmp_path)) == 0
    assert f"{4 - points} points computed, {points} were there" in capsys.readouterr().out
    assert {name: (tmp_path / "out" / name).read_bytes() for name in TABLES} == undisturbed
