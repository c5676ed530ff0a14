"""The lock file and what counts as a change for the worse, on hand-made programs."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_cost.errors import XlaCostError
from xla_cost.gate.check import check_program
from xla_cost.gate.compare import changes
from xla_cost.gate.lock import (
    CollectiveKey,
    Lock,
    WarningKey,
    describe,
    lock_of,
    parse,
    render,
)
from xla_cost.gate.places import places_of
from xla_cost.groups import DeviceGroups
from xla_cost.program import Body, Collective, Loop, Matmul, Op, Program

PAIRS = DeviceGroups.of([[0, 2, 4, 6], [1, 3, 5, 7]])


def gather(size: int, scope: str = "layer/ffn", kind: str = "all-gather") -> Op:
    moved = Collective(kind, PAIRS, size, 4 * size, "bf16")
    return Op("ag", kind, "collective", (), scope, "model.py:33", collective=moved)


def program(*ops: Op, trips: int = 3, peak: int = 1000) -> Program:
    dot = Op("dot", "dot", "matmul", (), "layer/ffn", matmuls=(Matmul(1, 4, 8, 16, "bf16"),))
    loop = Loop("while", trips, Body((dot, *ops)), ())
    return Program("p", 8, Body((loop,), peak_live_bytes=peak), 500, 100)


def test_lock_counts_loop_bodies_times_trips():
    lock = lock_of(program(gather(64)))
    assert lock.flops == {"bf16": 3 * 2 * 4 * 8 * 16}
    assert lock.scope_flops == {("bf16", "layer/ffn"): 3 * 2 * 4 * 8 * 16}
    key = CollectiveKey("all-gather", "bf16", "4 devices x 2 [0:8:2]", "layer/ffn")
    assert lock.collectives == {(key, 64): 3}
    assert lock.memory == {"parameters": 500, "peak": 1500}


def test_a_group_of_one_is_not_in_the_lock():
    alone = replace(gather(64).collective, groups=DeviceGroups.of([[0], [1]]))
    assert lock_of(program(replace(gather(64), collective=alone))).collectives == {}


def test_groups_are_described_by_size_count_and_first_members():
    assert describe(PAIRS) == "4 devices x 2 [0:8:2]"
    assert describe(DeviceGroups.of([[0, 1, 5]])) == "3 devices x 1 [0,1,5]"
    assert describe(DeviceGroups(((0, 1), (1, 2)), is_pairs=True)) == "2 pairs [0>1]"


def test_text_is_sorted_and_exact():
    lock = lock_of(program(gather(64)), [WarningKey("remat", "layer")], made_with="jax 0.10.2")
    assert render(lock).splitlines()[1:] == [
        "made-with jax 0.10.2",
        "devices 8",
        "tolerance collective_bytes 0 %",
        "tolerance flops 0 %",
        "tolerance memory 2 %",
        "flops bf16 3072",
        "flops bf16 scope=layer/ffn 3072",
        "collective all-gather bf16 4 devices x 2 [0:8:2] scope=layer/ffn bytes=64 executions=3",
        "warning remat scope=layer count=1",
        "memory parameters 500",
        "memory peak 1500",
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["all-gather", "all-reduce"]),
            st.text(max_size=12) | st.sampled_from([" bytes=1 executions=2", "scope= 7", "\\n"]),
            st.integers(0, 10**15),
        )
    ),
    st.integers(1, 4),
)
def test_render_then_parse_is_the_identity(ops, trips):
    lock = lock_of(program(*(gather(b, s, k) for k, s, b in ops), trips=trips))
    assert parse(render(lock), "x") == lock


def compared(old: Program, new: Program) -> list[tuple[bool, str]]:
    return [(c.worse, c.text) for c in changes(lock_of(old), lock_of(new))]


def test_a_new_collective_is_worse_and_named():
    where = "all-gather bf16 over 4 devices x 2 [0:8:2] in layer/ffn"
    assert compared(program(), program(gather(64))) == [(True, f"new: {where}: 3 x 64 bytes")]
    assert compared(program(gather(64)), program()) == [(False, f"gone: {where}: 3 x 64 bytes")]


def test_growth_is_worse_and_shrinking_is_not():
    where = "all-gather bf16 over 4 devices x 2 [0:8:2] in layer/ffn"
    assert compared(program(gather(64)), program(gather(96))) == [
        (True, f"changed: {where}: 3 x 64 bytes -> 3 x 96 bytes (+50.0 % bytes)")
    ]
    assert compared(program(gather(64)), program(gather(32))) == [
        (False, f"changed: {where}: 3 x 64 bytes -> 3 x 32 bytes (-50.0 % bytes)")
    ]


def test_memory_has_two_percent_of_room():
    old = program(peak=100_000)
    assert compared(old, program(peak=101_000))[0][0] is False
    assert compared(old, program(peak=103_000))[0] == (
        True,
        "memory: peak: 100,500 -> 103,500 bytes (+3.0 %)",
    )


def test_a_new_compiler_warning_is_worse():
    old = lock_of(program())
    new = replace(old, warnings={WarningKey("remat", "layer"): 1})
    (change,) = changes(old, new)
    assert (change.worse, change.text) == (True, "finding: remat in layer: 0 -> 1 times")
    (change,) = changes(new, old)
    assert (change.worse, change.text) == (False, "finding: remat in layer: 1 -> 0 times")


def test_check_names_the_users_line_and_update_accepts(tmp_path: Path):
    path = tmp_path / "costs.lock"
    with pytest.raises(XlaCostError, match="there is no lock yet"):
        check_program(program(), path)
    assert check_program(program(), path, update=True).updated
    assert check_program(program(), path).ok
    failed = check_program(program(gather(64)), path)
    assert not failed.ok
    assert str(failed.changes[0]).endswith("  <- model.py:33")
    assert check_program(program(gather(64)), path, update=True).ok
    assert check_program(program(gather(64)), path).ok


def test_update_keeps_the_tolerances_of_the_file(tmp_path: Path):
    path = tmp_path / "costs.lock"
    check_program(program(peak=1000), path, update=True)
    path.write_text(path.read_text().replace("memory 2 %", "memory 50 %"))
    assert check_program(program(peak=1600), path).ok
    check_program(program(peak=1600), path, update=True)
    assert "tolerance memory 50 %" in path.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x: line 1 is 'an empty line'; expected '# xla-cost lock 1.'"),
        ("# xla-cost lock 9.\n", "x: line 1 is '# xla-cost lock 9.'"),
        ("# xla-cost lock 1.\nflops bf16 many\n", "x: line 2 is 'flops bf16 many'; expected"),
        ("# xla-cost lock 1.\nflops bf16 -1\n", "x: line 2 is 'flops bf16 -1'; expected"),
        ("# xla-cost lock 1.\ntolerance time 3 %\n", "x: line 2: tolerance 'time'; expected one"),
        ("# xla-cost lock 1.\ntolerance flops -3 %\n", "x: line 2 is 'tolerance flops -3 %'"),
        ("# xla-cost lock 1.\n<<<<<<< HEAD\n", "x: line 2 is '<<<<<<< HEAD'; expected devices"),
        ("# xla-cost lock 1.\ndevices 8\ndevices 8\n", "x: line 3 repeats line 2; expected"),
        ("# xla-cost lock 1.\nflops bf16 1\n\nflops bf16 2\n", "x: line 4 repeats line 2"),
        ("# xla-cost lock 1.\nflops bf16 1\n", "x: has no line `devices`; expected one"),
    ],
)
def test_a_malformed_lock_is_named_by_line(text: str, message: str):
    with pytest.raises(XlaCostError) as error:
        parse(text, "x")
    assert message in str(error.value)


def test_line_ends_and_control_characters_in_a_scope_stay_on_its_line():
    lock = lock_of(program(gather(64, "a\nb\x1b[31m\u2028c\xa0d")))
    ((key, _),) = lock.collectives
    assert key.scope == "a\\nb\\x1b[31m\\u2028c\\xa0d"
    assert len(render(lock).splitlines()) == len(render(lock_of(program(gather(64)))).splitlines())
    assert parse(render(lock), "x") == lock


def test_windows_line_ends_and_comments_are_read():
    lock = lock_of(program(gather(64)))
    assert parse(render(lock).replace("\n", "\r\n") + "# mine\r\n", "x") == lock


def test_a_renamed_part_is_no_change_for_the_worse():
    (change,) = changes(lock_of(program(gather(64))), lock_of(program(gather(64, "layer/mlp"))))
    assert change.worse is False
    assert change.text == (
        "moved: all-gather bf16 over 4 devices x 2 [0:8:2] in layer/mlp: 3 x 64 bytes, "
        "before in layer/ffn"
    )


def test_exact_refuses_any_change():
    old, new = lock_of(program(gather(64), peak=100_000)), lock_of(program(peak=101_000))
    assert [change.worse for change in changes(old, new)] == [False, False]
    assert [change.worse for change in changes(old, new, exact=True)] == [True, True]
    assert changes(old, old, exact=True) == ()


def test_more_flops_name_the_scope_and_the_line_of_its_largest_product():
    more = Op(
        "dot.2", "dot", "matmul", (), "layer/attention", "model.py:7",
        matmuls=(Matmul(1, 4, 8, 8, "bf16"),),
    )  # fmt: skip
    new = program(more)
    (change,) = changes(lock_of(program()), lock_of(new), places_of(new))
    assert change.worse
    assert str(change) == (
        "FLOPs in bf16: 3,072 -> 4,608 FLOP (+50.0 %): layer/attention +1,536  <- model.py:7"
    )


def test_the_line_is_that_of_the_size_that_came():
    other = replace(gather(128), name="ag.2", source="model.py:99")
    new = program(gather(64), other)
    (change,) = changes(lock_of(program(gather(64))), lock_of(new), places_of(new))
    assert change.sources == ("model.py:99",)
    twice = program(gather(64), replace(gather(64), name="ag.3", source="model.py:50"))
    (change,) = changes(lock_of(program(gather(64))), lock_of(twice), places_of(twice))
    assert change.sources == ("model.py:33", "model.py:50")


def test_lock_equality_ignores_nothing():
    assert lock_of(program()) != Lock(8, {}, {}, {})


def test_a_tolerance_survives_being_written(tmp_path: Path):
    path = tmp_path / "costs.lock"
    check_program(program(), path, update=True)
    for text in ("0.000001", "12.5", "1000000", "0.1"):
        path.write_text(render(replace(parse(path.read_text(), "x"), tolerances={
            **parse(path.read_text(), "x").tolerances, "flops": float(text)})))  # fmt: skip
        assert f"tolerance flops {text} %" in path.read_text()
        assert parse(path.read_text(), "x").tolerances["flops"] == float(text)


def test_update_writes_only_when_something_changed(tmp_path: Path):
    path = tmp_path / "costs.lock"
    assert check_program(program(), path, update=True).updated
    assert not check_program(program(), path, update=True).updated
    path.write_text(path.read_text() + "# a note\n")
    assert check_program(program(), path, update=True).updated


def test_a_lock_of_another_jax_is_said_not_refused(tmp_path: Path):
    path = tmp_path / "costs.lock"
    made = replace(program(), provenance=(("jax", "0.10.2"), ("target", "cpu")))
    check_program(made, path, update=True)
    assert "made-with jax 0.10.2, target cpu\n" in path.read_text()
    later = replace(made, provenance=(("jax", "0.10.3"), ("target", "cpu")))
    result = check_program(later, path)
    assert result.ok
    assert result.notes == (
        "the lock was made with jax 0.10.2, target cpu, this is jax 0.10.3, target cpu",
    )
