"""Schedules of hand-made programs, spelled out."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from price_programs import dot, free, gather, loop, machine, permute, program

from xla_cost.policy import policy
from xla_cost.price import price
from xla_cost.price.execute import execute
from xla_cost.price.exposure import exposed_s
from xla_cost.price.loose import loose_steps
from xla_cost.price.schedule import Work, schedule
from xla_cost.price.tasks import Step, TaskBody, TaskGraph
from xla_cost.program import Body, Branch

OVERLAPPING = policy("study", iterations_in_flight=2)


def steps_of(*deps: tuple[int, ...]) -> TaskBody:
    return TaskBody(tuple(Step(d) for d in deps), barrier=True)


def seconds(*parts: tuple[int, float]) -> Work:
    return Work(tuple((part,) for part in parts))


def told(scheduled) -> list[tuple[int, int, float, float]]:
    return sorted((run[3], run[2], run[0], run[1]) for run in scheduled.runs)


def test_chain_runs_one_after_the_other():
    body = steps_of((), (0,), (1,))
    found = schedule(body, [seconds((0, 2.0)), seconds((1, 3.0)), seconds((0, 1.0))])
    assert told(found) == [(0, 0, 0.0, 2.0), (1, 1, 2.0, 5.0), (2, 0, 5.0, 6.0)]
    assert found.iteration_ends_s == (6.0,)


def test_two_independent_halves_overlap():
    """Half A computes 2, sends 2, computes 1; half B the same. B computes while A sends."""
    body = steps_of((), (0,), (1,), (), (3,), (4,))
    half = [seconds((0, 2.0)), seconds((1, 2.0)), seconds((0, 1.0))]
    found = schedule(body, half + half)
    assert told(found) == [
        (0, 0, 0.0, 2.0),
        (1, 1, 2.0, 4.0),
        (2, 0, 4.0, 5.0),
        (3, 0, 2.0, 4.0),
        (4, 1, 4.0, 6.0),
        (5, 0, 6.0, 7.0),
    ]


def test_one_collective_in_flight_per_stream_but_tiers_run_side_by_side():
    body = steps_of((), (), ())
    found = schedule(body, [seconds((1, 2.0)), seconds((1, 3.0)), seconds((2, 4.0))])
    assert told(found) == [(0, 1, 0.0, 2.0), (1, 1, 2.0, 5.0), (2, 2, 0.0, 4.0)]


def test_stages_follow_each_other_on_their_own_streams():
    """Step 0 uses tier 1 for 2 s then tier 2 for 3 s; step 1 wants tier 1 for 1 s."""
    body = steps_of((), ())
    found = schedule(body, [seconds((1, 2.0), (2, 3.0)), seconds((1, 1.0))])
    assert told(found) == [(0, 1, 0.0, 2.0), (0, 2, 2.0, 5.0), (1, 1, 2.0, 3.0)]


def test_parts_of_a_stage_run_side_by_side():
    body = steps_of((), (0,))
    both = Work((((1, 2.0), (2, 5.0)), ((1, 1.0),)))
    found = schedule(body, [both, seconds((0, 1.0))])
    assert told(found) == [
        (0, 1, 0.0, 2.0),
        (0, 1, 5.0, 6.0),
        (0, 2, 0.0, 5.0),
        (1, 0, 6.0, 7.0),
    ]


def test_a_block_waits_for_all_its_streams():
    """The collective takes tier 1 until 3; the loop needs compute and tier 1."""
    body = steps_of((), (), (1,))
    block = Work((((0, 4.0), (1, 4.0)),), is_block=True)
    found = schedule(body, [seconds((1, 3.0)), block, seconds((0, 1.0))])
    assert told(found) == [
        (0, 1, 0.0, 3.0),
        (1, 0, 3.0, 7.0),
        (1, 1, 3.0, 7.0),
        (2, 0, 7.0, 8.0),
    ]


def test_exposed_time_is_shared_by_tiers_that_run_together():
    """Tier 1 runs 0-4, tier 2 runs 0-6, compute runs 5-8: alone together 0-4, tier 2 alone 4-5."""
    runs = [(0.0, 4.0, 1, 0, 0), (0.0, 6.0, 2, 1, 0), (5.0, 8.0, 0, 2, 0)]
    assert exposed_s(runs, lambda run: False) == {0: 2.0, 1: 2.0 + 1.0}


def test_loop_without_known_carries_runs_its_iterations_one_by_one():
    """Body: dot 2 s and a permute of 300 B at 100 B/s side by side: 3 s, 1 s of it exposed."""
    body = Body((dot("d", (), 2.0), permute("p", (), 300)))
    estimate = price(program(loop(body, 5)), machine(), OVERLAPPING)
    assert estimate.latency_s == pytest.approx(5 * 3.0)
    assert estimate.compute_s == pytest.approx(5 * 2.0)
    assert estimate.comm_s_by_tier == pytest.approx({"scale-up": 5 * 3.0, "scale-out": 0.0})
    assert estimate.exposed_comm_s == pytest.approx(5 * 1.0)


def prefetching(comm_bytes: int, compute_s: float) -> Body:
    """The permute needs only the invariant 0; the dot needs it and what the last dot made."""
    nodes = (
        free("get-tuple-element"),
        free("get-tuple-element"),
        permute("p", (0,), comm_bytes),
        dot("d", (1, 2), compute_s),
        free("tuple", (0, 3)),
    )
    return Body(nodes, carried=((0, 0), (3, 1)))


@pytest.mark.parametrize(
    ("comm_bytes", "compute_s", "latency_s"),
    [
        (100, 3.0, 1.0 + 10 * 3.0),  # hidden behind compute but for the first
        (300, 1.0, 10 * 3.0 + 1.0),  # the link is busy all the time, then the last dot
    ],
)
def test_loop_iterations_overlap_where_carried_values_allow(comm_bytes, compute_s, latency_s):
    ledger = program(loop(prefetching(comm_bytes, compute_s), 10))
    assert price(ledger, machine(), OVERLAPPING).latency_s == pytest.approx(latency_s)
    one_by_one = 10 * (comm_bytes / 100 + compute_s)
    assert price(ledger, machine(), "study").latency_s == pytest.approx(one_by_one)


def test_carried_chain_leaves_nothing_to_overlap():
    """The permute needs what the last dot made: 10 * (1 + 3)."""
    nodes = (free("get-tuple-element"), permute("p", (0,), 100), dot("d", (1,), 3.0))
    body = Body(nodes, carried=((2, 0),))
    estimate = price(program(loop(body, 10)), machine(), OVERLAPPING)
    assert estimate.latency_s == pytest.approx(40.0)
    assert estimate.exposed_comm_s == pytest.approx(10.0)


def test_nested_loops_multiply():
    """Inner: 3 trips of 1 s. Outer: 4 trips of inner and a permute of 2 s behind it."""
    inner = loop(Body((dot("d", (), 1.0),)), 3)
    outer = loop(Body((inner, permute("p", (0,), 200))), 4)
    estimate = price(program(outer), machine(), "study")
    assert estimate.latency_s == pytest.approx(4 * (3 * 1.0 + 2.0))
    assert [op.executions for op in estimate.ops] == [12.0, 4.0]


def test_collective_runs_beside_a_loop_that_only_computes():
    """The permute of 5 s hides the loop of 4 s; the dot waits for both."""
    ledger = program(
        permute("p", (), 500), loop(Body((dot("d", (), 1.0),)), 4), dot("e", (0, 1), 1.0)
    )
    estimate = price(ledger, machine(), "study")
    assert estimate.latency_s == pytest.approx(5.0 + 1.0)
    assert estimate.exposed_comm_s == pytest.approx(1.0)


def test_unknown_trip_count_is_costed_once_and_said():
    estimate = price(program(loop(Body((dot("d", (), 2.0),)), None)), machine(), "study")
    assert estimate.latency_s == pytest.approx(2.0)
    assert any("no known trip count" in line for line in estimate.warnings)


def test_branch_takes_the_dearest_body():
    cheap, dear = Body((dot("a", (), 1.0),)), Body((dot("b", (), 3.0), permute("p", (0,), 100)))
    estimate = price(program(Branch("c", (cheap, dear), ())), machine(), "study")
    assert estimate.latency_s == pytest.approx(4.0)
    assert [op.name for op in estimate.ops] == ["b", "p"]


def test_group_of_one_costs_nothing():
    estimate = price(program(gather("g", (), 1000, devices=1)), machine(), "study")
    assert estimate.latency_s == 0.0
    assert estimate.comm_s == 0.0


def test_timeline_of_a_loop_shows_one_iteration_of_five():
    body = Body((dot("d", (), 2.0), permute("p", (0,), 300)))
    ledger = program(dot("first", (), 1.0), loop(body, 5, (0,)))
    timeline = price(ledger, machine(), "study").timeline
    told = [(e.name, e.stream, e.start_s, e.end_s, e.times) for e in timeline.events]
    assert told == [
        ("first", "compute", 0.0, 1.0, 1.0),
        ("d", "compute", 1.0, 3.0, 5.0),
        ("p", "scale-up", 3.0, 6.0, 5.0),
    ]
    (span,) = timeline.loops
    assert (span.start_s, span.end_s, span.trips, span.drawn) == (1.0, 1.0 + 5 * 5.0, 5, 1)
    assert span.iteration_s == 5.0


@st.composite
def bodies(draw) -> tuple[TaskBody, list[Work]]:
    """A random graph of up to 6 steps with random carried values."""
    count = draw(st.integers(1, 6))
    steps, work = [], []
    for index in range(count):
        deps = draw(st.lists(st.integers(0, index - 1), max_size=2)) if index else []
        carried = draw(st.lists(st.integers(0, count - 1), max_size=2))
        steps.append(Step(tuple(sorted(set(deps))), tuple(sorted(set(carried))), task=index))
        parts = draw(
            st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=2)
        )
        work.append(Work(tuple(((stream, float(s)),) for stream, s in parts)))
    return TaskBody(tuple(steps), draw(st.booleans()), loose_steps(steps)), work


@settings(max_examples=150, deadline=None)
@given(bodies(), st.integers(1, 4))
def test_something_runs_at_any_time_before_the_end(made, copies):
    body, work = made
    runs = sorted(schedule(body, work, copies).runs)
    reached = 0.0
    for start, end, *_ in runs:
        assert start <= reached
        reached = max(reached, end)


def two_alike_by_chance() -> tuple[TaskBody, list[Work]]:
    """Its second iteration takes as long as the first, and the fourth less than the third."""
    steps = tuple(Step(deps, task=index) for index, deps in enumerate(((), (), (1,), (0,), ())))
    parts = (((0, 4.0),), ((1, 3.0), (0, 1.0)), ((1, 3.0), (0, 2.0)), ((1, 1.0),), ((1, 3.0),))
    work = [Work(tuple((part,) for part in stages)) for stages in parts]
    return TaskBody(steps, False, loose_steps(steps)), work


@settings(max_examples=150, deadline=None)
@given(bodies(), st.integers(1, 40))
@example(two_alike_by_chance(), 4)
def test_loops_are_extrapolated_to_what_unrolling_them_whole_gives(made, trips):
    body, work = made
    outer = TaskBody((Step((), bodies=(0,), trips=trips),), barrier=True)
    graph = TaskGraph((), (), (body, outer), ((trips,), (1,)), (), ())
    found = execute(graph, [item.stages for item in work], overlap=True)
    one = schedule(body, work).iteration_ends_s[0]
    whole = max(schedule(body, work, trips).iteration_ends_s)
    assert found.latency_s <= one * trips * (1 + 1e-9)
    if found.runs[0, trips].window is not None:
        assert found.latency_s == pytest.approx(min(whole, one * trips), rel=1e-3)
    else:  # unrolled whole, or one by one: no rhythm, or nothing to gain
        assert found.latency_s in (pytest.approx(whole), pytest.approx(one * trips))


def test_loose_steps_are_those_that_iterations_may_overlap_in():
    """0 takes what 3 made; 1 needs nothing carried; 2 needs 0; 3 needs 1 and 2; 4 is a by-product.

    Step 1 may run ahead and step 4 may lag; the others follow each other strictly.
    """
    steps = [
        Step((), (3,)),
        Step(()),
        Step((0,)),
        Step((1, 2)),
        Step((2,)),
    ]
    assert loose_steps(steps) == (1, 4)
