"""Key/value memory of one worker, counted in tokens of cache."""

from __future__ import annotations

from xla_cost.serving.clock import UNITS_PER_TOKEN
from xla_cost.serving.request import Request


class KvMemory:
    """Tokens set aside, against a capacity (None: no limit).

    Policy "queue" sets aside all a request will ever hold, so nothing runs out later (`grows`
    False). Policy "preempt" sets aside what is there now; contexts of the running batch come on
    top and grow (`grows` True); a share `watermark` of the memory stays free when a request is
    let in, so that it is not thrown out again at once.
    """

    __slots__ = ("_capacity", "_held", "_watermark", "grows", "reserved_tokens")

    def __init__(self, capacity_tokens: int | None, grows: bool, watermark: float) -> None:
        self._capacity = capacity_tokens
        self._watermark = 0
        if capacity_tokens is not None and grows:
            self._watermark = int(capacity_tokens * watermark) * UNITS_PER_TOKEN
        self.grows = grows
        self.reserved_tokens = 0
        self._held: dict[int, int] = {}

    def free_units(self, context_units: int) -> int | None:
        """Units left beside a batch of that total context; None when there is no limit."""
        if self._capacity is None:
            return None
        return (self._capacity - self.reserved_tokens) * UNITS_PER_TOKEN - context_units

    def reserve(self, request: Request, tokens: int, context_units: int) -> bool:
        """Set `tokens` aside for `request` if they are free; says whether they were."""
        free = self.free_units(context_units)
        if free is not None:
            empty = not context_units and not self.reserved_tokens
            if tokens * UNITS_PER_TOKEN + (0 if empty else self._watermark) > free:
                return False
        self.reserved_tokens += tokens
        self._held[request.index] = tokens
        return True

    def holds(self, request: Request) -> bool:
        """Whether something is set aside for `request`."""
        return request.index in self._held

    def release(self, request: Request) -> None:
        """What was set aside for `request` is free again."""
        self.reserved_tokens -= self._held.pop(request.index, 0)
