"""What follows an instruction's opcode: operands, attributes, metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping

from xla_cost.hlo.lexing import inside, split_top, unquote
from xla_cost.hlo.shapes import AnyShape, parse_shape

#: Attributes that name computations, in the order `Instruction.called` lists them.
CALLING = (
    "body", "condition", "branch_computations", "true_computation", "false_computation",
    "calls", "to_apply", "called_computations", "select", "scatter", "async_execution_computation",
)  # fmt: skip

_ONE_OPERAND = re.compile(r"%?+[\w.\-]++")
_PLAIN_OPERANDS = re.compile(r"%?+[\w.\-]++(?:, %?+[\w.\-]++)*+")
_PAIR = re.compile(r'\s*+([\w.\-]++)\s*+=\s*+("(?:[^"\\]++|\\.)*+"?+|\{[^{}]*+\}|[^\s{}"]++)', re.S)
_OP_NAME = re.compile(r'(?:, |\A)metadata=\{(?:op_type="[^"\\]*+" )?+op_name="([^"\\]*+)"')


def operand_names(text: str) -> tuple[str, ...]:
    """Names of the operands in `text`, without `%` and without the types printed before them."""
    if not text:
        return ()
    if _ONE_OPERAND.fullmatch(text):
        return (text.removeprefix("%"),)
    if _PLAIN_OPERANDS.fullmatch(text):
        return tuple(text.replace("%", "").split(", "))
    return tuple(piece.split()[-1].lstrip("%") for piece in split_top(text) if piece)


def operand_shapes(text: str) -> tuple[AnyShape | None, ...]:
    """Type printed before each operand in `text`, None where none is."""
    found: list[AnyShape | None] = []
    for piece in split_top(text):
        words = piece.rsplit(None, 1)
        found.append(parse_shape(words[0]) if len(words) == 2 else None)
    return tuple(found)


def attribute_map(text: str) -> Mapping[str, str]:
    """Attribute name to its raw text; where a name is repeated the first counts.

    `replica_groups=mesh[..], device_ids=(..) {..}` prints a comma inside one value: the
    pieces stay together under `replica_groups`.
    """
    found: dict[str, str] = {}
    last = ""
    for piece in split_top(text):
        name, equals, value = piece.partition("=")
        name = name.strip()
        if name == "device_ids" and found.get(last, "").startswith("mesh["):
            found[last] += ", " + piece
        elif equals:
            found.setdefault(name, value.strip())
            last = name
        elif name:
            found.setdefault(name, "")
    return found


def called_names(attributes: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the computations in the calling attributes, in the order of `CALLING`."""
    found: list[str] = []
    for key in CALLING:
        value = attributes.get(key)
        if value:
            found.extend(name.lstrip("%") for name in split_top(inside(value)))
    return tuple(found)


def metadata_map(text: str) -> Mapping[str, str]:
    """`{op_name="a" source_line=3}` as a mapping, strings unquoted."""
    return {m[1]: unquote(m[2]) for m in _PAIR.finditer(text.strip().removeprefix("{"))}


def quick_op_name(attribute_text: str) -> str | None:
    """`metadata.op_name` where it stands plainly, else None (then parse the attributes)."""
    at = attribute_text.rfind("metadata={")
    if at < 0:
        return "" if "metadata" not in attribute_text else None
    match = _OP_NAME.match(attribute_text, at - 2 if at >= 2 else at)
    if match is None or "\\" in attribute_text or attribute_text.count('"', 0, at) % 2:
        return None
    return match[1]


def string_map(text: str) -> Mapping[str, str]:
    """`{name="text",other={{0,1}}}` as a mapping, strings unquoted and the rest raw."""
    found: dict[str, str] = {}
    for piece in split_top(inside(text)):
        name, equals, value = piece.partition("=")
        if equals:
            found.setdefault(unquote(name.strip()), unquote(value.strip()))
    return found
