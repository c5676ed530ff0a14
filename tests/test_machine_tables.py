"""The shipped tables against the figures they were made from."""

from __future__ import annotations

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.machine import hybrid, load, scaled, with_tier


@pytest.mark.parametrize("name", ["b200", "b300", "rubin", "r4"])
def test_a_photonic_twin_is_its_base_with_other_links(name: str) -> None:
    base, twin = load(name), load(f"{name}-photonic")
    assert twin.peak_flops == base.peak_flops
    assert twin.memory_bytes_per_s == base.memory_bytes_per_s
    assert twin.memory_capacity_bytes == base.memory_capacity_bytes
    assert twin.scale_up.bandwidth_bytes_per_s == 4 * base.scale_up.bandwidth_bytes_per_s
    assert twin.scale_up.size == 1152
    assert twin.scale_up.latency_s == 0.5e-6
    assert twin.scale_up.energy_j_per_byte == pytest.approx(4.3e-12 * 8)
    assert twin.tiers[1].bandwidth_bytes_per_s == base.tiers[1].bandwidth_bytes_per_s
    assert f"speculative: {name}-photonic" in twin.marks
    assert any(mark.startswith("inherited: ") for mark in twin.marks)


@pytest.mark.parametrize(
    ("name", "pod", "up", "out"),
    [("b200", 72, 900, 50), ("b300", 72, 900, 100), ("rubin", 72, 1800, 100),
     ("r4", 576, 1800, 100), ("h100", 8, 450, 50), ("h800", 8, 200, 50),
     ("passage-512", 512, 4000, 100), ("electrical-144", 144, 1800, 100)],
)  # fmt: skip
def test_pods_as_the_study_and_the_vendors_pair_them(
    name: str, pod: int, up: float, out: float
) -> None:
    inner, outer = load(name).tiers
    assert (inner.size, inner.bandwidth_bytes_per_s) == (pod, up * 1e9)
    assert outer.bandwidth_bytes_per_s == out * 1e9


def test_measured_machines_carry_no_mark_and_guesses_do() -> None:
    assert load("h100").marks == ()
    assert load("b300").marks == ()
    assert load("rubin").marks == ("speculative: rubin", "inherited: efficiencies of b300")


@pytest.mark.parametrize(
    ("name", "dims", "both_ways"),
    [("tpu-v5e", (16, 16), 400), ("tpu-v6e", (16, 16), 800), ("tpu-v5p", (16, 20, 28), 1200),
     ("tpu7x", (16, 24, 24), 1200)],
)  # fmt: skip
def test_tpu_bandwidth_is_half_of_the_two_way_figure(
    name: str, dims: tuple[int, ...], both_ways: float
) -> None:
    ici = load(name).scale_up
    assert ici.dims == dims
    assert ici.bandwidth_bytes_per_s == both_ways * 1e9 / 2


def test_v5e_bisection_is_the_documented_one() -> None:
    ici = load("tpu-v5e").scale_up
    link = ici.bandwidth_bytes_per_s / 4  # four ports
    # a cut through a 16 x 16 torus crosses 2 x 16 links; documentation: 1.6 TB/s per pod
    assert 2 * 16 * link == 1.6e12


def test_scaled_changes_what_it_is_told() -> None:
    b300 = load("b300")
    assert scaled(b300) is b300
    wide = scaled(b300, scale_up=4.0, pod=144, scale_out=2.0, latency=0.5)
    assert wide.scale_up.bandwidth_bytes_per_s == 3600e9
    assert wide.scale_up.size == 144
    assert wide.tiers[1].bandwidth_bytes_per_s == 200e9
    assert wide.scale_up.latency_s == 0.5e-6
    assert wide.name == "b300[scale_up=4,pod=144,scale_out=2,latency=0.5]"
    assert wide != b300
    # as large as the tier outside it, it replaces that tier
    assert [tier.size for tier in scaled(b300, pod=10368).tiers] == [10368]


def test_hybrid_splits_bandwidth_from_radix() -> None:
    copper, optical = load("b300"), load("b300-photonic")
    fast = hybrid(copper, optical, pod=72)
    assert (fast.scale_up.size, fast.scale_up.bandwidth_bytes_per_s) == (72, 3600e9)
    assert fast.tiers[1] == copper.tiers[1]
    broad = hybrid(optical, copper, pod=1152)
    assert (broad.scale_up.size, broad.scale_up.bandwidth_bytes_per_s) == (1152, 900e9)
    assert hybrid(copper, optical).tiers == optical.tiers
    assert fast.marks == optical.marks


def test_with_tier_replaces_fields() -> None:
    b300 = load("b300")
    slow = with_tier(b300, 1, latency_s=10e-6)
    assert slow.tiers[1].latency_s == 10e-6
    assert slow.tiers[0] == b300.tiers[0]
    assert slow.name == "b300[scale-out.latency_s=1e-05]"


def test_derived_machines_refuse_nonsense() -> None:
    b300 = load("b300")
    with pytest.raises(XlaCostError, match="scale_up = -1"):
        scaled(b300, scale_up=-1.0)
    for pod in (0, 1):
        with pytest.raises(XlaCostError, match=f"pod = {pod}; must be a whole number >= 2"):
            scaled(b300, pod=pod)
    with pytest.raises(XlaCostError, match="pod = 10369 on b300; must be <= 10368, the size of"):
        scaled(b300, pod=10369)
    with pytest.raises(XlaCostError, match="pod = 10369 on b300; must be <= 10368, the size of"):
        hybrid(b300, load("b300-photonic"), pod=10369)
    for field, value, message in (
        ("latency_s", -1.0, r"scale-up.latency_s = -1.0; must be >= 0 and <= 1"),
        ("efficiency", 2, r"scale-up.efficiency = 2; must be > 0 and <= 1"),
        ("bandwidth_bytes_per_s", 1e39, r"must be >= 1e\+06 and <= 1e\+18"),
        ("size", 8.0, r"size = 8.0; must be a whole number >= 2"),
        ("topology", "ring", r"scale-up.topology = 'ring'; must be one of switch"),
        ("algorithms", ("star",), r"scale-up.algorithms\[0\] = 'star'; must be one of ring"),
        ("in_network_reduction", 1, r"in_network_reduction = 1; must be true or false"),
        ("wrap_multiple", 4, r"tiers\[0\].wrap_multiple = 4; must be absent on a switch"),
    ):
        with pytest.raises(XlaCostError, match=message):
            with_tier(b300, 0, **{field: value})
    with pytest.raises(XlaCostError, match="bandwidth_bytes_per_s = 9e"):
        scaled(b300, scale_up=1e30)
    with pytest.raises(XlaCostError, match="no fixed dims"):
        scaled(load("tpu-v5e"), pod=8)
    with pytest.raises(XlaCostError, match="tier field 'speed' is unknown"):
        with_tier(b300, 0, speed=1)
    with pytest.raises(XlaCostError, match="tier 2 is unknown; expected 0 to 1"):
        with_tier(b300, 2, latency_s=0.0)
    with pytest.raises(XlaCostError, match="must be > 10368"):
        with_tier(b300, 0, size=10368)
    with pytest.raises(XlaCostError, match="tier 'dcn' is unknown; expected scale-up, scale-out"):
        b300.tier("dcn")
