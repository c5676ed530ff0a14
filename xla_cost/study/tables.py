"""The study's tables as CSV: ratios, components, chosen meshes, models, hardware, and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xla_cost.jsonio import replace_file
from xla_cost.machine import load
from xla_cost.models import get_config, get_plan
from xla_cost.study.curves import CurvePoint
from xla_cost.study.free import FreeCell
from xla_cost.study.known import deviation
from xla_cost.study.realism import Bar
from xla_cost.study.reproduce import Cell, Times
from xla_cost.study.sensitivity import Sample

Row = Mapping[str, Any]

#: Deviations up to this are not explained.
WITHIN = 0.1


def write_csv(rows: Iterable[Row], path: Path) -> Path:
    """Write rows with the union of their keys as columns, whole or not at all."""
    import csv
    import io

    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_file(path, text.getvalue().encode(), sync=False)
    return path


def ratio_rows(cells: Sequence[Cell]) -> list[Row]:
    """Tables IV to VI: ratio, the study's, the deviation and its cause, and the mesh."""
    return [
        {
            "model": cell.model,
            "format": cell.format,
            "machine": cell.machine,
            "seq": cell.column.seq,
            "devices": cell.column.devices,
            "batch": cell.column.batch,
            "reading": cell.reading,
            "mesh": "x".join(map(str, cell.mesh)),
            "plan": cell.plan,
            "ratio": cell.ratio,
            "study_low": cell.known[0] if cell.known else None,
            "study_high": cell.known[1] if cell.known else None,
            "deviation": cell.deviation,
            "ratio_with_study_compute": ratio_with_study_compute(cell),
            "cause": cause(cell),
            "refused": cell.refused,
            **_times("copper", cell.copper),
            **_times("photonic", cell.photonic),
        }
        for cell in cells
    ]


def component_rows(cells: Sequence[Cell]) -> list[Row]:
    """Compute and communication beside the study's, where it gives them."""
    rows: list[Row] = []
    for cell in cells:
        known = cell.components
        if known is None or cell.copper is None or cell.photonic is None:
            continue
        for name, ours, study in (
            ("compute", cell.copper.compute_s, known.compute_s),
            ("network, copper", cell.copper.comm_s, known.copper_comm_s),
            ("network, photonic", cell.photonic.comm_s, known.photonic_comm_s),
        ):
            rows.append(
                {
                    "point": str(cell.column),
                    "reading": cell.reading,
                    "component": name,
                    "ours_s": ours,
                    "study_s": study,
                    "deviation": None if study is None else ours / study - 1,
                }
            )
    return rows


def ratio_with_study_compute(cell: Cell) -> float | None:
    """Our ratio if our compute were the study's: what is left of the deviation is network.

    (compute + copper network) / (compute + photonic network), since one prefill of dependent
    layers overlaps nothing. None where the study's compute is not known.
    """
    known = cell.components
    if known is None or cell.copper is None or cell.photonic is None:
        return None
    return (known.compute_s + cell.copper.comm_s) / (known.compute_s + cell.photonic.comm_s)


def cause(cell: Cell) -> str:
    """What the deviation of a cell comes from, as far as the study's numbers tell.

    Where its compute is known, ours is replaced by it: what then remains is the network's.
    Elsewhere the share of attention that idle devices cost is named. "" where no ratio is known.
    """
    if cell.known is None or cell.deviation is None or cell.copper is None:
        return ""
    if abs(cell.deviation) <= WITHIN:
        return f"within {WITHIN:.0%}"
    ratio, known = ratio_with_study_compute(cell), cell.components
    if ratio is None or known is None:
        # idle devices lengthen compute, so they explain a ratio that is too small only
        stretch = _head_stretch(cell) if cell.deviation < 0 else ""
        return stretch or _network_left(cell, cell.copper, cell.known)
    left = deviation(ratio, cell.known)
    ours = cell.copper.compute_s / known.compute_s - 1
    part = "compute" if abs(left) < abs(cell.deviation) / 2 else "network"
    return (
        f"{part}: ours computes {ours:+.0%}; with the study's compute the ratio is {ratio:.2f} "
        f"({left:+.0%}){'; ' if _head_stretch(cell) else ''}{_head_stretch(cell)}"
    )


