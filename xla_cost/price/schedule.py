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
    count = len(work)
    waits = list(graph.waits)
    streams = 1 + max((s for w in work for stage in w.stages for s, _ in stage), default=0)
    queues: list[list[int]] = [[] for _ in range(streams)]
    is_free = [True] * streams
    at_stage = [0] * (count * copies)
    left = [0] * (count * copies)  # parts of the current stage still to be done
    running: list[tuple[float, int, int]] = []
    started: set[int] = set()  # blocks
    runs: list[Run] = []
    ends = [0.0] * copies
    now = 0.0

    def finish(position: int) -> None:
        """Marks as done, with all that takes no time and waited only for it."""
        pending = [position]
        while pending:
            done = pending.pop()
            if done < graph.gates:
                ends[done // count] = max(ends[done // count], now)
            for successor in graph.successors[done]:
                waits[successor] -= 1
                if not waits[successor]:
                    if successor < graph.gates and work[successor % count].stages:
                        enqueue(successor)
                    else:
                        pending.append(successor)

    def enqueue(position: int) -> None:
        stage = work[position % count].stages[at_stage[position]]
        left[position] = len(stage)
        for stream, _ in stage:
            heappush(queues[stream], position)

    def start(position: int, stream: int) -> None:
        item = work[position % count]
        stage = item.stages[at_stage[position]]
        if item.is_block:
            started.add(position)
        for own, seconds in stage:
            if item.is_block or own == stream:
                is_free[own] = False
                runs.append((now, now + seconds, own, position, at_stage[position]))
                heappush(running, (now + seconds, position, own))

    def dispatch() -> None:
        """Starts what can start, first in program order first."""
        while True:
            best, where = -1, 0
            for stream in range(streams):
                queue = queues[stream]
                while queue and queue[0] in started:
                    heappop(queue)  # a block that started from another stream's queue
                if not is_free[stream] or not queue:
                    continue
                position = queue[0]
                item = work[position % count]
                if item.is_block and not all(is_free[own] for own, _ in item.stages[0]):
                    continue
                if best < 0 or position < best:
                    best, where = position, stream
            if best < 0:
                return
            heappop(queues[where])
            start(best, where)

    free_at_once = []
    for position in range(len(waits)):
        if not waits[position]:
            if position < graph.gates and work[position % count].stages:
                enqueue(position)
            else:
                free_at_once.append(position)
    for position in free_at_once:
        finish(position)
    dispatch()
    while running:
        now = running[0][0]
        while running and running[0][0] == now:
            _, position, stream = heappop(running)
            is_free[stream] = True
            left[position] -= 1
            if not left[position]:
                at_stage[position] += 1
                if at_stage[position] < len(work[position % count].stages):
                    enqueue(position)
                else:
                    finish(position)
        dispatch()
    return Scheduled(tuple(runs), tuple(ends))


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
