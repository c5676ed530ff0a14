"""`xla-cost report`: a result file as one self-contained web page."""

from __future__ import annotations

from typing import Annotated

import typer


def report(
    result: Annotated[str, typer.Argument(help="a result file of any command, - for stdin")],
    out: Annotated[str, typer.Option(help="the page to write, - for standard output")]
    = "report.html",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:  # fmt: skip
    """Write a page that opens in any browser, without a network."""
    import sys

    from xla_cost.jsonio import write_text
    from xla_cost.report.page import page
    from xla_cost.report.result_file import read_result

    text = page(read_result(result))
    if out == "-":
        sys.stdout.write(text)
        return
    write_text(out, text)
    if not quiet:
        print(f"wrote {out} ({len(text.encode()) / 1e6:.2f} MB)", file=sys.stderr)
