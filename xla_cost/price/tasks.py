"""A Program reduced to what takes time under a policy: the graph that pricing schedules.

Nothing here knows a machine. The graph of a program is made once per policy structure and kept
(`task_graph`), so re-pricing on another machine only computes durations and runs the schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from xla_cost.policy import Policy
from xla_cost.price.fusion import fuse, merge_equal
from xla_cost.price.join import is_local, join
from xla_cost.price.loose import latest, loose_steps
from xla_cost.price.products import merge_products
from xla_cost.program import Body, Branch, Collective, Loop, Matmul, Node, Op, Program

#: slices that are addresses when they read an argument or a loop-invariant array
_VIEWS = frozenset({"dynamic-slice", "slice"})
#: loop counters, indices and their comparisons: a few numbers in and out
SCALAR_BYTES = 64


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel launch or one collective. Bytes are per execution and device."""

    op: Op  # the op itself; of fused ones the root
    members: tuple[Op, ...]
    bytes_read: int
    bytes_written: int
    vector_flops: int
    #: number of the all-reduce whose kernel may go on with this one, -1: none
    ends: int = -1

    @property
    def name(self) -> str:
        """Instruction name, and how many were fused into it."""
        more = len(self.members) - 1
        return f"{self.op.name}(+{more})" if more > 0 else self.op.name

    @property
    def bytes(self) -> int:
        """Bytes it reads and writes."""
        return self.bytes_read + self.bytes_written

    @property
    def collective(self) -> Collective | None:
        """The collective, or None for a kernel."""
        return self.op.collective

    @property
    def matmuls(self) -> tuple[Matmul, ...]:
        """Its matrix products."""
        return self.op.matmuls


@dataclass(frozen=True, slots=True)
class Step:
    """A node of a body's graph: a task, a loop over a body, or a choice of bodies.

    `deps` and `carried` are positions in the body's `steps`: what must be done before in this
    iteration, and what in the one before.
    """

    deps: tuple[int, ...]
    carried: tuple[int, ...] = ()
    task: int = -1
    bodies: tuple[int, ...] = ()
    trips: int = 1
    name: str = ""
    scope: str = ""


@dataclass(frozen=True)
class TaskBody:
    """Steps in program order; `barrier` when an iteration must wait for all of the last.

    `loose` are the steps that iterations may overlap in: every other step of an iteration
    waits for every other step of the one before.
    """

    steps: tuple[Step, ...]
    barrier: bool
    loose: tuple[int, ...] = ()
    #: schedules' static parts, kept here so that they are made once; see `schedule`
    cache: dict[int, object] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class TaskGraph:
    """All tasks, and the bodies they sit in: inner ones first, the entry last."""

    tasks: tuple[Task, ...]
    #: per task, the first one that takes the same time on any machine
    twins: tuple[int, ...]
    bodies: tuple[TaskBody, ...]
    #: per body, the trip counts it is run with
    trips_of: tuple[tuple[int, ...], ...]
    unpriced: tuple[tuple[Op, float], ...]
    unknown_loops: tuple[Loop, ...]


#: graphs kept, with their programs: all meshes of 288 devices, so that a second machine finds them
_KEPT = 128
_graphs: dict[tuple[int, object], tuple[Program, TaskGraph]] = {}


def task_graph(program: Program, policy: Policy) -> TaskGraph:
    """The graph of `program` under the structural fields of `policy`.

    The last few are kept by the program's identity (hashing a ledger costs more than this).
    """
    structure = (
        policy.priced_kinds,
        policy.look_through_converts,
        policy.fuse_elementwise,
        policy.merge_products,
        policy.slices_are_views,
        policy.scalars_are_free,
    )
    key = (id(program), structure)
    found = _graphs.get(key)
    if found is not None:
        return found[1]
    graph = _build(program, policy)
    if len(_graphs) >= _KEPT:
        _graphs.pop(next(iter(_graphs)), None)
    _graphs[key] = (program, graph)  # the reference keeps the id from being given away
    return graph


