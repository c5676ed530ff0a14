"""Nesting has no limit but memory: nothing recurses over what a file holds.

The depth is far beyond Python's recursion limit; docs/reliability.md has larger ones.
"""

import json
import sys
from collections.abc import Callable

import pytest

from xla_cost.hlo import parse
from xla_cost.price import price
from xla_cost.price.as_json import result_json
from xla_cost.program import Program
from xla_cost.program_io import from_json, to_json
from xla_cost.walk import walk

DEPTH = 1500
LEAF = "c0 {\n p = f32[8] parameter(0)\n ROOT n = f32[8] negate(p)\n}\n"


def nested(line: str, extra: str = "", before: str = "") -> Callable[[int], str]:
    """A module of computations in which each one reaches the one before through `line`."""

    def text(depth: int) -> str:
        body = f" p = f32[8] parameter(0)\n{before} ROOT n = f32[8] "
        levels = [
            f"c{i} {{\n{body}{line.replace('INNER', f'c{i - 1}')}\n}}\n" for i in range(1, depth)
        ]
        last = f"ENTRY e {{\n{body}{line.replace('INNER', f'c{depth - 1}')}\n}}\n"
        return "HloModule m\n" + extra + LEAF + "".join(levels) + last

    return text


def chain(*lines: str) -> Callable[[int], str]:
    """An entry in which every value comes from the one before."""

    def text(depth: int) -> str:
        steps = [
            f" {line.replace('THIS', f't{i}').replace('LAST', f't{i - 1}')}\n"
            for i in range(1, depth)
            for line in lines
        ]
        first, last = " t0 = f32[8] parameter(0)\n", f" ROOT r = f32[8] negate(t{depth - 1})\n}}\n"
        return "HloModule m\nENTRY e {\n" + first + "".join(steps) + last

    return text


def tuples(depth: int) -> str:
    kind = "(" * depth + "f32[8]" + ")" * depth
    return f"HloModule m\nENTRY e {{\n p = f32[8] parameter(0)\n ROOT t = {kind} tuple(p)\n}}\n"


def scopes(depth: int) -> str:
    name = "jit(f)/" + "a/" * depth + "neg"
    return (
        "HloModule m\nENTRY e {\n p = f32[8] parameter(0)\n"
        f' ROOT r = f32[8] negate(p), metadata={{op_name="{name}"}}\n}}\n'
    )


COND = "cond {\n p = f32[8] parameter(0)\n ROOT t = pred[] constant(true)\n}\n"
TRIPS = 'backend_config={"known_trip_count":{"n":"1"}}'
#: shape of the nesting -> (text, executions of negate in it)
DEEP = {
    "calls": (nested("call(p), to_apply=INNER"), 1),
    "whiles": (nested(f"while(p), condition=cond, body=INNER, {TRIPS}", COND), 1),
    "fusions": (nested("fusion(p), kind=kLoop, calls=INNER"), 0),
    "conditionals": (
        nested(
            "conditional(b, p, p), true_computation=INNER, false_computation=INNER",
            before=" b = pred[] constant(true)\n",
        ),
        1,
    ),
    "tuples and their elements": (
        chain("uTHIS = (f32[8]) tuple(LAST)", "THIS = f32[8] get-tuple-element(uTHIS), index=0"), 1,
    ),
    "a chain of values": (chain("THIS = f32[8] negate(LAST)"), DEPTH),
    "a scope": (scopes, 1),
}  # fmt: skip


def test_a_type_of_many_levels_is_said_not_to_be_understood() -> None:
    (module,) = parse(tuples(DEPTH))
    ((line, text),) = module.unparsed
    assert (line, text[:12]) == (4, "ROOT t = (((")
    assert walk(module).unparsed_lines == 1


def negations(program: Program) -> float:
    return sum(times for op, times in program.walk() if op.opcode == "negate")


@pytest.mark.parametrize("name", DEEP)
def test_depth_is_read_walked_priced_and_stored(name: str) -> None:
    assert sys.getrecursionlimit() < DEPTH
    make, expected = DEEP[name]
    (module,) = parse(make(DEPTH))
    assert not module.unparsed
    program = walk(module)
    assert negations(program) in (expected, 2 * expected)  # a conditional has two ways
    stored = json.dumps(to_json(program))
    back = from_json(json.loads(stored))
    assert negations(back) == negations(program)
    assert json.dumps(to_json(back)) == stored
    for policy in ("study", "calibrated"):
        estimate = price(back, "b300", policy)
        assert result_json(estimate)["latency_s"] == estimate.latency_s >= 0
