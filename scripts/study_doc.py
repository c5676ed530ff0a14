"""Write the numbers and figures of a study run into docs/study.md.

    xla-cost study --out out/
    xla-cost study --models mini,r1,next --formats fp4,fp8+fp4 --search none --out all/
    .venv/bin/python scripts/study_doc.py out/ all/

Every number of the page that is ours stands between `<!-- begin NAME -->` and `<!-- end NAME -->`
and is replaced from study.json, `others` from that of the second folder, where one is given; the
words around them are written by hand. A block whose part of the study was not run
(`--no-search`) says so.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.models import get_config
from xla_cost.study.cells import BATCHES, COLUMNS, READINGS, Column
from xla_cost.study.sensitivity import UNITS

PAGE = Path(__file__).parents[1] / "docs" / "study.md"
#: The machine whose points are explained, and the figures that the page shows.
MACHINE = "b300"
FIGURES = (
    "ratios_r1_fp4_reading-1", "ratios_r1_fp4_reading-2", "components_by_devices_b300",
    "components_by_batch_b300", "latency_by_devices_b300", "waterfall_b300_8k_72",
    "waterfall_b300_128k_288", "waterfall_b300_1m_1152", "tornado_b300_128k_288",
)  # fmt: skip

Rows = Sequence[Mapping[str, Any]]


def main(folder: Path, every: Path | None) -> None:
    """Fill the page from `folder`, and from `every` the other models; copy the figures it shows."""
    study = json.loads((folder / "study.json").read_text())
    text = PAGE.read_text()
    for name, make in BLOCKS.items():
        text = fill(text, name, make(study))
    if every is not None:
        text = fill(text, "others", others(json.loads((every / "study.json").read_text())))
    PAGE.write_text(text)
    (PAGE.parent / "figures").mkdir(exist_ok=True)
    for name in FIGURES:
        data = (folder / "figures" / f"{name}.png").read_bytes()
        (PAGE.parent / "figures" / f"{name}.png").write_bytes(data)


def fill(text: str, name: str, block: str) -> str:
    """`text` with what stands between the markers of `name` replaced by `block`."""
    pattern = rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)"
    text, count = re.subn(
        pattern, lambda m: m[1] + block + "\n" + m[2], text, count=1, flags=re.DOTALL
    )
    if not count:
        raise XlaCostError(
            f"{PAGE.name}: has no markers for {name}; expected <!-- begin {name} -->"
        )
    return text


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, the first column left-aligned, the others right-aligned."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None) -> str:
    """`2.10`, or a dash."""
    return "-" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """`+12 %`; nothing where there is no deviation."""
    if not value:
        return ""
    rounded = round(100 * value)
    return f"{rounded:+d} %" if rounded else "0 %"


def _of(rows: Rows, **wanted: object) -> Rows:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _point(row: Mapping[str, Any]) -> str:
    return str(Column(row["seq"], row["devices"]))


def readings(_: Mapping[str, Any]) -> str:
    """The readings and what each assumes."""
    last = COLUMNS[-1]
    return table(
        ("reading", "mesh at 1M/1152", "plan", "across pods", "what it takes the study to do"),
        [
            (name, "x".join(map(str, r.mesh(last))), r.plan, r.network, r.description)
            for name, r in READINGS.items()
        ],
    )


def ratios(study: Mapping[str, Any]) -> str:
    """The ratio of every cell under every reading, with its deviation, by machine."""
    rows = _of(study["ratios"], model="r1", format="fp4")
    blocks = []
    for machine in dict.fromkeys(row["machine"] for row in rows):
        mine = _of(rows, machine=machine)
        first = _of(mine, reading="reading-1")
        header = (machine.upper(), *(_point(row) for row in first))
        body: list[Sequence[str]] = []
        if first[0]["study_low"] is not None:
            body.append(("**the study**", *(_range(row) for row in first)))
        for reading in READINGS:
            cells = _of(mine, reading=reading)
            body.append((reading, *(_ratio(row) for row in cells)))
        blocks.append(table(header, body))
    return "\n\n".join(blocks)


def others(study: Mapping[str, Any]) -> str:
    """Ratios under reading 1 of every model and format but R1 in FP4."""
    rows = _of(study["ratios"], reading="reading-1")
    points = list(dict.fromkeys(_point(row) for row in rows))
    kinds = dict.fromkeys((row["model"], row["format"], row["machine"]) for row in rows)
    body = []
    for model, number_format, machine in kinds:
        if (model, number_format) != ("r1", "fp4"):
            mine = _of(rows, model=model, format=number_format, machine=machine)
            at = {_point(row): number(row["ratio"]) for row in mine}
            name = f"{get_config(model).name}, {number_format.upper()}, {machine.upper()}"
            body.append((name, *(at.get(point, "-") for point in points)))
    return table(("reading 1", *points), body)


def _range(row: Mapping[str, Any]) -> str:
    low, high = row["study_low"], row["study_high"]
    return number(low) if low == high else f"{low:.2f}-{high:.2f}"


def _ratio(row: Mapping[str, Any]) -> str:
    return f"{number(row['ratio'])} {percent(row['deviation'])}".strip()


def causes(study: Mapping[str, Any]) -> str:
    """Cells of the main readings that deviate by more than a tenth, and why."""
    rows = [
        row
        for row in _of(study["ratios"], model="r1", format="fp4")
        if row["reading"] in ("reading-1", "reading-1-balanced", "reading-2")
        and row["deviation"] is not None
        and abs(row["deviation"]) > 0.1
    ]
    return table(
        ("cell", "reading", "ours", "the study", "deviation", "cause"),
        [
            (
                f"{row['machine'].upper()} {_point(row)}", row["reading"], number(row["ratio"]),
                _range(row), percent(row["deviation"]), row["cause"],
            )
            for row in rows
        ],
    )  # fmt: skip


def components(study: Mapping[str, Any]) -> str:
    """Component times on B300 under every reading, beside the study's."""
    rows = study["components"]
    columns = list(dict.fromkeys((row["point"], row["component"]) for row in rows))
    shown = [c for c in columns if _of(rows, point=c[0], component=c[1])[0]["study_s"] is not None]
    header = ("seconds, B300", "the study", *READINGS)
    body = []
    for point, component in shown:
        mine = {row["reading"]: row for row in _of(rows, point=point, component=component)}
        study_s = next(iter(mine.values()))["study_s"]
        body.append(
            (
                f"{point} {component}",
                number(study_s),
                *(
                    f"{number(mine[name]['ours_s'])} {percent(mine[name]['deviation'])}".strip()
                    if name in mine
                    else "-"
                    for name in READINGS
                ),
            )
        )
    return table(header, body)


