"""`Estimate`: what a program costs on a machine, and everything that explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xla_cost.machine import Machine
from xla_cost.network import NetworkPolicy
from xla_cost.policy import Policy
from xla_cost.price.duration import TaskTime
from xla_cost.price.execute import Execution
from xla_cost.price.memory import Energy, Memory, energy_of, memory_of
from xla_cost.price.scopes import part_of
from xla_cost.price.tables import (
    CollectiveCost,
    OpCost,
    ScopeCost,
    by_part,
    collective_table,
    op_table,
    scope_tree,
)
from xla_cost.price.tasks import TaskGraph
from xla_cost.price.timeline import Timeline, timeline
from xla_cost.program import Op, Program
from xla_cost.units import bytes_text, seconds_text

if TYPE_CHECKING:
    import pandas as pd


#: share of a latency below which a difference of two sums of its parts is rounding
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Cost of one execution of `program` on `machine` under `policy`, per device, in SI units.

    latency_s:      the makespan of the schedule
    compute_s:      busy time of the compute stream
    comm_s:         busy time of the communication streams, all tiers added
    exposed_comm_s: time in which only communication runs (latency less compute)
    Tables, timeline, memory and energy are made when asked for.
    """

    program: Program
    machine: Machine
    policy: Policy
    network: NetworkPolicy
    graph: TaskGraph
    times: tuple[TaskTime, ...]
    execution: Execution
    latency_s: float
    compute_s: float
    comm_s_by_tier: Mapping[str, float]

    @property
    def comm_s(self) -> float:
        """Busy time of the communication streams, all tiers added."""
        return sum(self.comm_s_by_tier.values())

    @property
    def exposed_comm_s(self) -> float:
        """Time in which only communication runs.

        Latency less compute: at any time before the end something runs, see `schedule`. Both
        add the seconds of some thousand tasks, in different orders, each addition rounded to
        2^-53; what they differ by less than 1e-12 of the latency is that rounding, not time.
        """
        exposed_s = self.latency_s - self.compute_s
        return exposed_s if exposed_s > _ROUNDING * self.latency_s else 0.0

    @cached_property
    def memory(self) -> Memory:
        """Bytes per device against capacity."""
        return memory_of(self.program, self.machine)

    @cached_property
    def energy(self) -> Energy:
        """Joules per device: compute, network by tier, static."""
        return energy_of(
            self.graph.tasks, self.times, self.execution.executions, self.machine,
            self.latency_s, self.program.devices,
        )  # fmt: skip

    @property
    def energy_j(self) -> float:
        """Joules per device."""
        return self.energy.energy_j

    @cached_property
    def ops(self) -> tuple[OpCost, ...]:
        """Every task that runs, dearest first by what it adds to the latency."""
        return op_table(self.graph, self.times, self.execution)

    @cached_property
    def collectives(self) -> tuple[CollectiveCost, ...]:
        """Every collective that runs, dearest first."""
        return collective_table(self.graph, self.times, self.execution)

    @cached_property
    def by_scope(self) -> tuple[ScopeCost, ...]:
        """One row per part of the model (attention, dispatch, ..), which together are all."""
        return by_part(self.ops, [part_of(op.scope) for op in self.ops])

    @cached_property
    def scope_tree(self) -> tuple[ScopeCost, ...]:
        """One row per scope path, with everything below it; the first is the whole program."""
        return scope_tree(self.ops)

    @cached_property
    def bound_s(self) -> Mapping[str, float]:
        """Seconds of latency by what bounds them: compute, memory, network, latency."""
        found = {"compute": 0.0, "memory": 0.0, "network": 0.0, "latency": 0.0}
        for op in self.ops:
            if op.bound in found:
                found[op.bound] += op.critical_s
        return found

    @property
    def bound_by(self) -> str:
        """The resource that most of the latency waits for."""
        return max(self.bound_s, key=lambda name: self.bound_s[name])

    @cached_property
    def timeline(self) -> Timeline:
        """What runs when."""
        return timeline(self.graph, self.times, self.execution, self.machine)

    @property
    def unpriced(self) -> tuple[tuple[Op, float], ...]:
        """Ops that were not understood, with their executions."""
        return self.graph.unpriced

    @property
    def coverage(self) -> float:
        """Share of the instructions that may take time that were understood."""
        return self.program.coverage

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know: compiler warnings, unknown loops, borrowed figures."""
        found = list(self.program.warnings)
        found += [
            f"loop {loop.name} ({loop.scope or 'no scope'}) has no known trip count: costed once"
            for loop in self.graph.unknown_loops
        ]
        found += [
            f"{op.opcode} {op.name} is not priced: {op.note or 'no rule'}"
            for op, _ in self.graph.unpriced
        ]
        if not self.memory.fits:
            found.append(
                f"needs {bytes_text(self.memory.needed_bytes)} per device, {self.machine.name} has "
                f"{bytes_text(self.memory.capacity_bytes)}"
            )
        name = self.machine.name
        found += [mark if name in mark else f"{name}: {mark}" for mark in self.machine.marks]
        if self.policy.network_rates == "fitted":
            found += [f"{name}: {rate}" for rate in self.machine.assumed_rates]
        return tuple(dict.fromkeys(found))

    def to_json(self) -> dict[str, Any]:
        """One entry of `results` of `estimate --json`."""
        from xla_cost.price.as_json import result_json

        return result_json(self)

    def to_pandas(self, table: str = "ops") -> pd.DataFrame:
        """A table as a data frame: `ops`, `collectives`, `by_scope`, `scope_tree`, `timeline`.

        One row per entry, columns as the fields, SI units. Raises XlaCostError for any other.
        """
        from xla_cost.price.frames import frame

        return frame(self, table)

    def __repr__(self) -> str:
        memory = self.memory
        lines = [
            f"Estimate of {self.program.name} on {self.program.devices} x {self.machine.name} "
            f"(policy {self.policy.name})",
            f"  latency  {seconds_text(self.latency_s)}, bound by {self.bound_by}",
            f"  compute  {seconds_text(self.compute_s)}",
            f"  network  {seconds_text(self.comm_s)}, exposed {seconds_text(self.exposed_comm_s)}",
            f"  memory   {bytes_text(memory.needed_bytes)} of {bytes_text(memory.capacity_bytes)}"
            f"{'' if memory.fits else ', does not fit'}",
        ]
        parts = ", ".join(
            f"{row.scope} {row.critical_s / self.latency_s:.0%}" for row in self.by_scope[:4]
        ) if self.latency_s else ""  # fmt: skip
        return "\n".join([*lines, *([f"  parts    {parts}"] if parts else [])])

    def _repr_html_(self) -> str:
        from xla_cost.price.frames import html

        return html(self)
