"""`xla-cost rerun`: a result file computed again, and whether the numbers are the same."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def rerun(
    result: Annotated[str, typer.Argument(help="a result file, - for standard input")],
    trust: Annotated[bool, typer.Option(
        "--trust", help="run the Python function that the file names")] = False,
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
    top: Annotated[int, typer.Option(help="differences printed", min=1)] = 10,
) -> None:  # fmt: skip
    """Compute a result again; exit 1 when a number differs."""
    from xla_cost.jsonio import write_json
    from xla_cost.report.rerun import rerun as run_again
    from xla_cost.report.result_file import read_result
    from xla_cost.show.console import console

    found = run_again(read_result(result), trusted=trust)
    if json:
        rows = [{"place": p, "stored": old, "now": new} for p, old, new in found.different]
        write_json(json, {"same": found.same, "compared": found.compared, "different": rows,
                          "changed": list(found.changed)})  # fmt: skip
    if json != "-":
        out = console()
        for line in found.changed:
            out.print(f"changed: {line}", markup=False)
        if found.same:
            out.print(f"{found.compared} numbers, all the same", markup=False)
        else:
            _differences(out, found.different, top)
    if not found.same:
        raise typer.Exit(1)


def _differences(out: Any, different: tuple[tuple[str, Any, Any], ...], top: int) -> None:
    out.print(f"{len(different)} values differ", markup=False)
    for place, old, new in different[:top]:
        out.print(f"  {place}: {str(old)[:60]} in the file, {str(new)[:60]} now", markup=False)
