"""Predictions beside everything measured that no fit has seen."""

from xla_cost.validate.points import BARS, Point, Summary, describe, summaries
from xla_cost.validate.run import PARTS, Outcome, validate

__all__ = ["BARS", "PARTS", "Outcome", "Point", "Summary", "describe", "summaries", "validate"]
