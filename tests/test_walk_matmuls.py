from __future__ import annotations

import itertools

import pytest
from walk_helpers import entry, flops, flops_by_format, op, walked

from xla_cost.hlo.dims import WindowDim
from xla_cost.kernel_time.seconds import matmul_s
from xla_cost.machine import load
from xla_cost.program import Matmul
from xla_cost.walk.convolution import valid_taps
from xla_cost.walk.formats import format_of, matmul_format


def test_a_dot_counts_two_flops_per_multiply_add() -> None:
    program = walked(
        entry(
            "a = bf16[4,128,64]{2,1,0} parameter(0)",
            "b = bf16[4,64,32]{2,1,0} parameter(1)",
            "ROOT d = bf16[4,128,32]{2,1,0} dot(a, b), lhs_batch_dims={0}, "
            "lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}",
        )
    )
    assert flops(program) == 2 * 4 * 128 * 32 * 64
    (matmul,) = op(program, "d").matmuls
    assert (matmul.batch, matmul.m, matmul.n, matmul.k) == (4, 128, 32, 64)
    assert op(program, "d").bytes_read == 2 * (4 * 128 * 64 + 4 * 64 * 32)
    assert op(program, "d").bytes_written == 2 * 4 * 128 * 32


def test_several_contracting_dimensions_multiply() -> None:
    program = walked(
        entry(
            "a = f32[8,3,5]{2,1,0} parameter(0)",
            "b = f32[3,5,7]{2,1,0} parameter(1)",
            "ROOT d = f32[8,7]{1,0} dot(a, b), lhs_contracting_dims={1,2}, "
            "rhs_contracting_dims={0,1}",
        )
    )
    assert flops(program) == 2 * 8 * 7 * (3 * 5)


@pytest.mark.parametrize(
    "dims",
    ["lhs_contracting_dims={2}, rhs_contracting_dims={0}",
     "lhs_contracting_dims={1}, rhs_contracting_dims={2}",
     "lhs_contracting_dims={-1}, rhs_contracting_dims={0}",
     "lhs_batch_dims={7}, rhs_batch_dims={0}"],
)  # fmt: skip
@pytest.mark.parametrize("opcode", ["dot", "ragged-dot", "scaled-dot"])
def test_dimensions_that_an_operand_does_not_have_are_not_understood(dims, opcode) -> None:
    more = ", c, c" if opcode == "scaled-dot" else ", c" if opcode == "ragged-dot" else ""
    program = walked(
        entry(
            "a = f32[8,16] parameter(0)",
            "b = f32[16,4] parameter(1)",
            "c = s32[1] parameter(2)",
            f"ROOT d = f32[8,4] {opcode}(a, b{more}), {dims}",
        )
    )
    found = op(program, "d")
    assert (found.kind, found.flops) == ("unpriced", 0)
    why = f"operand types and dimension numbers of {opcode} give no product: reads"
    assert found.note.startswith(why)


def test_an_outer_product_has_an_inner_size_of_one() -> None:
    program = walked(
        entry("a = f32[8] parameter(0)", "b = f32[9] parameter(1)", "ROOT d = f32[8,9] dot(a, b)")
    )
    assert flops(program) == 2 * 8 * 9


