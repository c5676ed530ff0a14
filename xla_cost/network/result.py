"""What pricing a collective returns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of a collective on one tier.

    `seconds` is until the busiest device is done. `bytes` is what one device puts on the links
    of the tier on average (on a torus once per link crossed), `energy_j` what that costs.
    `start_s` counts from the start of the collective: phases on different tiers may overlap.
    """

    tier: str
    seconds: float
    bytes: float
    what: str
    start_s: float = 0.0
    energy_j: float = 0.0

    @property
    def end_s(self) -> float:
        """When it is done, from the start of the collective."""
        return self.start_s + self.seconds


@dataclass(frozen=True)
class CollectiveTime:
    """Phases of one execution, the algorithm chosen, its formula and where that comes from.

    `V` in a formula is the full vector: gathered bytes, or the operand of a reduction or of an
    all-to-all. No phases: a group of one.
    """

    phases: tuple[Phase, ...]
    algorithm: str
    formula: str = ""
    source: str = ""

    @cached_property
    def seconds(self) -> float:
        """Until the last phase is done."""
        return max((phase.end_s for phase in self.phases), default=0.0)

    @cached_property
    def bytes_by_tier(self) -> dict[str, float]:
        """Mean bytes that one device puts on each tier's links."""
        total: dict[str, float] = {}
        for phase in self.phases:
            total[phase.tier] = total.get(phase.tier, 0.0) + phase.bytes
        return total

    @cached_property
    def energy_j(self) -> float:
        """Joule per device on the links."""
        return sum(phase.energy_j for phase in self.phases)


FREE = CollectiveTime((), "none", "a group of one moves nothing")
