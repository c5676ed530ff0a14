"""Kernel regions and the memory that is alive."""

from __future__ import annotations

import pytest
from walk_helpers import DOT, flops, kinds, vector_flops, walked

from xla_cost.program import Op, Program
from xla_cost.walk.scopes import scope_of


def meta(scope: str) -> str:
    return f'metadata={{op_name="jit(f)/{scope}/op"}}'


def entry(*lines: str, before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m, num_partitions=4\n\n{before}\nENTRY e {{\n{body}\n}}\n"


PLUS = """plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""
FLASH = meta("layer/kernel[flash_attention,work=0.5]")

ATTENTION = entry(
    "x = bf16[64,16]{1,0} parameter(0)",
    "k = bf16[16,128]{1,0} parameter(1)",
    "v = bf16[128,16]{1,0} parameter(2)",
    f"q = bf16[64,16]{{1,0}} tanh(x), {meta('layer/q')}",
    f"s = f32[64,128]{{1,0}} dot(q, k), {DOT}, {FLASH}",
    f"e = f32[64,128]{{1,0}} exponential(s), {FLASH}",
    "z = f32[] constant(0)",
    f"n = f32[64]{{0}} reduce(e, z), dimensions={{1}}, to_apply=plus, {FLASH}",
    f"b = f32[64,128]{{1,0}} broadcast(n), dimensions={{0}}, {FLASH}",
    f"p = f32[64,128]{{1,0}} divide(e, b), {FLASH}",
    f"h = bf16[64,128]{{1,0}} convert(p), {FLASH}",
    f"o = bf16[64,16]{{1,0}} dot(h, v), {DOT}, {FLASH}",
    f"ROOT r = bf16[64,16]{{1,0}} add(o, x), {meta('layer/residual')}",
    before=PLUS,
)


def kernels(program: Program) -> list[Op]:
    return [found for found, _ in program.walk() if found.kind == "kernel"]


def test_a_region_is_one_op_and_only_its_border_touches_memory() -> None:
    program = walked(ATTENTION)
    assert kinds(program) == {"vector": 2, "kernel": 1}
    (kernel,) = kernels(program)
    assert (kernel.region, kernel.work) == ("flash_attention", 0.5)
    assert kernel.scope == "layer/kernel[flash_attention,work=0.5]"
    # the work is not taken off: the price does that
    assert kernel.flops == 2 * 64 * 128 * 16 + 2 * 64 * 16 * 128
    assert kernel.matmul_opcodes == ("dot", "dot")
    assert kernel.vector_flops == 64 * 128 + 64 * 127 + 64 * 128
    assert kernel.bytes_read == 2 * (64 * 16 + 16 * 128 + 128 * 16)
    assert kernel.bytes_written == 2 * 64 * 16
    assert flops(program) == kernel.flops
    assert vector_flops(program) == kernel.vector_flops + 2 * 64 * 16


def test_a_region_waits_for_what_enters_and_others_for_it() -> None:
    nodes = walked(ATTENTION).entry.nodes
    names = [node.name for node in nodes]
    at = next(i for i, n in enumerate(nodes) if isinstance(n, Op) and n.kind == "kernel")
    assert {names[d] for d in nodes[at].deps} >= {"q", "k", "v"}
    assert at in nodes[names.index("r")].deps
    assert all(dep < i for i, node in enumerate(nodes) for dep in node.deps)


def test_the_same_region_twice_in_a_row_is_two_kernels() -> None:
    one = meta("kernel[grouped_gemm]")
    program = walked(
        entry(
            "x = bf16[8,8] parameter(0)",
            f"a = bf16[8,8] dot(x, x), {DOT}, {one}",
            f"b = bf16[8,8] sine(a), {meta('between')}",
            f"c = bf16[8,8] dot(b, b), {DOT}, {one}",
            f"ROOT d = bf16[8,8] dot(c, a), {DOT}, {one}",
        )
    )
    assert [kernel.flops for kernel in kernels(program)] == [2 * 8**3, 2 * (2 * 8**3)]
    names = [node.name for node in program.entry.nodes]
    assert names[2] == "b"
    assert names[2] not in [names[d] for d in program.entry.nodes[1].deps]


def test_two_independent_parts_of_a_region_are_one_kernel() -> None:
    one = meta("kernel[grouped_gemm]")
    program = walked(
        entry(
            "x = bf16[8,8] parameter(0)",
            "y = bf16[8,8] parameter(1)",
            f"a = bf16[8,8] dot(x, x), {DOT}, {one}",
            f"t = bf16[8,8] sine(y), {meta('between')}",
            f"b = bf16[8,8] dot(t, y), {DOT}, {one}",
            "ROOT r = (bf16[8,8], bf16[8,8]) tuple(a, b)",
        )
    )
    (kernel,) = kernels(program)
    assert kernel.flops == 2 * (2 * 8**3)
    assert kernel.bytes_read == 2 * (64 + 64 + 64)  # x once, y and t
    assert kernel.bytes_written == 2 * (64 + 64)


def test_a_collective_is_never_inside_a_kernel() -> None:
    one = meta("kernel[flash_attention]")
    program = walked(
        entry(
            "x = bf16[8,8] parameter(0)",
            f"a = bf16[8,8] dot(x, x), {DOT}, {one}",
            "g = bf16[32,8] all-gather(a), replica_groups={{0,1,2,3}}, dimensions={0}, " + one,
            f"ROOT b = bf16[32,8] dot(g, x), {DOT}, {one}",
        )
    )
    assert kinds(program) == {"kernel": 2, "collective": 1}
    assert [kernel.flops for kernel in kernels(program)] == [2 * 8**3, 2 * 32 * 8 * 8]


LOOPED = f"""cond {{
  p = (s32[], bf16[8,8], bf16[4,8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant(4)
  ROOT c = pred[] compare(i, k), direction=LT
}}

body {{
  p = (s32[], bf16[8,8], bf16[4,8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = bf16[8,8] get-tuple-element(p), index=1
  w = bf16[4,8,8] get-tuple-element(p), index=2
  one = s32[] constant(1)
  z = s32[] constant(0)
  j = s32[] add(i, one)
  s = bf16[1,8,8] dynamic-slice(w, i, z, z), dynamic_slice_sizes={{1,8,8}}
  y = bf16[8,8] reshape(s)
  d = bf16[8,8] dot(x, y), {DOT}
  ROOT t = (s32[], bf16[8,8], bf16[4,8,8]) tuple(j, d, w)
}}
"""


def test_a_loop_inside_a_region_is_part_of_the_kernel() -> None:
    program = walked(
        entry(
            "x = bf16[8,8] parameter(0)",
            "w = bf16[4,8,8] parameter(1)",
            "z = s32[] constant(0)",
            "t = (s32[], bf16[8,8], bf16[4,8,8]) tuple(z, x, w)",
            "l = (s32[], bf16[8,8], bf16[4,8,8]) while(t), condition=cond, body=body, "
            + meta("kernel[flash_attention]"),
            "o = bf16[8,8] get-tuple-element(l), index=1",
            "ROOT n = bf16[8,8] negate(o)",
            before=LOOPED,
        )
    )
    (kernel,) = kernels(program)
    (matmul,) = kernel.matmuls
    assert (matmul.batch, matmul.m, matmul.n, matmul.k) == (4, 8, 8, 8)
    assert kernel.bytes_read == 2 * (64 + 4 * 64)
    assert kernel.bytes_written == 2 * 64


def test_a_called_region_is_whole_in_its_callee() -> None:
    called = (
        "f {\n  p = bf16[8,8] parameter(0)\n"
        f"  a = bf16[8,8] dot(p, p), {DOT}, {meta('kernel[mla_decode]')}\n"
        f"  ROOT b = bf16[8,8] dot(a, a), {DOT}, {meta('kernel[mla_decode]')}\n}}\n"
    )
    program = walked(
        entry("x = bf16[8,8] parameter(0)", "ROOT r = bf16[8,8] call(x), to_apply=f", before=called)
    )
    (kernel,) = kernels(program)
    assert (kernel.region, kernel.flops) == ("mla_decode", 2 * 2 * 8**3)
    assert (kernel.bytes_read, kernel.bytes_written) == (128, 128)


def test_masks_without_a_name_that_only_a_kernel_uses_are_its_own() -> None:
    one = meta("kernel[flash_attention]")
    program = walked(
        entry(
            "x = bf16[64,64] parameter(0)",
            "i = s32[64,64] iota(), iota_dimension=0",
            "j = s32[64,64] iota(), iota_dimension=1",
            "m = pred[64,64] compare(i, j), direction=GE",
            f"s = bf16[64,64] dot(x, x), {DOT}, {one}",
            f"ROOT r = bf16[64,64] select(m, s, x), {one}",
        )
    )
    assert kinds(program) == {"kernel": 1}
    assert kernels(program)[0].bytes_read == 2 * 64 * 64


def test_forward_and_backward_of_one_scope_are_two_kernels() -> None:
    forward = 'metadata={op_name="jit(f)/jvp(layer)/kernel[flash_attention]/dot"}'
    backward = 'metadata={op_name="jit(f)/transpose(jvp(layer))/kernel[flash_attention]/dot"}'
    program = walked(
        entry(
            "x = bf16[8,8] parameter(0)",
            f"a = bf16[8,8] dot(x, x), {DOT}, {forward}",
            f"b = bf16[8,8] dot(x, a), {DOT}, {backward}",
            "ROOT r = (bf16[8,8], bf16[8,8]) tuple(a, b)",
        )
    )
    assert len(kernels(program)) == 2
    assert {k.scope for k in kernels(program)} == {"layer/kernel[flash_attention]"}


@pytest.mark.parametrize(
    ("segment", "kernel", "work"),
    [
        ("kernel[quantize]", "quantize", 1.0),
        ("kernel[flash_attention,work=0.505]", "flash_attention", 0.505),
        ("kernel[router, work=2]", "router", 1.0),
        ("kernel[router,work=x]", "router", 1.0),
    ],
)
def test_what_a_segment_says(segment: str, kernel: str, work: float) -> None:
    scope = scope_of(f"jit(f)/layer/{segment}/inner/dot_general")
    assert (scope.region, scope.kernel, scope.work) == (f"layer/{segment}", kernel, work)
    assert scope.path == f"layer/{segment}/inner"


# what is alive


def peak(*lines: str, before: str = "") -> int:
    return walked(entry(*lines, before=before)).entry.peak_live_bytes


A = "f32[64,64]"
BYTES = 4 * 64 * 64


def test_arguments_are_held_elsewhere_and_results_count() -> None:
    assert peak(f"x = {A} parameter(0)", f"ROOT d = {A} dot(x, x), {DOT}") == BYTES


def test_what_is_used_up_makes_room() -> None:
    chain = [f"d{i} = {A} dot(d{i - 1}, d{i - 1}), {DOT}" for i in range(1, 9)]
    assert peak(f"d0 = {A} parameter(0)", *chain, f"ROOT r = {A} dot(d8, d8), {DOT}") == 2 * BYTES


def test_what_is_used_late_stays() -> None:
    lines = [f"d{i} = {A} dot(x, x), {DOT}" for i in range(3)]
    total = [f"r{i} = {A} dot({'d0' if i == 0 else f'r{i - 1}'}, d{i}), {DOT}" for i in range(3)]
    # three products, and the first sum beside them
    assert peak(f"x = {A} parameter(0)", *lines, *total, f"ROOT n = {A} negate(r2)") == 4 * BYTES


def test_element_wise_values_with_one_user_take_nothing() -> None:
    lines = (
        f"x = {A} parameter(0)",
        f"a = {A} sine(x)",
        f"b = {A} cosine(a)",
        f"ROOT c = {A} dot(b, x), {DOT}",
    )
    assert peak(*lines) == 2 * BYTES  # b is an operand of a dot, a is fused into it


def test_a_fused_value_keeps_its_input_alive() -> None:
    lines = (
        f"x = {A} parameter(0)",
        f"d = {A} dot(x, x), {DOT}",
        f"s = {A} sine(d)",
        f"e = {A} dot(x, x), {DOT}",
        f"ROOT r = {A} add(s, e)",
    )
    assert peak(*lines) == 3 * BYTES  # d until the add, e, and the result


def test_updates_are_in_place() -> None:
    lines = (
        f"x = {A} parameter(0)",
        "i = s32[] parameter(1)",
        f"d = {A} dot(x, x), {DOT}",
        "u = f32[1,64] slice(x), slice={[0:1], [0:64]}",
        f"v = {A} dynamic-update-slice(d, u, i, i)",
        f"ROOT w = {A} dynamic-update-slice(v, u, i, i)",
    )
    assert peak(*lines) == BYTES + 4 * 64


def test_a_region_holds_nothing_inside() -> None:
    # plain, the scores in f32 are alive beside others; as a kernel only q and its result are
    assert walked(ATTENTION).entry.peak_live_bytes <= 2 * (2 * 64 * 16)
    plain = ATTENTION.replace("kernel[flash_attention,work=0.5]", "attention")
    assert walked(plain).entry.peak_live_bytes >= 4 * 64 * 128


def test_a_loop_adds_the_peak_of_its_body_and_keeps_its_state_in_place() -> None:
    lines = (
        "x = bf16[8,8] parameter(0)",
        "w = bf16[4,8,8] parameter(1)",
        "z = s32[] constant(0)",
        f"d = bf16[8,8] dot(x, x), {DOT}",
        "t = (s32[], bf16[8,8], bf16[4,8,8]) tuple(z, d, w)",
        "l = (s32[], bf16[8,8], bf16[4,8,8]) while(t), condition=cond, body=body",
        "ROOT o = bf16[8,8] get-tuple-element(l), index=1",
    )
    # before: d. Inside: the counter, the slice of the weights, the next state
    assert peak(*lines, before=LOOPED) == 128 + (4 + 128 + 128)
