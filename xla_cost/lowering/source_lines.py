"""The stack frame tables at the head of a module's text: from frame id to file and line."""

from __future__ import annotations

from functools import cached_property

from xla_cost.hlo.source import ROW, SourceTables

_TITLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


class SourceLines:
    """Looks frames up in the tables FileNames, FileLocations and StackFrames of HLO text."""

    def __init__(self, hlo_text: str) -> None:
        self._text = hlo_text

    def of_frame(self, frame: int) -> str:
        """Return `file:line` of the innermost user frame, or "" where the tables lack it."""
        found = self._tables.user_frame(frame)
        return "" if found is None else f"{found.file}:{found.line}"

    @cached_property
    def _tables(self) -> SourceTables:
        tables = SourceTables()
        for title in _TITLES:
            start = self._text.find(f"\n{title}\n")
            if start < 0:
                continue
            end = self._text.find("\n\n", start + 1)
            section = self._text[start + len(title) + 1 : end if end >= 0 else len(self._text)]
            for row in ROW.finditer(section):
                tables.add(title, row)
        return tables
