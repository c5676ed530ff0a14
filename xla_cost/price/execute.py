"""From seconds per task to seconds of the whole program: bodies, loops, branches.

Bodies are evaluated inner ones first, without recursion. A loop of many trips is not unrolled.
First one iteration is scheduled alone. Where the steps that may overlap between iterations take
more than a thousandth of it, a few iterations are scheduled together, until each (or every two, as
two may be in flight) adds the same time and the same compute; that is what each further one adds.
A compiler is not forced to overlap, so the faster of the two ways counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from xla_cost.price.exposure import exposed_s
from xla_cost.price.schedule import Run, Scheduled, Stages, Work, schedule
from xla_cost.price.tasks import TaskBody, TaskGraph

#: a body run this many times in a row
Key = tuple[int, int]

#: (period, iterations scheduled) to look for a rhythm, the cheapest first
_UNROLLED = ((1, 3), (1, 5), (2, 8))
_SAME = 1e-9
#: share of an iteration in loose steps from which on overlap is looked for
_WORTHWHILE = 1e-3


@dataclass(frozen=True, slots=True)
class BodyRun:
    """All trips of one body, from its start at zero.

    `scheduled` is the first iterations; `window` of it repeats `repeats` times more (or, when
    None, all of it does). `iteration_s` is what one more trip adds. `chosen` is the body that a
    branch or loop step runs.
    """

    seconds: float
    iteration_s: float
    scheduled: Scheduled
    work: tuple[Work, ...]
    chosen: dict[int, int]
    window: tuple[float, float] | None = None
    repeats: float = 0.0

    @property
    def streams(self) -> tuple[int, ...]:
        """Streams it uses."""
        return tuple(sorted({s for item in self.work for stage in item.stages for s, _ in stage}))

    def exposed_s(self) -> list[float]:
        """Exposed seconds per step over all trips; a block's own are zero, its inside has them."""
        count = len(self.work)
        found = [0.0] * count

        def covers(run: Run) -> bool:
            return self.work[run[3] % count].is_block

        def add(window: tuple[float, float] | None, times: float) -> None:
            for position, seconds in exposed_s(self.scheduled.runs, covers, window).items():
                found[position % count] += seconds * times

        add(None, 1.0)
        if self.repeats:
            add(self.window, self.repeats)
        return found


@dataclass(frozen=True)
class Execution:
    """The program scheduled: per task its executions, and every body."""

    graph: TaskGraph
    runs: dict[Key, BodyRun]
    entry: Key

    @property
    def latency_s(self) -> float:
        """The makespan."""
        return self.runs[self.entry].seconds

    @cached_property
    def executions(self) -> tuple[float, ...]:
        """How often each task runs."""
        found = [0.0] * len(self.graph.tasks)
        for (number, trips), outer in self._times.items():
            for step in self.graph.bodies[number].steps:
                if step.task >= 0:
                    found[step.task] += outer * trips
        return tuple(found)

    @cached_property
    def exposed(self) -> tuple[float, ...]:
        """Exposed seconds of each task, all executions."""
        found = [0.0] * len(self.graph.tasks)
        for key, outer in self._times.items():
            if outer:
                exposed = self.runs[key].exposed_s()
                for step, seconds in zip(self.graph.bodies[key[0]].steps, exposed, strict=True):
                    if step.task >= 0:
                        found[step.task] += outer * seconds
        return tuple(found)

    @cached_property
    def _times(self) -> dict[Key, float]:
        """How often each body is started with its trips, from the entry inwards."""
        times = {self.entry: 1.0}
        for number in range(len(self.graph.bodies) - 1, -1, -1):
            for trips in self.graph.trips_of[number]:
                outer = times.get((number, trips), 0.0)
                for index, inner in self.runs[number, trips].chosen.items():
                    key = (inner, self.graph.bodies[number].steps[index].trips)
                    times[key] = times.get(key, 0.0) + outer * trips
        return times


