"""How a group lies across the tiers: counted from device ids, once per set of groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from xla_cost.errors import XlaCostError
from xla_cost.groups import DeviceGroups

#: Path of the unit of each tier that holds a device, outermost first, so that units nest even
#: where the size of one tier does not divide the next.
_Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """One tier of one group. Shares are per byte of the full vector V.

    With M members in a unit of this tier and m of them in one of its sub-units (a device, or a
    unit of the tier inside): `gather` = max (M - m)/(M m), what a device takes in over this tier
    when the vector is sharded over the members inside; `peers` = max (M - m)/n, the share of the
    other members that a device first meets on this tier.
    """

    fan: int  # most sub-units with members in one unit
    subunits: int  # sub-units with members, in all units together
    inside: int  # most members in one sub-unit
    least: int  # fewest
    gather: float
    gather_mean: float
    peers: float
    peers_mean: float
    ring_edges: int  # edges of a ring in id order that cross this tier and no outer one


@dataclass(frozen=True, slots=True)
class Spread:
    """A group of `size` members; `levels` ends at the outermost tier that it needs."""

    size: int
    levels: tuple[Level, ...]

    @property
    def top(self) -> int:
        """Index of the outermost tier needed."""
        return len(self.levels) - 1


def device_path(device: int, tier_sizes: tuple[int, ...]) -> _Path:
    """Unit of each tier that holds `device`, outermost first."""
    return tuple(device // size for size in reversed(tier_sizes))


@lru_cache(maxsize=1024)
def spreads(groups: DeviceGroups, tier_sizes: tuple[int, ...]) -> tuple[Spread, ...]:
    """The distinct ways in which the groups lie across tiers of these sizes.

    Groups of one are left out. Raises XlaCostError when an id lies outside the outermost tier.
    """
    check_ids(groups, tier_sizes)
    found = dict.fromkeys(_spread(group, tier_sizes) for group in groups.members if len(group) > 1)
    return tuple(found)


def check_ids(groups: DeviceGroups, tier_sizes: tuple[int, ...]) -> None:
    """Raise XlaCostError when an id lies outside the outermost tier."""
    if groups.highest >= tier_sizes[-1]:
        raise XlaCostError(
            f"collective: device id {groups.highest}; must be < {tier_sizes[-1]}, "
            "the size of the machine's outermost tier"
        )


def _spread(group: tuple[int, ...], tier_sizes: tuple[int, ...]) -> Spread:
    n = len(group)
    inner: Counter[tuple[int, ...]] = Counter((device,) for device in group)
    parent: dict[tuple[int, ...], _Path] = {
        (device,): device_path(device, tier_sizes) for device in group
    }
    levels: list[Level] = []
    for depth in range(len(tier_sizes), 0, -1):
        units: Counter[_Path] = Counter()
        fans: Counter[_Path] = Counter()
        for sub, members in inner.items():
            units[parent[sub][:depth]] += members
            fans[parent[sub][:depth]] += 1
        levels.append(_level(inner, parent, units, fans, depth, n))
        if len(units) == 1:
            break
        inner = units
        parent = {unit: unit[: depth - 1] for unit in units}
    return Spread(n, tuple(levels))


def _level(
    inner: Counter[tuple[int, ...]],
    parent: dict[tuple[int, ...], _Path],
    units: Counter[_Path],
    fans: Counter[_Path],
    depth: int,
    n: int,
) -> Level:
    pairs = Counter((units[parent[sub][:depth]], members) for sub, members in inner.items())
    closed = len(units) == 1
    return Level(
        fan=max(fans.values()),
        subunits=len(inner),
        inside=max(inner.values()),
        least=min(inner.values()),
        gather=max((M - m) / (M * m) for M, m in pairs),
        gather_mean=sum(count * (M - m) / M for (M, m), count in pairs.items()) / n,
        peers=max((M - m) / n for M, m in pairs),
        peers_mean=sum(count * m * (M - m) for (M, m), count in pairs.items()) / (n * n),
        ring_edges=len(inner) if closed else len(inner) - len(units),
    )
