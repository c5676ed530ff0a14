"""Convolutions, counting only the taps that fall inside the input.

XLA:TPU writes batched matrix products as convolutions over a window of the batch size with
`pad=127_127` or with `lhs_dilate`, of which one tap per output is real; counting the whole
window makes them 128 times too big. See `HloCostAnalysis::GetConvolutionFlops` in XLA for
the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd

from xla_cost.hlo.dims import ConvLabels, WindowDim
from xla_cost.hlo.ir import Shape
from xla_cost.program import Matmul
from xla_cost.walk.formats import matmul_format


@lru_cache(maxsize=4096)
def valid_taps(size_in: int, size_out: int, window: WindowDim) -> int:
    """Pairs (output position, tap) of one spatial dimension that read a real input element.

    Output o and tap t read o * stride + t * rhs_dilate - pad_low of the dilated input, which
    is real where that is in range and a multiple of lhs_dilate.
    """
    last = (size_in - 1) * window.lhs_dilate
    if size_in <= 0 or size_out <= 0:
        return 0
    step = gcd(window.stride, window.lhs_dilate)
    period = window.lhs_dilate // step
    inverse = pow(window.stride // step, -1, period) if period > 1 else 0
    taps = 0
    for tap in range(window.size):
        offset = tap * window.rhs_dilate - window.pad_low
        low = max(0, -(offset // window.stride))  # first o with a position >= 0
        high = min(size_out - 1, (last - offset) // window.stride)
        if high < low or offset % step:
            continue
        # o * stride = -offset (mod lhs_dilate) holds for one o per period
        first = (-(offset // step) * inverse) % period if period > 1 else 0
        first += -(-(low - first) // period) * period
        if first <= high:
            taps += (high - first) // period + 1
    return taps


def conv_matmul(
    lhs: Shape,
    rhs: Shape,
    out: Shape,
    window: Sequence[WindowDim],
    labels: ConvLabels,
    *,
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> Matmul:
    """The product a convolution does. `rhs` holds input features / `feature_groups`.

    Multiply-adds are output batch x output features x kernel input features x valid taps.
    One tap per output position over a wide window is a batched product; otherwise it is an
    implicit GEMM with output positions as rows and taps x features as the inner size.
    """
    taps = positions = 1
    widest = 1
    for index, dim in enumerate(window):
        size_in = lhs.dims[labels.lhs_spatial[index]]
        size_out = out.dims[labels.out_spatial[index]]
        taps *= valid_taps(size_in, size_out, dim)
        positions *= size_out
        widest = max(widest, dim.size)
    for index in range(len(window), len(labels.out_spatial)):  # no window printed: size 1
        taps *= out.dims[labels.out_spatial[index]]
        positions *= out.dims[labels.out_spatial[index]]
    groups = feature_groups * batch_groups
    rows = out.dims[labels.out_batch]
    columns = out.dims[labels.out_feature] // groups
    inner = rhs.dims[labels.rhs_input_feature]
    form = matmul_format(lhs.dtype, rhs.dtype)
    complex_factor = 4 if lhs.dtype in ("c64", "c128") else 1
    batch = groups * complex_factor
    if taps == positions and widest > 1:
        return Matmul(batch * positions, rows, columns, inner, form)
    shared = gcd(taps, positions)
    if shared == 0:
        return Matmul(batch, 0, columns, inner, form)
    return Matmul(batch, rows * shared, columns, inner * (taps // shared), form)
