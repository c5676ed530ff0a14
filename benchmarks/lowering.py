"""How long one warm lowering of DeepSeek-R1 takes: trace, lower, partition, stop.

    taskset -c 0 .venv/bin/python benchmarks/lowering.py [MESH] [REPEATS]

The aim is half a second on one core. The first lowering of a process also pays for jax's own
caches and is shown apart; of the others the fastest counts, as the slower ones measure whatever
else the machine was doing. CPU seconds are those of the whole process, all threads.
"""

from __future__ import annotations

import sys
import time

from xla_cost import models
from xla_cost.lowering import PartitionedHlo, ensure_devices, partition
from xla_cost.programs import parse_mesh


def lower_once(mesh: tuple[int, int, int]) -> tuple[float, float, PartitionedHlo]:
    """Return wall and CPU seconds of one lowering of the study's 128K x 64 point, and the HLO."""
    workload = models.Workload(
        model=models.get_config("r1"),
        batch=64,
        seq=131_072,
        phase="prefill",
        formats=models.get_formats("fp4"),
    )
    built = models.build(workload, models.get_plan("study"), mesh)
    wall, cpu = time.perf_counter(), time.process_time()
    hlo = partition(built.fn, built.args, mesh=built.mesh)
    return time.perf_counter() - wall, time.process_time() - cpu, hlo


def main() -> None:
    """Print one line per lowering and the fastest."""
    mesh = parse_mesh(sys.argv[1] if len(sys.argv) > 1 else "2x144x1")
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 6
    ensure_devices()
    runs = []
    for number in range(repeats + 1):
        wall_s, cpu_s, hlo = lower_once(mesh)
        runs.append((wall_s, cpu_s))
        print(
            f"{'first' if number == 0 else 'warm '}  {wall_s:.3f} s, {cpu_s:.3f} s of CPU: trace "
            f"{hlo.trace_s:.3f}, lower {hlo.lower_s:.3f}, partition {hlo.partition_s:.3f}; "
            f"{len(hlo.text)} bytes of HLO for {hlo.devices} devices"
        )
    wall_s, cpu_s = min(runs[1:])
    print(f"fastest warm lowering: {wall_s:.3f} s, {cpu_s:.3f} s of CPU (aim: 0.5 s)")


if __name__ == "__main__":
    main()
