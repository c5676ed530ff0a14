"""What starting does not import: that, not a clock, is what keeps commands quick to answer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = Path(__file__).parent / "hlo_modules" / "oracle" / "collectives.hlo"
HEAVY = {
    "jax", "jaxlib", "flax", "numpy", "pandas", "pyarrow", "xarray", "matplotlib", "plotly", "dask",
    "distributed", "simpy", "scipy",
}  # fmt: skip
#: what `--help` and `--version` may not import on top of that
TERMINAL = {"typer", "rich", "pydantic", "xla_cost.hlo", "xla_cost.walk", "xla_cost.machine"}

SCRIPT = """
import contextlib, io, json, sys
from xla_cost.cli.app import run
with contextlib.redirect_stdout(io.StringIO()):
    code = run(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""


def imported(*arguments: str) -> set[str]:
    """The modules that a command has imported by its end, with their parents."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stdout)
    assert code == 0
    assert "xla_cost.cli.app" in modules
    return set(modules)


def test_help_imports_no_command_and_nothing_heavy() -> None:
    found = imported("--help")
    assert found & (HEAVY | TERMINAL) == set()
    assert {name for name in found if name.startswith("xla_cost.cli.")} == {"xla_cost.cli.app"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("inspect", str(MODULE)),
        ("inspect", str(MODULE), "--json", "-"),
        ("inspect", "--help"),
        ("machines",),
        ("machines", "b300"),
    ],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) & HEAVY == set()


@pytest.mark.parametrize(
    "arguments",
    [("inspect", str(MODULE)), ("inspect", str(MODULE), "--json", "-", "--strict"), ("machines",)],
    ids=" ".join,
)
def test_text_on_the_command_line_needs_no_pydantic(arguments: tuple[str, ...]) -> None:
    """Typer reads numbers and paths with it; a quarter of what `inspect` takes."""
    assert "pydantic" not in imported(*arguments)


@pytest.mark.parametrize(
    "command", ["estimate", "search", "sweep", "study", "serve", "validate", "calibrate"]
)
def test_help_of_a_heavy_command_imports_nothing_heavy(command: str) -> None:
    assert imported(command, "--help") & HEAVY == set()
