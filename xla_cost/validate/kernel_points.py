"""Kernels that the measurements quote: large GEMMs and MLA prefill attention.

The rows (m = 8192; 128 heads at 8192) are reserved by `xla-cost calibrate`.
"""

from __future__ import annotations

from statistics import median

from xla_cost.kernel_time import kernel_s, matmul_s, peak_flops
from xla_cost.machine import load
from xla_cost.program import Matmul, Op
from xla_cost.validate.points import Point

_GEMM = (
    "aiconfigurator-core 0.12.0 gemm/trtllm at m = 8192, middle of the range over shapes; rows "
    "reserved from the fit"
)
#: (machine, format) -> lowest and highest share of dense peak
_SHARES = {
    ("h100", "bf16"): (0.78, 0.82),
    ("h100", "fp8"): (0.47, 0.57),
    ("b200", "bf16"): (0.61, 0.69),
    ("b200", "fp8"): (0.53, 0.58),
    ("b200", "fp4"): (0.31, 0.39),
    ("gb300", "bf16"): (0.69, 0.76),
    ("gb300", "fp8"): (0.59, 0.63),
    ("gb300", "fp4"): (0.18, 0.32),
}
_WIDTH = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
_SIZES = (4096, 7168, 8192, 16384)
_FASTER = (
    "the range is TensorRT-LLM's, quantisation of activations included where it does that; the "
    "fit is to the fastest kernel of three frameworks"
)

_MLA = (
    "aiconfigurator-core 0.12.0 mla/trtllm context attention, 128 heads, 8192 causal; rows "
    "reserved from the fit"
)
_MLA_TFLOPS = {
    ("h100", "bf16"): 536,
    ("h100", "fp8"): 601,
    ("b200", "bf16"): 1154,
    ("b200", "fp8"): 1392,
    ("gb300", "bf16"): 1536,
    ("gb300", "fp8"): 1760,
}


def kernel_points() -> list[Point]:
    """All comparisons that need only kernel times."""
    return [*_gemm_points(), *_mla_points()]


def _gemm_points() -> list[Point]:
    points = []
    for (name, number_format), (low, high) in _SHARES.items():
        machine = load(name)
        peak = peak_flops(machine, number_format)
        shares = []
        for n in _SIZES:
            for k in _SIZES:
                gemm = Matmul(1, 8192, n, k, number_format)
                read = _WIDTH[number_format] * (8192 * k + n * k)
                shares.append(gemm.flops / peak / matmul_s(machine, gemm, read, 2.0 * 8192 * n))
        points.append(
            Point("gemm at m = 8192", f"{number_format}, n and k 4096 to 16384", name,
                  "share of peak", (low + high) / 2, median(shares), _GEMM, _FASTER)
        )  # fmt: skip
    return points


def _mla_points() -> list[Point]:
    points = []
    heads = batch = 128
    length = 8192
    for (name, number_format), measured in _MLA_TFLOPS.items():
        machine = load(name)
        scores = Matmul(batch, length, length, 192, number_format)
        values = Matmul(batch, length, 128, length, number_format)
        rows = 2 * length * heads * (192 + 128)
        op = Op("mla", "kernel", "kernel", (), matmuls=(scores, values), work=0.5,
                region="flash_attention", bytes_read=rows, bytes_written=rows)  # fmt: skip
        predicted = 0.5 * op.flops / kernel_s(machine, op) / 1e12
        points.append(
            Point("mla prefill", f"{number_format}, 8192 causal", name, "TFLOP/s", measured,
                  predicted, _MLA)
        )  # fmt: skip
    return points
