"""`xla-cost machines`: the tables, and one table whole with sources, fits and doubts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from xla_cost.machine import Machine


def machines(
    name: Annotated[str, typer.Argument(help="one machine, or a path to a .toml file")] = "",
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
) -> None:  # fmt: skip
    """List machines, or print one with the source of every figure."""
    from xla_cost.machine import load, names

    chosen = [load(name)] if name else [load(known) for known in names()]
    if json:
        from xla_cost.jsonio import write_json

        write_json(json, {"machines": [machine.describe() for machine in chosen]})
    if json != "-":
        from xla_cost.show.console import console

        out = console()
        if name:
            _show_one(out, chosen[0])
        else:
            _show_list(out, chosen)


def _show_list(out: Console, found: list[Machine]) -> None:
    from xla_cost.show.console import table

    made = table("machine", "bf16", "fp8", "fp4", "memory", "scale-up", "pod", "scale-out", "")
    for machine in found:
        inner, outer = machine.tiers[0], machine.tiers[-1]
        peaks = [machine.peak_flops.get(f) for f in ("bf16", "fp8", "fp4")]
        made.add_row(
            machine.name,
            *("-" if peak is None else f"{peak / 1e12:g}" for peak in peaks),
            f"{machine.memory_capacity_bytes / 1e9:g}",
            f"{inner.bandwidth_bytes_per_s / 1e9:g}",
            "x".join(map(str, inner.dims)) or str(inner.size),
            f"{outer.bandwidth_bytes_per_s / 1e9:g}",
            "*" if machine.marks else "",
        )
    out.print(made)
    out.print(
        "\nTFLOP/s dense, memory in GB, bandwidth in GB/s per device and direction.\n"
        "* speculative or inherited figures. `xla-cost machines NAME` prints every source.",
        soft_wrap=True,
    )


def _show_one(out: Console, machine: Machine) -> None:
    out.print(f"[bold]{machine.name}[/]: {machine.title}")
    if machine.extends:
        out.print(f"extends {machine.extends}")
    for mark in machine.marks:
        out.print(f"mark: {mark}")
    out.print(f"content hash {machine.content_hash[:16]}\n")
    _show_figures(out, machine)
    _show_collectives(out, machine)
    _show_efficiency(out, machine)


def _show_figures(out: Console, machine: Machine) -> None:
    """Every figure as written in the file, its source by number, its doubt in full."""
    from rich.markup import escape
    from rich.table import Table

    sources: dict[str, int] = {}
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for column, justify in (("figure", "left"), ("value", "right"), ("src", "right")):
        made.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    made.add_column("doubt")
    section = ""
    for figure in machine.figures:
        head, _, key = figure.key.rpartition(".")
        if ".collectives" in head:
            continue
        if head != section:
            made.add_row(f"[bold]{_section(machine, head)}[/]", "", "", "")
            section = head
        number = sources.setdefault(figure.source, len(sources) + 1)
        doubt = "" if figure.doubt == "none" else escape(figure.doubt)
        made.add_row(f"  {key}", _text(figure.value), str(number), doubt)
    out.print(made)
    out.print("\n[bold]sources[/]")
    listed = Table.grid(padding=(0, 1, 0, 0))
    listed.add_column(justify="right", width=3)
    listed.add_column()
    for source, number in sources.items():
        listed.add_row(str(number), escape(source))
    out.print(listed)


def _section(machine: Machine, head: str) -> str:
    """`tiers[0]` with the tier's name and topology beside it; brackets escaped for rich."""
    if not head.startswith("tiers["):
        return head
    tier = machine.tiers[int(head[len("tiers[") : -1])]
    return f"\\{head[len('tiers') :]} {tier.name} ({tier.topology})".replace("\\[", "tiers\\[")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show_collectives(out: Console, machine: Machine) -> None:
    """Fits of collectives per tier, own and inherited, with their errors on held-out rows."""
    from xla_cost.show.console import table

    out.print("\n[bold]collective fits[/] (policy calibrated)")
    if not any(tier.collectives for tier in machine.tiers):
        out.print("none: what counts is the efficiency of each tier", soft_wrap=True)
    for rate in machine.assumed_rates:
        out.print(f"assumed: {rate}", soft_wrap=True)
    if not any(tier.collectives for tier in machine.tiers):
        return
    made = table("kind", "floor us", "eff.", "half MB", "ramp", "rows", "median", "p90")
    for tier in machine.tiers:
        for fit in tier.collectives:
            record = fit.record
            origin = "*" if fit.inherited_from else ""
            made.add_row(
                f"{tier.name} {fit.kind}{origin}", f"{fit.floor_s * 1e6:.3g}",
                f"{fit.efficiency:.3g}", f"{fit.half_bytes / 1e6:.3g}", f"{fit.ramp:.2g}",
                str(record.rows), _percent(record.median_error), _percent(record.p90_error),
            )  # fmt: skip
    out.print(made)
    inherited = {f.inherited_from for t in machine.tiers for f in t.collectives} - {""}
    for name in sorted(inherited):
        out.print(f"* inherited from {name}")
    for source in dict.fromkeys(f.record.source for t in machine.tiers for f in t.collectives):
        out.print(f"  from {source}", markup=False)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g}%"


_SHOWN = ("efficiency", "floor_us", "rows", "median_error", "p90_error")
_UNSHOWN = ("source", "held_out_rows", "median_error_all", "p90_error_all", *_SHOWN)


def _show_efficiency(out: Console, machine: Machine) -> None:
    """The `[efficiency]` table: share of peak, floor, rows fitted, errors on held-out rows."""
    from rich.markup import escape
    from rich.table import Table

    inherited = machine.kernel_times.inherited_from
    out.print(f"\n[bold]kernel fits[/]{f', inherited from {inherited}' if inherited else ''}")
    if not machine.efficiency:
        out.print("none: published shares of peak of other GPUs are used")
        return
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    made.add_column("kernel", no_wrap=True)
    for column in ("eff.", "floor us", "rows", "median", "p90"):
        made.add_column(column, justify="right", no_wrap=True)
    made.add_column("other parameters")
    sources: dict[str, None] = {}
    for place, values in _leaves(machine.efficiency, ""):
        shares = [_percent(values.get(key)) for key in _SHOWN[3:]]
        numbers = [_text(values[key]) if key in values else "-" for key in _SHOWN[:3]]
        others = ", ".join(f"{k} {_text(v)}" for k, v in values.items() if k not in _UNSHOWN)
        made.add_row(place, *numbers, *shares, others)
        sources[str(values.get("source", ""))] = None
    out.print(made)
    for source in sources:
        out.print(f"  from {escape(source)}" if source else "")


def _leaves(table: Mapping[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tables that hold numbers, by their dotted place."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if plain:
        yield place or "all kernels", plain
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{place}.{key}" if place else key)
