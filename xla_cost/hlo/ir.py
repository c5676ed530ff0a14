"""What HLO text says, as frozen values: shapes, instructions, computations, modules.

A faithful, lenient reading: nothing here interprets cost. Attribute text is kept raw and
parsed on demand, because a whole-model module has megabytes of it that nobody asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

#: Bits per element of every HLO element type that has a size.
BITS: Mapping[str, int] = {
    "pred": 8,
    **{f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    "f4e2m1fn": 4,
    **dict.fromkeys(
        ("f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz",
         "f8e3m4", "f8e8m0fnu"),
        8,
    ),
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
    "token": 0,
    "opaque": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """An array type. `dims` are upper bounds where a dimension is dynamic.

    `dynamic[i]` is "" (static), "<=" (bounded) or "?" (unbounded, then `dims[i]` is 0);
    an empty tuple means all static. `element_bits` is set by a packed layout `E(4)`.
    """

    dtype: str
    dims: tuple[int, ...] = ()
    dynamic: tuple[str, ...] = ()
    element_bits: int | None = None
    memory_space: int = 0

    @property
    def elements(self) -> int:
        """Number of elements, at the upper bound of bounded dimensions."""
        product = 1
        for size in self.dims:
            product *= size
        return product

    @property
    def bytes(self) -> int:
        """Bytes of the array; sub-byte types are packed (rounded up to a whole byte)."""
        bits = BITS.get(self.dtype, 0) if self.element_bits is None else self.element_bits
        return (self.elements * bits + 7) // 8

    @property
    def arrays(self) -> tuple[Shape, ...]:
        """The arrays inside this type, flattened: itself."""
        return (self,)


@dataclass(frozen=True, slots=True)
class TupleShape:
    """A tuple type, possibly nested."""

    elements: tuple[Shape | TupleShape, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all arrays inside."""
        return sum(element.bytes for element in self.elements)

    @property
    def arrays(self) -> tuple[Shape, ...]:
        """The arrays inside this type, flattened in order."""
        return tuple(array for element in self.elements for array in element.arrays)


AnyShape = Shape | TupleShape


@dataclass(frozen=True)
class Instruction:
    """One line of a computation. Filled lazily from `text`, see `xla_cost.hlo.parser`."""

    name: str
    opcode: str
    is_root: bool
    shape_text: str
    operand_text: str
    attribute_text: str
    line: int

    @cached_property
    def shape(self) -> AnyShape:
        """Result type. `Shape("opaque")` where the line prints none."""
        raise NotImplementedError

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands, without `%`; for constants and parameters empty."""
        raise NotImplementedError

    @cached_property
    def attributes(self) -> Mapping[str, str]:
        """Attribute name to raw text (`replica_groups` -> `[2,4]<=[8]`)."""
        raise NotImplementedError

    @cached_property
    def called(self) -> tuple[str, ...]:
        """Names of the computations this calls, in order (body, condition, branches, ..)."""
        raise NotImplementedError

    @property
    def op_name(self) -> str:
        """`metadata.op_name`: the jax scope path, or ""."""
        raise NotImplementedError

    @property
    def source(self) -> str:
        """`file:line` of the user's code from metadata or the stack frame tables, or ""."""
        raise NotImplementedError


@dataclass(frozen=True)
class Computation:
    """A named list of instructions in the order printed."""

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool = False
    is_complete: bool = True  # False when the text ended inside it

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
        return tuple(sorted(found, key=lambda i: int(i.operand_text.strip() or 0)))


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
