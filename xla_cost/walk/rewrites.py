"""All-reduces that compilers turn into reduce-scatters.

XLA:CPU's partitioner, and GSPMD on its own, write an all-reduce whose result every device
only slices by its own number. GPU and TPU run XLA's ReduceScatterCreator on that; so the
ledger says reduce-scatter, with `rewritten_from`.
"""

from __future__ import annotations

from math import ceil

from xla_cost.hlo.ir import Instruction, Shape
from xla_cost.walk.graph import Graph
from xla_cost.walk.values import Ref, leaves

#: Views and copies between the all-reduce and the slices.
_PASSING = frozenset({"bitcast", "reshape", "convert", "copy", "all-reduce-done", "transpose"})
_DEVICE = frozenset({"partition-id", "replica-id"})
#: Instructions looked at to find where a slice index comes from.
_LOOKED_AT = 200


def sliced_by_device(
    graph: Graph, reduce: Instruction, group_size: int, fused: dict[str, Graph]
) -> bool:
    """Whether all uses of an all-reduce take the 1/`group_size` that belongs to the device."""
    if group_size <= 1 or len(reduce.operands) != 1:
        return False
    shape = graph.operand_shapes(reduce)[0]
    if not isinstance(shape, Shape) or not shape.elements:
        return False
    part = ceil(shape.elements / group_size)
    names = [reduce.name]
    slices = 0
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in graph.results:
            return False
        for user, number, _ in graph.uses.get(name, ()):
            instruction = graph.instructions[user]
            if instruction.opcode in _PASSING:
                names.append(instruction.name)
            elif instruction.opcode == "dynamic-slice" and number == 0:
                if not _is_own_part(graph, instruction, part):
                    return False
                slices += 1
            elif instruction.opcode == "fusion" and instruction.called:
                inner = fused.get(instruction.called[0])
                if inner is None or not _sliced_inside(inner, number, part):
                    return False
                slices += 1
            else:
                return False
    return slices > 0


def _is_own_part(graph: Graph, instruction: Instruction, part: int) -> bool:
    shape = graph.shapes[instruction.name]
    if not isinstance(shape, Shape) or not 0 < shape.elements <= part:
        return False
    return any(
        _from_device(graph, ref) for v in graph.operand_values(instruction)[1:] for ref in leaves(v)
    )


def _from_device(graph: Graph, ref: Ref) -> bool:
    """Whether an index is computed from the device's own number."""
    names = [ref.producer]
    seen: set[str] = set()
    while names and len(seen) < _LOOKED_AT:
        name = names.pop()
        instruction = graph.instruction(name)
        if name in seen or instruction is None:
            continue
        seen.add(name)
        if instruction.opcode in _DEVICE:
            return True
        for value in graph.operand_values(instruction):
            names.extend(inner.producer for inner in leaves(value))
    return False


def _sliced_inside(inner: Graph, number: int, part: int) -> bool:
    """Whether a fusion only slices parameter `number`. (Its index is a parameter, too.)"""
    parameters = inner.computation.parameters
    if number >= len(parameters):
        return False
    names = [parameters[number].name]
    slices = 0
    while names:
        name = names.pop()
        if name in inner.results:
            return False
        for user, operand, _ in inner.uses.get(name, ()):
            instruction = inner.instructions[user]
            if instruction.opcode in _PASSING:
                names.append(instruction.name)
                continue
            shape = inner.shapes[instruction.name]
            if instruction.opcode != "dynamic-slice" or operand != 0:
                return False
            if not isinstance(shape, Shape) or not 0 < shape.elements <= part:
                return False
            slices += 1
    return slices > 0
