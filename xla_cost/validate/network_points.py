"""Collectives: NCCL in a node and over racks, DeepEP, NVLink all-to-all kernels.

Figures are embedded with their sources. The NCCL and NVLink rows stand in tables that
`xla-cost calibrate` reads, and are reserved there: no fit has seen them.
"""

from __future__ import annotations

from dataclasses import replace

from xla_cost.groups import DeviceGroups
from xla_cost.machine import Machine, load, scaled
from xla_cost.network import (
    CALIBRATED,
    POLICIES,
    NetworkPolicy,
    collective_time,
    distinct_places,
)
from xla_cost.program import Collective, CollectiveKind
from xla_cost.validate.points import Point

MIB, GIB = 2**20, 2**30

_COREWEAVE = "CoreWeave nccl-tests README: GB200, fp32 all-reduce, NCCL 2.26.2"
#: devices -> {GiB: busbw GB/s}
_RACKS = {
    72: {0.5: 586, 4: 839, 8: 835},
    144: {0.5: 494, 4: 743, 8: 793},
    1440: {0.5: 151, 4: 346, 8: 381},
}
_PARTITIONS = "NVIDIA/nccl issue 1801: GB200, three NVLink partitions, 2.27.3, its default (ring)"
#: GPUs of one of three partitions -> busbw GB/s at 16 GiB
_PARTITION_GBPS = {4: 196.7, 8: 393.7}
#: these are measurements of NCCL, so no framework's kernel may stand in for it
NCCL = POLICIES["nccl"]

_NCCL = "aiconfigurator-core 0.12.0 comm/nccl/2.29.2, half precision; rows reserved from the fit"
_SIZES = (1, 16, 64, 512)
_RINGS = (
    "the six sizes of the source lie on 4.6 ms + size at 429 GB/s of bus bandwidth, what 9 rings "
    "of 48 GB/s (a speed that NCCL's search tries) would move; 15 fit the links, and how many it "
    "found is in no public log"
)
_RACK_CAUSES: dict[tuple[int, float], str] = {(1440, 4): _RINGS, (1440, 8): _RINGS}
_PROTOCOLS = (
    "one smooth form stands for NCCL's protocols and for its reduction in the switch, which on "
    "eight B200 begins between 64 MiB (422 GB/s) and 128 MiB (591 GB/s)"
)
_VERSIONS = (
    "the fit takes the fastest version at each size: 51 us in NCCL 2.27.5, where 2.29.2 takes 104"
)
_NODE_CAUSES: dict[tuple[str, CollectiveKind, int], str] = {
    ("b200", "all-reduce", 64): _PROTOCOLS,
    ("gb300", "all-reduce", 16): _PROTOCOLS,
    ("b200", "all-gather", 16): _VERSIONS,
}
#: (machine, devices, kind) -> busbw GB/s at 1, 16, 64, 512 MiB, then the floor in us
_NODE: dict[tuple[str, int, CollectiveKind], tuple[float, ...]] = {
    ("h100", 8, "all-reduce"): (72, 241, 362, 445, 15.6),
    ("h100", 8, "all-gather"): (54, 213, 282, 335, 10.1),
    ("h100", 8, "all-to-all"): (59, 194, 265, 315, 7.4),
    ("b200", 8, "all-reduce"): (61, 296, 422, 704, 25.1),
    ("b200", 8, "all-gather"): (49, 141, 427, 617, 16.1),
    ("b200", 8, "all-to-all"): (49, 293, 423, 563, 10.6),
    ("gb300", 4, "all-reduce"): (82, 257, 561, 635, 15.3),
    ("gb300", 4, "all-gather"): (54, 217, 475, 572, 11.6),
    ("gb300", 4, "all-to-all"): (45, 275, 416, 512, 10.4),
}

_DEEPEP = "DeepEP V1 README: H800, 4096 tokens, hidden 7168, top-8, fp8 dispatch, bf16 combine"
#: devices -> (dispatch, combine) GB/s, NVLink inside one node, RDMA beyond
_DEEPEP_GBPS = {8: (153, 158), 32: (58, 57)}  # EP16 set the scale-out efficiency

_NVLINK = (
    "aiconfigurator-core 0.12.0 comm/trtllm one-sided kernels on GB200 NVL72, 8192 tokens per "
    "GPU, hidden 7168, top-8; rows reserved from the fit"
)
#: devices -> (nvfp4 dispatch, bf16 combine) ms
_NVLINK_MS = {8: (0.367, 1.267), 16: (0.399, 1.362), 32: (0.424, 1.418)}
HIDDEN, TOP_K = 7168, 8


def network_points() -> list[Point]:
    """All comparisons that need only the network model."""
    return [*_rack_points(), *_node_points(), *_deepep_points(), *_nvlink_points()]


