"""The study's figures, ours beside what is known of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xla_cost.study.cells import BATCHES, COLUMNS, Column, seq_text
from xla_cost.study.curves import CurvePoint
from xla_cost.study.known import COMPONENTS
from xla_cost.study.realism import Bar
from xla_cost.study.reproduce import Cell
from xla_cost.study.sensitivity import RANGES, UNITS, Sample
from xla_cost.study.style import (
    BLACK,
    COLUMN_WIDTH,
    COMPUTE,
    COPPER,
    MARKERS,
    PAGE_WIDTH,
    PHOTONIC,
    figure,
    save,
)

#: Time-to-first-token limits drawn as lines: ours, since no digest gives the study's.
SLA_S = (10.0, 60.0)


_OPEN: dict[str, Any] = {"linestyle": "--", "fillstyle": "none", "zorder": 3.0, "markersize": 5.5}


def components(points: Sequence[CurvePoint], swept: str, machine: str, folder: Path) -> list[Path]:
    """Compute and communication time against batch or devices (the study's figures 1 and 2)."""
    chosen = [p for p in points if p.swept == swept and p.machine == machine]
    with figure(PAGE_WIDTH, 1.9, 1, len(BATCHES)) as (made, axes):
        for axis, seq in zip(axes, BATCHES, strict=True):
            mine = sorted((p for p in chosen if p.seq == seq), key=lambda p: getattr(p, swept))
            at = [getattr(p, swept) for p in mine]
            lines = (
                ("compute", COMPUTE, [p.copper.compute_s for p in mine]),
                ("network, copper", COPPER, [p.copper.comm_s for p in mine]),
                ("network, photonic", PHOTONIC, [p.photonic.comm_s for p in mine]),
            )
            for (label, colour, values), marker in zip(lines, MARKERS, strict=False):
                # compute is open, dashed and on top: it may coincide with a network line
                style = _OPEN if label == "compute" else {"zorder": 2.5}
                axis.plot(at, values, marker=marker, color=colour, label=label, **style)
            _known_components(axis, seq, swept, machine)
            axis.set(xscale="log", yscale="log", xlabel=swept, title=_title(seq, swept))
            _plain_ticks(axis, at)
        axes[0].set_ylabel("seconds per prefill")
        _legend(made, *axes)
        return save(made, folder, f"components_by_{swept}_{machine}")


def _known_components(axis: Any, seq: int, swept: str, machine: str) -> None:
    if machine != "b300":
        return
    label = "study"
    for column, known in COMPONENTS.items():
        if column.seq != seq or (swept == "batch" and column.devices != 72):
            continue
        at = column.devices if swept == "devices" else column.batch
        values = ((known.compute_s, COMPUTE), (known.copper_comm_s, COPPER),
                  (known.photonic_comm_s, PHOTONIC))  # fmt: skip
        for value, colour in values:
            if value is not None:
                axis.plot(
                    [at], [value], linestyle="", marker="o", markersize=8, fillstyle="none",
                    color=colour, label=label,
                )  # fmt: skip
                label = ""


def latency_and_throughput(
    points: Sequence[CurvePoint], swept: str, machine: str, folder: Path
) -> list[Path]:
    """Latency with SLA lines above, prefill throughput per device below (figures 3 to 6)."""
    chosen = [p for p in points if p.swept == swept and p.machine == machine]
    with figure(PAGE_WIDTH, 3.4, 2, len(BATCHES)) as (made, axes):
        for index, seq in enumerate(BATCHES):
            mine = sorted((p for p in chosen if p.seq == seq), key=lambda p: getattr(p, swept))
            at = [getattr(p, swept) for p in mine]
            above, below = axes[index], axes[len(BATCHES) + index]
            for name, colour, marker in (("copper", COPPER, "o"), ("photonic", PHOTONIC, "s")):
                latency = [getattr(p, name).latency_s for p in mine]
                above.plot(at, latency, marker=marker, color=colour, label=name)
                rate = [p.tokens / s / p.devices for p, s in zip(mine, latency, strict=True)]
                below.plot(at, rate, marker=marker, color=colour)
            for limit in SLA_S:
                above.axhline(limit, color=BLACK, linewidth=0.8, linestyle=":")
                above.annotate(
                    f"{limit:g} s",
                    (1.01, limit),
                    xycoords=("axes fraction", "data"),
                    fontsize=6,
                    va="center",
                    annotation_clip=False,
                )
            above.set(xscale="log", yscale="log", title=_title(seq, swept))
            top = max((p.tokens / p.photonic.latency_s / p.devices for p in mine), default=1.0)
            below.set(xscale="log", xlabel=swept, ylim=(0, 1.1 * top))
            for axis in (above, below):
                _plain_ticks(axis, at)
        axes[0].set_ylabel("latency, s (dotted: SLA)")
        axes[len(BATCHES)].set_ylabel("tokens / s / device")
        _legend(made, axes[0])
        return save(made, folder, f"latency_by_{swept}_{machine}")


def heat_map(cells: Sequence[Cell], name: str, folder: Path) -> list[Path]:
    """Ratios by platform and column (tables IV and VI), the study's range under ours."""
    machines = list(dict.fromkeys(cell.machine for cell in cells))
    by_place = {(cell.machine, cell.column): cell for cell in cells}
    with figure(PAGE_WIDTH, max(0.8 + 0.45 * len(machines), 1.8)) as (made, axes):
        axis = axes[0]
        grid = [
            [_ratio(by_place.get((machine, column))) for column in COLUMNS] for machine in machines
        ]
        image = axis.imshow(grid, aspect="auto", cmap="cividis", vmin=1, vmax=4)
        for y, machine in enumerate(machines):
            for x, column in enumerate(COLUMNS):
                cell = by_place.get((machine, column))
                value = grid[y][x]
                axis.annotate(
                    _cell_text(cell), (x, y), ha="center", va="center", fontsize=6,
                    color=BLACK if value > 2.4 else "white",
                )  # fmt: skip
        axis.set_xticks(range(len(COLUMNS)), [str(column) for column in COLUMNS])
        axis.set_yticks(range(len(machines)), [machine.upper() for machine in machines])
        axis.grid(visible=False)
        axis.set_xlabel("tokens per sequence / devices; in brackets what the study reports")
        made.colorbar(image, ax=axis, label="copper / photonic", pad=0.01, extend="max")
        return save(made, folder, name)


def _ratio(cell: Cell | None) -> float:
    return float("nan") if cell is None or cell.ratio is None else cell.ratio


def _cell_text(cell: Cell | None) -> str:
    if cell is None or cell.ratio is None:
        return "-"
    if cell.known is None:
        return f"{cell.ratio:.2f}"
    low, high = cell.known
    study = f"{low:.2f}" if low == high else f"{low:.2f}-{high:.2f}"
    return f"{cell.ratio:.2f}\n({study})"


def waterfall(bars: Sequence[Bar], column: Column, machine: str, folder: Path) -> list[Path]:
    """The ratio after each assumption is made realistic: alone, and on top of the others."""
    steps = [bar for bar in bars if not bar.alone]
    alone = {bar.step: bar for bar in bars if bar.alone}
    with figure(COLUMN_WIDTH + 1.2, 0.5 + 0.36 * len(steps)) as (made, axes):
        axis = axes[0]
        for y, bar in enumerate(steps):
            single = alone.get(bar.step)
            other = single.ratio if single is not None and single.ratio is not None else 0.0
            if other:
                axis.plot(other, y, marker="D", color=COPPER, linestyle="")
            length = 1.0 if bar.ratio is None else bar.ratio
            axis.barh(y, length - 1, left=1, height=0.5, color=PHOTONIC)
            beside = max(length, other if other < length + 0.5 else 0.0)
            axis.annotate(
                "cannot be built" if bar.ratio is None else f"{bar.ratio:.2f}", (beside, y),
                xytext=(6, 0), fontsize=6 if bar.ratio is None else 7, va="center",
                textcoords="offset points",
            )  # fmt: skip
        # what a search chose is no step on top of the others
        apart = [i == 0 or bar.step.startswith("best mesh") for i, bar in enumerate(steps)]
        labels = [
            bar.step if own else f"+ {bar.step}" for bar, own in zip(steps, apart, strict=True)
        ]
        axis.set_yticks(range(len(steps)), labels)
        axis.invert_yaxis()
        axis.axvline(1, color=BLACK, linewidth=0.8)
        axis.set_xlabel(f"copper / photonic, {machine.upper()}, {column}")
        axis.plot([], [], marker="s", color=PHOTONIC, linestyle="", label="with all above")
        axis.plot([], [], marker="D", color=COPPER, linestyle="", label="alone")
        _legend(made, axis)
        return save(made, folder, f"waterfall_{machine}_{_file_name(column)}")


def tornado(
    samples: Sequence[Sample], base: float, column: Column, machine: str, folder: Path
) -> list[Path]:
    """The range of the ratio over each parameter's range, widest on top."""
    spans = []
    for parameter in RANGES:
        mine = [sample for sample in samples if sample.parameter == parameter]
        if mine:
            ordered = sorted(mine, key=lambda sample: sample.ratio)
            spans.append((ordered[0], ordered[-1]))
    spans.sort(key=lambda span: span[1].ratio - span[0].ratio)
    with figure(COLUMN_WIDTH + 1.5, 0.5 + 0.36 * len(spans)) as (made, axes):
        axis = axes[0]
        for y, (low, high) in enumerate(spans):
            axis.barh(y, high.ratio - low.ratio, left=low.ratio, height=0.5, color=PHOTONIC)
            for sample, side in ((low, "right"), (high, "left")):
                text = f" at {sample.value:g}{UNITS[sample.parameter]} "
                axis.annotate(text, (sample.ratio, y), fontsize=6, ha=side, va="center")
        axis.set_yticks(range(len(spans)), [low.parameter for low, _ in spans])
        axis.axvline(base, color=BLACK, linewidth=0.8)
        axis.set_xlabel(f"copper / photonic, {machine.upper()}, {column}")
        ends = [span[side].ratio for span in spans for side in (0, 1)] or [base]
        room = 0.3 * (max(ends) - min(ends)) or 0.1  # for the labels beside the bars
        axis.set_xlim(min(ends) - room, max(ends) + room)
        return save(made, folder, f"tornado_{machine}_{_file_name(column)}")


def _title(seq: int, swept: str) -> str:
    return f"{seq_text(seq)} x {BATCHES[seq]}" if swept == "devices" else f"{seq_text(seq)}, 72"


def _file_name(column: Column) -> str:
    return f"{seq_text(column.seq)}_{column.devices}".lower()


def _plain_ticks(axis: Any, values: Sequence[int]) -> None:
    """Ticks at some of the swept values, as plain numbers."""
    from matplotlib.ticker import NullFormatter, NullLocator

    shown = values[:: max(1, (len(values) + 1) // 3)]
    axis.set_xticks(shown, [_short(value) for value in shown])
    axis.xaxis.set_minor_locator(NullLocator())
    if axis.get_yscale() == "log":
        axis.yaxis.set_minor_formatter(NullFormatter())


def _short(count: int) -> str:
    return f"{count // 1024}K" if count >= 1024 and count % 1024 == 0 else str(count)


def _legend(made: Any, *axes: Any) -> None:
    """Every label of the panels once, above them."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    labels = list(found)
    made.legend(
        [found[label] for label in labels], labels, loc="outside upper center", ncols=len(labels)
    )
