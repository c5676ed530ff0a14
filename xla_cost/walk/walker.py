"""Module to Program: every computation once, innermost first, on an explicit stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from xla_cost.collection import no_collection
from xla_cost.hlo.groups import collective_groups, states_group
from xla_cost.hlo.ir import Computation, Instruction, Module
from xla_cost.program import Body, Node, Program
from xla_cost.walk.body import INLINE_FACTOR, INLINE_LIMIT, BodyBuilder, Env
from xla_cost.walk.buffers import Argument, Buffers, Path, updated_arguments
from xla_cost.walk.carry import carried
from xla_cost.walk.collectives import collective_of
from xla_cost.walk.costing import Cost, Costing
from xla_cost.walk.coverage import cover
from xla_cost.walk.custom_calls import DEFAULT_RULES
from xla_cost.walk.fusions import Fusion, summarise
from xla_cost.walk.graph import Graph
from xla_cost.walk.liveness import peak_live_bytes
from xla_cost.walk.names import full_name
from xla_cost.walk.opcodes import BY_TYPES
from xla_cost.walk.regions import collapse, has_regions
from xla_cost.walk.rewrites import sliced_by_device
from xla_cost.walk.rules import Rules
from xla_cost.walk.templates import Template, forwarded
from xla_cost.walk.trips import TripCounts
from xla_cost.walk.values import Value

#: Computations walked again for another context, beyond this many: the first walk serves.
CONTEXTS = 20_000

Key = tuple[str, str]


def walk(module: Module, *, rules: Rules = DEFAULT_RULES) -> Program:
    """The ledger of a module, as one device runs it.

    Calls are put in place, fusions are one op each, whiles are loops with their trip count
    (None where it depends on data), marked kernel regions are one op. What is not understood
    is an op of kind `unpriced` whose note says what it may cost. Raises XlaCostError where
    the device groups of a collective contradict themselves.
    """
    with no_collection():  # a walk makes no cycle
        return Walker(module, rules).program()


@dataclass(slots=True)
class _Frame:
    key: Key
    inner: Iterator[Key]


class Walker:
    """The walk of one module."""

    def __init__(self, module: Module, rules: Rules) -> None:
        self.module = module
        self.costing = Costing(module, rules)
        self.trip_counts = TripCounts(module)
        self._graphs: dict[str, Graph] = {}
        self._templates: dict[Key, Template] = {}
        self._fusions: dict[str, Fusion] = {}
        self._updates: dict[str, dict[Path, Argument]] = {}
        self._costs: dict[str, dict[str, Cost]] = {}
        self._groups: dict[tuple[str | None, ...], Any] = {}
        self._sources: dict[str, str] = {}
        self._by_types: dict[tuple[object, ...], Cost] = {}
        self._kept: list[object] = []
        self._loop_bodies = {
            instruction.attributes.get("body", "").lstrip("%")
            for computation in module.computations.values()
            for instruction in computation.instructions
            if instruction.opcode == "while"
        }
        self._run_lists: dict[str, list[tuple[Instruction, str]]] = {}
        self._contexts: dict[str, int] = {}
        self.problems: list[str] = []
        written = sum(len(c.instructions) for c in module.computations.values())
        self._most_nodes = max(INLINE_LIMIT, INLINE_FACTOR * written)

    def program(self) -> Program:
        """The program of the module's entry, or of all that nothing calls where it has none."""
        module = self.module
        roots = entries(module)
        templates = [self._template(root) for root in roots]
        if len(templates) > 1:
            self.problems.append(
                f"no ENTRY: {len(roots)} computations that nothing calls are counted once each"
            )
        parameters = sum(p.shape.bytes for root in roots for p in root.parameters)
        output = sum(root.root.shape.bytes for root in roots if root.instructions)
        program = Program(
            name=module.name,
            devices=max(module.device_count, self._largest_id + 1),
            entry=templates[0].body if len(templates) == 1 else _one_after_another(templates),
            parameter_bytes=parameters,
            output_bytes=output,
        )
        return cover(program, module, self.problems)

    # computations, innermost first

    def _template(self, entry: Computation) -> Template:
        key = (entry.name, "")
        open_keys: set[Key] = set()
        stack = [_Frame(key, iter(self._runs(key)))]
        open_keys.add(key)
        while stack:
            frame = stack[-1]
            following = next(frame.inner, None)
            if following is None:
                stack.pop()
                open_keys.discard(frame.key)
                self._build(frame.key)
            elif following in open_keys:
                self.problems.append(f"computation {following[0]} calls itself: counted once")
            elif not self._is_built(following):
                open_keys.add(following)
                stack.append(_Frame(following, iter(self._runs(following))))
        return self._templates[key]

    def _is_built(self, key: Key) -> bool:
        return key in self._templates or (key[1] == _FUSED and key[0] in self._fusions)

    def _runs(self, key: Key) -> list[Key]:
        """The computations that one runs, under the names they run by; known ones only."""
        computation = self.module.computations[key[0]]
        found: dict[Key, None] = {}
        for instruction, inner in self._running(computation):
            fused = inner == "fusion" or (key[1] == _FUSED and inner == "call")
            for name in _run_by(instruction):
                if name not in self.module.computations:
                    continue
                if fused:
                    found[name, _FUSED] = None
                else:
                    found[self._key(name, self._context_inside(key[1], instruction))] = None
        return list(found)

    def _running(self, computation: Computation) -> list[tuple[Instruction, str]]:
        """The instructions that run other computations, with their opcode without `-start`."""
        found = self._run_lists.get(computation.name)
        if found is None:
            found = self._run_lists[computation.name] = [
                (instruction, _RUNS[instruction.opcode])
                for instruction in computation.instructions
                if instruction.opcode in _RUNS
            ]
        return found

    def _context_inside(self, context: str, instruction: Instruction) -> str:
        own = "" if context == _FUSED else context
        return full_name(own, instruction.op_name) or own

    def _key(self, name: str, context: str) -> Key:
        """The memo key of a computation in a context; beyond a bound, the first one serves."""
        key = (name, context)
        if key in self._templates or len(self._contexts) < CONTEXTS:
            self._contexts.setdefault(f"{name}\0{context}", 1)
            return key
        return (name, "")

    def _build(self, key: Key) -> None:
        computation = self.module.computations[key[0]]
        graph = self._graph(computation)
        if key[0] not in self._updates:
            self._updates[key[0]] = updated_arguments(graph, self._inner_updates(computation))
        if key[1] == _FUSED:
            self._fusions[key[0]] = summarise(computation, graph, self.costing, self._fusions)
            return
        env = Env(
            graph=graph,
            template=lambda name, context: self._templates.get(self._key(name, context)),
            fusion=self._fusions.get,
            cost=self._cost,
            collective=self._collective,
            trips=self.trip_counts.of,
            source=self._source,
            most_nodes=self._most_nodes,
        )
        builder = BodyBuilder(computation, key[1], env)
        drafts = builder.build()
        region_of: dict[int, int] = {}
        if has_regions(drafts):
            costs = self._costs.get(computation.name, {})
            drafts, region_of = collapse(graph, drafts, costs)
        inner_peaks = self._inner_peaks(computation, key[1])
        buffers = Buffers(graph, self._inner_updates(computation))
        peak = peak_live_bytes(graph, buffers, inner_peaks, region_of)
        state = carried(graph, drafts) if computation.name in self._loop_bodies else None
        body = Body(tuple(draft.finish() for draft in drafts.nodes), peak, state)
        self._templates[key] = Template(computation, graph, drafts, peak, body)

    def _graph(self, computation: Computation) -> Graph:
        found = self._graphs.get(computation.name)
        if found is None:
            found = self._graphs[computation.name] = Graph(
                computation,
                aliases=self.costing.is_free_call,
                is_final=self.module.is_scheduled,
                forward=self._forward,
            )
        return found

    def _forward(self, instruction: Instruction, operands: list[Value]) -> Value | None:
        if instruction.opcode != "call" or not instruction.called:
            return None
        graph = self._graphs.get(instruction.called[0])
        return None if graph is None else forwarded(graph, instruction.name, operands)

    def _inner_peaks(self, computation: Computation, context: str) -> dict[str, int]:
        peaks: dict[str, int] = {}
        for instruction, inner in self._running(computation):
            if inner != "fusion":
                inside = self._context_inside(context, instruction)
                found = [self._templates.get(self._key(n, inside)) for n in _run_by(instruction)]
                peaks[instruction.name] = max((t.peak_live_bytes for t in found if t), default=0)
        return peaks

    def _inner_updates(self, computation: Computation) -> dict[str, dict[Path, Argument]]:
        """What each instruction passes on or updates in place of what it hands over."""
        found: dict[str, dict[Path, Argument]] = {}
        for instruction, inner in self._running(computation):
            names = _run_by(instruction)
            if inner in ("while", "call", "fusion") and names and names[0] in self._updates:
                found[instruction.name] = self._updates[names[0]]
        return found

    # single instructions

    def _cost(self, graph: Graph, instruction: Instruction) -> Cost:
        known = self._costs.setdefault(graph.computation.name, {})
        cost = known.get(instruction.name)
        if cost is not None:
            return cost
        operands = graph.operand_shapes(instruction)
        result = graph.shapes[instruction.name]
        if instruction.opcode in BY_TYPES:
            # shapes of equal text are one value, so layers that repeat cost one look-up
            key = (instruction.opcode, id(result), *map(id, operands))
            cost = self._by_types.get(key)
            if cost is None:
                cost = self._by_types[key] = self.costing.cost(instruction, operands, result)
                self._kept.append((operands, result))  # the ids stay theirs
        else:
            cost = self.costing.cost(instruction, operands, result)
        known[instruction.name] = cost
        return cost

    _largest_id = -1

    def _collective(self, graph: Graph, instruction: Instruction) -> dict[str, Any]:
        attributes = instruction.attributes
        names = ("replica_groups", "source_target_pairs", "use_global_device_ids")
        key = (
            instruction.opcode,
            str("channel_id" in attributes),
            attributes.get("frontend_attributes") if instruction.opcode == "send" else None,
            *(attributes.get(name) for name in names),
        )
        groups = self._groups.get(key)
        if groups is None:
            groups = self._groups[key] = collective_groups(instruction, self.module)
            ids = [max(group, default=-1) for group in groups.members]
            if not groups.is_pairs and not states_group(instruction, self.module):
                self.problems.append(
                    f"{instruction.name}: its group is everyone, and the text does not say how "
                    f"many that is: took {groups.size}"
                )
            self._largest_id = max([self._largest_id, *ids])
        size = groups.size if not groups.is_pairs else 0
        sliced = instruction.opcode in ("all-reduce", "all-reduce-start") and sliced_by_device(
            graph, instruction, size, self._graphs
        )
        return {"collective": collective_of(instruction, graph, groups, size if sliced else 0)}

    def _source(self, instruction: Instruction) -> str:
        text = instruction.attribute_text
        at = text.rfind("metadata={")
        if at < 0:
            return ""
        metadata = text[at : text.find("}", at)]
        # op_name differs per instruction, the place in the source hardly
        place = metadata.rfind('"')
        key = metadata[place:] if "source_file" not in metadata else metadata
        found = self._sources.get(key)
        if found is None:
            found = self._sources[key] = instruction.source
        return found


