"""List scheduling of one body: who runs when, if dependencies alone decide.

Streams: 0 is compute, the others are communication, one per network tier. A stream runs one
thing at a time (XLA's latency-hiding scheduler allows one collective in flight per class). A
step starts when what it needs is done and its stream is free; of several that wait for a
stream the first in program order goes, iterations in order. A collective that passes several
tiers runs its stages one after the other, each on its tier's stream (or on several, where the
algorithm uses them side by side). A loop or a branch is a block: it takes all streams its body
uses from its start to its end.

So at any time before the end something runs: every start is the end of something else. That is
why exposed communication equals latency less compute, which the tests check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from xla_cost.price.tasks import TaskBody

COMPUTE = 0

#: what runs side by side: (stream, seconds) each, on different streams
Stage = tuple[tuple[int, float], ...]
#: what a step does: stages, each after the one before
Stages = tuple[Stage, ...]


class Work(NamedTuple):
    """The stages of a step; a block has one and takes all its streams at the same moment."""

    stages: Stages
    is_block: bool = False


#: (start_s, end_s, stream, position in the unrolled graph, stage); of a block one per stream
Run = tuple[float, float, int, int, int]


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What ran when; `iteration_ends_s[i]` is when the last step of copy i was done."""

    runs: tuple[Run, ...]
    iteration_ends_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Unrolled:
    """`copies` iterations of a body as one graph; position = copy * steps + step."""

    successors: tuple[tuple[int, ...], ...]
    waits: tuple[int, ...]
    gates: int  # positions from here on are ends of iterations, which take no time


