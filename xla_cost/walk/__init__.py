"""From a Module to the hardware-free Program."""

from xla_cost.walk.custom_calls import DEFAULT_RULES
from xla_cost.walk.rules import CallCost, CustomCall, CustomCallRule, Rules
from xla_cost.walk.walker import walk

__all__ = ["DEFAULT_RULES", "CallCost", "CustomCall", "CustomCallRule", "Rules", "walk"]
