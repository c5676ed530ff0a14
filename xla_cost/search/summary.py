"""What a search ranks a candidate by: a few numbers, kept in the cache between searches.

Reading a program and pricing it takes some 15 ms, reading its summary a tenth of one. So a
search that is repeated prices nothing but its winner and the runner-up, whose parts it shows.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from xla_cost.cache import PRICING_SOURCES, Cache, sources_version
from xla_cost.machine import Machine
from xla_cost.policy import Policy
from xla_cost.price import Estimate
from xla_cost.programs import Request

#: Code that turns a program and a machine into these numbers; a change of it makes them anew.
PRICING = (*PRICING_SOURCES, "search/summary.py")


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of an `Estimate` that a ranking shows: seconds, joules, bytes per device."""

    latency_s: float
    compute_s: float
    comm_s: float
    exposed_comm_s: float
    energy_j: float
    needed_bytes: int
    capacity_bytes: float

    @property
    def fits(self) -> bool:
        """Whether weights, cache and activations are at most the capacity."""
        return self.needed_bytes <= self.capacity_bytes

    @staticmethod
    def of(estimate: Estimate) -> Summary:
        """The figures of `estimate`."""
        return Summary(
            latency_s=estimate.latency_s,
            compute_s=estimate.compute_s,
            comm_s=estimate.comm_s,
            exposed_comm_s=estimate.exposed_comm_s,
            energy_j=estimate.energy_j,
            needed_bytes=estimate.memory.needed_bytes,
            capacity_bytes=estimate.memory.capacity_bytes,
        )


def kept_summary(
    request: Request, machine: Machine, policy: Policy, cache: Cache
) -> Summary | None:
    """What an earlier search on this machine under this policy found for `request`, if it did."""
    return _checked(cache.get_json(_key(request, machine, policy)))


def keep_summary(
    request: Request, machine: Machine, policy: Policy, summary: Summary, cache: Cache
) -> None:
    """Keep `summary` for later searches; infinite figures are not kept."""
    if all(map(math.isfinite, asdict(summary).values())):
        cache.put_json(_key(request, machine, policy), asdict(summary))


def _key(request: Request, machine: Machine, policy: Policy) -> dict[str, Any]:
    """Everything that decides the figures: the program's key, and all that prices it."""
    return {
        "kind": "summary",
        "request": request.key(),
        "machine": machine.content_hash,
        "policy": policy.describe(),
        "pricing": sources_version(PRICING),
    }


def _checked(stored: Any) -> Summary | None:
    """A summary out of JSON that may be anything; None for what is none."""
    names = [field.name for field in fields(Summary)]
    if not isinstance(stored, dict) or sorted(stored) != sorted(names):
        return None
    if not all(type(value) in (int, float) and value >= 0 for value in stored.values()):
        return None
    return Summary(**stored)
