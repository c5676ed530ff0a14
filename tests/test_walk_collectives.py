from __future__ import annotations

import pytest
from walk_helpers import collectives, kinds, loops, op, walked

from xla_cost.errors import XlaCostError
from xla_cost.groups import DeviceGroups

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"


def module(*lines: str, header: str = "num_partitions=8", before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m, {header}\n\n{ADD}\n{before}\nENTRY e {{\n{body}\n}}\n"


GROUPS = "replica_groups={{0,1,2,3},{4,5,6,7}}, channel_id=1, use_global_device_ids=true"
FOURS = DeviceGroups(((0, 1, 2, 3), (4, 5, 6, 7)))


@pytest.mark.parametrize(
    ("opcode", "operand", "result", "rest"),
    [
        ("all-reduce", "f32[64]", "f32[64]", "to_apply=add"),
        ("all-gather", "f32[64]", "f32[256]", "dimensions={0}"),
        ("reduce-scatter", "f32[64]", "f32[16]", "dimensions={0}, to_apply=add"),
        ("all-to-all", "f32[64]", "f32[64]", "dimensions={0}"),
        ("collective-broadcast", "f32[64]", "f32[64]", ""),
    ],
)
def test_payload_is_the_operand(opcode: str, operand: str, result: str, rest: str) -> None:
    rest = f", {rest}" if rest else ""
    program = walked(
        module(f"x = {operand} parameter(0)", f"ROOT c = {result} {opcode}(x), {GROUPS}{rest}")
    )
    ((collective, times),) = collectives(program)
    assert (collective.kind, collective.groups, times) == (opcode, FOURS, 1)
    assert collective.payload_bytes == 64 * 4
    assert collective.result_bytes == 4 * int(result[4:-1])
    assert collective.format == "fp32"
    assert program.devices == 8


@pytest.mark.parametrize("groups", ["[2,4]<=[8]", "{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[2,4]"])
def test_all_spellings_of_groups(groups: str) -> None:
    program = walked(
        module(
            "x = bf16[64] parameter(0)",
            f"ROOT c = bf16[64] all-reduce(x), replica_groups={groups}, channel_id=1, "
            "use_global_device_ids=true, to_apply=add",
        )
    )
    assert collectives(program)[0][0].groups == FOURS
    assert collectives(program)[0][0].format == "bf16"


def test_a_variadic_collective_adds_its_operands() -> None:
    program = walked(
        module(
            "x = f32[1024] parameter(0)",
            "y = bf16[512] parameter(1)",
            "s = ((f32[1024], bf16[512]), (f32[4096], bf16[2048])) all-gather-start(x, y), "
            f"{GROUPS}, dimensions={{0}}",
            "ROOT d = (f32[4096], bf16[2048]) all-gather-done(s)",
        )
    )
    ((collective, _),) = collectives(program)
    assert collective.payload_bytes == 1024 * 4 + 512 * 2
    assert collective.result_bytes == 4 * (1024 * 4 + 512 * 2)


def test_of_an_async_pair_the_start_costs_and_the_done_waits() -> None:
    program = walked(
        module(
            "x = f32[64] parameter(0)",
            f"s = f32[64] all-reduce-start(x), {GROUPS}, to_apply=add",
            "y = f32[64] negate(x)",
            "d = f32[64] all-reduce-done(s)",
            "ROOT r = f32[64] add(y, d)",
        )
    )
    nodes = program.entry.nodes
    names = [node.name for node in nodes]
    assert [getattr(n, "kind", "") for n in nodes] == [
        "free", "collective", "vector", "wait", "vector",
    ]  # fmt: skip
    assert nodes[names.index("d")].deps == (names.index("s"),)
    assert nodes[names.index("y")].deps == (names.index("x"),)
    assert set(nodes[names.index("r")].deps) == {names.index("y"), names.index("d")}
    assert op(program, "s").result_bytes == 64 * 4


WRAPPED = """wrapped {
  p = f32[4096] parameter(0)
  q = f32[2048] parameter(1)
  ROOT r = (f32[1024], f32[512]) reduce-scatter(p, q), dimensions={0}, to_apply=add, GROUPS
}
""".replace("GROUPS", GROUPS)


def test_a_collective_inside_an_async_wrapper_runs_at_the_start() -> None:
    program = walked(
        module(
            "x = f32[4096] parameter(0)",
            "y = f32[2048] parameter(1)",
            "s = ((f32[4096], f32[2048]), (f32[1024], f32[512])) async-start(x, y), calls=wrapped",
            "u = ((f32[4096], f32[2048]), (f32[1024], f32[512])) async-update(s)",
            "ROOT d = (f32[1024], f32[512]) async-done(u)",
            before=WRAPPED,
        )
    )
    ((collective, times),) = collectives(program)
    assert (collective.kind, times) == ("reduce-scatter", 1)
    assert collective.payload_bytes == 4 * (4096 + 2048)
    assert collective.result_bytes == 4 * (1024 + 512)
    nodes = program.entry.nodes
    (at,) = [i for i, n in enumerate(nodes) if getattr(n, "kind", "") == "collective"]
    (wait,) = [n for n in nodes if getattr(n, "kind", "") == "wait"]
    assert reachable(nodes, wait.deps) >= {at}


def reachable(nodes: tuple, deps: tuple[int, ...]) -> set[int]:  # type: ignore[type-arg]
    found: set[int] = set()
    todo = list(deps)
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo.extend(nodes[at].deps)
    return found


def test_collective_permute_start_and_its_pairs() -> None:
    program = walked(
        module(
            "x = f32[4096] parameter(0)",
            "s = (f32[4096], f32[4096], u32[], u32[]) collective-permute-start(x), channel_id=1, "
            "source_target_pairs={{0,1},{1,0}}",
            "ROOT d = f32[4096] collective-permute-done(s)",
        )
    )
    ((collective, _),) = collectives(program)
    assert collective.groups == DeviceGroups(((0, 1), (1, 0)), is_pairs=True)
    assert (collective.payload_bytes, collective.result_bytes) == (4096 * 4, 4096 * 4)


def test_ragged_all_to_all_counts_its_input_alone() -> None:
    program = walked(
        module(
            "x = bf16[128,256] parameter(0)",
            "o = bf16[512,256] parameter(1)",
            "i = s32[4] parameter(2)",
            "ROOT r = bf16[512,256] ragged-all-to-all(x, o, i, i, i, i), "
            "replica_groups=[2,4]<=[4,2]T(1,0), channel_id=1",
        )
    )
    ((collective, _),) = collectives(program)
    assert collective.payload_bytes == 128 * 256 * 2
    assert collective.groups == DeviceGroups(((0, 2, 4, 6), (1, 3, 5, 7)))


def test_four_bit_payloads_are_packed() -> None:
    program = walked(
        module(
            "x = s4[64] parameter(0)",
            f"ROOT c = s4[256] all-gather(x), {GROUPS}, dimensions={{0}}",
        )
    )
    ((collective, _),) = collectives(program)
    assert (collective.payload_bytes, collective.format) == (32, "s4")


SEND = """cond {
  p = (u32[], (f32[256], token[]), token[]) parameter(0)
  i = u32[] get-tuple-element(p), index=0
  k = u32[] constant(6)
  ROOT c = pred[] compare(i, k), direction=LT
}

body {
  p = (u32[], (f32[256], token[]), token[]) parameter(0)
  i = u32[] get-tuple-element(p), index=0
  r = (f32[256], token[]) get-tuple-element(p), index=1
  x = f32[256] get-tuple-element(r), index=0
  one = u32[] constant(1)
  j = u32[] add(i, one)
  t = token[] after-all()
  s = (f32[256], u32[], token[]) send(x, t), channel_id=2, PAIRS
  v = (f32[256], u32[], token[]) recv(t), channel_id=2, PAIRS
  vd = (f32[256], token[]) recv-done(v), channel_id=2
  sd = token[] send-done(s), channel_id=2
  ROOT o = (u32[], (f32[256], token[]), token[]) tuple(j, vd, sd)
}
""".replace("PAIRS", 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}')


def test_send_and_receive_count_once_and_the_receiver_waits_for_the_send() -> None:
    program = walked(
        module(
            "x = f32[256] parameter(0)",
            "zero = u32[] constant(0)",
            "t = token[] after-all()",
            "xt = (f32[256], token[]) tuple(x, t)",
            "i = (u32[], (f32[256], token[]), token[]) tuple(zero, xt, t)",
            "ROOT w = (u32[], (f32[256], token[]), token[]) while(i), condition=cond, body=body",
            before=SEND,
        )
    )
    ((collective, times),) = collectives(program)
    assert (collective.kind, times) == ("send-recv", 6)
    assert collective.payload_bytes == 256 * 4
    assert collective.groups == DeviceGroups(((0, 1), (1, 2)), is_pairs=True)
    assert loops(program) == {"w": 6}
    (body,) = [node.body for node in program.entry.nodes if node.name == "w"]  # type: ignore[union-attr]
    names = [node.name for node in body.nodes]
    assert names.index("s") in body.nodes[names.index("vd")].deps


def test_a_send_to_the_host_is_a_move() -> None:
    program = walked(
        module(
            "x = f32[256] parameter(0)",
            "t = token[] after-all()",
            "s = (f32[256], u32[], token[]) send(x, t), channel_id=2, is_host_transfer=true",
            "ROOT d = token[] send-done(s), channel_id=2, is_host_transfer=true",
        )
    )
    assert collectives(program) == []
    assert (op(program, "s").kind, op(program, "s").note) == ("move", "host transfer")


def test_a_group_of_one_is_kept_and_is_seen_to_be_one() -> None:
    program = walked(
        module(
            "x = f32[64] parameter(0)",
            "ROOT c = f32[64] all-gather(x), replica_groups={{0},{1}}, dimensions={0}",
            header="replica_count=2",
        )
    )
    assert collectives(program)[0][0].groups.size == 1


def test_everyone_without_a_number_of_devices_is_said() -> None:
    text = module("x = f32[64] parameter(0)", "ROOT c = f32[64] all-reduce(x), to_apply=add")
    program = walked(text.replace(", num_partitions=8", ""))
    assert program.warnings == (
        "c: its group is everyone, and the text does not say how many that is: took 1",
    )
    assert walked(text.replace("num_partitions", "replica_count")).warnings == ()


def test_groups_that_contradict_themselves_are_refused() -> None:
    text = module(
        "x = f32[64] parameter(0)",
        "ROOT c = f32[256] all-gather(x), replica_groups=[2,2]<=[16], dimensions={0}",
    )
    with pytest.raises(XlaCostError, match=r"all-gather c: replica_groups=\[2,2\]<=\[16\]"):
        walked(text)


# an all-reduce of which every device takes its own slice


def sliced(*users: str, root: str = "r", extra: str = "") -> str:
    return module(
        "x = f32[64,8] parameter(0)",
        f"a = f32[64,8] all-reduce(x), {GROUPS}, to_apply=add",
        "id = u32[] partition-id()",
        "table = s32[8] constant({0,16,32,48,0,16,32,48})",
        "at = s32[1] dynamic-slice(table, id), dynamic_slice_sizes={1}",
        "row = s32[] reshape(at)",
        "zero = s32[] constant(0)",
        *users,
        before=extra,
    )


SLICE = "ROOT r = f32[16,8] dynamic-slice(a, row, zero), dynamic_slice_sizes={16,8}"


def test_an_all_reduce_that_is_only_sliced_is_a_reduce_scatter() -> None:
    ((collective, _),) = collectives(walked(sliced(SLICE)))
    assert (collective.kind, collective.rewritten_from) == ("reduce-scatter", "all-reduce")
    assert collective.payload_bytes == 64 * 8 * 4
    assert collective.result_bytes == 64 * 8 * 4 // 4


def test_the_slice_is_found_behind_a_convert_and_a_reshape() -> None:
    text = sliced(
        "c = bf16[64,8] convert(a)",
        "v = bf16[4,16,8] reshape(c)",
        "ROOT r = bf16[1,16,8] dynamic-slice(v, row, zero, zero), dynamic_slice_sizes={1,16,8}",
    )
    assert collectives(walked(text))[0][0].kind == "reduce-scatter"


def test_the_slice_is_found_inside_a_fusion() -> None:
    fused = """f {
  q = f32[64,8] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  s = f32[16,8] dynamic-slice(q, i, z), dynamic_slice_sizes={16,8}
  ROOT n = f32[16,8] negate(s)
}
"""
    text = sliced("ROOT r = f32[16,8] fusion(a, row), kind=kLoop, calls=f", extra=fused)
    assert collectives(walked(text))[0][0].kind == "reduce-scatter"


@pytest.mark.parametrize(
    "users",
    [
        (SLICE.replace("ROOT ", ""), "ROOT t = (f32[16,8], f32[64,8]) tuple(r, a)"),
        ("ROOT r = f32[32,8] dynamic-slice(a, row, zero), dynamic_slice_sizes={32,8}",),
        ("ROOT r = f32[16,8] dynamic-slice(a, zero, zero), dynamic_slice_sizes={16,8}",),
        ("ROOT r = f32[16,8] slice(a), slice={[0:16], [0:8]}",),
    ],
    ids=["whole too", "too big a slice", "the same slice for all", "static"],
)
def test_otherwise_it_stays_an_all_reduce(users: tuple[str, ...]) -> None:
    ((collective, _),) = collectives(walked(sliced(*users)))
    assert (collective.kind, collective.rewritten_from) == ("all-reduce", "")


def test_collectives_hidden_in_a_fusion_come_out() -> None:
    fused = f"""f {{
  q = f32[64] parameter(0)
  r = f32[64] all-reduce(q), {GROUPS}, to_apply=add
  ROOT n = f32[64] negate(r)
}}
"""
    program = walked(
        module(
            "x = f32[64] parameter(0)",
            "ROOT y = f32[64] fusion(x), kind=kCustom, calls=f",
            before=fused,
        )
    )
    assert kinds(program) == {"collective": 1, "vector": 1}
    nodes = program.entry.nodes
    assert [node.name for node in nodes] == ["x", "y/r", "y"]
    assert nodes[1].deps == (0,)
    assert set(nodes[2].deps) == {0, 1}
