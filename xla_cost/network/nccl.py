"""All-reduce as NCCL runs it: its own kernels, and flat rings and trees over many pods.

Latencies are the constants of NCCL's own cost model, NCCL 2.26.2, src/graph/tuning.cc (`baseLat`,
`hwLat`, `ncclTopoTuneModel`); they are in no table that anything here is validated on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xla_cost.network.builder import Step, build
from xla_cost.network.result import CollectiveTime
from xla_cost.network.spread import Spread
from xla_cost.network.stage import Rate, Stage, in_switch

_SOURCE = "NCCL 2.26.2, src/graph/tuning.cc"
#: prices a ring by the tier's own `efficiency`: there is no fit of that name
_UNFITTED = "ring"


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way in which NCCL moves bytes: seconds per call and per step, and share of a link.

    `pod_s` is a step inside a pod, `network_s` one over the network. `joined_s` is the least that
    a step inside a pod takes once the ring leaves it (posting network operations), `plateau` what
    the latency of such a ring is multiplied by.
    """

    name: str
    base_s: float
    pod_s: float
    network_s: float
    share: float
    joined_s: float = 0.0
    plateau: float = 1.0


#: LL sends a flag with every word, LL128 with every 120 bytes, Simple synchronises per chunk.
LL = Protocol("LL", 6.6e-6, 0.6e-6, 2.7e-6, 0.5, joined_s=1e-6)
LL128 = Protocol("LL128", 14e-6, 1.9e-6, 4e-6, 0.92, joined_s=1e-6)
SIMPLE = Protocol("Simple", 8.4e-6, 3.4e-6, 14e-6, 1.0, joined_s=3e-6, plateau=1.4)
#: A tree's low-latency protocol. Over pods LL is held to this bus bandwidth (`llMaxBws`).
TREE = Protocol("LL", 6.8e-6, 0.6e-6, 5e-6, 0.92 / 3.8)
LL_BYTES_PER_S = 20.4e9


def nccl_stages(
    members: int, load: float, sent: float, rate: Rate, group: int = 0
) -> tuple[Stage, ...]:
    """All-reduce inside one pod: the fit of NCCL alone, up to the group it was measured on.

    Larger groups are reduced in the switch, where there is one that does, or by a ring, or a
    tree. `load` and `sent` are those of an all-gather, (n-1)/n; `group` are the devices of all
    pods together, where there are several.
    """
    measured = Stage("direct", 2 * load, 2 * sent, 2, members - 1, fit="all-reduce-nccl")
    fit = rate.fit("all-reduce-nccl")
    if fit is None or not fit.devices or members <= fit.devices:
        return (measured,)
    allowed = rate.tier.algorithms or ("ring", "tree")
    found = in_switch(members, rate, "all-reduce-nccl", group)
    if "ring" in allowed:
        found += _rings_inside(members, load, sent, rate)
    if "tree" in allowed:
        steps_s = TREE.base_s + 2 * log2_floor(members) * max(TREE.pod_s, rate.hop_s)
        found += (Stage("tree", 2.0 / TREE.share, 2.0, 0, 3, fit=_UNFITTED, steps_s=steps_s),)
    return found or (measured,)


def _rings_inside(members: int, load: float, sent: float, rate: Rate) -> tuple[Stage, ...]:
    return tuple(
        Stage(
            f"ring {one.name}", 2 * load / one.share, 2 * sent, 0, fit=_UNFITTED,
            steps_s=one.base_s + 2 * (members - 1) * max(one.pod_s, rate.hop_s),
        )
        for one in (LL, LL128, SIMPLE)
    )  # fmt: skip


def nccl_over_pods(
    vector_bytes: float, spread: Spread, rates: Sequence[Rate]
) -> list[CollectiveTime]:
    """Rings over every device of every pod, and a tree; those that the tiers allow."""
    found = []
    if _allowed("ring", spread, rates):
        found += [_ring(one, vector_bytes, spread, rates) for one in (LL128, SIMPLE)]
    if _allowed("tree", spread, rates):
        found.append(_tree(vector_bytes, spread, rates))
    return found


def _allowed(algorithm: str, spread: Spread, rates: Sequence[Rate]) -> bool:
    tiers = [rate.tier for rate in rates[: spread.top + 1]]
    return all(not tier.algorithms or algorithm in tier.algorithms for tier in tiers)


def _ring(
    protocol: Protocol, vector: float, spread: Spread, rates: Sequence[Rate]
) -> CollectiveTime:
    """2 (n-1) steps; one ring for every member of a pod, each with a rail of its own.

    So a device's link inside the pod carries 2 (n-1)/n V in all, and its network port the share
    of one of m rings. Steps wait for each other, links work at the same time.
    """
    n = spread.size
    steps = 2 * (n - 1)
    latency_s = 0.0
    for i, level in enumerate(spread.levels):
        step_s = max(protocol.network_s if i else max(protocol.pod_s, protocol.joined_s),
                     rates[i].hop_s)  # fmt: skip
        latency_s += steps * level.ring_edges / n * step_s
    latency_s = (protocol.base_s + latency_s) * protocol.plateau
    phases = []
    for i, level in enumerate(spread.levels):
        if level.ring_edges == 0:
            continue
        load = steps / n / level.least / protocol.share
        sent = steps / n * level.ring_edges / n
        stage = Stage("ring", load, sent, 0, fit=_UNFITTED, steps_s=latency_s)
        phases.append(Step(i, stage, vector, vector, f"rings, {protocol.name}"))
    formula = "2 (n-1) steps + 2 (n-1)/n V / min(B_in, m B_out)"
    return build(phases, rates, _UNFITTED, f"flat ring {protocol.name}", formula, _SOURCE,
                 concurrent=True)  # fmt: skip


def _tree(vector: float, spread: Spread, rates: Sequence[Rate]) -> CollectiveTime:
    """A tree over all devices, up and down, of which only log2 k rounds leave a pod.

    For small messages. NCCL 2.26.2 chains the GPUs of a node instead of that tree's lower rounds:
    7 steps for 3 on the boards of eight that its constants are for. Over a rack of 72 that chain
    would be 71 steps, over a photonic pod 1151, slower than to treat them as boards; so here it
    is never taken. `log2` as in its cost model, rounded down.
    """
    pods = spread.levels[1].subunits
    across = log2_floor(pods)
    latency_s = TREE.base_s + 2 * (
        (log2_floor(spread.size) - across) * max(TREE.pod_s, rates[0].hop_s)
        + across * max(TREE.network_s, *(rate.hop_s for rate in rates[1 : spread.top + 1]))
    )
    phases = []
    for i, level in enumerate(spread.levels):
        if level.ring_edges == 0:
            continue
        limit = rates[i].unfitted_bytes_per_s / LL_BYTES_PER_S
        load = 2 * max(1.0 / TREE.share / level.least, limit)
        sent = 2 * level.ring_edges / spread.size
        stage = Stage("tree", load, sent, 0, 3, fit=_UNFITTED, steps_s=latency_s)
        phases.append(Step(i, stage, vector, vector, "tree, LL"))
    formula = "2 log2 n steps, 2 log2 k of them across, + 2 V / B"
    return build(phases, rates, _UNFITTED, "tree", formula, _SOURCE, concurrent=True)


def log2_floor(count: int) -> int:
    """Rounds of a tree over `count`, as NCCL's cost model counts them (`log2i`)."""
    return max(0, count.bit_length() - 1)
