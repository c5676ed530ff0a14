"""The integer clock. Exact sums of step times need no rounding, so runs repeat byte for byte.

Durations and energies are whole numbers of quanta, 2**60 to the second or joule (0.87
attoseconds), and context lengths whole numbers of units, 1024 to the token. A stretch of
decode iterations then has a closed-form duration that equals the sum of its iterations to the
last digit, which floating point would not give.
"""

from __future__ import annotations

#: Clock ticks in one second, and energy quanta in one joule.
TICKS_PER_S = 2**60

#: Context units in one token: multi-token prediction makes a context grow by fractions.
UNITS_PER_TOKEN = 1024


def to_ticks(seconds: float) -> int:
    """`seconds` (or joules) as the nearest whole number of ticks."""
    return round(seconds * TICKS_PER_S)


def to_s(ticks: int) -> float:
    """Ticks as seconds (or quanta as joules)."""
    return ticks / TICKS_PER_S
