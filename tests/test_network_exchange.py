"""All-to-all: shares per tier, two-step forms, copies sent once, imbalance; permutes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from network_machines import collective, machine, rows, tier

from xla_cost.errors import XlaCostError
from xla_cost.groups import DeviceGroups
from xla_cost.machine import CollectiveFit
from xla_cost.network import (
    CALIBRATED,
    STUDY,
    collective_time,
    distinct_places,
    role_of,
    zipf_imbalance,
)

UP, OUT = 100e9, 10e9
PODS_OF_4 = machine(tier("up", 4, 100, us=1), tier("out", 64, 10, us=5, pj=20))
RAILS = machine(tier("up", 4, 100), tier("out", 64, 10, topology="rail"))
V = 1_600_000_000
SIXTEEN = collective("all-to-all", rows(1, 16), V)


def test_what_stays_in_the_device_in_the_pod_and_crosses() -> None:
    """16 members in 4 pods of 4: 1/16 stays, 3/16 in the pod, 12/16 cross."""
    time = collective_time(SIXTEEN, PODS_OF_4, STUDY)
    assert time.bytes_by_tier == {"up": 3 / 16 * V, "out": 12 / 16 * V}
    assert time.seconds == pytest.approx(3 / 16 * V / UP + 12 / 16 * V / OUT)


def test_shares_on_different_tiers_overlap_when_calibrated() -> None:
    time = collective_time(SIXTEEN, PODS_OF_4, CALIBRATED)
    assert {phase.start_s for phase in time.phases} == {0.0}
    assert time.seconds == pytest.approx(5e-6 + 12 / 16 * V / OUT)


def test_rails_forward_inside_the_pod() -> None:
    """Only equal indices meet across: everything bound for a pod then passes inside it."""
    time = collective_time(SIXTEEN, RAILS, STUDY)
    assert time.algorithm == "two-step"
    assert time.bytes_by_tier == pytest.approx({"out": 12 / 16 * V, "up": 3 / 4 * V})


def test_tokens_to_one_pod_cross_once() -> None:
    """Top-8 over 4 pods: 4 (1 - (3/4)^8) distinct pods expected instead of 8 copies."""
    once = replace(STUDY, name="once", dedup="pod", top_k=8)
    distinct = 4 * (1 - (3 / 4) ** 8)
    assert distinct_places(8, 4) == pytest.approx(distinct)
    time = collective_time(SIXTEEN, PODS_OF_4, once)
    assert time.bytes_by_tier == pytest.approx({"out": 12 / 16 * V * distinct / 8, "up": 3 / 4 * V})


def test_group_limited_routing_caps_the_pods() -> None:
    assert distinct_places(8, 16) > 6
    assert distinct_places(8, 16, limit=4) == 4.0
    limited = replace(STUDY, name="limited", dedup="pod", top_k=8, max_pods=2)
    time = collective_time(SIXTEEN, PODS_OF_4, limited)
    assert time.bytes_by_tier["out"] == pytest.approx(12 / 16 * V * 2 / 8)


def test_copies_to_one_device_travel_once() -> None:
    """Eight devices of one pod, top-8: 8 (1 - (7/8)^8) distinct devices (DeepEP)."""
    pod = machine(tier("up", 8, 100))
    once = replace(STUDY, name="once", dedup="device", top_k=8)
    time = collective_time(collective("all-to-all", rows(1, 8), V), pod, once)
    assert time.seconds == pytest.approx(7 / 8 * V / UP * (8 * (1 - (7 / 8) ** 8)) / 8)


def test_one_copy_per_token_leaves_nothing_to_save() -> None:
    for dedup in ("pod", "device"):
        once = replace(STUDY, name=dedup, dedup=dedup, top_k=1)  # type: ignore[arg-type]
        assert collective_time(SIXTEEN, PODS_OF_4, once).bytes_by_tier["out"] == pytest.approx(
            12 / 16 * V
        )


def test_imbalance_stretches_all_to_alls_only() -> None:
    skewed = replace(STUDY, name="skewed", imbalance=1.5)
    even = collective_time(SIXTEEN, PODS_OF_4, STUDY)
    uneven = collective_time(SIXTEEN, PODS_OF_4, skewed)
    assert uneven.seconds == pytest.approx(1.5 * even.seconds)
    assert uneven.bytes_by_tier == even.bytes_by_tier  # a mean device sends the same
    gather = collective("all-gather", rows(1, 16), V)
    assert (
        collective_time(gather, PODS_OF_4, skewed).seconds
        == collective_time(gather, PODS_OF_4, STUDY).seconds
    )


def test_no_rank_has_more_than_all_of_the_load() -> None:
    whole = replace(STUDY, name="one rank", imbalance=16.0)
    even = collective_time(SIXTEEN, PODS_OF_4, STUDY)
    assert collective_time(SIXTEEN, PODS_OF_4, whole).seconds == pytest.approx(16 * even.seconds)
    more = replace(STUDY, name="more", imbalance=17.0)
    with pytest.raises(XlaCostError, match="dispatch of 16 ranks: imbalance = 17; must be <= 16"):
        collective_time(SIXTEEN, PODS_OF_4, more, role="dispatch")


def test_what_a_kernel_costs_before_it_moves_is_paid_for_the_whole_payload() -> None:
    """It does not shrink because most of the bytes leave the pod."""
    fit = CollectiveFit("dispatch", 2e-6, 0.5, half_bytes=1e6, ramp=1.0)
    whole = machine(tier("up", 16, 100, us=1, collectives=(fit,)))
    cut = machine(tier("up", 4, 100, us=1, collectives=(fit,)), tier("out", 64, 10, us=5))
    alone = machine(tier("up", 1, 100, us=1, collectives=(fit,)), tier("out", 64, 10, us=5))
    fixed = 2e-6 + 15 / 16 * 1e6 / (UP * 0.5)  # a ramp of 1 adds (n-1)/n half / (B e), any size
    for payload in (1600, 16_000_000):
        one = collective("all-to-all", rows(1, 16), payload)
        inside = 1e-6 + 15 / 16 * payload / (UP * 0.5)
        assert collective_time(one, whole, CALIBRATED, role="dispatch").seconds == (
            pytest.approx(fixed + inside)
        )
        across = max(1e-6 + 3 / 16 * payload / (UP * 0.5), 5e-6 + 12 / 16 * payload / OUT)
        assert collective_time(one, cut, CALIBRATED, role="dispatch").seconds == (
            pytest.approx(fixed + across)
        )
        # one member in every pod: the same kernel starts
        assert collective_time(one, alone, CALIBRATED, role="dispatch").seconds == (
            pytest.approx(fixed + 5e-6 + 15 / 16 * payload / OUT)
        )


def test_the_part_of_a_ramp_that_grows_goes_with_the_bytes_of_its_tier() -> None:
    """A ramp r adds load (half / M)^r: by the tangent at M the share r of that is fixed."""
    fit = CollectiveFit("dispatch", 0.0, 0.5, half_bytes=4e6, ramp=0.5)
    cut = machine(tier("up", 4, 100, collectives=(fit,)), tier("out", 64, 1000))
    payload = 16_000_000  # (half / M)^(1/2) = 1/2
    fixed = 0.5 * 0.5 * 15 / 16 * payload / (UP * 0.5)
    inside = 3 / 16 * payload * (1 + 0.5 * 0.5) / (UP * 0.5)
    one = collective("all-to-all", rows(1, 16), payload)
    assert collective_time(one, cut, CALIBRATED, role="dispatch").seconds == (
        pytest.approx(fixed + inside)
    )


def test_zipf_load_of_the_busiest_rank() -> None:
    assert zipf_imbalance(0.0, 256, 32) == pytest.approx(1.0)
    # 4 experts on 2 ranks, s = 1: weights 1, 1/2, 1/3, 1/4; rank 0 has the first and third
    assert zipf_imbalance(1.0, 4, 2) == pytest.approx(2 * (1 + 1 / 3) / (1 + 1 / 2 + 1 / 3 + 1 / 4))
    assert zipf_imbalance(1.0, 256, 32) > zipf_imbalance(0.5, 256, 32) > 1.0
    with pytest.raises(XlaCostError, match="exponent = -1"):
        zipf_imbalance(-1.0, 4, 2)
    with pytest.raises(XlaCostError, match="experts = 1 on ranks = 2"):
        zipf_imbalance(1.0, 1, 2)


def test_dispatch_and_combine_have_fits_of_their_own() -> None:
    plain = CollectiveFit("all-to-all", 0.0, 0.5, 0.0)
    kernel = CollectiveFit("dispatch", 0.0, 0.8, 0.0)
    pod = machine(tier("up", 4, 100, collectives=(plain, kernel)))
    exchange = collective("all-to-all", rows(1, 4), V)
    ideal = 3 / 4 * V / UP
    assert collective_time(exchange, pod, CALIBRATED).seconds == pytest.approx(ideal / 0.5)
    for role in ("dispatch", "combine"):
        time = collective_time(exchange, pod, CALIBRATED, role=role)
        assert time.seconds == pytest.approx(ideal / 0.8)
        assert collective_time(exchange, pod, STUDY, role=role).seconds == pytest.approx(ideal)


def test_the_role_of_an_all_to_all_is_read_from_its_scope() -> None:
    assert role_of("layer/moe/dispatch") == "dispatch"
    assert role_of("layer/moe/combine/quantize") == "combine"
    assert role_of("layer/attention/dispatched") == role_of("") == ""


# point to point


def pairs(*found: tuple[int, int]) -> DeviceGroups:
    return DeviceGroups(tuple(found), is_pairs=True)


def test_permute_over_the_tier_that_holds_both_ends() -> None:
    shift = collective("collective-permute", pairs((0, 1), (1, 2), (2, 3), (3, 0)), V)
    assert collective_time(shift, PODS_OF_4, STUDY).seconds == pytest.approx(V / UP)
    crossing = collective("collective-permute", pairs(*((i, (i + 1) % 8) for i in range(8))), V)
    time = collective_time(crossing, PODS_OF_4, CALIBRATED)
    assert [(p.tier, p.start_s) for p in time.phases] == [("up", 0.0), ("out", 0.0)]
    assert time.seconds == pytest.approx(5e-6 + V / OUT)
    # of eight messages six stay inside a pod and two cross
    assert time.bytes_by_tier == {"up": 6 / 8 * V, "out": 2 / 8 * V}


def test_permute_counts_the_device_with_most_messages() -> None:
    fan_out = collective("send-recv", pairs((0, 1), (0, 2), (0, 3)), V)
    fan_in = collective("send-recv", pairs((1, 0), (2, 0), (3, 0)), V)
    assert collective_time(fan_out, PODS_OF_4, STUDY).seconds == pytest.approx(3 * V / UP)
    assert collective_time(fan_in, PODS_OF_4, STUDY).seconds == pytest.approx(3 * V / UP)


def test_broadcast_passes_each_tier_once() -> None:
    time = collective_time(collective("collective-broadcast", rows(1, 8), V), PODS_OF_4, CALIBRATED)
    assert [phase.tier for phase in time.phases] == ["out", "up"]
    assert time.seconds == pytest.approx((5e-6 + V / OUT) + (2e-6 + V / UP))
    # seven of the eight receive: one over the outer tier, three in each pod
    assert time.bytes_by_tier == {"out": 1 / 8 * V, "up": 6 / 8 * V}
