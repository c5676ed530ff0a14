"""The most bytes that are alive at once while a body runs.

Instructions run in the order of the text. An array lives from its instruction to its last
use. Not counted: parameters (whoever runs the body holds them), tuples and views,
constants, updates in place (of arguments, too: see `buffers`), element-wise values with one
user (fused into it), what is computed from constants and positions alone (causal masks: every
user makes its own) and what stays inside a kernel region. A nested body adds its own peak while
it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from xla_cost.hlo.ir import Instruction, TupleShape
from xla_cost.walk.buffers import DEEPEST, Buffers
from xla_cost.walk.graph import Graph
from xla_cost.walk.opcodes import ELEMENTWISE, FREE, STREAMING, is_done
from xla_cost.walk.values import Ref, shape_at

#: Opcodes that fuse into whatever reads their result alone.
_FUSIBLE = ELEMENTWISE | STREAMING
#: Opcodes that fuse with an element-wise producer.
_FUSES_INPUT = _FUSIBLE | {
    "reduce", "dynamic-update-slice", "slice", "transpose", "concatenate", "pad", "scatter",
    "dynamic-slice", "reverse", "select-and-scatter", "reduce-window", "map",
}  # fmt: skip
#: Opcodes that run another computation once and hand its results on.
_RETURNS = frozenset({"call", "conditional"})


def peak_live_bytes(
    graph: Graph, buffers: Buffers, inner_peaks: Mapping[str, int], region_of: Mapping[int, int]
) -> int:
    """Peak over the instructions of a computation.

    `inner_peaks` are the peaks of the bodies that an instruction runs, by its name;
    `region_of` gives the number of the kernel region an instruction lies in, by its index.
    """
    instructions = graph.instructions
    count = len(instructions)
    if not count:
        return 0
    root = graph.results
    last = _last_uses(graph, buffers, region_of, root)
    generated = buffers.generated
    grows = [0] * (count + 1)
    returned = [0] * (count + 1)  # results of a body that runs once are in its own peak
    shrinks = [0] * (count + 1)
    for (name, path), (start, end) in last.items():
        at = graph.index[name]
        size = shape_at(graph.shapes[name], path).bytes
        if name in generated and name not in root:
            continue
        if _is_virtual(graph, at, region_of, name in root):
            continue
        made = returned if instructions[at].opcode in _RETURNS else grows
        made[start] += size
        shrinks[end] += size
    live = peak = 0
    for at, instruction in enumerate(instructions):
        live += grows[at]
        peak = max(peak, live + inner_peaks.get(instruction.name, 0), live + returned[at])
        live += returned[at]
        live -= shrinks[at]
    return peak


def _last_uses(
    graph: Graph,
    buffers: Buffers,
    region_of: Mapping[int, int],
    root: Mapping[str, list[Ref]],
) -> dict[Ref, tuple[int, int]]:
    """For every array that takes memory: when it is made and when it is last used."""
    instructions = graph.instructions
    count = len(instructions)
    region_end: dict[int, int] = {}
    for at, region in region_of.items():
        region_end[region] = max(at, region_end.get(region, 0))
    effective = list(range(count))  # when the inputs of an instruction are really read
    for at in reversed(range(count)):
        if at in region_of:
            effective[at] = region_end[region_of[at]]
            continue
        if instructions[at].name not in root and _is_fused(graph, instructions[at]):
            users = graph.uses[instructions[at].name]
            effective[at] = max(effective[user] for user, _, _ in users)
    found: dict[Ref, tuple[int, int]] = {}
    for instruction in instructions:
        name = instruction.name
        if instruction.opcode in FREE or graph.is_alias(instruction):
            continue
        plain = name not in buffers.shared
        for ref, user in _uses_of(graph, name, effective, root):
            for part in (ref,) if plain else _arrays(graph, ref):
                buffer = part if plain else buffers.of(part)
                if buffer is None:
                    continue
                known = found.get(buffer)
                if known is None:
                    start = graph.index[buffer.producer]
                    found[buffer] = (start, max(start, user))
                elif user > known[1]:
                    found[buffer] = (known[0], user)
    return found


def _uses_of(
    graph: Graph, name: str, effective: list[int], root: Mapping[str, list[Ref]]
) -> list[tuple[Ref, int]]:
    uses = [(ref, effective[user]) for user, _, ref in graph.uses.get(name, ())]
    uses.extend((ref, len(effective) - 1) for ref in root.get(name, ()))
    return uses or [(Ref(name), graph.index[name])]


def _arrays(graph: Graph, ref: Ref) -> list[Ref]:
    """The arrays of a reference that may mean a tuple; what lies very deep stays one tuple."""
    found: list[Ref] = []
    stack = [(ref, graph.shape_of(ref))]
    while stack:
        part, shape = stack.pop()
        if isinstance(shape, TupleShape) and len(part.path) < DEEPEST:
            inner = enumerate(shape.elements)
            stack.extend((Ref(part.producer, (*part.path, i)), each) for i, each in inner)
        else:
            found.append(part)
    return found


def _is_fused(graph: Graph, instruction: Instruction) -> bool:
    """Whether all users of a result compute it on the fly; more than one only what is cheap."""
    if instruction.opcode not in _FUSIBLE:
        return False
    users = graph.uses.get(instruction.name, ())
    if not users or (len(users) > 1 and instruction.opcode not in STREAMING):
        return False
    return all(graph.instructions[user].opcode in _FUSES_INPUT for user, _, _ in users)


def _is_virtual(graph: Graph, at: int, region_of: Mapping[int, int], in_root: bool) -> bool:
    """Whether the result of an instruction never takes memory."""
    instruction = graph.instructions[at]
    if instruction.opcode in FREE or is_done(instruction.opcode):
        return True
    if in_root:
        return False
    if at in region_of:
        users = graph.uses.get(instruction.name, ())
        return all(region_of.get(user) == region_of[at] for user, _, _ in users)
    return _is_fused(graph, instruction)
