"""Two estimates of one program: the ratio, what buys it, and where it comes from.

The split. A machine is taken as three choices: whose compute (peaks and memory), whose links
(the innermost tier's bandwidth, latency and efficiency) and whose radix (how many devices the
innermost tier connects, with the outer tiers that follow from it). Changing one choice at a time
leads from the first machine to the second; each step is a factor of the ratio, but the factor
depends on the order of the steps. So each choice gets the geometric mean of its factors over all
orders (the Shapley value of log latency): the shares are symmetric and multiply to the ratio
exactly. Where only links and radix differ, as between a machine and its photonic twin, that is
sqrt of (bandwidth first x bandwidth second) and the same for radix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import permutations
from math import exp, log
from typing import TYPE_CHECKING

from xla_cost.errors import XlaCostError
from xla_cost.machine import Machine, hybrid
from xla_cost.price.estimate import Estimate
from xla_cost.price.pricing import price
from xla_cost.units import seconds_text

if TYPE_CHECKING:
    import pandas as pd

_CHOICES = ("compute", "bandwidth", "radix")


@dataclass(frozen=True, slots=True)
class ScopeDifference:
    """Seconds that the second estimate saves in one part of the model."""

    scope: str
    compute_saved_s: float
    exposed_saved_s: float

    @property
    def saved_s(self) -> float:
        """All of it; negative where the second is slower."""
        return self.compute_saved_s + self.exposed_saved_s


@dataclass(frozen=True, slots=True)
class OpDifference:
    """Seconds that the second estimate saves in one op."""

    name: str
    kind: str
    scope: str
    saved_s: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """`first` against `second`, usually copper against photons."""

    first: Estimate
    second: Estimate

    @property
    def ratio(self) -> float:
        """How many times faster the second is: latency of the first over the second's."""
        return _ratio(self.first.latency_s, self.second.latency_s)

    @cached_property
    def split(self) -> Mapping[str, float]:
        """Factors `bandwidth` and `radix` (and `compute` where the chips differ).

        They multiply to `ratio`. Empty for estimates of two programs, or under two policies,
        which no change of machine explains; also where a pod of fixed dimensions cannot take
        the other's size.
        """
        first, second = self.first, self.second
        same_rules = (first.policy, first.network) == (second.policy, second.network)
        if first.program is not second.program or not same_rules:
            return {}
        try:
            return _shapley(first.machine, second.machine, self._latency_on)
        except XlaCostError:
            return {}

    def _latency_on(self, machine: Machine) -> float:
        for known in (self.first, self.second):
            if machine == known.machine:
                return known.latency_s
        one = self.first
        return price(one.program, machine, one.policy, one.network).latency_s

    @cached_property
    def by_scope(self) -> tuple[ScopeDifference, ...]:
        """Parts of the model, the largest difference first."""
        one = {row.scope: row for row in self.first.by_scope}
        two = {row.scope: row for row in self.second.by_scope}
        rows = []
        for scope in {**one, **two}:
            a, b = one.get(scope), two.get(scope)
            rows.append(
                ScopeDifference(
                    scope,
                    (a.compute_s if a else 0.0) - (b.compute_s if b else 0.0),
                    (a.exposed_comm_s if a else 0.0) - (b.exposed_comm_s if b else 0.0),
                )
            )
        return tuple(sorted(rows, key=lambda row: (-abs(row.saved_s), row.scope)))

    @cached_property
    def ops(self) -> tuple[OpDifference, ...]:
        """Ops, the largest difference first."""
        saved: dict[tuple[str, str, str], float] = {}
        for sign, estimate in ((1.0, self.first), (-1.0, self.second)):
            for op in estimate.ops:
                key = (op.name, op.kind, op.scope)
                saved[key] = saved.get(key, 0.0) + sign * op.critical_s
        rows = [OpDifference(*key, seconds) for key, seconds in saved.items()]
        return tuple(sorted(rows, key=lambda row: (-abs(row.saved_s), row.name)))

    def to_pandas(self, table: str = "by_scope") -> pd.DataFrame:
        """Seconds that the second estimate saves, as a data frame: `by_scope` or `ops`.

        Raises XlaCostError for any other table.
        """
        import pandas as pd

        if table not in ("by_scope", "ops"):
            raise XlaCostError(f"table {table!r} is unknown; expected 'by_scope' or 'ops'")
        rows: tuple[ScopeDifference | OpDifference, ...]
        rows = self.by_scope if table == "by_scope" else self.ops
        kind = ScopeDifference if table == "by_scope" else OpDifference
        columns = [field.name for field in fields(kind)]
        frame = pd.DataFrame([[getattr(row, c) for c in columns] for row in rows], columns=columns)
        if table == "by_scope":
            frame["saved_s"] = [row.saved_s for row in rows]
        return frame

    def __repr__(self) -> str:
        shares = " x ".join(f"{name} {value:.3f}" for name, value in self.split.items())
        lines = [
            f"{self.second.machine.name} is {self.ratio:.3f} times as fast as "
            f"{self.first.machine.name}{f' = {shares}' if shares else ''}"
        ]
        lines += [f"  {row.scope}: {seconds_text(row.saved_s)} saved" for row in self.by_scope[:3]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from xla_cost.price.frames import comparison_html

        return comparison_html(self)


def compare(first: Estimate, second: Estimate) -> Comparison:
    """`first` against `second`; see Comparison."""
    return Comparison(first, second)


def _shapley(
    first: Machine, second: Machine, latency_on: Callable[[Machine], float]
) -> dict[str, float]:
    differ = [name for name in _CHOICES if _differs(name, first, second)]
    latency: dict[frozenset[str], float] = {}
    for size in range(1 << len(differ)):
        changed = frozenset(name for bit, name in enumerate(differ) if size >> bit & 1)
        latency[changed] = latency_on(_corner(first, second, changed, set(differ)))
    logs: dict[str, float] = dict.fromkeys(differ, 0.0)
    orders = list(permutations(differ))
    for order in orders:
        done: frozenset[str] = frozenset()
        for name in order:
            after = done | {name}
            logs[name] += log(_ratio(latency[done], latency[after])) / len(orders)
            done = after
    shares = {name: exp(value) for name, value in logs.items()}
    return {"bandwidth": 1.0, "radix": 1.0, **shares}


def _corner(first: Machine, second: Machine, changed: frozenset[str], differ: set[str]) -> Machine:
    """`first` with the `changed` choices taken from `second`."""
    if changed == differ:
        return second
    if not changed:
        return first
    pick = {name: second if name in changed else first for name in _CHOICES}
    links, radix = pick["bandwidth"], pick["radix"]
    network = links if links is radix else hybrid(radix, links, pod=radix.scale_up.size)
    return hybrid(pick["compute"], network)


def _differs(choice: str, first: Machine, second: Machine) -> bool:
    if choice == "radix":
        outer = [[t.size for t in m.tiers] for m in (first, second)]
        return outer[0] != outer[1] or first.tiers[1:] != second.tiers[1:]
    if choice == "bandwidth":
        a, b = first.scale_up, second.scale_up
        return any(
            getattr(a, key) != getattr(b, key)
            for key in type(a).__slots__
            if key not in ("name", "size", "energy_j_per_byte")
        )
    return (
        dict(first.peak_flops) != dict(second.peak_flops)
        or first.memory_bytes_per_s != second.memory_bytes_per_s
        or first.efficiency != second.efficiency
    )


def _ratio(first: float, second: float) -> float:
    if not second:
        return 1.0 if not first else float("inf")
    return first / second
