"""What a fusion does: matmuls inside, bytes at its border, collectives hidden in it.

A fusion computes only what its root needs, so a parameter that is only sliced is read only
there. The needed elements are propagated from the root backwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from xla_cost.hlo.ir import BITS, Computation, Instruction, Shape
from xla_cost.program import Matmul
from xla_cost.walk.costing import Costing
from xla_cost.walk.graph import Graph
from xla_cost.walk.opcodes import COLLECTIVES, ELEMENTWISE, FREE, SLICING, STREAMING
from xla_cost.walk.values import Ref, leaves

#: Opcodes that read as many elements of an operand as are needed of the result.
_POINTWISE = (ELEMENTWISE | STREAMING | {"copy", "transpose", "reshape", "reverse"}) - {
    "broadcast", "iota", "bitcast-convert"
}  # fmt: skip
_NESTED = frozenset({"fusion", "call"})


@dataclass(frozen=True, slots=True)
class Fusion:
    """Summary of a fused computation, for one execution.

    `reads[p]` are the bytes taken from parameter p. `collectives` and `unpriced` name
    instructions inside, nested fusions included.
    """

    matmuls: tuple[Matmul, ...]
    matmul_opcodes: tuple[str, ...]
    vector_flops: int
    reads: tuple[int, ...]
    written: int
    collectives: tuple[tuple[Graph, Instruction], ...]
    unpriced: tuple[str, ...]
    only_moves: bool
    notes: tuple[str, ...] = ()


def summarise(
    computation: Computation, graph: Graph, costing: Costing, inner: dict[str, Fusion]
) -> Fusion:
    """The summary of one fused computation; `inner` holds those of all that it calls."""
    matmuls: list[Matmul] = []
    opcodes: list[str] = []
    collectives: list[tuple[Graph, Instruction]] = []
    unpriced: list[str] = []
    notes: list[str] = []
    vector_flops = 0
    only_moves = True
    for instruction in computation.instructions:
        opcode = instruction.opcode
        if opcode in FREE or graph.is_alias(instruction):
            continue
        if opcode in COLLECTIVES:
            collectives.append((graph, instruction))
            continue
        if opcode in _NESTED and instruction.called and instruction.called[0] in inner:
            nested = inner[instruction.called[0]]
            matmuls.extend(nested.matmuls)
            opcodes.extend(nested.matmul_opcodes)
            collectives.extend(nested.collectives)
            unpriced.extend(nested.unpriced)
            notes.extend(nested.notes)
            vector_flops += nested.vector_flops
            only_moves = only_moves and nested.only_moves
            continue
        if opcode.endswith("-done"):
            continue
        cost = costing.cost(
            instruction, graph.operand_shapes(instruction), graph.shapes[instruction.name]
        )
        matmuls.extend(cost.matmuls)
        opcodes.extend([opcode] * len(cost.matmuls))
        vector_flops += cost.vector_flops
        if cost.kind == "unpriced":
            unpriced.append(cost.note)
        elif cost.note:
            notes.append(cost.note)
        only_moves = only_moves and cost.kind == "move"
    return Fusion(
        tuple(matmuls),
        tuple(opcodes),
        vector_flops,
        _reads(computation, graph, costing, inner),
        _written(graph),
        tuple(collectives),
        tuple(unpriced),
        only_moves and not collectives,
        tuple(notes),
    )


def _written(graph: Graph) -> int:
    """Bytes the root writes; a dynamic-update-slice at the root writes its slice in place."""
    total = 0
    for ref in leaves(graph.root):
        update = _update_of(graph, ref)
        total += graph.shape_of(ref).bytes if update is None else update
    return total


def _update_of(graph: Graph, ref: Ref) -> int | None:
    """Bytes of the update where `ref` is made by an in-place dynamic-update-slice."""
    instruction = graph.instruction(ref.producer)
    seen = 0
    while instruction is not None and instruction.opcode in ("convert", "copy") and seen < 16:
        value = graph.values.get(instruction.operands[0]) if instruction.operands else None
        instruction = graph.instruction(value.producer) if isinstance(value, Ref) else None
        seen += 1
    if instruction is None or len(instruction.operands) < 2:
        return None
    if instruction.opcode != "dynamic-update-slice":
        return None
    return graph.operand_shapes(instruction)[1].bytes


def _reads(
    computation: Computation, graph: Graph, costing: Costing, inner: dict[str, Fusion]
) -> tuple[int, ...]:
    """Bytes taken from each parameter."""
    needed: dict[str, int] = {}  # elements needed of each producer
    for ref in leaves(graph.root):
        _need(needed, graph, ref, _elements(graph, ref))
    in_place = {ref.producer for ref in leaves(graph.root)}
    parameter_bytes: dict[str, int] = {}
    for instruction in reversed(computation.instructions):
        name = instruction.name
        if instruction.opcode == "parameter":
            shape = graph.shapes[name]
            if isinstance(shape, Shape):
                bits = (
                    BITS.get(shape.dtype, 0) if shape.element_bits is None else shape.element_bits
                )
                parameter_bytes[name] = min(shape.bytes, (needed.get(name, 0) * bits + 7) // 8)
            else:
                parameter_bytes[name] = min(shape.bytes, needed.get(name, 0))
            continue
        if instruction.opcode in FREE or graph.is_alias(instruction):
            continue
        count = needed.get(name, 0) or _elements(graph, Ref(name))
        _need_operands(needed, graph, instruction, count, in_place, inner)
    parameters = computation.parameters
    return tuple(parameter_bytes.get(parameter.name, 0) for parameter in parameters)


def _need_operands(
    needed: dict[str, int],
    graph: Graph,
    instruction: Instruction,
    count: int,
    in_place: set[str],
    inner: dict[str, Fusion],
) -> None:
    opcode = instruction.opcode
    nested = inner.get(instruction.called[0]) if opcode in _NESTED and instruction.called else None
    for number, value in enumerate(graph.operand_values(instruction)):
        for ref in leaves(value):
            whole = _elements(graph, ref)
            if nested is not None:
                share = nested.reads[number] if number < len(nested.reads) else 0
                size = graph.shape_of(ref).bytes
                part = whole * share // size if size else 0
            elif opcode in _POINTWISE:
                part = count
            elif opcode in SLICING and number == 0:
                part = min(count, _elements(graph, Ref(instruction.name)))
            elif opcode == "dynamic-update-slice" and number == 0:
                part = 0 if instruction.name in in_place else count
            elif opcode == "scatter" and number == 0 and instruction.name in in_place:
                part = _elements_of_operand(graph, instruction, -1)
            else:
                part = whole
            _need(needed, graph, ref, part)


def _elements_of_operand(graph: Graph, instruction: Instruction, number: int) -> int:
    shape = graph.operand_shapes(instruction)[number]
    return sum(array.elements for array in shape.arrays)


def _need(needed: dict[str, int], graph: Graph, ref: Ref, count: int) -> None:
    """Add to what is needed of a producer: elements, or bytes where it is a tuple."""
    if ref.path:  # part of a tuple: counted in bytes of the whole
        array = graph.shape_of(ref)
        elements = max(1, sum(a.elements for a in array.arrays))
        needed[ref.producer] = (
            needed.get(ref.producer, 0) + array.bytes * min(count, elements) // elements
        )
    else:
        needed[ref.producer] = needed.get(ref.producer, 0) + min(count, _elements(graph, ref))


def _elements(graph: Graph, ref: Ref) -> int:
    return sum(array.elements for array in graph.shape_of(ref).arrays)
