"""Properties that hold for any group, size and machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_machines import collective, machine, tier

from xla_cost.groups import DeviceGroups
from xla_cost.machine import load, scaled
from xla_cost.network import CALIBRATED, POLICIES, STUDY, collective_time
from xla_cost.network.spread import spreads
from xla_cost.program import CollectiveKind

DEVICES = 64
KINDS: tuple[CollectiveKind, ...] = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all",
    "collective-broadcast",
)  # fmt: skip
IDEAL = [policy for policy in POLICIES.values() if not policy.fitted]


@st.composite
def groups(draw: st.DrawFn) -> DeviceGroups:
    """Disjoint groups of equal size, from any permutation of the devices."""
    order = draw(st.permutations(range(DEVICES)))
    size = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 16, 32, 64]))
    count = draw(st.integers(1, DEVICES // size))
    return DeviceGroups.of([order[i * size : (i + 1) * size] for i in range(count)])


def pods(size: int, ratio: float = 4.0):  # type: ignore[no-untyped-def]
    return machine(
        tier("up", size, 10 * ratio, us=1), tier("out", 128, 10, us=5), name=f"pods-{size}"
    )


kinds = st.sampled_from(KINDS)
sizes = st.integers(1, 10**9)


@given(groups(), kinds, sizes, sizes, st.sampled_from(list(POLICIES.values())))
@settings(max_examples=150, deadline=None)
def test_more_bytes_are_never_cheaper(g, kind, a, b, policy) -> None:  # type: ignore[no-untyped-def]
    few, many = sorted((a, b))
    tall = pods(8)
    less = collective_time(collective(kind, g, few), tall, policy).seconds
    more = collective_time(collective(kind, g, many), tall, policy).seconds
    assert 0.0 <= less <= more * (1 + 1e-12)


# not for broadcasts: trees tier by tier may beat one deep tree by a hop
@given(groups(), st.sampled_from(KINDS[:-1]), sizes, st.sampled_from(list(POLICIES.values())))
@settings(max_examples=150, deadline=None)
def test_a_pod_that_holds_the_group_is_never_dearer(g, kind, size, policy) -> None:  # type: ignore[no-untyped-def]
    c = collective(kind, g, size)
    whole = collective_time(c, pods(64), policy).seconds
    cut = collective_time(c, pods(8), policy).seconds
    assert whole <= cut * (1 + 1e-12)


@given(groups(), kinds, sizes)
@settings(max_examples=100, deadline=None)
def test_four_times_the_bandwidth_is_exactly_a_quarter_inside(g, kind, size) -> None:  # type: ignore[no-untyped-def]
    copper, optical = load("b300"), load("b300-photonic")
    c = collective(kind, g, size)  # 64 devices: inside both pods
    for policy in IDEAL:
        slow = collective_time(c, copper, policy).seconds
        assert collective_time(c, optical, policy).seconds == pytest.approx(slow / 4, rel=1e-12)


@given(groups(), st.sampled_from(["all-gather", "reduce-scatter", "all-reduce"]), sizes)
@settings(max_examples=150, deadline=None)
def test_best_is_never_above_any_rule_it_may_use(g, kind, size) -> None:  # type: ignore[no-untyped-def]
    c = collective(kind, g, size)
    for ratio in (1.0, 4.0, 18.0):
        tall = pods(8, ratio)
        best = collective_time(c, tall, POLICIES["study/best"]).seconds
        for rule in ("flat-ring", "hierarchical"):
            other = collective_time(c, tall, POLICIES[f"study/{rule}"]).seconds
            assert best <= other * (1 + 1e-12)


@given(
    st.sampled_from([2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.floats(1.0, 40.0), sizes,
    st.sampled_from(["all-gather", "reduce-scatter", "all-reduce"]),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_hierarchical_is_never_above_a_flat_ring_on_even_groups(  # type: ignore[no-untyped-def]
    count, members, ratio, size, kind
) -> None:
    g = DeviceGroups.of([[8 * p + m for p in range(count) for m in range(members)]])
    tall = pods(8, ratio)
    c = collective(kind, g, size)
    sharded = collective_time(c, tall, POLICIES["study/hierarchical"]).seconds
    flat = collective_time(c, tall, POLICIES["study/flat-ring"]).seconds
    assert sharded <= flat * (1 + 1e-12)


@given(groups(), kinds, sizes)
@settings(max_examples=60, deadline=None)
def test_order_of_members_and_groups_does_not_matter(g, kind, size) -> None:  # type: ignore[no-untyped-def]
    shuffled = DeviceGroups.of([sorted(group) for group in reversed(g.members)])
    tall = pods(8)
    for policy in (STUDY, CALIBRATED):
        assert collective_time(collective(kind, g, size), tall, policy).seconds == pytest.approx(
            collective_time(collective(kind, shuffled, size), tall, policy).seconds
        )


@given(groups())
@settings(max_examples=100, deadline=None)
def test_shares_of_the_peers_add_up(g: DeviceGroups) -> None:
    """What a mean device exchanges over all tiers is everything but its own part."""
    for spread in spreads(g, (8, 24, 128)):
        n = spread.size
        assert sum(level.peers_mean for level in spread.levels) == pytest.approx((n - 1) / n)
        assert sum(level.ring_edges for level in spread.levels) == n


@given(groups(), kinds, sizes, st.floats(1.0, 4.0))
@settings(max_examples=60, deadline=None)
def test_faster_links_and_shorter_hops_never_hurt(g, kind, size, factor) -> None:  # type: ignore[no-untyped-def]
    b200, c = load("b200"), collective(kind, g, size)
    for policy in (CALIBRATED, replace(STUDY, name="latent", latency=True)):
        base = collective_time(c, b200, policy).seconds
        for better in (
            scaled(b200, scale_up=factor),
            scaled(b200, scale_out=factor),
            scaled(b200, latency=1 / factor),
        ):
            assert collective_time(c, better, policy).seconds <= base * (1 + 1e-12)


@given(groups(), kinds, sizes, st.sampled_from(["b200", "b300", "rubin", "r4"]))
@settings(max_examples=80, deadline=None)
def test_a_photonic_twin_is_never_slower(g, kind, size, name) -> None:  # type: ignore[no-untyped-def]
    """Inherited fits included: floors stay, half sizes grow no faster than bandwidth."""
    copper, optical = load(name), load(f"{name}-photonic")
    c = collective(kind, g, size)
    for policy in (CALIBRATED, STUDY):
        slow = collective_time(c, copper, policy).seconds
        assert collective_time(c, optical, policy).seconds <= slow * (1 + 1e-12)


@given(groups(), kinds, sizes, st.sampled_from(["tpu-v5e", "tpu-v5p", "hyperx-16x128"]))
@settings(max_examples=60, deadline=None)
def test_grids_are_never_faster_than_a_switch_of_their_bandwidth(g, kind, size, name) -> None:  # type: ignore[no-untyped-def]
    """No group gets more out of a torus or HyperX than (n-1)/n of the vector per device."""
    grid = load(name)
    switched = machine(tier("up", DEVICES, grid.scale_up.bandwidth_bytes_per_s / 1e9))
    c = collective(kind, g, size)
    ideal = collective_time(c, switched, STUDY).seconds
    assert collective_time(c, grid, STUDY).seconds >= ideal * (1 - 1e-9)
