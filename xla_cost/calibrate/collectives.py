"""Collectives inside the scale-up tier: floor, efficiency and half size of each kind.

The form is the network model's own: `hops + floor + load (1 + (half / M)^ramp) / (B efficiency)`
with the load of the direct algorithm, so a fit means the same here and in `xla_cost.network`.
All-reduce has three: the fastest kernel of any library, NCCL alone, and NCCL's reduction in the
switch, which prices groups larger than any that was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from xla_cost.calibrate.fitting import Parameter, errors, rounding, solve
from xla_cost.calibrate.package import Tables
from xla_cost.calibrate.package import tables as tables_of
from xla_cost.calibrate.rows import LARGE_BYTES, SMALL_WEIGHT, Flags, Floats, floats, is_held_out
from xla_cost.kernel_time.efficiency import FitRecord
from xla_cost.network import distinct_places

_NCCL = {
    "all-reduce": "all_reduce",
    "all-reduce-nccl": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "alltoall",
}
#: devices of one node in the DeepEP tables
_NODE = {"h100": 8, "h200": 8, "b200": 8, "b300": 8, "gb200": 4, "gb300": 4}
#: Machines whose scale-up links and switches are another's that NVLink kernels were measured on:
#: 18 NVLink 5 links per GPU, 72 GPUs in one domain (NVIDIA data sheets of GB200 and GB300 NVL72)
_SAME_FABRIC = {"gb300": "gb200"}
#: NCCL rows that the validation quotes: (group size, MiB), half precision
QUOTED_MIB = (1, 16, 64, 512)
QUOTED_GROUP = {"h100": 8, "b200": 8, "gb300": 4}
#: the board of eight with the same GPU, links and switches, where NCCL was run on four only
_BOARD = {"gb200": "b200", "gb300": "b300"}
#: NCCL's own constant for NVLink SHARP, `hwLat` in src/graph/tuning.cc of NCCL 2.26.2; one size
#: of group cannot tell it from the part of the time that grows with the group
_SWITCH_FLOOR_US = 25.0
#: smaller all-reduces take other protocols
_SWITCH_ABOVE_BYTES = 16 * 2.0**20
#: tokens per GPU of the NVLink all-to-all rows that the validation quotes
QUOTED_TOKENS = 8192

PARAMETERS: Mapping[str, Parameter] = {
    "floor_us": Parameter(10.0, 0.0, 200.0),
    "efficiency": Parameter(0.7, 0.02, 1.0),
    "half_MB": Parameter(2.0, 0.0, 512.0),
    "ramp": Parameter(0.7, 0.2, 1.0),
}


@dataclass(frozen=True)
class Traffic:
    """Measured collectives of one kind: what they load the busiest links with.

    `vector_bytes` is the message as NCCL counts it, `load_bytes` what the direct algorithm
    puts on one device's links, `hops` the latencies it pays, `devices` the size of the groups
    where that matters. `fixed` are parameters that are not fitted.
    """

    kind: str
    seconds: Floats
    vector_bytes: Floats
    load_bytes: Floats
    hops: float
    keys: tuple[str, ...]
    reserved: Flags
    source: str
    devices: int = 0
    fixed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TierFit:
    """What goes into `[tiers.collectives.KIND]`, with its record."""

    kind: str
    floor_us: float
    efficiency: float
    half_MB: float  # noqa: N815 - the key of the machine file
    ramp: float
    record: FitRecord
    devices: int = 0


def collective_traffic(measured: Tables, machine: str) -> list[Traffic]:
    """Every kind this machine has measurements of inside one node or rack."""
    found = [_nccl(measured, machine, kind) for kind in _NCCL]
    found.append(_in_switch(tables_of(_BOARD[machine]) if machine in _BOARD else measured))
    found += [_moe_kernel(measured, machine, role) for role in ("dispatch", "combine")]
    return [traffic for traffic in found if len(traffic.seconds)]


def predict(fit: Any, traffic: Traffic, bytes_per_s: float, hop_s: float) -> Floats:
    """Seconds that a fit gives each row."""
    ramp = 1.0 + (fit.half_MB * 1e6 / traffic.vector_bytes) ** fit.ramp
    moving = traffic.load_bytes * ramp / (bytes_per_s * fit.efficiency)
    return np.asarray(traffic.hops * hop_s + fit.floor_us * 1e-6 + moving)


def fit_traffic(traffic: Traffic, bytes_per_s: float, hop_s: float, version: str) -> TierFit:
    """Fit the rows not held out; the record gives the error on the others."""
    held_out = traffic.reserved | is_held_out(traffic.keys)
    large = traffic.vector_bytes >= LARGE_BYTES
    weight = np.where(large, 1.0, SMALL_WEIGHT)[~held_out]

    free = {name: one for name, one in PARAMETERS.items() if name not in traffic.fixed}

    def tier_fit(values: list[float]) -> TierFit:
        numbers = {**traffic.fixed, **dict(zip(free, values, strict=True))}
        return TierFit(traffic.kind, record=FitRecord(), devices=traffic.devices, **numbers)

    def make(vector: Any) -> TierFit:
        return tier_fit([rounding(float(value)) for value in vector])

    def residual(vector: Any) -> Floats:
        trial = tier_fit(list(map(float, vector)))
        ratio = predict(trial, traffic, bytes_per_s, hop_s) / traffic.seconds
        return np.asarray(np.log(ratio[~held_out]) * weight)

    fit = make(solve(residual, free))
    predicted = predict(fit, traffic, bytes_per_s, hop_s)
    median, p90 = errors(traffic.seconds[held_out & large], predicted[held_out & large])
    median_all, p90_all = errors(traffic.seconds[held_out], predicted[held_out])
    record = FitRecord(
        source=f"{version}: {traffic.source}",
        rows=int((~held_out).sum()),
        held_out_rows=int(held_out.sum()),
        median_error=median,
        p90_error=p90,
        median_error_all=median_all,
        p90_error_all=p90_all,
    )
    return replace(fit, record=record)


def _nccl(tables: Tables, machine: str, kind: str) -> Traffic:
    """NCCL; for `all-reduce` also the frameworks' own kernels, the fastest at each size.

    The largest group that NCCL was measured on: a whole node. Smaller groups are slower per
    byte (a device's own chunk is copied too), which the one efficiency of a tier cannot say.
    """
    import pandas

    frame = _nccl_rows(tables, _NCCL[kind])
    largest = frame.num_gpus.max()
    if kind == "all-reduce":
        own = ["allreduce_dtype", "num_gpus", "message_size", "latency"]
        custom = tables.read("comm/*/*/custom_allreduce_perf.parquet", own)
        custom = custom[custom.allreduce_dtype.isin(["bfloat16", "half"])]
        custom = custom.assign(vector=custom.message_size * 2)
        frame = pandas.concat([frame, custom[["num_gpus", "vector", "latency", "table"]]])
    frame = frame[frame.num_gpus == largest]
    source = ", ".join(sorted(set(frame.table)))
    frame = frame.groupby(["num_gpus", "vector"], as_index=False).latency.min()
    members, vector = floats(frame.num_gpus), floats(frame.vector)
    reduces = _NCCL[kind] == "all_reduce"
    twice = 2.0 if reduces else 1.0
    quoted = np.isin(vector, [mib * 2.0**20 for mib in QUOTED_MIB])
    return Traffic(
        kind=kind,
        seconds=floats(frame.latency) * 1e-3,
        vector_bytes=vector,
        load_bytes=twice * vector * (members - 1.0) / members,
        hops=twice,
        keys=tuple(f"{kind}:{int(n)},{int(v)}" for n, v in zip(members, vector, strict=True)),
        reserved=np.asarray(quoted & (members == QUOTED_GROUP.get(machine, 0))),
        source=source,
        devices=int(largest) if reduces and len(frame) else 0,
    )


def _nccl_rows(tables: Tables, operation: str) -> Any:
    """Group size, vector bytes, milliseconds and table of every NCCL row of one operation."""
    columns = ["op_name", "nccl_dtype", "num_gpus", "message_size", "latency"]
    frame = tables.read("comm/nccl/*/nccl_perf.parquet", columns)
    frame = frame[frame.op_name == operation]
    frame = frame.assign(vector=frame.message_size * frame.nccl_dtype.map({"half": 2, "int8": 1}))
    return frame[["num_gpus", "vector", "latency", "table"]]


def _in_switch(tables: Tables) -> Traffic:
    """NCCL's all-reduce on a board of eight where it reduces in the switch: above 16 MiB.

    Each device puts (1 + 1/n) V on its links, and a fixed amount of work per piece of its share
    V/n makes the ramp 1. The fit prices larger groups only, so no row quoted is reserved.
    """
    frame = _nccl_rows(tables, "all_reduce")
    frame = frame[(frame.num_gpus == 8) & (frame.vector > _SWITCH_ABOVE_BYTES)]
    board = f"8 GPUs of {tables.folder.name}, "
    source = board + ", ".join(sorted(set(frame.table)))
    frame = frame.groupby("vector", as_index=False).latency.min()
    vector = floats(frame.vector)
    return Traffic(
        kind="all-reduce-in-switch",
        seconds=floats(frame.latency) * 1e-3,
        vector_bytes=vector / 8.0,
        load_bytes=vector * (1.0 + 1.0 / 8.0),
        hops=2.0,
        keys=tuple(f"all-reduce-in-switch:8,{int(v)}" for v in vector),
        reserved=np.zeros(len(vector), dtype=bool),
        source=source,
        devices=8,
        fixed={"floor_us": _SWITCH_FLOOR_US, "ramp": 1.0},
    )


def _moe_kernel(tables: Tables, machine: str, role: str) -> Traffic:
    """Dispatch or combine kernels of expert parallelism, the fastest for each shape.

    One-sided NVLink kernels where they were measured, on this machine or on one with the same
    fabric: no deployment on a rack runs DeepEP's normal kernels, which between the four GPUs of a
    GB300 node reach a fifth of the links' rate. DeepEP elsewhere.

    A token goes once to each distinct device that holds one of its experts: `topk` of them
    where the benchmark balances, `n (1 - (1 - 1/n)^topk)` expected where it draws at random.
    """
    by = ["members", "num_tokens", "hidden_size", "topk"]
    frame = _one_sided(tables, role)
    if not len(frame) and machine in _SAME_FABRIC:
        machine = _SAME_FABRIC[machine]
        frame = _one_sided(tables_of(machine), role)
        frame = frame.assign(table=f"{machine}/" + frame.table)
    if not len(frame):
        frame = _deepep(tables, machine, role)
    source = ", ".join(sorted(set(frame.table)))
    frame = frame.groupby([*by, "copies", "width"], as_index=False).latency.min()
    members, tokens, hidden, topk = (floats(frame[name]) for name in by)
    width, copies = floats(frame.width), floats(frame.copies)
    vector = tokens * topk * hidden * width
    rows = zip(members, tokens, hidden, topk, strict=True)
    return Traffic(
        kind=role,
        seconds=floats(frame.latency) * 1e-3,
        vector_bytes=vector,
        load_bytes=tokens * hidden * width * copies * (members - 1.0) / members,
        hops=1.0,
        keys=tuple(f"{role}:" + ",".join(str(int(value)) for value in row) for row in rows),
        reserved=np.asarray((tokens == QUOTED_TOKENS) & (machine == "gb200")),
        source=source,
    )


def _one_sided(tables: Tables, role: str) -> Any:
    """TensorRT-LLM one-sided NVLink kernels: fp4 dispatch, bf16 combine; balanced routing."""
    columns = ["op_name", "kernel_source", "moe_dtype", "num_tokens", "hidden_size", "topk",
               "moe_ep_size", "latency"]  # fmt: skip
    frame = tables.read("comm/trtllm/*/trtllm_alltoall_perf.parquet", columns)
    frame = frame[frame.kernel_source == "NVLinkOneSided"]
    frame = frame[(frame.op_name == f"alltoall_{role}") & (frame.moe_ep_size >= frame.topk)]
    width = 0.5625 if role == "dispatch" else 2.0  # nvfp4 with its scales
    return frame.assign(
        members=frame.moe_ep_size, copies=frame.topk, width=width, table=frame.table + " one-sided"
    )


def _deepep(tables: Tables, machine: str, role: str) -> Any:
    """DeepEP normal kernels inside one node: fp8 dispatch, bf16 combine; random routing."""
    columns = ["node_num", "num_token", "num_topk", "hidden_size", f"{role}_transmit_us"]
    frame = tables.read("comm/sglang/*/wideep_deepep_normal_perf.parquet", columns)
    frame = frame[frame.node_num == 1]
    members = _NODE.get(machine, 8)
    copies = [distinct_places(int(k), members) for k in frame.num_topk]
    width = 1.0 + 4.0 / 128.0 if role == "dispatch" else 2.0  # fp8 with a scale per 128
    return frame.assign(
        members=members, num_tokens=frame.num_token, topk=frame.num_topk, copies=copies,
        width=width, latency=frame[f"{role}_transmit_us"] * 1e-3, table=frame.table + " DeepEP",
    )  # fmt: skip
