"""Least squares on the logarithm of time, and the errors on rows that were not fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xla_cost.calibrate.rows import SMALL_WEIGHT, Floats, Rows
from xla_cost.errors import XlaCostError
from xla_cost.kernel_time.efficiency import AttentionFit, FitRecord, GemmFit, MemoryFit
from xla_cost.kernel_time.forms import (
    attention_compute_s,
    gemm_compute_s,
    kernel_total_s,
    stream_s,
)

KernelFit = GemmFit | AttentionFit | MemoryFit

#: Residual beyond which a row pulls linearly: outliers are other kernels, not other physics.
OUTLIER = 0.15


@dataclass(frozen=True, slots=True)
class Parameter:
    """Start and bounds of one fitted number."""

    start: float
    low: float
    high: float


_COMMON = {
    "efficiency": Parameter(0.6, 0.02, 1.0),
    "memory_efficiency": Parameter(0.8, 0.05, 1.0),
    "sharpness": Parameter(3.0, 1.0, 12.0),
    "floor_us": Parameter(4.0, 0.5, 100.0),
}
_GEMM = {
    **_COMMON,
    "half_m": Parameter(16.0, 0.0, 1024.0),
    "half_n": Parameter(64.0, 0.0, 2048.0),
    "half_k": Parameter(200.0, 0.0, 8192.0),
    "half_outputs": Parameter(2e5, 0.0, 1e8),
}
_ATTENTION = {
    **_COMMON,
    "half_kv": Parameter(500.0, 0.0, 65536.0),
    "half_rows": Parameter(1000.0, 0.0, 1e7),
    "half_depth": Parameter(30.0, 0.0, 1024.0),
}
_ONE_DEPTH = {k: v for k, v in _ATTENTION.items() if k != "half_depth"}
_STREAM = {"efficiency": Parameter(0.6, 0.02, 1.0), "floor_us": Parameter(2.0, 0.5, 50.0)}

#: kind -> (type of fit, what is fitted); the rest keeps its default
FORMS: Mapping[str, tuple[type[Any], Mapping[str, Parameter]]] = {
    "gemm": (GemmFit, _GEMM),
    "grouped_gemm": (GemmFit, _GEMM),
    "flash_attention": (AttentionFit, _ATTENTION),
    "flash_decode": (AttentionFit, _ATTENTION),
    "mla_prefill": (AttentionFit, _ONE_DEPTH),
    "mla_decode": (AttentionFit, _ONE_DEPTH),
    "quantize": (MemoryFit, _STREAM),
}


def predict(fit: Any, rows: Rows, rate_flops: float, bytes_per_s: float) -> Floats:
    """Seconds that `fit` gives each row."""
    if rows.attention is not None:
        compute = attention_compute_s(fit, *rows.attention, rate_flops)
        total = kernel_total_s(fit, compute, rows.total_bytes, bytes_per_s)
    elif rows.products:
        total = sum(
            kernel_total_s(fit, gemm_compute_s(fit, batch, m, n, k, rate_flops), moved, bytes_per_s)
            for batch, m, n, k, moved in rows.products
        )
    else:
        total = stream_s(fit, rows.total_bytes, bytes_per_s)
    return np.asarray(total)


def fit_rows(rows: Rows, rate_flops: float, bytes_per_s: float, version: str) -> KernelFit:
    """Fit the form of `rows.kind` to the rows not held out; the record says how good it is.

    Deterministic: fixed starts, no random numbers, a trust-region solver.
    """
    fit_type, parameters = FORMS[rows.kind]
    parameters = _identifiable(parameters, rows)
    held_out = rows.held_out
    fitted = rows.take(~held_out)
    weight = np.where(fitted.large, 1.0, SMALL_WEIGHT)

    def make(vector: Any) -> Any:
        return fit_type(**dict(zip(parameters, map(float, vector), strict=True)))

    def residual(vector: Any) -> Floats:
        predicted = predict(make(vector), fitted, rate_flops, bytes_per_s)
        return np.asarray(np.log(predicted / fitted.seconds) * weight)

    best = make(solve(residual, parameters))
    rounded = replace(best, **{name: rounding(getattr(best, name)) for name in parameters})
    record = _record(rows, rounded, rate_flops, bytes_per_s, version)
    found: KernelFit = replace(rounded, record=record)
    return found


def _identifiable(parameters: Mapping[str, Parameter], rows: Rows) -> Mapping[str, Parameter]:
    """Without what the rows cannot tell apart: n and k ramps where hardly any n and k vary."""
    shapes = {(n, k) for _, _, n, k, _ in rows.products for n, k in zip(n, k, strict=True)}
    if not rows.products or len(shapes) >= 8:
        return parameters
    return {k: p for k, p in parameters.items() if k not in ("half_n", "half_k")}


def rounding(value: float) -> float:
    """Four digits; what the solver left at a bound of zero is zero."""
    return 0.0 if abs(value) < 1e-6 else float(f"{value:.4g}")


def solve(residual: Any, parameters: Mapping[str, Parameter]) -> Floats:
    """Bounded robust least squares from the fixed starts."""
    try:
        from scipy.optimize import least_squares
    except ModuleNotFoundError:
        raise XlaCostError(
            "calibrate: scipy is not installed; expected pip install 'xla-cost[calibrate]'"
        ) from None
    starts = np.array([p.start for p in parameters.values()])
    bounds = ([p.low for p in parameters.values()], [p.high for p in parameters.values()])
    found = least_squares(
        residual, starts, bounds=bounds, loss="soft_l1", f_scale=OUTLIER, x_scale=starts
    )
    return np.asarray(found.x)


def errors(measured: Floats, predicted: Floats) -> tuple[float | None, float | None]:
    """Median and 90th percentile of |predicted / measured - 1|; None without rows."""
    if not len(measured):
        return None, None
    off = np.abs(predicted / measured - 1.0)
    return round(float(np.median(off)), 4), round(float(np.quantile(off, 0.9)), 4)


def _record(
    rows: Rows, fit: KernelFit, rate_flops: float, bytes_per_s: float, version: str
) -> FitRecord:
    held = rows.take(rows.held_out)
    large = held.take(held.large)
    median, p90 = errors(large.seconds, predict(fit, large, rate_flops, bytes_per_s))
    median_all, p90_all = errors(held.seconds, predict(fit, held, rate_flops, bytes_per_s))
    return FitRecord(
        source=f"{version}: {rows.source}",
        rows=int((~rows.held_out).sum()),
        held_out_rows=len(held.seconds),
        median_error=median,
        p90_error=p90,
        median_error_all=median_all,
        p90_error_all=p90_all,
    )
