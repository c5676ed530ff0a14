"""Program x Machine x Policy -> Timeline -> Estimate."""

from xla_cost.policy import CALIBRATED, POLICIES, STUDY, Policy, policy
from xla_cost.price.compare import Comparison, compare
from xla_cost.price.estimate import Estimate
from xla_cost.price.memory import Energy, Memory
from xla_cost.price.pricing import price
from xla_cost.price.timeline import Event, LoopSpan, Timeline

__all__ = [
    "CALIBRATED",
    "POLICIES",
    "STUDY",
    "Comparison",
    "Energy",
    "Estimate",
    "Event",
    "LoopSpan",
    "Memory",
    "Policy",
    "Timeline",
    "compare",
    "policy",
    "price",
]
