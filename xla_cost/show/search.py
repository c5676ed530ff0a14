"""A search on the terminal: the ranking, why the winner wins, why others are not there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console

from xla_cost.search.engine import Ranked, SearchResult
from xla_cost.search.result import why_it_wins
from xla_cost.show.console import table
from xla_cost.units import seconds_text

#: parts and reasons that are spelled out
_SHOWN = 4
#: a number, with the unit that changes with its size
_FIGURE = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?( [kMGTP]?B\b)?")
#: keys of `SearchResult.counts` in words
_COUNTED = {
    "ranked": "ranked",
    "over_memory": "priced but over memory",
    "rejected_before_lowering": "rejected before lowering",
    "refused_by_xla": "refused by XLA",
    "pruned_by_bound": "pruned by bound",
}


def show_search(out: Console, results: Sequence[SearchResult], top: int) -> None:
    """Every machine's ranking, and the ratio of the best latencies where there are two."""
    for result in results:
        _ranking(out, result, top)
    if len(results) == 2 and results[0].ranking and results[1].ranking:
        first_s, second_s = (result.ranking[0].summary.latency_s for result in results)
        out.print(
            f"\n[bold]{first_s / second_s:.2f}x[/bold]: the best on "
            f"{results[1].machine.name} against the best on {results[0].machine.name}"
        )


def _ranking(out: Console, result: SearchResult, top: int) -> None:
    made = table(
        "mesh", "plan", "order", "mb", "latency", "compute", "network", "exposed", "fits",
        title=f"{result.machine.name}, policy {result.policy.name}",
    )  # fmt: skip
    for ranked in result.ranking[:top]:
        candidate, summary = ranked.candidate, ranked.summary
        made.add_row(
            "x".join(map(str, candidate.mesh)),
            candidate.plan,
            candidate.placement,
            str(candidate.microbatches),
            seconds_text(summary.latency_s),
            seconds_text(summary.compute_s),
            seconds_text(summary.comm_s),
            seconds_text(summary.exposed_comm_s),
            "yes" if summary.fits else "NO",
        )
    out.print()
    out.print(made)
    if not result.ranking:
        out.print("  nothing can run; see why below")
    if len(result.ranking) > 1:
        first, second = result.ranking[:2]
        out.print(f"  {first.candidate} over {second.candidate}: {_differences(first, second)}")
    counts = ", ".join(
        f"{count} {_COUNTED[name]}" for name, count in result.counts.items() if count
    )
    out.print(
        f"  {result.candidates} candidates: {counts}\n"
        f"  {result.lowered} lowered now, {result.from_cache} from the cache, "
        f"{result.elapsed_s:.1f} s"
    )
    _reasons(out, [row.why for row in result.rejected])


def _reasons(out: Console, reasons: Sequence[str]) -> None:
    """The most frequent reasons, those that differ in figures only as one, and how many more."""
    like: dict[str, list[str]] = {}
    for why in reasons:
        like.setdefault(_FIGURE.sub("#", why), []).append(why)
    rows = sorted(like.values(), key=len, reverse=True)
    for row in rows[:_SHOWN]:
        link = "x" if len(set(row)) == 1 else "such as:"
        out.print(f"    {len(row)} {link} {row[0]}", markup=False)
    if len(rows) > _SHOWN:
        more, rest = len(rows) - _SHOWN, sum(map(len, rows[_SHOWN:]))
        out.print(f"    and {more} more reason{'s' if more > 1 else ''} for {rest} candidates")


def _differences(first: Ranked, second: Ranked) -> str:
    """The largest differences of two candidates, and what the smaller ones add up to."""
    rows = [row for row in why_it_wins(first, second) if row.saved_s]
    parts = [f"{row.part} {_signed(-row.saved_s)}" for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        rest_s = -sum(row.saved_s for row in rows[_SHOWN:])
        parts.append(f"and {len(rows) - _SHOWN} smaller, together {_signed(rest_s)}")
    return ", ".join(parts) or "a tie"


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"
