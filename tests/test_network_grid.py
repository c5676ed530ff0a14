"""Tori and HyperX: rings per axis, bisection, shared links, hops, slices."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from network_machines import collective, machine, rows, tier

from xla_cost.groups import DeviceGroups
from xla_cost.machine import load
from xla_cost.network import STUDY, collective_time
from xla_cost.network.grid import LinkLoads, slice_grid
from xla_cost.network.grid_stages import grid_stages

V = 1_000_000_000
LATENT = replace(STUDY, name="latent", latency=True)


def torus(*dims: int, gbps: float = 100, wrap: bool = True, us: float = 1, **more: int):  # type: ignore[no-untyped-def]
    size = 1
    for length in dims:
        size *= length
    return tier("ici", size, gbps, us=us, topology="torus", dims=dims, wrap=(wrap,) * len(dims),
                **more)  # fmt: skip


def gather_s(groups: DeviceGroups, ici: object, devices: int | None = None) -> float:
    payload = V // max(map(len, groups.members))
    vector = payload * max(map(len, groups.members))
    time = collective_time(collective("all-gather", groups, payload), machine(ici), STUDY, devices)  # type: ignore[arg-type]
    return time.seconds / (vector / 100e9)


def exchange_s(groups: DeviceGroups, ici: object, devices: int | None = None) -> float:
    time = collective_time(collective("all-to-all", groups, V), machine(ici), STUDY, devices)  # type: ignore[arg-type]
    return time.seconds / (V / 100e9)


def test_whole_square_torus_uses_all_four_ports() -> None:
    """Scaling book: an all-gather over two axes takes V / (W of both axes, both ways)."""
    assert gather_s(rows(1, 64), torus(8, 8)) == pytest.approx(63 / 64)
    assert gather_s(rows(1, 512), torus(8, 8, 8)) == pytest.approx(511 / 512)


def test_a_ring_along_one_axis_uses_two_of_four_ports() -> None:
    assert gather_s(rows(8, 8), torus(8, 8)) == pytest.approx(2 * 7 / 8)


def test_without_the_wrap_a_line_has_half_of_the_ring() -> None:
    assert gather_s(rows(8, 8), torus(8, 8, wrap=False)) == pytest.approx(4 * 7 / 8)


def test_strided_rings_share_links() -> None:
    """Even and odd positions of a ring of 16 both run over all its links."""
    both = DeviceGroups.of([range(0, 16, 2), range(1, 16, 2)])
    alone = DeviceGroups.of([range(0, 16, 2)])
    ring = torus(16)
    assert gather_s(alone, ring, 16) == pytest.approx(7 / 8)
    assert gather_s(both, ring, 16) == pytest.approx(2 * 7 / 8)


def test_contiguous_halves_of_a_ring_do_not_share() -> None:
    """Each half is a line: one way only, but nobody else on its links."""
    assert gather_s(rows(2, 8), torus(16)) == pytest.approx(2 * 7 / 8)


def test_all_to_all_is_limited_by_the_bisection() -> None:
    """N/2 devices send V/2 over 2 N/k links each way: V k/8 per link."""
    for k in (8, 16):
        link = 100 / 4
        assert exchange_s(rows(1, k * k), torus(k, k)) == pytest.approx(k / 8 / (link / 100))
    # a 4 x 16 torus: the long axis decides; three axes have six ports
    assert exchange_s(rows(1, 64), torus(4, 16)) == pytest.approx(16 / 8 * 4)
    assert exchange_s(rows(1, 512), torus(8, 8, 8)) == pytest.approx(8 / 8 * 6)


def test_all_to_all_on_a_line_loads_its_middle() -> None:
    """k/2 devices send V/2 each over the one middle link."""
    assert exchange_s(rows(1, 8), torus(8, wrap=False)) == pytest.approx(8 / 4 * 2)


def brute_force(groups: DeviceGroups, dims: tuple[int, ...], closed: bool) -> float:
    """Busiest link of dimension-ordered all-to-alls, message by message, link by link."""
    at = list(product(*map(range, dims)))
    loads: dict[tuple[tuple[int, ...], int, int], float] = {}
    for group in groups.members:
        for a, b in product(group, group):
            here = list(at[a])
            for axis, length in enumerate(dims):
                offset = (at[b][axis] - here[axis]) % length
                ways = [(1, 1.0)] if at[b][axis] > here[axis] else [(-1, 1.0)]
                if closed and 2 * offset == length:
                    ways = [(1, 0.5), (-1, 0.5)]
                elif closed:
                    ways = [(1, 1.0)] if 2 * offset < length else [(-1, 1.0)]
                start = list(here)
                for step, share in ways:
                    here = list(start)
                    while here[axis] != at[b][axis]:
                        key = (tuple(here), axis, step)
                        loads[key] = loads.get(key, 0.0) + share / len(group)
                        here[axis] = (here[axis] + step) % length
    return max(loads.values())


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(
    "groups",
    [rows(1, 24), rows(2, 12), rows(3, 8), rows(4, 5), DeviceGroups.of([range(0, 24, 2)]),
     DeviceGroups.of([[0, 7, 9, 20], [1, 2, 3, 23]])],
)  # fmt: skip
def test_link_loads_equal_a_message_by_message_count(groups: DeviceGroups, closed: bool) -> None:
    ici = torus(4, 6, wrap=closed)
    expected = brute_force(groups, (4, 6), closed)
    assert grid_stages(groups, ici, 24).exchange.load == pytest.approx(4 * expected)


def test_members_that_form_no_box_make_a_ring_through_them() -> None:
    """72 devices in 4.5 rows of 16: never better than the ideal ring, never free."""
    time = collective_time(
        collective("all-gather", rows(3, 72), V // 72), machine(torus(16, 16)), STUDY, 256
    )
    assert time.algorithm == "ring through members"
    ideal = 71 / 72 * (V // 72 * 72) / 100e9
    assert ideal * 2 <= time.seconds <= ideal * 4 + 1e-9


def test_permute_routes_and_counts_hops() -> None:
    ici = torus(4, 4)
    far = collective("collective-permute", DeviceGroups(((0, 5),), is_pairs=True), V)
    time = collective_time(far, machine(ici), LATENT, 16)
    # (0,0) to (1,1): two links, each a quarter of the device's bandwidth
    assert time.seconds == pytest.approx(2e-6 + V / 25e9)
    assert time.phases[0].bytes == pytest.approx(2 * V / 16)
    # (0,0) to (2,2) is half way round both axes: both ways round, half on each
    opposite = collective("collective-permute", DeviceGroups(((0, 10),), is_pairs=True), V)
    split = collective_time(opposite, machine(ici), LATENT, 16)
    assert split.seconds == pytest.approx(4e-6 + V / 2 / 25e9)
    shift = DeviceGroups(
        tuple((4 * r + c, 4 * r + (c + 1) % 4) for r in range(4) for c in range(4)), is_pairs=True
    )
    neighbours = collective_time(collective("collective-permute", shift, V), machine(ici), LATENT)
    assert neighbours.seconds == pytest.approx(1e-6 + V / 25e9)


def test_ring_hops_are_half_way_round_each_axis() -> None:
    time = collective_time(
        collective("all-gather", rows(1, 64), 1000), machine(torus(8, 8)), LATENT
    )
    assert time.seconds == pytest.approx((4 + 4) * 1e-6 + 63 / 64 * 64000 / 100e9)


def test_slices_are_compact_boxes() -> None:
    v5e = load("tpu-v5e").scale_up
    shapes = {n: slice_grid(v5e, n).dims for n in (1, 4, 8, 16, 32, 64, 128, 256, 4096)}
    assert shapes == {
        1: (1, 1), 4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16),
        256: (16, 16), 4096: (16, 16),
    }  # fmt: skip
    assert slice_grid(v5e, 128).closed == (False, True)
    v5p = slice_grid(load("tpu-v5p").scale_up, 1152)
    assert (v5p.dims, v5p.closed) == ((8, 12, 12), (True, True, True))  # optical switches


def test_pods_of_tori_cross_over_the_data_centre_network() -> None:
    v5e = load("tpu-v5e")
    policy = replace(STUDY, name="sharded", cross_pod="hierarchical")
    time = collective_time(collective("reduce-scatter", rows(1, 512), V), v5e, policy)
    inside, across = time.phases
    assert (inside.tier, across.tier) == ("ici", "dcn")
    assert inside.seconds == pytest.approx(255 / 256 * V / 200e9)
    assert across.seconds == pytest.approx(1 / 2 * V / 256 / 3.125e9)


def test_readings_keep_the_torus_inside_the_pod() -> None:
    """Half of each v5e pod, rows of 16: two of four ports inside, then the unsharded vector."""
    groups = DeviceGroups.of([[*range(0, 16), *range(256, 272)]])
    time = collective_time(collective("reduce-scatter", groups, V), load("tpu-v5e"), STUDY, 512)
    inside, across = time.phases
    assert inside.seconds == pytest.approx(2 * 15 / 16 * V / 200e9)
    assert across.seconds == pytest.approx((2 - 1) / 4 * V / 3.125e9)


def test_all_reduce_on_a_torus_gathers_twice() -> None:
    reduce = collective_time(collective("all-reduce", rows(1, 64), V), machine(torus(8, 8)), LATENT)
    assert reduce.seconds == pytest.approx(2 * (8e-6 + 63 / 64 * V / 100e9))


def test_hyperx_takes_one_hop_per_axis() -> None:
    mesh = tier("x", 32, 100, us=0.5, topology="hyperx", dims=(4, 8), wrap=(False, False))
    gather = collective("all-gather", rows(1, 32), V // 32)
    time = collective_time(gather, machine(mesh), LATENT)
    assert time.algorithm == "exchange per axis"
    assert time.phases[0].seconds >= 2 * 0.5e-6 + 31 / 32 * V / 100e9
    # along one axis only half of the bandwidth is there
    row = collective_time(collective("all-gather", rows(4, 8), V // 8), machine(mesh), LATENT)
    assert row.seconds == pytest.approx(0.5e-6 + 2 * 7 / 8 * V / 100e9)
    # all-to-all: 7/8 of V over the longer axis at half the bandwidth, the other at once
    exchange = collective_time(collective("all-to-all", rows(1, 32), V), machine(mesh), LATENT)
    assert exchange.seconds == pytest.approx(2 * 0.5e-6 + 2 * 7 / 8 * V / 100e9)
    assert exchange.phases[0].bytes == pytest.approx((3 / 4 + 7 / 8) * V)


def test_link_loads_of_a_single_message() -> None:
    grid = slice_grid(torus(4, 4), 16)
    loads = LinkLoads(grid)
    loads.message(0, (0, 0), (2, 1), 3.0)  # half way round axis 0: both ways, two links each
    assert loads.busiest == 3.0
    assert loads.total == pytest.approx(3.0 * (2 + 1))


def test_broadcast_on_a_torus_uses_the_ports_of_its_axes() -> None:
    whole = collective_time(
        collective("collective-broadcast", rows(1, 16), V), machine(torus(4, 4)), STUDY
    )
    line = collective_time(
        collective("collective-broadcast", rows(4, 4), V), machine(torus(4, 4)), STUDY
    )
    assert whole.seconds == pytest.approx(V / 100e9)
    assert line.seconds == pytest.approx(2 * V / 100e9)
