"""Calls, conditionals, nesting, dependencies, and what an iteration hands on."""

from __future__ import annotations

import sys

import pytest
from walk_helpers import DOT, SQUARE, entry, flops, kinds, loops, op, vector_flops, walked

from xla_cost.program import Branch, Loop, Op

# calls and conditionals


def test_a_call_is_put_in_place_and_waits_for_what_it_uses() -> None:
    called = f"""two {{
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  d = f32[8,8] dot(p, p), {DOT}
  n = f32[8,8] negate(q)
  ROOT t = (f32[8,8], f32[8,8], f32[8,8]) tuple(d, n, q)
}}
"""
    program = walked(
        entry(
            "x = f32[8,8] parameter(0)",
            "s = f32[8,8] sine(x)",
            "c = f32[8,8] cosine(x)",
            "r = (f32[8,8], f32[8,8], f32[8,8]) call(s, c), to_apply=two",
            "a = f32[8,8] get-tuple-element(r), index=0",
            "b = f32[8,8] get-tuple-element(r), index=1",
            "q = f32[8,8] get-tuple-element(r), index=2",
            "ra = f32[8,8] tanh(a)",
            "rb = f32[8,8] tanh(b)",
            "rq = f32[8,8] tanh(q)",
            "ROOT t = (f32[8,8], f32[8,8], f32[8,8]) tuple(ra, rb, rq)",
            before=called,
        )
    )
    waits = dependencies(program.entry.nodes)
    assert waits["d"] == {"s"}  # not the cosine
    assert waits["n"] == {"c"}
    assert waits["ra"] == {"d"}
    assert waits["rb"] == {"n"}
    assert waits["rq"] == {"c"}  # passed through the call


def dependencies(nodes: tuple) -> dict[str, set[str]]:  # type: ignore[type-arg]
    """Per timed node, the timed nodes that it waits for directly, through free ones."""
    behind: list[set[str]] = []
    found = {}
    for node in nodes:
        names: set[str] = set()
        for dep in node.deps:
            inner = nodes[dep]
            is_free = isinstance(inner, Op) and inner.kind == "free"
            names |= behind[dep] if is_free else {inner.name}
        behind.append(names)
        found[node.name] = names
    return found


def test_a_computation_called_often_is_walked_once_per_context() -> None:
    calls = [f"y{i} = f32[8,8] call(y{i - 1}), to_apply=square" for i in range(1, 30)]
    program = walked(
        entry("y0 = f32[8,8] parameter(0)", *calls, "ROOT n = f32[8,8] negate(y29)", before=SQUARE)
    )
    assert flops(program) == 29 * 2 * 8 * 8 * 8
    nodes = [node for node in program.entry.nodes if isinstance(node, Op) and node.matmuls]
    assert len({id(node.matmuls) for node in nodes}) == 1


def test_calls_that_double_twenty_times_stay_small() -> None:
    first = f"c0 {{\n  p = f32[8,8] parameter(0)\n  ROOT d = f32[8,8] dot(p, p), {DOT}\n}}\n"
    text = [first] + [
        f"c{i} {{\n  p = f32[8,8] parameter(0)\n  a = f32[8,8] call(p), to_apply=c{i - 1}\n"
        f"  ROOT b = f32[8,8] call(a), to_apply=c{i - 1}\n}}\n"
        for i in range(1, 21)
    ]
    program = walked(
        entry(
            "x = f32[8,8] parameter(0)",
            "ROOT r = f32[8,8] call(x), to_apply=c20",
            before="\n".join(text),
        )
    )
    assert flops(program) == 2**20 * (2 * 8 * 8 * 8)


