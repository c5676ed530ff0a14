"""What a step of a body still waits for, and which steps of iterations may overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xla_cost.price.tasks import Step


def latest(deps: set[int], before: list[int]) -> tuple[tuple[int, ...], int]:
    """`deps` without those that another of them waits for anyway, and all that is then done."""
    implied = 0
    known = 0
    for dep in deps:
        implied |= before[dep]
        known |= before[dep] | 1 << dep
    return tuple(sorted(dep for dep in deps if not implied >> dep & 1)), known


def loose_steps(steps: Sequence[Step], before: Sequence[int] | None = None) -> tuple[int, ...]:
    """Steps that wait for nothing of the last iteration, or that not all of the next wait for.

    `before[i]` has a bit for every step that is done when step i starts; made here if None.
    """
    if before is None:
        before = _done_before(steps)
    everything = (1 << len(steps)) - 1
    common = everything
    waits: list[int] = []  # per step, what of the last iteration is done when it starts
    for step in steps:
        mask = 0
        for made in step.carried:
            mask |= before[made] | 1 << made
        for dep in step.deps:
            mask |= waits[dep]
        waits.append(mask)
        if mask:
            common &= mask
    return tuple(index for index, mask in enumerate(waits) if not mask or not common >> index & 1)


def _done_before(steps: Sequence[Step]) -> list[int]:
    found: list[int] = []
    for step in steps:
        mask = 0
        for dep in step.deps:
            mask |= found[dep] | 1 << dep
        found.append(mask)
    return found
