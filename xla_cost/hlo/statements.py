"""The grammar of one HLO statement: where it ends, and its parts.

`LINE` reads the common case, a whole instruction on one line, in one regular expression.
Everything else goes through `gather` (where does the statement end) and `split` (its parts).
All patterns are possessive, so no input makes them backtrack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from xla_cost.hlo.lexing import CLOSING, OPENING, TOKEN, closing, split_top, strip_comments
from xla_cost.hlo.nested import begins_nested


def _nested(depth: int) -> str:
    """Text with balanced parentheses up to `depth` levels, on one line and without strings."""
    pattern = r'[^()"\n]*+'
    for _ in range(depth):
        pattern = rf'[^()"\n]*+(?:\({pattern}\)[^()"\n]*+)*+'
    return pattern


_ARRAY = r"[a-z]\w*+\[[^\[\]\n]*+\](?:\{[^{}\n]*+\})?+"
_TYPE = rf"{_ARRAY}|\({_nested(4)}\)"
_HEAD = r"[ \t]*+(ROOT[ \t]++)?+%?+([\w.\-]++)[ \t]*+=[ \t]*+"
_STRING = r'"(?:[^"\\\n]++|\\[^\n])*+"'
_ANY_STRINGS = rf'[^"\n]*+(?:{_STRING}[^"\n]*+)*+'
_STRINGS = r'[^"\n]*+(?:"[^"{}\\\n]*+"[^"\n]*+)*+'


def _on_line(attributes: str) -> re.Pattern[str]:
    return re.compile(
        rf"{_HEAD}({_TYPE})[ \t]++([a-z][\w\-]*+)\(({_nested(3)})\)"
        rf"(?:,[ \t]*+({attributes}))?+\n(?![ \t]*+,)",
        re.ASCII,
    )


#: A whole instruction on a line: ROOT, name, type, opcode, operands, attributes.
LINE = _on_line(_STRINGS)
#: The same where strings hold braces or escapes.
STRINGY_LINE = _on_line(_ANY_STRINGS)
#: A whole header of a computation on a line: ENTRY, name.
HEADER_LINE = re.compile(
    rf"[ \t]*+(ENTRY[ \t]++)?+%?+([\w.\-]++)[ \t]++"
    rf"(?:\({_nested(4)}\)[ \t]*+->[ \t]*+(?:{_TYPE})[ \t]++)?+\{{[ \t]*+\n",
    re.ASCII,
)
#: A brace alone on its line, and the empty lines behind it.
CLOSE_LINE = re.compile(r"[ \t]*+\}[ \t]*+\n(\n*+)")
#: The start of an instruction that cannot be anything else, at the start of a line.
STRONG = re.compile(rf"^{_HEAD}(?:{_TYPE})[ \t]++[a-z][\w\-]*+\(", re.MULTILINE)
#: The start of any instruction.
START = re.compile(r"(ROOT\s++)?+%?+([^\s=(),{}\[\]\"%]++)\s*+=(?!=)")
#: The start of a computation: ENTRY, name, then parameters or the body.
HEADER = re.compile(r"(ENTRY\b\s*+)?+%?+([^\s=(),{}\[\]\"%]*+)\s*+(?=[({])")

_STRONG_HEADER = re.compile(
    rf"^[ \t]*+(?:HloModule[ \t]|(?:ENTRY[ \t]++)?+%?+[\w.\-]++[ \t]++\({_nested(4)}\)"
    rf"[ \t]*+->[ \t]*+(?:{_TYPE})[ \t]++\{{[ \t]*+$)",
    re.MULTILINE,
)
_INLINE = re.compile(rf"\s*+({_ARRAY}|\({_nested(4)}\))\s++([a-z][\w\-]*+)\s*+(?=\()")
_LONG_TYPE = re.compile(r"[a-z]\w*+\s*+\[[^\[\]]*+\](?:\s*+\{[^{}]*+\})?+")
_OPCODE = re.compile(r"\s*+([a-zA-Z][\w\-]*+)\s*+(?=\()")
#: Levels of instructions written inside one another's operands that are told apart.
_INLINE_LEVELS = 8
#: Another instruction on the line (a value in MLIR text also has ` = `, but no HLO type).
_ANOTHER = re.compile(r"\s(?:ROOT\s++)?+%?+[\w.\-]++ = (?:[a-z]\w*+(?:\[|\()|\()")
_A_STRING = re.compile(_STRING)
_OPCODE_END = re.compile(r"[\w\-]\s*+\Z")
_NEXT_COMMA = re.compile(r"\s*+,")
_RESTART = re.compile(r"(?:\A|(?<=\s))(?:ROOT\s++)?+%?+[\w.\-]++\s++=\s*+\w*+\Z")
_RESTART_AFTER = re.compile(r"\s++(?:ROOT\s++)?+%?+[\w.\-]++\s*+=\s*+(?:[a-z]\w*+\[|\()")
_LAYOUT = re.compile(r"\{[\d,\s]*+(?::[^{}\n]*+)?+\}")


@dataclass(frozen=True, slots=True)
class Parts:
    """One instruction taken apart. `is_cut` when it ended inside its attributes."""

    is_root: bool
    name: str
    shape_text: str
    opcode: str
    operand_text: str
    attribute_text: str
    is_cut: bool


def is_whole_line(attributes: str) -> bool:
    """Whether attributes matched by `STRINGY_LINE` end where their line ends."""
    return is_whole(_A_STRING.sub('""', attributes))


def is_whole(attributes: str) -> bool:
    """Whether attributes matched by `LINE` end where their line ends."""
    return (
        attributes.count("{") == attributes.count("}")
        and attributes.count("(") == attributes.count(")")
        and attributes.count("[") == attributes.count("]")
        and (" = " not in attributes or _ANOTHER.search(attributes) is None)
        and "//" not in attributes
        and attributes[-1:] not in (",", " ", "\t", "=", "")
    )


def has_inline(operand_text: str) -> bool:
    """Whether an operand may be a whole instruction, as in `add(x, s32[] constant(1))`."""
    return "(" in operand_text and any(map(_INLINE.match, split_top(operand_text)))


def inline_operands(name: str, operand_text: str) -> tuple[str, list[Parts]]:
    """Operands of the instruction `name` as names, and the instructions they were written as.

    Those are named `NAME.operand.0` and so on, and come in the order they are needed.
    """
    count = 0
    made: list[Parts] = []

    def named(text: str) -> str:
        nonlocal count
        names: list[str] = []
        for piece in split_top(text):
            match = _INLINE.match(piece)
            end = closing(piece, match.end()) if match else -1
            if match is None or end < 0:
                names.append(piece)
                continue
            made.append(
                Parts(False, f"{name}.operand.{count}", match[1], match[2],
                      piece[match.end() + 1 : end - 1], piece[end:].strip(" ,"), False)
            )  # fmt: skip
            names.append(f"%{name}.operand.{count}")
            count += 1
        return ", ".join(names)

    operands = named(operand_text)
    done = 0
    for _ in range(_INLINE_LEVELS):  # an operand's own operands may be instructions too
        level = range(done, len(made))
        done = len(made)
        for index in level:
            if made[index].opcode != "constant" and has_inline(made[index].operand_text):
                made[index] = replace(made[index], operand_text=named(made[index].operand_text))
    return operands, made[::-1]


@dataclass(slots=True)
class _Scan:
    """Where a statement stands while its tokens go by."""

    depth: int = 0
    operands_seen: bool = False
    comma_end: int = -1  # end of a comma outside brackets, and of comments after it


def gather(text: str, start: int, limit: int, *, operands_seen: bool = False) -> tuple[int, bool]:
    """(end, is_cut) of the instruction whose text after `=` begins at `start`.

    It ends at a newline outside brackets unless a comma asks for more, at a `}` that it did
    not open, or where another instruction begins on the same line. It is cut where the text
    ends (at `limit`), or an instruction that cannot be anything else begins, inside brackets
    or a string.
    `operands_seen` starts behind the operands, as for the attributes of a HloModule line.
    """
    scan = _Scan(operands_seen=operands_seen)
    previous = start
    for match in TOKEN.finditer(text, start, limit):
        token = match[0]
        at = match.start()
        if at < previous:
            continue  # inside a nested computation
        if token in OPENING:
            gap = text[previous:at]
            if scan.depth == 0:
                if token == "{" and begins_nested(text, gap, at):
                    end = closing(text, at, limit)
                    if end < 0:
                        return limit, True
                    previous = end
                    continue
                restart = _restart(gap, follows_comma=scan.comma_end == previous)
                if scan.operands_seen and restart >= 0:
                    return previous + restart, False
                if token == "(" and _OPCODE_END.search(gap):
                    scan.operands_seen = True
            scan.depth += 1
        elif token in CLOSING:
            if scan.depth == 0:
                if token == "}":
                    return at, False
                continue
            scan.depth -= 1
            if scan.depth == 0 and scan.operands_seen and _RESTART_AFTER.match(text, match.end()):
                return match.end(), False
        elif token == "\n":
            is_cut = _line_end(text, match.end(), scan)
            if is_cut is not None:
                return at, is_cut
        elif token[0] == '"':
            strong = STRONG.search(token) if "\n" in token else None
            if strong is not None:
                return at + strong.start(), True
        elif token == ",":
            if scan.depth == 0:
                scan.comma_end = match.end()
        elif scan.comma_end == previous or not text[scan.comma_end : at].strip():
            scan.comma_end = match.end()
        previous = match.end()
    return limit, scan.depth > 0


def _restart(gap: str, *, follows_comma: bool) -> int:
    """Where another instruction begins in the text before a bracket; -1 where none does."""
    if "=" not in gap:
        return -1
    found = _RESTART.search(gap)
    if found is None or (follows_comma and not gap[: found.start()].strip()):
        return -1
    return found.start()


def _line_end(text: str, after: int, scan: _Scan) -> bool | None:
    """At a newline before `after`: False ends the statement, True cuts it, None goes on."""
    if STRONG.match(text, after) or _STRONG_HEADER.match(text, after):
        return scan.depth > 0 or not scan.operands_seen
    if scan.depth > 0:
        return None
    if scan.comma_end >= 0 and not text[scan.comma_end : after].strip():
        return None
    if not scan.operands_seen:
        return None
    return None if _NEXT_COMMA.match(text, after) else False


def split(statement: str, is_cut: bool) -> Parts | None:
    """The parts of one instruction; None where it is none, or was cut before its attributes."""
    statement = strip_comments(statement)
    start = START.match(statement)
    if start is None:
        return None
    position = start.end()
    while position < len(statement) and statement[position].isspace():
        position += 1
    shape_end = position
    if statement.startswith(("(", "b("), position):
        shape_end = closing(statement, position)
        if shape_end < 0:
            return None
    else:
        array = _LONG_TYPE.match(statement, position)
        shape_end = array.end() if array else position
    opcode = _OPCODE.match(statement, shape_end)
    if opcode is None:
        return None
    operand_end = closing(statement, opcode.end())
    if operand_end < 0:
        return None
    rest = statement[operand_end:].strip()
    return Parts(
        start[1] is not None,
        start[2],
        statement[position:shape_end].strip(),
        opcode[1],
        statement[opcode.end() + 1 : operand_end - 1].strip(),
        rest.removeprefix(",").strip().removesuffix(",").rstrip(),
        is_cut,
    )


def body_start(text: str, position: int, limit: int) -> tuple[int, int]:
    """(start, end) of the header at `position`, its first bracket.

    `start` is just after the `{` that opens the body, -1 where no body follows before
    `limit`; `end` is how far the text was looked at.
    """
    depth = 0
    skip_to = position
    for match in TOKEN.finditer(text, position, limit):
        at = match.start()
        if at < skip_to:
            continue
        token = match[0]
        if token == "{" and depth == 0:
            layout = _LAYOUT.match(text, at) if at and text[at - 1] == "]" else None
            if layout is None:
                return match.end(), match.end()
            skip_to = layout.end()
        elif token in OPENING:
            depth += 1
        elif token in CLOSING:
            depth -= 1
            if depth < 0:
                return -1, at
        elif token == "\n":
            if STRONG.match(text, match.end()):
                return -1, at
            if depth == 0 and not text.startswith(("{", "->"), _skip_space(text, match.end())):
                return -1, at
        elif token[0] == '"':
            return -1, at
    return -1, limit


_SPACE = re.compile(r"\s*+")


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
