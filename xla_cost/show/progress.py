"""A line on standard error while something takes its time; nothing when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows a spinner with `what` while the block runs, if a person is watching."""
    if not sys.stderr.isatty():
        yield
        return
    from xla_cost.show.console import console

    with console(sys.stderr).status(what):
        yield
