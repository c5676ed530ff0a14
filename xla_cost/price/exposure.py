"""Which communication nothing hides: the time in which only communication runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xla_cost.price.schedule import COMPUTE, Run


def exposed_s(
    runs: Sequence[Run],
    covers: Callable[[Run], bool],
    window: tuple[float, float] | None = None,
) -> dict[int, float]:
    """Seconds, by position in the schedule, that a run stands alone inside `window` (all).

    `covers(run)` says whether a run hides communication: all on the compute stream do, and
    blocks, whose inside is accounted for by itself. When collectives of several tiers run
    together and nothing covers them, they share the time equally; so the sum over positions
    is the time in which only communication runs.
    """
    left, right = window or (0.0, float("inf"))
    edges: list[tuple[float, int, int, bool]] = []
    for run in runs:
        start, end = max(run[0], left), min(run[1], right)
        if start < end:
            hides = run[2] == COMPUTE or covers(run)
            edges.append((start, 1, run[3], hides))
            edges.append((end, -1, run[3], hides))
    edges.sort()
    found: dict[int, float] = {}
    active: list[int] = []
    hiding, before = 0, left
    for time, step, position, hides in edges:
        if active and not hiding and time > before:
            share = (time - before) / len(active)
            for other in active:
                found[other] = found.get(other, 0.0) + share
        before = time
        if hides:
            hiding += step
        elif step > 0:
            active.append(position)
        else:
            active.remove(position)
    return found
