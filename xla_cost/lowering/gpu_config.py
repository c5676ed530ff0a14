"""What XLA:GPU must know of a GPU to compile for one that is not there.

The fields of `GpuTargetConfigProto` (xla/stream_executor/device_description.proto). Figures:
the target configurations that XLA itself tests with, `xla/backends/gpu/target_config/specs/`
(`h100_sxm`, `h200`, `b200`, `gb200`, `b300`, read November 2026), which are device queries of
the real parts; limits of a Hopper and a Blackwell SM are equal, see the CUDA C++ Programming
Guide, table "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU as the compiler sees it: SMs, clock, memory and compute capability."""

    name: str
    core_count: int
    clock_ghz: float
    memory_bytes: int
    memory_bytes_per_s: int
    l2_bytes: int
    capability: tuple[int, int]
    per_host: int


GPUS = {
    "h100": GpuSpec(
        "NVIDIA H100 80GB HBM3", 132, 1.98, 84942979072, 3352320000000, 52428800, (9, 0), 8
    ),
    "b200": GpuSpec(
        "NVIDIA B200", 148, 1.965, 191514411008, 7672320000000, 132644864, (10, 0), 8
    ),
    "b300": GpuSpec(
        "NVIDIA B300", 158, 1.965, 297021865984, 7936000000000, 135528448, (10, 3), 8
    ),
}  # fmt: skip

#: Limits of one SM of Hopper and Blackwell, which the figures above do not change.
_LIMITS = """\
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: 2048
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
"""


def target_config(gpu: GpuSpec) -> str:
    """Return the text form of `GpuTargetConfigProto` for a GPU."""
    major, minor = gpu.capability
    return (
        "gpu_device_info {\n"
        f"{_LIMITS}"
        f"  core_count: {gpu.core_count}\n"
        f"  clock_rate_ghz: {gpu.clock_ghz}\n"
        f"  device_memory_size: {gpu.memory_bytes}\n"
        f"  memory_bandwidth: {gpu.memory_bytes_per_s}\n"
        f"  l2_cache_size: {gpu.l2_bytes}\n"
        f"  cuda_compute_capability {{ major: {major} minor: {minor} }}\n"
        "}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 10 }\n"
        f'device_description_str: "{gpu.name}"\n'
    )


def topology_of(gpu: GpuSpec, devices: int) -> str:
    """Return `slices x hosts x devices per host`: hosts as full as `devices` allows."""
    per_host = next(n for n in range(min(gpu.per_host, devices), 0, -1) if devices % n == 0)
    return f"1x{devices // per_host}x{per_host}"
