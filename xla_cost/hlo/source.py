"""The tables in front of a module that say where in the user's code an instruction came from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from xla_cost.hlo.lexing import unquote

#: Titles of the tables, as they stand alone on a line.
TITLES = frozenset(("FileNames", "FunctionNames", "FileLocations", "StackFrames"))

_NAMED = re.compile(r'\s*(\d{1,9})\s+("(?:[^"\\]++|\\.)*+")\s*')
_FIELDS = re.compile(r"\s*(\d{1,9})\s*\{([^{}]*)\}\s*")
_FIELD = re.compile(r"(\w+)=(-?\d{1,18})")


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of user code on a stack."""

    file: str
    function: str
    line: int


@dataclass(frozen=True)
class SourceTables:
    """Files, functions, locations and stack frames of one module, by their numbers."""

    names: dict[tuple[str, int], str] = field(default_factory=dict)
    fields: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)

    def add(self, title: str, line: str) -> bool:
        """Take one line of the table `title`; False where it is no such line."""
        named = _NAMED.fullmatch(line)
        if named:
            self.names[title, int(named[1])] = unquote(named[2])
            return True
        numbers = _FIELDS.fullmatch(line)
        if numbers:
            pairs = _FIELD.findall(numbers[2])
            self.fields[title, int(numbers[1])] = {key: int(value) for key, value in pairs}
            return True
        return False

    def frames(self, frame_id: int) -> tuple[Frame, ...]:
        """The stack from the innermost frame outwards; empty for an unknown number.

        XLA prints a root's parent as the frame itself, or as 0 in older text.
        """
        found: list[Frame] = []
        seen: set[int] = set()
        while frame_id not in seen and ("StackFrames", frame_id) in self.fields:
            seen.add(frame_id)
            frame = self.fields["StackFrames", frame_id]
            place = self.fields.get(("FileLocations", frame.get("file_location_id", 0)), {})
            found.append(
                Frame(
                    self.names.get(("FileNames", place.get("file_name_id", 0)), ""),
                    self.names.get(("FunctionNames", place.get("function_name_id", 0)), ""),
                    place.get("line", 0),
                )
            )
            frame_id = frame.get("parent_frame_id", 0)
        return tuple(found)
