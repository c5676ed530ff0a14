from __future__ import annotations

import pytest
from walk_helpers import flops, loops, walked

from xla_cost.walk.scalars import Affine, Comparison
from xla_cost.walk.trips import closed_form


def loop(
    condition: str,
    update: str = "next = s32[] add(i, one)",
    start: str = "0",
    dtype: str = "s32",
    index: int = 0,
    config: str = "",
) -> str:
    """A while over (counter, data, bound) with the counter at `index`."""
    types = [f"{dtype}[]", "f32[8,8]", f"{dtype}[]"]
    names = ["next", "d", "n"]
    entries = ["start", "x", "limit"]
    order = {0: [0, 1, 2], 1: [1, 0, 2], 2: [1, 2, 0]}[index]
    state = "(" + ", ".join(types[i] for i in order) + ")"
    place = {which: at for at, which in enumerate(order)}
    return f"""HloModule m

cond {{
  p = {state} parameter(0)
  i = {dtype}[] get-tuple-element(p), index={place[0]}
  n = {dtype}[] get-tuple-element(p), index={place[2]}
  one = {dtype}[] constant(1)
  {condition}
}}

body {{
  p = {state} parameter(0)
  i = {dtype}[] get-tuple-element(p), index={place[0]}
  x = f32[8,8] get-tuple-element(p), index={place[1]}
  n = {dtype}[] get-tuple-element(p), index={place[2]}
  one = {dtype}[] constant(1)
  {update}
  d = f32[8,8] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = {state} tuple({", ".join(names[i] for i in order)})
}}

ENTRY e {{
  x = f32[8,8] parameter(0)
  start = {dtype}[] constant({start})
  limit = {dtype}[] constant(17)
  t = {state} tuple({", ".join(entries[i] for i in order)})
  ROOT w = {state} while(t), condition=cond, body=body{config}
}}
"""


def compare(left: str, right: str, direction: str) -> str:
    return f"ROOT c = pred[] compare({left}, {right}), direction={direction}"


K = "k = s32[] constant(10)\n  "


@pytest.mark.parametrize(
    ("text", "trips"),
    [
        (loop(K + compare("i", "k", "LT")), 10),
        (loop(K + compare("i", "k", "LE")), 11),
        (loop(K + compare("k", "i", "GT")), 10),
        (loop(K + compare("k", "i", "GE")), 11),
        (loop(K + compare("i", "k", "NE")), 10),
        (loop(K + compare("i", "k", "EQ"), start="10"), 1),
        (loop(K + compare("i", "k", "LT"), start="10"), 0),
        (loop(K + compare("i", "k", "LE"), start="11"), 0),
        (loop(K + compare("i", "k", "LT"), start="-3"), 13),
        # a step of three: ceil(10 / 3)
        (loop(K + compare("i", "k", "LT"), "s = s32[] constant(3)\n  next = s32[] add(i, s)"), 4),
        # downwards
        (loop(compare("i", "one", "GE"), "next = s32[] subtract(i, one)", "9"), 9),
        (loop(compare("i", "one", "GT"), "next = s32[] subtract(i, one)", "9"), 8),
        # the wrong way: it would not end
        (loop(K + compare("i", "k", "LT"), "next = s32[] subtract(i, one)"), None),
        # a step that misses the bound of `!=`
        (
            loop(K + compare("i", "k", "NE"), "s = s32[] constant(3)\n  next = s32[] add(i, s)"),
            None,
        ),
    ],
)
def test_every_direction_and_step(text: str, trips: int | None) -> None:
    assert loops(walked(text)) == {"w": trips}


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_bound_is_carried_and_the_counter_anywhere(index: int) -> None:
    program = walked(loop(compare("i", "n", "LT"), index=index))
    assert loops(program) == {"w": 17}
    assert flops(program) == 17 * 2 * 8 * 8 * 8


def test_the_compilers_own_count_wins() -> None:
    config = ', backend_config={"known_trip_count":{"n":"5"}}'
    assert loops(walked(loop(compare("i", "n", "LT"), config=config))) == {"w": 5}
    escaped = ', backend_config="{\\"known_trip_count\\":{\\"n\\":\\"6\\"}}"'
    assert loops(walked(loop(compare("i", "n", "LT"), config=escaped))) == {"w": 6}


def test_unsigned_counters_wrap() -> None:
    update = "m = u32[] constant(4294967295)\n  next = u32[] add(i, m)"
    text = loop(compare("i", "one", "GE"), update, "9", dtype="u32")
    assert loops(walked(text)) == {"w": 9}


def test_the_compare_may_sit_in_a_fusion_behind_converts_and_copies() -> None:
    text = loop("v = s64[] convert(i)\n  ROOT c = pred[] fusion(v), kind=kLoop, calls=lt")
    fused = """
lt {
  q = s64[] parameter(0)
  k = s64[] constant(12)
  b = s64[] copy(k)
  ROOT r = pred[] compare(q, b), direction=LT
}

cond {"""
    assert loops(walked(text.replace("\ncond {", fused))) == {"w": 12}


