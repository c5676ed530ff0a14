"""What the table of a machine says, as frozen values in SI units."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from xla_cost.errors import XlaCostError
from xla_cost.kernel_time.efficiency import FitRecord
from xla_cost.kernel_time.table import KernelTimes

ALGORITHMS = ("ring", "direct", "recursive doubling", "tree", "one-shot", "in-network")
#: `switch`: any device of a unit reaches any other in one hop. `rail`: one switch plane per
#: local index, so devices of different index forward inside their pod first. `torus` and
#: `hyperx`: `dims` of rings, or of crossbars.
Topology = Literal["switch", "rail", "torus", "hyperx"]
TOPOLOGIES: tuple[Topology, ...] = ("switch", "rail", "torus", "hyperx")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a machine file as written there: friendly unit, source and doubt."""

    key: str  # "tiers[0].latency_us"
    value: Any
    source: str
    doubt: str = "none"
    file: str = ""


@dataclass(frozen=True, slots=True)
class CollectiveFit:
    """Measured behaviour of one collective kind on one tier.

    A message of M bytes (as NCCL counts it: the whole vector) that the direct algorithm moves
    over the busiest links in t takes `floor_s + hops + t (1 + (half_bytes / M)^ramp) /
    efficiency`: half of the efficiency at M = half_bytes. `devices` is the size of the groups it
    was measured on, 0 where it holds for any.
    """

    kind: str
    floor_s: float
    efficiency: float
    half_bytes: float
    ramp: float = 1.0
    devices: int = 0
    record: FitRecord = field(default_factory=FitRecord)
    inherited_from: str = ""


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of the network. Bandwidth is per device and direction.

    `size` counts the devices of one unit (pod, cluster). On a torus or HyperX the bandwidth is
    the sum over all ports of a device, shared evenly by its axes.
    """

    name: str
    size: int
    topology: Topology
    bandwidth_bytes_per_s: float
    latency_s: float
    energy_j_per_byte: float
    efficiency: float = 1.0
    dims: tuple[int, ...] = ()
    wrap: tuple[bool, ...] = ()  # torus: per axis, whether an axis of full length closes to a ring
    wrap_multiple: int = 0  # torus: shorter axes of a multiple of this close too; 0: none
    reconfiguration_s: float = 0.0  # circuit-switched fabrics: setting the circuits once
    circuit_ports: int = 0  # circuits a device holds at once; 0: packets, or no limit
    algorithms: tuple[str, ...] = ()  # collective algorithms allowed; empty: all that exist
    in_network_reduction: bool = False
    #: traffic of this tier also uses the links of the tier inside it (two-level pods)
    through_inner: bool = False
    collectives: tuple[CollectiveFit, ...] = ()
    efficiency_given: bool = True  # False: nobody said, so all of the bandwidth is taken

    def fit(self, kind: str) -> CollectiveFit | None:
        """The fit of a collective kind, or None where nothing was measured."""
        return next((fit for fit in self.collectives if fit.kind == kind), None)


@dataclass(frozen=True, eq=False)
class Machine:
    """Devices of one kind and the tiers, innermost first, that connect them.

    Equality and hash follow `content_hash`, which covers every number but no source text.
    """

    name: str
    title: str
    peak_flops: Mapping[str, float]  # dense FLOP/s by number format
    memory_capacity_bytes: float
    memory_bytes_per_s: float
    tiers: tuple[Tier, ...]
    static_w: float
    max_w: float
    flop_j: Mapping[str, float] = field(default_factory=dict)  # stated joule per FLOP, by format
    kernel_times: KernelTimes = field(default_factory=KernelTimes)
    efficiency: Mapping[str, Any] = field(default_factory=dict)  # the raw [efficiency] table
    speculative: bool = False
    extends: str = ""
    inherits_efficiency_from: str = ""
    marks: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of everything that can change a result."""
        tiers = [[repr(getattr(tier, key)) for key in Tier.__slots__] for tier in self.tiers]
        content = [
            self.name, sorted(self.peak_flops.items()), self.memory_capacity_bytes,
            self.memory_bytes_per_s, tiers, self.static_w, self.max_w,
            sorted(self.flop_j.items()), self.efficiency, self.marks,
        ]  # fmt: skip
        text = json.dumps(content, sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    @cached_property
    def tier_sizes(self) -> tuple[int, ...]:
        """Devices per unit of each tier, innermost first."""
        return tuple(tier.size for tier in self.tiers)

    @property
    def assumed_rates(self) -> tuple[str, ...]:
        """A sentence for every tier of which no file says what share of its rate is reached."""
        return tuple(
            f"tier {tier.name}: no efficiency given, priced at its full rate"
            for tier in self.tiers
            if not tier.efficiency_given
        )

    @property
    def scale_up(self) -> Tier:
        """The innermost tier."""
        return self.tiers[0]

    def tier(self, name: str) -> Tier:
        """The tier of that name. Raises XlaCostError for an unknown one."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        known = ", ".join(tier.name for tier in self.tiers)
        raise XlaCostError(f"machine {self.name}: tier {name!r} is unknown; expected {known}")

    def compute_j_per_flop(self, number_format: str) -> float:
        """Joule per FLOP: the stated one, else (max_w - static_w) / peak of the format.

        The second is an upper bound: it charges all dynamic power at full speed to the matrix
        unit. 0 for a format that has no rate here.
        """
        if number_format in self.flop_j:
            return self.flop_j[number_format]
        peak = self.peak_flops.get(number_format, 0.0)
        return (self.max_w - self.static_w) / peak if peak else 0.0

    def figure(self, key: str) -> Figure | None:
        """The figure written under `key` (`tiers[0].latency_us`), with its source."""
        return next((figure for figure in self.figures if figure.key == key), None)

    def describe(self) -> dict[str, Any]:
        """The machine JSON-ready, SI units, every figure with source and doubt."""
        return {
            "name": self.name,
            "title": self.title,
            "content_hash": self.content_hash,
            "extends": self.extends,
            "speculative": self.speculative,
            "inherits_efficiency_from": self.inherits_efficiency_from,
            "marks": list(self.marks),
            "peak_flops": dict(self.peak_flops),
            "memory_capacity_bytes": self.memory_capacity_bytes,
            "memory_bytes_per_s": self.memory_bytes_per_s,
            "static_w": self.static_w,
            "max_w": self.max_w,
            "tiers": [_tier_dict(tier) for tier in self.tiers],
            "efficiency": dict(self.efficiency),
            "figures": [
                {"key": f.key, "value": f.value, "source": f.source, "doubt": f.doubt,
                 "file": f.file}
                for f in self.figures
            ],
        }  # fmt: skip


def _tier_dict(tier: Tier) -> dict[str, Any]:
    values = {key: getattr(tier, key) for key in Tier.__slots__ if key != "collectives"}
    fits = [asdict(fit) for fit in tier.collectives]
    return {**values, "dims": list(tier.dims), "wrap": list(tier.wrap), "collectives": fits}
