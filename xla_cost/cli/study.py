"""`xla-cost study`: the reference study reproduced, and what survives of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def study(
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")],
    models: Annotated[str, typer.Option(help="Of mini, r1, next; comma-separated.")] = "r1",
    machines: Annotated[
        str, typer.Option(help="Platforms that have a photonic twin; comma-separated.")
    ] = "b200,b300,rubin,r4",
    formats: Annotated[str, typer.Option(help="Of fp4, fp8+fp4; comma-separated.")] = "fp4",
    search: Annotated[
        str, typer.Option(help="Columns whose mesh is searched freely: all, shown or none.")
    ] = "all",
    no_search: Annotated[bool, typer.Option("--no-search", help="Same as --search none.")] = False,
    processes: Annotated[int | None, typer.Option(help="Worker processes.", min=0)] = None,
    cluster: Annotated[str | None, typer.Option(help="An existing dask scheduler.")] = None,
    json: Annotated[str | None, typer.Option(help="Write JSON here; - for stdout.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Reproduce every table and figure, with deviations, and make the assumptions realistic."""
    from xla_cost.errors import XlaCostError
    from xla_cost.jsonio import check_file, make_folder, write_json
    from xla_cost.machine import load
    from xla_cost.models import get_config, get_formats
    from xla_cost.parallel import Workers
    from xla_cost.provenance import provenance
    from xla_cost.show.console import console
    from xla_cost.show.progress import progress_bar
    from xla_cost.show.study import show_study
    from xla_cost.study.cells import COLUMNS
    from xla_cost.study.run import SHOWN, run_study, to_json

    choices = {"all": COLUMNS, "shown": SHOWN, "none": ()}
    if search not in choices:
        raise XlaCostError(f"--search {search!r}: expected one of {', '.join(choices)}")
    columns = choices["none" if no_search else search]
    names = [get_config(name).name for name in models.split(",")]
    platforms = [load(name).name for name in machines.split(",")]
    for name in platforms:
        load(f"{name}-photonic")
    presets = formats.split(",")
    for preset in presets:
        get_formats(preset)
    make_folder(out, "--out")
    check_file(json, "--json")
    with (
        Workers(processes=processes, address=cluster) as workers,
        progress_bar("study", quiet=quiet) as progress,
    ):
        result = run_study(
            names, platforms, presets, out, workers,
            free=columns, report=lambda stage: progress,
        )  # fmt: skip
    answer = to_json(result) | {"provenance": provenance(sys.argv[1:])}
    write_json(out / "study.json", answer)
    if json is not None:
        write_json(json, answer)
    if json != "-":
        show_study(console(), result)
