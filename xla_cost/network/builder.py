"""Turning stages on tiers into a `CollectiveTime`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xla_cost.network.result import CollectiveTime, Phase
from xla_cost.network.stage import Rate, Stage


@dataclass(frozen=True, slots=True)
class Step:
    """A stage on tier `level`, moving shares of a vector of `vector_bytes`.

    `message_bytes` is the size a fit sees. `stretch` lengthens the busiest device's load.
    """

    level: int
    stage: Stage
    vector_bytes: float
    message_bytes: float
    what: str
    stretch: float = 1.0


def build(
    steps: Sequence[Step],
    rates: Sequence[Rate],
    kind: str,
    algorithm: str,
    formula: str,
    source: str,
    concurrent: bool = False,
) -> CollectiveTime:
    """Phases one after the other, or all starting together when `concurrent`.

    The collective pays one software floor, the highest of the tiers it uses, before its first
    phase moves anything.
    """
    floor = max((rates[step.level].floor_s(kind, step.stage) for step in steps), default=0.0)
    phases: list[Phase] = []
    clock = 0.0
    for step in steps:
        rate = rates[step.level]
        seconds = rate.seconds(
            step.stage, step.vector_bytes, step.message_bytes, kind, step.stretch
        )
        if concurrent or not phases:
            seconds += floor
        sent = step.stage.sent * step.vector_bytes
        start = 0.0 if concurrent else clock
        what = f"{step.what} ({step.stage.algorithm})"
        phases.append(
            Phase(rate.tier.name, seconds, sent, what, start, sent * rate.energy_j_per_byte)
        )
        clock += seconds
    return CollectiveTime(tuple(phases), algorithm, formula, source)


def best(candidates: Sequence[CollectiveTime]) -> CollectiveTime:
    """The one that takes the least time; the first of equals."""
    return min(candidates, key=lambda c: c.seconds)
