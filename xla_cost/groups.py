"""Which devices take part in a collective: replica groups and source-target pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class DeviceGroups:
    """Disjoint groups of device ids, or source-target pairs of a permute.

    `members` holds the ids group after group. For pairs (`is_pairs`) every two ids are
    one (source, target) and a device may occur in several. Ids are positions in the
    device assignment, that is in `mesh.devices.flat`, so they are physical as long as a
    plan lays its mesh out in physical order.
    """

    members: tuple[tuple[int, ...], ...]
    is_pairs: bool = False

    @cached_property
    def size(self) -> int:
        """Devices in the largest group (for pairs: 2, or 1 when there are none)."""
        return max((len(group) for group in self.members), default=1)

    @cached_property
    def _hash(self) -> int:
        return hash((self.members, self.is_pairs))

    def __hash__(self) -> int:
        # thousands of ids, looked up in caches at every pricing: hash them once
        return self._hash

    @cached_property
    def highest(self) -> int:
        """The highest device id, -1 where there is none."""
        return max((max(group) for group in self.members if group), default=-1)

    @property
    def count(self) -> int:
        """Number of groups, or of pairs."""
        return len(self.members)

    @staticmethod
    def everyone(devices: int) -> DeviceGroups:
        """One group of all `devices`."""
        return DeviceGroups((tuple(range(devices)),))

    @staticmethod
    def of(groups: Sequence[Sequence[int]]) -> DeviceGroups:
        """Groups from any nested sequence."""
        return DeviceGroups(tuple(tuple(group) for group in groups))
