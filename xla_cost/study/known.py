"""What is known of the study's own results (arXiv 2609.01821, as reported by digests of it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xla_cost.study.cells import Column

_1K, _8K, _128K, _1M = 1024, 8192, 131072, 1048576


@dataclass(frozen=True, slots=True)
class Components:
    """Component times in seconds for R1, FP4 on B300; None where no digest gives one."""

    compute_s: float
    copper_comm_s: float
    photonic_comm_s: float | None = None


COMPONENTS: Mapping[Column, Components] = {
    Column(_8K, 72): Components(16.8, 40.6, 10.2),
    Column(_128K, 72): Components(56.1, 20.3),
    Column(_128K, 288): Components(14.3, 35.5, 2.3),
    Column(_1M, 1152): Components(26.2, 39.2, 1.6),
}

#: Overlapped latency of the photonic B300 at 1M on 1152 devices.
PHOTONIC_1M_1152_S = 27.5

#: Table IV, R1, FP4: copper over photonic overlapped latency, (low, high) as digests round it.
RATIOS: Mapping[str, Mapping[Column, tuple[float, float]]] = {
    "b200": {
        Column(_1K, 16): (2.11, 2.22),
        Column(_1K, 72): (2.28, 2.36),
        Column(_8K, 16): (1.59, 1.62),
        Column(_8K, 72): (2.01, 2.06),
        Column(_128K, 16): (1.07, 1.07),
        Column(_128K, 72): (1.23, 1.23),
        Column(_128K, 288): (4.12, 4.46),
        Column(_1M, 288): (1.03, 1.03),
        Column(_1M, 576): (1.53, 1.54),
        Column(_1M, 1152): (3.41, 3.45),
    },
    "b300": {
        Column(_1K, 16): (2.32, 2.38),
        Column(_1K, 72): (2.53, 2.58),
        Column(_8K, 16): (1.65, 1.67),
        Column(_8K, 72): (2.18, 2.21),
        Column(_128K, 16): (1.07, 1.07),
        Column(_128K, 72): (1.24, 1.25),
        Column(_128K, 288): (2.83, 2.93),
        Column(_1M, 288): (1.04, 1.04),
        Column(_1M, 576): (1.29, 1.30),
        Column(_1M, 1152): (2.27, 2.28),
    },
}


def deviation(value: float, known: tuple[float, float]) -> float:
    """Relative distance of `value` to the range (low, high): 0 inside, signed outside."""
    low, high = known
    nearest = min(max(value, low), high)
    return value / nearest - 1
