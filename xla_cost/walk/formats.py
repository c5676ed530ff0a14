"""HLO element types to the number formats that matrix units have a rate for.

Decisions, in one place: an f32 dot is `fp32` (whether a GPU runs it as TF32 is a choice of
the program: its `algorithm` attribute says so, and then it is `tf32`). Where the operands
differ, the wider one decides: bf16 activations by int4 weights multiply at the bf16 rate.
Complex numbers take the format of their parts. Integers above 8 bits have no matrix rate;
they are put beside the float of their width.
"""

from __future__ import annotations

from collections.abc import Mapping

from xla_cost.hlo.ir import BITS

_OTHER: Mapping[str, str] = {
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "c64": "fp32", "c128": "fp64",
    "pred": "int8", "s8": "int8", "u8": "int8",
    "s16": "fp16", "u16": "fp16", "s32": "fp32", "u32": "fp32", "s64": "fp64", "u64": "fp64",
}  # fmt: skip
_FORMAT_BITS: Mapping[str, int] = {
    "fp4": 4, "int4": 4, "fp8": 8, "int8": 8, "fp16": 16, "bf16": 16, "tf32": 19, "fp32": 32,
    "fp64": 64,
}  # fmt: skip


def _format_of(dtype: str) -> str:
    if dtype.startswith("f4"):
        return "fp4"
    if dtype.startswith("f8"):
        return "fp8"
    if dtype in ("s4", "u4", "s2", "u2", "s1", "u1"):
        return "int4"
    return _OTHER.get(dtype, "fp32")


_FORMATS = {dtype: _format_of(dtype) for dtype in BITS}


def format_of(dtype: str) -> str:
    """The format of one element type, one of `xla_cost.program.FORMATS`."""
    return _FORMATS.get(dtype) or _format_of(dtype)


def wire_format(dtype: str) -> str:
    """The format of what a collective carries: floats as in `format_of`, integers as in HLO."""
    return format_of(dtype) if dtype[:1] in "fbc" else dtype


def matmul_format(lhs: str, rhs: str, algorithm: str = "") -> str:
    """The format a product of `lhs` and `rhs` element types multiplies in.

    The wider operand decides, a float wins over an integer of its width. A precision
    `algorithm` such as `dot_tf32_tf32_f32` or `dot_bf16_bf16_f32_x3` overrules the types.
    """
    if algorithm.startswith("dot_"):
        first = algorithm.split("_")[1]
        if first in ("tf32", "bf16", "f16", "f32", "f64"):
            return {"tf32": "tf32"}.get(first) or format_of(first)
        if "f8" in algorithm:
            return "fp8"
    left, right = format_of(lhs), format_of(rhs)
    if left == right:
        return left
    return max(left, right, key=lambda f: (_FORMAT_BITS[f], not f.startswith("int")))
