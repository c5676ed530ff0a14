from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.groups import DeviceGroups
from xla_cost.program import Body, Branch, Collective, Loop, Matmul, Op, Program
from xla_cost.program_io import from_json, to_json


def program() -> Program:
    groups = DeviceGroups(((0, 1), (2, 3)))
    inner = Body(
        (
            Op("p", "parameter", "free", ()),
            Op(
                "d", "dot", "matmul", (0,), scope="layer/q", source="m.py:3",
                matmuls=(Matmul(1, 8, 4, 2, "fp8"), Matmul(6, 5, 4, 3, "bf16", True)),
                matmul_opcodes=("dot", "ragged-dot"), bytes_read=10, bytes_written=20,
                source_bytes_read=12, result_bytes=20, work=0.5, region="flash_attention",
                routed_tokens=9, routed_experts=256, top_k=8, vector_flops=7,
            ),
            Op(
                "a", "all-reduce", "collective", (1,),
                collective=Collective("reduce-scatter", groups, 64, 32, "bf16", "all-reduce"),
            ),
            Op("u", "custom-call", "unpriced", (1, 2), note="who knows"),
        ),
        99,
        ((1, 0), (0, 0)),
    )  # fmt: skip
    other = Body((Op("n", "negate", "vector", ()),), 3)
    entry = Body(
        (
            Loop("w", 58, inner, (), "layers", "m.py:9"),
            Loop("v", None, inner, (0,)),
            Branch("c", (other, inner), (0, 1), "pick"),
        ),
        1234,
        None,
    )
    return Program(
        "m", 4, entry, 77, 88, ("careful",), (("jax", "0.10.2"),), weights_bytes=70,
        coverage=0.75, coverage_bytes=0.5, unparsed_lines=2,
    )  # fmt: skip


def test_a_program_comes_back_equal() -> None:
    text = json.dumps(to_json(program()))
    assert from_json(json.loads(text)) == program()
    bare = Program("m", 1, Body(()), 0, 0)
    assert from_json(json.loads(json.dumps(to_json(bare)))) == bare


def test_a_shared_body_is_written_once_and_stays_shared() -> None:
    data = to_json(program())
    assert len(data["bodies"]) == 3  # two inner ones and the entry
    back = from_json(data)
    first, second, branch = back.entry.nodes
    assert isinstance(first, Loop)
    assert isinstance(second, Loop)
    assert isinstance(branch, Branch)
    assert first.body is second.body is branch.bodies[1]


def test_strings_and_groups_are_written_once() -> None:
    data = to_json(program())
    assert len(data["strings"]) == len(set(data["strings"]))
    assert data["groups"] == [{"pairs": False, "members": [[0, 1], [2, 3]]}]


def test_writing_is_deterministic() -> None:
    assert json.dumps(to_json(program())) == json.dumps(to_json(program()))


def test_deep_nesting_needs_no_recursion() -> None:
    body = Body((Op("n", "negate", "vector", ()),))
    for _ in range(3000):
        body = Body((Loop("w", 1, body, ()),))
    data = to_json(Program("m", 1, body, 0, 0))
    assert len(data["bodies"]) == 3001
    assert len(to_json(from_json(data))["bodies"]) == 3001


def changed(path: list[Any], value: Any) -> Any:
    data = copy.deepcopy(to_json(program()))
    place = data
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


DOT = ["bodies", 0, "nodes", 1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "program: is a list; must be a dict"),
        ({}, "program: format is None; must be 'xla_cost.program'"),
        (changed(["version"], 2), "program: version is 2; this xla_cost reads version 1"),
        (changed(["strings"], {}), "strings: is a dict; must be a list"),
        (changed(["strings", 0], 5), "strings[0]: is a int; must be a str"),
        (changed(["bodies"], []), "bodies: is empty; must end with the entry"),
        (
            changed(["program", "devices"], -1),
            "program.devices: is -1; must be a whole number >= 0",
        ),
        (changed(["program", "devices"], None), "program.devices: is missing; expected a value"),
        (
            changed(["program", "coverage"], 1.5),
            "program.coverage: is 1.5; must be between 0 and 1",
        ),
        (changed([*DOT, 3], "magic"), "bodies[0].nodes[1]: kind is 'magic'; must be one of"),
        (changed([*DOT, 4], [1]), "bodies[0].nodes[1].deps: is 1; must be below 1"),
        (changed([*DOT, 1], 999), "bodies[0].nodes[1]: is 999; must be below"),
        (changed([*DOT, 5, "bytes_read"], 1.5), "bodies[0].nodes[1].bytes_read: is 1.5; must be"),
        (
            changed([*DOT, 5, "colour"], 1),
            "bodies[0].nodes[1].colour: is unknown; expected a field",
        ),
        (changed([*DOT, 5, "matmuls", 0, 4], "fp5"), "matmuls[0]: format is 'fp5'; must be one of"),
        (changed([*DOT, 5, "matmuls", 0], [1]), "matmuls[0]: has 1 parts; must have 6 or 7"),
        (
            changed([*DOT, 5, "matmuls", 0], [1, 2, 3, 4, "bf16", False, 2 * 3 * 4 + 1]),
            "matmuls[0]: padded is 25; must be at most m * n * k",
        ),
        (
            changed(["bodies", 2, "nodes", 0, 3], 2),
            "bodies[2].nodes[0].body: is 2; must be below 2",
        ),
        (changed(["bodies", 2, "nodes", 0, 0], "jump"), "is a 'jump' of 7 parts; must be op, loop"),
        (changed(["bodies", 2, "nodes", 2, 2], []), "bodies[2].nodes[2].bodies: is empty"),
        (changed(["bodies", 0, "carried"], [[9, 0]]), "bodies[0].carried: is 9; must be below 4"),
        (changed(["groups", 0, "members"], [["x"]]), "groups[0].members[0]: is 'x'; must be"),
        (changed(["program", "extra"], 1), "program.extra: is unknown; expected one of"),
    ],
)
def test_what_is_malformed_is_refused_with_its_place(data: Any, message: str) -> None:
    with pytest.raises(XlaCostError) as caught:
        from_json(data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_ledgers_of_one_structure_differ_in_numbers_alone() -> None:
    one = program()
    entry = replace(one.entry, peak_live_bytes=4321)
    other = replace(one, entry=entry)
    a, b = to_json(one), to_json(other)
    assert a["strings"] == b["strings"]
    assert a["bodies"][2]["peak_live_bytes"] != b["bodies"][2]["peak_live_bytes"]
    b["bodies"][2]["peak_live_bytes"] = a["bodies"][2]["peak_live_bytes"]
    assert a == b
