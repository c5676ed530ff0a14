"""The search against brute force on made-up problems, and its bounds against real programs."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from price_programs import dot, machine, program

from xla_cost.machine import load
from xla_cost.policy import CALIBRATED, STUDY
from xla_cost.price import price
from xla_cost.programs import Request, model_program
from xla_cost.search.candidates import Candidate, space
from xla_cost.search.engine import search
from xla_cost.search.model_problem import ModelProblem
from xla_cost.search.result import to_json, why_it_wins
from xla_cost.units import bytes_text

TOY = machine()  # 1000 bytes of memory; a toy program needs 200 of arguments and 100 live


@dataclass
class Toy:
    """Candidates with known latencies: seconds, share of them that the bound says, the rest."""

    seconds: dict
    share: float = 0.5
    refused: dict = field(default_factory=dict)  # before lowering
    broken: dict = field(default_factory=dict)  # by lowering
    in_cache: set = field(default_factory=set)
    memory: dict = field(default_factory=dict)
    lowered: list = field(default_factory=list)
    known: dict = field(default_factory=dict)  # summaries of earlier searches
    read: list = field(default_factory=list)

    def reject(self, candidate):
        return self.refused.get(candidate)

    def bound_s(self, candidate, machine, policy):
        return self.share * self.seconds[candidate]

    def least_bytes(self, candidate):
        return 0.5 * self.memory.get(candidate, 0)

    def kept(self, candidate, machine, policy):
        return self.known.get((candidate, machine, policy))

    def keep(self, candidate, machine, policy, summary):
        self.known[candidate, machine, policy] = summary

    def cached(self, candidate):
        self.read.append(candidate)
        return self._program(candidate) if candidate in self.in_cache else None

    def lower(self, candidate):
        self.lowered.append(candidate)
        return self.broken.get(candidate) or self._program(candidate)

    def _program(self, candidate):
        made = program(dot("d", (), self.seconds[candidate]))
        return replace(made, weights_bytes=self.memory.get(candidate, 0))


def candidates(count):
    return [Candidate("study", (1, 1 + i, 1)) for i in range(count)]


@st.composite
def toys(draw):
    found = candidates(draw(st.integers(1, 12)))
    some = st.sets(st.sampled_from(found))
    return Toy(
        # few distinct values, so that ties are common
        seconds={c: float(draw(st.integers(1, 6))) for c in found},
        share=draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])),
        refused=dict.fromkeys(draw(some), "cannot be laid out"),
        broken=dict.fromkeys(draw(some), "XLA says no"),
        in_cache=draw(some),
        memory={c: draw(st.sampled_from([0, 5000])) for c in found},
    )


def brute_force(toy, need_fit):
    """(seconds, candidate) of everything that can run, fastest first."""
    return sorted(
        (seconds, c)
        for c, seconds in toy.seconds.items()
        if c not in toy.refused
        and (c in toy.in_cache or c not in toy.broken)
        and not (need_fit and toy.memory.get(c, 0) > 1000)
    )


@given(toys(), st.integers(1, 5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_pruning_never_changes_the_best_and_everything_is_accounted_for(toy, top, need_fit):
    found = search(toy, list(toy.seconds), TOY, STUDY, top=top, need_fit=need_fit)
    best = [(round(r.estimate.latency_s, 9), r.candidate) for r in found.ranking[:top]]
    assert best == brute_force(toy, need_fit)[:top]
    named = [row.candidate for row in found.rejected] + [r.candidate for r in found.ranking]
    assert sorted(named) == sorted(toy.seconds)
    assert found.candidates == len(toy.seconds)
    assert found.lowered == len(toy.lowered)
    counts = found.counts
    assert sum(counts.values()) == found.candidates
    assert counts["ranked"] + counts["over_memory"] == found.evaluated
    assert found.evaluated + counts["refused_by_xla"] == found.lowered + found.from_cache


def test_a_perfect_bound_lowers_only_the_best():
    toy = Toy({c: float(i + 1) for i, c in enumerate(candidates(20))}, share=1.0)
    found = search(toy, candidates(20), TOY, STUDY, top=2)
    assert toy.lowered == candidates(2)
    assert [row.candidate for row in found.rejected] == candidates(20)[2:]
    assert found.rejected[0].why == "cannot beat 2 s: its lower bound is 3 s"


def test_cached_candidates_are_not_read_when_they_cannot_win():
    toy = Toy({c: float(i + 1) for i, c in enumerate(candidates(9))}, share=1.0)
    toy.in_cache = set(candidates(9))
    found = search(toy, candidates(9), TOY, STUDY, top=1)
    assert (found.from_cache, found.lowered, len(found.rejected)) == (1, 0, 8)


def test_a_second_search_reads_no_program_and_finds_the_same():
    toy = Toy({c: 7.0 - i % 3 for i, c in enumerate(candidates(9))})
    first = search(toy, candidates(9), TOY, STUDY, top=9)
    toy.in_cache, toy.read = set(candidates(9)), []
    again = search(toy, candidates(9), TOY, STUDY, top=9)
    assert again.ranking == first.ranking
    assert (again.from_cache, again.lowered, toy.read) == (9, 0, [])
    winner = again.ranking[0]
    assert winner.estimate.latency_s == winner.summary.latency_s
    assert toy.read == [winner.candidate]
    search(toy, candidates(9), replace(TOY, memory_bytes_per_s=1.0), STUDY, top=9)
    assert len(toy.read) == 1 + 9  # on another machine each is read


def test_rejections_say_why():
    first, second, third, fourth = candidates(4)
    toy = Toy(
        dict.fromkeys(candidates(4), 1.0),
        refused={first: "no such layout"},
        broken={second: "XLA says no"},
        memory={third: 5000, fourth: 950},
    )
    found = search(toy, candidates(4), TOY, STUDY)
    assert {row.candidate: row.why for row in found.rejected} == {
        first: "no such layout",
        second: "XLA says no",
        third: f"needs at least {bytes_text(2500)} per device, toy has {bytes_text(1000)}",
        fourth: f"needs {bytes_text(950 + 100)} per device, toy has {bytes_text(1000)}",
    }
    assert third not in toy.lowered
    assert found.counts == {
        "ranked": 0, "over_memory": 1, "rejected_before_lowering": 2, "refused_by_xla": 1,
        "pruned_by_bound": 0,
    }  # fmt: skip
    kept = search(toy, candidates(4), TOY, STUDY, need_fit=False)
    assert {r.candidate for r in kept.ranking} == {third, fourth}
    assert not any(r.estimate.memory.fits for r in kept.ranking)


def test_progress_ends_at_the_total():
    seen = []
    toy = Toy(dict.fromkeys(candidates(5), 1.0), in_cache=set(candidates(2)))
    search(toy, candidates(5), TOY, STUDY, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5), (5, 5)]


BOUNDS = [
    *(("tiny", (2, 2, 2), plan, 1)
      for plan in ("study", "study-balanced", "hybrid", "dp-attention", "study-gathered",
                   "tensor-parallel")),
    ("tiny", (1, 4, 1), "study-balanced", 1),
    ("tiny", (1, 1, 8), "dp-attention", 1),
    ("tiny", (2, 2, 1), "study", 2),
    ("tiny", (4, 2, 1), "study-auto", 1),
    ("r1", (2, 144, 1), "study", 1),
    ("r1", (4, 36, 2), "dp-attention", 1),
    ("r1", (2, 72, 2), "tensor-parallel", 1),
]  # fmt: skip


@pytest.mark.parametrize(("model", "mesh", "plan", "microbatches"), BOUNDS)
def test_the_bound_is_below_the_latency_of_the_real_program(model, mesh, plan, microbatches):
    seq, batch = (131072, 64) if model == "r1" else (256, 8)
    candidate = Candidate(plan, mesh, microbatches=microbatches)
    for attention in ("plain", "flash"):
        problem = ModelProblem(Request(model, (1, 1, 1), seq, batch, attention=attention))
        made = model_program(problem.request_of(candidate)).program
        for name in ("b300", "b300-photonic"):
            for rules in (STUDY, replace(STUDY, network="best"), CALIBRATED):
                bound_s = problem.bound_s(candidate, load(name), rules)
                assert 0 < bound_s <= price(made, load(name), rules).latency_s
        assert 0 < problem.least_bytes(candidate) <= made.weights_bytes + made.kv_cache_bytes


def test_decode_has_a_bound_too():
    problem = ModelProblem(Request("tiny", (1, 1, 1), 512, 8, phase="decode"))
    candidate = Candidate("dp-attention", (2, 2, 1))
    made = problem.lower(candidate)
    bound_s = problem.bound_s(candidate, load("b300"), STUDY)
    assert 0 < bound_s <= price(made, load("b300"), STUDY).latency_s
    assert problem.least_bytes(candidate) <= made.weights_bytes + made.kv_cache_bytes


def test_a_real_search_explains_itself():
    request = Request("tiny", (8, 1, 1), 64, 8)
    found = search(
        ModelProblem(request), space(8, ("study",)), load("b300"), CALIBRATED, top=3
    )  # fmt: skip
    assert found.candidates == 10
    assert found.evaluated >= 3
    first, second = found.ranking[:2]
    rows = why_it_wins(first, second)
    saved = sum(row.saved_s for row in rows)
    assert saved == pytest.approx(second.estimate.latency_s - first.estimate.latency_s, abs=1e-12)
    answer = to_json(request, [found, found], 3)
    assert answer["ratio"] == 1.0
    assert [row["mesh"] for row in answer["best"]] == [
        list(ranked.candidate.mesh) for ranked in found.ranking[:3]
    ]
    assert answer["winner"]["mesh"]["shape"] == answer["best"][0]["mesh"]


def test_what_cannot_be_built_is_rejected_with_the_reason():
    problem = ModelProblem(Request("tiny", (1, 1, 1), 64, 8))
    why = problem.reject(Candidate("study", (1, 16, 1)))
    assert why == "mesh: y = 16 devices, expected a divisor of the 8 experts of tiny"
    assert problem.reject(Candidate("study", (1, 8, 1))) is None