def seconds(
    machine: Machine, kind: CollectiveKind, devices: int, vector_bytes: float,
    policy: NetworkPolicy = CALIBRATED, role: str = "",
) -> float:  # fmt: skip
    """Of one collective over devices 0 to `devices` - 1, with the message as NCCL counts it."""
    share = devices if kind == "all-gather" else 1
    payload = int(vector_bytes) // share
    collective = Collective(
        kind, DeviceGroups.everyone(devices), payload, int(vector_bytes), "bf16"
    )
    return collective_time(collective, machine, policy, role=role).seconds


def bus_gbps(kind: CollectiveKind, devices: int, vector_bytes: float, time_s: float) -> float:
    """NCCL's bus bandwidth: what a ring would put on each link, GB/s."""
    twice = 2.0 if kind == "all-reduce" else 1.0
    return twice * (devices - 1) / devices * vector_bytes / time_s / 1e9


def _rack_points() -> list[Point]:
    machine = load("gb200")
    points = []
    for devices, row in _RACKS.items():
        for gib, measured in row.items():
            time_s = seconds(machine, "all-reduce", devices, gib * GIB, NCCL)
            predicted = bus_gbps("all-reduce", devices, gib * GIB, time_s)
            points.append(
                Point("multi-rack all-reduce", f"{devices} GPUs, {gib:g} GiB", machine.name,
                      "busbw GB/s", measured, predicted, _COREWEAVE,
                      _RACK_CAUSES.get((devices, gib), ""))
            )  # fmt: skip
    for size, partition_gbps in _PARTITION_GBPS.items():
        time_s = seconds(scaled(machine, pod=size), "all-reduce", 3 * size, 16 * GIB, NCCL)
        predicted = bus_gbps("all-reduce", 3 * size, 16 * GIB, time_s)
        points.append(
            Point("multi-rack all-reduce", f"3 partitions of {size} GPUs, 16 GiB", machine.name,
                  "busbw GB/s", partition_gbps, predicted, _PARTITIONS)
        )  # fmt: skip
    return points


def _node_points() -> list[Point]:
    points = []
    for (name, devices, kind), row in _NODE.items():
        machine = load(name)
        for mib, measured in zip(_SIZES, row, strict=False):
            time_s = seconds(machine, kind, devices, mib * MIB, NCCL)
            predicted = bus_gbps(kind, devices, mib * MIB, time_s)
            group = "nccl above 16 MiB" if mib > 16 else "nccl to 16 MiB"
            cause = _NODE_CAUSES.get((name, kind, mib), "")
            points.append(
                Point(group, f"{kind}, {devices} GPUs, {mib} MiB", name, "busbw GB/s", measured,
                      predicted, _NCCL, cause)
            )  # fmt: skip
        floor_us = seconds(machine, kind, devices, 1024, NCCL) * 1e6
        points.append(
            Point("nccl floor", f"{kind}, {devices} GPUs, 1 KiB", name, "us", row[-1], floor_us,
                  _NCCL)
        )  # fmt: skip
    return points


def _deepep_points() -> list[Point]:
    """DeepEP counts received bytes, copies for the own rank (node) included."""
    machine, tokens = load("h800"), 4096
    policy = replace(CALIBRATED, name="deepep", dedup="device", top_k=TOP_K, max_pods=4)
    points = []
    for devices, row in _DEEPEP_GBPS.items():
        places = devices if devices <= 8 else devices // 8
        for role, measured, width in zip(
            ("dispatch", "combine"), row, (1.0 + 4.0 / 128.0, 2.0), strict=True
        ):
            row_bytes = tokens * HIDDEN * width
            copies = distinct_places(TOP_K, places)
            time_s = seconds(machine, "all-to-all", devices, row_bytes * TOP_K, policy, role)
            predicted = row_bytes * copies / time_s / 1e9
            points.append(
                Point("deepep", f"{role}, EP{devices}", machine.name, "GB/s", measured, predicted,
                      _DEEPEP)
            )  # fmt: skip
    return points


def _nvlink_points() -> list[Point]:
    """The benchmark balances: a token's eight copies go to eight devices, none saved."""
    machine, tokens = load("gb200"), 8192
    points = []
    for devices, row in _NVLINK_MS.items():
        for role, measured, width in zip(("dispatch", "combine"), row, (0.5625, 2.0), strict=True):
            vector = tokens * TOP_K * HIDDEN * width
            time_s = seconds(machine, "all-to-all", devices, vector, role=role)
            points.append(
                Point("nvlink all-to-all", f"{role}, EP{devices}", machine.name, "ms", measured,
                      time_s * 1e3, _NVLINK)
            )  # fmt: skip
    return points
