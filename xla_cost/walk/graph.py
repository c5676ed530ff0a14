"""One computation as a graph of values: who makes an array, and who reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from xla_cost.hlo.ir import BITS, AnyShape, Computation, Instruction, TupleShape
from xla_cost.hlo.shapes import NO_SHAPE
from xla_cost.walk.opcodes import ALIASES, ELEMENTWISE
from xla_cost.walk.values import Ref, Value, element, leaves, shape_at

_LAYOUT = re.compile(r"\{([\d,]*)[:}]")
_NOTHING = NO_SHAPE

#: Given a call, the value of its result where parts of it are its operands; else None.
Forward = Callable[[Instruction, list[Value]], Value | None]


class Graph:
    """Values, types and uses in one computation.

    `values[name]` follows tuples, get-tuple-elements and bitcasts to the instruction that
    made each array. `uses[name]` lists (index of the using instruction, operand number,
    reference) for every producer. `root` is the value of the root.

    `is_final` says that the text is what runs (it is scheduled): reshapes and copies are then
    real; before, XLA turns reshapes into bitcasts and drops copies that change nothing.
    """

    def __init__(
        self,
        computation: Computation,
        *,
        aliases: Callable[[Instruction], bool],
        is_final: bool,
        forward: Forward | None = None,
    ) -> None:
        self.computation = computation
        self.instructions = computation.instructions
        self.index = {ins.name: at for at, ins in enumerate(self.instructions)}
        self.shapes: dict[str, AnyShape] = {ins.name: ins.shape for ins in self.instructions}
        # operands may lack a definition here, or a definition its type
        self._has_gaps = _NOTHING in self.shapes.values() or any(
            name not in self.shapes for ins in self.instructions for name in ins.operands
        )
        self.values: dict[str, Value] = {}
        self.uses: dict[str, list[tuple[int, int, Ref]]] = {}
        self._aliases = aliases
        self.alias_names: set[str] = set()
        self._is_final = is_final
        #: names whose value a convert made, also under another name
        self.from_convert: set[str] = set()
        self._source_bits: dict[str, int] = {}
        for at, instruction in enumerate(self.instructions):
            self._add(at, instruction, forward)
        made = {i.name for i in self.instructions if i.opcode == "convert"}
        if made:
            self.from_convert = {
                name
                for name, value in self.values.items()
                if isinstance(value, Ref) and value.producer in made
            }
        self.root: Value = (
            self.values.get(computation.root.name, Ref("")) if self.instructions else Ref("")
        )
        #: references in the root by the instruction that made them
        self.results: dict[str, list[Ref]] = {}
        for ref in leaves(self.root):
            self.results.setdefault(ref.producer, []).append(ref)

    def _add(self, at: int, instruction: Instruction, forward: Forward | None) -> None:
        opcode = instruction.opcode
        name = instruction.name
        operands = instruction.operands
        if opcode == "get-tuple-element":
            whole = self.values.get(operands[0], Ref(operands[0])) if operands else Ref("")
            self.values[name] = element(whole, tuple_index(instruction))
        elif opcode == "tuple":
            self.values[name] = [self.values.get(o, Ref(o)) for o in operands]
        elif self._is_alias(instruction):
            self.alias_names.add(name)
            known = [self.values.get(o, Ref(o)) for o in operands]
            many = opcode in ("opt-barrier", "optimization-barrier") and len(known) > 1
            self.values[name] = known if many else (known[0] if known else Ref(name))
        else:
            values = self.values
            known = [values.get(o) or Ref(o) for o in operands]
            forwarded = None if forward is None else forward(instruction, known)
            values[name] = Ref(name) if forwarded is None else forwarded
            uses = self.uses
            for number, value in enumerate(known):
                for ref in (value,) if isinstance(value, Ref) else leaves(value):
                    found = uses.get(ref.producer)
                    if found is None:
                        uses[ref.producer] = [(at, number, ref)]
                    else:
                        found.append((at, number, ref))

    def is_alias(self, instruction: Instruction) -> bool:
        """Whether the result is the first operand under another name or type."""
        return instruction.name in self.alias_names

    def _is_alias(self, instruction: Instruction) -> bool:
        opcode = instruction.opcode
        if opcode in ALIASES:
            return True
        if opcode == "reshape":
            return not self._is_final
        if opcode == "copy":
            return not self._is_final and self._copies_nothing(instruction)
        if opcode == "transpose":
            return self._is_layout_only(instruction)
        if opcode == "custom-call":
            return self._aliases(instruction)
        return opcode.endswith("-update")

    def _copies_nothing(self, instruction: Instruction) -> bool:
        """A copy to the same type and layout, which XLA's simplifier removes."""
        operand = self.instruction(instruction.operands[0]) if instruction.operands else None
        return operand is not None and operand.shape_text == instruction.shape_text

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
        shapes = self.shapes
        found = [shapes.get(name, _NOTHING) for name in instruction.operands]
        if self._has_gaps and any(shape is _NOTHING for shape in found):
            printed = instruction.operand_shapes
            if len(printed) == len(found):
                return [
                    shape if shape is not _NOTHING else (written or shape)
                    for shape, written in zip(found, printed, strict=True)
                ]
        return found

    def shape_of(self, ref: Ref) -> AnyShape:
        """The type of the array a reference means."""
        return shape_at(self.shapes.get(ref.producer, _NOTHING), ref.path)

    def source_bits(self, ref: Ref) -> tuple[int, int]:
        """(bits per element of what it was converted from, own bits); equal without a convert.

        Looks through converts, also repeated ones, and whatever only renames a value, down to
        something that stands in memory (a parameter, the result of a dot or a collective): its
        reader fuses the convert. A convert at the end of element-wise work is fused into that
        work instead, which writes the converted width: softmax in f32 leaves bf16 behind.
        """
        own = _bits(self.shape_of(ref))
        bits = own
        here = ref
        chain: list[str] = []
        while not here.path:
            known = self._source_bits.get(here.producer)
            if known is not None:
                bits = known
                break
            at = self.index.get(here.producer)
            if at is None or self.instructions[at].opcode != "convert":
                break
            operand = self.instructions[at].operands[0]
            value = self.values.get(operand, Ref(operand))
            if not isinstance(value, Ref):
                break
            chain.append(here.producer)
            here = value
            bits = _bits(self.shape_of(here))
            at = self.index.get(here.producer)
            if at is not None and self.instructions[at].opcode in ELEMENTWISE:
                bits = own
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
