"""Tori and HyperX: coordinates, slices, and the load that routed traffic puts on links.

Routing is dimension-ordered (axis 0 first, shortest way round a ring, ties split evenly), as on
TPU tori (Jouppi et al., ISCA 2023) and for HyperX (Ahn et al., SC 2009).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from xla_cost.machine.model import Tier

Coordinates = tuple[int, ...]
#: One straight run of nodes: axis, unit, coordinates on earlier and on later axes.
_Line = tuple[int, int, Coordinates, Coordinates]
#: Index of a link on its line, messages over it.
_Sparse = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """The slice that a program runs on. `ports` per device share its bandwidth evenly.

    `closed[a]`: axis a is a ring (torus). On a HyperX every axis is a crossbar with one port.
    """

    dims: tuple[int, ...]
    closed: tuple[bool, ...]
    crossbar: bool
    ports: int

    @property
    def axes(self) -> int:
        """Number of axes, those of length one included."""
        return len(self.dims)

    def coordinates(self, index: int) -> Coordinates:
        """Position of the device with this index in the unit; the last axis varies fastest."""
        found = []
        for length in reversed(self.dims):
            found.append(index % length)
            index //= length
        return tuple(reversed(found))

    def distance(self, a: Coordinates, b: Coordinates) -> int:
        """Links between two devices."""
        return sum(self.axis_distance(i, abs(x - y)) for i, (x, y) in enumerate(zip(a, b)))  # noqa: B905

    def axis_distance(self, axis: int, offset: int) -> int:
        """Links between two positions `offset` apart on one axis."""
        if self.crossbar:
            return min(offset, 1)
        return min(offset, self.dims[axis] - offset) if self.closed[axis] else offset


@lru_cache(maxsize=256)
def slice_grid(tier: Tier, devices: int) -> Grid:
    """The part of a unit that `devices` devices occupy: the most compact box that holds them.

    Of the boxes within `tier.dims` with the fewest nodes, the one with the smallest sum of
    lengths, longer axes last (as Cloud TPU names its slices, 4x8). An axis closes to a ring at
    full length, or at a multiple of `wrap_multiple` where optical switches close it.
    """
    dims = tier.dims if devices >= tier.size else _compact(tier.dims, devices)
    wraps = tier.wrap or (False,) * len(dims)
    closed = tuple(
        wrap and length > 2 and (length == full or _closes(length, tier.wrap_multiple))
        for length, full, wrap in zip(dims, tier.dims, wraps, strict=True)
    )
    crossbar = tier.topology == "hyperx"
    return Grid(dims, closed, crossbar, len(dims) * (1 if crossbar else 2))


def _closes(length: int, multiple: int) -> bool:
    return multiple > 0 and length % multiple == 0


def _compact(limits: tuple[int, ...], devices: int) -> tuple[int, ...]:
    boxes: list[tuple[int, ...]] = [()]
    for limit in limits[:-1]:
        boxes = [(*box, length) for box in boxes for length in range(1, limit + 1)]
    full = []
    for box in boxes:
        nodes = 1
        for length in box:
            nodes *= length
        last = -(-devices // nodes)
        if last <= limits[-1]:
            full.append((nodes * last, sum(box) + last, (*box, last)))
    return min(full)[2]


@dataclass
class LinkLoads:
    """Bytes on every link of a grid, summed over all groups that work at the same time."""

    grid: Grid
    lines: dict[_Line, list[float]] = field(default_factory=dict)

    def all_pairs(self, unit: int, members: Sequence[Coordinates], weight: float) -> None:
        """Every member sends `weight` to every other.

        A message turns at (its target's earlier coordinates, its source's later ones), so the
        traffic of a line separates into sources per later and targets per earlier coordinates.
        """
        for axis in range(self.grid.axes):
            if self.grid.dims[axis] == 1:
                continue
            sources = self._count(members, axis, later=True)
            targets = self._count(members, axis, later=False)
            for later, s in sources.items():
                for earlier, d in targets.items():
                    self._add((axis, unit, earlier, later), self._pattern(axis, s, d), weight)

    def message(self, unit: int, source: Coordinates, target: Coordinates, weight: float) -> None:
        """One message of `weight`."""
        for axis in range(self.grid.axes):
            if source[axis] == target[axis]:
                continue
            s, d = [0] * self.grid.dims[axis], [0] * self.grid.dims[axis]
            s[source[axis]], d[target[axis]] = 1, 1
            line = (axis, unit, target[:axis], source[axis + 1 :])
            self._add(line, self._pattern(axis, tuple(s), tuple(d)), weight)

    @property
    def busiest(self) -> float:
        """Bytes on the busiest link."""
        return max((max(loads) for loads in self.lines.values()), default=0.0)

    @property
    def total(self) -> float:
        """Bytes times links crossed."""
        halves = 0.5 if self.grid.crossbar else 1.0  # a crossbar line lists ports out and in
        return halves * sum(sum(loads) for loads in self.lines.values())

    def _count(
        self, members: Sequence[Coordinates], axis: int, later: bool
    ) -> dict[Coordinates, tuple[int, ...]]:
        counts: dict[Coordinates, list[int]] = defaultdict(lambda: [0] * self.grid.dims[axis])
        for at in members:
            counts[at[axis + 1 :] if later else at[:axis]][at[axis]] += 1
        return {key: tuple(value) for key, value in counts.items()}

    def _pattern(self, axis: int, s: tuple[int, ...], d: tuple[int, ...]) -> _Sparse:
        if self.grid.crossbar:
            return _crossbar_loads(s, d)
        return _line_loads(s, d, self.grid.closed[axis])

    def _add(self, line: _Line, pattern: _Sparse, weight: float) -> None:
        loads = self.lines.get(line)
        if loads is None:
            loads = self.lines[line] = [0.0] * (2 * self.grid.dims[line[0]])
        for i, load in pattern:
            loads[i] += load * weight


def _sparse(loads: Sequence[float]) -> _Sparse:
    return tuple((i, load) for i, load in enumerate(loads) if load)


@lru_cache(maxsize=4096)
def _line_loads(s: tuple[int, ...], d: tuple[int, ...], closed: bool) -> _Sparse:
    """Messages on each link, upward links then downward, when s[p] * d[q] go from p to q."""
    length = len(s)
    up, down = [0.0] * length, [0.0] * length
    for p, sources in enumerate(s):
        if not sources:
            continue
        for q, targets in enumerate(d):
            if p == q or not targets:
                continue
            count = float(sources * targets)
            forward = (q - p) % length
            share = _forward_share(p, q, forward, length, closed)
            for step in range(forward if share else 0):
                up[(p + step) % length] += count * share
            for step in range(length - forward if share < 1.0 else 0):
                down[(p - step) % length] += count * (1.0 - share)
    return _sparse((*up, *down))


def _forward_share(p: int, q: int, forward: int, length: int, closed: bool) -> float:
    if not closed:
        return 1.0 if q > p else 0.0
    if 2 * forward == length:
        return 0.5
    return 1.0 if 2 * forward < length else 0.0


@lru_cache(maxsize=4096)
def _crossbar_loads(s: tuple[int, ...], d: tuple[int, ...]) -> _Sparse:
    """Messages out of and into each port when s[p] * d[q] go from p to q."""
    all_s, all_d = sum(s), sum(d)
    out = [float(a * (all_d - b)) for a, b in zip(s, d, strict=True)]
    into = [float(b * (all_s - a)) for a, b in zip(s, d, strict=True)]
    return _sparse((*out, *into))
