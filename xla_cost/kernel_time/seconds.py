"""Kernel times on a machine: a roofline with fitted efficiencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from xla_cost.errors import XlaCostError
from xla_cost.kernel_time.efficiency import AttentionFit, GemmFit, MemoryFit
from xla_cost.kernel_time.forms import (
    attention_compute_s,
    gemm_compute_s,
    kernel_total_s,
    stream_s,
)
from xla_cost.kernel_time.table import KernelTimes
from xla_cost.program import FORMATS, Matmul, Op

#: Formats a matrix unit without the wanted one computes in, nearest first: operands are
#: widened on the way in, which is what compilers emit.
WIDER: Mapping[str, tuple[str, ...]] = {
    "fp4": ("fp8", "int8", "bf16", "fp16"),
    "int4": ("int8", "fp8", "bf16", "fp16"),
    "fp8": ("int8", "bf16", "fp16"),
    "int8": ("fp8", "bf16", "fp16"),
    "fp16": ("bf16", "tf32", "fp32"),
    "bf16": ("fp16", "tf32", "fp32"),
    "tf32": ("fp32", "bf16"),
    "fp32": ("tf32", "bf16"),
    "fp64": ("fp32", "tf32", "bf16"),
}

#: XLA runs an fp32 (or fp64) product on a bf16 unit as this many passes (jax precision docs).
_PASSES_ON_BF16 = {"tf32": 3, "fp32": 6, "fp64": 6}
#: Attention with at most this many query rows per head group runs as split-KV decode: a
#: group of query heads sharing one key head has at most 16 members in published models.
DECODE_QUERIES = 16
_ATTENTION = ("flash_attention", "mla_decode")


class ComputeMachine(Protocol):
    """What this package needs of a machine."""

    @property
    def peak_flops(self) -> Mapping[str, float]:
        """Dense FLOP/s by number format."""
        ...

    @property
    def memory_bytes_per_s(self) -> float:
        """Device memory bandwidth."""
        ...

    @property
    def kernel_times(self) -> KernelTimes:
        """Fitted efficiencies."""
        ...


def peak_flops(machine: ComputeMachine, number_format: str) -> float:
    """FLOP/s at which `machine` multiplies `number_format`.

    A format it has no unit for runs in the next wider one, several passes where that one is
    narrower in mantissa. Raises XlaCostError for a format no unit can compute.
    """
    for name in (number_format, *WIDER.get(number_format, ())):
        rate = machine.peak_flops.get(name, 0.0)
        if rate > 0.0:
            passes = _PASSES_ON_BF16.get(number_format, 1) if name == "bf16" else 1
            return rate / passes
    raise XlaCostError(
        f"machine: no peak for format {number_format!r}; expected one of {FORMATS} with a rate"
    )


def matmul_s(
    machine: ComputeMachine, matmul: Matmul, bytes_read: float, bytes_written: float
) -> float:
    """Seconds of one GEMM launch, dense or grouped, that moves these bytes."""
    return _gemm_s(machine, (matmul,), bytes_read + bytes_written, 1.0)


def kernel_s(machine: ComputeMachine, op: Op) -> float:
    """Seconds of one kernel region: its matmuls times `op.work`, its border bytes, one launch.

    Element-wise work inside (softmax, activation) hides under the matmuls, or is what the
    fitted efficiency of the kind was measured with.
    """
    total_bytes = op.bytes_read + op.bytes_written
    if not op.matmuls:
        return _stream_s(machine, _stream_fit(machine, op.region), total_bytes)
    if op.region in _ATTENTION:
        return _attention_s(machine, op, total_bytes)
    return _gemm_s(machine, op.matmuls, total_bytes, op.work, op.region)


def memory_s(machine: ComputeMachine, total_bytes: float) -> float:
    """Seconds of one kernel that only streams `total_bytes` (read plus written)."""
    return _stream_s(machine, machine.kernel_times.memory, total_bytes)


def launch_s(machine: ComputeMachine) -> float:
    """Seconds that launching one kernel takes when it does next to nothing."""
    return machine.kernel_times.launch_us * 1e-6


def _gemm_s(
    machine: ComputeMachine,
    matmuls: Iterable[Matmul],
    total_bytes: float,
    work: float,
    region: str = "",
) -> float:
    compute_s = 0.0
    fits: list[GemmFit] = []
    for matmul in matmuls:
        if not matmul.flops:
            continue
        grouped = matmul.grouped or region == "grouped_gemm"
        times = machine.kernel_times
        fit = times.grouped_fit(matmul.format) if grouped else times.gemm_fit(matmul.format)
        rate = peak_flops(machine, matmul.format)
        one = gemm_compute_s(fit, matmul.batch, matmul.m, matmul.n, matmul.k, rate)
        compute_s += work * float(one)
        fits.append(fit)
    if not fits:
        return memory_s(machine, total_bytes)
    return float(kernel_total_s(fits[0], compute_s, total_bytes, machine.memory_bytes_per_s))


def _attention_s(machine: ComputeMachine, op: Op, total_bytes: float) -> float:
    scores = op.matmuls[0]
    times = machine.kernel_times
    fit = _attention_fit(times, op.region, op.matmuls)
    rows, keys, depth = max(scores.batch * scores.m, 1), max(scores.n, 1), max(scores.k, 1)
    compute_s = sum(
        float(
            attention_compute_s(
                fit, rows, keys, depth, op.work * matmul.flops, peak_flops(machine, matmul.format)
            )
        )
        for matmul in op.matmuls
    )
    return float(kernel_total_s(fit, compute_s, total_bytes, machine.memory_bytes_per_s))


def _attention_fit(times: KernelTimes, region: str, matmuls: tuple[Matmul, ...]) -> AttentionFit:
    scores = matmuls[0]
    if region == "mla_decode":
        return times.mla_decode_fit(scores.format)
    if scores.m <= DECODE_QUERIES < scores.n:
        return times.decode_fit(scores.format)
    if len(matmuls) > 1 and scores.k != matmuls[1].n:
        return times.mla_prefill_fit(scores.format)
    return times.attention_fit(scores.format)


def _stream_fit(machine: ComputeMachine, region: str) -> MemoryFit:
    times = machine.kernel_times
    special = {"quantize": times.quantize, "router": times.router}.get(region)
    return special or times.memory


def _stream_s(machine: ComputeMachine, fit: MemoryFit, total_bytes: float) -> float:
    return float(stream_s(fit, total_bytes, machine.memory_bytes_per_s))
