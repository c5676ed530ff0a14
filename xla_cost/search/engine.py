"""The search itself: reject, bound, lower what is not cached, price, rank.

It knows nothing of models: a `Problem` says what can be built and how.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from xla_cost.machine import Machine
from xla_cost.parallel import Workers
from xla_cost.price import Estimate, Policy, price
from xla_cost.program import Program
from xla_cost.search.candidates import Candidate
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

    def cached(self, candidate: Candidate) -> Lowered | None:
        """The program if an earlier run left it in the cache; never partitions."""

    def lower(self, candidate: Candidate) -> Lowered:
        """Partition one candidate and cache the answer; called in a worker process."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that is not in the ranking, and why."""

    candidate: Candidate
    why: str


@dataclass(frozen=True, slots=True)
class Ranked:
    """A priced candidate."""

    candidate: Candidate
    estimate: Estimate


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
        return self.lowered + self.from_cache

    def _repr_html_(self) -> str:
        from xla_cost.search.result import search_html

        return search_html(self)


@dataclass
class _Account:
    """What one search has found so far."""

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
        return sorted(ranked.estimate.latency_s for ranked in self.ranking)[self.top - 1]

    def take(self, candidate: Candidate, lowered: Lowered) -> None:
        if isinstance(lowered, str):
            self.reject(candidate, lowered)
            return
        estimate = price(lowered, self.machine, self.policy)
        memory = estimate.memory
        if self.need_fit and not memory.fits:
            self.reject(candidate, f"needs {self._against_capacity(memory.needed_bytes)}")
            return
        self.ranking.append(Ranked(candidate, estimate))

    def reject(self, candidate: Candidate, why: str) -> None:
        self.rejected.append(Rejected(candidate, why))

    def too_large(self, candidate: Candidate, least_bytes: float) -> bool:
        if not self.need_fit or least_bytes <= self.machine.memory_capacity_bytes:
            return False
        self.reject(candidate, f"needs at least {self._against_capacity(least_bytes)}")
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
        self.reject(candidate, f"cannot beat {limit_s:.4g} s: its lower bound is {bound_s:.4g} s")
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
    account = _Account(machine, policy, top, need_fit, [], [])
    possible = _possible(problem, candidates, account)
    total = len(possible)
    missing: list[tuple[float, Candidate]] = []
    from_cache = lowered_count = 0
    for bound_s, candidate in possible:
        if account.beaten(candidate, bound_s):
            continue
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
            account.reject(candidate, why)
        elif not account.too_large(candidate, problem.least_bytes(candidate)):
            bound_s = problem.bound_s(candidate, account.machine, account.policy)
            found.append((bound_s, candidate))
    return sorted(found)


def _ranked(ranking: Collection[Ranked]) -> tuple[Ranked, ...]:
    return tuple(sorted(ranking, key=lambda r: (r.estimate.latency_s, r.candidate)))


def _in_order(
    rejected: Collection[Rejected], candidates: Sequence[Candidate]
) -> tuple[Rejected, ...]:
    place = {candidate: index for index, candidate in enumerate(candidates)}
    return tuple(sorted(rejected, key=lambda row: place[row.candidate]))
