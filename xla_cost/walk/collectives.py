"""Collective instructions as ledger entries."""

from __future__ import annotations

from typing import cast

from xla_cost.groups import DeviceGroups
from xla_cost.hlo.ir import AnyShape, Instruction, TupleShape
from xla_cost.program import Collective, CollectiveKind
from xla_cost.walk.costing import started_result
from xla_cost.walk.formats import wire_format
from xla_cost.walk.graph import Graph
from xla_cost.walk.opcodes import COLLECTIVES
from xla_cost.walk.values import first_array

#: Collectives of which only the first operand is data: the rest are buffers, offsets, tokens.
#: (So is it for a collective-permute in place, which prints `slice_sizes`.)
_ONE_DATA_OPERAND = frozenset({"ragged-all-to-all", "send-recv"})


def collective_of(
    instruction: Instruction, graph: Graph, groups: DeviceGroups, slice_of: int = 0
) -> Collective:
    """The collective an instruction (sync or start form) does.

    `slice_of` is the group size where an all-reduce is only used one slice per device: it is
    then the reduce-scatter that GPU and TPU compilers make of it.
    """
    kind = COLLECTIVES[instruction.opcode]
    operands = graph.operand_shapes(instruction)
    if kind in _ONE_DATA_OPERAND or "slice_sizes=" in instruction.attribute_text:
        operands = operands[:1]
    result = graph.shapes[instruction.name]
    if instruction.opcode.endswith("-start") and (
        kind != "all-reduce" or _nests(result, len(operands))
    ):
        result = started_result(result)
    payload = sum(shape.bytes for shape in operands)
    data = first_array(operands[0]) if operands else first_array(result)
    result_bytes = payload if kind == "send-recv" else result.bytes
    if slice_of > 1:
        return Collective(
            "reduce-scatter",
            groups,
            payload,
            -(-payload // slice_of),
            wire_format(data.dtype),
            rewritten_from="all-reduce",
        )
    return Collective(
        cast(CollectiveKind, kind), groups, payload, result_bytes, wire_format(data.dtype)
    )


def _nests(result: AnyShape, operands: int) -> bool:
    """Whether an all-reduce-start prints `(operands, results)` rather than results alone."""
    if not isinstance(result, TupleShape) or len(result.elements) != 2:
        return False
    return operands == 1 or isinstance(result.elements[0], TupleShape)
