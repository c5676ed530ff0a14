"""What a sweep covers, read from a strict TOML file.

    name = "r1-devices"
    models = ["r1"]
    machines = ["b300", "b300-photonic"]
    devices = [16, 72, 288]
    workloads = [{ seq = 8192, batch = 2048 }, { seq = 131072, batch = 64 }]
    formats = ["fp4"]
    plans = ["study"]          # the search takes the best of these
    policies = ["study"]
    phase = "prefill"
    meshes = "search"          # or a list of shapes such as ["1x72x1"]

A key left out takes the default of `SweepSpec`. What an axis may hold is in `axes.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.sweep.axes import check_axes


@dataclass(frozen=True, slots=True)
class Point:
    """One row of the result: a workload on a machine, its mesh searched."""

    model: str
    phase: str
    seq: int
    batch: int
    format: str
    devices: int
    machine: str
    policy: str


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """The axes of a sweep. `meshes` is "search" or explicit shapes."""

    name: str
    models: tuple[str, ...]
    machines: tuple[str, ...]
    devices: tuple[int, ...]
    workloads: tuple[tuple[int, int], ...]  # (seq, batch)
    formats: tuple[str, ...] = ("fp4",)
    plans: tuple[str, ...] = ("study",)
    policies: tuple[str, ...] = ("study",)
    phase: str = "prefill"
    meshes: str | tuple[str, ...] = "search"

    def points(self) -> Iterator[Point]:
        """The cross product; machines and policies innermost, since they share lowerings."""
        for model in self.models:
            for seq, batch in self.workloads:
                for number_format in self.formats:
                    for devices in self.devices:
                        for machine in self.machines:
                            for policy in self.policies:
                                yield Point(
                                    model, self.phase, seq, batch, number_format,
                                    devices, machine, policy,
                                )  # fmt: skip

    def batches(self, point: Point) -> tuple[int, ...]:
        """The batches that are swept with all else as in `point`, ascending."""
        return tuple(sorted({batch for seq, batch in self.workloads if seq == point.seq}))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the same for equal specs; what a result folder is keyed by."""
        return asdict(self)


def read_spec(path: Path) -> SweepSpec:
    """The spec in a TOML file. Raises XlaCostError naming the key, value and expectation."""
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise XlaCostError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also what a number of 5000 digits raises
        raise XlaCostError(f"{path}: not a TOML file: {error}") from error
    return parse_spec(table, str(path))


def parse_spec(table: dict[str, Any], where: str) -> SweepSpec:
    """The spec in a parsed TOML table; `where` names it in errors."""
    known = {field.name: field for field in fields(SweepSpec)}
    for key in table:
        if key not in known:
            raise XlaCostError(f"{where}: unknown key {key!r}; expected one of {', '.join(known)}")
    for key, field in known.items():
        if field.default is MISSING and key not in table:
            raise XlaCostError(f"{where}: {key} is missing; expected {_EXPECTED[key]}")
    values: dict[str, Any] = {}
    for key, value in table.items():
        values[key] = _PARSERS[key](value, f"{where}: {key}", _EXPECTED[key])
    spec = SweepSpec(**values)
    check_axes(spec, where)
    return spec


_NAMES = "a non-empty list of names"
_EXPECTED = {
    "name": "a name",
    "models": _NAMES,
    "machines": _NAMES,
    "devices": "a non-empty list of integers of at least 1",
    "workloads": "a non-empty list of { seq = .., batch = .. } with integers of at least 1",
    "formats": _NAMES,
    "plans": _NAMES,
    "policies": _NAMES,
    "phase": "prefill or decode",
    "meshes": '"search" or a list of shapes such as "1x72x1"',
}


def _name(value: Any, where: str, expected: str) -> str:
    if not isinstance(value, str) or not value:
        raise XlaCostError(f"{where} = {value!r}; expected {expected}")
    return value


def _names(value: Any, where: str, expected: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise XlaCostError(f"{where} = {value!r}; expected {expected}")
    return tuple(_name(v, f"{where}[{i}]", "a name") for i, v in enumerate(value))


def _count(value: Any, where: str) -> int:
    if type(value) is not int or value < 1:
        raise XlaCostError(f"{where} = {value!r}; expected an integer of at least 1")
    return value


def _counts(value: Any, where: str, expected: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise XlaCostError(f"{where} = {value!r}; expected {expected}")
    return tuple(_count(v, f"{where}[{i}]") for i, v in enumerate(value))


def _workloads(value: Any, where: str, expected: str) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or not value:
        raise XlaCostError(f"{where} = {value!r}; expected {expected}")
    found = []
    for i, entry in enumerate(value):
        if not isinstance(entry, dict) or set(entry) != {"seq", "batch"}:
            raise XlaCostError(f"{where}[{i}] = {entry!r}; expected {{ seq = .., batch = .. }}")
        found.append(
            (
                _count(entry["seq"], f"{where}[{i}].seq"),
                _count(entry["batch"], f"{where}[{i}].batch"),
            )
        )
    return tuple(found)


def _phase(value: Any, where: str, expected: str) -> str:
    if value not in ("prefill", "decode"):
        raise XlaCostError(f"{where} = {value!r}; expected {expected}")
    return str(value)


def _meshes(value: Any, where: str, expected: str) -> str | tuple[str, ...]:
    if value == "search":
        return "search"
    return _names(value, where, expected)


_PARSERS: dict[str, Any] = {
    "name": _name,
    "models": _names,
    "machines": _names,
    "devices": _counts,
    "workloads": _workloads,
    "formats": _names,
    "plans": _names,
    "policies": _names,
    "phase": _phase,
    "meshes": _meshes,
}
