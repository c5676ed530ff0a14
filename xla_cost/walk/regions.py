"""Marked kernel regions: all that one kernel does becomes one op.

Instructions of one computation under the same `kernel[..]` path form a region. A collective
stays outside, and where the path from one instruction of a region to another leaves it, the
region is split there: nothing is merged that would then wait for itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from xla_cost.hlo.ir import Instruction, Shape
from xla_cost.program import Body, Branch, Loop, Matmul, Node, Op, body_flops
from xla_cost.walk.costing import Cost
from xla_cost.walk.drafts import Draft, Drafts, Needs, together
from xla_cost.walk.graph import Graph
from xla_cost.walk.opcodes import FREE, SLICING
from xla_cost.walk.values import Ref, leaves

Key = tuple[str, str]


@dataclass(slots=True)
class _Region:
    key: Key
    members: list[int] = field(default_factory=list)
    waits_for: int = 0  # bit set of regions that a member depends on, itself left out


def has_regions(drafts: Drafts) -> bool:
    """Whether any node lies under a `kernel[..]` path."""
    return any(draft.scope.region for draft in drafts.nodes)


def collapse(
    graph: Graph, drafts: Drafts, costs: Mapping[str, Cost]
) -> tuple[Drafts, dict[int, int]]:
    """The drafts with every kernel region as one op of kind `kernel`.

    Also the number of the region that an instruction lies in, by the instruction's index.
    """
    regions = _assign(drafts)
    _absorb(graph, drafts, regions)
    order, merged = _order(drafts, regions)
    if sum(map(len, order)) != len(drafts.nodes):  # a cycle: never merge what waits for itself
        return drafts, {}
    place = {old: new for new, group in enumerate(order) for old in group}
    nodes: list[Draft] = []
    for group in order:
        region = merged.get(group[0])
        draft = drafts.nodes[group[0]]
        if region is not None:
            draft = _kernel(graph, drafts, region, costs)
        own = {place[old] for old in group}
        needs = _renumbered(draft.needs, place)
        nodes.append(
            Draft(
                draft.make,
                draft.fields,
                Needs(tuple(n for n in needs.nodes if n not in own), needs.parameters),
                draft.origin,
                draft.scope,
            )
        )
    region_of = {
        drafts.nodes[index].origin: number
        for number, region in enumerate(regions)
        for index in region.members
    }
    merged_drafts = Drafts(
        nodes,
        {name: _renumbered(needs, place) for name, needs in drafts.made.items()},
        {part: _renumbered(needs, place) for part, needs in drafts.parts.items()},
    )
    return merged_drafts, region_of


def _renumbered(needs: Needs, place: Mapping[int, int]) -> Needs:
    if not needs.nodes:
        return needs
    return Needs(tuple(dict.fromkeys(place[node] for node in needs.nodes)), needs.parameters)


def _assign(drafts: Drafts) -> list[_Region]:
    """Which nodes belong together, in program order."""
    regions: list[_Region] = []
    current: dict[Key, int] = {}
    region_of: dict[int, int] = {}
    after: list[int] = []  # per node, bit set of the regions that it depends on
    for index, draft in enumerate(drafts.nodes):
        waits = 0
        outside = 0
        key = (draft.scope.region, draft.scope.direction)
        mine = current.get(key, -1) if key[0] else -1
        for node in draft.needs.nodes:
            inside = region_of.get(node, -1)
            mask = after[node] | (1 << inside if inside >= 0 else 0)
            waits |= mask
            if inside != mine or inside < 0:
                outside |= mask
        free = draft.fields.get("kind") == "free"
        if free and (mine < 0 or all(region_of.get(n) != mine for n in draft.needs.nodes)):
            after.append(waits)  # a name for something outside: not the kernel's
            continue
        if key[0] and _collapsible(draft):
            if mine < 0 or _closure(outside, regions) >> mine & 1:
                mine = len(regions)
                regions.append(_Region(key))
                current[key] = mine
            region = regions[mine]
            region.members.append(index)
            region.waits_for |= waits & ~(1 << mine)
            region_of[index] = mine
            waits = region.waits_for
        after.append(waits)
    return regions


def _closure(mask: int, regions: list[_Region]) -> int:
    """All regions that those in `mask` wait for, themselves included."""
    seen = 0
    while mask & ~seen:
        bit = (mask & ~seen).bit_length() - 1
        seen |= 1 << bit
        mask |= regions[bit].waits_for
    return seen


def _collapsible(draft: Draft) -> bool:
    """Whether a node can be part of a kernel: no collective in it, and a known trip count."""
    stack: list[Any] = [draft.fields.get("kind"), draft.fields.get("trips", 1)]
    if stack[0] in ("collective", "wait", "unpriced") or stack[1] is None:
        return False
    bodies: list[Body] = []
    if draft.make is Loop:
        bodies.append(draft.fields["body"])
    elif draft.make is Branch:
        bodies.extend(draft.fields["bodies"])
    while bodies:
        for node in bodies.pop().nodes:
            if isinstance(node, Op):
                if node.kind in ("collective", "wait", "unpriced"):
                    return False
            elif isinstance(node, Loop):
                if node.trips is None:
                    return False
                bodies.append(node.body)
            else:
                bodies.extend(node.bodies)
    return True


def _absorb(graph: Graph, drafts: Drafts, regions: list[_Region]) -> None:
    """Take in nodes without a scope of their own that only one region uses.

    Partitioning adds masks, iotas and broadcasts without metadata; a kernel makes them itself.
    """
    region_of = {index: number for number, r in enumerate(regions) for index in r.members}
    users: list[set[int]] = [set() for _ in drafts.nodes]
    for index, draft in enumerate(drafts.nodes):
        for node in draft.needs.nodes:
            users[node].add(index)
    kept = {node for name in graph.results for node in _nodes_of(drafts, name)}
    for index in reversed(range(len(drafts.nodes))):
        draft = drafts.nodes[index]
        if index in region_of or index in kept or not users[index] or not draft.is_op:
            continue
        generated = not draft.needs.nodes and not draft.needs.parameters
        if draft.scope.path and not generated:
            continue
        if draft.fields["kind"] not in ("vector", "move") and draft.fields["opcode"] != "constant":
            continue
        homes = {region_of.get(user, -1) for user in users[index]}
        if len(homes) == 1 and -1 not in homes:
            home = homes.pop()
            regions[home].members.append(index)
            region_of[index] = home
    for region in regions:
        region.members.sort()


def _nodes_of(drafts: Drafts, name: str) -> tuple[int, ...]:
    made = drafts.made.get(name)
    return made.nodes if made else ()


def _order(
    drafts: Drafts, regions: list[_Region]
) -> tuple[list[tuple[int, ...]], dict[int, _Region]]:
    """Groups of old nodes in an order in which dependencies come first."""
    group_of = list(range(len(drafts.nodes)))
    members: dict[int, tuple[int, ...]] = {}
    merged: dict[int, _Region] = {}
    for region in regions:
        head = region.members[0]
        members[head] = tuple(region.members)
        merged[head] = region
        for index in region.members:
            group_of[index] = head
    heads = sorted(set(group_of))
    waiting: dict[int, set[int]] = {head: set() for head in heads}
    users: dict[int, set[int]] = {head: set() for head in heads}
    for index, draft in enumerate(drafts.nodes):
        for node in draft.needs.nodes:
            before, after = group_of[node], group_of[index]
            if before != after:
                waiting[after].add(before)
                users[before].add(after)
    last = {head: members.get(head, (head,))[-1] for head in heads}
    ready = [(last[head], head) for head in heads if not waiting[head]]
    heapq.heapify(ready)
    order: list[tuple[int, ...]] = []
    while ready:
        _, head = heapq.heappop(ready)
        order.append(members.get(head, (head,)))
        for user in users[head]:
            waiting[user].discard(head)
            if not waiting[user]:
                heapq.heappush(ready, (last[user], user))
    return order, merged


def _kernel(graph: Graph, drafts: Drafts, region: _Region, costs: Mapping[str, Cost]) -> Draft:
    """One op for a region: its matmuls, and the bytes that cross its border."""
    members = [drafts.nodes[index] for index in region.members]
    scoped = next(m for m in members if m.scope.region and m.fields.get("kind") != "free")
    work = _Work()
    for member in members:
        work.add(member)
    origins = sorted({member.origin for member in members})
    read, source_read = _entering(graph, origins, costs)
    written = _leaving(graph, origins)
    fields: dict[str, Any] = {
        "name": scoped.scope.region.rsplit("/", 1)[-1] + "." + scoped.fields["name"],
        "opcode": "kernel",
        "kind": "kernel",
        "scope": scoped.scope.region,
        "source": next((m.fields["source"] for m in members if m.fields.get("source")), ""),
        "matmuls": tuple(work.matmuls),
        "matmul_opcodes": tuple(work.opcodes),
        "vector_flops": work.vector_flops,
        "bytes_read": read,
        "source_bytes_read": source_read,
        "bytes_written": written,
        "result_bytes": written,
        "work": scoped.scope.work,
        "region": scoped.scope.kernel,
        "routed_tokens": scoped.scope.tokens,
        "routed_experts": scoped.scope.experts,
        "top_k": scoped.scope.top_k,
    }
    return Draft(Op, fields, together(m.needs for m in members), members[-1].origin, scoped.scope)


@dataclass(slots=True)
class _Work:
    """Arithmetic of the members of a region, loops multiplied out."""

    matmuls: list[Matmul] = field(default_factory=list)
    opcodes: list[str] = field(default_factory=list)
    vector_flops: int = 0

    def add(self, member: Draft) -> None:
        """Count a member and whatever it runs."""
        stack: list[tuple[Node, int]] = [(member.finish(), 1)]
        while stack:
            here, times = stack.pop()
            if isinstance(here, Op):
                self.vector_flops += here.vector_flops * times
                self.matmuls.extend(_repeated(here.matmuls, times))
                self.opcodes.extend(opcodes_of(here))
            elif isinstance(here, Loop):
                trips = 1 if here.trips is None else here.trips
                stack.extend((inner, times * trips) for inner in reversed(here.body.nodes))
            else:
                dearest = max(here.bodies, key=body_flops)
                stack.extend((inner, times) for inner in reversed(dearest.nodes))


def _repeated(matmuls: Iterable[Matmul], times: int) -> list[Matmul]:
    return [replace(m, batch=m.batch * times) if times != 1 else m for m in matmuls]


def opcodes_of(op: Op) -> tuple[str, ...]:
    """The HLO opcode of each matmul of an op."""
    return op.matmul_opcodes or (op.opcode,) * len(op.matmuls)


def _entering(graph: Graph, origins: list[int], costs: Mapping[str, Cost]) -> tuple[int, int]:
    """Bytes of the values that enter: each once, at most whole; also at their source width."""
    inside = {graph.instructions[at].name for at in origins}
    taken: dict[Ref, int] = {}
    for at in origins:
        instruction = graph.instructions[at]
        cost = costs.get(instruction.name)
        if instruction.opcode in FREE or graph.is_alias(instruction):
            continue
        for number, value in enumerate(graph.operand_values(instruction)):
            for ref in leaves(value):
                if ref.producer in inside or _is_generated(graph, ref):
                    continue
                whole = graph.shape_of(ref).bytes
                part = whole
                if cost is not None and isinstance(value, Ref) and number < len(cost.reads):
                    part = cost.reads[number]
                elif instruction.opcode in SLICING and number == 0:
                    part = graph.shapes[instruction.name].bytes
                taken[ref] = min(whole, taken.get(ref, 0) + part)
    read = source_read = 0
    for ref, part in taken.items():
        source, own = graph.source_bits(ref)
        read += part
        source_read += part if source == own or not own else part * source // own
    return read, source_read


#: Ops that make a value out of its operands' elements alone.
_MAKING = frozenset({
    "add", "and", "bitcast", "broadcast", "clamp", "compare", "convert", "copy", "divide",
    "maximum", "minimum", "multiply", "negate", "not", "or", "pad", "remainder", "reshape",
    "select", "slice", "subtract", "transpose", "xor",
})  # fmt: skip
_SEEDS = frozenset({"constant", "iota", "partition-id", "replica-id"})


def _is_generated(graph: Graph, ref: Ref) -> bool:
    """Whether a value costs nothing to read, because every kernel makes it itself.

    A scalar constant, an iota, a device number, and what element-wise ops make of those alone:
    the causal mask, which the compiler shares between the attention kernels of a program.
    """
    pending, seen = [ref.producer], {ref.producer}
    while pending:
        name = pending.pop()
        instruction: Instruction | None = graph.instruction(name)
        if instruction is None:
            return False
        if instruction.opcode in _SEEDS:
            shape = graph.shapes[name]
            if instruction.opcode == "constant" and not (
                isinstance(shape, Shape) and shape.elements == 1
            ):
                return False
            continue
        if instruction.opcode not in _MAKING:
            return False
        for operand in instruction.operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return True


def _leaving(graph: Graph, origins: list[int]) -> int:
    """Bytes of the values made inside that are used outside, each once."""
    at_inside = set(origins)
    out: dict[Ref, int] = {}
    for at in origins:
        name = graph.instructions[at].name
        for user, _, ref in graph.uses.get(name, ()):
            if user not in at_inside and not _is_generated(graph, ref):
                out[ref] = graph.shape_of(ref).bytes
        for ref in graph.results.get(name, ()):
            out[ref] = graph.shape_of(ref).bytes
    return sum(out.values())
