"""Switched tiers: closed forms inside a pod and across pods, every algorithm."""

from __future__ import annotations

from dataclasses import replace

import pytest
from network_machines import collective, columns, machine, rows, tier

from xla_cost.errors import XlaCostError
from xla_cost.machine import CollectiveFit, load
from xla_cost.network import CALIBRATED, POLICIES, STUDY, collective_time, network_policy

UP, OUT = 100e9, 10e9
PODS_OF_4 = machine(tier("up", 4, 100, us=1), tier("out", 64, 10, us=5, pj=20))
FLAT = POLICIES["study/flat-ring"]
SHARDED = POLICIES["study/hierarchical"]
LATENT = replace(STUDY, name="latent", latency=True)
ANY = replace(STUDY, name="any", latency=True, any_algorithm=True, cross_pod="best")
BIG = 1_000_000_000


def test_a_group_of_one_costs_nothing() -> None:
    for kind in ("all-reduce", "all-gather", "all-to-all", "reduce-scatter"):
        time = collective_time(collective(kind, [[0], [1], [2]], BIG), PODS_OF_4, CALIBRATED)
        assert (time.seconds, time.phases, time.energy_j) == (0.0, (), 0.0)
    itself = collective("collective-permute", [(0, 0), (3, 3)], BIG)
    assert collective_time(itself, PODS_OF_4, CALIBRATED).seconds == 0.0


