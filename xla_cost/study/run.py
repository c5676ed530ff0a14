"""The whole study: cells, sweeps, free search, waterfalls, sensitivity; tables and figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xla_cost.parallel import Workers
from xla_cost.policy import CALIBRATED
from xla_cost.study import figures, tables
from xla_cost.study.cells import COLUMNS, READINGS, Column
from xla_cost.study.curves import CurvePoint, curves
from xla_cost.study.free import FreeCell, free_cells
from xla_cost.study.realism import Bar, waterfall
from xla_cost.study.reproduce import Cell, lower_all, reproduce, request_of, study_policy
from xla_cost.study.sensitivity import Sample, band, sensitivity

#: Cells whose waterfall and sensitivity are drawn: one per regime.
SHOWN = (Column(8192, 72), Column(131072, 288), Column(1048576, 1152))

Progress = Callable[[str], Any]


@dataclass
class StudyResult:
    """Everything the study found; `files` are what was written, `elapsed_s` by stage."""

    cells: tuple[Cell, ...] = ()
    curves: tuple[CurvePoint, ...] = ()
    free: tuple[FreeCell, ...] = ()
    waterfalls: dict[tuple[str, Column], tuple[Bar, ...]] = field(default_factory=dict)
    samples: dict[tuple[str, Column], tuple[Sample, ...]] = field(default_factory=dict)
    bands: dict[tuple[str, Column], tuple[float, float]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    elapsed_s: dict[str, float] = field(default_factory=dict)


def run_study(
    models: Sequence[str],
    machines: Sequence[str],
    formats: Sequence[str],
    out: Path,
    workers: Workers,
    *,
    free: Sequence[Column] = COLUMNS,
    report: Callable[[str], Callable[[int, int], None]] = lambda stage: lambda done, total: None,
) -> StudyResult:
    """Compute and write the study of `models` on `machines` into `out`.

    `report(stage)` gives a progress function for a stage. `free` are the columns whose mesh and
    plan are searched as well, by far the longest part. Everything lowered stays in the cache.
    """
    result = StudyResult()

    @contextmanager
    def stage(name: str) -> Iterator[Callable[[int, int], None]]:
        start = time.perf_counter()
        yield report(name)
        result.elapsed_s[name] = time.perf_counter() - start

    with stage("cells") as progress:
        result.cells = reproduce(models, machines, formats, workers, progress=progress)
    with stage("sweeps") as progress:
        result.curves = curves(models, machines, formats[0], workers, progress=progress)
    with stage("assumptions one at a time"):
        _realism(result, models[0], machines, formats[0], workers)
    if free:
        with stage("free search") as progress:
            for rules, attention in (
                (study_policy("best"), "plain"),
                (CALIBRATED, "flash"),
            ):
                result.free += free_cells(
                    models[0], formats[0], machines, free, rules, workers,
                    attention=attention, progress=progress,
                )  # fmt: skip
    _add_free_bars(result)
    with stage("tables and figures"):
        result.files += _tables(result, models, machines, out)
        result.files += _figures(result, models, machines, formats, out / "figures")
    return result


def _realism(
    result: StudyResult, model: str, machines: Sequence[str], number_format: str, workers: Workers
) -> None:
    reading = READINGS["reading-1"]
    rules = study_policy(reading.network)
    for machine in machines:
        for column in SHOWN:
            place = (machine, column)
            bars = waterfall(model, number_format, machine, column, workers)
            request = request_of(model, number_format, column, reading)
            result.waterfalls[place] = bars
            result.samples[place] = sensitivity(request, rules, machine, workers)
            program = lower_all([request], workers)[request]
            if not isinstance(program, str):
                result.bands[place] = band(program, rules, machine)


def _add_free_bars(result: StudyResult) -> None:
    """What each fabric's best mesh and plan leave of a ratio, at the end of its waterfall."""
    for cell in result.free:
        place = (cell.machine, cell.column)
        if place in result.waterfalls:
            bar = Bar(f"best mesh of each, {cell.policy}", False, cell.copper, cell.photonic)
            result.waterfalls[place] += (bar,)


def _tables(
    result: StudyResult, models: Sequence[str], machines: Sequence[str], out: Path
) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    write = tables.write_csv
    found = [
        write(tables.ratio_rows(result.cells), out / "ratios.csv"),
        write(tables.component_rows(result.cells), out / "components.csv"),
        write(tables.curve_rows(result.curves), out / "sweeps.csv"),
        write(tables.free_rows(result.free), out / "free_search.csv"),
        write(tables.hardware_rows(machines), out / "hardware.csv"),
        write(tables.model_rows(models), out / "models.csv"),
    ]
    bars = {place: tables.waterfall_rows(bars) for place, bars in result.waterfalls.items()}
    samples = {place: tables.sample_rows(found) for place, found in result.samples.items()}
    for name, by_place in (("waterfall", bars), ("sensitivity", samples)):
        merged = [
            {"machine": machine, "point": str(column), **row}
            for (machine, column), rows in by_place.items()
            for row in rows
        ]
        found.append(write(merged, out / f"{name}.csv"))
    guessed = [
        {"machine": machine, "point": str(column), "lowest_ratio": low, "highest_ratio": high}
        for (machine, column), (low, high) in result.bands.items()
    ]
    return [*found, write(guessed, out / "speculative_bands.csv")]


def _figures(
    result: StudyResult,
    models: Sequence[str],
    machines: Sequence[str],
    formats: Sequence[str],
    folder: Path,
) -> list[Path]:
    found: list[Path] = []
    mine = [point for point in result.curves if point.model == models[0]]
    for machine in machines:
        for swept in ("batch", "devices"):
            found += figures.components(mine, swept, machine, folder)
            found += figures.latency_and_throughput(mine, swept, machine, folder)
    for model in models:
        for number_format in formats:
            for reading in READINGS:
                cells = [
                    cell
                    for cell in result.cells
                    if (cell.model, cell.format, cell.reading) == (model, number_format, reading)
                ]
                name = f"ratios_{model}_{number_format.replace('+', '_')}_{reading}"
                found += figures.heat_map(cells, name, folder)
    for (machine, column), bars in result.waterfalls.items():
        found += figures.waterfall(bars, column, machine, folder)
        base = bars[0].ratio
        if base is not None:
            samples = result.samples[machine, column]
            found += figures.tornado(samples, base, column, machine, folder)
    return found


def to_json(result: StudyResult) -> dict[str, Any]:
    """The study as JSON: the rows of its tables, where they are, how long it took."""
    return {
        "kind": "study",
        "ratios": tables.ratio_rows(result.cells),
        "components": tables.component_rows(result.cells),
        "sweeps": tables.curve_rows(result.curves),
        "free_search": tables.free_rows(result.free),
        "waterfalls": [
            {"machine": machine, "point": str(column), "bars": tables.waterfall_rows(bars)}
            for (machine, column), bars in result.waterfalls.items()
        ],
        "sensitivity": [
            {"machine": machine, "point": str(column), "samples": tables.sample_rows(samples)}
            for (machine, column), samples in result.samples.items()
        ],
        "speculative_bands": [
            {"machine": machine, "point": str(column), "ratio": list(span)}
            for (machine, column), span in result.bands.items()
        ],
        "files": [str(path) for path in result.files],
        "elapsed_s": result.elapsed_s,
    }
