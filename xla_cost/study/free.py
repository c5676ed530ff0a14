"""What a search finds when it may choose mesh and plan: the best copper, the best photons.

The study's electrical baseline is not the best one. Its ratio compares both fabrics at one
mesh; a buyer compares the best use of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xla_cost.machine import load
from xla_cost.parallel import Workers
from xla_cost.policy import Policy
from xla_cost.programs import Request
from xla_cost.search.candidates import Candidate, space
from xla_cost.search.engine import Ranked, SearchResult, search
from xla_cost.search.model_problem import ModelProblem
from xla_cost.study.cells import Column
from xla_cost.study.reproduce import Times

#: Plans the search may choose from. The first two are the study's axes.
PLANS = ("study", "study-balanced", "dp-attention")


@dataclass(frozen=True, slots=True)
class FreeCell:
    """The best of each fabric at one column, found apart."""

    model: str
    format: str
    machine: str
    column: Column
    policy: str
    copper_choice: str
    photonic_choice: str
    copper: Times
    photonic: Times

    @property
    def ratio(self) -> float:
        """Best copper latency over best photonic latency."""
        return self.copper.latency_s / self.photonic.latency_s


def free_cells(
    model: str,
    number_format: str,
    machines: Sequence[str],
    columns: Sequence[Column],
    rules: Policy,
    workers: Workers,
    *,
    attention: str,
    plans: Sequence[str] = PLANS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[FreeCell, ...]:
    """The best mesh and plan on each fabric, by search over every shape.

    Weights and cache must fit, what is live in between need not: at the study's batches nothing
    fits whole, and a batch may run in chunks.
    """
    found = []
    total = len(columns) * len(machines)
    for at, column in enumerate(columns):
        request = Request(
            model=model,
            mesh=(column.devices, 1, 1),
            seq=column.seq,
            batch=column.batch,
            format=number_format,
            attention=attention,
        )
        problem = ModelProblem(request)
        candidates = space(column.devices, plans)
        for index, name in enumerate(machines):
            progress(at * len(machines) + index, total)
            capacity = load(name).memory_capacity_bytes
            holding = [c for c in candidates if _holds(problem, c, capacity)]
            best = [
                _best(
                    search(
                        problem,
                        holding,
                        load(fabric),
                        rules,
                        top=1,
                        need_fit=False,
                        workers=workers,
                    )
                )
                for fabric in (name, f"{name}-photonic")
            ]
            if best[0] is None or best[1] is None:
                continue
            first, second = best[0], best[1]
            found.append(
                FreeCell(
                    model,
                    number_format,
                    name,
                    column,
                    rules.name,
                    str(first.candidate),
                    str(second.candidate),
                    _times(first),
                    _times(second),
                )
            )
    progress(total, total)
    return tuple(found)


def _holds(problem: ModelProblem, candidate: Candidate, capacity_bytes: float) -> bool:
    if problem.reject(candidate) is not None:
        return False
    return problem.least_bytes(candidate) <= capacity_bytes


def _times(best: Ranked) -> Times:
    found = best.summary
    return Times(found.latency_s, found.compute_s, found.comm_s, found.energy_j, found.fits)


def _best(result: SearchResult) -> Ranked | None:
    return result.ranking[0] if result.ranking else None