def _build(program: Program, policy: Policy) -> TaskGraph:
    bodies = list(_inner_first(program.entry))
    number = {id(body): index for index, body in enumerate(bodies)}
    tasks: list[Task] = []
    made = tuple(_task_body(body, policy, tasks, number) for body in bodies)
    unpriced = tuple((op, times) for op, times in program.walk() if op.kind == "unpriced")
    loops = tuple(
        node
        for body in bodies
        for node in body.nodes
        if isinstance(node, Loop) and node.trips is None
    )
    trips_of: list[set[int]] = [set() for _ in made]
    trips_of[-1].add(1)
    for made_body in made:
        for step in made_body.steps:
            for inner in step.bodies:
                trips_of[inner].add(step.trips)
    return TaskGraph(
        tuple(tasks), _twins(tasks), made, tuple(map(tuple, trips_of)), unpriced, loops
    )


def _twins(tasks: list[Task]) -> tuple[int, ...]:
    first: dict[object, int] = {}
    found: list[int] = []
    for index, task in enumerate(tasks):
        op = task.op
        key: object = (op.collective, op.scope) if op.collective is not None else (
            op.kind, op.matmuls, op.region, op.work, task.bytes_read, task.bytes_written,
            op.routed_tokens, op.routed_experts, op.top_k, task.ends >= 0 and found[task.ends],
        )  # fmt: skip
        found.append(first.setdefault(key, index))
    return tuple(found)


def _inner_first(entry: Body) -> Iterator[Body]:
    """Every body once, each after the bodies inside it."""
    found: list[Body] = []
    seen: set[int] = set()
    pending = [entry]
    while pending:
        body = pending.pop()
        if id(body) in seen:
            continue
        seen.add(id(body))
        found.append(body)
        for node in body.nodes:
            if isinstance(node, Loop):
                pending.append(node.body)
            elif isinstance(node, Branch):
                pending.extend(node.bodies)
    yield from reversed(found)


def _task_body(body: Body, policy: Policy, tasks: list[Task], number: dict[int, int]) -> TaskBody:
    nodes = tuple(merge_equal(body.nodes)) if policy.fuse_elementwise else body.nodes
    readers = frozenset(reader for _, reader in body.carried or ())
    takes_time = {index for index, node in enumerate(nodes) if not _is_free(node, nodes, policy)}
    if policy.merge_products:
        nodes = tuple(merge_products(nodes, takes_time))
        takes_time = {index for index in takes_time if _kind(nodes[index]) != "free"}
    candidates = {
        index
        for index in takes_time
        if policy.fuse_elementwise and _kind(nodes[index]) in ("vector", "move")
    }
    kernels, kernel_of = fuse(nodes, candidates)
    takes_time -= candidates - kernel_of.keys()  # repeated inside their consumers
    head = {index: kernels[at].root for index, at in kernel_of.items()}
    if candidates:
        sources = _sources(nodes, takes_time, head, readers)
        kernels, kernel_of = join(nodes, kernels, kernel_of, sources)
        head = {index: kernels[at].root for index, at in kernel_of.items()}
    sources = _sources(nodes, takes_time, head, readers)
    position: dict[int, int] = {}
    for index in sorted(takes_time):
        if head.get(index, index) == index:
            position[index] = len(position)
    by_root = {kernel.root: kernel for kernel in kernels}
    carried_by_reader = {
        reader: frozenset(i for i in sources[producer] if i >= 0) if producer != reader else ()
        for producer, reader in body.carried or ()
    }
    steps: list[Step] = []
    before: list[int] = []  # per step, a bit for each step that is done when it starts
    for index in position:
        kernel = by_root.get(index)
        inside = kernel.members if kernel else (index,)
        needs = frozenset[int]().union(*(_needs(nodes[m], sources) for m in inside))
        needs |= {-1 - m for m in inside if m in readers}
        own = set(inside)
        deps, known = latest({position[i] for i in needs if i >= 0 and i not in own}, before)
        before.append(known)
        carried = {i for r in needs if r < 0 for i in carried_by_reader[-1 - r]}
        moved = (kernel.bytes_read, kernel.bytes_written) if kernel else None
        task = _task(nodes, index, inside, moved, policy)
        if task is not None and kernel is not None and len(deps) == 1:
            task = replace(task, ends=_ended(task, steps[deps[0]], tasks))
        later = tuple(sorted(position[i] for i in carried))
        steps.append(_step(nodes[index], deps, later, task, tasks, number))
    return TaskBody(tuple(steps), body.carried is None, loose_steps(steps, before))