def waterfalls(study: Mapping[str, Any]) -> str:
    """What is left of a ratio as assumptions become realistic, one table per point."""
    blocks = []
    for entry in study["waterfalls"]:
        if entry["machine"] != MACHINE:
            continue
        bars = entry["bars"]
        alone = {row["step"]: row for row in bars if row["how"] == "alone"}
        body = []
        for row in bars:
            if row["how"] == "alone":
                continue
            single = alone.get(row["step"])
            body.append(
                (
                    row["step"],
                    number(single["ratio"]) if single else "",
                    number(row["ratio"]) if not row["refused"] else "cannot be built",
                    number(row.get("bandwidth")),
                    number(row.get("radix")),
                )
            )
        header = (
            f"{entry['point']} on {MACHINE.upper()}", "alone", "with all above", "bandwidth",
            "radix",
        )  # fmt: skip
        blocks.append(table(header, body))
    return "\n\n".join(blocks)


def free(study: Mapping[str, Any]) -> str:
    """What the search chooses on each fabric."""
    rows = study["free_search"]
    if not rows:
        return "The free search was left out of this run (`--no-search`)."
    return table(
        ("cell", "policy", "copper chooses", "photons choose", "copper, s", "photonic, s", "ratio"),
        [
            (
                f"{row['machine'].upper()} {_point(row)}", row["policy"], row["copper_choice"],
                row["photonic_choice"], f"{row['copper_latency_s']:.3g}",
                f"{row['photonic_latency_s']:.3g}", number(row["ratio"]),
            )
            for row in rows
        ],
    )  # fmt: skip


def sensitivity(study: Mapping[str, Any]) -> str:
    """The ratio at both ends of each parameter's range, per point."""
    entries = [entry for entry in study["sensitivity"] if entry["machine"] == MACHINE]
    names = list(dict.fromkeys(s["parameter"] for entry in entries for s in entry["samples"]))
    body = []
    for name in names:
        line = [name]
        for entry in entries:
            samples = sorted(_of(entry["samples"], parameter=name), key=lambda s: s["value"])
            line.append(
                ", ".join(
                    f"{number(sample['ratio'])} at {sample['value']:g}{UNITS[name]}"
                    for sample in (samples[0], samples[-1])
                )
            )
        body.append(line)
    return table((f"{MACHINE.upper()}, reading 1", *(entry["point"] for entry in entries)), body)


def bands(study: Mapping[str, Any]) -> str:
    """Ranges of the ratio over what is only guessed of a platform."""
    rows = [row for row in study["speculative_bands"] if row["ratio"][0] != row["ratio"][1]]
    return table(
        ("platform and cell", "lowest ratio", "highest ratio"),
        [
            (f"{row['machine']} {row['point']}", number(row["ratio"][0]), number(row["ratio"][1]))
            for row in rows
        ],
    )


def memory(study: Mapping[str, Any]) -> str:
    """How many points fit in memory, and what the gathered stream alone takes."""
    rows = _of(study["ratios"], model="r1", format="fp4", reading="reading-1")
    fits = [row for row in rows if row["copper_fits"]]
    seq, hidden = 8192, get_config("r1").hidden_size
    tokens = seq * BATCHES[seq]
    stream = tokens * hidden * 2
    return (
        f"Of the {len(rows)} cells under reading 1, {len(fits)} fit in the memory of their device. "
        f"At {seq} x {BATCHES[seq]} the stream that every device of a pod gathers is {tokens:,} "
        f"tokens x {hidden} x 2 bytes = {stream / 1e9:.0f} GB."
    )


BLOCKS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    make.__name__: make
    for make in (readings, ratios, causes, components, waterfalls, free, sensitivity, bands, memory)
}

if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: study_doc.py OUT [ALL], folders that `xla-cost study --out` wrote")
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else None)
