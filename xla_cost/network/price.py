"""`collective_time`: one collective on one machine under one policy."""

from __future__ import annotations

from functools import lru_cache

from xla_cost.errors import XlaCostError
from xla_cost.machine.model import Machine
from xla_cost.network.exchange import exchange_time
from xla_cost.network.gather import Gathering
from xla_cost.network.inner import inner_of
from xla_cost.network.point import broadcast_time, permute_time
from xla_cost.network.policy import NetworkPolicy
from xla_cost.network.result import FREE, CollectiveTime
from xla_cost.network.spread import Spread, check_ids, spreads
from xla_cost.network.stage import Rate, rates
from xla_cost.program import Collective

_GATHERS = ("all-gather", "reduce-scatter", "all-reduce")
_EXCHANGES = ("all-to-all", "ragged-all-to-all")
_PAIRS = ("collective-permute", "send-recv")
_ROLES = ("dispatch", "combine")
_KINDS = (*_GATHERS, *_EXCHANGES, *_PAIRS, "collective-broadcast")


def role_of(scope: str) -> str:
    """ "dispatch" or "combine" when a segment of the scope path is called that, else ""."""
    for segment in reversed(scope.split("/")):
        if segment in _ROLES:
            return segment
    return ""


@lru_cache(maxsize=16384)
def collective_time(
    collective: Collective,
    machine: Machine,
    policy: NetworkPolicy,
    devices: int | None = None,
    role: str = "",
) -> CollectiveTime:
    """Seconds, bytes and energy of one execution, and the algorithm that gives them.

    The slowest of the distinct ways in which the groups lie across the tiers decides. `devices`
    is how many take part in the program (a slice of a torus is cut for that many); by default
    the highest id in the groups plus one. `role` is "dispatch" or "combine" for an all-to-all of
    expert parallelism, which runs as a kernel with its own fit. Raises XlaCostError for a
    device id outside the machine or an unknown kind.
    """
    if role and role not in _ROLES:
        raise XlaCostError(f"collective role {role!r}; expected dispatch, combine or none")
    groups = collective.groups
    count = devices or groups.highest + 1
    tiers = rates(machine, policy)
    if collective.kind in _PAIRS:
        check_ids(groups, machine.tier_sizes)
        return permute_time(
            collective.kind, collective.payload_bytes, groups, machine.tier_sizes, tiers, count
        )
    times = [
        _one(collective, spread, tiers, machine, policy, count, role)
        for spread in spreads(groups, machine.tier_sizes)
    ]
    return max(times, key=lambda time: time.seconds, default=FREE)


def _one(
    collective: Collective, spread: Spread, tiers: tuple[Rate, ...], machine: Machine,
    policy: NetworkPolicy, devices: int, role: str,
) -> CollectiveTime:  # fmt: skip
    kind = collective.kind
    inner = inner_of(collective.groups, spread, machine.tiers[0], devices, policy.any_algorithm)
    if kind == "collective-broadcast":
        return broadcast_time(kind, collective.payload_bytes, spread, inner, tiers)
    if kind in _GATHERS:
        vector = collective.payload_bytes * (spread.size if kind == "all-gather" else 1)
        return Gathering(kind, vector, spread, inner, tiers, policy).time()
    if kind in _EXCHANGES:
        return exchange_time(role or kind, collective.payload_bytes, spread, inner, tiers, policy)
    raise XlaCostError(f"collective kind {kind!r} is unknown; expected one of {', '.join(_KINDS)}")