def schedule(body: TaskBody, work: Sequence[Work], copies: int = 1) -> Scheduled:
    """Runs `copies` iterations of `body`, whose step i does `work[i]`, from time zero.

    Iterations overlap where `carried` values allow it, at most two at a time.
    """
    graph = _unrolled(body, copies)
    count = len(work)
    every = [item.stages for item in work] * copies
    every += [()] * copies  # gates take no time
    streams = 1 + max((s for item in work for stage in item.stages for s, _ in stage), default=0)
    state = _State(
        every, list(graph.waits), graph.successors, [[] for _ in range(streams)], [True] * streams
    )
    runs, ends = state.runs, [0.0] * copies
    blocks = frozenset(
        copy * count + index
        for index, item in enumerate(work)
        if item.is_block
        for copy in range(copies)
    )
    state.release([position for position, left in enumerate(state.waits) if not left])
    running = state.running
    now = 0.0
    while True:
        if blocks:
            state.start_blocks(now, blocks)
        else:
            state.start(now)
        if not running:
            return Scheduled(tuple(runs), tuple(ends))
        now = running[0][0]
        done = []
        while running and running[0][0] == now:
            _, position, stream = heappop(running)
            state.is_free[stream] = True
            if not state.progress or state.part_is_last(position):
                ends[position // count] = now
                done.append(position)
        state.finish(done)


@dataclass(slots=True)
class _State:
    """The queues of the streams and what has run. Positions as in `_Unrolled`."""

    stages: list[Stages]
    waits: list[int]
    successors: tuple[tuple[int, ...], ...]
    queues: list[list[int]]
    is_free: list[bool]
    runs: list[Run] = field(default_factory=list)
    running: list[tuple[float, int, int]] = field(default_factory=list)
    #: of steps with more than one part: the stage they are in, parts of it still to be done
    progress: dict[int, list[int]] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)  # blocks

    def finish(self, done: list[int]) -> None:
        """Takes finished steps off what waits for them."""
        waits, successors = self.waits, self.successors
        while done:
            free = []
            for position in done:
                for successor in successors[position]:
                    left = waits[successor] - 1
                    waits[successor] = left
                    if not left:
                        free.append(successor)
            done = self._queue(free)

    def release(self, free: list[int]) -> None:
        """Queues steps that wait for nothing; those that take no time are done at once."""
        self.finish(self._queue(free))

    def _queue(self, free: list[int]) -> list[int]:
        """Queues steps; returns those that take no time."""
        instant = []
        for position in free:
            stages = self.stages[position]
            if not stages:
                instant.append(position)
                continue
            if len(stages) > 1 or len(stages[0]) > 1:
                self.progress[position] = [0, len(stages[0])]
            for stream, _ in stages[0]:
                heappush(self.queues[stream], position)
        return instant

    def part_is_last(self, position: int) -> bool:
        """Notes that a part is done; queues the next stage, or says that the step is done."""
        if position not in self.progress:
            return True
        progress = self.progress[position]
        progress[1] -= 1
        if progress[1]:
            return False
        progress[0] += 1
        if progress[0] == len(self.stages[position]):
            return True
        stage = self.stages[position][progress[0]]
        progress[1] = len(stage)
        for stream, _ in stage:
            heappush(self.queues[stream], position)
        return False

    def start(self, now: float) -> None:
        """Starts the first in line on every free stream; for bodies without blocks."""
        is_free = self.is_free
        for stream, queue in enumerate(self.queues):
            if queue and is_free[stream]:
                is_free[stream] = False
                self._start_part(now, heappop(queue), stream)

    def _start_part(self, now: float, position: int, stream: int) -> None:
        at = self.progress[position][0] if position in self.progress else 0
        for own, seconds in self.stages[position][at]:
            if own == stream:
                self.runs.append((now, now + seconds, stream, position, at))
                heappush(self.running, (now + seconds, position, stream))

    def start_blocks(self, now: float, blocks: frozenset[int]) -> None:
        """The same where some steps need all their streams at once: earliest in program first."""
        while True:
            best, where = -1, 0
            for stream, queue in enumerate(self.queues):
                while queue and queue[0] in self.started:
                    heappop(queue)  # a block that started from another stream's queue
                if not self.is_free[stream] or not queue:
                    continue
                position = queue[0]
                if position in blocks and not self._all_free(position):
                    continue
                if best < 0 or position < best:
                    best, where = position, stream
            if best < 0:
                return
            heappop(self.queues[where])
            taken = [where]
            if best in blocks:
                self.started.add(best)
                taken = [stream for stream, _ in self.stages[best][0]]
            for stream in taken:
                self.is_free[stream] = False
                self._start_part(now, best, stream)

    def _all_free(self, position: int) -> bool:
        return all(self.is_free[stream] for stream, _ in self.stages[position][0])


def _unrolled(body: TaskBody, copies: int) -> _Unrolled:
    found = body.cache.get(copies)
    if not isinstance(found, _Unrolled):
        found = _unroll(body, copies)
        body.cache[copies] = found
    return found


def _unroll(body: TaskBody, copies: int) -> _Unrolled:
    """Gates: iteration i+2 (i+1 behind a barrier) starts when all of iteration i is done.

    Only steps that wait for nothing inside their iteration need the gate, and only steps that
    nothing inside it waits for hold it up.
    """
    steps = body.steps
    count = len(steps)
    gates = count * copies
    successors: list[list[int]] = [[] for _ in range(gates + copies)]
    waits = [0] * (gates + copies)
    last = set(range(count)) - {dep for step in steps for dep in step.deps}

    def after(later: int, earlier: int) -> None:
        successors[earlier].append(later)
        waits[later] += 1

    depth = 1 if body.barrier else 2
    for copy in range(copies):
        base = copy * count
        for index, step in enumerate(steps):
            for dep in step.deps:
                after(base + index, base + dep)
            if copy:
                for dep in step.carried:
                    after(base + index, base - count + dep)
            if copy >= depth and not step.deps:
                after(base + index, gates + copy - depth)
            if index in last:
                after(gates + copy, base + index)
    return _Unrolled(tuple(map(tuple, successors)), tuple(waits), gates)
