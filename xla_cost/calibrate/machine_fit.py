"""All fits of one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from xla_cost.calibrate.collectives import TierFit, collective_traffic, fit_traffic
from xla_cost.calibrate.fitting import fit_rows
from xla_cost.calibrate.kernel_rows import kernel_rows
from xla_cost.calibrate.package import PACKAGE, tables
from xla_cost.kernel_time import peak_flops
from xla_cost.kernel_time.efficiency import FitRecord
from xla_cost.machine import Machine


@dataclass(frozen=True)
class Calibration:
    """What was fitted for one machine.

    `kernels` maps (kind, format) to a fit; the format of a stream is "". `collectives` belong
    to the innermost tier.
    """

    machine: str
    source: str
    kernels: dict[tuple[str, str], Any]
    collectives: tuple[TierFit, ...]

    def records(self) -> Iterator[tuple[str, str, FitRecord]]:
        """Kind, format and record of every fit."""
        for (kind, number_format), fit in self.kernels.items():
            yield kind, number_format, fit.record
        for one in self.collectives:
            yield one.kind, "", one.record

    def describe(self) -> dict[str, Any]:
        """JSON-ready: every fit with its numbers and errors."""
        kernels = [
            {"kind": kind, "format": number_format, **_flat(fit)}
            for (kind, number_format), fit in self.kernels.items()
        ]
        collectives = [_flat(fit) for fit in self.collectives]
        return {"machine": self.machine, "source": self.source, "kernels": kernels,
                "collectives": collectives}  # fmt: skip


def calibrate(machine: Machine, report: Callable[[str], None] = lambda text: None) -> Calibration:
    """Fit everything that was measured on `machine`; `report` hears one line per fit.

    Deterministic: the same package and machine give the same numbers to the last digit
    written. Raises XlaCostError where nothing was measured or the extra is missing.
    """
    measured = tables(machine.name)
    source = f"{PACKAGE} {measured.version}"
    kernels: dict[tuple[str, str], Any] = {}
    for rows in kernel_rows(measured, machine.memory_bytes_per_s):
        rate = peak_flops(machine, rows.number_format) if rows.number_format else 1.0
        fit = fit_rows(rows, rate, machine.memory_bytes_per_s, source)
        kernels[rows.kind, rows.number_format] = fit
        report(_line(rows.kind, rows.number_format, fit.record))
    tier = machine.scale_up
    collectives = []
    for traffic in collective_traffic(measured, machine.name):
        one = fit_traffic(traffic, tier.bandwidth_bytes_per_s, tier.latency_s, source)
        collectives.append(one)
        report(_line(one.kind, "", one.record))
    return Calibration(machine.name, source, kernels, tuple(collectives))


def _line(kind: str, number_format: str, record: FitRecord) -> str:
    shown = "none held out" if record.median_error is None else f"{record.median_error:.1%}"
    return (
        f"{kind} {number_format}: {record.rows} rows fitted, {record.held_out_rows} held out, "
        f"median error {shown}"
    )


def _flat(fit: Any) -> dict[str, Any]:
    values = {name: getattr(fit, name) for name in fit.__slots__ if name != "record"}
    record = {name: getattr(fit.record, name) for name in FitRecord.__slots__}
    return {**values, **record}
