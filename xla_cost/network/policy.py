"""Which collective algorithms may be used and what they pay for, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from xla_cost.errors import XlaCostError
from xla_cost.policy import NetworkRule, Policy

#: How a gather or reduction that spans pods moves its data, see docs/network.md.
CrossRule = Literal[
    "reading-1", "reading-2", "flat-ring", "hierarchical", "best", "library", "nccl"
]
#: Copies of a token that go to one place: all of them sent ("none"), one per destination pod,
#: or one per destination pod and one per destination device inside it.
Dedup = Literal["none", "pod", "device"]


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Assumptions of the collective model. The defaults are those of the `study` family."""

    name: str
    cross_pod: CrossRule = "reading-1"
    latency: bool = False  # hops, floors, circuit switching
    fitted: bool = False  # tier efficiencies and measured fits, else peak bandwidth
    any_algorithm: bool = False  # the cheapest on each tier, else the ring bound
    concurrent_tiers: bool = False  # shares of an all-to-all on different tiers overlap
    imbalance: float = 1.0  # load of the busiest rank over the mean; stretches all-to-alls
    dedup: Dedup = "none"
    top_k: int = 1  # copies per token, needed by `dedup`
    max_pods: int = 0  # most pods one token may go to (group-limited routing); 0: no limit

    def __post_init__(self) -> None:
        if not 1.0 <= self.imbalance < float("inf"):
            raise XlaCostError(
                f"network policy {self.name}: imbalance = {self.imbalance}; must be >= 1"
            )
        if self.top_k < 1 or self.max_pods < 0:
            raise XlaCostError(
                f"network policy {self.name}: top_k = {self.top_k}, max_pods = {self.max_pods}; "
                "must be >= 1 and >= 0"
            )


STUDY = NetworkPolicy("study/reading-1")
CALIBRATED = NetworkPolicy(
    "calibrated", cross_pod="library", latency=True, fitted=True, any_algorithm=True,
    concurrent_tiers=True,
)  # fmt: skip
_RULES: tuple[CrossRule, ...] = ("reading-2", "flat-ring", "hierarchical", "best")
POLICIES: Mapping[str, NetworkPolicy] = {
    STUDY.name: STUDY,
    **{f"study/{rule}": replace(STUDY, name=f"study/{rule}", cross_pod=rule) for rule in _RULES},
    "calibrated": CALIBRATED,
    "nccl": replace(CALIBRATED, name="nccl", cross_pod="nccl"),
}
_FROM_RULE: Mapping[NetworkRule, CrossRule] = {
    "study": "reading-1",
    "reading-2": "reading-2",
    "flat": "flat-ring",
    "hierarchical": "hierarchical",
    "best": "best",
    "library": "library",
    "nccl": "nccl",
}


def network_policy(choice: str | Policy | NetworkPolicy) -> NetworkPolicy:
    """The named network policy (`study` is `study/reading-1`), or the one a `Policy` implies.

    Raises XlaCostError for an unknown name.
    """
    if isinstance(choice, NetworkPolicy):
        return choice
    if isinstance(choice, Policy):
        return NetworkPolicy(
            name=choice.name,
            cross_pod=_FROM_RULE[choice.network],
            latency=choice.latency,
            fitted=choice.network_rates == "fitted",
            any_algorithm=choice.network in ("best", "library", "nccl"),
            concurrent_tiers=choice.network not in ("study", "reading-2"),
            imbalance=choice.expert_imbalance,
            dedup=choice.dedup,
            top_k=choice.top_k,
            max_pods=choice.max_pods,
        )
    found = POLICIES.get("study/reading-1" if choice == "study" else choice)
    if found is None:
        raise XlaCostError(
            f"network policy {choice!r} is unknown; expected one of {', '.join(POLICIES)}"
        )
    return found


def zipf_imbalance(exponent: float, experts: int, ranks: int) -> float:
    """Load of the busiest rank over the mean when expert i is asked for in proportion to i^-s.

    Experts are dealt out in turn by popularity (expert i on rank i mod ranks), so rank 0 is the
    busiest: `ranks * sum_j (1 + j*ranks)^-s / sum_i i^-s`. Exponent 0 gives 1 where ranks
    divides experts. Raises XlaCostError for a negative exponent or fewer experts than ranks.
    """
    if not 0.0 <= exponent < float("inf"):
        raise XlaCostError(f"zipf_imbalance: exponent = {exponent}; must be >= 0")
    if ranks < 1 or experts < ranks:
        raise XlaCostError(
            f"zipf_imbalance: experts = {experts} on ranks = {ranks}; must be at least one each"
        )
    weights = [float(i + 1) ** -exponent for i in range(experts)]
    return float(ranks * sum(weights[::ranks]) / sum(weights))


def distinct_places(copies: int, places: int, limit: int = 0) -> float:
    """Expected number of places hit by `copies` independent uniform choices among `places`.

    `p * (1 - (1 - 1/p)^k)`: each place is missed with probability (1 - 1/p)^k. `limit` caps it
    (group-limited routing).
    """
    expected: float = places * (1.0 - (1.0 - 1.0 / places) ** copies)
    return min(expected, float(limit)) if limit else expected
