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
from dataclasses import dataclass
from heapq import heappop, heappush

from xla_cost.price.tasks import TaskBody

COMPUTE = 0

#: what runs side by side: (stream, seconds) each, on different streams
Stage = tuple[tuple[int, float], ...]
#: what a step does: stages, each after the one before
Stages = tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Work:
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
    state = _State(graph, [item.stages for item in work] * copies, copies)
    blocks = {
        copy * len(work) + index
        for index, item in enumerate(work)
        if item.is_block
        for copy in range(copies)
    }
    free = [position for position, count in enumerate(state.waits) if not count]
    for position in free:
        state.ready(position)
    start = state.start_parts if not blocks else lambda: state.start_blocks(blocks)
    start()
    while state.running:
        state.advance()
        start()
    return Scheduled(tuple(state.runs), tuple(state.ends))


class _State:
    """The clock, the queues of the streams, and what has run. Positions as in `_Unrolled`."""

    def __init__(self, graph: _Unrolled, stages: list[Stages], copies: int) -> None:
        self.graph = graph
        self.stages: list[Stages] = stages + [()] * copies  # gates take no time
        self.copy_of = max(1, len(stages) // copies)
        self.waits = list(graph.waits)
        streams = 1 + max((s for item in stages for stage in item for s, _ in stage), default=0)
        self.queues: list[list[int]] = [[] for _ in range(streams)]
        self.is_free = [True] * streams
        self.at_stage = [0] * len(stages)
        self.left = [0] * len(stages)  # parts of the current stage still to be done
        self.running: list[tuple[float, int, int]] = []
        self.started: set[int] = set()  # blocks
        self.runs: list[Run] = []
        self.ends = [0.0] * copies
        self.now = 0.0

    def ready(self, position: int) -> None:
        """Queues a step that waits for nothing any more, or passes on what takes no time."""
        if self.stages[position]:
            self._queue(position)
        else:
            self._done(position)

    def _queue(self, position: int) -> None:
        stage = self.stages[position][self.at_stage[position]]
        self.left[position] = len(stage)
        for stream, _ in stage:
            heappush(self.queues[stream], position)

    def _done(self, position: int) -> None:
        pending = [position]
        waits, gates, successors = self.waits, self.graph.gates, self.graph.successors
        while pending:
            done = pending.pop()
            if done < gates:
                self.ends[done // self.copy_of] = self.now  # time only goes forward
            for successor in successors[done]:
                waits[successor] -= 1
                if not waits[successor]:
                    if self.stages[successor]:
                        self._queue(successor)
                    else:
                        pending.append(successor)

    def start_parts(self) -> None:
        """Starts the first in line on every free stream; for bodies without blocks."""
        now = self.now
        for stream, queue in enumerate(self.queues):
            if queue and self.is_free[stream]:
                position = heappop(queue)
                self.is_free[stream] = False
                at = self.at_stage[position]
                for own, seconds in self.stages[position][at]:
                    if own == stream:
                        end = now + seconds
                        self.runs.append((now, end, stream, position, at))
                        heappush(self.running, (end, position, stream))

    def start_blocks(self, blocks: set[int]) -> None:
        """The same where some steps need all their streams at once: earliest in program first."""
        while True:
            best, where = -1, 0
            for stream, queue in enumerate(self.queues):
                while queue and queue[0] in self.started:
                    heappop(queue)  # a block that started from another stream's queue
                if not self.is_free[stream] or not queue:
                    continue
                position = queue[0]
                if position in blocks and not all(
                    self.is_free[own] for own, _ in self.stages[position][0]
                ):
                    continue
                if best < 0 or position < best:
                    best, where = position, stream
            if best < 0:
                return
            heappop(self.queues[where])
            if best in blocks:
                self.started.add(best)
            at = self.at_stage[best]
            for own, seconds in self.stages[best][at]:
                if best in blocks or own == where:
                    self.is_free[own] = False
                    self.runs.append((self.now, self.now + seconds, own, best, at))
                    heappush(self.running, (self.now + seconds, best, own))

    def advance(self) -> None:
        """Goes to the next end and queues what waited for it."""
        running = self.running
        now = self.now = running[0][0]
        while running and running[0][0] == now:
            _, position, stream = heappop(running)
            self.is_free[stream] = True
            self.left[position] -= 1
            if not self.left[position]:
                self.at_stage[position] += 1
                if self.at_stage[position] < len(self.stages[position]):
                    self._queue(position)
                else:
                    self._done(position)


def _unrolled(body: TaskBody, copies: int) -> _Unrolled:
    found = body.cache.get(copies)
    if not isinstance(found, _Unrolled):
        found = _unroll(body, copies)
        body.cache[copies] = found
    return found


def _unroll(body: TaskBody, copies: int) -> _Unrolled:
    """Gates: iteration i+2 (i+1 behind a barrier) starts when all of iteration i is done."""
    steps = body.steps
    count = len(steps)
    gates = count * copies
    successors: list[list[int]] = [[] for _ in range(gates + copies)]
    waits = [0] * (gates + copies)

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
            if copy >= depth:
                after(base + index, gates + copy - depth)
            after(gates + copy, base + index)
    return _Unrolled(tuple(map(tuple, successors)), tuple(waits), gates)
