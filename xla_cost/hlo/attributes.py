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

_TWO_OPERANDS = re.compile(r"%?+([\w.\-]++)(?:, %?+([\w.\-]++))?+", re.ASCII)
_PLAIN_OPERANDS = re.compile(r"%?+[\w.\-]++(?:, %?+[\w.\-]++)*+", re.ASCII)
_PAIR = re.compile(r'\s*+([\w.\-]++)\s*+=\s*+("(?:[^"\\]++|\\.)*+"?+|\{[^{}]*+\}|[^\s{}"]++)', re.S)
_STRING = r'"(?:[^"\\]++|\\.)*+"'


def _braced(depth: int) -> str:
    """Text in braces, nested up to `depth` levels, with strings."""
    inner = rf"(?:[^{{}}\"]++|{_STRING})*+"
    for _ in range(depth):
        inner = rf"(?:[^{{}}\"]++|{_STRING}|\{{{inner}\}})*+"
    return rf"\{{{inner}\}}"


#: One `name=value`, up to its comma, in the plain case.
_ATTRIBUTE = re.compile(
    rf"\s*+([\w.\-]++)=((?:[^,{{}}()\[\]\"]++|{_STRING}|{_braced(3)}|\[[^\[\]\"]*+\]"
    rf"|\([^()\"]*+\))++)(?:,|\Z)",
    re.ASCII | re.DOTALL,
)
_PLAIN_COMMENT = re.compile(r"/\*[^*]*+\*/")
_OP_NAME = re.compile(r'(?:, |\A)metadata=\{(?:op_type="[^"\\]*+" )?+op_name="([^"\\]*+)"')


def operand_names(text: str) -> tuple[str, ...]:
    """Names of the operands in `text`, without `%` and without the types printed before them."""
    if not text:
        return ()
    two = _TWO_OPERANDS.fullmatch(text)
    if two is not None:
        first, second = two.groups()
        return (first,) if second is None else (first, second)
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
    if "/*" in text and '"' not in text:
        text = _PLAIN_COMMENT.sub("", text)
    if "//" not in text and "/*" not in text and "device_ids=" not in text:
        found: dict[str, str] = {}
        position, end = 0, len(text)
        while position < end:
            match = _ATTRIBUTE.match(text, position)
            if match is None:
                return _exact_attribute_map(text)
            found.setdefault(match[1], match[2].strip())
            position = match.end()
        return found
    return _exact_attribute_map(text)


def _exact_attribute_map(text: str) -> Mapping[str, str]:
    """`attribute_map` of text with comments, deep nesting or commas inside a value."""
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
