"""Computations written in braces inside the instruction that calls them.

XLA can print `map(p), to_apply={ a = f32[] parameter(0) ROOT b = f32[] negate(a) }`.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from xla_cost.hlo.attributes import CALLING
from xla_cost.hlo.lexing import closing

#: Bodies inside bodies deeper than this are not taken apart.
MAX_LEVELS = 8

_KEY = rf"(?<![\w.\-])({'|'.join(CALLING)})\s*+=\s*+"
_BEFORE = re.compile(rf"{_KEY}\Z")
_BODY = re.compile(rf"{_KEY}(?=\{{\s*+(?:ROOT\s++)?+%?+[^\s=(),{{}}\[\]\"%]++\s*+=)")
_INSIDE = re.compile(r"\{\s*+(?:ROOT\s++)?+%?+[^\s=(),{}\[\]\"%]++\s*+=")


@dataclass(frozen=True, slots=True)
class Nested:
    """The text of one nested computation, the line it begins on, how deep it is nested."""

    name: str
    text: str
    line: int
    level: int


def begins_nested(text: str, gap: str, at: int) -> bool:
    """Whether the brace at `at`, with `gap` before it, opens a nested computation."""
    return gap.endswith("=") and bool(_BEFORE.search(gap) and _INSIDE.match(text, at))


def pull_nested(
    owner: str, attributes: str, line: int, level: int, taken: Container[str]
) -> tuple[str, list[Nested]]:
    """`attributes` with names in place of nested computations, and those computations.

    `line` is the line that `attributes` begins on. Names are `OWNER.KEY`, numbered where
    `taken` has them already.
    """
    out: list[str] = []
    found: list[Nested] = []
    position = 0
    while (match := _BODY.search(attributes, position)) is not None:
        end = closing(attributes, match.end())
        if end < 0 or level >= MAX_LEVELS:
            break
        name, count = f"{owner}.{match[1]}", 2
        while name in taken or any(name == other.name for other in found):
            name, count = f"{owner}.{match[1]}#{count}", count + 1
        body = attributes[match.end() + 1 : end - 1]
        begin = line + attributes.count("\n", 0, match.end())
        found.append(Nested(name, body, begin, level + 1))
        out += [attributes[position : match.end()], "%", name]
        position = end
    out.append(attributes[position:])
    return "".join(out), found
