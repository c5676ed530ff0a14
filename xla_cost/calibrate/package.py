"""Finding and reading the measured tables that the `calibrate` extra installs.

The package is never imported: only its parquet and csv files are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from xla_cost.errors import XlaCostError

if TYPE_CHECKING:
    import pandas

PACKAGE = "aiconfigurator-core"
TESTED_VERSION = "0.12.0"

#: machine name -> name of its folder of tables
FOLDERS = {
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "gb200": "gb200",
    "b300": "b300_sxm",
    "gb300": "gb300",
}


@dataclass(frozen=True, slots=True)
class Tables:
    """The folder of measured tables of one GPU."""

    folder: Path
    version: str

    def read(self, pattern: str, columns: list[str]) -> pandas.DataFrame:
        """All tables that match, stacked, with a column `table` (`gemm/trtllm/1.3.0rc20`).

        Tables without one of `columns` are left out: their schema is another's.
        """
        import pandas

        found = []
        for path in sorted(self.folder.glob(pattern)):
            frame = pandas.read_parquet(path)
            if set(columns) <= set(frame.columns):
                frame = frame[columns].copy()
                frame["table"] = path.parent.relative_to(self.folder).as_posix()
                found.append(frame)
        if not found:
            return pandas.DataFrame(columns=[*columns, "table"], dtype=object)
        return pandas.concat(found, ignore_index=True)


def is_installed() -> bool:
    """Whether the extra is there."""
    return find_spec("aiconfigurator_core") is not None


def systems_folder() -> tuple[Path, str]:
    """The `systems` folder of the installed package, and its version.

    Raises XlaCostError where the extra is not installed.
    """
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise XlaCostError(
            f"calibrate: {PACKAGE} is not installed; expected pip install 'xla-cost[calibrate]'"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "systems", metadata.version(PACKAGE)


def tables(machine: str) -> Tables:
    """The measured tables of a machine. Raises XlaCostError where it has none."""
    if machine not in FOLDERS:
        raise XlaCostError(
            f"calibrate: no measurements of {machine!r}; expected one of {', '.join(FOLDERS)}"
        )
    folder, version = systems_folder()
    return Tables(folder / "data" / FOLDERS[machine], version)
