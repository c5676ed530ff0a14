"""What one iteration of a loop hands to the next."""

from __future__ import annotations

from xla_cost.walk.drafts import Drafts
from xla_cost.walk.graph import Graph
from xla_cost.walk.values import Ref, Value, leaves

#: More pairs than this say no more than "all of it".
_MOST = 50_000


def carried(graph: Graph, drafts: Drafts) -> tuple[tuple[int, int], ...] | None:
    """Pairs (producer, reader) of nodes, see `Body.carried`; None where all waits for all.

    Readers are the get-tuple-elements of parameter 0, and what takes an element past them,
    through a copy that changes nothing. An element passed on unchanged pairs its readers with
    themselves; one that moves to another place is as if that place's producer fed it at once,
    which waits for no less than the program does.
    """
    state = {
        index
        for index, draft in enumerate(drafts.nodes)
        if draft.fields.get("opcode") == "parameter" and draft.needs.nodes == ()
    }
    readers: dict[int, list[int]] = {}
    for index, draft in enumerate(drafts.nodes):
        is_element = draft.fields.get("opcode") == "get-tuple-element"
        if not is_element and not state.intersection(draft.needs.nodes):
            continue
        for number, path in draft.needs.parameters:
            if number == 0 and path:
                readers.setdefault(path[0], []).append(index)
    root = graph.root
    if not isinstance(root, list):
        return None
    if not _only_elements(drafts, state):
        return None
    pairs: dict[tuple[int, int], None] = {}
    for element, targets in readers.items():
        producers, unchanged = _producers(graph, drafts, root, element)
        for reader in targets:
            if unchanged:
                pairs[reader, reader] = None
            for producer in producers:
                pairs[producer, reader] = None
        if len(pairs) > _MOST:
            return None
    return tuple(pairs)


def _only_elements(drafts: Drafts, state: set[int]) -> bool:
    """Whether whatever reads the state says which element it takes."""
    return all(
        not state.intersection(draft.needs.nodes)
        or all(path for number, path in draft.needs.parameters if number == 0)
        for draft in drafts.nodes
    )


def _producers(
    graph: Graph, drafts: Drafts, root: list[Value], element: int
) -> tuple[list[int], bool]:
    """(nodes that make an element of the next state, whether it is passed on unchanged)."""
    found: dict[int, None] = {}
    unchanged = False
    todo = [element]
    seen = {element}
    while todo:
        here = todo.pop()
        if here >= len(root):
            continue
        for ref in leaves(root[here]):
            instruction = graph.instruction(ref.producer)
            if instruction is not None and instruction.opcode == "parameter":
                source = ref.path[0] if ref.path else -1
                unchanged = unchanged or source == element
                if source >= 0 and source not in seen:
                    seen.add(source)
                    todo.append(source)
                continue
            found.update(dict.fromkeys(_made(drafts, ref)))
    return list(found), unchanged and not found


def _made(drafts: Drafts, ref: Ref) -> tuple[int, ...]:
    for length in range(len(ref.path), 0, -1):
        part = drafts.parts.get((ref.producer, ref.path[:length]))
        if part is not None:
            return part.nodes
    made = drafts.made.get(ref.producer)
    return made.nodes if made else ()
