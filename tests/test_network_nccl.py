"""All-reduce as NCCL runs it, and the choice between libraries and algorithms."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from network_machines import collective, machine, rows, tier

from xla_cost.errors import XlaCostError
from xla_cost.machine import CollectiveFit, load
from xla_cost.machine.schema import fit_of
from xla_cost.network import CALIBRATED, POLICIES, collective_time, network_policy
from xla_cost.policy import CALIBRATED as WHOLE

UP, OUT = 100e9, 10e9
NCCL = POLICIES["nccl"]
FASTEST = CollectiveFit("all-reduce", 2e-6, 0.8, 0.0, devices=4)
OWN = CollectiveFit("all-reduce-nccl", 20e-6, 0.5, 0.0, devices=4)
SWITCH = CollectiveFit("all-reduce-in-switch", 25e-6, 0.5, 1e6, devices=8)
BIG = 1_000_000_000


def pod(*fits: CollectiveFit, size: int = 32, switch: bool = True, **more):  # type: ignore[no-untyped-def]
    return machine(
        tier("up", size, 100, us=0.5, collectives=fits, in_network_reduction=switch,
             efficiency=0.7, **more),
        tier("out", 4 * size, 10, us=2, efficiency=0.9),
    )  # fmt: skip


FITTED = pod(FASTEST, OWN, SWITCH)


def reduce_s(members: int, payload: int, policy=NCCL, table=FITTED) -> float:  # type: ignore[no-untyped-def]
    return collective_time(
        collective("all-reduce", rows(1, members), payload), table, policy
    ).seconds


def test_nccl_is_compared_with_nccl_and_the_default_takes_the_fastest_kernel() -> None:
    # 4 devices: 2 hops, floor, 2 * 3/4 V at the efficiency of each fit
    assert reduce_s(4, BIG) == pytest.approx(20e-6 + 2 * 0.5e-6 + 1.5 * BIG / (UP * 0.5))
    fastest = reduce_s(4, BIG, CALIBRATED)
    assert fastest == pytest.approx(2e-6 + 2 * 0.5e-6 + 1.5 * BIG / (UP * 0.8))


def test_the_switch_reduces_groups_larger_than_any_measured() -> None:
    # 32 devices put (1 + 1/32) V on their links; the ramp sees the share V/32 of one device
    ramp = 1 + 1e6 / (BIG / 32)
    expected = 25e-6 + 2 * 0.5e-6 + (1 + 1 / 32) * BIG * ramp / (UP * 0.5)
    assert reduce_s(32, BIG) == pytest.approx(expected)
    time = collective_time(collective("all-reduce", rows(1, 32), BIG), FITTED, NCCL)
    assert time.algorithm == "in-network"
    # the frameworks' own kernels, as far as they were measured faster, stay a choice: 2 * 31/32 V
    own = 2e-6 + 2 * 0.5e-6 + 2 * 31 / 32 * BIG / (UP * 0.8)
    assert reduce_s(32, BIG, CALIBRATED) == pytest.approx(min(expected, own))


def test_small_messages_of_large_groups_go_up_and_down_a_tree() -> None:
    # LL: 6.8 us and 2 log2 32 steps of 0.6 us, 0.92 / 3.8 of the link's efficiency
    steps = 6.8e-6 + 2 * 5 * 0.6e-6
    moving = 2 * 1000 / (UP * 0.7 * 0.92 / 3.8)
    assert reduce_s(32, 1000) == pytest.approx(steps + moving)
    # where only rings may run: 6.6 us and 2 * 31 steps of 0.6 us, half of the link
    ringed = pod(OWN, SWITCH, algorithms=("ring",))
    steps = 6.6e-6 + 2 * 31 * 0.6e-6
    moving = 2 * 31 / 32 * 1000 / (UP * 0.7 * 0.5)
    assert reduce_s(32, 1000, NCCL, ringed) == pytest.approx(steps + moving)


def test_without_a_switch_or_a_fit_of_it_rings_and_trees_are_left() -> None:
    # Simple: 8.4 us and 2 * 31 steps of 3.4 us, all of the link's efficiency
    expected = 8.4e-6 + 2 * 31 * 3.4e-6 + 2 * 31 / 32 * BIG / (UP * 0.7)
    for table in (pod(OWN, SWITCH, switch=False), pod(OWN)):
        assert reduce_s(32, BIG, NCCL, table) == pytest.approx(expected)
        # the group that was measured keeps its fit, and so does one that holds for any group
        assert reduce_s(4, BIG, NCCL, table) == reduce_s(4, BIG)
    anyone = pod(replace(OWN, devices=0))
    own = 20e-6 + 2 * 0.5e-6 + 2 * 31 / 32 * BIG / (UP * 0.5)
    assert reduce_s(32, BIG, NCCL, anyone) == pytest.approx(own)
    # a table that knows one all-reduce only gives that
    assert reduce_s(4, BIG, NCCL, pod(FASTEST)) == reduce_s(4, BIG, CALIBRATED, pod(FASTEST))


def test_beyond_two_pods_a_ring_runs_through_every_device() -> None:
    n, k, m, vector = 128, 4, 32, BIG // 10
    # 2 (n-1) steps, k of every n of them over the network; LL128 uses 0.92 of a link
    steps = 14e-6 + 2 * (n - 1) * ((n - k) / n * 1.9e-6 + k / n * 4e-6)
    # inside every link carries 2 (n-1)/n V, outside each of m rings has a rail of its own
    inside = 2 * (n - 1) / n * vector / (UP * 0.7 * 0.92)
    outside = 2 * (n - 1) / n * vector / m / (OUT * 0.9 * 0.92)
    assert inside > outside
    for policy in (NCCL, CALIBRATED):
        assert reduce_s(n, vector, policy) == pytest.approx(steps + inside)
    time = collective_time(collective("all-reduce", rows(1, n), vector), FITTED, NCCL)
    assert time.algorithm == "flat ring LL128"
    # on a mean device k of n edges cross
    assert time.bytes_by_tier == pytest.approx(
        {"up": 2 * (n - 1) / n * vector * (n - k) / n, "out": 2 * (n - 1) / n * vector * k / n}
    )


def test_a_large_vector_takes_the_protocol_that_uses_the_whole_link() -> None:
    n, k = 128, 4
    steps = 1.4 * (8.4e-6 + 2 * (n - 1) * ((n - k) / n * 3.4e-6 + k / n * 14e-6))
    moving = 2 * (n - 1) / n * 100 * BIG / (UP * 0.7)
    assert reduce_s(n, 100 * BIG) == pytest.approx(steps + moving)


def test_a_tree_carries_small_messages_over_pods() -> None:
    # log2 32 rounds in a pod, log2 4 over pods, up and down; LL over pods moves 20.4 GB/s, and a
    # tree of LL 0.92 / 3.8 of a link
    steps = 6.8e-6 + 2 * (math.log2(32) * 0.6e-6 + math.log2(4) * 5e-6)
    slowest = min(20.4e9, UP * 0.7 * 0.92 / 3.8)
    assert reduce_s(128, 1000) == pytest.approx(steps + 2 * 1000 / slowest, rel=1e-9)


def test_two_pods_are_joined_shard_by_shard() -> None:
    ramp = 1 + 1e6 / (BIG / 64)  # pieces are cut by the share of one of all 64 devices
    inside = 25e-6 + 2 * 0.5e-6 + (1 + 1 / 32) * BIG * ramp / (UP * 0.5)
    time = collective_time(collective("all-reduce", rows(1, 64), BIG), FITTED, NCCL)
    assert time.algorithm == "hierarchical"
    across = time.phases[1]
    assert across.tier == "out"
    assert time.seconds == pytest.approx(inside + across.seconds)
    # two devices swap halves of a shard, or whole shards: at most one message each way
    assert across.seconds <= 2 * 2e-6 + BIG / 32 / (OUT * 0.9)


def test_the_rack_aware_form_can_be_asked_for() -> None:
    rack_aware = replace(CALIBRATED, name="rack-aware", cross_pod="hierarchical")
    assert reduce_s(128, BIG, rack_aware) < reduce_s(128, BIG, CALIBRATED)
    cheapest = replace(CALIBRATED, name="cheapest", cross_pod="best")
    assert reduce_s(128, BIG, cheapest) <= reduce_s(128, BIG, rack_aware)


def test_only_all_reduces_and_only_switched_pods_follow_nccl() -> None:
    cheapest = replace(CALIBRATED, name="cheapest", cross_pod="best")
    for kind in ("all-gather", "reduce-scatter", "all-to-all"):
        whole = collective(kind, rows(1, 128), BIG)  # type: ignore[arg-type]
        assert collective_time(whole, FITTED, CALIBRATED).seconds == (
            collective_time(whole, FITTED, cheapest).seconds
        )
    slices = load("tpu-v5e")
    if len(slices.tiers) > 1:
        several = collective("all-reduce", rows(1, 3 * slices.tiers[0].size), BIG)
        assert collective_time(several, slices, CALIBRATED) == (
            collective_time(several, slices, cheapest)
        )


def test_a_tier_that_allows_neither_ring_nor_tree_is_left_to_what_it_allows() -> None:
    direct = pod(OWN, SWITCH, algorithms=("direct",))
    cheapest = replace(CALIBRATED, name="cheapest", cross_pod="best")
    assert reduce_s(128, BIG, CALIBRATED, direct) == reduce_s(128, BIG, cheapest, direct)


def test_policies_name_the_library() -> None:
    assert network_policy(WHOLE) == CALIBRATED
    assert CALIBRATED.cross_pod == "library"
    assert network_policy(replace(WHOLE, name="nccl", network="nccl")) == NCCL


def test_the_group_of_a_fit_is_read_and_checked() -> None:
    raw = {"floor_us": 1.0, "efficiency": 0.5, "half_MB": 1.0, "devices": 8, "source": "s"}
    assert fit_of(raw, "m.toml", "here")[0]["devices"].value == 8
    with pytest.raises(XlaCostError, match=r"m.toml: here.devices = 1; must be >= 2"):
        fit_of({**raw, "devices": 1}, "m.toml", "here")


def test_boards_of_four_take_the_switch_from_boards_of_eight() -> None:
    for name, board in (("gb200", "b200"), ("gb300", "b300")):
        rack, eight = (
            load(one).scale_up.fit("all-reduce-in-switch") for one in (name, board)
        )  # fmt: skip
        assert rack is not None
        assert eight is not None
        assert (rack.efficiency, rack.half_bytes) == (eight.efficiency, eight.half_bytes)
        assert board in rack.record.source
        own = load(name).scale_up.fit("all-reduce-nccl")
        assert own is not None
        assert own.devices == 4


def test_a_reduced_nvlink_inherits_the_share_that_deepep_reaches() -> None:
    h100, h800 = load("h100").scale_up, load("h800").scale_up
    for role in ("dispatch", "combine"):
        measured, taken = h100.fit(role), h800.fit(role)
        assert measured is not None
        assert taken is not None
        assert taken.inherited_from == "h100"
        assert taken.efficiency == measured.efficiency
        slower = h800.bandwidth_bytes_per_s / h100.bandwidth_bytes_per_s
        assert taken.half_bytes == pytest.approx(measured.half_bytes * slower)