def entries(module: Module) -> tuple[Computation, ...]:
    """The entry; where the text has no ENTRY, every computation that nothing calls.

    A file cut in the middle has lost its ENTRY: what is there is still worth reading. A
    computation of scalars alone (an orphaned reducer) is left out.
    """
    if not any(problem.startswith("no ENTRY") for problem in module.problems):
        return (module.entry,)
    called = {
        name
        for computation in module.computations.values()
        for instruction in computation.instructions
        if "=" in instruction.attribute_text
        for name in instruction.called
    }
    roots = [c for name, c in module.computations.items() if name not in called]
    whole = [c for c in roots if any(a.dims for p in c.instructions for a in p.shape.arrays)]
    return tuple(whole) or (module.entry,)


def _one_after_another(templates: list[Template]) -> Body:
    """One body with the nodes of several; the peak is the largest."""
    nodes: list[Node] = []
    for template in templates:
        base = len(nodes)
        nodes.extend(
            replace(node, deps=tuple(dep + base for dep in node.deps))
            for node in template.body.nodes
        )
    return Body(tuple(nodes), max(t.peak_live_bytes for t in templates))


#: The context of fused computations: they have no scope of their own.
_FUSED = "\0fused"
_RUNS = {
    **{opcode: opcode for opcode in ("while", "call", "conditional", "fusion")},
    **{f"{opcode}-start": opcode for opcode in ("async", "call", "fusion")},
}


def _run_by(instruction: Instruction) -> tuple[str, ...]:
    """Names of the computations an instruction runs; of a while the body alone."""
    if instruction.opcode == "while":
        body = instruction.attributes.get("body", "").lstrip("%")
        return (body,) if body else ()
    if instruction.opcode == "conditional":
        return instruction.called
    return instruction.called[:1]
