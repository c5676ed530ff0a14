"""`xla-cost sweep`: a cross product of workloads and machines, each point searched."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def sweep(
    spec: Annotated[Path, typer.Argument(help="A sweep TOML file; examples/sweeps holds two.")],
    out: Annotated[Path, typer.Option(help="Folder for results; an unfinished one goes on.")],
    cluster: Annotated[str | None, typer.Option(help="An existing dask scheduler.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Insist that OUT holds this sweep already.")
    ] = False,
    list_points: Annotated[
        bool, typer.Option("--list", help="Print every point and its state, compute nothing.")
    ] = False,
    processes: Annotated[int | None, typer.Option(help="Worker processes.", min=0)] = None,
    json: Annotated[str | None, typer.Option(help="Write the rows here; - for stdout.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Search every point of the spec; one row per point in table.parquet, .csv and cube.nc."""
    from xla_cost.errors import XlaCostError
    from xla_cost.jsonio import check_file, make_folder, write_json
    from xla_cost.parallel import Workers
    from xla_cost.provenance import provenance
    from xla_cost.show.console import console
    from xla_cost.show.progress import progress_bar
    from xla_cost.show.sweep import show_states, show_sweep
    from xla_cost.sweep.run import run_sweep, states
    from xla_cost.sweep.spec import read_spec
    from xla_cost.sweep.tables import write_tables

    if resume and not (out / "spec.json").is_file():
        raise XlaCostError(f"{out}: holds no sweep to resume; expected {out / 'spec.json'}")
    if list_points:
        found = states(read_spec(spec), out)
        if json is not None:
            rows = [asdict(point) | {"done": done} for point, done in found]
            write_json(json, {"sweep_points": rows, "provenance": provenance(sys.argv[1:])})
        if json != "-":
            show_states(console(), found)
        return
    asked = read_spec(spec)
    make_folder(out, "--out")
    check_file(json, "--json")
    with (
        Workers(processes=processes, address=cluster) as workers,
        progress_bar("sweep points", quiet=quiet) as progress,
    ):
        result = run_sweep(asked, out, workers=workers, progress=progress)
    files = write_tables(result.rows, out)
    if json is not None:
        write_json(
            json,
            {
                "rows": list(result.rows),
                "computed": result.computed,
                "reused": result.reused,
                "files": [str(path) for path in files],
                "provenance": provenance(sys.argv[1:]),
            },
        )
    if json != "-":
        show_sweep(console(), result, files)
