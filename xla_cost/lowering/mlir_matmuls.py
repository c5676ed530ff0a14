"""FLOPs of StableHLO matrix operations, by the same rules as for HLO text."""

from __future__ import annotations

import re
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from xla_cost.hlo.dims import ConvLabels, WindowDim
from xla_cost.hlo.ir import Shape
from xla_cost.walk.convolution import conv_matmul
from xla_cost.walk.matmul import dot_matmul, ragged_matmuls

_INTEGER = re.compile(r"^(u?)i(\d+)$")
_COMPLEX = {"complex<f32>": "c64", "complex<f64>": "c128"}


def matmul_flops(op: Any) -> int:
    """Return the FLOPs of a dot, ragged dot or convolution, 2 per multiply-add; else 0."""
    kind = op.operation.name
    if kind in ("stablehlo.dot_general", "stablehlo.dot"):
        return _dot_flops(op)
    if kind == "stablehlo.convolution":
        return _convolution_flops(op)
    if kind == "chlo.ragged_dot":
        return _ragged_dot_flops(op)
    return 0


def shape_of(value: Any) -> Shape:
    """Return the HLO shape of an MLIR value; dynamic sizes count as 0."""
    kind = ir.RankedTensorType(value.type)
    dims = tuple(
        0 if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)
    )
    return Shape(_dtype(str(kind.element_type)), dims)


def _dtype(name: str) -> str:
    """`f8E4M3FN` -> `f8e4m3fn`, `i8` -> `s8`, `ui8` -> `u8`, `i1` -> `pred`."""
    if name == "i1":
        return "pred"
    integer = _INTEGER.match(name)
    if integer:
        return f"{integer[1] or 's'}{integer[2]}"
    return _COMPLEX.get(name, name.lower())


def _dot_flops(op: Any) -> int:
    lhs, rhs = shape_of(op.operands[0]), shape_of(op.operands[1])
    if op.operation.name == "stablehlo.dot":  # contracts the last dimension with the first
        contracting = (len(lhs.dims) - 1,)
        return dot_matmul(lhs, rhs, lhs_contracting=contracting, rhs_contracting=(0,)).flops
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return dot_matmul(
        lhs,
        rhs,
        lhs_contracting=numbers.lhs_contracting_dimensions,
        rhs_contracting=numbers.rhs_contracting_dimensions,
        lhs_batch=numbers.lhs_batching_dimensions,
        rhs_batch=numbers.rhs_batching_dimensions,
    ).flops


def _ragged_dot_flops(op: Any) -> int:
    numbers = chlo.RaggedDotDimensionNumbers(op.attributes["ragged_dot_dimension_numbers"])
    lhs, rhs, sizes = (shape_of(operand) for operand in op.operands)
    matmuls = ragged_matmuls(
        lhs,
        rhs,
        sizes,
        lhs_contracting=numbers.lhs_contracting_dimensions,
        rhs_contracting=numbers.rhs_contracting_dimensions,
        lhs_batch=numbers.lhs_batching_dimensions,
        rhs_batch=numbers.rhs_batching_dimensions,
        lhs_ragged=numbers.lhs_ragged_dimensions,
        rhs_group=numbers.rhs_group_dimensions,
    )
    return sum(matmul.flops for matmul in matmuls)


def _convolution_flops(op: Any) -> int:
    lhs, rhs, out = shape_of(op.operands[0]), shape_of(op.operands[1]), shape_of(op.results[0])
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    labels = ConvLabels(
        lhs_batch=numbers.input_batch_dimension,
        lhs_feature=numbers.input_feature_dimension,
        lhs_spatial=tuple(numbers.input_spatial_dimensions),
        rhs_input_feature=numbers.kernel_input_feature_dimension,
        rhs_output_feature=numbers.kernel_output_feature_dimension,
        rhs_spatial=tuple(numbers.kernel_spatial_dimensions),
        out_batch=numbers.output_batch_dimension,
        out_feature=numbers.output_feature_dimension,
        out_spatial=tuple(numbers.output_spatial_dimensions),
    )
    spatial = [rhs.dims[axis] for axis in numbers.kernel_spatial_dimensions]
    count = len(spatial)
    padding = _numbers(op, "padding", [0, 0] * count)
    window = [
        WindowDim(
            size=size,
            stride=stride,
            pad_low=padding[2 * axis],
            pad_high=padding[2 * axis + 1],
            lhs_dilate=lhs_dilate,
            rhs_dilate=rhs_dilate,
        )
        for axis, (size, stride, lhs_dilate, rhs_dilate) in enumerate(
            zip(
                spatial,
                _numbers(op, "window_strides", [1] * count),
                _numbers(op, "lhs_dilation", [1] * count),
                _numbers(op, "rhs_dilation", [1] * count),
                strict=True,
            )
        )
    ]
    return conv_matmul(
        lhs,
        rhs,
        out,
        window,
        labels,
        feature_groups=ir.IntegerAttr(op.attributes["feature_group_count"]).value,
        batch_groups=ir.IntegerAttr(op.attributes["batch_group_count"]).value,
    ).flops


def _numbers(op: Any, name: str, default: list[int]) -> list[int]:
    """Integers of an array attribute, flattened."""
    if name not in op.attributes:
        return default
    attribute = op.attributes[name]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        value = int(ir.IntegerAttr(attribute.get_splat_value()).value)
        return [value] * len(default)
    return [int(number) for row in attribute for number in _row(row)]


def _row(value: Any) -> list[int]:
    return [int(value)] if not hasattr(value, "__iter__") else [int(item) for item in value]
