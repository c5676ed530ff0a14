"""`xla-cost explain`: a result file in a few sentences."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    result: Annotated[str, typer.Argument(help="a result file, - for standard input")],
    trust: Annotated[bool, typer.Option(
        "--trust", help="run the Python function that the file names")] = False,
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
) -> None:  # fmt: skip
    """Say what bounds a run and what would help, by pricing it again on better machines."""
    from xla_cost.jsonio import write_json
    from xla_cost.report.result_file import read_result
    from xla_cost.report.sentences import sentences
    from xla_cost.show.console import console

    lines = sentences(read_result(result), trusted=trust)
    if json:
        write_json(json, {"sentences": list(lines)})
    if json != "-":
        out = console()
        for line in lines:
            out.print(line, markup=False)