def test_bounded_dimensions_count_at_their_bound() -> None:
    program = walked(
        entry(
            "a = s8[<=16,32] parameter(0)",
            "b = s8[32,64] parameter(1)",
            "ROOT d = s32[<=16,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        )
    )
    assert flops_by_format(program) == {"int8": 2 * 16 * 32 * 64}


def test_a_complex_multiply_add_is_four_real_ones() -> None:
    program = walked(
        entry(
            "a = c64[4,8] parameter(0)",
            "b = c64[8,2] parameter(1)",
            "ROOT d = c64[4,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        )
    )
    assert flops(program) == 4 * 2 * 4 * 2 * 8


@pytest.mark.parametrize(
    ("lhs", "rhs", "expected"),
    [
        ("bf16", "bf16", "bf16"),
        ("f8e4m3fn", "f8e5m2", "fp8"),
        ("f4e2m1fn", "f8e4m3fn", "fp8"),
        ("bf16", "s4", "bf16"),
        ("s8", "s4", "int8"),
        ("f4e2m1fn", "f4e2m1fn", "fp4"),
        ("f8e4m3fn", "s8", "fp8"),
        ("f32", "bf16", "fp32"),
    ],
)
def test_the_wider_operand_decides_the_format(lhs: str, rhs: str, expected: str) -> None:
    assert matmul_format(lhs, rhs) == expected
    assert matmul_format(rhs, lhs) == expected


def test_a_precision_algorithm_overrules_the_types() -> None:
    program = walked(
        entry(
            "a = f32[4,8] parameter(0)",
            "b = f32[8,2] parameter(1)",
            "ROOT d = f32[4,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
            "algorithm=dot_tf32_tf32_f32",
        )
    )
    assert flops_by_format(program) == {"tf32": 2 * 4 * 2 * 8}
    assert matmul_format("f32", "f32", "dot_bf16_bf16_f32_x3") == "bf16"
    assert format_of("f64") == "fp64"


# convolutions


def conv_product(lhs: str, rhs: str, out: str, rest: str) -> Matmul:
    program = walked(
        entry(
            f"x = bf16[{lhs}] parameter(0)",
            f"w = bf16[{rhs}] parameter(1)",
            f"ROOT c = bf16[{out}] convolution(x, w), {rest}",
        )
    )
    (matmul,) = op(program, "c").matmuls
    assert flops(program) == matmul.flops
    return matmul


def conv(lhs: str, rhs: str, out: str, rest: str) -> int:
    return conv_product(lhs, rhs, out, rest).flops


def sizes(matmul: Matmul) -> tuple[int, int, int, int]:
    return matmul.batch, matmul.m, matmul.n, matmul.k


def test_a_matmul_written_as_convolution() -> None:
    assert conv("256,512", "512,1024", "256,1024", "dim_labels=bf_io->bf") == 2 * 256 * 512 * 1024


def test_padding_taps_do_not_count() -> None:
    # 3 taps over 5 inputs, padded by one: 2 + 3 + 3 + 3 + 2 real taps per row
    taps = 2 + 3 + 3 + 3 + 2
    rest = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    assert conv("2,5,5,4", "3,3,4,8", "2,5,5,8", rest) == 2 * 2 * 8 * 4 * taps * taps


def test_a_batch_of_heads_as_a_wide_window_is_a_batched_matmul() -> None:
    # XLA:TPU: 16 heads in a window of 16 with 15 on both sides; one tap per head is real
    rest = "window={size=16 pad=15_15 rhs_reversal=1}, dim_labels=bf0_i0o->b0f"
    assert conv("32,64,1", "64,16,24", "32,16,24", rest) == 2 * 16 * (32 * 24 * 64)


def test_the_batched_matmul_keeps_its_shape() -> None:
    rest = "window={size=16 pad=15_15 rhs_reversal=1}, dim_labels=bf0_i0o->b0f"
    found = conv_product("32,64,1", "64,16,24", "32,16,24", rest)
    assert sizes(found) == (16, 32, 24, 64)
    # beside it a dimension that is only there: its positions are rows
    rest = "window={size=16x1 pad=15_15x0_0 rhs_reversal=1x1}, dim_labels=bf01_i01o->b01f"
    found = conv_product("32,64,1,7", "64,16,1,24", "32,16,7,24", rest)
    assert sizes(found) == (16, 32 * 7, 24, 64)


def same(size: int, window: int) -> int:
    """Pairs (output, tap) of one dimension of odd `window`, stride 1 and SAME padding."""
    return window * size - 2 * sum(range(1, window // 2 + 1))


#: (input, kernel, output, rest, (batch, m, n, k), multiply-adds); k by hand, rounded up
CONVOLUTIONS = {
    "1x1": (
        "2,8,8,16", "1,1,16,32", "2,8,8,32", "window={size=1x1}, dim_labels=b01f_01io->b01f",
        (1, 2 * 8 * 8, 32, 16), 2 * 8 * 8 * 32 * 16,
    ),
    "valid": (
        "2,10,10,16", "3,3,16,32", "2,8,8,32", "window={size=3x3}, dim_labels=b01f_01io->b01f",
        (1, 2 * 8 * 8, 32, 3 * 3 * 16), 2 * 8 * 8 * 32 * 3 * 3 * 16,
    ),
    # 64 features x (1534 / 512)^2 taps = 574.5
    "same": (
        "1,512,512,64", "3,3,64,64", "1,512,512,64",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
        (1, 512 * 512, 64, 575), 64 * 64 * same(512, 3) ** 2,
    ),
    # taps 2 + 3 x 6 + 2 at stride 2 over 15: the first and the last are cut. 8 x (22 / 8)^2 = 60.5
    "strided": (
        "4,15,15,8", "3,3,8,24", "4,8,8,24",
        "window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
        (1, 4 * 8 * 8, 24, 61), 4 * 24 * 8 * (2 + 3 * 6 + 2) ** 2,
    ),
    # taps two apart: the first two and the last two outputs of 20 miss one; 4 x 56 / 20 = 11.2
    "dilated": (
        "1,20,4", "3,4,6", "1,20,6",
        "window={size=3 pad=2_2 rhs_dilate=2}, dim_labels=b0f_0io->b0f",
        (1, 20, 6, 12), 6 * 4 * (3 * 20 - 4),
    ),
    # one filter per feature: 28 taps over 10 outputs = 2.8
    "depthwise": (
        "4,10,6", "3,1,6", "4,10,6",
        "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, feature_group_count=6",
        (6, 4 * 10, 1, 3), 6 * 4 * same(10, 3),
    ),
    # 3 groups of 4 features to 8: 4 x 2.8 = 11.2
    "grouped": (
        "4,10,12", "3,4,24", "4,10,24",
        "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, feature_group_count=3",
        (3, 4 * 10, 8, 12), 3 * 4 * 8 * 4 * same(10, 3),
    ),
    # upsampling by 2 with a 2x2 kernel: each of 4 taps makes a quarter of the outputs
    "upsampling": (
        "2,8,8,16", "2,2,16,32", "2,16,16,32",
        "window={size=2x2 pad=1_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f",
        (4, 2 * 8 * 8, 32, 16), 2 * 16 * 16 * 32 * 16,
    ),
    # upsampling by 2 with 3 taps: 1 and 2 by turns, the last output misses one; 8 x 11 / 8
    "transposed": (
        "1,4,8", "3,8,16", "1,8,16",
        "window={size=3 pad=1_2 lhs_dilate=2}, dim_labels=b0f_0io->b0f",
        (1, 8, 16, 11), 16 * 8 * (4 * 1 + 3 * 2 + 1),
    ),
    # gradient of a 3x3 kernel over 32x32: a window of the whole output, features as batch;
    # outputs read 31, 32 and 31 taps: 4 x (94 / 3)^2 = 3927.1
    "kernel gradient": (
        "4,32,32,8", "4,32,32,24", "8,3,3,24",
        "window={size=32x32 pad=1_1x1_1}, dim_labels=f01b_i01o->b01f",
        (1, 8 * 3 * 3, 24, 3928), 8 * 24 * 4 * same(32, 3) ** 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_an_implicit_gemm(name: str) -> None:
    lhs, rhs, out, rest, expected, multiply_adds = CONVOLUTIONS[name]
    found = conv_product(lhs, rhs, out, rest)
    assert sizes(found) == expected
    assert found.flops == 2 * multiply_adds
    assert 0 <= found.padded < found.m * found.n  # less than one of k


def test_padding_does_not_make_a_convolution_dearer_than_its_whole_product() -> None:
    *shapes, rest, (_, m, n, _), _ = CONVOLUTIONS["same"]
    priced = [
        matmul_s(load("h100"), matmul, 0, 0)
        for matmul in (conv_product(*shapes, rest), Matmul(1, m, n, 3 * 3 * 64, "bf16"))
    ]
    assert priced[0] <= priced[1]


def test_a_batch_over_a_dilated_input() -> None:
    # f32[8,..] batched: dilated by 8, stride 7, so output o reads input o alone
    rest = "window={size=8 stride=7 lhs_dilate=8}, dim_labels=0fb_0io->0fb"
    assert conv("8,16,32", "8,16,64", "8,64,32", rest) == 2 * 8 * 32 * 64 * 16


def test_a_full_window_contracts_the_spatial_dimension() -> None:
    rest = "window={size=12}, dim_labels=b0f_0io->bf0"
    assert conv("32,12,20", "12,20,24", "32,24,1", rest) == 2 * 32 * 24 * 20 * 12


def test_feature_groups_divide_the_kernel() -> None:
    rest = "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, feature_group_count=6"
    taps = 2 + 3 * 8 + 2
    assert conv("4,10,6", "3,1,6", "4,10,6", rest) == 2 * 4 * 6 * 1 * taps


def test_batch_groups_divide_the_batch() -> None:
    # each output feature sees one quarter of the batch: 8 / 4 = 2 output batches
    rest = "dim_labels=bf_io->bf, batch_group_count=4"
    assert conv("8,16", "16,12", "2,12", rest) == 2 * 2 * 12 * 16


def naive_taps(size_in: int, size_out: int, window: WindowDim) -> tuple[int, int]:
    hits = []
    for o, t in itertools.product(range(size_out), range(window.size)):
        at = o * window.stride + t * window.rhs_dilate - window.pad_low
        if at >= 0 and at % window.lhs_dilate == 0 and at // window.lhs_dilate < size_in:
            hits.append(t)
    return len(hits), len(set(hits))


def test_taps_equal_counting_them_one_by_one() -> None:
    grid = itertools.product((1, 2, 5), (1, 3, 4), (1, 2, 3), (0, 2, -1), (1, 2, 3), (1, 2))
    for size_in, size, stride, pad, lhs, rhs in grid:
        window = WindowDim(size, stride, pad, pad, lhs, rhs)
        dilated = (size_in - 1) * lhs + 1
        size_out = max(0, (dilated + 2 * pad - (size - 1) * rhs - 1) // stride + 1)
        assert valid_taps(size_in, size_out, window) == naive_taps(size_in, size_out, window)


# ragged and scaled


RAGGED = (
    "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
)


def test_ragged_rows_are_an_upper_bound_over_all_groups() -> None:
    program = walked(
        entry(
            "x = bf16[96,8] parameter(0)",
            "w = bf16[6,8,4] parameter(1)",
            "g = s32[6] parameter(2)",
            f"ROOT r = bf16[96,4] ragged-dot(x, w, g), {RAGGED}",
        )
    )
    (matmul,) = op(program, "r").matmuls
    assert (matmul.batch, matmul.m, matmul.n, matmul.k, matmul.grouped) == (6, 16, 4, 8, True)
    assert flops(program) == 2 * 96 * 4 * 8
    assert "upper bound" in op(program, "r").note


def test_rows_that_do_not_divide_are_spread_without_loss() -> None:
    program = walked(
        entry(
            "x = bf16[100,8] parameter(0)",
            "w = bf16[6,8,4] parameter(1)",
            "g = s32[6] parameter(2)",
            f"ROOT r = bf16[100,4] ragged-dot(x, w, g), {RAGGED}",
        )
    )
    assert [(m.batch, m.m) for m in op(program, "r").matmuls] == [(4, 17), (2, 16)]
    assert flops(program) == 2 * 100 * 4 * 8


def test_a_ragged_contraction_makes_one_result_per_group() -> None:
    program = walked(
        entry(
            "x = bf16[11,90] parameter(0)",
            "w = bf16[90,7] parameter(1)",
            "g = s32[3] parameter(2)",
            "ROOT r = bf16[3,11,7] ragged-dot(x, w, g), lhs_contracting_dims={1}, "
            "rhs_contracting_dims={0}, lhs_ragged_dims={1}",
        )
    )
    assert flops(program) == 2 * 11 * 7 * 90
    (matmul,) = op(program, "r").matmuls
    assert (matmul.batch, matmul.k) == (3, 30)


def test_a_ragged_batch_is_a_plain_batched_dot() -> None:
    program = walked(
        entry(
            "x = bf16[9,11,5] parameter(0)",
            "w = bf16[9,5,7] parameter(1)",
            "g = s32[3] parameter(2)",
            "ROOT r = bf16[9,11,7] ragged-dot(x, w, g), lhs_batch_dims={0}, rhs_batch_dims={0}, "
            "lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={0}",
        )
    )
    assert flops(program) == 2 * 9 * 11 * 7 * 5


@pytest.mark.parametrize("order", ["x, w, xs, ws", "x, xs, w, ws"])
def test_scaled_dot_in_both_operand_orders(order: str) -> None:
    program = walked(
        entry(
            "x = f4e2m1fn[1,32,256] parameter(0)",
            "w = f8e4m3fn[1,16,256] parameter(1)",
            "xs = f8e8m0fnu[1,32,8] parameter(2)",
            "ws = f8e8m0fnu[1,16,8] parameter(3)",
            f"ROOT r = f32[1,32,16] scaled-dot({order}), "
            "lhs_batch_dims={0}, rhs_batch_dims={0}, "
            "lhs_contracting_dims={2}, rhs_contracting_dims={2}",
        )
    )
    assert flops_by_format(program) == {"fp8": 2 * 32 * 16 * 256}
    # 4-bit values are packed: 32 * 256 / 2 bytes
    assert op(program, "r").bytes_read == 4096 + 4096 + 32 * 8 + 16 * 8


def test_a_dot_with_unknown_operand_types_is_unpriced_not_zero() -> None:
    program = walked(
        entry("ROOT d = bf16[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}")
    )
    assert op(program, "d").kind == "unpriced"
    assert "types and dimension numbers of dot give no product" in op(program, "d").note
    assert program.coverage < 1.0
