"""Wrong costs that users reported in public, each with the right answer."""

from __future__ import annotations

import json

import pytest
from walk_helpers import DOT, collectives, entry, flops, loops, op, vector_flops, walked

PLUS = """plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""


def cublas(m: int, k: int, n: int) -> str:
    numbers = {
        "lhs_contracting_dimensions": ["1"],
        "rhs_contracting_dimensions": ["0"],
        "lhs_batch_dimensions": [],
        "rhs_batch_dimensions": [],
    }
    config = json.dumps({"gemm_backend_config": {"dot_dimension_numbers": numbers}})
    return (
        f"c = (f32[{m},{n}], s8[1024]) custom-call(x, w), "
        f'custom_call_target="__cublas$gemm", backend_config={config}'
    )


@pytest.mark.parametrize("n", [1, 2, 9])
def test_jax_22249_a_matmul_that_became_a_library_call_still_counts(n: int) -> None:
    fused = (
        f"plus {{\n  p = f32[{n},256] parameter(0)\n  q = f32[256] parameter(1)\n"
        f"  b = f32[{n},256] broadcast(q), dimensions={{1}}\n"
        f"  ROOT a = f32[{n},256] add(p, b)\n}}\n"
    )
    program = walked(
        entry(
            f"x = f32[{n},73] parameter(0)",
            "w = f32[73,256] parameter(1)",
            "bias = f32[256] parameter(2)",
            cublas(n, 73, 256),
            f"d = f32[{n},256] get-tuple-element(c), index=0",
            f"ROOT r = f32[{n},256] fusion(d, bias), kind=kLoop, calls=plus",
            before=fused,
        )
    )
    assert flops(program) == 37_376 * n == 2 * n * 73 * 256
    assert vector_flops(program) == 256 * n


def test_jax_16008_and_20184_no_minus_one() -> None:
    small = entry(
        "x = f32[2,10] parameter(0)", "w = f32[10,7] parameter(1)", "ROOT " + cublas(2, 10, 7)
    )
    assert flops(walked(small)) == 280 == 2 * 2 * 10 * 7
    big = entry(
        "x = f32[2048,2048] parameter(0)",
        "w = f32[2048,2048] parameter(1)",
        f"ROOT d = f32[2048,2048] dot(x, w), {DOT}",
    )
    assert flops(walked(big)) == 17_179_869_184 == 2 * 2048**3


def test_jax_18672_and_flax_3492_a_scanned_body_counts_every_layer() -> None:
    layers = f"""cond {{
  p = (s32[], f32[8,10], f32[24,10,40], f32[24,40,10]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant(24)
  ROOT c = pred[] compare(i, k), direction=LT
}}

body {{
  p = (s32[], f32[8,10], f32[24,10,40], f32[24,40,10]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,10] get-tuple-element(p), index=1
  u = f32[24,10,40] get-tuple-element(p), index=2
  v = f32[24,40,10] get-tuple-element(p), index=3
  one = s32[] constant(1)
  z = s32[] constant(0)
  j = s32[] add(i, one)
  us = f32[1,10,40] dynamic-slice(u, i, z, z), dynamic_slice_sizes={{1,10,40}}
  ur = f32[10,40] reshape(us)
  vs = f32[1,40,10] dynamic-slice(v, i, z, z), dynamic_slice_sizes={{1,40,10}}
  vr = f32[40,10] reshape(vs)
  h = f32[8,40] dot(x, ur), {DOT}
  y = f32[8,10] dot(h, vr), {DOT}
  ROOT t = (s32[], f32[8,10], f32[24,10,40], f32[24,40,10]) tuple(j, y, u, v)
}}
"""
    program = walked(
        entry(
            "x = f32[8,10] parameter(0)",
            "u = f32[24,10,40] parameter(1)",
            "v = f32[24,40,10] parameter(2)",
            "z = s32[] constant(0)",
            "t = (s32[], f32[8,10], f32[24,10,40], f32[24,40,10]) tuple(z, x, u, v)",
            "ROOT w = (s32[], f32[8,10], f32[24,10,40], f32[24,40,10]) while(t), "
            "condition=cond, body=body",
            before=layers,
        )
    )
    assert loops(program) == {"w": 24}
    assert flops(program) == 307_200 == 24 * 2 * 8 * (10 * 40 + 40 * 10)
    # a weight is read one layer at a time, not whole on every trip
    assert op(program, "us").bytes_read == 4 * 10 * 40 + 3 * 4


def test_jax_13956_flops_and_bytes_come_from_the_same_module() -> None:
    size = 1000 * 1000
    chain = []
    last = "x"
    for i in range(1000):
        for other in "yzw":
            chain.append(f"a{i}{other} = f32[1000,1000] add({last}, {other})")
            last = f"a{i}{other}"
    program = walked(
        entry(
            *(f"{name} = f32[1000,1000] parameter({i})" for i, name in enumerate("xyzw")),
            *chain,
            f"ROOT r = (f32[1000,1000]) tuple({last})",
        )
    )
    assert vector_flops(program) == 3000 * size
    moved = sum(found.bytes_read + found.bytes_written for found, _ in program.walk())
    assert moved == 3000 * 3 * 4 * size  # two operands and a result each, as the text says


def test_jax_29463_attention_in_a_custom_call_is_not_free() -> None:
    # forward 4 b h sq skv d, b 1, h 16, s 4096, d 128
    program = walked(
        entry(
            "q = bf16[16,4096,128] parameter(0)",
            "k = bf16[16,4096,128] parameter(1)",
            "v = bf16[16,4096,128] parameter(2)",
            "ROOT splash_mha_fwd.3 = bf16[16,4096,128] custom-call(q, k, v), "
            'custom_call_target="tpu_custom_call"',
        )
    )
    assert flops(program) == 4 * 16 * 4096 * 4096 * 128


def test_xla_11872_a_start_knows_its_devices() -> None:
    program = walked(
        entry(
            "x = f32[400,12800] parameter(0)",
            "s = f32[400,12800] all-reduce-start(x), channel_id=1, "
            "replica_groups={{0,1,2,3}}, to_apply=plus",
            "ROOT d = f32[400,12800] all-reduce-done(s)",
            before=PLUS,
        )
    )
    ((collective, _),) = collectives(program)
    assert (collective.groups.size, collective.payload_bytes) == (4, 20_480_000)
    assert collective.payload_bytes == 400 * 12800 * 4


def test_xla_11934_every_kind_counts_operand_bytes() -> None:
    groups = "replica_groups={{0,1,2,3}}"
    program = walked(
        entry(
            "x = f32[64] parameter(0)",
            f"g = f32[256] all-gather(x), {groups}, dimensions={{0}}",
            f"s = f32[64] reduce-scatter(g), {groups}, dimensions={{0}}, to_apply=plus",
            f"ROOT a = f32[64] all-to-all(s), {groups}, dimensions={{0}}",
            before=PLUS,
            header=", replica_count=4",
        )
    )
    found = [(c.kind, c.payload_bytes, c.result_bytes) for c, _ in collectives(program)]
    assert found == [
        ("all-gather", 64 * 4, 256 * 4),
        ("reduce-scatter", 256 * 4, 64 * 4),
        ("all-to-all", 64 * 4, 64 * 4),
    ]


def test_xla_48454_a_trip_count_rounds_up() -> None:
    text = """HloModule m

cond {
  i = s32[] parameter(0)
  k = s32[] constant(BOUND)
  ROOT c = pred[] compare(i, k), direction=WHICH
}

body {
  i = s32[] parameter(0)
  two = s32[] constant(2)
  ROOT j = s32[] add(i, two)
}

ENTRY e {
  zero = s32[] constant(0)
  ROOT w = s32[] while(zero), condition=cond, body=body
}
"""
    below = text.replace("BOUND", "1").replace("WHICH", "LT")
    assert loops(walked(below)) == {"w": 1}  # ceil((1 - 0) / 2), not floor
    empty = text.replace("BOUND", "-1").replace("WHICH", "LE")
    assert loops(walked(empty)) == {"w": 0}


@pytest.mark.parametrize(("dtype", "width", "form"), [("f32", 4, "fp32"), ("bf16", 2, "bf16")])
def test_xprof_1704_and_1712_a_matmul_and_its_format(dtype: str, width: int, form: str) -> None:
    program = walked(
        entry(
            f"x = {dtype}[32768,32768] parameter(0)",
            f"w = {dtype}[32768,32768] parameter(1)",
            f"ROOT d = {dtype}[32768,32768] dot(x, w), {DOT}",
        )
    )
    found = op(program, "d")
    assert found.flops == 70_368_744_177_664 == 2 * 32768**3
    assert found.bytes_read + found.bytes_written == 3 * width * 32768**2
    assert (found.kind, found.matmuls[0].format) == ("matmul", form)


def test_scaling_book_128_an_all_to_all_knows_its_bytes_apart_from_its_axis() -> None:
    program = walked(
        entry(
            "x = bf16[16,512] parameter(0)",
            "ROOT a = bf16[16,512] all-to-all(x), replica_groups=[1,16]<=[16], dimensions={0}",
            header=", replica_count=16",
        )
    )
    ((collective, _),) = collectives(program)
    assert (collective.groups.size, collective.payload_bytes) == (16, 16 * 512 * 2)


def test_xla_5655_a_channel_without_global_ids_takes_every_partition_in() -> None:
    program = walked(
        entry(
            "x = f32[512] parameter(0)",
            "ROOT a = f32[512] all-reduce(x), channel_id=37, replica_groups={{0}}, to_apply=plus",
            before=PLUS,
            header=", num_partitions=2",
        )
    )
    ((collective, _),) = collectives(program)
    assert collective.groups.members == ((0, 1),)


def test_inference_sim_877_layers_of_two_kinds_are_counted_by_kind() -> None:
    # four dense layers and three with experts: two loops, each with its own body
    def loop(name: str, trips: int, width: int) -> str:
        state = f"(s32[], f32[8,8], f32[8,{width}], f32[{width},8])"
        return f"""{name}_cond {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant({trips})
  ROOT c = pred[] compare(i, k), direction=LT
}}

