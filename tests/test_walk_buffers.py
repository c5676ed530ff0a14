"""Updates in place: whose memory a result is, through calls, loops and fusions."""

from __future__ import annotations

from walk_helpers import DOT, walked

A = "f32[64,64]"
BYTES = 4 * 64 * 64
ROW = "f32[1,64]"
ROW_BYTES = 4 * 64
UPDATE = f"""put {{
  c = {A} parameter(0)
  r = {ROW} parameter(1)
  i = s32[] parameter(2)
  ROOT u = {A} dynamic-update-slice(c, r, i, i)
}}
"""
LOOP = f"""cond {{
  s = (s32[], {A}) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(64)
  ROOT l = pred[] compare(n, k), direction=LT
}}
body {{
  s = (s32[], {A}) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  c = {A} get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  z = s32[] constant(0)
  ROW
  ROOT t = (s32[], {A}) tuple(m, u)
}}
"""
IN_PLACE = LOOP.replace(
    "ROW",
    f"r = {ROW} dynamic-slice(c, n, z), dynamic_slice_sizes={{1,64}}\n"
    f"  u = {A} dynamic-update-slice(c, r, z, z)",
)
ANEW = LOOP.replace("ROW", f"u = {A} dot(c, c), {DOT}")


def peak(*lines: str, before: str = "") -> int:
    body = "\n".join(f"  {line}" for line in lines)
    return walked(f"HloModule m\n\n{before}\nENTRY e {{\n{body}\n}}\n").entry.peak_live_bytes


ARGUMENTS = (f"x = {A} parameter(0)", f"r = {ROW} parameter(1)", "i = s32[] parameter(2)")


def test_an_argument_that_a_call_updates_is_one_copy() -> None:
    call = f"ROOT u = {A} call(x, r, i), to_apply=put"
    assert peak(*ARGUMENTS, call, before=UPDATE) == 0
    two = (f"u = {A} call(x, r, i), to_apply=put", f"ROOT v = {A} call(u, r, i), to_apply=put")
    assert peak(*ARGUMENTS, *two, before=UPDATE) == 0


def test_what_a_call_updates_of_an_intermediate_is_that() -> None:
    lines = (f"d = {A} dot(x, x), {DOT}", f"ROOT u = {A} call(d, r, i), to_apply=put")
    assert peak(*ARGUMENTS, *lines, before=UPDATE) == BYTES


def test_a_fusion_that_ends_in_an_update_is_in_place() -> None:
    fusion = f"ROOT u = {A} fusion(x, r, i), kind=kLoop, calls=put"
    assert peak(*ARGUMENTS, fusion, before=UPDATE) == 0


def test_the_result_of_a_call_counts_once() -> None:
    inner = f"f {{\n  a = {A} parameter(0)\n  ROOT d = {A} dot(a, a), {DOT}\n}}\n"
    assert peak(ARGUMENTS[0], f"ROOT c = {A} call(x), to_apply=f", before=inner) == BYTES


RUN = (
    "z = s32[] constant(0)",
    f"s = (s32[], {A}) tuple(z, START)",
    f"l = (s32[], {A}) while(s), condition=cond, body=body",
    f"ROOT o = {A} get-tuple-element(l), index=1",
)


def called(start: str, *made: str) -> tuple[str, ...]:
    """A computation of `x` that runs the loop from `start`, as text, and its call."""
    lines = "\n".join(f"  {line.replace('START', start)}" for line in (*made, *RUN))
    return f"f {{\n  x = {A} parameter(0)\n{lines}\n}}\n", f"ROOT c = {A} call(x), to_apply=f"


def test_a_loop_that_updates_an_argument_keeps_it_in_place() -> None:
    # inside: the counter and a row of the argument
    inside = 4 + ROW_BYTES
    run = [line.replace("START", "x") for line in RUN]
    assert peak(ARGUMENTS[0], *run, before=IN_PLACE) == inside
    inner, call = called("x")
    assert peak(ARGUMENTS[0], call, before=IN_PLACE + inner) == inside


def test_a_loop_that_makes_its_state_anew_returns_another_array() -> None:
    inner, call = called("x")
    assert peak(ARGUMENTS[0], call, before=ANEW + inner) == max(4 + BYTES, BYTES)


def test_what_a_loop_stacks_over_zeros_stands_in_memory_once() -> None:
    zeros = ("nil = f32[] constant(0)", f"b = {A} broadcast(nil), dimensions={{}}")
    inside = 4 + ROW_BYTES
    run = [line.replace("START", "b") for line in RUN]
    assert peak(*zeros, *run, before=IN_PLACE) == BYTES + inside
    inner, call = called("b", *zeros)
    assert peak(ARGUMENTS[0], call, before=IN_PLACE + inner) == BYTES + inside


def test_two_loops_over_the_same_zeros_make_two_arrays() -> None:
    lines = (
        "nil = f32[] constant(0)",
        f"b = {A} broadcast(nil), dimensions={{}}",
        "z = s32[] constant(0)",
        f"s = (s32[], {A}) tuple(z, b)",
        f"l = (s32[], {A}) while(s), condition=cond, body=body",
        f"k = (s32[], {A}) while(s), condition=cond, body=body",
        f"p = {A} get-tuple-element(l), index=1",
        f"q = {A} get-tuple-element(k), index=1",
        f"ROOT t = ({A}, {A}) tuple(p, q)",
    )
    assert peak(*lines, before=IN_PLACE) == 2 * BYTES + 4 + ROW_BYTES
