"""One or several estimates of a program: headline, parts, collectives, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from xla_cost.policy import Policy
from xla_cost.price import Comparison, Estimate
from xla_cost.program import Program
from xla_cost.show.console import table, takes_unicode
from xla_cost.units import bar, bytes_text, joules_text, seconds_text

_BAR = 18


def show_estimates(
    out: Console, estimates: Sequence[Estimate], comparison: Comparison | None, top: int
) -> None:
    """Headline per machine, ratio, parts of the model, dearest collectives and ops."""
    out.print(headline(estimates))
    if comparison is not None:
        out.print()
        out.print(ratio_text(comparison), soft_wrap=False)
    for estimate in estimates:
        out.print()
        out.print(parts(out, estimate))
    first = estimates[0]
    if first.collectives:
        out.print()
        out.print(collectives(estimates, top))
    out.print()
    out.print(ops(first, top))


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
    row("memory per device", *(_memory(e) for e in estimates))
    row("energy per device", *(joules_text(e.energy_j) for e in estimates))
    row("energy, all devices", *(joules_text(e.energy.total_j) for e in estimates))
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


def parts(out: Console, estimate: Estimate) -> object:
    """Cost by part of the model with a bar for its share of the latency."""
    made = table(
        "part", "compute", "network", "exposed", "share", "",
        title=f"Cost by part on {escape(estimate.machine.name)}",
    )  # fmt: skip
    made.columns[-1].justify = "left"
    for row in estimate.by_scope[:12]:
        share = row.critical_s / estimate.latency_s if estimate.latency_s else 0.0
        drawn = bar(share, _BAR) if takes_unicode(out) else "#" * round(share * _BAR)
        made.add_row(
            escape(_cut(row.scope, 20)), seconds_text(row.compute_s), seconds_text(row.comm_s),
            seconds_text(row.exposed_comm_s), f"{share:.1%}", drawn,
        )  # fmt: skip
    return made


def collectives(estimates: Sequence[Estimate], top: int) -> object:
    """The dearest collectives of the first machine, beside their time on the others."""
    made = table(
        "collective", "group", "payload", "times", *(e.machine.name for e in estimates),
        title=f"Dearest collectives (on {escape(estimates[0].machine.name)}, all executions)",
    )  # fmt: skip
    others = [{(c.name, c.scope): c.seconds for c in e.collectives} for e in estimates]
    for row in estimates[0].collectives[:top]:
        times = [seconds_text(o.get((row.name, row.scope), 0.0)) for o in others]
        made.add_row(
            escape(_cut(f"{row.kind} {_tail(row.scope)}", 31)), str(row.group_size),
            bytes_text(row.payload_bytes), f"{row.executions:.0f}", *times,
        )  # fmt: skip
    return made


def ops(estimate: Estimate, top: int) -> object:
    """The dearest kernels of one machine and what bounds them."""
    made = table(
        "kernel", "bound", "times", "time", "share",
        title=f"Dearest kernels on {escape(estimate.machine.name)}",
    )  # fmt: skip
    kernels = [op for op in estimate.ops if op.kind != "collective"]
    for op in kernels[:top]:
        share = op.critical_s / estimate.latency_s if estimate.latency_s else 0.0
        made.add_row(
            escape(_cut(f"{op.opcode} {_tail(op.scope)}", 38)), op.bound,
            f"{op.executions:.0f}", seconds_text(op.seconds), f"{share:.1%}",
        )  # fmt: skip
    return made


def show_warnings(out: Console, lines: Sequence[str], most: int = 8) -> None:
    """One line each; how many more there are."""
    for line in lines[:most]:
        out.print(f"[yellow]warning[/yellow] {escape(line)}")
    if len(lines) > most:
        out.print(f"[yellow]warning[/yellow] and {len(lines) - most} more, see --json")


def assumptions(program: Program, policy: Policy, facts: Mapping[str, object]) -> list[str]:
    """What the numbers rest on, one sentence each."""
    found = [f"policy {policy.name}: {policy.summary}"]
    notes = facts.get("notes", ())
    if isinstance(notes, list | tuple):
        found += [str(note) for note in notes]
    padding = facts.get("padding", {})
    if isinstance(padding, Mapping):
        found += [f"padding: {k.replace('_', ' ')} {v:.2%}" for k, v in padding.items() if v]
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
    memory = estimate.memory
    text = f"{bytes_text(memory.needed_bytes)} of {bytes_text(memory.capacity_bytes)}"
    return text if memory.fits else f"[red]{text}, too much[/red]"


def _tail(scope: str) -> str:
    return "/".join(scope.split("/")[-2:])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
