"""From the statements of a module to the Module: missing types, the entry, device counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from xla_cost.hlo.ir import Computation, Instruction, Module
from xla_cost.hlo.nested import Nested
from xla_cost.hlo.shapes import Shape, TupleShape, parse_shape, shape_text
from xla_cost.hlo.source import SourceTables

#: Name of the computation made of instructions that stand in none.
FRAGMENT = "fragment"


@dataclass
class Draft:
    """A module while it is being read."""

    name: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    has_header: bool = False
    tables: SourceTables = field(default_factory=SourceTables)
    computations: dict[str, Computation] = field(default_factory=dict)
    unparsed: list[tuple[int, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    instructions: list[Instruction] | None = None  # of the open computation
    is_named: bool = False  # the open computation has a header
    nested: list[Nested] = field(default_factory=list)  # written inside instructions, unread
    execution_thread: str = "main"
    lacks_types: bool = False  # an instruction of the open computation prints no type
    _open_name: str = ""
    _open_line: int = 0
    _is_entry: bool = False
    _held: list[Instruction] | None = None  # closed by a brace behind an instruction

    @property
    def is_fragment(self) -> bool:
        """Whether the open computation collects instructions that stand in none."""
        return self.instructions is not None and not self.is_named

    def open(self, name: str, line: int, *, is_entry: bool) -> None:
        """Begin a computation that has a header."""
        self.settle()
        self.instructions = []
        self.is_named = True
        self._open_name, self._open_line, self._is_entry = name, line, is_entry

    def reopen_or_fragment(self, line: int) -> None:
        """Begin taking instructions that follow no header.

        A brace right behind an instruction that more instructions follow was a slip: the
        computation goes on.
        """
        if self._held is not None:
            self.instructions, self._held = self._held, None
            self.problems.append(f"line {line}: {self._open_name} goes on after its closing brace")
            return
        self.instructions = []
        self.is_named = False
        self._open_name, self._open_line, self._is_entry = FRAGMENT, line, False
        self.problems.append(f"line {line}: instructions outside any computation")

    def close(self, *, is_complete: bool, is_inline: bool = False) -> None:
        """End the open computation."""
        self._held, self.instructions = self.instructions, None
        if not (is_inline and is_complete and self.is_named):
            self.settle(is_complete=is_complete)

    def settle(self, *, is_complete: bool = True) -> None:
        """Make a computation of what was closed."""
        if self._held is None:
            return
        name, instructions = self._open_name, self._held
        self._held = None
        if not is_complete:
            self.problems.append(f"line {self._open_line}: the text ends inside {name}")
        if not instructions:
            self.problems.append(f"line {self._open_line}: {name} has no instructions")
            return
        if name in self.computations:
            self.problems.append(f"line {self._open_line}: a second computation {name}")
            count = 2
            while f"{name}#{count}" in self.computations:
                count += 1
            name = f"{name}#{count}"
        self.computations[name] = Computation(
            name,
            tuple(_with_types(instructions) if self.lacks_types else instructions),
            self._is_entry,
            is_complete,
            self.execution_thread,
        )
        self.execution_thread = "main"
        self.lacks_types = False


def finish(draft: Draft) -> Module | None:
    """The module of a draft, whose computations are closed; None where it has none."""
    draft.settle()
    if not draft.computations:
        return None
    if not draft.has_header:
        draft.problems.append("no HloModule line")
    entry = _entry(draft)
    attributes = draft.attributes
    return Module(
        name=draft.name or entry.name,
        computations=draft.computations,
        entry=entry,
        num_partitions=_count(draft, "num_partitions"),
        replica_count=_count(draft, "replica_count"),
        is_scheduled=attributes.get("is_scheduled", "") == "true",
        attributes=attributes,
        unparsed=tuple(draft.unparsed),
        problems=tuple(draft.problems),
    )


def _entry(draft: Draft) -> Computation:
    """The computation marked ENTRY, else the last one that no other calls."""
    computations = draft.computations
    for computation in computations.values():
        if computation.is_entry:
            return computation
    called = {
        name
        for computation in computations.values()
        for instruction in computation.instructions
        if "=" in instruction.attribute_text
        for name in instruction.called
    }
    free = [c for name, c in computations.items() if name not in called]
    entry = (free or list(computations.values()))[-1]
    draft.problems.append(f"no ENTRY: took {entry.name}")
    entry = replace(entry, is_entry=True)
    computations[entry.name] = entry
    return entry


def _count(draft: Draft, key: str) -> int:
    """A positive count from the module's attributes, 1 where it is not stated."""
    value = draft.attributes.get(key, "1")
    if re.fullmatch(r"[0-9]{1,9}", value) and int(value) > 0:
        return int(value)
    draft.problems.append(f"{key}={value[:40]} is no positive number: took 1")
    return 1


#: Opcodes whose result has the type of one operand, by that operand's position.
_LIKE_OPERAND = {
    **dict.fromkeys(
        ("abs", "add", "and", "atan2", "cbrt", "ceil", "copy", "cosine", "divide", "exponential",
         "floor", "log", "maximum", "minimum", "multiply", "negate", "not", "or",
         "optimization-barrier", "power", "remainder", "rsqrt", "sine", "sort", "sqrt",
         "subtract", "tan", "tanh", "while", "xor"),
        0,
    ),
    "select": 1,
    "clamp": 1,
    "dynamic-update-slice": 0,
}  # fmt: skip


def _with_types(instructions: list[Instruction]) -> list[Instruction]:
    """The instructions, with the types that the text leaves out and the operands tell."""
    known: dict[str, str] = {}
    out: list[Instruction] = []
    for instruction in instructions:
        if not instruction.shape_text:
            instruction = replace(instruction, shape_text=_told_type(instruction, known))
        known[instruction.name] = instruction.shape_text
        out.append(instruction)
    return out


def _told_type(instruction: Instruction, known: Mapping[str, str]) -> str:
    """Type of the result as its operands tell it, else ""."""
    types = [known.get(name, "") for name in instruction.operands]
    opcode = instruction.opcode
    told = ""
    if opcode in ("tuple", "after-all"):
        told = "token[]" if opcode == "after-all" else f"({', '.join(types)})"
        told = told if all(types) else ""
    elif opcode == "get-tuple-element":
        told = _element(types, instruction.attributes.get("index", ""))
    elif opcode in ("compare", "is-finite") and types:
        shape = parse_shape(types[0])
        if isinstance(shape, Shape):
            told = shape_text(Shape("pred", shape.dims, shape.dynamic))
    elif opcode in ("partition-id", "replica-id"):
        told = "u32[]"
    elif _LIKE_OPERAND.get(opcode, len(types)) < len(types):
        told = types[_LIKE_OPERAND[opcode]]
    return told if parse_shape(told) else ""


def _element(types: list[str], index: str) -> str:
    """Type of one element of the tuple that is the first of `types`."""
    shape = parse_shape(types[0]) if types else None
    if not isinstance(shape, TupleShape) or not (index.isdecimal() and index.isascii()):
        return ""
    number = int(index[:9])
    return shape_text(shape.elements[number]) if number < len(shape.elements) else ""
