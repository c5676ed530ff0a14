"""The search itself: reject, bound, lower what is not cached, price, rank.

It knows nothing of models: a `Problem` says what can be built and how.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

from xla_cost.collection import no_collection
from xla_cost.errors import XlaCostError
from xla_cost.machine import Machine
from xla_cost.parallel import Workers
from xla_cost.price import Estimate, Policy, price
from xla_cost.program import Program
from xla_cost.search.candidates import Candidate
from xla_cost.search.summary import Summary
from xla_cost.units import bytes_text

#: what lowering a candidate gives: the program, or the sentence why there is none
Lowered = Program | str


class Problem(Protocol):
    """A workload whose mesh is searched. Sent to worker processes, so plain data."""

    def reject(self, candidate: Candidate) -> str | None:
        """Why `candidate` cannot work, found without the compiler; None when it may."""

    def bound_s(self, candidate: Candidate, machine: Machine, policy: Policy) -> float:
        """A latency that no program of `candidate` can beat on `machine`."""

    def least_bytes(self, candidate: Candidate) -> float:
        """Memory per device that no program of `candidate` does without."""

    def kept(self, candidate: Candidate, machine: Machine, policy: Policy) -> Summary | None:
        """What an earlier search found for `candidate`, if it is known; prices nothing."""

    def keep(
        self, candidate: Candidate, machine: Machine, policy: Policy, summary: Summary
    ) -> None:
        """Remember what this search found for `candidate`."""

    def cached(self, candidate: Candidate) -> Lowered | None:
        """The program if an earlier run left it in the cache; never partitions."""

    def lower(self, candidate: Candidate) -> Lowered:
        """Partition one candidate and cache the answer; called in a worker process."""


#: what put a candidate out of the ranking: its layout (no compiler asked), its lower bound,
#: XLA, or the memory that its program needs
Stage = Literal["layout", "bound", "xla", "memory"]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that is not in the ranking, why, and what put it out."""

    candidate: Candidate
    why: str
    stage: Stage


