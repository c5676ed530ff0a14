"""Under `calibrated`: more bytes are not cheaper, and a better network is not slower.

Sizes run from 1 KiB to 1 GiB, groups from 2 to 1152 devices. What cannot hold, and why:

- A larger pod only helps where it joins whole pods of the smaller one: where the group fills its
  last pod with a few devices only, their few ports carry what all others have. So pods are
  compared whose sizes divide each other, and either divide the group or hold all of it.
- A reduction in the switch moves (1 + 1/n) V over each link, less for a larger group. So an
  all-reduce in a pod may fall by that factor where the switch does it, and by the errors of two
  fits where the group outgrows the board that the first was made on.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_machines import collective, rows

from xla_cost.groups import DeviceGroups
from xla_cost.machine import Machine, load, scaled, with_tier
from xla_cost.network import CALIBRATED, CollectiveTime, collective_time
from xla_cost.program import CollectiveKind

KIB, GIB = 2**10, 2**30
SAME = 1 + 1e-12
MACHINES = ("b200", "b300", "gb200", "gb300", "h100", "rubin", "r4")
TWINS = ("b200", "b300", "rubin", "r4")
KINDS: tuple[tuple[CollectiveKind, str], ...] = (
    ("all-reduce", ""), ("all-gather", ""), ("reduce-scatter", ""),
    ("all-to-all", ""), ("all-to-all", "dispatch"), ("all-to-all", "combine"),
)  # fmt: skip

kinds = st.sampled_from(KINDS)
machines = st.sampled_from(MACHINES)
vectors = st.floats(10, 30).map(lambda power: int(2**power))  # 1 KiB to 1 GiB
members = st.integers(2, 1152)


def run(
    table: Machine, kind: tuple[CollectiveKind, str], groups: DeviceGroups, vector: int
) -> CollectiveTime:
    name, role = kind
    share = len(groups.members[0]) if name == "all-gather" else 1
    asked = collective(name, groups, max(1, vector // share))
    return collective_time(asked, table, CALIBRATED, role=role)


@given(machines, kinds, members, vectors, vectors)
@settings(max_examples=150, deadline=None)
def test_more_bytes_are_never_cheaper(name, kind, n, a, b) -> None:  # type: ignore[no-untyped-def]
    few, many = sorted((a, b))
    table = load(name)
    less, more = (run(table, kind, rows(1, n), size).seconds for size in (few, many))
    assert less <= more * SAME


@given(machines, kinds, members, vectors, st.floats(1.0, 8.0))
@settings(max_examples=150, deadline=None)
def test_a_faster_network_is_never_slower(name, kind, n, vector, factor) -> None:  # type: ignore[no-untyped-def]
    table = load(name)
    base = run(table, kind, rows(1, n), vector).seconds
    for better in (
        scaled(table, scale_up=factor),
        scaled(table, scale_out=factor),
        scaled(table, latency=1 / factor),
    ):
        assert run(better, kind, rows(1, n), vector).seconds <= base * SAME


@given(st.sampled_from([*MACHINES, "passage-512"]), members, vectors, st.sampled_from([0, 8, 144]))
@settings(max_examples=150, deadline=None)
def test_reduction_in_the_switch_is_never_slower(name, n, vector, pod) -> None:  # type: ignore[no-untyped-def]
    table = scaled(load(name), pod=pod) if pod else load(name)
    with_it, without = (
        run(with_tier(table, 0, in_network_reduction=flag), KINDS[0], rows(1, n), vector).seconds
        for flag in (True, False)
    )
    assert with_it <= without * SAME


PODS = ((2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), (9, 36, 72, 144, 288, 576, 1152))


@given(machines, kinds, members, vectors, st.sampled_from(PODS))
@settings(max_examples=150, deadline=None)
def test_a_larger_pod_is_never_slower(name, kind, n, vector, sizes) -> None:  # type: ignore[no-untyped-def]
    table = load(name)
    even = [pod for pod in sizes if n % pod == 0 or pod >= n]
    times = [run(scaled(table, pod=pod), kind, rows(1, n), vector).seconds for pod in even]
    for small, large in pairwise(times):
        assert large <= small * SAME


@given(
    machines, kinds, vectors, st.sampled_from([1, 2, 8, 36, 72]), st.sampled_from([2, 8, 16])
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_a_larger_pod_is_never_slower_for_groups_with_gaps(name, kind, vector, gap, n) -> None:  # type: ignore[no-untyped-def]
    """Data-parallel groups, of which a pod may hold a single member."""
    table = load(name)
    groups = DeviceGroups.of([[i * gap + j for i in range(n)] for j in range(gap)])
    times = [run(scaled(table, pod=pod), kind, groups, vector).seconds for pod in (72, 144, 1152)]
    if gap * n % 144 == 0 or gap * n <= 72:
        assert times[1] <= times[0] * SAME
    assert times[2] <= min(times[:2]) * SAME


@given(st.sampled_from(TWINS), kinds, members, vectors)
@settings(max_examples=200, deadline=None)
def test_a_photonic_twin_is_never_slower(name, kind, n, vector) -> None:  # type: ignore[no-untyped-def]
    copper, optical = (
        run(load(one), kind, rows(1, n), vector) for one in (name, f"{name}-photonic")
    )
    assert optical.seconds <= copper.seconds * SAME


@given(kinds, members, vectors)
@settings(max_examples=100, deadline=None)
def test_the_photonic_pod_of_512_is_never_slower_than_its_rival_of_144(kind, n, vector) -> None:  # type: ignore[no-untyped-def]
    """Groups that leave one of the three pods of 512 emptier than the last of 144 left out."""
    smallest = [n % pod or pod for pod in (512, 144)]
    if n > 512 and smallest[0] < smallest[1]:
        return
    copper, optical = (load(one) for one in ("electrical-144", "passage-512"))
    assert run(optical, kind, rows(1, n), vector).seconds <= (
        run(copper, kind, rows(1, n), vector).seconds * SAME
    )


@given(
    st.sampled_from(["b300-photonic", "r4", "gb200", "passage-512", "b200"]),
    members,
    members,
    vectors,
)
@settings(max_examples=200, deadline=None)
def test_larger_groups_of_one_pod_take_longer_to_reduce(name, a, b, vector) -> None:  # type: ignore[no-untyped-def]
    table = load(name)
    few, many = sorted((min(a, table.scale_up.size), min(b, table.scale_up.size)))
    less, more = (run(table, KINDS[0], rows(1, n), vector) for n in (few, many))
    fall = 1.0
    if more.algorithm == "in-network":
        fall = (1 + 1 / many) / (1 + 1 / few)
        fit = table.scale_up.fit("all-reduce")
        assert fit is not None
        if few <= fit.devices < many:
            fall *= 0.9  # two fits, each within 10 % of what it was made on
    assert more.seconds >= less.seconds * fall / SAME


@pytest.mark.parametrize("name", ["gb200", "gb300", "b300", "b200"])
def test_leaving_the_rack_is_never_cheaper(name: str) -> None:
    """What a kernel costs before it moves bytes does not shrink with the share that stays."""
    for kind in KINDS[3:]:
        times = [
            run(load(name), kind, rows(1, n), 64 * KIB).seconds for n in (8, 72, 144, 288, 576)
        ]
        assert times == sorted(times)
