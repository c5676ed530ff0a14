"""The study on the terminal: ratios beside the study's, components, and what survives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from xla_cost.show.console import table
from xla_cost.study.cells import COLUMNS, READINGS, Column
from xla_cost.study.reproduce import Cell
from xla_cost.study.run import StudyResult
from xla_cost.study.tables import component_rows

#: columns of one ratio table: ranges such as 12.34-56.78 and the names fit 80 characters
_ABREAST = 5


def show_study(out: Console, result: StudyResult) -> None:
    """Ratio tables by reading, component times, the waterfall, the free search."""
    _ratios(out, result)
    _components(out, result)
    _waterfalls(out, result)
    _free(out, result)
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in result.elapsed_s.items())
    out.print(f"\n{len(result.files)} files; {spent}")


def _ratios(out: Console, result: StudyResult) -> None:
    kinds = dict.fromkeys((cell.model, cell.format) for cell in result.cells)
    for model, number_format in kinds:
        for reading in READINGS:
            rows: dict[str, dict[Column, Cell]] = {}
            for cell in result.cells:
                if (cell.model, cell.format, cell.reading) == (model, number_format, reading):
                    rows.setdefault(cell.machine, {})[cell.column] = cell
            title = f"{model} {number_format}, {reading}"
            for start in range(0, len(COLUMNS), _ABREAST):
                out.print()
                out.print(_ratio_table(rows, COLUMNS[start : start + _ABREAST], title))
                title = ""


def _ratio_table(
    rows: Mapping[str, Mapping[Column, Cell]], columns: Sequence[Column], title: str
) -> Table:
    made = table("copper/photonic", *(str(column) for column in columns), title=title)
    for machine, found in rows.items():
        cells = [found.get(column) for column in columns]
        made.add_row(machine, *(_number(cell.ratio if cell else None) for cell in cells))
        if any(cell and cell.known for cell in cells):
            made.add_row("  study", *(_range(cell.known if cell else None) for cell in cells))
            made.add_row(
                "  deviation", *(_percent(cell.deviation if cell else None) for cell in cells)
            )
    return made


def _components(out: Console, result: StudyResult) -> None:
    made = table("component times, s", "reading", "ours", "study", "deviation")
    for row in component_rows(result.cells):
        if row["reading"] in ("reading-1", "reading-1-fp8-scores"):
            made.add_row(
                f"{row['point']} {row['component']}",
                row["reading"],
                _number(row["ours_s"]),
                _number(row["study_s"]),
                _percent(row["deviation"]),
            )
    if made.row_count:
        out.print()
        out.print(made)


def _waterfalls(out: Console, result: StudyResult) -> None:
    for (machine, column), bars in result.waterfalls.items():
        alone = {bar.step: bar for bar in bars if bar.alone}
        made = table(
            "assumption made realistic", "alone", "with all above", "bandwidth", "radix",
            title=f"{machine}, {column}",
        )  # fmt: skip
        for bar in (bar for bar in bars if not bar.alone):
            single = alone.get(bar.step)
            split = dict(bar.split)
            made.add_row(
                bar.step,
                _number(single.ratio) if single else "",
                _number(bar.ratio),
                _number(split.get("bandwidth")),
                _number(split.get("radix")),
            )
        out.print()
        out.print(made)


def _free(out: Console, result: StudyResult) -> None:
    for policy in dict.fromkeys(cell.policy for cell in result.free):
        made = table(
            "best of each fabric", "ratio", "copper", "photonic", title=f"free search, {policy}"
        )
        for cell in result.free:
            if cell.policy == policy:
                made.add_row(
                    f"{cell.machine} {cell.column}",
                    _number(cell.ratio),
                    cell.copper_choice,
                    cell.photonic_choice,
                )
        out.print()
        out.print(made)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.0f} %"


def _range(known: tuple[float, float] | None) -> str:
    if known is None:
        return "-"
    low, high = known
    return f"{low:.2f}" if low == high else f"{low:.2f}-{high:.2f}"