def test_the_update_may_sit_in_a_called_computation() -> None:
    text = loop(K + compare("i", "k", "LT"), "next = s32[] call(i, one), to_apply=plus")
    called = (
        "\nplus {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n"
        "  ROOT r = s32[] add(b, a)\n}\n\ncond {"
    )
    assert loops(walked(text.replace("\ncond {", called))) == {"w": 10}


def test_arithmetic_on_the_bound_and_the_counter() -> None:
    # 2 i + 1 < 17 * 1: i < 8
    two = "two = s32[] constant(2)\n  d2 = s32[] multiply(i, two)\n  d3 = s32[] add(d2, one)\n  "
    assert loops(walked(loop(two + compare("d3", "n", "LT")))) == {"w": 8}


def test_a_negated_condition_and_one_with_a_constant() -> None:
    negated = K + "g = pred[] compare(i, k), direction=GE\n  ROOT c = pred[] not(g)"
    assert loops(walked(loop(negated))) == {"w": 10}
    both = (
        K
        + "g = pred[] compare(i, k), direction=LT\n  y = pred[] constant(true)\n"
        + "  ROOT c = pred[] and(g, y)"
    )
    assert loops(walked(loop(both))) == {"w": 10}


def test_a_counter_that_doubles_is_followed() -> None:
    # 1, 2, 4, .., 1024: ten doublings stay below 1024
    update = "next = s32[] add(i, i)"
    text = loop("k = s32[] constant(1024)\n  " + compare("i", "k", "LT"), update, "1")
    assert loops(walked(text)) == {"w": 10}


def test_a_loop_on_data_is_unknown_and_counted_once() -> None:
    text = loop(K + compare("i", "k", "LT")).replace(
        "start = s32[] constant(0)", "start = s32[] parameter(1)"
    )
    program = walked(text)
    assert loops(program) == {"w": None}
    assert flops(program) == 2 * 8 * 8 * 8
    assert program.warnings == ("1 loops run as often as data say, counted once: w",)


def test_a_bound_that_the_body_changes_is_unknown() -> None:
    text = loop(compare("i", "n", "LT")).replace("tuple(next, d, n)", "tuple(next, d, next)")
    assert loops(walked(text)) == {"w": None}


NESTED = """HloModule m

inner_cond {
  p = (s32[], s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}

inner_body {
  p = (s32[], s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  x = f32[4,4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], s32[], f32[4,4]) tuple(j, n, d)
}

outer_cond {
  p = (s32[], f32[4,4], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant(5)
  ROOT c = pred[] compare(i, k), direction=LT
}

outer_body {
  p = (s32[], f32[4,4], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,4] get-tuple-element(p), index=1
  n = s32[] get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  s = (s32[], s32[], f32[4,4]) tuple(zero, n, x)
  w = (s32[], s32[], f32[4,4]) while(s), condition=inner_cond, body=inner_body
  y = f32[4,4] get-tuple-element(w), index=2
  ROOT t = (s32[], f32[4,4], s32[]) tuple(j, y, n)
}

layers {
  x = f32[4,4] parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[4,4], s32[]) tuple(zero, x, n)
  o = (s32[], f32[4,4], s32[]) while(t), condition=outer_cond, body=outer_body
  ROOT r = f32[4,4] get-tuple-element(o), index=1
}

ENTRY e {
  x = f32[4,4] parameter(0)
  n = s32[] constant(3)
  ROOT r = f32[4,4] call(x, n), to_apply=layers
}
"""


def test_a_bound_is_followed_out_of_nested_loops_and_calls() -> None:
    program = walked(NESTED)
    assert loops(program) == {"o": 5, "w": 3}
    assert flops(program) == 5 * 3 * 2 * 4 * 4 * 4


def test_two_callers_that_disagree_leave_the_count_unknown() -> None:
    text = NESTED.replace(
        "  ROOT r = f32[4,4] call(x, n), to_apply=layers",
        "  four = s32[] constant(4)\n  y = f32[4,4] call(x, n), to_apply=layers\n"
        "  ROOT r = f32[4,4] call(y, four), to_apply=layers",
    )
    assert loops(walked(text)) == {"o": 5, "w": None}


def test_the_closed_form_rounds_up() -> None:
    below = Comparison(Affine(0, 1), "LT", Affine(1))
    assert closed_form(below, 0, 2) == 1  # openxla/xla #48454: floor gave 0
    assert closed_form(Comparison(Affine(0, 1), "LE", Affine(-1)), 0, 1) == 0
    for bound in range(-3, 8):
        for step in (1, 2, 3):
            for direction, holds in (("LT", lambda i, b: i < b), ("LE", lambda i, b: i <= b)):
                i = trips = 0
                while holds(i, bound):
                    i, trips = i + step, trips + 1
                test = Comparison(Affine(0, 1), direction, Affine(bound))
                assert closed_form(test, 0, step) == trips
