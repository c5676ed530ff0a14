"""The parametric forms of kernel time: few parameters, each with a physical meaning.

All of them are `floor + smooth maximum of compute and memory time`, where each half size
is the size at which a resource reaches half its best rate (a saturation curve, x / (x + half)).
They are monotone in every size and stay finite and positive outside the fitted range.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FitRecord:
    """Where the numbers of a fit come from, and how well they predict rows not fitted.

    Errors are absolute relative errors (0.08 is 8 %) over held-out rows of at least 1 GFLOP
    (for streams and collectives: of at least 1 MB); `_all` counts the small ones as well.
    None where the numbers were not fitted (constants from a publication). `rows` were fitted.
    """

    source: str = ""
    rows: int = 0
    held_out_rows: int = 0
    median_error: float | None = None
    p90_error: float | None = None
    median_error_all: float | None = None
    p90_error_all: float | None = None


@dataclass(frozen=True, slots=True)
class GemmFit:
    """Time of a dense or grouped GEMM in one number format.

    - `efficiency`: share of peak that a large product reaches.
    - `half_m`, `half_n`: rows and columns of tile padding, added to each product.
    - `half_k`: depth of prologue and epilogue in units of k.
    - `half_outputs`: output elements that fill half the multiprocessors.
    - `memory_efficiency`: share of memory bandwidth for operands and result.
    - `sharpness`: exponent of the smooth maximum (large: perfect overlap, 1: none).
    - `floor_us`: launch and fixed work.
    """

    efficiency: float
    half_m: float = 0.0
    half_n: float = 0.0
    half_k: float = 0.0
    half_outputs: float = 0.0
    memory_efficiency: float = 0.8
    sharpness: float = 4.0
    floor_us: float = 3.0
    record: FitRecord = field(default_factory=FitRecord)


@dataclass(frozen=True, slots=True)
class AttentionFit:
    """Time of a fused attention kernel.

    - `efficiency`: share of peak for long sequences.
    - `half_kv`: keys at which a block of queries runs at half rate (softmax, pipeline fill).
    - `half_rows`: rows of queries, over batch and heads, that fill half the multiprocessors.
    - `half_depth`: head size at which the products run at half rate beside the softmax.
    - `memory_efficiency`, `sharpness`, `floor_us`: as in `GemmFit`.
    """

    efficiency: float
    half_kv: float = 0.0
    half_rows: float = 0.0
    half_depth: float = 0.0
    memory_efficiency: float = 0.8
    sharpness: float = 4.0
    floor_us: float = 3.0
    record: FitRecord = field(default_factory=FitRecord)


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Time of a kernel that streams memory: `floor + bytes / (bandwidth * efficiency)`."""

    efficiency: float
    floor_us: float = 3.0
    record: FitRecord = field(default_factory=FitRecord)
