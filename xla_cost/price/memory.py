"""Memory per device against capacity, and energy per device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xla_cost.machine import Machine
from xla_cost.price.duration import TaskTime, effective_format
from xla_cost.price.tasks import Task
from xla_cost.program import Program


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per device. Activations are the most that is alive at once in the program, by the
    order printed, without weights and cache. The cache counts once: a prefill makes it, and a
    decode step updates it in place, its buffer being donated as serving engines do.
    """

    weights_bytes: int
    kv_cache_bytes: int
    peak_activation_bytes: int
    capacity_bytes: float

    @property
    def needed_bytes(self) -> int:
        """Weights, cache and activations."""
        return self.weights_bytes + self.kv_cache_bytes + self.peak_activation_bytes

    @property
    def fits(self) -> bool:
        """Whether all of it is at most the capacity."""
        return self.needed_bytes <= self.capacity_bytes


def memory_of(program: Program, machine: Machine) -> Memory:
    """What `program` holds on each device of `machine`."""
    cache = program.kv_cache_bytes or 0
    weights = program.parameter_bytes if program.weights_bytes is None else program.weights_bytes
    # a prefill makes its cache: then the peak inside the program holds it already; what a decode
    # step updates in place of its arguments is no part of the peak
    made_inside = program.parameter_bytes < weights + cache
    inside = min(cache, program.output_bytes) if made_inside else 0
    return Memory(
        weights_bytes=weights,
        kv_cache_bytes=cache,
        peak_activation_bytes=max(0, program.entry.peak_live_bytes - inside),
        capacity_bytes=machine.memory_capacity_bytes,
    )


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules per device; times `devices` is the whole run.

    compute_j: FLOPs (times what a kernel skips) at the machine's joule per FLOP
    network_j: bytes a mean device puts on a tier's links at the tier's joule per byte
    static_j:  static power for the whole latency
    """

    compute_j: float
    network_j: Mapping[str, float]
    static_j: float
    devices: int

    @property
    def energy_j(self) -> float:
        """All of it, per device."""
        return self.compute_j + sum(self.network_j.values()) + self.static_j

    @property
    def total_j(self) -> float:
        """All of it, over all devices."""
        return self.energy_j * self.devices


def energy_of(
    tasks: Sequence[Task],
    times: Sequence[TaskTime],
    executions: Sequence[float],
    machine: Machine,
    latency_s: float,
    devices: int,
) -> Energy:
    """Energy of `executions[i]` runs of each task in a program that takes `latency_s`."""
    per_flop: dict[str, float] = {}
    network = {tier.name: 0.0 for tier in machine.tiers}
    compute_j = 0.0
    for task, time, count in zip(tasks, times, executions, strict=True):
        for matmul in task.op.matmuls:
            rate = per_flop.get(matmul.format)
            if rate is None:
                own = effective_format(machine, matmul.format)
                rate = per_flop[matmul.format] = machine.compute_j_per_flop(own)
            compute_j += matmul.flops * task.op.work * rate * count
        if time.collective is not None:
            for phase in time.collective.phases:
                network[phase.tier] += phase.energy_j * count
    return Energy(compute_j, network, machine.static_w * latency_s, devices)
