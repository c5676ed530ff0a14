"""The requests that decode together, and how far they have come. No clock, no events.

Members are kept in a heap by the iteration that finishes them, so that joining and leaving cost
the logarithm of the batch. Contexts are summed, never visited.
"""

from __future__ import annotations

from heapq import heappop, heappush

from xla_cost.serving.clock import UNITS_PER_TOKEN
from xla_cost.serving.request import Request


class DecodeBatch:
    """Members, total context and its growth per iteration (in units), iterations done.

    `measured` and `measured_growth`: members whose latencies count, and their part of the growth.
    """

    __slots__ = (
        "_heap", "_joins", "_order", "context", "growth", "index", "measured", "measured_growth",
        "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.size = 0
        self.context = 0  # of the next iteration
        self.growth = 0
        self.measured = 0
        self.measured_growth = 0
        self.index = 0
        self._heap: list[tuple[int, int, Request]] = []
        self._joins = 0
        self._order: list[Request] = []

    def join(self, request: Request) -> None:
        """Take `request` in; its first iteration attends to its prompt and the new token."""
        request.joined_index = self.index
        request.joined_context = request.prompt * UNITS_PER_TOKEN + request.growth
        request.last_index = self.index + request.steps
        self.size += 1
        self.context += request.joined_context
        self.growth += request.growth
        if request.measured:
            self.measured += 1
            self.measured_growth += request.growth
        self._joins += 1
        heappush(self._heap, (request.last_index, self._joins, request))
        self._order.append(request)

    def context_of(self, request: Request) -> int:
        """Units that `request` attends to in the next iteration."""
        return request.joined_context + (self.index - request.joined_index) * request.growth

    def advance(self, steps: int) -> None:
        """All members do `steps` iterations."""
        self.index += steps
        self.context += steps * self.growth

    def steps_to_completion(self) -> int:
        """Iterations until the next member is done."""
        while self._heap[0][2].last_index != self._heap[0][0]:
            heappop(self._heap)  # preempted
        return self._heap[0][0] - self.index

    def completed(self) -> list[Request]:
        """Remove and give the members that are done, those that joined first in front."""
        heap, index, done = self._heap, self.index, []
        while heap and heap[0][0] <= index:
            last, _, request = heappop(heap)
            if request.last_index == last:
                self._leave(request)
                done.append(request)
        return done

    def _leave(self, request: Request) -> None:
        self.size -= 1
        self.context -= self.context_of(request)
        self.growth -= request.growth
        if request.measured:
            self.measured -= 1
            self.measured_growth -= request.growth
        request.last_index = -1
        if len(self._order) > 2 * self.size + 64:
            self._order = [r for r in self._order if r.last_index >= 0]

    def preempt_last(self) -> Request:
        """Remove and give the member that joined last. Its prompt becomes all it has produced.

        After k iterations it had produced k + 1 tokens (the first by its prefill); a new prefill
        over all of them gives the next one, so one iteration less is left.
        """
        while self._order[-1].last_index < 0:
            self._order.pop()
        request = self._order.pop()
        produced = (self.index - request.joined_index) * request.growth // UNITS_PER_TOKEN
        request.steps -= self.index - request.joined_index + 1
        self._leave(request)
        request.prompt += produced + 1
        request.prefilled = 0
        request.cached = 0
        request.preempted += 1
        return request
