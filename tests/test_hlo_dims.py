"""Dimension numbers, windows, labels, slices, paddings and constants as typed values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_cost.errors import XlaCostError
from xla_cost.hlo import Instruction, dims
from xla_cost.hlo.constants import constant_value


def instruction(
    opcode: str, attributes: str = "", operands: str = "", shape: str = "f32[]"
) -> Instruction:
    return Instruction("i", opcode, False, shape, operands, attributes, 7)


def test_dot_dims() -> None:
    text = (
        "lhs_batch_dims={0}, lhs_contracting_dims={2,3}, rhs_batch_dims={1}, "
        "rhs_contracting_dims={0,2}"
    )
    assert dims.dot_dims(instruction("dot", text)) == dims.DotDims((0,), (2, 3), (1,), (0, 2))
    assert dims.dot_dims(instruction("dot")) == dims.DotDims((), (), (), ())


def test_wrong_dot_dims_are_refused() -> None:
    with pytest.raises(XlaCostError, match=r"line 7: dot i: lhs_contracting_dims=\{x\} found"):
        dims.dot_dims(instruction("dot", "lhs_contracting_dims={x}"))
    with pytest.raises(XlaCostError, match="rhs_batch_dims"):
        dims.dot_dims(instruction("dot", "lhs_batch_dims={0}"))


def test_window_with_every_part() -> None:
    text = (
        "window={size=3x128 stride=2x1 pad=0_1x127_127 lhs_dilate=1x16 rhs_dilate=2x1 "
        "rhs_reversal=0x1}"
    )
    assert dims.window(instruction("convolution", text)).dims == (
        dims.WindowDim(3, 2, 0, 1, 1, 2, False),
        dims.WindowDim(128, 1, 127, 127, 16, 1, True),
    )


def test_window_defaults_and_negative_padding() -> None:
    found = dims.window(instruction("convolution", "window={size=5 pad=-1_2}"))
    assert found.dims == (dims.WindowDim(5, pad_low=-1, pad_high=2),)
    assert dims.window(instruction("convolution")).dims == ()


@pytest.mark.parametrize(
    "text", ["{size=3x3 stride=1}", "{size=3 pad=1}", "{size=a}", "{size=3 pad=0_0x0_0}"]
)
def test_wrong_windows_are_refused(text: str) -> None:
    with pytest.raises(XlaCostError, match="window="):
        dims.window(instruction("convolution", f"window={text}"))


def test_conv_labels() -> None:
    found = dims.conv_labels(instruction("convolution", "dim_labels=b01f_01io->b01f"))
    assert found == dims.ConvLabels(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    matmul = dims.conv_labels(instruction("convolution", "dim_labels=bf_oi->bf"))
    assert matmul == dims.ConvLabels(0, 1, (), 1, 0, (), 0, 1, ())
    swapped = dims.conv_labels(instruction("convolution", "dim_labels=1b0f_io10->bf01"))
    assert swapped.lhs_spatial == (2, 0)
    assert swapped.rhs_spatial == (3, 2)
    unknown = dims.conv_labels(instruction("convolution", "dim_labels=b0?f_0?io->b0?f"))
    assert (unknown.lhs_feature, unknown.rhs_input_feature) == (3, 2)


@pytest.mark.parametrize("text", ["", "bf", "bf_io", "bb_io->bf", "b0f_1io->b0f", "bf_io->bfb"])
def test_wrong_labels_are_refused(text: str) -> None:
    with pytest.raises(XlaCostError, match="dim_labels="):
        dims.conv_labels(instruction("convolution", f"dim_labels={text}"))


def test_group_counts_and_dimensions() -> None:
    conv = instruction("convolution", "feature_group_count=256, batch_group_count=2")
    assert dims.feature_group_count(conv) == 256
    assert dims.batch_group_count(conv) == 2
    assert dims.feature_group_count(instruction("convolution")) == 1
    assert dims.dimensions(instruction("reduce", "dimensions={0,2}")) == (0, 2)
    assert dims.dimensions(instruction("broadcast", "dimensions={}")) == ()
    with pytest.raises(XlaCostError, match="feature_group_count=x"):
        dims.feature_group_count(instruction("convolution", "feature_group_count=x"))


def test_slices_and_paddings() -> None:
    found = dims.slice_dims(instruction("slice", "slice={[0:8], [2:16:3]}"))
    assert found == (dims.SliceDim(0, 8), dims.SliceDim(2, 16, 3))
    padded = dims.padding(instruction("pad", "padding=0_512x-1_2_3"))
    assert padded == (dims.PadDim(0, 512), dims.PadDim(-1, 2, 3))
    with pytest.raises(XlaCostError, match="slice="):
        dims.slice_dims(instruction("slice", "slice={[0]}"))
    with pytest.raises(XlaCostError, match="padding="):
        dims.padding(instruction("pad", "padding=1"))


@pytest.mark.parametrize(
    ("shape", "text", "value"),
    [
        ("s32[]", "4", 4),
        ("s64[]", "-12", -12),
        ("u8[1]{0}", "{7}", 7),
        ("s32[1,1]", "{ {5} }", 5),
        ("s32[]", "/*trip=*/9", 9),
        ("pred[]", "true", True),
        ("pred[]", "0", False),
        ("f32[]", "-1.5e-3", -0.0015),
        ("f32[]", "1", 1.0),
        ("bf16[]", "-inf", -math.inf),
        ("f64[]", "inf", math.inf),
        ("f32[]", "0x1.8p+1", 3.0),
        ("f32[2]", "{1, 2}", None),
        ("s32[]", "{...}", None),
        ("s32[]", "1.5", None),
        ("c64[]", "(1, 0)", None),
        ("f32[]", "nonsense", None),
        ("(s32[])", "(1)", None),
    ],
)
def test_scalar_constants(shape: str, text: str, value: float | None) -> None:
    found = constant_value(instruction("constant", operands=text, shape=shape))
    assert found == value
    assert type(found) is type(value)


def test_nan_and_other_opcodes() -> None:
    nan = constant_value(instruction("constant", operands="nan", shape="f32[]"))
    assert isinstance(nan, float)
    assert math.isnan(nan)
    assert constant_value(instruction("parameter", operands="0", shape="s32[]")) is None


@given(st.integers(-(2**63), 2**63))
def test_integers_keep_their_value(value: int) -> None:
    assert constant_value(instruction("constant", operands=str(value), shape="s64[]")) == value


@given(st.text(max_size=30))
def test_any_constant_text_gives_a_value_or_none(text: str) -> None:
    for shape in ("s32[]", "f32[]", "pred[]"):
        value = constant_value(instruction("constant", operands=text, shape=shape))
        assert value is None or isinstance(value, int | float | bool)
