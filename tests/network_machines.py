"""Small machines and meshes for the network tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xla_cost.groups import DeviceGroups
from xla_cost.machine import Machine, Tier
from xla_cost.program import Collective, CollectiveKind


def tier(name: str, size: int, gbps: float, us: float = 0.0, pj: float = 5.0, **more: Any) -> Tier:
    """A tier in friendly units, switched unless told otherwise."""
    more.setdefault("topology", "switch")
    return Tier(
        name=name, size=size, bandwidth_bytes_per_s=gbps * 1e9, latency_s=us * 1e-6,
        energy_j_per_byte=pj * 8e-12, **more,
    )  # fmt: skip


def machine(*tiers: Tier, name: str = "test") -> Machine:
    """A machine of which only the network matters."""
    return Machine(
        name=name, title=name, peak_flops={"bf16": 1e15}, memory_capacity_bytes=1e11,
        memory_bytes_per_s=1e12, tiers=tiers, static_w=100.0, max_w=1000.0,
    )  # fmt: skip


def rows(x: int, y: int) -> DeviceGroups:
    """x groups of y neighbouring devices: the fast axis of an x by y mesh."""
    return DeviceGroups.of([range(i * y, (i + 1) * y) for i in range(x)])


def columns(x: int, y: int) -> DeviceGroups:
    """y groups of x devices that lie y apart: the slow axis."""
    return DeviceGroups.of([range(j, x * y, y) for j in range(y)])


def collective(kind: CollectiveKind, groups: DeviceGroups | Sequence[Sequence[int]],
               payload: int, result: int = 0) -> Collective:  # fmt: skip
    """A bf16 collective with this operand."""
    if not isinstance(groups, DeviceGroups):
        groups = DeviceGroups.of(groups)
    return Collective(kind, groups, payload, result, "bf16")
