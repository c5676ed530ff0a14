"""The arithmetic of the forms, in one place for pricing and for fitting.

Written with operators only, so that the same functions take floats (pricing) and numpy
arrays (fitting): there is no vectorised twin that could drift.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from xla_cost.kernel_time.efficiency import AttentionFit, GemmFit, MemoryFit

#: A float, or a numpy array of them.
Number: TypeAlias = Any

#: Largest exponent of the smooth maximum; above it a power of a time in us may underflow.
MAX_SHARPNESS = 20.0


def smooth_max(first_s: Number, second_s: Number, sharpness: float) -> Number:
    """`(a^p + b^p)^(1/p)`: between max(a, b) and a + b. Taken in us to stay in range."""
    first, second = first_s * 1e6, second_s * 1e6
    return (first**sharpness + second**sharpness) ** (1.0 / sharpness) * 1e-6


def gemm_compute_s(
    fit: GemmFit, batch: Number, m: Number, n: Number, k: Number, rate_flops: float
) -> Number:
    """Matrix-unit seconds of `batch` products at peak `rate_flops`, padding and ramps included."""
    outputs = batch * (m + fit.half_m) * (n + fit.half_n) + fit.half_outputs
    return 2.0 * outputs * (k + fit.half_k) / (rate_flops * fit.efficiency)


def attention_compute_s(
    fit: AttentionFit, rows: Number, keys: Number, depth: Number, flops: Number, rate_flops: float
) -> Number:
    """Matrix-unit seconds of attention.

    `rows` of queries over batch and heads, `keys` each, heads of size `depth`.
    """
    ramp = (1.0 + fit.half_kv / keys) * (1.0 + fit.half_rows / rows)
    return ramp * (1.0 + fit.half_depth / depth) * flops / (rate_flops * fit.efficiency)


def kernel_total_s(
    fit: GemmFit | AttentionFit, compute_s: Number, total_bytes: Number, bytes_per_s: float
) -> Number:
    """Floor plus the smooth maximum of compute and memory time."""
    memory = total_bytes / (bytes_per_s * fit.memory_efficiency)
    return fit.floor_us * 1e-6 + smooth_max(compute_s, memory, fit.sharpness)


def stream_s(fit: MemoryFit, total_bytes: Number, bytes_per_s: float) -> Number:
    """Seconds of a kernel that only streams memory."""
    return fit.floor_us * 1e-6 + total_bytes / (bytes_per_s * fit.efficiency)
