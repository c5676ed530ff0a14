"""What padding and replication waste: FLOPs all devices do against FLOPs the model needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from xla_cost.program import Program


@dataclass(frozen=True, slots=True)
class ScopeWaste:
    """One scope: matrix FLOPs done on all devices together, and how many were needed."""

    scope: str
    done_flops: float
    needed_flops: float

    @property
    def factor(self) -> float:
        """Done over needed: 1 is no waste, 2 is everything done twice; infinite for nothing."""
        if self.needed_flops:
            return self.done_flops / self.needed_flops
        return 1.0 if not self.done_flops else float("inf")

    @property
    def wasted_flops(self) -> float:
        """FLOPs done beyond the need; negative when the partitioner found a shortcut."""
        return self.done_flops - self.needed_flops


def waste_by_scope(
    program: Program, needed: Mapping[str, float], *, depth: int | None = None
) -> tuple[ScopeWaste, ...]:
    """Compare `devices x per-device FLOPs` of a partitioned program with the need, by scope.

    `needed` maps scope path to FLOPs of the whole computation, once: from
    `xla_cost.lowering.global_flops`, or a model's closed form. Scopes are cut to `depth`
    segments; the largest waste comes first. `work` of kernel regions is not applied, on
    either side.
    """
    done: defaultdict[str, float] = defaultdict(float)
    for op, times in program.walk():
        if op.flops:
            done[_cut(op.scope, depth)] += op.flops * times * program.devices
    wanted: defaultdict[str, float] = defaultdict(float)
    for scope, flops in needed.items():
        wanted[_cut(scope, depth)] += flops
    rows = [ScopeWaste(scope, done[scope], wanted[scope]) for scope in {*done, *wanted}]
    return tuple(sorted(rows, key=lambda row: (-row.wasted_flops, row.scope)))


def total_waste(rows: tuple[ScopeWaste, ...]) -> ScopeWaste:
    """Return the sum over all scopes, named ""."""
    return ScopeWaste(
        "", sum(row.done_flops for row in rows), sum(row.needed_flops for row in rows)
    )


def _cut(scope: str, depth: int | None) -> str:
    return scope if depth is None else "/".join(scope.split("/")[:depth])
