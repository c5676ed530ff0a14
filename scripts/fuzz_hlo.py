"""Fuzzes the HLO reader and the walker with coverage feedback, for a bounded time.

    pip install atheris
    python scripts/fuzz_hlo.py [SECONDS] [CORPUS_FOLDER]

Inputs start from the modules of the tests. Whatever ends in anything but modules or an
XlaCostError of one line is a finding: atheris prints it, leaves the input in a file `crash-*`
and exits with an error. An input that takes more than ten seconds or 1 GB is a finding too.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["xla_cost.hlo", "xla_cost.walk", "xla_cost.groups"]):
    from xla_cost.errors import XlaCostError
    from xla_cost.hlo import parse
    from xla_cost.program_io import from_json, to_json
    from xla_cost.walk import walk

TESTS = Path(__file__).resolve().parent.parent / "tests"
#: Longest input in bytes: every module of the tests fits.
LONGEST = 16_384


def one_input(data: bytes) -> None:
    """Read, walk, write and read back one input; raises where that is not one clear error."""
    text = data.decode("utf-8", errors="replace")
    try:
        modules = parse(text)
    except XlaCostError as error:
        _one_line(error)
        return
    for module in modules:
        try:
            program = walk(module)
        except XlaCostError as error:
            _one_line(error)
            continue
        if from_json(to_json(program)) != program:
            raise AssertionError(f"{module.name}: the ledger does not come back equal")


def _one_line(error: XlaCostError) -> None:
    if not str(error).strip() or "\n" in str(error):
        raise AssertionError(f"not one line: {error!r}")


def seeds(folder: Path) -> None:
    """Put the modules of the tests into `folder`, one file each."""
    sys.path.insert(0, str(TESTS))
    from hlo_texts import ALL

    for name, text in ALL.items():
        (folder / name.replace("/", "-").replace(" ", "-")).write_text(text, encoding="utf-8")


def main() -> None:
    """Fuzz until the time is over or something is found."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="fuzz-hlo-"))
    folder.mkdir(parents=True, exist_ok=True)
    seeds(folder)
    options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-timeout=10"]
    limits = ["-rss_limit_mb=1024", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, *limits, str(folder)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
