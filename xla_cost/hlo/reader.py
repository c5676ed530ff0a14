"""One pass over HLO text, from statements to modules.

The reader goes through the text once. Instructions that stand on one line, nearly all, are
read by one regular expression; what remains goes through a slower exact scan.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from xla_cost.hlo.attributes import attribute_map
from xla_cost.hlo.finish import Draft, finish
from xla_cost.hlo.ir import Instruction, Module
from xla_cost.hlo.nested import Nested, pull_nested
from xla_cost.hlo.shapes import parse_shape
from xla_cost.hlo.source import ROW, TITLE
from xla_cost.hlo.statements import (
    CLOSE_LINE,
    HEADER,
    HEADER_LINE,
    LINE,
    START,
    STRINGY_LINE,
    Parts,
    body_start,
    gather,
    has_inline,
    inline_operands,
    is_whole,
    is_whole_line,
    split,
)

#: Characters kept of a line that could not be read.
SHOWN = 160

#: Characters that a statement may have once the patience with broken text is used up.
_SHORT = 128

_BLANK = re.compile(r"\s*+")
_REST_OF_LINE = re.compile(r"[^\n]*+")
_MODULE = re.compile(r"HloModule\s++([^\s,]++)")
_WORD = re.compile(r"\w++")
_SEPARATOR = re.compile(r"//\s*+-----")
_ELISION = re.compile(r"(?:\.{2,}+|…)[ \t]*+$", re.MULTILINE)
_THREAD = re.compile(r'execution_thread="([^"\n]*+)"')
_TAIL_ATTRIBUTE = re.compile(r'[ \t]*+,[ \t]*+\w++="[^"\n]*+"')
_LEFT_OUT = re.compile(r"[ \t]*+(?://[^\n]*+)?+(?=\n|\Z)")


@dataclass
class Reader:
    """The state of one pass over a text."""

    text: str
    line: int = 1
    modules: list[Module] = field(default_factory=list)
    draft: Draft = field(default_factory=Draft)
    slow_until: int = 0  # end of a line that `LINE` does not read
    wasted: int = 0  # characters gone through in vain
    level: int = 0  # how deep this text was nested in an instruction

    def read(self) -> tuple[Module, ...]:
        """Read everything."""
        self._read_statements()
        self._end_module()
        return tuple(self.modules)

    def read_body(self) -> None:
        """Read the inside of one computation, which is open in the draft."""
        self._read_statements()
        self.draft.close(is_complete=True)

    def _read_statements(self) -> None:
        text, position, size = self.text, 0, len(self.text)
        while position < size:
            here = position
            if text[here] in " \t\n":
                here = self._advance(here, _end(_BLANK, text, here))
            if self.draft.instructions is not None:
                here = self._lines(here)
            here = self._brace_or_header(here)
            position = here if here > position else self._slow(here)

    def _lines(self, position: int) -> int:
        """Read instructions of one line each, from `position` to where another thing stands."""
        text, match_line, tables = self.text, LINE.match, self.draft.tables
        if position < self.slow_until:
            return position
        assert self.draft.instructions is not None
        append = self.draft.instructions.append
        number = self.line
        while True:
            match = match_line(text, position)
            is_stringy = match is None
            if match is None and (match := STRINGY_LINE.match(text, position)) is None:
                break
            root, name, shape, opcode, operands, attributes = match.groups()
            if attributes is None:
                attributes = ""
            elif not (is_whole_line(attributes) if is_stringy else is_whole(attributes)):
                break
            if "(" in operands and opcode != "constant" and has_inline(operands):
                break
            if parse_shape(shape) is None:
                break
            append(
                Instruction(
                    name, opcode, root is not None, shape, operands, attributes, number, tables
                )
            )
            number += 1
            position = match.end()
        self.line = number
        return position

    def _brace_or_header(self, position: int) -> int:
        """Read a closing brace and a header that stand on lines of their own, if they do."""
        draft = self.draft
        if draft.is_named and draft.instructions is not None:
            brace = CLOSE_LINE.match(self.text, position)
            if brace is not None:
                draft.close(is_complete=True, is_inline=self._is_inline(position))
                self.line += 1 + len(brace[1])
                position = brace.end()
        if draft.instructions is None:
            header = HEADER_LINE.match(self.text, position)
            if header is not None:
                draft.open(header[2], self.line, is_entry=header[1] is not None)
                self.line += 1
                position = header.end()
        return position

    def _slow(self, position: int) -> int:
        """Read whatever stands at `position`, blank space aside; gives where to go on."""
        position = self._advance(position, _end(_BLANK, self.text, position))
        text = self.text
        if position >= len(text):
            return position
        if text.startswith(("//", "#"), position):
            if _SEPARATOR.match(text, position):
                self._end_module()
            return self._skip_line(position)
        if text.startswith("/*", position):
            end = text.find("*/", position)
            return self._advance(position, len(text) if end < 0 else end + 2)
        if text[position] == "}":
            return self._close(position)
        if _MODULE.match(text, position):
            return self._module_header(position)
        if self.draft.instructions is None or self.draft.is_fragment:
            taken = self._table(position)
            if taken:
                return taken
        if START.match(text, position):
            return self._instruction(position)
        return self._header(position) or self._unread(position)

    def _module_header(self, position: int) -> int:
        self._end_module()
        match = _MODULE.match(self.text, position)
        assert match is not None
        end = match.end()
        if self.text.startswith(",", end):
            line_end = _end(_REST_OF_LINE, self.text, end)
            rest = self.text[end:line_end]
            is_cut = False
            if '"' not in rest and is_whole(rest.rstrip()):
                end = line_end
            else:
                end, is_cut = gather(self.text, end, len(self.text), operands_seen=True)
            if is_cut:
                self.draft.problems.append(f"line {self.line}: the HloModule line is cut")
        self.draft.name = match[1]
        self.draft.attributes = attribute_map(self.text[match.end() : end].strip().strip(","))
        self.draft.has_header = True
        return self._advance(position, end)

    def _table(self, position: int) -> int:
        """Take a table of source places: its title and its rows; 0 where none begins here."""
        match = TITLE.match(self.text, position)
        if match is None:
            return 0
        title = match[1]
        position = self._advance(position, match.end())
        while (row := ROW.match(self.text, position)) is not None:
            self.draft.tables.add(title, row)
            position = self._advance(position, row.end())
        return position

    def _header(self, position: int) -> int:
        """Open a computation; 0 where none begins here."""
        match = HEADER.match(self.text, position)
        if match is None or not (match[1] or match[2]):
            return 0
        start, end = body_start(self.text, match.end(), self._limit(position))
        if start < 0:
            self.wasted += end - position
            return 0
        if self.draft.instructions is not None:
            self.draft.close(is_complete=not self.draft.is_named)
        self.draft.open(match[2] or "entry", self.line, is_entry=match[1] is not None)
        return self._advance(position, start)

    def _close(self, position: int) -> int:
        """Close the open computation at a `}`."""
        end = position + 1
        while (tail := _TAIL_ATTRIBUTE.match(self.text, end)) is not None:
            thread = _THREAD.search(tail[0])
            if thread is not None:
                self.draft.execution_thread = thread[1]
            end = tail.end()
        if self.draft.instructions is None or self.draft.is_fragment:
            return self._unread(position)
        self.draft.close(is_complete=True, is_inline=self._is_inline(position))
        return end

    def _limit(self, position: int) -> int:
        """How far a statement at `position` may reach.

        To the end of the text; but once much was gone through in vain (an unclosed bracket
        on every line), only a little further, which keeps the whole reading linear.
        """
        spent = self.wasted > 2 * len(self.text) + 100_000
        return (
            min(len(self.text), max(position + _SHORT, self.slow_until))
            if spent
            else len(self.text)
        )

    def _is_inline(self, position: int) -> bool:
        """Whether something stands before `position` on its line."""
        if position == 0 or self.text[position - 1] == "\n":
            return False
        before = self.text[max(0, position - 64) : position].rstrip(" \t")
        return not before.endswith("\n") and before != ""

    def _instruction(self, position: int) -> int:
        match = START.match(self.text, position)
        assert match is not None
        if position >= self.slow_until:
            self.slow_until = _end(_REST_OF_LINE, self.text, position)
        end, is_cut = gather(self.text, match.end(), self._limit(match.end()))
        parts = split(self.text[position:end], is_cut)
        if parts is None:
            self.wasted += end - position
            return self._unread(position)
        if parse_shape(parts.shape_text) is None:
            self._unread(position)
            return self._advance(position, end)
        if self.draft.instructions is None:
            self.draft.reopen_or_fragment(self.line)
        if is_cut:
            self.draft.problems.append(f"line {self.line}: {parts.name} is cut in its attributes")
        if "{" in parts.attribute_text:
            parts = self._without_nested(parts, self.text[position:end])
        self._append(parts, self.line)
        return self._advance(position, end)

    def _without_nested(self, parts: Parts, statement: str) -> Parts:
        """The instruction with names in place of computations written inside it."""
        line = self.line + statement.count("\n") - parts.attribute_text.count("\n")
        text, found = pull_nested(
            parts.name, parts.attribute_text, line, self.level, self.draft.computations
        )
        self.draft.nested += found
        return replace(parts, attribute_text=text)

    def _append(self, parts: Parts, line: int) -> None:
        """Add an instruction, and in front of it the instructions written as its operands."""
        assert self.draft.instructions is not None
        operands = parts.operand_text
        inner: list[Parts] = []
        if parts.opcode != "constant" and has_inline(operands):
            operands, inner = inline_operands(parts.name, operands)
        for part in (*inner, replace(parts, operand_text=operands)):
            self.draft.lacks_types = self.draft.lacks_types or not part.shape_text
            self.draft.instructions.append(
                Instruction(
                    part.name,
                    part.opcode,
                    part.is_root,
                    part.shape_text,
                    part.operand_text,
                    part.attribute_text,
                    line,
                    self.draft.tables,
                )
            )

    def _read_nested(self, nested: Nested) -> None:
        """Read a computation that was written inside an instruction into this module."""
        reader = Reader(nested.text + "\n", line=nested.line, level=nested.level)
        reader.draft = replace(
            self.draft, nested=[], instructions=None, attributes=self.draft.attributes
        )
        reader.draft.open(nested.name, nested.line, is_entry=False)
        reader.read_body()
        self.draft.nested += reader.draft.nested

    def _unread(self, position: int) -> int:
        """List the line as not understood and go on behind it."""
        end = _end(_REST_OF_LINE, self.text, position)
        line = self.text[position:end].strip()
        if _ELISION.fullmatch(line):
            self.draft.problems.append(f"line {self.line}: {line} stands for text left out")
        else:
            self.draft.unparsed.append((self.line, line[:SHOWN]))
        return end

    def _skip_line(self, position: int) -> int:
        return _end(_REST_OF_LINE, self.text, position)

    def _advance(self, position: int, end: int) -> int:
        self.line += self.text.count("\n", position, end)
        return end

    def _end_module(self) -> None:
        if self.draft.instructions is not None:
            self.draft.close(is_complete=not self.draft.is_named)
        while self.draft.nested:
            self._read_nested(self.draft.nested.pop())
        module = finish(self.draft)
        if module is not None:
            self.modules.append(module)
            self.draft = Draft()
        elif self.draft.has_header or self.draft.unparsed:
            # keep what was not understood for the module that follows
            self.draft = Draft(unparsed=self.draft.unparsed, problems=self.draft.problems)


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position