@pytest.mark.parametrize(
    ("kind", "payload", "share"),
    [
        ("all-gather", BIG // 4, 3 / 4),  # V = 4 x the operand
        ("reduce-scatter", BIG, 3 / 4),
        ("all-reduce", BIG, 2 * 3 / 4),
        ("all-to-all", BIG, 3 / 4),  # a quarter stays in the device
        ("ragged-all-to-all", BIG, 3 / 4),
    ],
)
def test_ideal_forms_inside_a_pod(kind: str, payload: int, share: float) -> None:
    time = collective_time(collective(kind, [range(4)], payload), PODS_OF_4, STUDY)  # type: ignore[arg-type]
    assert time.seconds == pytest.approx(share * BIG / UP)
    assert time.bytes_by_tier == pytest.approx({"up": share * BIG})
    assert time.energy_j == pytest.approx(share * BIG * 5e-12 * 8)


def test_which_tier_a_group_uses_follows_from_ids_not_from_its_size() -> None:
    inside = collective_time(collective("all-gather", [[0, 1]], BIG), PODS_OF_4, FLAT)
    outside = collective_time(collective("all-gather", [[3, 4]], BIG), PODS_OF_4, FLAT)
    assert inside.bytes_by_tier == {"up": BIG}
    assert outside.bytes_by_tier == {"out": BIG}
    assert outside.seconds == pytest.approx(inside.seconds * UP / OUT)


def test_the_slowest_group_decides() -> None:
    mixed = collective("reduce-scatter", [[0, 1], [3, 4]], BIG)
    alone = collective("reduce-scatter", [[3, 4]], BIG)
    assert collective_time(mixed, PODS_OF_4, STUDY) == collective_time(alone, PODS_OF_4, STUDY)


def test_latency_of_ring_and_direct() -> None:
    gather = collective("all-gather", [range(4)], BIG // 4)
    ring = collective_time(gather, PODS_OF_4, LATENT)
    direct = collective_time(gather, PODS_OF_4, ANY)
    assert ring.seconds == pytest.approx(3e-6 + 0.75 * BIG / UP)
    assert direct.seconds == pytest.approx(1e-6 + 0.75 * BIG / UP)
    assert (ring.algorithm, direct.algorithm) == ("ring", "direct")


def test_allowed_algorithms_of_a_tier_are_respected() -> None:
    ringed = machine(tier("up", 8, 100, us=1, algorithms=("ring",)))
    doubling = machine(tier("up", 8, 100, us=1, algorithms=("ring", "recursive doubling")))
    gather = collective("all-gather", [range(8)], 8000)
    assert collective_time(gather, ringed, ANY).seconds == pytest.approx(7e-6 + 56000 / UP)
    assert collective_time(gather, doubling, ANY).seconds == pytest.approx(3e-6 + 56000 / UP)
    assert collective_time(gather, doubling, ANY).algorithm == "recursive doubling"


def test_small_all_reduces_take_one_shot_and_large_ones_two() -> None:
    pod = machine(tier("up", 8, 100, us=1))
    small = collective_time(collective("all-reduce", [range(8)], 1000), pod, ANY)
    large = collective_time(collective("all-reduce", [range(8)], BIG), pod, ANY)
    assert small.algorithm == "one-shot"
    assert small.seconds == pytest.approx(1e-6 + 7 * 1000 / UP)
    assert large.algorithm == "direct"
    assert large.seconds == pytest.approx(2e-6 + 2 * 7 / 8 * BIG / UP)


def test_tree_wins_where_only_rings_compete() -> None:
    pod = machine(tier("up", 64, 100, us=1, algorithms=("ring", "tree")))
    small = collective_time(collective("all-reduce", [range(64)], 1000), pod, ANY)
    assert small.algorithm == "tree"
    assert small.seconds == pytest.approx(2 * 6 * 1e-6 + 2 * 1000 / UP)


def test_reduction_in_the_switch_moves_the_vector_once() -> None:
    pod = machine(tier("up", 8, 100, us=1, in_network_reduction=True))
    reduce = collective("all-reduce", [range(8)], BIG)
    ideal = collective_time(reduce, pod, ANY)
    assert ideal.algorithm == "in-network"
    assert ideal.seconds == pytest.approx(2e-6 + (1 + 1 / 8) * BIG / UP)
    # measured efficiencies are relative to the ring bound: no free factor of two
    fitted = collective_time(reduce, pod, replace(ANY, name="fitted", fitted=True))
    assert fitted.seconds == pytest.approx(2e-6 + 2 * 7 / 8 * BIG / UP)


def test_flat_ring_runs_at_its_slowest_link() -> None:
    time = collective_time(collective("all-gather", [range(8)], BIG // 8), PODS_OF_4, FLAT)
    assert time.seconds == pytest.approx(7 / 8 * BIG / OUT)
    # two of the eight ring edges cross
    assert time.bytes_by_tier == pytest.approx({"up": 7 / 8 * BIG * 6 / 8,
                                                "out": 7 / 8 * BIG * 2 / 8})  # fmt: skip


def test_hierarchical_shards_before_it_crosses() -> None:
    gather = collective_time(collective("all-gather", [range(8)], BIG // 8), PODS_OF_4, SHARDED)
    across, inside = gather.phases
    assert (across.tier, inside.tier) == ("out", "up")
    assert across.seconds == pytest.approx(1 / 2 * (BIG / 4) / OUT)
    assert inside.seconds == pytest.approx(3 / 4 * BIG / UP)
    assert inside.start_s == across.end_s
    scatter = collective_time(collective("reduce-scatter", [range(8)], BIG), PODS_OF_4, SHARDED)
    assert [phase.tier for phase in scatter.phases] == ["up", "out"]
    assert scatter.seconds == pytest.approx(gather.seconds)


def test_last_phase_of_a_hierarchical_all_reduce_moves_the_shards() -> None:
    """The broadcast inside moves M/G per device and peer, (G-1)/G M in all, not M per peer."""
    time = collective_time(collective("all-reduce", [range(8)], BIG), PODS_OF_4, SHARDED)
    first, middle, last = time.phases
    assert first.bytes == last.bytes == pytest.approx(3 * BIG / 4)
    assert middle.bytes == pytest.approx(2 * (1 / 2) * BIG / 4)
    assert time.seconds == pytest.approx(2 * 3 / 4 * BIG / UP + 2 * 1 / 2 * BIG / 4 / OUT)


def test_uneven_groups_count_the_busiest_device() -> None:
    """Three members in pod 0 and one in pod 1: the lone one takes in three quarters itself."""
    lopsided = [[0, 1, 2, 4]]
    time = collective_time(collective("all-gather", lopsided, BIG // 4), PODS_OF_4, SHARDED)
    across, inside = time.phases
    assert across.seconds == pytest.approx(3 / 4 * BIG / OUT)
    assert inside.seconds == pytest.approx(2 / 3 * BIG / UP)
    exchange = collective_time(collective("all-to-all", lopsided, BIG), PODS_OF_4, STUDY)
    # the lone member sends three quarters out; members of pod 0 send half inside
    assert [phase.seconds for phase in exchange.phases] == pytest.approx(
        [2 / 4 * BIG / UP, 3 / 4 * BIG / OUT]
    )


def test_strided_groups_meet_only_across_pods() -> None:
    slow_axis = collective("all-gather", columns(4, 4), BIG // 4)
    time = collective_time(slow_axis, PODS_OF_4, SHARDED)
    assert time.bytes_by_tier == {"out": 3 / 4 * BIG}
    assert time.seconds == pytest.approx(3 / 4 * BIG / OUT)


def test_three_tiers_nest() -> None:
    deep = machine(tier("board", 2, 400), tier("rack", 8, 100), tier("hall", 64, 10))
    time = collective_time(collective("reduce-scatter", [range(16)], BIG), deep, SHARDED)
    assert [phase.tier for phase in time.phases] == ["board", "rack", "hall"]
    assert [phase.seconds for phase in time.phases] == pytest.approx(
        [1 / 2 * BIG / 400e9, 3 / 4 * (BIG / 2) / 100e9, 1 / 2 * (BIG / 8) / 10e9]
    )


def test_readings_of_the_study_across_pods() -> None:
    gather = collective("all-gather", rows(1, 16), BIG // 16)
    first = collective_time(gather, PODS_OF_4, STUDY)
    second = collective_time(gather, PODS_OF_4, POLICIES["study/reading-2"])
    assert first.seconds == pytest.approx(3 / 4 * BIG / UP + (4 - 1) / 4 * BIG / OUT)
    assert second.seconds == pytest.approx(3 / 4 * BIG / UP + 3 / 4 * BIG / OUT)
    eight = collective("all-gather", rows(1, 32), BIG // 32)
    assert collective_time(eight, PODS_OF_4, STUDY).phases[1].seconds == pytest.approx(
        (8 - 1) / 4 * BIG / OUT
    )
    reduce = collective_time(collective("all-reduce", rows(1, 16), BIG), PODS_OF_4, STUDY)
    assert reduce.seconds == pytest.approx(2 * first.seconds)


def test_readings_pay_hops_when_latency_is_switched_on() -> None:
    gather = collective("all-gather", rows(1, 16), BIG // 16)
    difference = (
        collective_time(gather, PODS_OF_4, LATENT).seconds
        - collective_time(gather, PODS_OF_4, STUDY).seconds
    )
    assert difference == pytest.approx(3 * 1e-6 + 3 * 5e-6)


def test_a_measured_fit_prices_floor_ramp_and_efficiency() -> None:
    fit = CollectiveFit("all-gather", floor_s=10e-6, efficiency=0.5, half_bytes=1e6, ramp=0.5)
    pod = machine(tier("up", 4, 100, us=1, collectives=(fit,), efficiency=0.9))
    gather = collective_time(collective("all-gather", [range(4)], 1_000_000), pod, CALIBRATED)
    # M = 4 MB: the ramp is 1 + (1/4)^0.5
    moving = 0.75 * 4e6 / (UP * 0.5) * 1.5
    assert gather.seconds == pytest.approx(10e-6 + 1e-6 + moving)
    # a reduce-scatter moves the same bytes and takes the same fit; an all-to-all has none
    scatter = collective_time(collective("reduce-scatter", [range(4)], 4_000_000), pod, CALIBRATED)
    assert scatter.seconds == pytest.approx(gather.seconds)
    exchange = collective_time(collective("all-to-all", [range(4)], 4_000_000), pod, CALIBRATED)
    assert exchange.seconds == pytest.approx(1e-6 + 0.75 * 4e6 / (UP * 0.9))
    assert collective_time(collective("all-gather", [range(4)], 1_000_000), pod, STUDY).seconds == (
        pytest.approx(0.75 * 4e6 / UP)
    )


def test_floors_are_paid_once_per_collective() -> None:
    inner = CollectiveFit("all-gather", 10e-6, 1.0, 0.0)
    outer = CollectiveFit("all-gather", 30e-6, 1.0, 0.0)
    fitted = machine(
        tier("up", 4, 100, collectives=(inner,)), tier("out", 64, 10, collectives=(outer,))
    )
    policy = replace(CALIBRATED, name="sharded", cross_pod="hierarchical")
    time = collective_time(collective("all-gather", [range(8)], BIG // 8), fitted, policy)
    assert time.seconds == pytest.approx(30e-6 + BIG / 8 / OUT + 3 / 4 * BIG / UP)


def test_setting_circuits_takes_time_per_partner_group() -> None:
    circuits = machine(tier("up", 16, 100, reconfiguration_s=20e-6, circuit_ports=4,
                            algorithms=("ring", "direct")))  # fmt: skip
    gather = collective("all-gather", [range(16)], 1000)
    exchange = collective_time(collective("all-to-all", [range(16)], 16000), circuits, ANY)
    # 15 partners over 4 circuits: set 4 times; a ring has 2 partners: set once
    assert exchange.seconds == pytest.approx(4 * 20e-6 + 15000 / UP)
    assert collective_time(gather, circuits, ANY).algorithm == "ring"
    assert collective_time(gather, circuits, ANY).seconds == pytest.approx(20e-6 + 15000 / UP)
    assert collective_time(gather, circuits, STUDY).seconds == pytest.approx(15000 / UP)


def test_two_level_pods_load_both_levels() -> None:
    nested = machine(tier("leaf", 4, 100, pj=5), tier("spine", 64, 50, pj=7, through_inner=True))
    time = collective_time(collective("all-to-all", [range(8)], BIG), nested, CALIBRATED)
    inside, across = time.phases
    # 3/8 stay in the leaf, 4/8 cross and pass the leaf's links as well
    assert inside.seconds == pytest.approx((3 / 8 + 4 / 8) * BIG / 100e9)
    assert across.seconds == pytest.approx(4 / 8 * BIG / 50e9)
    assert time.energy_j == pytest.approx((3 / 8 * 5 + 4 / 8 * (5 + 7)) * BIG * 8e-12)


def test_all_reduce_over_racks_has_no_cliff() -> None:
    """CoreWeave's GB200 racks lose 5 to 11 % of bus bandwidth from one to two racks.

    (nccl-tests README: 72 GPUs 835 GB/s at 8 GiB.) Sharded first, two racks pay the in-rack time
    plus 1/72 of the vector over the slow tier; a flat ring pays the whole vector there.
    """
    gb200 = load("gb200")
    vector = 8 * 2**30
    one = collective_time(collective("all-reduce", rows(1, 72), vector), gb200, CALIBRATED)
    two = collective_time(collective("all-reduce", rows(1, 144), vector), gb200, CALIBRATED)
    flat = collective_time(collective("all-reduce", rows(1, 144), vector), gb200, FLAT)
    assert two.algorithm == "hierarchical"
    across = 2 * (1 / 2) * (vector / 72) / gb200.tiers[1].bandwidth_bytes_per_s
    ideal_two = collective_time(collective("all-reduce", rows(1, 144), vector), gb200, SHARDED)
    ideal_one = collective_time(collective("all-reduce", rows(1, 72), vector), gb200, SHARDED)
    assert ideal_two.seconds - ideal_one.seconds == pytest.approx(across)
    assert 1.0 < two.seconds / one.seconds < 1.2
    assert flat.seconds > 10 * two.seconds


def test_bad_requests_are_refused() -> None:
    with pytest.raises(XlaCostError, match=r"device id 64; must be < 64"):
        collective_time(collective("all-gather", [[0, 64]], 1), PODS_OF_4, STUDY)
    with pytest.raises(XlaCostError, match=r"device id 99; must be < 64"):
        collective_time(collective("send-recv", [(0, 99)], 1), PODS_OF_4, STUDY)
    with pytest.raises(XlaCostError, match=r"collective kind 'gossip' is unknown"):
        collective_time(collective("gossip", [[0, 1]], 1), PODS_OF_4, STUDY)  # type: ignore[arg-type]
    with pytest.raises(XlaCostError, match=r"network policy 'ideal' is unknown; expected one of"):
        network_policy("ideal")
    with pytest.raises(XlaCostError, match=r"imbalance = 0\.5; must be >= 1"):
        replace(STUDY, imbalance=0.5)
    with pytest.raises(XlaCostError, match=r"role 'gather'"):
        collective_time(collective("all-to-all", [[0, 1]], 1), PODS_OF_4, STUDY, role="gather")


def test_policies_by_name() -> None:
    from xla_cost.policy import CALIBRATED as WHOLE
    from xla_cost.policy import STUDY as IDEAL

    assert network_policy("study") is STUDY
    assert network_policy(STUDY) is STUDY
    assert network_policy(IDEAL) == replace(STUDY, name=IDEAL.name)
    assert network_policy(WHOLE) == CALIBRATED
    assert {policy.name for policy in POLICIES.values()} == set(POLICIES)
