"""One or several estimates of a program: headline, parts, collectives, warnings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from xla_cost.findings import Finding
from xla_cost.policy import Policy
from xla_cost.price import Comparison, Estimate
from xla_cost.price.experts import most_in_use
from xla_cost.price.tables import OpCost
from xla_cost.program import Program
from xla_cost.show.console import table, takes_unicode
from xla_cost.units import bar, bytes_text, joules_text, seconds_text

_BAR = 12
#: parts below this share of the latency are added up
_SMALL = 0.0005


def show_estimates(
    out: Console, estimates: Sequence[Estimate], comparison: Comparison | None, top: int
) -> None:
    """Headline per machine, ratio, parts of the model, dearest collectives and ops."""
    out.print(headline(estimates))
    if comparison is not None:
        out.print()
        out.print(ratio_text(comparison), soft_wrap=False)
    out.print()
    out.print(parts(out, estimates))
    if estimates[0].collectives:
        out.print()
        out.print(collectives(estimates, top))
    out.print()
    out.print(ops(estimates[0], top))


def headline(estimates: Sequence[Estimate]) -> object:
    """One column per machine: times, bound, memory, energy."""
    made = table("", *(e.machine.name for e in estimates))

    def row(name: str, *values: str) -> None:
        made.add_row(name, *values)

    row("latency", *(f"[bold]{seconds_text(e.latency_s)}[/bold]" for e in estimates))
    row("  compute", *(seconds_text(e.compute_s) for e in estimates))
    row("  network", *(seconds_text(e.comm_s) for e in estimates))
    for tier in dict.fromkeys(t for e in estimates for t in e.comm_s_by_tier):
        row(f"    {tier}", *(seconds_text(e.comm_s_by_tier.get(tier, 0.0)) for e in estimates))
    row("    exposed", *(seconds_text(e.exposed_comm_s) for e in estimates))
    row("  bound by", *(_bound(e) for e in estimates))
    row("device memory", *(_memory(e) for e in estimates))
    row("  of", *(bytes_text(e.memory.capacity_bytes) for e in estimates))
    row("device energy", *(joules_text(e.energy_j) for e in estimates))
    row("total energy", *(joules_text(e.energy.total_j) for e in estimates))
    return made


def ratio_text(comparison: Comparison) -> str:
    """`3.02x faster = bandwidth 2.1 x radix 1.4`, and the parts that make it."""
    second, first = comparison.second.machine.name, comparison.first.machine.name
    text = f"[bold]{comparison.ratio:.2f}x[/bold]: {escape(second)} against {escape(first)}"
    if comparison.split:
        text += " = " + " x ".join(f"{k} {v:.2f}" for k, v in comparison.split.items())
    saved = [row for row in comparison.by_scope if row.saved_s > 0][:3]
    if saved:
        text += "\n  saved in " + ", ".join(
            f"{escape(row.scope)} {seconds_text(row.saved_s)}" for row in saved
        )
    return text


def parts(out: Console, estimates: Sequence[Estimate]) -> object:
    """Cost by part of the model on the first machine, its share, and the cost on the second."""
    first, others = estimates[0], estimates[1:2]
    made = table(
        "part", "compute", "network", "exposed", "share", "", *(e.machine.name for e in others),
        title=f"Cost by part on {escape(first.machine.name)}",
    )  # fmt: skip
    made.columns[5].justify = "left"
    elsewhere = [{row.scope: row.critical_s for row in e.by_scope} for e in others]
    rest, rest_s = 0, 0.0
    for row in first.by_scope:
        share = row.critical_s / first.latency_s if first.latency_s else 0.0
        if share < _SMALL:
            rest, rest_s = rest + 1, rest_s + row.critical_s
            continue
        drawn = bar(share, _BAR) if takes_unicode(out) else "#" * round(share * _BAR)
        made.add_row(
            escape(_cut(row.scope, 16)), seconds_text(row.compute_s), seconds_text(row.comm_s),
            seconds_text(row.exposed_comm_s), f"{share:.1%}", drawn,
            *(seconds_text(costs.get(row.scope, 0.0)) for costs in elsewhere),
        )  # fmt: skip
    if rest:
        made.add_row(f"{rest} smaller", seconds_text(rest_s), "", "", "")
    return made


def collectives(estimates: Sequence[Estimate], top: int) -> object:
    """The dearest collectives on the first machine, equal ones added, beside the others."""
    shown = estimates[:2]
    made = table(
        "collective", "group", "payload", "times", *(e.machine.name for e in shown),
        title=f"Dearest collectives on {escape(shown[0].machine.name)}, all executions",
    )  # fmt: skip
    totals: dict[tuple[str, int, int], list[float]] = {}
    times: dict[tuple[str, int, int], float] = {}
    for index, estimate in enumerate(shown):
        for row in estimate.collectives:
            key = (f"{row.kind} {_tail(row.scope)}", row.group_size, row.payload_bytes)
            totals.setdefault(key, [0.0] * len(shown))[index] += row.seconds
            if not index:
                times[key] = times.get(key, 0.0) + row.executions
    for key in sorted(times, key=lambda key: -totals[key][0])[:top]:
        name, group, payload = key
        made.add_row(
            escape(_cut(name, 31)), str(group), bytes_text(payload), f"{times[key]:.0f}",
            *(seconds_text(seconds) for seconds in totals[key]),
        )  # fmt: skip
    return made


def ops(estimate: Estimate, top: int) -> object:
    """The dearest kernels on one machine, equal ones added, and what bounds them."""
    made = table(
        "kernel", "bound by", "times", "time", "share",
        title=f"Dearest kernels on {escape(estimate.machine.name)}",
    )  # fmt: skip
    found: dict[tuple[str, str], list[float]] = {}
    for op in estimate.ops:
        if op.kind != "collective":
            row = found.setdefault((_kernel_name(op), op.bound), [0.0, 0.0])
            row[0] += op.executions
            row[1] += op.seconds
    for (name, bound), (times, seconds) in sorted(found.items(), key=lambda item: -item[1][1])[
        :top
    ]:
        share = seconds / estimate.latency_s if estimate.latency_s else 0.0
        made.add_row(
            escape(_cut(name, 42)), bound, f"{times:.0f}", seconds_text(seconds), f"{share:.1%}"
        )
    return made


def _kernel_name(op: OpCost) -> str:
    """`flash_attention attention/scores`, `dot attention/q_down`."""
    segments = op.scope.split("/")
    regions = [s.removeprefix("kernel[").split(",")[0].rstrip("]") for s in segments
               if s.startswith("kernel[")]  # fmt: skip
    plain = [s for s in segments if not s.startswith("kernel[")]
    return f"{regions[0] if regions else op.opcode} {'/'.join(plain[-2:])}"


def show_warnings(out: Console, lines: Sequence[str], most: int = 8) -> None:
    """One line each; how many more there are."""
    for line in lines[:most]:
        out.print(f"[yellow]warning[/yellow] {escape(line)}")
    if len(lines) > most:
        out.print(f"[yellow]warning[/yellow] and {len(lines) - most} more, see --json")


def show_findings(out: Console, found: Sequence[Finding], most: int = 8) -> None:
    """What, where, what it costs and the cure of each."""
    for finding in found[:most]:
        made = Table.grid(padding=(0, 1))
        made.add_row("[yellow]finding[/yellow]", f"[bold]{escape(finding.kind)}[/bold]")
        made.add_row("  op", escape(finding.op or "(no scope)"))
        places = [relative(place) for place in (finding.source, finding.used_at) if place]
        if places:
            made.add_row("  at", escape(", for ".join(dict.fromkeys(places))))
        if finding.cost:
            made.add_row("  costs", escape(finding.cost))
        made.add_row("  cure", escape(finding.cure))
        out.print(made)
        out.print()
    if len(found) > most:
        out.print(f"[yellow]finding[/yellow] and {len(found) - most} more, see --json")


def relative(place: str) -> str:
    """A `file:line` below the current folder without it; any other as it is."""
    return place.removeprefix(os.getcwd() + os.sep)


def assumptions(program: Program, policy: Policy, facts: Mapping[str, object]) -> list[str]:
    """What the numbers rest on, one sentence each."""
    found = [f"policy {policy.name}: {policy.summary}"]
    in_use = most_in_use(program, policy)
    if in_use is not None and in_use.used < in_use.local:
        found.append(
            f"experts in use: {in_use.share:.0%} of the local experts' weights are read per layer "
            f"({in_use.used} of {in_use.local} on the busiest rank), random routing"
        )
    notes = facts.get("notes", ())
    if isinstance(notes, list | tuple):
        found += [str(note) for note in notes]
    padding = facts.get("padding", {})
    if isinstance(padding, Mapping):
        found += [
            f"padding: {name.replace('_', ' ')} "
            + (f"{value:.2%}" if name.endswith("share") else f"{value:g}")
            for name, value in padding.items()
            if value
        ]
    made_by = dict(program.provenance)
    if "jax" in made_by:
        found.append(f"partitioned by XLA in jax {made_by['jax']}, target {made_by['target']}")
    return found


def _bound(estimate: Estimate) -> str:
    if not estimate.latency_s:
        return "nothing"
    name = estimate.bound_by
    return f"{name} {estimate.bound_s[name] / estimate.latency_s:.0%}"


def _memory(estimate: Estimate) -> str:
    text = bytes_text(estimate.memory.needed_bytes)
    return text if estimate.memory.fits else f"[red]{text}, too much[/red]"


def _tail(scope: str) -> str:
    return "/".join(scope.split("/")[-2:])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