def test_of_a_conditional_the_dearest_branch_counts() -> None:
    branches = f"""cheap {{
  p = f32[8,8] parameter(0)
  ROOT n = f32[8,8] negate(p)
}}

dear {{
  p = f32[8,8] parameter(0)
  d = f32[8,8] dot(p, p), {DOT}
  ROOT r = f32[8,8] dot(d, p), {DOT}
}}

{SQUARE}
"""
    program = walked(
        entry(
            "i = s32[] parameter(0)",
            "x = f32[8,8] parameter(1)",
            "ROOT c = f32[8,8] conditional(i, x, x, x), branch_computations={cheap, square, dear}",
            before=branches,
        )
    )
    (branch,) = [node for node in program.entry.nodes if isinstance(node, Branch)]
    assert len(branch.bodies) == 3
    assert flops(program) == 2 * (2 * 8 * 8 * 8)


@pytest.mark.parametrize("opcode", ["map", "reduce", "sort"])
def test_applied_computations_are_not_calls(opcode: str) -> None:
    lines = {
        "map": "r = f32[64] map(x, x), dimensions={0}, to_apply=f",
        "reduce": "r = f32[] reduce(x, z), dimensions={0}, to_apply=f",
        "sort": "r = f32[64] sort(x), dimensions={0}, to_apply=f",
    }
    applied = (
        "f {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
        "  s = f32[] add(a, b)\n  ROOT t = f32[] multiply(s, s)\n}\n"
    )
    program = walked(
        entry(
            "x = f32[64] parameter(0)", "z = f32[] constant(0)", "ROOT " + lines[opcode],
            before=applied,
        )
    )  # fmt: skip
    assert kinds(program) == {"vector": 1}
    expected = {"map": 64 * 2, "reduce": 63 * 2, "sort": 64 * 6}
    assert vector_flops(program) == expected[opcode]


def test_async_calls_and_fusions_run_at_the_start() -> None:
    program = walked(
        entry(
            "x = f32[8,8] parameter(0)",
            "s = ((f32[8,8]), f32[8,8], u32[]) call-start(x), to_apply=square",
            "n = f32[8,8] negate(x)",
            "u = ((f32[8,8]), f32[8,8], u32[]) call-update(s)",
            "d = f32[8,8] call-done(u)",
            "f = ((f32[8,8]), f32[8,8], s32[]) fusion-start(n), kind=kLoop, calls=square",
            "g = f32[8,8] fusion-done(f)",
            "ROOT a = f32[8,8] add(d, g)",
            before=SQUARE,
        )
    )
    assert flops(program) == 2 * (2 * 8 * 8 * 8)
    assert kinds(program) == {"matmul": 2, "wait": 2, "vector": 2}
    assert op(program, "f").result_bytes == 8 * 8 * 4


def test_missing_computations_are_unpriced_not_zero() -> None:
    program = walked(
        entry(
            "x = f32[8,8] parameter(0)",
            "f = f32[8,8] fusion(x), kind=kLoop, calls=gone",
            "c = f32[8,8] call(f), to_apply=gone",
            "w = f32[8,8] while(c), condition=gone, body=gone",
            "ROOT b = f32[8,8] conditional(x, w), branch_computations={gone}",
        )
    )
    assert kinds(program) == {"unpriced": 4}
    assert "fused computation gone is not in the text" in op(program, "f").note
    assert all("reads 256 bytes" in op(program, name).note for name in "fcw")


def test_an_unknown_opcode_is_unpriced() -> None:
    program = walked(entry("x = f32[8] parameter(0)", "ROOT r = f32[8] new-thing(x)"))
    assert op(program, "r").note == "no rule for opcode new-thing: reads 32 bytes, writes 32 bytes"


def test_nesting_deeper_than_pythons_stack() -> None:
    depth = sys.getrecursionlimit() + 200
    parts = [SQUARE]
    for i in range(depth):
        inner = "square" if i == 0 else f"c{i - 1}"
        parts.append(
            f"c{i} {{\n  p = f32[8,8] parameter(0)\n"
            f"  ROOT r = f32[8,8] call(p), to_apply={inner}\n}}\n"
        )
    for i in range(depth):
        inner = f"c{depth - 1}" if i == 0 else f"f{i - 1}"
        parts.append(
            f"f{i} {{\n  p = f32[8,8] parameter(0)\n"
            f"  ROOT r = f32[8,8] while(p), condition=never, body={inner}, "
            'backend_config={"known_trip_count":{"n":"1"}}\n}\n'
        )
    parts.append("never {\n  p = f32[8,8] parameter(0)\n  ROOT c = pred[] constant(false)\n}\n")
    program = walked(
        entry(
            "x = f32[8,8] parameter(0)",
            f"ROOT r = f32[8,8] call(x), to_apply=f{depth - 1}",
            before="\n".join(parts),
        )
    )
    assert flops(program) == 2 * 8 * 8 * 8
    assert len(loops(program)) == 1  # all are called r


