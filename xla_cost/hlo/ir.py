"""What HLO text says, as frozen values: shapes, instructions, computations, modules.

A faithful, lenient reading: nothing here interprets cost. Attribute text is kept raw and
parsed on demand, because a whole-model module has megabytes of it that nobody asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from xla_cost.hlo.attributes import (
    attribute_map,
    called_names,
    metadata_map,
    operand_names,
    operand_shapes,
    quick_op_name,
    string_map,
)
from xla_cost.hlo.lazy import lazy
from xla_cost.hlo.shapes import BITS, NO_SHAPE, AnyShape, Shape, TupleShape, parse_shape
from xla_cost.hlo.source import Frame, SourceTables

__all__ = [
    "BITS",
    "AnyShape",
    "Computation",
    "Instruction",
    "Module",
    "Shape",
    "TupleShape",
]

#: Opcodes whose parentheses hold a literal or a number, not operands.
_NO_OPERANDS = frozenset(("constant", "parameter"))


@dataclass(frozen=True, init=False)
class Instruction:
    """One line of a computation. Filled lazily from its texts, see `xla_cost.hlo.parser`."""

    name: str
    opcode: str
    is_root: bool
    shape_text: str
    operand_text: str
    attribute_text: str
    line: int
    #: the module's file, function and frame tables, shared by all its instructions
    tables: SourceTables | None = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        name: str,
        opcode: str,
        is_root: bool,
        shape_text: str,
        operand_text: str,
        attribute_text: str,
        line: int,
        tables: SourceTables | None = None,
    ) -> None:
        # A module has tens of thousands: this is twice as fast as a frozen dataclass's own.
        values = self.__dict__
        values["name"] = name
        values["opcode"] = opcode
        values["is_root"] = is_root
        values["shape_text"] = shape_text
        values["operand_text"] = operand_text
        values["attribute_text"] = attribute_text
        values["line"] = line
        values["tables"] = tables

    @property
    def shape(self) -> AnyShape:
        """Result type. `Shape("opaque")` where the line prints none and none follows."""
        return parse_shape(self.shape_text) or NO_SHAPE

    @lazy
    def operands(self) -> tuple[str, ...]:
        """Names of the operands, without `%`; for constants and parameters empty."""
        return () if self.opcode in _NO_OPERANDS else operand_names(self.operand_text)

    @property
    def operand_shapes(self) -> tuple[AnyShape | None, ...]:
        """Type printed before each operand, None where none is (as in today's text)."""
        return () if self.opcode in _NO_OPERANDS else operand_shapes(self.operand_text)

    @lazy
    def attributes(self) -> Mapping[str, str]:
        """Attribute name to raw text (`replica_groups` -> `[2,4]<=[8]`)."""
        return attribute_map(self.attribute_text)

    @lazy
    def called(self) -> tuple[str, ...]:
        """Names of the computations this calls, in order (body, condition, branches, ..)."""
        return called_names(self.attributes)

    @property
    def metadata(self) -> Mapping[str, str]:
        """`metadata={..}` by field, strings unquoted; empty where there is none."""
        return metadata_map(self.attributes.get("metadata", ""))

    @property
    def op_name(self) -> str:
        """`metadata.op_name`: the jax scope path, or ""."""
        quick = quick_op_name(self.attribute_text)
        return self.metadata.get("op_name", "") if quick is None else quick

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Stack of the user's code, innermost first; empty where the module has no tables."""
        return () if self.tables is None else self.tables.frames(self._frame_id)

    @property
    def _frame_id(self) -> int:
        number = self.metadata.get("stack_frame_id", "")
        return int(number[:18]) if number.isdecimal() else 0

    @property
    def source(self) -> str:
        """`file:line` of the user's code from metadata or the stack frame tables, or "".

        Of a stack the innermost line outside JAX and its libraries.
        """
        metadata = self.metadata
        file = metadata.get("source_file", "")
        if file:
            return f"{file}:{metadata.get('source_line', '0')}"
        frame = None if self.tables is None else self.tables.user_frame(self._frame_id)
        return "" if frame is None else f"{frame.file}:{frame.line}"

    @property
    def backend_config(self) -> str:
        """Raw text of `backend_config`, or ""."""
        return self.attributes.get("backend_config", "")

    @property
    def frontend_attributes(self) -> Mapping[str, str]:
        """`frontend_attributes={..}` by name, strings unquoted; empty where there are none."""
        return string_map(self.attributes.get("frontend_attributes", ""))


@dataclass(frozen=True)
class Computation:
    """A named list of instructions in the order printed."""

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool = False
    is_complete: bool = True  # False when the text ended inside it
    execution_thread: str = "main"

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """Instruction by its name."""
        return {instruction.name: instruction for instruction in self.instructions}

    @cached_property
    def root(self) -> Instruction:
        """The instruction marked ROOT, else the last one."""
        for instruction in self.instructions:
            if instruction.is_root:
                return instruction
        return self.instructions[-1]

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """Parameters in order of their number."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=_parameter_number))


def _parameter_number(instruction: Instruction) -> int:
    text = instruction.operand_text.strip()
    return int(text[:18]) if text.isdecimal() and text.isascii() else 0


@dataclass(frozen=True)
class Module:
    """One HLO module: its computations, and what could not be read."""

    name: str
    computations: Mapping[str, Computation]
    entry: Computation
    num_partitions: int = 1
    replica_count: int = 1
    is_scheduled: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    unparsed: tuple[tuple[int, str], ...] = ()  # (line number, text) that no rule could read
    problems: tuple[str, ...] = ()  # "cut inside computation X", "no ENTRY: took Y", ..

    @property
    def device_count(self) -> int:
        """Devices that run it: replicas times partitions."""
        return self.num_partitions * self.replica_count
