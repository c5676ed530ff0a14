"""A search on the terminal: the ranking, why the winner wins, why others are not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from xla_cost.search.engine import SearchResult
from xla_cost.search.result import why_it_wins
from xla_cost.show.console import table
from xla_cost.units import seconds_text


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
        parts = [row for row in why_it_wins(first, second) if row.saved_s][:4]
        spelled = ", ".join(
            f"{row.part} {'-' if row.saved_s > 0 else '+'}{seconds_text(abs(row.saved_s))}"
            for row in parts
        )
        out.print(f"  {first.candidate} over {second.candidate}: {spelled or 'a tie'}")
    out.print(
        f"  {result.candidates} candidates, {result.evaluated} priced "
        f"({result.lowered} lowered now, {result.from_cache} from the cache), "
        f"{len(result.rejected)} rejected, {result.elapsed_s:.1f} s"
    )
    for why, count in Counter(_short(row.why) for row in result.rejected).most_common(4):
        out.print(f"    {count} x {why}", markup=False)


def _short(why: str) -> str:
    """The reason without its figures, so that like ones are counted together."""
    return why.split(", expected")[0] if len(why) > 100 else why