def execute(graph: TaskGraph, stages: Sequence[Stages], overlap: bool) -> Execution:
    """Schedules `graph`, task i doing `stages[i]`; `overlap` lets iterations overlap."""
    runs: dict[Key, BodyRun] = {}
    for number, body in enumerate(graph.bodies):
        for trips in graph.trips_of[number]:
            runs[number, trips] = _run(body, trips, stages, runs, overlap)
    return Execution(graph, runs, (len(graph.bodies) - 1, 1))


def _run(
    body: TaskBody,
    trips: int,
    stages: Sequence[Stages],
    runs: dict[Key, BodyRun],
    overlap: bool,
) -> BodyRun:
    work: list[Work] = []
    chosen: dict[int, int] = {}
    for index, step in enumerate(body.steps):
        if step.task >= 0:
            work.append(Work(stages[step.task]))
        else:
            inner = max(step.bodies, key=lambda number: runs[number, step.trips].seconds)
            chosen[index] = inner
            work.append(_block(runs[inner, step.trips]))
    return _trips(body, trips, tuple(work), chosen, overlap)


def _block(run: BodyRun) -> Work:
    if run.seconds <= 0.0:
        return Work(())
    return Work((tuple((stream, run.seconds) for stream in run.streams),), is_block=True)


def _trips(
    body: TaskBody, trips: int, work: tuple[Work, ...], chosen: dict[int, int], overlap: bool
) -> BodyRun:
    alone = schedule(body, work)
    end_s = alone.iteration_ends_s[0]
    apart = BodyRun(end_s * trips, end_s, alone, work, chosen, repeats=trips - 1.0)
    if not overlap or trips == 1 or body.barrier:
        return apart
    loose_s = sum(s for i in body.loose for stage in work[i].stages for _, s in stage)
    if loose_s <= end_s * _WORTHWHILE:
        return apart
    together = _overlapped(body, trips, work, chosen)
    return together if together and together.seconds < apart.seconds else apart


def _overlapped(
    body: TaskBody, trips: int, work: tuple[Work, ...], chosen: dict[int, int]
) -> BodyRun | None:
    for period, least in _UNROLLED:
        copies = min(trips, least + (trips - least) % period)
        scheduled = schedule(body, work, copies)
        end_s = max(scheduled.iteration_ends_s)
        if copies == trips:
            return BodyRun(end_s, end_s / trips, scheduled, work, chosen)
        window = _rhythm(scheduled, period, len(work))
        if window is not None:
            repeats = (trips - copies) / period
            added_s = window[1] - window[0]
            return BodyRun(
                end_s + repeats * added_s, added_s / period, scheduled, work, chosen,
                window, repeats,
            )  # fmt: skip
    return None


def _rhythm(scheduled: Scheduled, period: int, count: int) -> tuple[float, float] | None:
    """A window of `period` iterations of `count` steps that goes on for ever; None if none does.

    It does where the ends of two iterations leave the same to be done: what runs next is decided
    by that alone. Looks before the last iteration, which has none after it to compete with.
    """
    ends = scheduled.iteration_ends_s
    at = len(ends) - 2
    start_s, end_s = ends[at - period], ends[at]
    if end_s <= start_s:
        return None
    first, second = _left(scheduled, at - period, count), _left(scheduled, at, count)
    tolerance = _SAME * end_s
    same = len(first) == len(second) and all(
        one[:-1] == other[:-1] and abs(one[-1] - other[-1]) <= tolerance
        for one, other in zip(first, second, strict=True)
    )
    return (start_s, end_s) if same else None


def _left(scheduled: Scheduled, iteration: int, count: int) -> list[tuple[int, int, int, float]]:
    """What the end of `iteration` leaves of the iterations beside it.

    Of each part of a step its place from there, stage, stream and the seconds it has still to
    run, -1 if it has not begun. Iterations before are done, those after have not begun.
    """
    at_s = scheduled.iteration_ends_s[iteration]
    found = []
    for start, end, stream, position, stage in scheduled.runs:
        if end > at_s and abs(position // count - iteration) <= 1:
            left_s = end - at_s if start < at_s else -1.0
            found.append((position - iteration * count, stage, stream, left_s))
    return sorted(found)
