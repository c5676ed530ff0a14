"""How long a matmul, an attention kernel or a pass over memory takes on a machine.

A machine carries its `KernelTimes` (the `[efficiency]` section of its file) as
`machine.kernel_times`; the functions here combine them with its peaks. Every time
includes the launch floor of one kernel.
"""

from xla_cost.kernel_time.efficiency import AttentionFit, FitRecord, GemmFit, MemoryFit
from xla_cost.kernel_time.seconds import (
    ComputeMachine,
    kernel_s,
    launch_s,
    matmul_s,
    memory_s,
    peak_flops,
)
from xla_cost.kernel_time.table import KernelTimes, from_table

__all__ = [
    "AttentionFit",
    "ComputeMachine",
    "FitRecord",
    "GemmFit",
    "KernelTimes",
    "MemoryFit",
    "from_table",
    "kernel_s",
    "launch_s",
    "matmul_s",
    "memory_s",
    "peak_flops",
]
