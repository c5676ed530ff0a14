"""Curves from points: which points to take, and how far the interpolation is off elsewhere.

A source gives the cost of one prefill batch or one decode step of equal requests; `lowered.py`
has the one that partitions, walks and prices a model. Nodes are added where a fresh point
disagrees with the curve by more than the tolerance, then points that no node was chosen by give
the error that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from xla_cost.serving.curves import DecodeCurve, PrefillCurve, interpolate


@dataclass(frozen=True, slots=True)
class Cost:
    """One batch or step on the whole worker."""

    latency_s: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class Check:
    """A fresh point beside what the curve says. `error` is relative to the fresh one."""

    phase: str
    batch: int
    length: int
    fresh_s: float
    curve_s: float

    @property
    def error(self) -> float:
        """(curve - fresh) / fresh."""
        return self.curve_s / self.fresh_s - 1


#: Nodes that refinement may add to one axis.
_MOST = 8

#: (phase, requests, tokens of each: prompt length or context) -> cost
Source = Callable[[Literal["prefill", "decode"], int, int], Cost]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decode curves for time and energy, and how they were checked."""

    time: DecodeCurve
    energy: DecodeCurve
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Prefill curves for time and energy, and how they were checked."""

    time: PrefillCurve
    energy: PrefillCurve
    checks: tuple[Check, ...]


def geometric(first: int, last: int, factor: int = 4) -> list[int]:
    """first, first * factor, .., last."""
    nodes = [first]
    while nodes[-1] * factor < last:
        nodes.append(nodes[-1] * factor)
    return nodes if nodes[-1] >= last else [*nodes, last]


def decode_curves(
    source: Source,
    max_batch: int,
    contexts: tuple[int, int],
    quantum: int = 1,
    first: int = 1,
    tolerance: float = 0.02,
) -> Decoded:
    """Decode curves up to `max_batch` requests and for mean contexts in `contexts`.

    Batches are multiples of `quantum`, the smallest node is about `first`. Starts with two
    context nodes and batches a factor of four apart.
    """
    low, top = max(first // quantum, 1), -(-max_batch // quantum)
    batches = [n * quantum for n in geometric(low, max(top, 2 * low))]
    lengths = [contexts[0], contexts[1]] if contexts[1] > contexts[0] else [contexts[0]]

    def curve(value: Callable[[Cost], float]) -> DecodeCurve:
        rows = tuple(tuple(value(source("decode", b, s)) for s in lengths) for b in batches)
        return DecodeCurve(tuple(batches), tuple(lengths), rows, quantum)

    def off(batch: int, length: int) -> bool:
        fresh = source("decode", batch, length).latency_s
        found = curve(_latency).step(batch, length) / fresh - 1
        return abs(found) > tolerance

    _refine(lengths, lambda at: off(batches[-1], at), lambda a, b: (a + b) // 2, 64)
    _refine(
        batches,
        lambda at: off(at, lengths[-1]) or off(at, lengths[0]),
        lambda a, b: (a + b) // (2 * quantum) * quantum,
        quantum,
    )
    time = curve(_latency)
    checks = tuple(
        Check("decode", b, s, source("decode", b, s).latency_s, time.step(b, s))
        for b, s in _held_out(batches, lengths, quantum)
    )
    return Decoded(time, curve(_energy), checks)


def prefill_curves(
    source: Source,
    max_tokens: int,
    typical: int,
    longest: int,
    quantum: int = 1,
    shortest: int = 1,
    tolerance: float = 0.02,
) -> Prefilled:
    """Prefill curves for batches up to `max_tokens`, prompts of `shortest` to `longest` tokens.

    The attention term h is taken relative to prompts of `typical` tokens, where it is zero and
    the curve therefore exact for whole numbers of such prompts.
    """
    most = max(max_tokens // typical // quantum, 1)
    counts = geometric(1, most, 2) if most > 1 else [1]
    shorter = [n for n in (typical // 16, typical // 4) if n >= 16 and 4 * n > shortest]
    lengths = sorted({*shorter, typical, *geometric(typical, max(longest, typical), 2)})
    reference = counts[-1] * quantum * typical

    def batch_of(length: int) -> int:
        return max(reference // (length * quantum), 1) * quantum

    def curve(value: Callable[[Cost], float]) -> PrefillCurve:
        tokens = [n * quantum * typical for n in counts]
        base = [value(source("prefill", n * quantum, typical)) for n in counts]
        attention = []
        for length in lengths:
            batch = batch_of(length)
            over = value(source("prefill", batch, length)) - interpolate(
                tokens, base, batch * length
            )
            attention.append(0.0 if length == typical else over / (batch * length))
        for length in reversed(shorter):  # a single short prompt a place: below `typical` tokens
            short = value(source("prefill", quantum, length))
            h = interpolate(lengths, attention, length)
            tokens.insert(0, quantum * length)
            base.insert(0, max(short - h * quantum * length, 0.0))
        return PrefillCurve(tuple(tokens), tuple(base), tuple(lengths), tuple(attention), quantum)

    def off(batch: int, length: int) -> bool:
        fresh = source("prefill", batch, length).latency_s
        found = curve(_latency).batch([(length, 0)] * batch) / fresh - 1
        return abs(found) > tolerance

    _refine(counts, lambda n: off(n * quantum, typical), lambda a, b: (a + b) // 2, 1)
    _refine(lengths, lambda at: off(batch_of(at), at), lambda a, b: (a + b) // 2, 64)
    time = curve(_latency)
    points = {(max(batch_of(a) // 2, 1), a) for a in _between(lengths)}
    points |= {(quantum, a) for a in _between(lengths)}
    points |= {(n * quantum, typical) for n in range(1, counts[-1] + 2) if n not in counts}
    checks = tuple(
        Check("prefill", b, s, source("prefill", b, s).latency_s, time.batch([(s, 0)] * b))
        for b, s in sorted(points)
    )
    return Prefilled(time, curve(_energy), checks)


def worst(checks: Sequence[Check]) -> float:
    """The largest relative error, without its sign."""
    return max((abs(check.error) for check in checks), default=0.0)


def _latency(cost: Cost) -> float:
    return cost.latency_s


def _energy(cost: Cost) -> float:
    return cost.energy_j


def _refine(
    nodes: list[int],
    off: Callable[[int], bool],
    middle: Callable[[int, int], int],
    finest: int,
) -> None:
    """Insert the middle of every interval where the curve is off, in place.

    Stops at `_MOST` more nodes: what is still off then shows in the reported error.
    """
    done: set[tuple[int, int]] = set()
    most = len(nodes) + _MOST
    while len(nodes) < most:
        gaps = [gap for gap in pairwise(nodes) if gap not in done]
        if not gaps:
            return
        for a, b in gaps:
            done.add((a, b))
            at = middle(a, b)
            if b - a > finest and a < at < b and off(at):
                nodes.append(at)
                nodes.sort()
                break


def _between(nodes: Sequence[int]) -> list[int]:
    """A third of the way into every interval: no middle, so never a point that made a node."""
    return [_even(a + (b - a) // 3) for a, b in pairwise(nodes)]


def _even(length: int) -> int:
    return max(length // 8 * 8, 8)


def _held_out(
    batches: Sequence[int], lengths: Sequence[int], quantum: int
) -> list[tuple[int, int]]:
    sizes = [a + (b - a) // 3 // quantum * quantum for a, b in pairwise(batches)]
    spots = _between(lengths) or [lengths[0]]
    return sorted({(b, spots[i % len(spots)]) for i, b in enumerate(sizes) if b not in batches})