@dataclass(frozen=True)
class Ranked:
    """A priced candidate: the figures it is ranked by, and the whole estimate when asked for."""

    candidate: Candidate
    summary: Summary
    _estimate: Callable[[], Estimate] = field(compare=False, repr=False)

    @cached_property
    def estimate(self) -> Estimate:
        """Everything that explains the figures.

        Raises XlaCostError where the program is no longer in the cache nor can be made again.
        """
        return self._estimate()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The ranking on one machine, fastest first, and an account of everything else."""

    machine: Machine
    policy: Policy
    candidates: int
    ranking: tuple[Ranked, ...]
    rejected: tuple[Rejected, ...]
    lowered: int
    from_cache: int
    elapsed_s: float

    @property
    def evaluated(self) -> int:
        """Candidates that were priced, whether or not they fit in memory."""
        return len(self.ranking) + self.counts["over_memory"]

    @property
    def counts(self) -> dict[str, int]:
        """What became of the candidates; every one is in one count, so they add up."""
        stages = Counter(row.stage for row in self.rejected)
        return {
            "ranked": len(self.ranking),
            "over_memory": stages["memory"],
            "rejected_before_lowering": stages["layout"],
            "refused_by_xla": stages["xla"],
            "pruned_by_bound": stages["bound"],
        }

    def _repr_html_(self) -> str:
        from xla_cost.search.result import search_html

        return search_html(self)


@dataclass
class _Account:
    """What one search has found so far."""

    problem: Problem
    machine: Machine
    policy: Policy
    top: int
    need_fit: bool
    ranking: list[Ranked]
    rejected: list[Rejected]

    def threshold_s(self) -> float:
        """Nothing slower than this can enter the top any more."""
        if len(self.ranking) < self.top:
            return float("inf")
        return sorted(ranked.summary.latency_s for ranked in self.ranking)[self.top - 1]

    def take(self, candidate: Candidate, lowered: Lowered) -> None:
        if isinstance(lowered, str):
            self.reject(candidate, lowered, "xla")
            return
        estimate = price(lowered, self.machine, self.policy)
        summary = Summary.of(estimate)
        self.problem.keep(candidate, self.machine, self.policy, summary)
        self._rank(Ranked(candidate, summary, lambda: estimate))

    def take_kept(self, candidate: Candidate) -> bool:
        """Ranks `candidate` by what an earlier search found; False where none did."""
        summary = self.problem.kept(candidate, self.machine, self.policy)
        if summary is None:
            return False
        self._rank(Ranked(candidate, summary, lambda: self._estimate(candidate)))
        return True

    def _rank(self, ranked: Ranked) -> None:
        if self.need_fit and not ranked.summary.fits:
            needed = self._against_capacity(ranked.summary.needed_bytes)
            self.reject(ranked.candidate, f"needs {needed}", "memory")
            return
        self.ranking.append(ranked)

    def _estimate(self, candidate: Candidate) -> Estimate:
        lowered = self.problem.cached(candidate)
        if lowered is None:
            lowered = self.problem.lower(candidate)
        if isinstance(lowered, str):
            raise XlaCostError(lowered)
        return price(lowered, self.machine, self.policy)

    def reject(self, candidate: Candidate, why: str, stage: Stage) -> None:
        self.rejected.append(Rejected(candidate, why, stage))

    def too_large(self, candidate: Candidate, least_bytes: float) -> bool:
        if not self.need_fit or least_bytes <= self.machine.memory_capacity_bytes:
            return False
        why = f"needs at least {self._against_capacity(least_bytes)}"
        self.reject(candidate, why, "layout")
        return True

    def _against_capacity(self, need_bytes: float) -> str:
        return (
            f"{bytes_text(need_bytes)} per device, {self.machine.name} has "
            f"{bytes_text(self.machine.memory_capacity_bytes)}"
        )

    def beaten(self, candidate: Candidate, bound_s: float) -> bool:
        limit_s = self.threshold_s()
        if bound_s <= limit_s:
            return False
        why = f"cannot beat {limit_s:.4g} s: its lower bound is {bound_s:.4g} s"
        self.reject(candidate, why, "bound")
        return True


def search(
    problem: Problem,
    candidates: Sequence[Candidate],
    machine: Machine,
    policy: Policy,
    *,
    top: int = 10,
    need_fit: bool = True,
    workers: Workers | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SearchResult:
    """Rank `candidates` of `problem` on `machine` under `policy`.

    Pruning by bound never changes the best `top`: a candidate is skipped only when a
    latency it cannot beat is above the `top`-th best found. `progress(done, total)` is
    called after each candidate. With `need_fit` a candidate that exceeds the memory is
    rejected with both figures. For given `workers` the whole result is the same every time,
    whichever of them is faster. `workers` lower what is not cached; without them this process.
    """
    start = time.perf_counter()
    account = _Account(problem, machine, policy, top, need_fit, [], [])
    possible = _possible(problem, candidates, account)
    total = len(possible)
    missing: list[tuple[float, Candidate]] = []
    from_cache = lowered_count = 0
    with no_collection():
        for bound_s, candidate in possible:
            if account.beaten(candidate, bound_s):
                continue
            if not account.take_kept(candidate):
                lowered = problem.cached(candidate)
                if lowered is None:
                    missing.append((bound_s, candidate))
                    continue
                account.take(candidate, lowered)
            from_cache += 1
            progress(from_cache, total)

    def unbeaten() -> Iterator[Candidate]:
        for bound_s, candidate in missing:
            if not account.beaten(candidate, bound_s):
                yield candidate

    settled = total - len(missing)
    for candidate, lowered in (workers or Workers(processes=0)).map(problem.lower, unbeaten()):
        account.take(candidate, lowered)
        lowered_count += 1
        progress(settled + lowered_count, total)
    progress(total, total)
    return SearchResult(
        machine=machine,
        policy=policy,
        candidates=len(candidates),
        ranking=_ranked(account.ranking),
        rejected=_in_order(account.rejected, candidates),
        lowered=lowered_count,
        from_cache=from_cache,
        elapsed_s=time.perf_counter() - start,
    )


def _possible(
    problem: Problem, candidates: Sequence[Candidate], account: _Account
) -> list[tuple[float, Candidate]]:
    """(bound, candidate) of what may work, the most promising first."""
    found = []
    for candidate in candidates:
        why = problem.reject(candidate)
        if why is not None:
            account.reject(candidate, why, "layout")
        elif not account.too_large(candidate, problem.least_bytes(candidate)):
            bound_s = problem.bound_s(candidate, account.machine, account.policy)
            found.append((bound_s, candidate))
    return sorted(found)


def _ranked(ranking: Collection[Ranked]) -> tuple[Ranked, ...]:
    return tuple(sorted(ranking, key=lambda r: (r.summary.latency_s, r.candidate)))


def _in_order(
    rejected: Collection[Rejected], candidates: Sequence[Candidate]
) -> tuple[Rejected, ...]:
    place = {candidate: index for index, candidate in enumerate(candidates)}
    return tuple(sorted(rejected, key=lambda row: place[row.candidate]))
