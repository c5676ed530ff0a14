"""From seconds per task to seconds of the whole program: bodies, loops, branches.

Bodies are evaluated inner ones first, without recursion. A loop of many trips is not unrolled:
where its iterations may overlap, a few are scheduled until each (or every two, as two may be in
flight) adds the same time and the same compute; that is what each further one adds. Where no
such rhythm shows, iterations are costed one after the other, which is certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xla_cost.price.exposure import compute_busy_s, exposed_s
from xla_cost.price.schedule import COMPUTE, Run, Scheduled, Stages, Work, schedule
from xla_cost.price.tasks import TaskBody, TaskGraph

#: a body run this many times in a row
Key = tuple[int, int]

#: iterations scheduled to look for a rhythm of one, or of two
_UNROLLED = {1: 5, 2: 8}
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class BodyRun:
    """All trips of one body, from its start at zero.

    `exposed[step]` is over all trips; a block's own is zero, its inside has it. `iteration_s`
    is what one more trip adds. `chosen` is the body that a branch step took.
    """

    seconds: float
    iteration_s: float
    streams: tuple[int, ...]
    scheduled: Scheduled
    work: tuple[Work, ...]
    exposed: tuple[float, ...]
    chosen: dict[int, int]


@dataclass(frozen=True, slots=True)
class Execution:
    """The program scheduled: per task its executions and exposed seconds, and every body."""

    latency_s: float
    executions: tuple[float, ...]
    exposed: tuple[float, ...]
    runs: dict[Key, BodyRun]
    entry: Key


def execute(graph: TaskGraph, stages: Sequence[Stages], overlap: bool) -> Execution:
    """Schedules `graph`, task i doing `stages[i]`; `overlap` lets iterations overlap."""
    runs: dict[Key, BodyRun] = {}
    for number, body in enumerate(graph.bodies):
        for trips in graph.trips_of[number]:
            runs[number, trips] = _run(body, trips, stages, runs, overlap)
    entry = (len(graph.bodies) - 1, 1)
    executions, exposed = _totals(graph, runs, entry)
    return Execution(runs[entry].seconds, executions, exposed, runs, entry)


def _run(
    body: TaskBody,
    trips: int,
    stages: Sequence[Stages],
    runs: dict[Key, BodyRun],
    overlap: bool,
) -> BodyRun:
    work: list[Work] = []
    chosen: dict[int, int] = {}
    streams: set[int] = set()
    for index, step in enumerate(body.steps):
        if step.task >= 0:
            item = Work(stages[step.task])
        else:
            inner = max(step.bodies, key=lambda number: runs[number, step.trips].seconds)
            chosen[index] = inner
            item = _block(runs[inner, step.trips])
        work.append(item)
        streams.update(stream for stage in item.stages for stream, _ in stage)
    seconds, iteration_s, scheduled, exposed = _trips(body, trips, work, overlap)
    return BodyRun(
        seconds, iteration_s, tuple(sorted(streams)), scheduled, tuple(work), exposed, chosen
    )


def _block(run: BodyRun) -> Work:
    if run.seconds <= 0.0:
        return Work(())
    return Work((tuple((stream, run.seconds) for stream in run.streams),), is_block=True)


def _trips(
    body: TaskBody, trips: int, work: list[Work], overlap: bool
) -> tuple[float, float, Scheduled, tuple[float, ...]]:
    """Seconds of all trips, of one more, what was scheduled, exposed seconds per step."""
    count = len(work)

    def covers(run: Run) -> bool:
        return work[run[3] % count].is_block

    def by_step(found: dict[int, float], times: float, into: list[float]) -> None:
        for position, seconds in found.items():
            into[position % count] += seconds * times

    exposed = [0.0] * count
    if overlap and trips > 1 and not body.barrier:
        busy_s = sum(s for w in work for stage in w.stages for own, s in stage if own == COMPUTE)
        for period, least in _UNROLLED.items():
            copies = min(trips, least + (trips - least) % period)
            scheduled = schedule(body, work, copies)
            end_s = max(scheduled.iteration_ends_s)
            if copies == trips:
                by_step(exposed_s(scheduled.runs, covers), 1.0, exposed)
                return end_s, end_s / trips, scheduled, tuple(exposed)
            window = _rhythm(scheduled, period, busy_s * period)
            if window is not None:
                more = (trips - copies) / period
                by_step(exposed_s(scheduled.runs, covers), 1.0, exposed)
                by_step(exposed_s(scheduled.runs, covers, window), more, exposed)
                added_s = window[1] - window[0]
                return end_s + more * added_s, added_s / period, scheduled, tuple(exposed)
    scheduled = schedule(body, work)
    by_step(exposed_s(scheduled.runs, covers), trips, exposed)
    end_s = scheduled.iteration_ends_s[0]
    return end_s * trips, end_s, scheduled, tuple(exposed)


def _rhythm(scheduled: Scheduled, period: int, busy_s: float) -> tuple[float, float] | None:
    """A window of `period` iterations that the one before equals; None if there is none.

    Looks before the last iteration, which has none after it to compete with.
    """
    ends = scheduled.iteration_ends_s[:-1]
    window = (ends[-1 - period], ends[-1])
    before = (ends[-1 - 2 * period], ends[-1 - period])
    tolerance = _SAME * ends[-1]
    same = abs((window[1] - window[0]) - (before[1] - before[0])) <= tolerance
    whole = abs(compute_busy_s(scheduled.runs, window) - busy_s) <= tolerance
    return window if same and whole else None


def _totals(
    graph: TaskGraph, runs: dict[Key, BodyRun], entry: Key
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Executions and exposed seconds of every task, from the entry inwards."""
    executions = [0.0] * len(graph.tasks)
    exposed = [0.0] * len(graph.tasks)
    times: dict[Key, float] = {entry: 1.0}
    for number in range(len(graph.bodies) - 1, -1, -1):
        for trips in graph.trips_of[number]:
            outer = times.get((number, trips), 0.0)
            if not outer:
                continue
            run = runs[number, trips]
            for index, step in enumerate(graph.bodies[number].steps):
                if step.task >= 0:
                    executions[step.task] += outer * trips
                    exposed[step.task] += outer * run.exposed[index]
                else:
                    key = (run.chosen[index], step.trips)
                    times[key] = times.get(key, 0.0) + outer * trips
    return tuple(executions), tuple(exposed)
