"""`xla-cost validate`: predicted beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def validate(
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="network, kernels, prefill, decode; default all"),
    ] = None,
    json: Annotated[str, typer.Option("--json", help="FILE, or - for standard output")] = "",
    docs: Annotated[
        Path | None, typer.Option("--docs", help="folder whose validation.md gets tables and plot")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="with --docs: write nothing, exit 1 when out of date")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 1 when a group's median error is over its bar")
    ] = False,
) -> None:
    """Predict everything measured that no fit has seen, and show the errors."""
    from rich.console import Console

    from xla_cost.errors import XlaCostError
    from xla_cost.jsonio import check_file, write_json
    from xla_cost.validate import PARTS, describe, summaries
    from xla_cost.validate import validate as run

    if check and docs is None:
        raise XlaCostError("--check: given without --docs; expected the folder it compares with")
    progress = Console(stderr=True, soft_wrap=True)
    check_file(json, "--json")
    outcome = run(part or PARTS, progress.print)
    if json:
        write_json(json, describe(outcome.points, outcome.skipped))
    if json != "-":
        _show(outcome)
    for reason in outcome.skipped:
        progress.print(f"left out: {reason}")
    failed = docs is not None and _document(docs, outcome, check)
    over = [one.group for one in summaries(outcome.points) if one.passes is False]
    if failed or (strict and over):
        raise typer.Exit(1)


def _document(docs: Path, outcome: Any, check: bool) -> bool:
    """Write the document, or with `check` say whether it is out of date."""
    from xla_cost.validate.document import read, scatter, update_file, updated

    path = docs / "validation.md"
    if check:
        text = read(path)
        stale = updated(text, outcome.parts, path.name) != text
        if stale:
            typer.echo(f"{path}: out of date; run xla-cost validate --docs {docs}", err=True)
        return stale
    update_file(path, outcome.parts)
    scatter(outcome.points, docs / "validation.svg")
    return False


def _show(outcome: Any) -> None:
    """The rows, then the groups; on standard output."""
    import itertools

    from rich.markup import escape

    from xla_cost.show.console import console, table
    from xla_cost.validate import summaries

    rows = table("", "machine", "unit", "measured", "predicted", "error")
    rows.columns[0].no_wrap = False
    for column in rows.columns[1:3]:
        column.justify = "left"
    for group, points in itertools.groupby(outcome.points, key=lambda point: point.group):
        rows.add_row(f"[bold]{escape(group)}[/bold]")
        for point in points:
            rows.add_row(f"  {escape(point.name)}", point.machine, point.unit,
                         f"{point.measured:.4g}", f"{point.predicted:.4g}", f"{point.error:+.1%}",
                         style="red" if point.misses else "")  # fmt: skip
    groups = table("group", "points", "missed", "bar", "median error")
    for one in summaries(outcome.points):
        groups.add_row(one.group, str(one.points), str(one.missed),
                       "none" if one.bar is None else f"{one.bar:.0%}",
                       f"{one.median_error:.1%}")  # fmt: skip
    out = console()
    out.print(rows)
    out.print()
    out.print(groups)
