"""Exact arithmetic on stretches of decode steps while the batch stays the same.

With B requests whose total context C grows by G units a step, step i takes f(C + i * G), and f
is affine between knots: the sum of n steps is an arithmetic series per piece. Everything is in
whole ticks and units, so the sum equals that of the single steps.
"""

from __future__ import annotations

from math import isqrt

from xla_cost.serving.clock import UNITS_PER_TOKEN, to_ticks
from xla_cost.serving.curves import DecodeCurve

#: (first context in units, ticks of a step there, ticks per further unit)
Piece = tuple[int, int, int]


class StepTable:
    """Integer pieces of a decode curve, made once per batch size."""

    __slots__ = ("_curve", "_pieces")

    def __init__(self, curve: DecodeCurve) -> None:
        self._curve = curve
        self._pieces: dict[int, tuple[Piece, ...]] = {}

    def pieces(self, batch: int) -> tuple[Piece, ...]:
        """Pieces of the step time of `batch` requests over their total context in units."""
        found = self._pieces.get(batch)
        if found is None:
            found = self._pieces[batch] = _pieces(self._curve, batch)
        return found

    def step(self, batch: int, context: int) -> int:
        """Ticks of one step of `batch` requests with a total context of `context` units."""
        return step_ticks(self.pieces(batch), context)


def _pieces(curve: DecodeCurve, batch: int) -> tuple[Piece, ...]:
    row = [to_ticks(max(value, 0.0)) for value in curve.row(batch)]
    knots = [context * batch * UNITS_PER_TOKEN for context in curve.contexts]
    if len(row) == 1:
        return ((knots[0], row[0], 0),)
    return tuple(
        (knots[i], row[i], round((row[i + 1] - row[i]) / (knots[i + 1] - knots[i])))
        for i in range(len(row) - 1)
    )


def _piece_of(pieces: tuple[Piece, ...], context: int) -> int:
    index = 0
    while index + 1 < len(pieces) and context >= pieces[index + 1][0]:
        index += 1
    return index


def step_ticks(pieces: tuple[Piece, ...], context: int) -> int:
    """Ticks of the step at `context` units; at least one, so that time goes on."""
    start, base, slope = pieces[_piece_of(pieces, context)]
    return max(base + slope * (context - start), 1)


def _stretch(
    pieces: tuple[Piece, ...], index: int, context: int, growth: int, most: int
) -> tuple[int, int, int]:
    """Steps (at most `most`) inside piece `index`, ticks of the first, ticks added per step."""
    start, base, slope = pieces[index]
    steps = most
    if growth > 0 and index + 1 < len(pieces):
        steps = min(most, -(-(pieces[index + 1][0] - context) // growth))
    first = base + slope * (context - start)
    rise = slope * growth
    if min(first, first + rise * (steps - 1)) < 1:
        return 1, max(first, 1), 0  # the floor of one tick: step by step
    return steps, first, rise


def run_ticks(pieces: tuple[Piece, ...], context: int, growth: int, steps: int) -> int:
    """Ticks of `steps` steps, the first at `context` units, each `growth` more than the last."""
    total = 0
    while steps > 0:
        index = _piece_of(pieces, context)
        count, first, rise = _stretch(pieces, index, context, growth, steps)
        total += count * first + rise * (count * (count - 1) // 2)
        context += count * growth
        steps -= count
    return total


def steps_until(pieces: tuple[Piece, ...], context: int, growth: int, ticks: int, most: int) -> int:
    """The fewest steps that take at least `ticks`, between 1 and `most`."""
    done = 0
    while done < most:
        index = _piece_of(pieces, context)
        count, first, rise = _stretch(pieces, index, context, growth, most - done)
        whole = count * first + rise * (count * (count - 1) // 2)
        if whole >= ticks:
            return max(done + _fewest(first, rise, ticks, count), 1)
        ticks -= whole
        context += count * growth
        done += count
    return most


def _fewest(first: int, rise: int, ticks: int, most: int) -> int:
    """Fewest m <= most with m * first + rise * m * (m - 1) / 2 >= ticks (it holds for `most`)."""
    if ticks <= 0:
        return 0
    if rise == 0:
        return -(-ticks // first)
    # rise m^2 + (2 first - rise) m - 2 ticks = 0; the root is right up to rounding
    linear = 2 * first - rise
    root = (isqrt(max(linear * linear + 8 * rise * ticks, 0)) - linear) // (2 * rise)
    guess = min(max(root, 0), most)
    while guess > 0 and _series(first, rise, guess - 1) >= ticks:
        guess -= 1
    while _series(first, rise, guess) < ticks:
        guess += 1
    return guess


def _series(first: int, rise: int, steps: int) -> int:
    return steps * first + rise * (steps * (steps - 1) // 2)