def _ended(task: Task, before: Step, tasks: Sequence[Task]) -> int:
    """The all-reduce of the step `before`, if nothing ends it yet and `task` can; -1: none."""
    if before.task < 0 or not all(is_local(op) for op in task.members):
        return -1
    collective = tasks[before.task].collective
    if collective is None or collective.kind != "all-reduce":
        return -1
    taken = any(other.ends == before.task for other in tasks[before.task :])
    return -1 if taken else before.task


def _step(
    node: Node,
    deps: tuple[int, ...],
    carried: tuple[int, ...],
    task: Task | None,
    tasks: list[Task],
    number: dict[int, int],
) -> Step:
    if isinstance(node, Op):
        assert task is not None
        tasks.append(task)
        return Step(deps, carried, task=len(tasks) - 1, name=task.name, scope=node.scope)
    if isinstance(node, Loop):
        inner, trips = (number[id(node.body)],), 1 if node.trips is None else node.trips
        return Step(deps, carried, bodies=inner, trips=trips, name=node.name, scope=node.scope)
    bodies = tuple(number[id(body)] for body in node.bodies)
    return Step(deps, carried, bodies=bodies, name=node.name, scope=node.scope)


def _task(
    nodes: tuple[Node, ...],
    root: int,
    inside: tuple[int, ...],
    fused_bytes: tuple[int, int] | None,
    policy: Policy,
) -> Task | None:
    op = nodes[root]
    if not isinstance(op, Op):
        return None
    members = tuple(node for i in inside if isinstance(node := nodes[i], Op))
    looks_through = policy.look_through_converts and op.kind in ("matmul", "kernel")
    read = op.source_bytes_read if looks_through else op.bytes_read
    read, written = fused_bytes or (read, op.bytes_written)
    return Task(op, members, read, written, sum(member.vector_flops for member in members))


def _kind(node: Node) -> str:
    return node.kind if isinstance(node, Op) else ""


def _is_free(node: Node, nodes: tuple[Node, ...], policy: Policy) -> bool:
    if not isinstance(node, Op):
        return False
    if node.kind not in policy.priced_kinds:
        return True
    if node.collective is not None and node.collective.groups.size <= 1:
        return True
    if policy.slices_are_views and _is_view(node, nodes):
        return True
    return (
        policy.scalars_are_free
        and node.kind in ("vector", "move")
        and node.bytes_read + node.bytes_written <= SCALAR_BYTES
    )


def _is_view(op: Op, nodes: tuple[Node, ...]) -> bool:
    """A slice of something no op of this body makes: an argument, a stacked weight.

    Only the sliced operand, which is the first dependency, must be given; the offsets of a
    dynamic-slice may be computed.
    """
    if op.opcode not in _VIEWS or not op.deps:
        return False
    index = op.deps[0]
    while True:
        node = nodes[index]
        if _kind(node) != "free":
            return False
        assert isinstance(node, Op)
        if not node.deps:
            return node.opcode in ("parameter", "get-tuple-element", "constant")
        index = node.deps[0]


_Sources = frozenset[int]


def _sources(
    nodes: tuple[Node, ...],
    takes_time: set[int],
    head: dict[int, int],
    readers: frozenset[int],
) -> list[_Sources]:
    """Per node, the timed nodes (indices) its value waits for, itself included if timed.

    A member of a fused kernel stands for that kernel's root; a carried value, which is ready
    when an iteration starts or when the last one made it, is -1 - reader.
    """
    found: list[_Sources] = []
    nothing: _Sources = frozenset()
    for index, node in enumerate(nodes):
        if index in takes_time:
            found.append(frozenset((head.get(index, index),)))
        elif index in readers:
            found.append(frozenset((-1 - index,)).union(*(found[dep] for dep in node.deps)))
        elif len(node.deps) == 1:
            found.append(found[node.deps[0]])
        else:
            found.append(nothing.union(*(found[dep] for dep in node.deps)))
    return found


def _needs(node: Node, sources: list[_Sources]) -> _Sources:
    return frozenset[int]().union(*(sources[dep] for dep in node.deps))
