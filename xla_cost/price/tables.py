"""The same cost three ways: by op, by collective, by scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xla_cost.price.duration import Bound, TaskTime
from xla_cost.price.execute import Execution
from xla_cost.price.tasks import TaskGraph


@dataclass(frozen=True, slots=True)
class OpCost:
    """One task, all its executions.

    `critical_s` is what it adds to the latency: all seconds of a kernel, the exposed ones of a
    collective.
    """

    name: str
    kind: str
    opcode: str
    scope: str
    source: str
    executions: float
    seconds: float
    critical_s: float
    bound: Bound
    flops: float
    bytes: float  # read and written; of a collective its payload
    format: str


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """One collective, all its executions. `payload_bytes` is of one execution."""

    name: str
    kind: str
    group_size: int
    groups: int
    payload_bytes: int
    result_bytes: int
    format: str
    scope: str
    source: str
    executions: float
    seconds: float
    exposed_s: float
    algorithm: str
    phases: tuple[tuple[str, float, float, str], ...]  # tier, seconds, bytes, what; one execution
    rewritten_from: str


@dataclass(frozen=True, slots=True)
class ScopeCost:
    """All ops below a scope path. `depth` is 1 for `layer`, 2 for `layer/attention`."""

    scope: str
    depth: int
    compute_s: float
    comm_s: float
    exposed_comm_s: float
    flops: float

    @property
    def critical_s(self) -> float:
        """What it adds to the latency."""
        return self.compute_s + self.exposed_comm_s


def op_table(
    graph: TaskGraph, times: Sequence[TaskTime], execution: Execution
) -> tuple[OpCost, ...]:
    """Every task that runs, dearest first by what it adds to the latency."""
    rows = []
    for index, (task, time) in enumerate(zip(graph.tasks, times, strict=True)):
        count = execution.executions[index]
        if not count:
            continue
        op = task.op
        seconds = time.seconds * count
        moved = op.collective.payload_bytes if op.collective else task.bytes
        rows.append(
            OpCost(
                task.name, op.kind, op.opcode, op.scope, op.source, count, seconds,
                execution.exposed[index] if op.collective else seconds, time.bound,
                op.flops * op.work * count, moved * count,
                op.collective.format if op.collective else op.matmuls[0].format
                if op.matmuls else "",
            )
        )  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-row.critical_s, -row.seconds, row.name)))


def collective_table(
    graph: TaskGraph, times: Sequence[TaskTime], execution: Execution
) -> tuple[CollectiveCost, ...]:
    """Every collective that runs, dearest first."""
    rows = []
    for index, (task, time) in enumerate(zip(graph.tasks, times, strict=True)):
        found, priced, count = task.op.collective, time.collective, execution.executions[index]
        if found is None or priced is None or not count:
            continue
        phases = tuple((p.tier, p.seconds, p.bytes, p.what) for p in priced.phases)
        rows.append(
            CollectiveCost(
                task.name, found.kind, found.groups.size, found.groups.count,
                found.payload_bytes, found.result_bytes, found.format, task.op.scope,
                task.op.source, count, time.seconds * count, execution.exposed[index],
                priced.algorithm, phases, found.rewritten_from,
            )
        )  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))


def scope_tree(ops: Sequence[OpCost]) -> tuple[ScopeCost, ...]:
    """One row per scope path and per path above it, in path order; "" is the whole program."""
    rows: dict[str, ScopeCost] = {}
    for op in ops:
        segments = op.scope.split("/") if op.scope else ["(no scope)"]
        for depth in range(len(segments) + 1):
            path = "/".join(segments[:depth])
            row = rows.get(path) or ScopeCost(path, depth, 0.0, 0.0, 0.0, 0.0)
            rows[path] = _plus(row, op)
    return tuple(rows[path] for path in sorted(rows, key=lambda path: path.split("/")))


def by_part(ops: Sequence[OpCost], parts: Sequence[str]) -> tuple[ScopeCost, ...]:
    """A partition of the program: one row per part of the model, dearest first."""
    rows: dict[str, ScopeCost] = {}
    for op, part in zip(ops, parts, strict=True):
        row = rows.get(part) or ScopeCost(part, 1, 0.0, 0.0, 0.0, 0.0)
        rows[part] = _plus(row, op)
    return tuple(sorted(rows.values(), key=lambda row: (-row.critical_s, row.scope)))


def _plus(row: ScopeCost, op: OpCost) -> ScopeCost:
    if op.kind == "collective":
        return replace(
            row, comm_s=row.comm_s + op.seconds, exposed_comm_s=row.exposed_comm_s + op.critical_s
        )
    return replace(row, compute_s=row.compute_s + op.seconds, flops=row.flops + op.flops)
