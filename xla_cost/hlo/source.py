"""The tables in front of a module that say where in the user's code an instruction came from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from xla_cost.hlo.lexing import unquote

#: The title of a table, alone on its line.
TITLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)[ \t]*+(?=\n|\Z)")
#: One row of a table, with the line feeds before it: number, then a string or fields.
ROW = re.compile(
    r'\s*+(\d{1,9})[ \t]*+(?:("(?:[^"\\\n]++|\\.)*+")|\{([^{}\n]*+)\})[ \t]*+(?=\n|\Z)'
)
_FIELD = re.compile(r"(\w+)=(-?\d{1,18})")
#: Files whose lines say nothing to a user: JAX, the libraries that call it, and Python itself.
_INTERNALS = re.compile(
    r"[/\\](?:site|dist)-packages[/\\](?:jax|jaxlib|flax|optax|chex|distrax|einops|equinox|"
    r"haiku|keras|numpy|orbax|penzai|transformer_engine|qwix|tokamax)(?:[/\\]|\.py$)"
    r"|[/\\]lib[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages)|^<(?:frozen |string>)"
)


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

    def add(self, title: str, row: re.Match[str]) -> None:
        """Take one row, a match of `ROW`, of the table `title`."""
        number, name, numbers = row.groups()
        if name is not None:
            self.names[title, int(number)] = unquote(name)
        else:
            pairs = _FIELD.findall(numbers)
            self.fields[title, int(number)] = {key: int(value) for key, value in pairs}

    def frames(self, frame_id: int) -> tuple[Frame, ...]:
        """The stack from the innermost frame outwards; empty for an unknown number.

        XLA prints the number of a frame's parent plus one, in older text the number itself.
        The first frame is a root, so it shows which: its parent, 0, is printed as 1 or as 0.
        """
        first = self.fields.get(("StackFrames", 1))
        offset = 1 if first is None or first.get("parent_frame_id") else 0
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
            frame_id = frame.get("parent_frame_id", 0) - offset
        return tuple(found)

    def user_frame(self, frame_id: int) -> Frame | None:
        """The innermost frame outside JAX and its libraries, or just the innermost.

        None for an unknown number, and where no file is known.
        """
        frames = [frame for frame in self.frames(frame_id) if frame.file]
        users = (frame for frame in frames if not _INTERNALS.search(frame.file))
        return next(users, frames[0] if frames else None)
