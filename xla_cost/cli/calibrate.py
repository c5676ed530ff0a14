"""`xla-cost calibrate`: fit efficiencies to measurements."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def calibrate(
    machine: Annotated[
        list[str] | None, typer.Option("--machine", help="machines to fit; default: all measured")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="replace the fitted tables of the machine's file")
    ] = False,
    json: Annotated[str, typer.Option("--json", help="FILE, or - for standard output")] = "",
) -> None:
    """Fit efficiencies to the measured tables of the `calibrate` extra and report errors."""
    import sys

    from rich.console import Console

    from xla_cost.calibrate import FOLDERS
    from xla_cost.calibrate import calibrate as fit
    from xla_cost.calibrate import write as write_file
    from xla_cost.jsonio import write_json
    from xla_cost.machine import load

    progress = Console(stderr=True)
    results = []
    for name in machine or list(FOLDERS):
        table = load(name)
        result = fit(table, lambda line, name=name: progress.print(f"{name}: {line}"))  # type: ignore[misc]
        if write:
            write_file(_packaged_file(name), result)
        results.append(result)
    if json:
        write_json(json, {"calibrations": [result.describe() for result in results]})
    if json != "-":
        Console(file=sys.stdout).print(_table(results))


def _packaged_file(name: str) -> Any:
    from importlib.resources import files
    from pathlib import Path

    return Path(str(files("xla_cost.hardware"))) / f"{name}.toml"


def _table(results: list[Any]) -> Any:
    from rich.table import Table

    table = Table("machine", "kind", "format", "fitted", "held out", "median", "p90",
                  title="error on rows that were not fitted")  # fmt: skip
    for result in results:
        for kind, number_format, record in result.records():
            shown = [
                "-" if error is None else f"{error:.1%}"
                for error in (record.median_error, record.p90_error)
            ]
            table.add_row(result.machine, kind, number_format, str(record.rows),
                          str(record.held_out_rows), *shown)  # fmt: skip
    return table
