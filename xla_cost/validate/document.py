"""The generated tables and the scatter plot of docs/validation.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from xla_cost.errors import XlaCostError
from xla_cost.jsonio import write_text
from xla_cost.validate.points import Point, summaries

#: the longest table printed in full; longer parts show their worst and best rows by machine
FULL_TABLE = 80


def tables_of(points: Sequence[Point]) -> str:
    """Markdown: groups with their errors and bars, then the points."""
    lines = ["| group | points | median error | largest | bar | missed |",
             "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    for one in summaries(points):
        bar = "-" if one.bar is None else f"{one.bar:.0%}"
        missed = "-" if one.bar is None else str(one.missed)
        lines.append(f"| {one.group} | {one.points} | {one.median_error:.1%} | "
                     f"{one.max_error:.1%} | {bar} | {missed} |")  # fmt: skip
    lines += ["", "| group | what | machine | unit | measured | predicted | error |",
              "|---|---|---|---|---:|---:|---:|"]  # fmt: skip
    for point in points:
        mark = " **misses**" if point.misses else ""
        lines.append(
            f"| {point.group} | {point.name} | {point.machine} | {point.unit} | "
            f"{point.measured:.4g} | {point.predicted:.4g} | {point.error:+.1%}{mark} |"
        )
    return "\n".join(lines) + "\n"


def causes_of(points: Sequence[Point]) -> str:
    """Markdown: each stated cause once, with the points that it explains."""
    lines = []
    for cause in dict.fromkeys(point.cause for point in points if point.cause):
        names = [f"{p.machine} {p.name}" for p in points if p.cause == cause]
        shown = "; ".join(names[:4]) + (f"; and {len(names) - 4} more" if len(names) > 4 else "")
        lines.append(f"- {cause} ({shown})")
    return "\n".join(lines) + ("\n" if lines else "")


def sources_of(points: Sequence[Point]) -> str:
    """Markdown: who measured, by group."""
    pairs = dict.fromkeys((point.group, point.source) for point in points)
    return "\n".join(f"- {group}: {source}" for group, source in pairs) + "\n"


def updated(text: str, parts: Mapping[str, Sequence[Point]], file: str) -> str:
    """`text` with the block of each part (`<!-- begin NAME -->`) made anew.

    Raises XlaCostError where a part has no block.
    """
    for name, points in parts.items():
        block = f"{tables_of(points)}\nSources:\n\n{sources_of(points)}"
        causes = causes_of(points)
        if causes:
            block += f"\nKnown causes:\n\n{causes}"
        text = replaced(text, name, block, file)
    return text


def replaced(text: str, name: str, block: str, file: str) -> str:
    """`text` with what stands between `<!-- begin NAME -->` and `<!-- end NAME -->` replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise XlaCostError(f"{file}: no block {name}; expected {begin} .. {end}")
    return pattern.sub(lambda _: f"{begin}\n{block}{end}", text)


def update_file(path: Path, parts: Mapping[str, Sequence[Point]]) -> bool:
    """Rewrite the blocks of the file; whether anything changed."""
    before = read(path)
    after = updated(before, parts, path.name)
    if after != before:
        write_text(path, after)
    return after != before


def read(path: Path) -> str:
    """The text of the document. Raises XlaCostError where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise XlaCostError(f"{path}: cannot be read ({error.strerror}); expected a file") from None


def scatter(points: Sequence[Point], path: Path) -> None:
    """An SVG of predicted over measured, one column of dots per group, on a log axis."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "xla-cost"
    from matplotlib import pyplot

    groups = list(dict.fromkeys(point.group for point in points))
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    axes.axhspan(1 / 1.15, 1.15, color="0.9", label="within 15 %")
    axes.axhline(1.0, color="0.5", linewidth=0.8)
    for column, group in enumerate(groups):
        ratios = [point.predicted / point.measured for point in points if point.group == group]
        spread = [column + 0.5 * ((i + 0.5) / len(ratios) - 0.5) for i in range(len(ratios))]
        axes.plot(spread, ratios, "o", markersize=3.5, alpha=0.7)
    axes.set_yscale("log", base=2)
    axes.set_xticks(range(len(groups)), groups, rotation=30, ha="right")
    axes.set_ylabel("predicted / measured")
    axes.legend(loc="upper left", frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
