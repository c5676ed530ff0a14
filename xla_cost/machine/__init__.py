"""Machine tables: strict TOML, every figure with its source."""

from xla_cost.machine.derive import hybrid, scaled, with_tier
from xla_cost.machine.loader import load, names
from xla_cost.machine.model import CollectiveFit, Figure, Machine, Tier

__all__ = [
    "CollectiveFit",
    "Figure",
    "Machine",
    "Tier",
    "hybrid",
    "load",
    "names",
    "scaled",
    "with_tier",
]
