"""Rules for library matrix products: cuBLAS, Triton, oneDNN, cuDNN convolutions, block scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xla_cost.hlo.dims import batch_group_count, conv_labels, feature_group_count, window
from xla_cost.hlo.ir import Shape
from xla_cost.program import Matmul
from xla_cost.walk.config import find_key, ints
from xla_cost.walk.convolution import conv_matmul
from xla_cost.walk.matmul import dot_matmul, ragged_matmuls
from xla_cost.walk.rules import CallCost, CustomCall, CustomCallRule


def cublas(call: CustomCall) -> CallCost | None:
    """`__cublas$gemm`, `__cublas$lt$matmul` and its `$f8`: dimension numbers in the config."""
    if len(call.arrays) < 2:
        return None
    lhs, rhs = call.arrays[:2]
    numbers = find_key(call.config, "dot_dimension_numbers")
    if isinstance(numbers, dict):
        product = _dot(lhs, rhs, numbers)
    else:
        guessed = plain_product(lhs, rhs)
        if guessed is None:
            return None
        product = guessed
    written = sum(shape.bytes for shape in call.results)
    return CallCost("matmul", (product,), bytes_written=written)


def cublas_grouped(call: CustomCall) -> CallCost | None:
    """`__cublas$lt$groupedMatmul`: a ragged-dot, upper bound as there."""
    numbers = find_key(call.config, "ragged_dot_dimension_numbers")
    if not isinstance(numbers, dict) or len(call.arrays) < 3:
        return None
    dot = numbers.get("dot_dimension_numbers")
    if not isinstance(dot, dict):
        return None
    products = ragged_matmuls(
        call.arrays[0],
        call.arrays[1],
        call.arrays[2],
        **_dims(dot),
        lhs_ragged=ints(numbers.get("lhs_ragged_dimensions")),
        rhs_group=ints(numbers.get("rhs_group_dimensions")),
    )
    written = sum(shape.bytes for shape in call.results)
    return CallCost("matmul", products, bytes_written=written, note="upper bound: all rows used")


def _dot(lhs: Shape, rhs: Shape, numbers: Mapping[str, Any]) -> Matmul:
    dims = _dims(numbers)
    return dot_matmul(
        lhs,
        rhs,
        lhs_contracting=dims["lhs_contracting"],
        rhs_contracting=dims["rhs_contracting"],
        lhs_batch=dims["lhs_batch"],
        rhs_batch=dims["rhs_batch"],
    )


def _dims(numbers: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {
        "lhs_contracting": ints(numbers.get("lhs_contracting_dimensions")),
        "rhs_contracting": ints(numbers.get("rhs_contracting_dimensions")),
        "lhs_batch": ints(numbers.get("lhs_batch_dimensions")),
        "rhs_batch": ints(numbers.get("rhs_batch_dimensions")),
    }


def plain_product(lhs: Shape, rhs: Shape) -> Matmul | None:
    """[.., m, k] by [.., k, n] (or [.., n, k], where only that fits); None where neither fits."""
    if len(lhs.dims) < 2 or len(rhs.dims) < 2:
        return None
    batch = tuple(range(min(len(lhs.dims), len(rhs.dims)) - 2))
    if any(lhs.dims[d] != rhs.dims[d] for d in batch):
        return None
    last, before_last = len(rhs.dims) - 1, len(rhs.dims) - 2
    for contracting in (before_last, last):
        if rhs.dims[contracting] == lhs.dims[-1]:
            return dot_matmul(
                lhs,
                rhs,
                lhs_contracting=(len(lhs.dims) - 1,),
                rhs_contracting=(contracting,),
                lhs_batch=batch,
                rhs_batch=batch,
            )
    return None


def onednn_matmul(call: CustomCall) -> CallCost | None:
    """`__onednn$matmul`: plain [.., m, k] by [.., k, n], further operands are fused."""
    if len(call.arrays) < 2:
        return None
    product = plain_product(call.arrays[0], call.arrays[1])
    if product is None:
        return None
    return CallCost("matmul", (product,), bytes_written=sum(s.bytes for s in call.results))


def block_scaled_dot(call: CustomCall) -> CallCost | None:
    """`__op$block_scaled_dot`: both sides contract their last dimension.

    Operands are values of both sides, then their scales; batch is a leading dimension of
    rank-3 operands (XLA's BlockScalingRewriter).
    """
    if len(call.arrays) < 2:
        return None
    lhs, rhs = call.arrays[:2]
    if len(lhs.dims) < 2 or len(rhs.dims) != len(lhs.dims) or lhs.dims[-1] != rhs.dims[-1]:
        return None
    last, batch = len(lhs.dims) - 1, tuple(range(len(lhs.dims) - 2))
    product = dot_matmul(
        lhs, rhs, lhs_contracting=(last,), rhs_contracting=(last,), lhs_batch=batch, rhs_batch=batch
    )
    return CallCost("matmul", (product,))


def cudnn_conv(role: str) -> CustomCallRule:
    """Rule for a cuDNN convolution. Labels and window are the forward one's in all of them.

    `role` is which of input, filter and output is the call's result.
    """

    def rule(call: CustomCall) -> CallCost | None:
        if len(call.arrays) < 2 or not call.results:
            return None
        first, second, result = call.arrays[0], call.arrays[1], call.results[0]
        image, kernel, out = {
            "output": (first, second, result),
            "input": (result, second, first),
            "filter": (first, result, second),
        }[role]
        product = conv_matmul(
            image,
            kernel,
            out,
            window(call.instruction).dims,
            conv_labels(call.instruction),
            feature_groups=feature_group_count(call.instruction),
            batch_groups=batch_group_count(call.instruction),
        )
        written = sum(shape.bytes for shape in call.results)
        return CallCost("matmul", (product,), bytes_written=written)

    return rule


GEMM_CALLS: Mapping[str, CustomCallRule] = {
    "__cublas$gemm": cublas,
    "__cublas$lt$matmul": cublas,
    "__cublas$lt$matmul$f8": cublas,
    "__cublas$lt$groupedMatmul": cublas_grouped,
    "__triton_gemm": cublas,
    "__onednn$matmul": onednn_matmul,
    "__op$block_scaled_dot": block_scaled_dot,
    "__cudnn$blockScaledDot": block_scaled_dot,
    "__cudnn$convForward": cudnn_conv("output"),
    "__cudnn$convForwardGraph": cudnn_conv("output"),
    "__cudnn$convBiasActivationForward": cudnn_conv("output"),
    "__cudnn$convBackwardInput": cudnn_conv("input"),
    "__cudnn$convBackwardFilter": cudnn_conv("filter"),
    "__onednn$convolution": cudnn_conv("output"),
}
GEMM_PREFIXES: Mapping[str, CustomCallRule] = {"__cublas$": cublas}
