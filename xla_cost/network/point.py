"""Point-to-point and one-to-many: collective-permute, send-recv, broadcast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from xla_cost.groups import DeviceGroups
from xla_cost.network.builder import Step, build
from xla_cost.network.grid_stages import grid_pairs
from xla_cost.network.inner import Inner
from xla_cost.network.result import FREE, CollectiveTime
from xla_cost.network.spread import Spread, device_path
from xla_cost.network.stage import Rate, Stage, log2_steps


@dataclass(frozen=True, slots=True)
class PairLoad:
    """Messages on one tier: of the busiest device (sent or received), in all, and the pairs."""

    busiest: int
    total: int
    pairs: tuple[tuple[int, int], ...]


@lru_cache(maxsize=512)
def pair_loads(groups: DeviceGroups, tier_sizes: tuple[int, ...]) -> tuple[PairLoad, ...]:
    """Pairs by the innermost tier whose unit holds both ends; a device to itself uses none."""
    tiers = len(tier_sizes)
    pairs: list[list[tuple[int, int]]] = [[] for _ in range(tiers)]
    for group in groups.members:
        source, target = group[0], group[-1]
        if source != target:
            pairs[_shared_tier(source, target, tier_sizes)].append((source, target))
    return tuple(_load(found) for found in pairs)


def _shared_tier(a: int, b: int, tier_sizes: tuple[int, ...]) -> int:
    """Index of the innermost tier with a unit that holds both."""
    found = len(tier_sizes) - 1
    paths = zip(device_path(a, tier_sizes)[1:], device_path(b, tier_sizes)[1:], strict=True)
    for x, y in paths:
        if x != y:
            break
        found -= 1
    return found


def _load(pairs: list[tuple[int, int]]) -> PairLoad:
    out, into = Counter(s for s, _ in pairs), Counter(t for _, t in pairs)
    return PairLoad(max([*out.values(), *into.values()], default=0), len(pairs), tuple(pairs))


def permute_time(
    kind: str, vector_bytes: float, groups: DeviceGroups, tier_sizes: tuple[int, ...],
    rates: Sequence[Rate], devices: int,
) -> CollectiveTime:  # fmt: skip
    """Each pair's message over the tier that holds both ends; tiers work at the same time.

    On a torus or HyperX messages are routed and the busiest link decides.
    """
    steps = []
    for i, load in enumerate(pair_loads(groups, tier_sizes)):
        if not load.total:
            continue
        tier = rates[i].tier
        if tier.dims:
            stage = grid_pairs(load.pairs, tier, devices)
        else:
            stage = Stage("send", load.busiest, load.total / devices, 1, load.busiest)
        steps.append(Step(i, stage, vector_bytes, vector_bytes, "pairs"))
    if not steps:
        return FREE
    return build(
        steps, rates, kind, "send", "messages of the busiest device or link x V / B",
        "point-to-point, alpha-beta model (Hockney 1994)", concurrent=True,
    )  # fmt: skip


def broadcast_time(
    kind: str, vector_bytes: float, spread: Spread, inner: Inner, rates: Sequence[Rate]
) -> CollectiveTime:
    """Pipelined trees from the outermost tier inwards: V over each tier, log2(fan) hops.

    On a torus the trees use the links that an all-gather of the group would use.
    """
    steps = []
    for i in range(spread.top, -1, -1):
        level = spread.levels[i]
        if level.fan > 1:
            arrivals = level.ring_edges - (1 if i == spread.top else 0)
            stage = Stage("tree", 1.0, arrivals / spread.size, log2_steps(level.fan), 3)
            if i == 0 and not inner.switched:
                ring = inner.gather[0]
                whole = level.fan / (level.fan - 1)  # V itself, not the (n-1)/n of a gather
                stage = replace(ring, load=ring.load * whole, sent=ring.sent * whole)
            steps.append(Step(i, stage, vector_bytes, vector_bytes, "broadcast"))
    return build(
        steps, rates, kind, "pipelined tree", "per tier V / B + log2(fan) hop",
        "Sanders, Speck, Traff, Parallel Computing 35, 2009; on tori edge-disjoint spanning "
        "trees, Johnsson and Ho, IEEE TC 38(9), 1989",
    )  # fmt: skip
