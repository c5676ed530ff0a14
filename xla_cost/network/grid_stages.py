"""Collectives on tori and HyperX: rings or exchanges along the axes that a group spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from xla_cost.groups import DeviceGroups
from xla_cost.machine.model import Tier
from xla_cost.network.grid import Coordinates, Grid, LinkLoads, slice_grid
from xla_cost.network.stage import Stage

#: Members of one group in one unit, with the size of the whole group.
_Part = tuple[int, int, tuple[Coordinates, ...]]


@dataclass(frozen=True, slots=True)
class GridStages:
    """Stages of all groups together, per byte of vector."""

    gather: tuple[Stage, ...]
    exchange: Stage


@dataclass(frozen=True, slots=True)
class _Axis:
    """How gathers use one axis. `cost`: bytes on the busiest link per byte gathered past it."""

    cost: float
    hops: int
    stretch: float  # links crossed per byte taken in


@lru_cache(maxsize=256)
def grid_stages(groups: DeviceGroups, tier: Tier, devices: int) -> GridStages:
    """Gather and all-to-all stages of `groups` on a torus or HyperX tier.

    The groups work at the same time, so links that several of them cross add up.
    """
    grid = slice_grid(tier, devices)
    parts = _parts(groups, tier.size, grid)
    exchange = _exchange(parts, grid)
    boxes = [_box(members) for _, _, members in parts]
    if all(box is not None for box in boxes):
        gather: tuple[Stage, ...] = (_box_gather(parts, [b for b in boxes if b], grid),)
    else:
        direct = Stage("direct", exchange.load, exchange.sent, exchange.hops)
        gather = (_snake_ring(parts, grid), direct)
    return GridStages(gather, exchange)


@lru_cache(maxsize=256)
def grid_pairs(pairs: tuple[tuple[int, int], ...], tier: Tier, devices: int) -> Stage:
    """One message per (source, target), all at once; both ends in the same unit."""
    grid = slice_grid(tier, devices)
    loads = LinkLoads(grid)
    hops = 0
    for source, target in pairs:
        a, b = grid.coordinates(source % tier.size), grid.coordinates(target % tier.size)
        loads.message(source // tier.size, a, b, 1.0)
        hops = max(hops, grid.distance(a, b))
    return Stage("routed", loads.busiest * grid.ports, loads.total / devices, hops)


def _parts(groups: DeviceGroups, size: int, grid: Grid) -> list[_Part]:
    parts: list[_Part] = []
    for group in groups.members:
        by_unit: dict[int, list[Coordinates]] = defaultdict(list)
        for device in group:
            by_unit[device // size].append(grid.coordinates(device % size))
        parts.extend((unit, len(group), tuple(found)) for unit, found in by_unit.items())
    return parts


def _exchange(parts: Sequence[_Part], grid: Grid) -> Stage:
    """All-to-all, every pair moving V/n: bisection-limited where axes are long."""
    loads = LinkLoads(grid)
    hops = 0
    for unit, n, members in parts:
        loads.all_pairs(unit, members, 1.0 / n)
        hops = max(hops, _diameter(members, grid))
    total = sum(len(members) for _, _, members in parts)
    return Stage("routed", loads.busiest * grid.ports, loads.total / total, hops)


def _diameter(members: Sequence[Coordinates], grid: Grid) -> int:
    """Bound on the links between two members: the sum of the widest offsets per axis."""
    return sum(
        max(grid.axis_distance(axis, q - p) for p in where for q in where if q >= p)
        for axis, where in enumerate(_positions(members))
    )


def _positions(members: Sequence[Coordinates]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sorted(set(column))) for column in zip(*members, strict=True))


def _box(members: tuple[Coordinates, ...]) -> tuple[tuple[int, ...], ...] | None:
    """Positions per axis when the members are their full product, else None."""
    where = _positions(members)
    nodes = 1
    for axis in where:
        nodes *= len(axis)
    return where if nodes == len(members) else None


# all-gather over boxes: every axis at once


def _box_gather(
    parts: Sequence[_Part], boxes: Sequence[tuple[tuple[int, ...], ...]], grid: Grid
) -> Stage:
    """The vector in one part per axis, each part visiting the axes in a rotated order.

    Multi-port bucket algorithm (Sack and Gropp, ACM TOPC 1(2), 2015); on a torus every axis is
    a ring used both ways, on a HyperX an exchange in one hop. The slowest group decides.
    """
    axes = [_axis(axis, parts, boxes, grid) for axis in range(grid.axes)]
    shapes = {tuple(len(where) for where in box) for box in boxes}
    return max((_rotated(shape, axes, grid) for shape in shapes), key=lambda stage: stage.load)


def _axis(
    axis: int, parts: Sequence[_Part], boxes: Sequence[tuple[tuple[int, ...], ...]], grid: Grid
) -> _Axis:
    """Both ways round the ring, or to and fro between the outer members: the cheaper."""
    if grid.crossbar:
        return _Axis(1.0, 1, 1.0)
    length = grid.dims[axis]
    touching: dict[object, int] = defaultdict(int)
    covering: dict[object, list[int]] = defaultdict(lambda: [0] * length)
    span, fewest = 0, length
    for (unit, _, members), box in zip(parts, boxes, strict=True):
        where = box[axis]
        if len(where) == 1:
            continue
        span, fewest = max(span, where[-1] - where[0]), min(fewest, len(where))
        for line in {(unit, at[:axis], at[axis + 1 :]) for at in members}:
            touching[line] += 1
            for link in range(where[0], where[-1]):
                covering[line][link] += 1
    if not touching:
        return _Axis(0.0, 0, 0.0)
    straight = float(max(max(links) for links in covering.values()))
    around = max(touching.values()) / 2.0 if grid.closed[axis] else float("inf")
    if around <= straight:
        return _Axis(around, length // 2, length / fewest)
    return _Axis(straight, span, span / (fewest - 1))


def _rotated(shape: tuple[int, ...], axes: Sequence[_Axis], grid: Grid) -> Stage:
    active = [axis for axis, k in enumerate(shape) if k > 1]
    if not active:
        return Stage("ring per axis", 0.0, 0.0, 0)
    n = 1
    for k in shape:
        n *= k
    table, sent = [], 0.0
    for first in range(len(active)):
        order = active[first:] + active[:first]
        gathered, row = 1.0 / n, []
        for axis in order:
            taken = gathered * (shape[axis] - 1)
            row.append(taken * axes[axis].cost)
            sent += taken * axes[axis].stretch / len(active)
            gathered *= shape[axis]
        table.append(row)
    load = min(_weighted(table, weights) for weights in _weights(table)) * grid.ports
    hops = sum(axes[axis].hops for axis in active)
    return Stage("exchange per axis" if grid.crossbar else "ring per axis", load, sent, hops)


def _weights(table: Sequence[Sequence[float]]) -> list[list[float]]:
    """Ways to split the vector: evenly, or so that the last phases take equally long."""
    even = [1.0 / len(table)] * len(table)
    inverse = [1.0 / row[-1] for row in table]
    return [even, [value / sum(inverse) for value in inverse]]


def _weighted(table: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
    """Sum over phases of the slowest part."""
    phases = zip(*table, strict=True)
    slowest = (max(w * cost for w, cost in zip(weights, phase, strict=True)) for phase in phases)
    return float(sum(slowest))


def _snake_ring(parts: Sequence[_Part], grid: Grid) -> Stage:
    """A ring, both ways, through members that form no box, in boustrophedon order."""
    loads = LinkLoads(grid)
    hops, total = 0, 0
    for unit, _, members in parts:
        order = sorted(members, key=_snake_key)
        n = len(order)
        total += n
        if n == 1:
            continue
        share = (n - 1) / n / 2.0
        widest = 0
        for a, b in zip(order, (*order[1:], order[0]), strict=True):
            loads.message(unit, a, b, share)
            loads.message(unit, b, a, share)
            widest = max(widest, grid.distance(a, b))
        hops = max(hops, n // 2 * widest)
    return Stage("ring through members", loads.busiest * grid.ports, loads.total / total, hops)


def _snake_key(at: Coordinates) -> Coordinates:
    """Rows alternate in direction, so that neighbours in the order are neighbours in the grid."""
    key: list[int] = []
    turns = 0
    for position in at:
        key.append(position if turns % 2 == 0 else -position)
        turns += position
    return tuple(key)
