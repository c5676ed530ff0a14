"""The points of the reference study, and the choices it leaves open, as named data.

"Scaling Inference Prefill with High-Radix Photonic Interconnects" (Madhavan, Carson, Groves,
Graham; HotI 2026; arXiv 2609.01821). Its formulas are not public; what crosses a pod can be
read in two ways, and both are here by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xla_cost.errors import XlaCostError

#: sequences per run at each length: figure captions of the study (at 8K its slides say 1024)
BATCHES: Mapping[int, int] = {1024: 8192, 8192: 2048, 131072: 64, 1048576: 8}

PLATFORMS = ("b200", "b300", "rubin", "r4")
MODELS = ("mini", "r1", "next")
FORMATS = ("fp4", "fp8+fp4")


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """One column of the ratio table: a sequence length on a number of devices."""

    seq: int
    devices: int

    @property
    def batch(self) -> int:
        """Sequences, by length."""
        return BATCHES[self.seq]

    def __str__(self) -> str:
        return f"{seq_text(self.seq)}/{self.devices}"


COLUMNS = tuple(
    Column(seq, devices)
    for seq, counts in {
        1024: (16, 72),
        8192: (16, 72),
        131072: (16, 72, 288),
        1048576: (288, 576, 1152),
    }.items()
    for devices in counts
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One consistent way to read what the study did.

    `meshes` (x, y, z) by column; `plan` and `network` name a sharding plan and the rule for
    collectives that cross a pod (see `xla_cost.policy.NetworkRule`).
    """

    name: str
    description: str
    meshes: Mapping[Column, tuple[int, int, int]]
    plan: str
    network: str
    formats: str = ""  # changes to the format preset, see `xla_cost.models.get_formats`

    def mesh(self, column: Column) -> tuple[int, int, int]:
        """The mesh of `column`. Raises XlaCostError for a column this reading leaves open."""
        if column not in self.meshes:
            raise XlaCostError(f"reading {self.name}: has no mesh for {column}")
        return self.meshes[column]


_ONE_POD = {column: (1, column.devices, 1) for column in COLUMNS if column.devices <= 72}
_Y_SPANS_PODS = _ONE_POD | {
    Column(131072, 288): (2, 144, 1),
    Column(1048576, 288): (4, 72, 1),
    Column(1048576, 576): (4, 144, 1),
    Column(1048576, 1152): (4, 288, 1),
}
_Y_IN_POD = _ONE_POD | {
    Column(131072, 288): (4, 72, 1),
    Column(1048576, 288): (4, 72, 1),
    Column(1048576, 576): (8, 72, 1),
    Column(1048576, 1152): (16, 72, 1),
}

READINGS: Mapping[str, Reading] = {
    reading.name: reading
    for reading in (
        Reading(
            "reading-1",
            "y spans pods and carries the whole residual stream across them, unsharded; x shards "
            "the batch and moves nothing; whole heads on y, so some of 144 or 288 devices idle",
            _Y_SPANS_PODS,
            plan="study",
            network="study",
        ),
        Reading(
            "reading-1-fp8-scores",
            "reading 1 with queries, keys and probabilities read as fp8: 3 bytes of HBM traffic "
            "per score instead of 4 (the study's two 72-device points imply 3.4)",
            _Y_SPANS_PODS,
            plan="study",
            network="study",
            formats=":scores=fp8",
        ),
        Reading(
            "reading-1-balanced",
            "reading 1 with the queries split over the part of y that does not divide the heads: "
            "no device idles, and less is reduce-scattered",
            _Y_SPANS_PODS,
            plan="study-balanced",
            network="study",
        ),
        Reading(
            "reading-2",
            "y stays inside a pod; x splits the sequence, and the whole hidden state is gathered "
            "over it, across racks, at one byte per element, to make keys and values",
            _Y_IN_POD,
            plan="study-gathered",
            network="reading-2",
        ),
        Reading(
            "automatic",
            "the meshes of reading 2 with every collective left to XLA's partitioner, which "
            "gathers far more: it makes no all-to-all of dispatch and combine",
            _Y_IN_POD,
            plan="study-auto",
            network="study",
        ),
        Reading(
            "sharded-crossing",
            "the meshes of reading 1 with hierarchical collectives, which shard the payload "
            "inside the pod before it crosses",
            _Y_SPANS_PODS,
            plan="study",
            network="hierarchical",
        ),
        Reading(
            "y-in-pod",
            "y stays inside a pod and x shards batch and sequence: only latents cross",
            _Y_IN_POD,
            plan="study",
            network="hierarchical",
        ),
    )
}


def seq_text(seq: int) -> str:
    """`131072` as `128K`, `1048576` as `1M`."""
    if seq % 1048576 == 0:
        return f"{seq // 1048576}M"
    return f"{seq // 1024}K" if seq % 1024 == 0 else str(seq)