{name}_body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8] get-tuple-element(p), index=1
  u = f32[8,{width}] get-tuple-element(p), index=2
  v = f32[{width},8] get-tuple-element(p), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  h = f32[8,{width}] dot(x, u), {DOT}
  y = f32[8,8] dot(h, v), {DOT}
  ROOT t = {state} tuple(j, y, u, v)
}}
"""

    def run(name: str, value: str, width: int, at: int) -> list[str]:
        state = f"(s32[], f32[8,8], f32[8,{width}], f32[{width},8])"
        return [
            f"{name}u = f32[8,{width}] parameter({at})",
            f"{name}v = f32[{width},8] parameter({at + 1})",
            f"{name}t = {state} tuple(z, {value}, {name}u, {name}v)",
            f"{name} = {state} while({name}t), condition={name}_cond, body={name}_body",
            f"{name}x = f32[8,8] get-tuple-element({name}), index=1",
        ]

    program = walked(
        entry(
            "x = f32[8,8] parameter(0)",
            "z = s32[] constant(0)",
            *run("dense", "x", 32, 1),
            *run("moe", "densex", 16, 3),
            "ROOT r = f32[8,8] negate(moex)",
            before=loop("dense", 4, 32) + "\n" + loop("moe", 3, 16),
        )
    )
    assert loops(program) == {"dense": 4, "moe": 3}
    assert flops(program) == 4 * (2 * 2 * 8 * 8 * 32) + 3 * (2 * 2 * 8 * 8 * 16)
