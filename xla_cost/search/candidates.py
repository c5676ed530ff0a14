"""The space that a mesh search covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod

from xla_cost.errors import XlaCostError


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """One way to run a workload on a device count.

    `mesh` gives the size of the logical axes in the plan's order (x, y, z); `placement`
    lists the axes from the slowest-varying to the fastest-varying physical one, so its
    last axis holds neighbouring devices.
    """

    plan: str
    mesh: tuple[int, ...]
    placement: str = "xyz"
    microbatches: int = 1

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        return prod(self.mesh)

    def __str__(self) -> str:
        text = f"{'x'.join(map(str, self.mesh))} {self.plan}"
        if self.placement != "xyz":
            text += f" placed {self.placement}"
        return text + (f" mb{self.microbatches}" if self.microbatches > 1 else "")


def factorisations(devices: int, axes: int = 3) -> Iterator[tuple[int, ...]]:
    """Every ordered way to write `devices` as a product of `axes` positive integers."""
    if devices < 1:
        raise XlaCostError(f"devices = {devices}; must be at least 1")
    if axes == 1:
        yield (devices,)
        return
    for first in range(1, devices + 1):
        if devices % first == 0:
            for rest in factorisations(devices // first, axes - 1):
                yield (first, *rest)


def placements(mesh: Sequence[int], axes: str = "xyz") -> tuple[str, ...]:
    """The placement orders of `axes` that differ physically.

    Axes of size one do not move anything, so orders that differ only in where those
    stand are the same layout; the first in alphabetical order of the rest is kept.
    """
    real = "".join(axis for axis, size in zip(axes, mesh, strict=True) if size > 1)
    orders: dict[str, str] = {}
    for order in permutations(axes):
        layout = "".join(axis for axis in order if axis in real)
        orders.setdefault(layout, "".join(order))
    return tuple(orders.values())


def space(
    devices: int,
    plans: Sequence[str],
    *,
    microbatches: Sequence[int] = (1,),
    all_placements: bool = False,
) -> tuple[Candidate, ...]:
    """Every candidate for `devices`: shapes x placements x plans x micro-batch counts.

    Without `all_placements` only the natural order `xyz` is taken, in which the last
    axis holds neighbouring devices.
    """
    return tuple(
        Candidate(plan, mesh, placement, count)
        for plan in plans
        for mesh in factorisations(devices)
        for placement in (placements(mesh) if all_placements else ("xyz",))
        for count in microbatches
    )
