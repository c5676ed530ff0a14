"""The most bytes that are alive at once while a body runs.

Instructions run in the order of the text. An array lives from its instruction to its last
use. Not counted: parameters (whoever runs the body holds them), tuples and views,
constants, updates in place, element-wise values with one user (fused into it), what is
computed from constants and positions alone (causal masks: every user makes its own) and what
stays inside a kernel region. A nested body adds its own peak while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from xla_cost.hlo.ir import Instruction
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
#: Opcodes that make values out of nothing that stands in memory, and those that pass such on.
_FROM_NOTHING = frozenset({"constant", "iota", "partition-id", "replica-id"})
_PASSES_ON = _FUSIBLE | {"reshape", "bitcast", "transpose", "slice", "dynamic-slice"}
#: Opcodes whose result is their first operand's memory, updated.
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter", "while"})


def peak_live_bytes(
    graph: Graph, inner_peaks: Mapping[str, int], region_of: Mapping[int, int]
) -> int:
    """Peak over the instructions of a computation.

    `inner_peaks` are the peaks of the bodies that an instruction runs, by its name;
    `region_of` gives the number of the kernel region an instruction lies in, by its index.
    """
    instructions = graph.instructions
    count = len(instructions)
    if not count:
        return 0
    owner = _owners(graph)
    root = graph.results
    last = _last_uses(graph, owner, region_of, root)
    generated = _generated(graph)
    grows = [0] * (count + 1)
    shrinks = [0] * (count + 1)
    for (name, path), (start, end) in last.items():
        at = graph.index[name]
        size = shape_at(graph.shapes[name], path).bytes
        if name in generated and name not in root:
            continue
        if _is_virtual(graph, at, region_of, name in root):
            continue
        grows[start] += size
        shrinks[end] += size
    live = peak = 0
    for at, instruction in enumerate(instructions):
        live += grows[at]
        peak = max(peak, live + inner_peaks.get(instruction.name, 0))
        live -= shrinks[at]
    return peak


def _owners(graph: Graph) -> dict[str, str | None]:
    """Whose memory the result of an instruction is: its own, or another's (None: a parameter).

    Follows updates in place and loop-carried state to the instruction that allocated it.
    """
    owner: dict[str, str | None] = {}
    for instruction in graph.instructions:
        name = instruction.name
        opcode = instruction.opcode
        owner[name] = name
        if opcode in ("parameter", "constant"):
            owner[name] = None
        elif opcode in _IN_PLACE and instruction.operands and opcode != "while":
            value = graph.values.get(instruction.operands[0])
            if isinstance(value, Ref):
                owner[name] = owner.get(value.producer, name) if not value.path else None
                if value.path and owner.get(value.producer) is not None:
                    owner[name] = value.producer
    return owner


Buffer = tuple[str, tuple[int, ...]]


def _last_uses(
    graph: Graph,
    owner: Mapping[str, str | None],
    region_of: Mapping[int, int],
    root: Mapping[str, list[Ref]],
) -> dict[Buffer, tuple[int, int]]:
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
    state = _carried(graph)
    found: dict[Buffer, tuple[int, int]] = {}
    for instruction in instructions:
        name = instruction.name
        if owner.get(name) is None or instruction.opcode in FREE or graph.is_alias(instruction):
            continue
        plain = name not in state and owner[name] == name
        for ref, user in _uses_of(graph, name, effective, root):
            buffer: Buffer | None = ref if plain else _buffer(graph, ref, owner, state)
            if buffer is None:
                continue
            known = found.get(buffer)
            if known is None:
                start = graph.index[buffer[0]]
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


def _carried(graph: Graph) -> dict[str, dict[tuple[int, ...], Ref]]:
    """For every while, the array that each element of its state starts in."""
    state: dict[str, dict[tuple[int, ...], Ref]] = {}
    for instruction in graph.instructions:
        if instruction.opcode == "while" and instruction.operands:
            value = graph.values.get(instruction.operands[0])
            if isinstance(value, list):
                state[instruction.name] = {
                    (i,): part for i, part in enumerate(value) if isinstance(part, Ref)
                }
    return state


def _buffer(
    graph: Graph,
    ref: Ref,
    owner: Mapping[str, str | None],
    state: Mapping[str, Mapping[tuple[int, ...], Ref]],
) -> Buffer | None:
    """The allocation behind a reference; None where a parameter or constant holds it."""
    for _ in range(10_000):
        made = owner.get(ref.producer)
        if made is None:
            return None
        if made != ref.producer:
            ref = Ref(made, ref.path)
            continue
        elements = state.get(ref.producer)
        if elements is None:
            return (ref.producer, ref.path)
        part = elements.get(ref.path[:1])
        if part is None:
            return (ref.producer, ref.path)
        ref = Ref(part.producer, (*part.path, *ref.path[1:]))
    return None


def _generated(graph: Graph) -> frozenset[str]:
    """Values made of constants and positions alone, which no one has to store."""
    found: set[str] = set()
    for instruction in graph.instructions:
        opcode = instruction.opcode
        if opcode in _FROM_NOTHING or (
            opcode in _PASSES_ON and all(name in found for name in instruction.operands)
        ):
            found.add(instruction.name)
    return frozenset(found)


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
