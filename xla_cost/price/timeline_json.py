"""What a report draws: every task once, the timeline, and the machine's roofs, as columns.

Columns (one list per field) keep the file small: a name is written once per task, not once per
event. A field named `_s`, `_bytes` or `_flops` is of one execution on one device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xla_cost.machine import Machine
    from xla_cost.price.estimate import Estimate
    from xla_cost.price.timeline import Event

#: a program of very many ops keeps its longest events and the tasks they belong to
MOST_EVENTS = 4000


def timeline_json(estimate: Estimate) -> dict[str, Any]:
    """`tasks`, `timeline` and `roofs` of one entry of `results`.

    tasks:    columns, one entry per task that runs
    timeline: `streams`; `events` as columns, where `stream` and `task` are positions in
              `streams` and `tasks`; `loops`, of which only `drawn` iterations have events
    roofs:    peak FLOP/s by format, bytes/s of the memory and of each tier
    """
    timeline = estimate.timeline
    events = timeline.events
    if len(events) > MOST_EVENTS:
        kept = sorted(events, key=lambda event: event.start_s - event.end_s)[:MOST_EVENTS]
        events = tuple(sorted(kept, key=lambda event: event.start_s))
    running = [i for i, count in enumerate(estimate.execution.executions) if count]
    if len(running) > MOST_EVENTS:
        running = sorted({event.task for event in events})
    position = {task: index for index, task in enumerate(running)}
    stream = {name: index for index, name in enumerate(timeline.streams)}
    return {
        "tasks": _columns(_task(estimate, index) for index in running),
        "timeline": {
            "streams": list(timeline.streams),
            "latency_s": timeline.latency_s,
            "events": _columns(_event(event, stream, position) for event in events),
            "events_left_out": len(timeline.events) - len(events),
            "loops": [
                {"name": loop.name, "scope": loop.scope, "start_s": loop.start_s,
                 "end_s": loop.end_s, "trips": loop.trips, "drawn": loop.drawn,
                 "iteration_s": loop.iteration_s}
                for loop in timeline.loops
            ],
        },
        "roofs": roofs_json(estimate.machine),
    }  # fmt: skip


def roofs_json(machine: Machine) -> dict[str, Any]:
    """What no op can exceed on a machine: FLOP/s by format and bytes/s per device."""
    return {
        "peak_flops_per_s": dict(machine.peak_flops),
        "memory_bytes_per_s": machine.memory_bytes_per_s,
        "tier_bytes_per_s": {tier.name: tier.bandwidth_bytes_per_s for tier in machine.tiers},
        "tier_size": {tier.name: tier.size for tier in machine.tiers},
    }


def _event(event: Event, stream: dict[str, int], position: dict[int, int]) -> dict[str, Any]:
    return {
        "start_s": event.start_s,
        "end_s": event.end_s,
        "stream": stream[event.stream],
        "task": position[event.task],
        "iteration": event.iteration,
    }


def _task(estimate: Estimate, index: int) -> dict[str, Any]:
    task, time = estimate.graph.tasks[index], estimate.times[index]
    op, moved = task.op, task.op.collective
    formats = [moved.format] if moved else [matmul.format for matmul in task.matmuls]
    return {
        "name": task.name,
        "kind": op.kind,
        "opcode": op.opcode,
        "scope": op.scope,
        "source": op.source,
        "format": formats[0] if formats else "",
        "executions": int(estimate.execution.executions[index]),
        "seconds": time.seconds,
        "bound": time.bound,
        "flops": op.flops * op.work,
        "vector_flops": task.vector_flops,
        "bytes": moved.payload_bytes if moved else task.bytes,
        "group_size": moved.groups.size if moved else 0,
        "groups": moved.groups.count if moved else 0,
        "algorithm": time.collective.algorithm if time.collective else "",
    }


def _columns(rows: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return found
