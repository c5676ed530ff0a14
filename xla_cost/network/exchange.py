"""All-to-all: what stays in the device, in the pod, and crosses; dispatch that sends once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xla_cost.errors import XlaCostError
from xla_cost.network.builder import Step, best, build
from xla_cost.network.inner import Inner
from xla_cost.network.policy import NetworkPolicy, distinct_places
from xla_cost.network.result import CollectiveTime
from xla_cost.network.spread import Spread
from xla_cost.network.stage import Rate, Stage

_DIRECT = "Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005 (pairwise exchange)"
_DEEPEP = "two-step dispatch of DeepSeek-V3 (arXiv 2412.19437, section 3.2.2) and DeepEP"


def exchange_time(
    kind: str, vector_bytes: float, spread: Spread, inner: Inner, rates: Sequence[Rate],
    policy: NetworkPolicy,
) -> CollectiveTime:  # fmt: skip
    """All-to-all of `vector_bytes` per device, the chunk for itself included.

    Direct, or in two steps: over the tiers to the device of the same index in the target pod,
    which forwards inside it. Two steps are what `rail` networks and `dedup` need. Raises
    XlaCostError for an imbalance above the size of the group.
    """
    if policy.imbalance > spread.size:
        raise XlaCostError(
            f"{kind} of {spread.size} ranks: imbalance = {policy.imbalance:g}; must be <= "
            f"{spread.size}, one rank that has all the load"
        )
    direct = _direct(kind, vector_bytes, spread, inner, rates, policy)
    if spread.top == 0:
        return direct
    crosses_rails = any(rate.tier.topology == "rail" for rate in rates[1 : spread.top + 1])
    if policy.dedup != "none" or crosses_rails:
        return _two_step(kind, vector_bytes, spread, inner, rates, policy)
    if policy.cross_pod in ("best", "library", "nccl", "hierarchical"):
        return best([direct, _two_step(kind, vector_bytes, spread, inner, rates, policy)])
    return direct


def _inside_factor(spread: Spread, policy: NetworkPolicy) -> float:
    """Share of the copies left when a token goes once to each device of the group."""
    if policy.dedup != "device":
        return 1.0
    return distinct_places(policy.top_k, spread.size) / policy.top_k


def _whole(spread: Spread, inner: Inner, policy: NetworkPolicy) -> float:
    """Share of the vector that leaves the device on any tier, (n-1)/n where a switch carries it.

    On a torus what it loads the links with, as if all of the group were in one unit.
    """
    peers = spread.levels[0].peers
    links = inner.exchange.load / peers if peers else 1.0
    return (spread.size - 1) / spread.size * links * _inside_factor(spread, policy)


def _direct(
    kind: str, vector: float, spread: Spread, inner: Inner, rates: Sequence[Rate],
    policy: NetworkPolicy,
) -> CollectiveTime:  # fmt: skip
    factor, whole = _inside_factor(spread, policy), _whole(spread, inner, policy)
    through = 0.0  # peers' share that also loads the innermost tier
    steps = []
    for i, level in enumerate(spread.levels):
        if i and level.peers > 0.0:
            partners = round(level.peers * spread.size)
            stage = Stage("direct", level.peers * factor, level.peers_mean * factor, 1, partners)
            steps.append(Step(i, stage, vector, vector, _WHAT[1], policy.imbalance, whole))
            if rates[i].tier.through_inner:
                through += level.peers
    exchange = inner.exchange
    if exchange.load > 0.0:
        # energy of the inner part of a crossing byte is in the outer tier's own figure
        load = (exchange.load + through) * factor
        stage = replace(exchange, load=load, sent=exchange.sent * factor)
        steps.insert(0, Step(0, stage, vector, vector, _WHAT[0], policy.imbalance, whole))
    return build(
        steps, rates, kind, "direct", "per tier (M-m)/n V / B", _DIRECT,
        concurrent=policy.concurrent_tiers,
    )  # fmt: skip


_WHAT = ("inside the pod", "across pods")


def _two_step(
    kind: str, vector: float, spread: Spread, inner: Inner, rates: Sequence[Rate],
    policy: NetworkPolicy,
) -> CollectiveTime:  # fmt: skip
    """Across first, to the peer of the same index, then inside: (m-1)/m V there.

    With `dedup`, of the k copies of a token only one goes to each distinct pod:
    p (1 - (1 - 1/p)^k) expected, of which the share (p-1)/p leaves its own.
    """
    pods = spread.levels[1].subunits
    once = 1.0
    if policy.dedup != "none":
        once = distinct_places(policy.top_k, pods, policy.max_pods) / policy.top_k
    whole = _whole(spread, inner, policy)
    steps = []
    for i in range(1, spread.top + 1):
        level = spread.levels[i]
        partners = level.fan - 1
        stage = Stage("same index", level.peers * once, level.peers_mean * once, 1, partners)
        steps.append(Step(i, stage, vector, vector, _WHAT[1], policy.imbalance, whole))
    if inner.exchange.load > 0.0:
        # every copy bound for this pod passes inside it once, wherever it came from
        scale = spread.size / spread.levels[1].inside * _inside_factor(spread, policy)
        exchange = inner.exchange
        stage = replace(
            exchange, algorithm="forward", load=exchange.load * scale, sent=exchange.sent * scale
        )
        steps.append(Step(0, stage, vector, vector, _WHAT[0], policy.imbalance, whole))
    formula = "(M-m)/n V d / B_out, then (m-1)/m V / B_in; d: distinct pods / top-k"
    return build(
        steps, rates, kind, "two-step", formula, _DEEPEP, concurrent=policy.concurrent_tiers
    )
