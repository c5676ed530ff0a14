"""One computation as a graph of values: who makes an array, and who reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from xla_cost.hlo.ir import BITS, AnyShape, Computation, Instruction, Shape, TupleShape
from xla_cost.walk.opcodes import ALIASES
from xla_cost.walk.values import Ref, Value, element, leaves, shape_at

_LAYOUT = re.compile(r"\{([\d,]*)[:}]")
_NOTHING = Shape("opaque")

#: Given a call, the value of its result where parts of it are its operands; else None.
Forward = Callable[[Instruction, list[Value]], Value | None]


class Graph:
    """Values, types and uses in one computation.

    `values[name]` follows tuples, get-tuple-elements and bitcasts to the instruction that
    made each array. `uses[name]` lists (index of the using instruction, operand number,
    reference) for every producer. `root` is the value of the root.
    """

    def __init__(
        self,
        computation: Computation,
        *,
        aliases: Callable[[Instruction], bool],
        reshape_is_free: bool,
        forward: Forward | None = None,
    ) -> None:
        self.computation = computation
        self.instructions = computation.instructions
        self.index = {ins.name: at for at, ins in enumerate(self.instructions)}
        self.shapes: dict[str, AnyShape] = {ins.name: ins.shape for ins in self.instructions}
        self.values: dict[str, Value] = {}
        self.uses: dict[str, list[tuple[int, int, Ref]]] = {}
        self._aliases = aliases
        self._reshape_is_free = reshape_is_free
        self._source_bits: dict[str, int] = {}
        for at, instruction in enumerate(self.instructions):
            self._add(at, instruction, forward)
        self.root: Value = (
            self.values.get(computation.root.name, Ref("")) if self.instructions else Ref("")
        )

    def _add(self, at: int, instruction: Instruction, forward: Forward | None) -> None:
        opcode = instruction.opcode
        name = instruction.name
        operands = instruction.operands
        if opcode == "get-tuple-element":
            whole = self.values.get(operands[0], Ref(operands[0])) if operands else Ref("")
            self.values[name] = element(whole, tuple_index(instruction))
        elif opcode == "tuple":
            self.values[name] = [self.values.get(o, Ref(o)) for o in operands]
        elif self.is_alias(instruction):
            known = [self.values.get(o, Ref(o)) for o in operands]
            many = opcode in ("opt-barrier", "optimization-barrier") and len(known) > 1
            self.values[name] = known if many else (known[0] if known else Ref(name))
        else:
            forwarded = None
            known = [self.values.get(o, Ref(o)) for o in operands]
            if forward is not None:
                forwarded = forward(instruction, known)
            self.values[name] = Ref(name) if forwarded is None else forwarded
            for number, value in enumerate(known):
                for ref in leaves(value):
                    self.uses.setdefault(ref.producer, []).append((at, number, ref))

    def is_alias(self, instruction: Instruction) -> bool:
        """Whether the result is the first operand under another name or type."""
        opcode = instruction.opcode
        if opcode in ALIASES:
            return True
        if opcode == "reshape":
            return self._reshape_is_free
        if opcode == "transpose":
            return self._is_layout_only(instruction)
        if opcode == "custom-call":
            return self._aliases(instruction)
        return opcode.endswith("-update")

    def _is_layout_only(self, instruction: Instruction) -> bool:
        """A transpose whose printed layouts put every element where it already is."""
        result = _LAYOUT.search(instruction.shape_text)
        operand = self.instruction(instruction.operands[0]) if instruction.operands else None
        source = _LAYOUT.search(operand.shape_text) if operand else None
        if result is None or source is None:
            return False
        order = [int(d) for d in result[1].split(",") if d]
        operand_order = [int(d) for d in source[1].split(",") if d]
        permutation = int_list(instruction.attributes.get("dimensions", ""))
        if len(order) != len(permutation) or len(operand_order) != len(order):
            return False
        return [permutation[d] for d in order] == operand_order

    def instruction(self, name: str) -> Instruction | None:
        """The instruction of that name, None where the text does not define it."""
        at = self.index.get(name)
        return None if at is None else self.instructions[at]

    def operand_values(self, instruction: Instruction) -> list[Value]:
        """The value of each operand."""
        return [self.values.get(name, Ref(name)) for name in instruction.operands]

    def operand_shapes(self, instruction: Instruction) -> list[AnyShape]:
        """The type of each operand: at its definition, else as printed in the operand list."""
        found = [self.shapes.get(name, _NOTHING) for name in instruction.operands]
        if _NOTHING in found:
            printed = instruction.operand_shapes
            if len(printed) == len(found):
                return [
                    shape if shape != _NOTHING else (written or shape)
                    for shape, written in zip(found, printed, strict=True)
                ]
        return found

    def shape_of(self, ref: Ref) -> AnyShape:
        """The type of the array a reference means."""
        return shape_at(self.shapes.get(ref.producer, _NOTHING), ref.path)

    def source_bits(self, ref: Ref) -> tuple[int, int]:
        """(bits per element of what it was converted from, own bits); equal without a convert.

        Looks through converts, also repeated ones, and whatever only renames a value.
        """
        own = _bits(self.shape_of(ref))
        if ref.path or own == 0:
            return own, own
        known = self._source_bits.get(ref.producer)
        if known is not None:
            return known, own
        chain: list[str] = []
        here = ref
        bits = own
        while True:
            known = self._source_bits.get(here.producer)
            if known is not None and not here.path:
                bits = known
                break
            bits = _bits(self.shape_of(here))
            chain.append(here.producer)
            instruction = self.instruction(here.producer)
            if here.path or instruction is None or instruction.opcode != "convert":
                break
            value = self.values.get(instruction.operands[0], Ref(instruction.operands[0]))
            if not isinstance(value, Ref):
                break
            here = value
            if here.path:
                bits = _bits(self.shape_of(here))
                break
        for name in chain:
            self._source_bits[name] = bits
        return bits or own, own


def _bits(shape: AnyShape) -> int:
    if isinstance(shape, TupleShape):
        return 0
    return BITS.get(shape.dtype, 0) if shape.element_bits is None else shape.element_bits


def tuple_index(instruction: Instruction) -> int:
    """`index=` of a get-tuple-element; 0 where it is not printed."""
    text = instruction.attribute_text
    start = text.find("index=")
    if start < 0:
        return 0
    end = start + 6
    while end < len(text) and text[end].isdecimal():
        end += 1
    return int(text[start + 6 : end] or 0)


def int_list(text: str) -> tuple[int, ...]:
    """The integers in `{0,1}` or `0,1`."""
    return tuple(int(number) for number in re.findall(r"-?\d+", text))


def attribute_ints(attributes: Mapping[str, str], name: str) -> tuple[int, ...]:
    """The integers of an attribute, () where it is absent."""
    text = attributes.get(name)
    return int_list(text) if text else ()
