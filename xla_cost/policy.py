"""Cost policies: which assumptions turn a ledger and a machine into seconds.

Two are named, `study` and `calibrated`; any other is one of them with fields replaced
(`dataclasses.replace(STUDY, latency=True)`). Every result prints the one it was made with.
This module knows neither machines nor programs, so `network` and `kernel_time` may import it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from xla_cost.errors import XlaCostError

#: How a group that spans tiers moves its data (formulas in `xla_cost.network`):
#: `study`: bandwidth inside the pod plus the unsharded payload across it (what the reference
#: study's cells imply, first reading); `reading-2`: the second reading, for programs that gather
#: over the slow axis; `flat`: one ring or direct exchange at the pace of its slowest link;
#: `hierarchical`: shard inside the pod first, then cross; `best`: the cheapest that the
#: machine may use; `library`: as `best`, but an all-reduce that leaves a pod runs as NCCL runs
#: it; `nccl`: an all-reduce takes NCCL's kernels inside a pod as well, none of a framework's own.
NetworkRule = Literal["study", "reading-2", "flat", "hierarchical", "best", "library", "nccl"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Named assumptions. The defaults are the ideal ones; see STUDY and CALIBRATED.

    `name` is printed with every result; `replace` the fields of a named one under a new name.
    """

    name: str
    #: what a sentence of a report says about it
    summary: str = ""
    #: "peak": FLOPs over the datasheet's peak and bytes over peak HBM bandwidth;
    #: "fitted": `xla_cost.kernel_time`, measured efficiencies per kind, size and format
    kernel_rates: Literal["peak", "fitted"] = "peak"
    #: fraction of a link's bandwidth: "peak": all of it; "fitted": what collectives reach
    network_rates: Literal["peak", "fitted"] = "peak"
    #: whether collectives pay hop latencies and software floors, and kernels their launch
    latency: bool = False
    network: NetworkRule = "study"
    #: op kinds that take time; the others are ideal and free (`unpriced` is listed either way)
    priced_kinds: frozenset[str] = frozenset({"matmul", "kernel", "collective"})
    #: a matmul reads its operands at the width they were converted from (bf16 activations
    #: into an fp4 matrix unit), not at the width of the converted copy
    look_through_converts: bool = True
    #: chains of element-wise ops run as one kernel, see `xla_cost.price.fusion`
    fuse_elementwise: bool = False
    #: products of one value with several weights run as one, see `xla_cost.price.products`
    merge_products: bool = False
    #: a slice of a loop-invariant array (this layer's weights) is an address, not a copy
    slices_are_views: bool = True
    #: arithmetic on a few numbers (loop counters, offsets) is part of the kernels around it
    scalars_are_free: bool = True
    #: load of the busiest expert rank over the mean: stretches dispatch, experts, combine
    expert_imbalance: float = 1.0
    #: grouped products skip experts that no token goes to, and their weights (small decode
    #: batches), see `xla_cost.price.experts`; False: all are read, as a program is written
    experts_in_use: bool = False
    #: copies of a token that go to one place in a dispatch: all sent ("none"), one per pod, or
    #: one per pod and one per device in it, as DeepEP does; `top_k` is the copies per token and
    #: `max_pods` the most pods a token may go to (group-limited routing; 0: no limit)
    dedup: Literal["none", "pod", "device"] = "none"
    top_k: int = 1
    max_pods: int = 0
    #: iterations of a loop that may overlap where carried values allow it (2: what a compiler
    #: gets by double buffering; 1: an iteration starts when the one before is done)
    iterations_in_flight: int = 1

    def __post_init__(self) -> None:
        if not 1.0 <= self.expert_imbalance < float("inf"):
            raise XlaCostError(
                f"policy {self.name}: expert_imbalance = {self.expert_imbalance}; must be >= 1"
            )
        if self.iterations_in_flight not in (1, 2):
            raise XlaCostError(
                f"policy {self.name}: iterations_in_flight = {self.iterations_in_flight}; "
                "must be 1 or 2"
            )

    def describe(self) -> dict[str, Any]:
        """Every field, JSON-ready, in the order declared."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: sorted(v) if isinstance(v, frozenset) else v for k, v in values.items()}


STUDY = Policy(
    name="study",
    summary="peak rates, no latency, dots and collectives only, payload unsharded across pods",
)

CALIBRATED = Policy(
    name="calibrated",
    summary="measured efficiencies, launch and collective latency, fused element-wise chains",
    kernel_rates="fitted",
    network_rates="fitted",
    latency=True,
    network="library",
    priced_kinds=frozenset({"matmul", "kernel", "collective", "vector", "move"}),
    look_through_converts=False,  # the convert is a priced kernel here
    fuse_elementwise=True,
    merge_products=True,
    experts_in_use=True,
    iterations_in_flight=2,
)

POLICIES = {policy.name: policy for policy in (STUDY, CALIBRATED)}


def policy(choice: str | Policy, **changes: Any) -> Policy:
    """The named policy, or the given one, with `changes` applied to its fields.

    A changed policy is renamed to say so: `study(latency=True)`.
    Raises XlaCostError for an unknown name or field.
    """
    if isinstance(choice, str):
        if choice not in POLICIES:
            raise XlaCostError(f"policy {choice!r} is unknown; expected one of {sorted(POLICIES)}")
        choice = POLICIES[choice]
    if not changes:
        return choice
    known = {field.name for field in fields(choice)}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise XlaCostError(
            f"policy field {unknown[0]!r} is unknown; expected one of {sorted(known)}"
        )
    shown = ",".join(f"{key}={value}" for key, value in changes.items())
    return replace(choice, **{"name": f"{choice.name}({shown})", **changes})
