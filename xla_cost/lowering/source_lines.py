"""The stack frame tables at the head of a module's text: from frame id to file and line."""

from __future__ import annotations

import re
from functools import cached_property

_LOCATION = re.compile(r"^(\d+) \{file_name_id=(\d+).*?\bline=(\d+)", re.MULTILINE)
_FRAME = re.compile(r"^(\d+) \{file_location_id=(\d+)", re.MULTILINE)
_FILE = re.compile(r'^(\d+) "(.*)"$', re.MULTILINE)


class SourceLines:
    """Looks frames up in the tables FileNames, FileLocations and StackFrames of HLO text."""

    def __init__(self, hlo_text: str) -> None:
        self._text = hlo_text

    def of_frame(self, frame: int) -> str:
        """Return `file:line` of the innermost user frame, or "" where the tables lack it."""
        files, locations, frames = self._tables
        location = locations.get(frames.get(frame, 0))
        if location is None or location[0] not in files:
            return ""
        return f"{files[location[0]]}:{location[1]}"

    @cached_property
    def _tables(self) -> tuple[dict[int, str], dict[int, tuple[int, int]], dict[int, int]]:
        files = {int(i): name for i, name in _FILE.findall(self._section("FileNames"))}
        locations = {
            int(i): (int(file), int(line))
            for i, file, line in _LOCATION.findall(self._section("FileLocations"))
        }
        frames = {int(i): int(place) for i, place in _FRAME.findall(self._section("StackFrames"))}
        return files, locations, frames

    def _section(self, title: str) -> str:
        start = self._text.find(f"\n{title}\n")
        if start < 0:
            return ""
        end = self._text.find("\n\n", start + 1)
        return self._text[start : end if end >= 0 else len(self._text)]
