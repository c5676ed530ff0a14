"""The tree as its next owner finds it: short modules, no private places, every command there."""

import re
import subprocess
from pathlib import Path

import click
import pytest

from xla_cost.cli.app import COMMANDS, app

ROOT = Path(__file__).resolve().parent.parent
CODE = ("xla_cost", "models", "hardware", "scripts", "benchmarks", "examples", "docs")
LONGEST = 400
#: Names of package registries and of places on somebody's machine; written in pieces, since this
#: file is looked through as well.
_NAMES = (
    "py|pi.org",
    "python|hosted",
    "con|da.org",
    "npm|js.",
    "/wo|rk/",
    "../sha|red",
    "/opt/py|pi",
)
PRIVATE = re.compile("|".join(re.escape(name.replace("|", "")) for name in _NAMES))
TEXT = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".cff", ".in", ".sh", ".js", ".css"}


def tracked() -> list[Path]:
    """What belongs to the tree: what git would take, or without git everything but leftovers."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        leftovers = {"build", "dist", "out", "site", "__pycache__"}
        return [
            path
            for path in ROOT.rglob("*")
            if path.is_file()
            and not any(
                part.startswith(".") or part in leftovers for part in path.relative_to(ROOT).parts
            )
        ]
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_no_module_is_longer_than_one_can_hold_in_mind() -> None:
    modules = [path for path in tracked() if path.suffix == ".py"]
    assert len(modules) > 200
    long = {
        str(path.relative_to(ROOT)): len(lines_of(path))
        for path in modules
        if path.relative_to(ROOT).parts[0] in CODE and len(lines_of(path)) > LONGEST
    }
    assert long == {}


def test_nothing_names_a_registry_or_a_place_on_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        if path.suffix in TEXT or path.name in ("Makefile", "run", "LICENSE")
        for number, line in enumerate(lines_of(path), 1)
        if PRIVATE.search(line)
    ]
    assert found == []


def test_no_constraint_names_an_index() -> None:
    for line in lines_of(ROOT / "constraints.txt"):
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line), line


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_has_a_module_and_help(name: str) -> None:
    assert COMMANDS[name].strip()
    assert not COMMANDS[name].endswith(".")
    command = app.get_command(click.Context(app), name)
    assert command is not None, f"{name}: no module xla_cost/cli/{name}"
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    assert [p.name for p in shown if not getattr(p, "help", "")] == []


def test_every_package_folder_is_in_the_wheel() -> None:
    import tomllib

    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {
        "xla_cost." + path.parent.relative_to(ROOT / "xla_cost").as_posix().replace("/", ".")
        for path in (ROOT / "xla_cost").rglob("*.py")
        if path.parent != ROOT / "xla_cost"
    }
    assert set(listed) == folders | {"xla_cost", "xla_cost.models", "xla_cost.hardware"}