def test_a_computation_that_calls_itself_is_counted_once() -> None:
    again = (
        f"again {{\n  p = f32[8,8] parameter(0)\n  d = f32[8,8] dot(p, p), {DOT}\n"
        "  ROOT r = f32[8,8] call(d), to_apply=again\n}\n"
    )
    program = walked(
        entry(
            "x = f32[8,8] parameter(0)", "ROOT r = f32[8,8] call(x), to_apply=again", before=again
        )
    )
    assert flops(program) == 2 * 8 * 8 * 8
    assert program.warnings[0] == "computation again calls itself: counted once"


def test_of_a_module_without_entry_all_that_nothing_calls_counts() -> None:
    one = f"one {{\n  p = f32[8,8] parameter(0)\n  ROOT d = f32[8,8] dot(p, p), {DOT}\n}}\n"
    two = one.replace("one", "two")
    program = walked("HloModule m\n\n" + one + "\n" + two)
    assert flops(program) == 2 * (2 * 8 * 8 * 8)
    assert any("2 computations that nothing calls" in warning for warning in program.warnings)


# what an iteration hands on

CARRY = f"""cond {{
  p = (s32[], f32[8,8], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant(4)
  ROOT c = pred[] compare(i, k), direction=LT
}}

body {{
  p = (s32[], f32[8,8], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8] get-tuple-element(p), index=1
  w = f32[8,8] get-tuple-element(p), index=2
  o = f32[8,8] get-tuple-element(p), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = f32[8,8] dot(x, w), {DOT}
  s = f32[8,8] add(o, d)
  ROOT t = (s32[], f32[8,8], f32[8,8], f32[8,8]) tuple(j, d, w, s)
}}
"""


def test_a_loop_says_what_it_carries() -> None:
    program = walked(
        entry(
            "x = f32[8,8] parameter(0)",
            "z = s32[] constant(0)",
            "t = (s32[], f32[8,8], f32[8,8], f32[8,8]) tuple(z, x, x, x)",
            "ROOT r = (s32[], f32[8,8], f32[8,8], f32[8,8]) while(t), condition=cond, body=body",
            before=CARRY,
        )
    )
    (loop,) = [node for node in program.entry.nodes if isinstance(node, Loop)]
    names = [node.name for node in loop.body.nodes]
    pairs = {(names[a], names[b]) for a, b in loop.body.carried or ()}
    assert pairs == {("j", "i"), ("d", "x"), ("w", "w"), ("s", "o")}
    assert loop.trips == 4


@pytest.mark.parametrize(
    ("operand", "dims", "row_bytes"),
    [
        ("bf16[8,7168]", "1", 7168 * 2),
        ("f32[2,3,5]", "1,2", 3 * 5 * 4),
        ("f32[8,7168]", "0", 0),  # across rows
        ("f32[2,3,5]", "0,2", 0),  # not side by side
        ("f32[64]", "0", 64 * 4),
    ],
)
def test_a_reduce_knows_the_rows_that_it_reduces(operand, dims, row_bytes):
    text = f"""HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  x = {operand} parameter(0)
  zero = f32[] constant(0)
  ROOT s = f32[] reduce(x, zero), dimensions={{{dims}}}, to_apply=add
}}
"""
    (found,) = [op for op, _ in walked(text).walk() if op.opcode == "reduce"]
    assert found.row_bytes == row_bytes
