"""Fusions, and the bytes and vector FLOPs of single ops."""

from __future__ import annotations

import pytest
from walk_helpers import DOT, entry, flops_by_format, kinds, op, vector_flops, walked

PLUS = """plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""


# fusions


def test_a_fusion_is_one_op_with_bytes_at_its_border() -> None:
    fused = f"""inner {{
  p = bf16[64,32] parameter(0)
  q = s8[32,16] parameter(1)
  c = bf16[32,16] convert(q)
  ROOT d = bf16[64,16] dot(p, c), {DOT}
}}

outer {{
  p = bf16[64,32] parameter(0)
  q = s8[32,16] parameter(1)
  d = bf16[64,16] fusion(p, q), kind=kOutput, calls=inner
  m = bf16[64,16] multiply(d, d)
  e = bf16[64,16] fusion(p, q), kind=kOutput, calls=inner
  ROOT a = bf16[64,16] add(m, e)
}}
"""
    program = walked(
        entry(
            "x = bf16[64,32] parameter(0)",
            "w = s8[32,16] parameter(1)",
            "ROOT f = bf16[64,16] fusion(x, w), kind=kOutput, calls=outer",
            before=fused,
        )
    )
    found = op(program, "f")
    assert kinds(program) == {"matmul": 1}
    assert found.flops == 2 * (2 * 64 * 16 * 32)  # the inner fusion runs twice
    assert found.matmul_opcodes == ("dot", "dot")
    assert found.vector_flops == 2 * 64 * 16
    assert found.bytes_read == 2 * 64 * 32 + 32 * 16
    assert found.bytes_written == 2 * 64 * 16


def test_a_parameter_that_a_fusion_only_slices_is_read_there_alone() -> None:
    fused = """f {
  p = f32[58,64,32] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  c = bf16[58,64,32] convert(p)
  s = bf16[1,64,32] dynamic-slice(c, i, z, z), dynamic_slice_sizes={1,64,32}
  b = bf16[64,32] bitcast(s)
  ROOT n = bf16[64,32] negate(b)
}
"""
    program = walked(
        entry(
            "x = f32[58,64,32] parameter(0)",
            "i = s32[] parameter(1)",
            "ROOT f = bf16[64,32] fusion(x, i), kind=kLoop, calls=f",
            before=fused,
        )
    )
    assert op(program, "f").bytes_read == 4 * 64 * 32 + 4
    assert op(program, "f").bytes_written == 2 * 64 * 32


def test_an_update_at_the_root_of_a_fusion_is_in_place() -> None:
    fused = """f {
  p = f32[58,64] parameter(0)
  u = f32[64] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  b = f32[1,64] bitcast(u)
  ROOT d = f32[58,64] dynamic-update-slice(p, b, i, z)
}
"""
    program = walked(
        entry(
            "x = f32[58,64] parameter(0)",
            "u = f32[64] parameter(1)",
            "i = s32[] parameter(2)",
            "ROOT f = f32[58,64] fusion(x, u, i), kind=kLoop, calls=f",
            before=fused,
        )
    )
    assert (op(program, "f").bytes_read, op(program, "f").bytes_written) == (4 * 64 + 4, 4 * 64)


# bytes of single ops


@pytest.mark.parametrize(
    ("line", "read", "written"),
    [
        ("r = f32[1,64] dynamic-slice(x, i, i), dynamic_slice_sizes={1,64}", 4 * 64 + 8, 4 * 64),
        ("r = f32[58,64] dynamic-update-slice(x, u, i, i)", 4 * 64 + 8, 4 * 64),
        ("r = f32[2,64] slice(x), slice={[0:2], [0:64]}", 4 * 128, 4 * 128),
        (
            "r = f32[5,64] gather(x, g), offset_dims={1}, collapsed_slice_dims={0}, "
            "start_index_map={0}, index_vector_dim=1, slice_sizes={1,64}",
            4 * 5 * 64 + 4 * 5,
            4 * 5 * 64,
        ),
        (
            "r = f32[58,64] scatter(x, g, v), update_window_dims={1}, inserted_window_dims={0}, "
            "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=plus",
            4 * 5 * 64 + 4 * 5 + 4 * 5 * 64,
            4 * 5 * 64,
        ),
        ("r = f32[64,58] transpose(x), dimensions={1,0}", 4 * 58 * 64, 4 * 58 * 64),
        ("r = f32[58,64,3] broadcast(x), dimensions={0,1}", 4 * 58 * 64, 4 * 58 * 64 * 3),
    ],
)
def test_only_what_is_touched_counts(line: str, read: int, written: int) -> None:
    program = walked(
        entry(
            "x = f32[58,64] parameter(0)",
            "i = s32[] parameter(1)",
            "u = f32[1,64] parameter(2)",
            "g = s32[5] parameter(3)",
            "v = f32[5,64] parameter(4)",
            f"ROOT {line}",
            before=PLUS,
        )
    )
    assert (op(program, "r").bytes_read, op(program, "r").bytes_written) == (read, written)


def test_a_converted_operand_is_read_at_its_source_width() -> None:
    program = walked(
        entry(
            "x = bf16[64,32] parameter(0)",
            "w = f4e2m1fn[32,16] parameter(1)",
            "a = f32[64,32] convert(x)",
            "q = f8e4m3fn[64,32] convert(a)",
            "s = f8e4m3fn[32,64] reshape(q)",
            "t = f8e4m3fn[64,32] reshape(s)",
            "u = f8e4m3fn[32,16] convert(w)",
            f"ROOT d = bf16[64,16] dot(t, u), {DOT}",
        )
    )
    found = op(program, "d")
    assert found.bytes_read == 64 * 32 + 32 * 16
    assert found.source_bytes_read == 2 * 64 * 32 + 32 * 16 // 2
    assert flops_by_format(program) == {"fp8": 2 * 64 * 16 * 32}


def test_vector_flops() -> None:
    program = walked(
        entry(
            "x = f32[64,32] parameter(0)",
            "z = f32[] constant(0)",
            "e = f32[64,32] exponential(x)",
            "c = bf16[64,32] convert(e)",
            "r = f32[64] reduce(e, z), dimensions={1}, to_apply=plus",
            "ROOT t = (bf16[64,32], f32[64]) tuple(c, r)",
            before=PLUS,
        )
    )
    assert op(program, "e").vector_flops == 64 * 32
    assert op(program, "c").vector_flops == 0
    assert op(program, "r").vector_flops == 64 * (32 - 1)
    assert vector_flops(program) == 64 * 32 + 64 * 31


def test_views_are_free_before_scheduling_and_reshapes_are_moves_after() -> None:
    lines = (
        "x = f32[64,32]{1,0} parameter(0)",
        "r = f32[32,64]{1,0} reshape(x)",
        "c = f32[32,64]{1,0} copy(r)",
        "t = f32[64,32]{0,1} transpose(c), dimensions={1,0}",
        "ROOT n = f32[64,32]{0,1} negate(t)",
    )
    before = walked(entry(*lines))
    assert kinds(before) == {"vector": 1}
    after = walked(entry(*lines, header=", is_scheduled=true"))
    # the transpose's layout says that it moves nothing
    assert kinds(after) == {"vector": 1, "move": 2}
