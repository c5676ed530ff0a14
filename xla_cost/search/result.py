"""A search result as JSON, and why its winner wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from xla_cost.price.as_json import estimate_json
from xla_cost.programs import Request
from xla_cost.search.engine import Ranked, SearchResult
from xla_cost.units import seconds_text


@dataclass(frozen=True, slots=True)
class Difference:
    """Seconds of latency one part of the model costs under two candidates."""

    part: str
    winner_s: float
    runner_up_s: float

    @property
    def saved_s(self) -> float:
        """What the winner saves there; negative where it is the slower one."""
        return self.runner_up_s - self.winner_s


def why_it_wins(winner: Ranked, runner_up: Ranked) -> tuple[Difference, ...]:
    """The parts of the model in which two candidates differ, largest difference first.

    A part's seconds are what it adds to the latency (its time on the critical stream), so
    the differences add up to the difference of the latencies.
    """
    first = {row.scope: row.critical_s for row in winner.estimate.by_scope}
    second = {row.scope: row.critical_s for row in runner_up.estimate.by_scope}
    found = [
        Difference(part, first.get(part, 0.0), second.get(part, 0.0))
        for part in dict.fromkeys([*first, *second])
    ]
    return tuple(sorted(found, key=lambda row: -abs(row.saved_s)))


def to_json(request: Request, results: Sequence[SearchResult], top: int) -> dict[str, Any]:
    """The JSON of `xla-cost search`; a second machine's ranking is under `against`."""
    answer = _one(results[0], top)
    answer["input"] = asdict(request) | {"devices": request.devices}
    del answer["input"]["mesh"]
    if results[0].ranking:
        answer["winner"] = winner_json(request, results[0].ranking[0])
    for other in results[1:]:
        answer["against"] = _one(other, top)
        if results[0].ranking and other.ranking:
            first, second = results[0].ranking[0].summary, other.ranking[0].summary
            answer["ratio"] = first.latency_s / second.latency_s
    return answer


def winner_json(request: Request, winner: Ranked) -> dict[str, Any]:
    """The best candidate as `estimate --json` has it, so that it can be drawn and priced again."""
    candidate = winner.candidate
    chosen = {
        "plan": candidate.plan,
        "microbatches": candidate.microbatches,
        "placement": candidate.placement,
        "mesh": {
            "axes": ["x", "y", "z"],
            "shape": list(candidate.mesh),
            "devices": candidate.devices,
        },
    }
    header = asdict(request) | chosen | {"policy": winner.estimate.policy.name}
    answer = estimate_json(header, [winner.estimate], None, {})
    del answer["provenance"]  # the file's own says it
    return answer


def _one(result: SearchResult, top: int) -> dict[str, Any]:
    ranking = result.ranking[:top]
    return {
        "machine": result.machine.name,
        "policy": result.policy.name,
        "candidates": result.candidates,
        "evaluated": result.evaluated,
        "counts": result.counts,
        "lowered": result.lowered,
        "from_cache": result.from_cache,
        "elapsed_s": result.elapsed_s,
        "best": [_row(ranked) for ranked in ranking],
        "rejected": [
            {
                "mesh": list(row.candidate.mesh),
                "plan": row.candidate.plan,
                "placement": row.candidate.placement,
                "microbatches": row.candidate.microbatches,
                "why": row.why,
                "stage": row.stage,
            }
            for row in result.rejected
        ],
        "why": [
            {"part": row.part, "winner_s": row.winner_s, "runner_up_s": row.runner_up_s}
            for row in (why_it_wins(ranking[0], ranking[1]) if len(ranking) > 1 else ())
        ],
    }


def _row(ranked: Ranked) -> dict[str, Any]:
    candidate, summary = ranked.candidate, ranked.summary
    return {
        "mesh": list(candidate.mesh),
        "plan": candidate.plan,
        "placement": candidate.placement,
        "microbatches": candidate.microbatches,
        "latency_s": summary.latency_s,
        "compute_s": summary.compute_s,
        "comm_s": summary.comm_s,
        "exposed_comm_s": summary.exposed_comm_s,
        "fits": summary.fits,
    }


def search_html(result: SearchResult) -> str:
    """The ranking as a table for notebooks, every text escaped."""
    title = f"{result.machine.name}, policy {result.policy.name}: {len(result.ranking)} of "
    title += f"{result.candidates} candidates, {len(result.rejected)} rejected"
    rows = []
    for ranked in result.ranking[:20]:
        estimate = ranked.estimate
        texts = [
            str(ranked.candidate),
            seconds_text(estimate.latency_s),
            seconds_text(estimate.compute_s),
            seconds_text(estimate.exposed_comm_s),
            estimate.bound_by,
        ]
        rows.append("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in texts) + "</tr>")
    head = "".join(
        f"<th>{name}</th>" for name in ("candidate", "latency", "compute", "exposed", "bound by")
    )
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
