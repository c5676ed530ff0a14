"""What groups load the innermost tier with, whatever its topology."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xla_cost.groups import DeviceGroups
from xla_cost.machine.model import Tier
from xla_cost.network.grid_stages import grid_stages
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
    """The innermost tier's part for one spread of `groups`; `devices` run the program."""
    if tier.dims:
        found = grid_stages(groups, tier, devices)
        return Inner(found.gather, found.exchange, switched=False)
    level = spread.levels[0]
    return Inner(
        gather_stages(level.fan, level.gather, level.gather_mean, tier, any_algorithm),
        Stage("direct", level.peers, level.peers_mean, 1, level.fan - 1),
        switched=True,
    )
