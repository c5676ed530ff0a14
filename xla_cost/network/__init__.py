"""Collectives on a machine's network tiers: which bytes go over which links, and how long."""

from xla_cost.network.policy import (
    CALIBRATED,
    POLICIES,
    STUDY,
    NetworkPolicy,
    distinct_places,
    network_policy,
    zipf_imbalance,
)
from xla_cost.network.price import collective_time, role_of
from xla_cost.network.result import CollectiveTime, Phase

__all__ = [
    "CALIBRATED",
    "POLICIES",
    "STUDY",
    "CollectiveTime",
    "NetworkPolicy",
    "Phase",
    "collective_time",
    "distinct_places",
    "network_policy",
    "role_of",
    "zipf_imbalance",
]
