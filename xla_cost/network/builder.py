"""Turning stages on tiers into a `CollectiveTime`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xla_cost.network.result import CollectiveTime, Phase
from xla_cost.network.stage import Rate, Stage


@dataclass(frozen=True, slots=True)
class Step:
    """A stage on tier `level`, moving shares of a vector of `vector_bytes`.

    `message_bytes` is the size a fit sees. `stretch` lengthens the busiest device's load. `whole`
    is the share of the vector that leaves the device on any tier, where one kernel sends it all:
    the fixed part of its fit counts that, whatever part stays on this tier.
    """

    level: int
    stage: Stage
    vector_bytes: float
    message_bytes: float
    what: str
    stretch: float = 1.0
    whole: float = 0.0


def _startup_s(step: Step, rate: Rate, kind: str) -> float:
    """What the kernel of a step costs before it moves anything."""
    load = step.whole * step.vector_bytes * step.stretch
    message = step.message_bytes * step.stage.message
    return rate.floor_s(kind, step.stage) + rate.fixed_s(kind, step.stage, load, message)


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

    The collective pays one start, the highest of the tiers it uses, before its first phase moves
    anything.
    """
    start_s = max((_startup_s(step, rates[step.level], kind) for step in steps), default=0.0)
    phases: list[Phase] = []
    clock = 0.0
    for step in steps:
        rate = rates[step.level]
        seconds = rate.seconds(
            step.stage, step.vector_bytes, step.message_bytes, kind, step.stretch,
            started=step.whole > 0.0,
        )  # fmt: skip
        if concurrent or not phases:
            seconds += start_s
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
