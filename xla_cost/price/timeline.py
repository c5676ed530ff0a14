"""What runs when, for plots and traces. Real time from the start of the program.

Of a loop only the iterations that were scheduled are drawn (one, or up to four where they
overlap); `LoopSpan` says how long all of them take and how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from xla_cost.machine import Machine
from xla_cost.price.duration import Bound, TaskTime
from xla_cost.price.execute import Execution, Key
from xla_cost.price.tasks import TaskGraph


@dataclass(frozen=True, slots=True)
class Event:
    """A kernel, or one phase of a collective, on its stream.

    `stream` is "compute" or the name of a network tier. `times` is how often the program runs
    it in all, of which this is one.
    """

    start_s: float
    end_s: float
    stream: str
    name: str
    scope: str
    kind: str
    bound: Bound
    times: float
    iteration: int
    task: int


@dataclass(frozen=True, slots=True)
class LoopSpan:
    """All trips of a loop; `drawn` iterations of it have events."""

    start_s: float
    end_s: float
    name: str
    scope: str
    trips: int
    drawn: int
    iteration_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events and loops, by start."""

    events: tuple[Event, ...]
    loops: tuple[LoopSpan, ...]
    streams: tuple[str, ...]
    latency_s: float


def timeline(
    graph: TaskGraph, times: tuple[TaskTime, ...], execution: Execution, machine: Machine
) -> Timeline:
    """The timeline of an executed graph."""
    streams = ("compute", *(tier.name for tier in machine.tiers))
    events: list[Event] = []
    loops: list[LoopSpan] = []
    pending: list[tuple[Key, float]] = [(execution.entry, 0.0)]
    while pending:
        key, origin_s = pending.pop()
        run = execution.runs[key]
        steps = graph.bodies[key[0]].steps
        for start_s, end_s, stream, position, _ in run.scheduled.runs:
            iteration, index = divmod(position, len(steps))
            step = steps[index]
            if step.task >= 0:
                op = graph.tasks[step.task].op
                events.append(
                    Event(
                        origin_s + start_s, origin_s + end_s, streams[stream], step.name,
                        step.scope, op.kind, times[step.task].bound,
                        execution.executions[step.task], iteration, step.task,
                    )
                )  # fmt: skip
            elif stream == run.work[index].stages[0][0][0]:  # a block runs on several streams
                inner = (run.chosen[index], step.trips)
                drawn = len(execution.runs[inner].scheduled.iteration_ends_s)
                loops.append(
                    LoopSpan(
                        origin_s + start_s, origin_s + end_s, step.name, step.scope, step.trips,
                        drawn, execution.runs[inner].iteration_s,
                    )
                )  # fmt: skip
                pending.append((inner, origin_s + start_s))
    events.sort(key=lambda event: (event.start_s, event.end_s, event.stream, event.name))
    loops.sort(key=lambda loop: (loop.start_s, -loop.end_s))
    return Timeline(tuple(events), tuple(loops), streams, execution.latency_s)
