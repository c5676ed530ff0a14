"""Seconds of one task on one machine under one policy, and what bounds it.

peak rates:   kernel = max(FLOPs * work / peak of the format, bytes / memory bandwidth)
              (+ launch where the policy pays latency)
fitted rates: kernel = what `xla_cost.kernel_time` predicts, which includes its launch
both:         what ends an all-reduce inside a pod pays no launch: serving engines have one
              kernel for all-reduce, residual add, norm and quantisation (`AllReduceFusionOp` in
              TensorRT-LLM, the same kernels in SGLang and vLLM)
collectives:  the phases of `xla_cost.network.collective_time`, each on its tier
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

from xla_cost import kernel_time
from xla_cost.errors import XlaCostError
from xla_cost.kernel_time.seconds import WIDER
from xla_cost.machine import Machine
from xla_cost.network import CollectiveTime, NetworkPolicy, collective_time, role_of
from xla_cost.policy import Policy
from xla_cost.price.experts import grouped_work
from xla_cost.price.schedule import COMPUTE, Stages
from xla_cost.price.tasks import Task, TaskGraph
from xla_cost.program import Matmul, Op

Bound = Literal["compute", "memory", "network", "latency", "nothing"]

#: formats that a machine either has or does not: nobody means "fp4" and wants fp8
_NO_SUBSTITUTE = ("fp4", "fp8", "int4", "int8")


class TaskTime(NamedTuple):
    """One execution of a task. A kernel has one stage on stream 0, a collective its phases.

    `seconds` is busy time, all streams added. `ideal_compute_s` and `ideal_memory_s` are its
    FLOPs and bytes at peak.
    """

    seconds: float
    stages: Stages
    bound: Bound
    ideal_compute_s: float = 0.0
    ideal_memory_s: float = 0.0
    collective: CollectiveTime | None = None


def task_times(
    graph: TaskGraph, machine: Machine, policy: Policy, network: NetworkPolicy, devices: int
) -> tuple[TaskTime, ...]:
    """The time of every task of a graph; equal ones are computed once.

    `devices` run the program, which decides how large a slice of a torus is.
    """
    tier_of = {tier.name: 1 + index for index, tier in enumerate(machine.tiers)}
    rate = _rates(machine, policy)
    launch_s = kernel_time.launch_s(machine) if policy.latency else 0.0
    found: list[TaskTime] = []
    for index, twin in enumerate(graph.twins):
        if twin != index:
            found.append(found[twin])
            continue
        task = graph.tasks[index]
        op = task.op
        if op.collective is not None:
            role = role_of(op.scope)
            priced = collective_time(op.collective, machine, network, devices, role)
            found.append(_collective(priced, tier_of))
        else:
            time = _kernel(task, machine, policy, rate, launch_s)
            ended = found[task.ends].collective if task.ends >= 0 else None
            if ended is not None and set(ended.bytes_by_tier) <= {machine.scale_up.name}:
                time = _without_launch(time, launch_s)
            found.append(time)
    return tuple(found)


def _without_launch(time: TaskTime, launch_s: float) -> TaskTime:
    """A kernel that the one before it goes on with."""
    seconds = max(0.0, time.seconds - launch_s)
    stages = (((COMPUTE, seconds),),) if seconds else ()
    return time._replace(seconds=seconds, stages=stages, bound="memory" if seconds else "nothing")


def effective_format(machine: Machine, number_format: str) -> str:
    """The format whose unit runs `number_format` on `machine`; itself where there is one."""
    for name in (number_format, *WIDER.get(number_format, ())):
        if machine.peak_flops.get(name, 0.0) > 0.0:
            return name
    return number_format


def _rates(machine: Machine, policy: Policy) -> Callable[[str], float]:
    """FLOP/s by format, computed once each.

    Under peak rates a machine without fp4 (fp8, ..) units is an error, because a ratio of
    peaks would silently compare two formats; fitted rates widen, as compilers do.
    """
    known: dict[str, float] = {}

    def rate(number_format: str) -> float:
        found = known.get(number_format)
        if found is None:
            strict = policy.kernel_rates == "peak" and number_format in _NO_SUBSTITUTE
            if strict and not machine.peak_flops.get(number_format):
                raise XlaCostError(
                    f"machine {machine.name}: no {number_format} peak; policy {policy.name} "
                    f"expects one of its formats {sorted(machine.peak_flops)}"
                )
            found = known[number_format] = kernel_time.peak_flops(machine, number_format)
        return found

    return rate


def _kernel(
    task: Task,
    machine: Machine,
    policy: Policy,
    rate: Callable[[str], float],
    launch_s: float,
) -> TaskTime:
    op, matmuls = task.op, task.op.matmuls
    compute_s = 0.0
    if matmuls:
        matmuls, bytes_read = grouped_work(op, task.bytes_read, policy)
        if bytes_read != task.bytes_read:
            task = replace(task, bytes_read=bytes_read)
        compute_s = op.work * sum(matmul.flops / rate(matmul.format) for matmul in matmuls)
    memory_s = task.bytes / machine.memory_bytes_per_s
    if policy.kernel_rates == "peak":
        seconds = max(compute_s, memory_s) + launch_s
    else:
        seconds = _fitted_s(task, op, matmuls, machine)
    bound: Bound = "compute" if compute_s >= memory_s else "memory"
    if not seconds:
        bound = "nothing"
    elif launch_s >= 0.5 * seconds:
        bound = "latency"
    stages = (((COMPUTE, seconds),),) if seconds else ()
    return TaskTime(seconds, stages, bound, compute_s, memory_s)


def _fitted_s(task: Task, op: Op, matmuls: tuple[Matmul, ...], machine: Machine) -> float:
    if op.kind == "matmul" and len(matmuls) == 1:
        return kernel_time.matmul_s(machine, matmuls[0], task.bytes_read, task.bytes_written)
    if op.kind in ("kernel", "matmul"):
        same = (op.matmuls, op.bytes_read, op.bytes_written) == (
            matmuls, task.bytes_read, task.bytes_written
        )  # fmt: skip
        if not same:
            op = replace(
                op,
                matmuls=matmuls,
                bytes_read=task.bytes_read,
                bytes_written=task.bytes_written,
            )
        return kernel_time.kernel_s(machine, op)
    return kernel_time.memory_s(machine, task.bytes)


def _collective(time: CollectiveTime, stream_of: dict[str, int]) -> TaskTime:
    stages: list[list[tuple[int, float]]] = []
    stage_end_s = 0.0
    for phase in sorted(time.phases, key=lambda phase: phase.start_s):
        if not phase.seconds:
            continue
        part = (stream_of[phase.tier], phase.seconds)
        together = stages and phase.start_s < stage_end_s * (1.0 - 1e-9)
        if together and all(stream != part[0] for stream, _ in stages[-1]):
            stages[-1].append(part)
        else:
            stages.append([part])
        stage_end_s = max(stage_end_s, phase.end_s)
    busy_s = sum(seconds for stage in stages for _, seconds in stage)
    return TaskTime(
        busy_s, tuple(map(tuple, stages)), "network" if busy_s else "nothing", collective=time
    )
