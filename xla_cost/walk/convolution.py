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
def valid_taps(size_in: int, size_out: int, window: WindowDim) -> tuple[int, int]:
    """Of one spatial dimension, the pairs (output position, tap) that read a real input
    element, and the taps that are in at least one of them.

    Output o and tap t read o * stride + t * rhs_dilate - pad_low of the dilated input, which
    is real where that is in range and a multiple of lhs_dilate.
    """
    last = (size_in - 1) * window.lhs_dilate
    if size_in <= 0 or size_out <= 0:
        return 0, 0
    step = gcd(window.stride, window.lhs_dilate)
    period = window.lhs_dilate // step
    inverse = pow(window.stride // step, -1, period) if period > 1 else 0
    pairs = used = 0
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
            pairs += (high - first) // period + 1
            used += 1
    return pairs, used


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
    In general it is an implicit GEMM: a row per output position, and as the inner size the
    kernel's input features times the taps that an output position has on average, rounded up
    (`Matmul.padded` takes off what rounding adds). Where every position has one tap and all
    taps have equally many, as in a batched product over a wide window or a 2x2 upsampling of
    stride 2, there is one product per tap.
    """
    pairs = positions = kernel = 1
    for index, dim in enumerate(window):
        size_out = out.dims[labels.out_spatial[index]]
        found, used = valid_taps(lhs.dims[labels.lhs_spatial[index]], size_out, dim)
        pairs *= found
        kernel *= used
        positions *= size_out
    for index in range(len(window), len(labels.out_spatial)):  # no window printed: size 1
        pairs *= out.dims[labels.out_spatial[index]]
        positions *= out.dims[labels.out_spatial[index]]
    rows = out.dims[labels.out_batch]
    groups = feature_groups * batch_groups
    columns = out.dims[labels.out_feature] // groups
    inner = rhs.dims[labels.rhs_input_feature]
    form = matmul_format(lhs.dtype, rhs.dtype)
    complex_factor = 4 if lhs.dtype in ("c64", "c128") else 1
    batch = groups * complex_factor
    if pairs == positions and kernel > 1 and positions % kernel == 0:
        return Matmul(batch * kernel, rows * positions // kernel, columns, inner, form)
    depth = -(-inner * pairs // positions) if positions else inner
    padded = rows * columns * (positions * depth - inner * pairs)
    return Matmul(batch, rows * positions, columns, depth, form, padded=padded)
