"""A timeline in the Trace Event format, which ui.perfetto.dev and chrome://tracing open.

One lane per stream and one for loops; times in microseconds, as the format asks. Format:
"Trace Event Format" (Google, 2016), complete events ("ph": "X") and thread names ("M").
"""

from __future__ import annotations

from os import PathLike
from typing import Any

from xla_cost.jsonio import write_json
from xla_cost.price.estimate import Estimate


def write_trace(path: str | PathLike[str], estimate: Estimate) -> None:
    """Writes the timeline of an estimate. Raises XlaCostError when that fails."""
    write_json(path, trace_json(estimate))


def trace_json(estimate: Estimate) -> dict[str, Any]:
    """The trace: kernels and collectives on their streams, loops on a lane of their own.

    Of a loop only the iterations drawn have events, see `xla_cost.price.timeline`; the lane
    "loops" shows how long all of them take.
    """
    timeline = estimate.timeline
    lanes = {name: number for number, name in enumerate(("loops", *timeline.streams))}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": name}}
        for name, number in lanes.items()
    ]
    events += [
        _complete(
            loop.name, loop.start_s, loop.end_s, lanes["loops"],
            {"scope": loop.scope, "trips": loop.trips, "iterations drawn": loop.drawn,
             "iteration_s": loop.iteration_s},
        )
        for loop in timeline.loops
    ]  # fmt: skip
    for event in timeline.events:
        task = estimate.graph.tasks[event.task]
        details: dict[str, Any] = {
            "scope": event.scope, "kind": event.kind, "bound by": event.bound,
            "executions": event.times, "iteration": event.iteration, "source": task.op.source,
        }  # fmt: skip
        if task.collective is not None:
            details["payload_bytes"] = task.collective.payload_bytes
            details["group size"] = task.collective.groups.size
        else:
            details |= {"bytes": task.bytes, "flops": task.op.flops * task.op.work}
        lane = lanes[event.stream]
        events.append(_complete(event.name, event.start_s, event.end_s, lane, details))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "program": estimate.program.name,
            "machine": estimate.machine.name,
            "policy": estimate.policy.name,
            "latency_s": estimate.latency_s,
        },
    }


def _complete(
    name: str, start_s: float, end_s: float, lane: int, details: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "pid": 0, "tid": lane, "name": name, "ts": start_s * 1e6,
        "dur": (end_s - start_s) * 1e6, "args": details,
    }  # fmt: skip
