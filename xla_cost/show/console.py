"""The consoles everything is printed on: at most 100 columns, plain when piped."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console
from rich.table import Table

_PIPED_WIDTH = 80
_WIDEST = 100


class _Console(Console):
    """A console that leaves a closed pipe to the command line, which exits with 141."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(stream: TextIO | None = None) -> Console:
    """A console on `stream` (default standard output): 80 columns and no colour when piped."""
    made = _Console(file=stream or sys.stdout, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        return _Console(
            file=stream or sys.stdout, highlight=False, width=_PIPED_WIDTH, color_system=None
        )
    made.width = min(made.width, _WIDEST)
    return made


def table(*columns: str, title: str = "") -> Table:
    """A table without a box: the first column left, the others right aligned."""
    made = Table(
        title=title or None, title_justify="left", title_style="bold", box=None,
        pad_edge=False, padding=(0, 2, 0, 0), header_style="dim",
    )  # fmt: skip
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left", no_wrap=True)
    return made


def takes_unicode(made: Console) -> bool:
    """Whether block characters can be written."""
    return "utf" in (made.encoding or "").lower()
