"""Point-to-point and one-to-many: collective-permute, send-recv, broadcast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from xla_cost.groups import DeviceGroups
from xla_cost.network.builder import Step, build
from xla_cost.network.policy import NetworkPolicy
from xla_cost.network.result import FREE, CollectiveTime
from xla_cost.network.spread import Spread, device_path
from xla_cost.network.stage import Rate, Stage, log2_steps


@lru_cache(maxsize=512)
def pair_loads(groups: DeviceGroups, tier_sizes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Per tier: messages that the busiest device sends or receives, and messages in all.

    A pair uses the innermost tier whose unit holds both; a device paired with itself, none.
    """
    tiers = len(tier_sizes)
    out: list[Counter[int]] = [Counter() for _ in range(tiers)]
    into: list[Counter[int]] = [Counter() for _ in range(tiers)]
    for group in groups.members:
        source, target = group[0], group[-1]
        if source == target:
            continue
        a, b = device_path(source, tier_sizes), device_path(target, tier_sizes)
        shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), tiers)
        level = tiers - max(shared, 1)
        out[level][source] += 1
        into[level][target] += 1
    busiest = [max([*o.values(), *i.values()], default=0) for o, i in zip(out, into, strict=True)]
    return tuple((most, sum(o.values())) for most, o in zip(busiest, out, strict=True))


def permute_time(
    kind: str, vector_bytes: float, groups: DeviceGroups, tier_sizes: tuple[int, ...],
    rates: Sequence[Rate], devices: int,
) -> CollectiveTime:  # fmt: skip
    """Each pair's message over the tier that holds both; tiers work at the same time."""
    steps = [
        Step(i, Stage("send", most, total / devices, 1), vector_bytes, vector_bytes, "pairs")
        for i, (most, total) in enumerate(pair_loads(groups, tier_sizes))
        if most
    ]
    if not steps:
        return FREE
    return build(
        steps, rates, kind, "send", "messages of the busiest device x V / B",
        "point-to-point, alpha-beta model", concurrent=True,
    )  # fmt: skip


def broadcast_time(
    kind: str, vector_bytes: float, spread: Spread, rates: Sequence[Rate], policy: NetworkPolicy
) -> CollectiveTime:
    """Pipelined tree from the outermost tier inwards: V over each tier, log2 hops."""
    steps = []
    for i in range(spread.top, -1, -1):
        level = spread.levels[i]
        if level.fan > 1:
            sent = sum(1 for _ in range(level.fan - 1)) / level.fan
            stage = Stage("tree", 1.0, sent, log2_steps(level.fan))
            steps.append(Step(i, stage, vector_bytes, vector_bytes, "broadcast"))
    return build(
        steps, rates, kind, "pipelined tree", "per tier V / B + log2(fan) hop",
        "Sanders, Speck, Traff, Parallel Computing 35, 2009",
    )  # fmt: skip