def _network_left(cell: Cell, copper: Times, known: tuple[float, float]) -> str:
    """The copper network time that the study's ratio leaves beside our compute and photons."""
    photonic_s = cell.photonic.latency_s if cell.photonic else copper.compute_s
    room_s = sum(known) / 2 * photonic_s - copper.compute_s
    return (
        f"network: ours takes {copper.comm_s:.1f} s on copper; beside our compute the study's "
        f"ratio leaves {room_s:.1f} s"
    )


def _head_stretch(cell: Cell) -> str:
    """How much whole heads stretch attention where y does not divide them; "" where it does."""
    heads, y = get_config(cell.model).num_attention_heads, cell.mesh[1]
    stretch = -(-heads // y) * y / heads
    if stretch == 1 or get_plan(cell.plan).remainder != "pad":
        return ""
    return f"{heads} heads over {y} devices take {stretch:.2f} times the even share of attention"


def curve_rows(points: Sequence[CurvePoint]) -> list[Row]:
    """The two sweeps, a row per point."""
    return [
        {
            "model": point.model,
            "format": point.format,
            "machine": point.machine,
            "swept": point.swept,
            "seq": point.seq,
            "devices": point.devices,
            "batch": point.batch,
            "mesh": "x".join(map(str, point.mesh)),
            "ratio": point.copper.latency_s / point.photonic.latency_s,
            **_times("copper", point.copper),
            **_times("photonic", point.photonic),
        }
        for point in points
    ]


def free_rows(cells: Sequence[FreeCell]) -> list[Row]:
    """What a free search chose on each fabric."""
    return [
        {
            "model": cell.model,
            "format": cell.format,
            "machine": cell.machine,
            "seq": cell.column.seq,
            "devices": cell.column.devices,
            "policy": cell.policy,
            "ratio": cell.ratio,
            "copper_choice": cell.copper_choice,
            "photonic_choice": cell.photonic_choice,
            **_times("copper", cell.copper),
            **_times("photonic", cell.photonic),
        }
        for cell in cells
    ]


def waterfall_rows(bars: Sequence[Bar]) -> list[Row]:
    """A waterfall, a row per bar."""
    return [
        {
            "step": bar.step,
            "how": "alone" if bar.alone else "with all above",
            "ratio": bar.ratio,
            **dict(bar.split),
            "refused": bar.refused,
            **_times("copper", bar.copper),
            **_times("photonic", bar.photonic),
        }
        for bar in bars
    ]


def sample_rows(samples: Sequence[Sample]) -> list[Row]:
    """Sensitivity samples."""
    return [
        {"parameter": sample.parameter, "value": sample.value, "ratio": sample.ratio}
        for sample in samples
    ]


def hardware_rows(machines: Sequence[str]) -> list[Row]:
    """Table III: platforms and their twins as the machine files have them, SI units."""
    rows: list[Row] = []
    for name in machines:
        for fabric in (name, f"{name}-photonic"):
            machine = load(fabric)
            rows.append(
                {
                    "machine": fabric,
                    **{f"{fmt}_flops": peak for fmt, peak in sorted(machine.peak_flops.items())},
                    "memory_capacity_bytes": machine.memory_capacity_bytes,
                    "memory_bytes_per_s": machine.memory_bytes_per_s,
                    **{
                        f"{tier.name}_{what}": value
                        for tier in machine.tiers
                        for what, value in (
                            ("devices", tier.size),
                            ("bytes_per_s", tier.bandwidth_bytes_per_s),
                            ("latency_s", tier.latency_s),
                        )
                    },
                    "marks": "; ".join(machine.marks),
                }
            )
    return rows


def model_rows(models: Sequence[str]) -> list[Row]:
    """Table II: the models with their parameter counts."""
    from xla_cost.models.counts import count_parameters

    rows: list[Row] = []
    for name in models:
        config = get_config(name)
        counts = count_parameters(config)
        rows.append(
            {
                "model": name,
                "hidden": config.hidden_size,
                "layers": config.num_hidden_layers,
                "heads": config.num_attention_heads,
                "experts": config.n_routed_experts,
                "experts_per_token": config.num_experts_per_tok,
                "parameters": counts.total,
                "active_parameters": counts.active,
            }
        )
    return rows


def _times(prefix: str, times: Times | None) -> Row:
    if times is None:
        return {}
    return {
        f"{prefix}_latency_s": times.latency_s,
        f"{prefix}_compute_s": times.compute_s,
        f"{prefix}_comm_s": times.comm_s,
        f"{prefix}_energy_j": times.energy_j,
        f"{prefix}_fits": times.fits,
    }
