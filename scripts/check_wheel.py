"""Builds sdist and wheel, installs the wheel where nothing else is, and runs it there.

    python scripts/check_wheel.py [--keep FOLDER]

Works on a copy of the tree without what earlier builds left, so that what the archives hold
does not depend on them. The wheel is made from the sdist. Exits 1 with one line at the first
thing that is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: What builds, tests and editors leave behind.
LEFTOVERS = shutil.ignore_patterns(
    ".*", "*.egg-info", "__pycache__", "build", "dist", "out", "site", "node_modules"
)
#: What a source archive must hold beyond the package itself.
SOURCES = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "pyproject.toml",
    "constraints.txt",
    "Makefile",
    "models/transformer.py",
    "hardware/b300.toml",
    "tests/conftest.py",
    "tests/test_models_numerics.py",
    "docs/design.md",
    "examples/linen_encoder.py",
    "benchmarks/run.py",
    "xla_cost/py.typed",
)
#: What the wheel must hold.
INSTALLED = (
    "xla_cost/__main__.py",
    "xla_cost/py.typed",
    "xla_cost/models/transformer.py",
    "xla_cost/hardware/b300.toml",
    "xla_cost/hardware/b300-photonic.toml",
)
#: The estimate that must come out, and names that must not: nobody's `models` but ours is hidden.
ESTIMATE = (
    "estimate tiny --mesh 2x4x1 --machine b300 --against b300-photonic --seq 256 --batch 8 --json -"
)
FOREIGN = ("models", "hardware", "tests", "benchmarks", "scripts", "docs", "examples")


class WrongError(Exception):
    """What is wrong, in one line."""


def main() -> int:
    """Build, look inside, install, run; gives the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keep", type=Path, help="folder that gets the two archives")
    keep: Path | None = options.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        try:
            check(Path(name), keep)
        except WrongError as error:
            print(f"check_wheel: {error}", file=sys.stderr)
            return 1
    return 0


def check(scratch: Path, keep: Path | None) -> None:
    """Do everything in `scratch`. Raises WrongError at the first thing that is wrong."""
    sdist, wheel = built(scratch)
    check_sdist(sdist)
    check_wheel(wheel)
    python = installed(wheel, scratch / "empty")
    elsewhere = scratch / "elsewhere"
    elsewhere.mkdir()
    check_run(python, elsewhere)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        for archive in (sdist, wheel):
            shutil.copy2(archive, keep)
    print(f"{sdist.name} and {wheel.name}: complete, installed into an empty environment and run")


def built(scratch: Path) -> tuple[Path, Path]:
    """The sdist and the wheel made from it."""
    tree, dist = scratch / "tree", scratch / "dist"
    shutil.copytree(ROOT, tree, ignore=LEFTOVERS)
    environment = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    run([sys.executable, "-m", "build", "--outdir", str(dist), str(tree)], scratch, environment)
    return only(dist, "*.tar.gz"), only(dist, "*.whl")


def only(folder: Path, pattern: str) -> Path:
    """The one file of that pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise WrongError(f"{folder}: holds {len(found)} of {pattern}; expected one")
    return found[0]


def check_sdist(path: Path) -> None:
    """Everything is inside that building and testing needs."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    lack = [name for name in SOURCES if name not in names]
    if lack:
        raise WrongError(f"{path.name}: lacks {', '.join(lack)}")


def check_wheel(path: Path) -> None:
    """Everything is under `xla_cost`, as are models and machines, and every module came along."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    lack = [name for name in (*INSTALLED, *package_files()) if name not in names]
    if lack:
        raise WrongError(f"{path.name}: lacks {', '.join(lack)}")
    top = {name.partition("/")[0] for name in names}
    strange = sorted(name for name in top if name != "xla_cost" and ".dist-info" not in name)
    if strange:
        raise WrongError(f"{path.name}: installs {', '.join(strange)}; expected xla_cost alone")
    if not any(name.endswith("licenses/LICENSE") for name in names):
        raise WrongError(f"{path.name}: holds no LICENSE")


def package_files() -> list[str]:
    """Every module and page asset of the tree by its installed name."""
    folders = {"xla_cost": "xla_cost", "models": "xla_cost/models", "hardware": "xla_cost/hardware"}
    return [
        f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, target in folders.items()
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix in (".py", ".toml", ".js", ".css", ".html", ".typed")
    ]


def installed(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment that holds the wheel and what it asks for."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], folder)
    return python


def check_run(python: Path, folder: Path) -> None:
    """The installed command gives a sane answer, from a folder that has nothing of ours."""
    environment = {"XLA_COST_CACHE": str(folder / "cache")}
    places = json.loads(run([str(python), "-c", _PLACES], folder, environment))
    if places["foreign"]:
        raise WrongError(f"the wheel installs top-level {', '.join(places['foreign'])}")
    if Path(places["package"]).is_relative_to(ROOT):
        raise WrongError(f"xla_cost came from {places['package']}; expected the environment")
    command = str(python.parent / "xla-cost")
    if (version := run([command, "--version"], folder, environment).split()[-1:]) != [_version()]:
        raise WrongError(f"xla-cost --version gives {version}; expected {_version()}")
    check_numbers(json.loads(run([command, *ESTIMATE.split()], folder, environment)))


_PLACES = f"""
import importlib.util, json, pathlib, sysconfig, xla_cost
site = pathlib.Path(sysconfig.get_path("purelib"))
foreign = [n for n in {FOREIGN!r} if (site / n).exists() or (site / f"{{n}}.py").exists()]
print(json.dumps({{"package": xla_cost.__file__, "foreign": foreign}}))
"""


def _version() -> str:
    for line in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("version = "):
            return line.partition('"')[2].rstrip('"')
    raise WrongError("pyproject.toml: names no version")


def check_numbers(answer: dict[str, Any]) -> None:
    """The estimate is that of `tiny` on eight devices: positive, consistent, its ratio exact."""
    copper, light = answer["results"]
    if answer["mesh"]["devices"] != 8:
        raise WrongError(f"mesh.devices = {answer['mesh']['devices']}; expected 8")
    for result in (copper, light):
        latency, compute = result["latency_s"], result["compute_s"]
        exposed = result["exposed_comm_s"]
        if not 0 < compute < latency < 1:
            raise WrongError(f"{result['machine']}: compute {compute} s, latency {latency} s")
        if abs(latency - compute - exposed) > 1e-9 * latency:
            raise WrongError(f"{result['machine']}: {latency} is not {compute} + {exposed}")
    if not answer["program"]["collectives"]:
        raise WrongError("program.collectives is empty; tiny has some on 2x4x1")
    if abs(answer["ratio"] - copper["latency_s"] / light["latency_s"]) > 1e-9:
        raise WrongError(f"ratio = {answer['ratio']}; expected the latencies' quotient")


def run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Standard output of a command. Raises WrongError with what it said where it fails."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env={**keep, **(environment or {})}, text=True, capture_output=True
    )
    if done.returncode:
        said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise WrongError(f"{' '.join(command[:6])}: exit {done.returncode}: {said}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
