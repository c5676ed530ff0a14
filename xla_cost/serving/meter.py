"""What is counted while a simulation runs; its size does not grow with tokens or time."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, floor, log

from xla_cost.serving.clock import to_s


class Series:
    """Time average of a step function in bins that double in width when they run out.

    `set` takes times in ticks that never go back. The integral is exact.
    """

    __slots__ = ("_bins", "_width", "area", "maximum", "since", "value")

    BINS = 512

    def __init__(self, width: int) -> None:
        self.value = 0
        self.since = 0
        self.area = 0
        self.maximum = 0
        self._width = width
        self._bins: list[int] = []

    def set(self, now: int, value: int) -> None:
        """The function is `value` from `now` on."""
        if value != self.value:
            if now > self.since:
                self._add(now)
            self.value = value
            if value > self.maximum:
                self.maximum = value

    def change(self, now: int, by: int) -> None:
        """The function rises by `by` at `now`."""
        self.set(now, self.value + by)

    def _add(self, now: int) -> None:
        start, value = self.since, self.value
        self.area += value * (now - start)
        self.since = now
        while now > self._width * self.BINS:
            bins = self._bins
            self._bins = [sum(bins[i : i + 2]) for i in range(0, len(bins), 2)]
            self._width *= 2
        last = (now - 1) // self._width
        self._bins.extend([0] * (last + 1 - len(self._bins)))
        while start < now:
            place = start // self._width
            end = min((place + 1) * self._width, now)
            self._bins[place] += value * (end - start)
            start = end

    def integral(self, now: int) -> int:
        """Value times ticks from the start to `now`."""
        return self.area + self.value * (now - self.since)

    def points(self, now: int) -> tuple[tuple[float, float], ...]:
        """(bin start in seconds, average in the bin) up to `now`."""
        if now > self.since:
            self._add(now)
        width = self._width
        return tuple(
            (to_s(i * width), area / min(width, now - i * width))
            for i, area in enumerate(self._bins)
            if now > i * width
        )


class Histogram:
    """Weighted durations in bins of half a percent: quantiles to 0.25 %, mean and maximum exact."""

    __slots__ = ("_bins", "maximum", "total", "weight")

    PER_E = 200

    def __init__(self) -> None:
        self._bins: dict[int, float] = {}
        self.weight = 0
        self.total = 0
        self.maximum = 0

    def add(self, first: int, last: int, weight: int, total: int) -> None:
        """`weight` durations spread evenly from `first` to `last` ticks, `total` their sum."""
        self.weight += weight
        self.total += total
        low, high = (first, last) if first <= last else (last, first)
        if high > self.maximum:
            self.maximum = high
        left, right = self._bin(low), self._bin(high)
        bins = self._bins
        if left == right:
            bins[left] = bins.get(left, 0.0) + weight
            return
        for place in range(left, right + 1):
            start = max(low, exp(place / self.PER_E))
            end = min(high, exp((place + 1) / self.PER_E))
            share = weight * max(end - start, 0.0) / (high - low)
            bins[place] = bins.get(place, 0.0) + share

    def _bin(self, ticks: int) -> int:
        return floor(log(ticks) * self.PER_E) if ticks > 0 else -1

    def quantiles_s(self, shares: Sequence[float]) -> list[float]:
        """Durations in seconds that the given shares of the weight do not exceed; NaN of none."""
        if not self.weight:
            return [float("nan")] * len(shares)
        answer = []
        ordered = sorted(self._bins.items())
        for share in shares:
            wanted, seen, place = share * self.weight, 0.0, 0
            for place, count in ordered:  # noqa: B007
                seen += count
                if seen >= wanted:
                    break
            centre = exp((place + 0.5) / self.PER_E)
            answer.append(min(to_s(int(centre)), to_s(self.maximum)))
        return answer

    @property
    def mean_s(self) -> float:
        """Mean duration in seconds, NaN when nothing was counted."""
        return to_s(self.total) / self.weight if self.weight else float("nan")


class Meter:
    """Counters of one simulation. `UNITS` of tokens as in clock.py.

    `itl`: times between tokens of measured requests. `largest_batch`: requests that one worker
    decoded at once in an iteration since measuring began.
    """

    __slots__ = (
        "busy_decode", "busy_prefill", "busy_transfer", "decode_batch", "decode_waiting",
        "decoded_units", "energy", "in_flight", "iterations", "itl", "largest_batch",
        "member_iterations", "preemptions", "prefill_batches", "prefill_tokens", "prefill_waiting",
    )  # fmt: skip

    def __init__(self, bin_ticks: int) -> None:
        self.in_flight = Series(bin_ticks)
        self.prefill_waiting = Series(bin_ticks)
        self.decode_waiting = Series(bin_ticks)
        self.decode_batch = Series(bin_ticks)
        self.itl = Histogram()
        self.largest_batch = 0
        self.busy_prefill = 0
        self.busy_decode = 0
        self.busy_transfer = 0
        self.energy = 0
        self.iterations = 0
        self.member_iterations = 0
        self.decoded_units = 0
        self.prefill_batches = 0
        self.prefill_tokens = 0
        self.preemptions = 0

    def counters(self, now: int) -> dict[str, int]:
        """Everything that adds up, to subtract between two moments."""
        series = ("in_flight", "prefill_waiting", "decode_waiting", "decode_batch")
        names = [name for name in self.__slots__ if name not in (*series, "itl", "largest_batch")]
        return {
            "ticks": now,
            **{name: getattr(self, name) for name in names},
            **{name: getattr(self, name).integral(now) for name in series},
        }
