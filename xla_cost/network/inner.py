"""What groups load the innermost tier with, whatever its topology."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xla_cost.groups import DeviceGroups
from xla_cost.machine.model import Tier
from xla_cost.network.spread import Spread
from xla_cost.network.stage import Stage, gather_stages


@dataclass(frozen=True, slots=True)
class Inner:
    """Stages among the members inside one innermost unit, per byte of vector.

    `gather` and `exchange` are for all-gather (or reduce-scatter) and all-to-all; in the latter
    every pair of the whole group moves V/n.
    """

    gather: tuple[Stage, ...]
    exchange: Stage
    switched: bool


@lru_cache(maxsize=1024)
def inner_of(
    groups: DeviceGroups, spread: Spread, tier: Tier, devices: int, any_algorithm: bool
) -> Inner:
    """The innermost tier's part for one spread of `groups`."""
    level = spread.levels[0]
    return Inner(
        tuple(gather_stages(level.fan, level.gather, level.gather_mean, any_algorithm)),
        Stage("direct", level.peers, level.peers_mean, 1),
        switched=True,
    )
