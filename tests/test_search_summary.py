"""Figures kept between searches: the same as pricing gives, and never those of another question."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from xla_cost import cache as cache_module
from xla_cost.cache import Cache
from xla_cost.machine import load
from xla_cost.policy import CALIBRATED, STUDY
from xla_cost.price import price
from xla_cost.programs import Request
from xla_cost.search import summary as summaries
from xla_cost.search.candidates import space
from xla_cost.search.engine import search
from xla_cost.search.model_problem import ModelProblem
from xla_cost.search.summary import Summary, keep_summary, kept_summary

REQUEST = Request("tiny", (2, 2, 1), 64, 8)
FOUND = Summary(4.0, 3.0, 2.0, 1.0, 5.0, 10, 20.0)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def test_what_was_kept_comes_back_for_the_same_question_only(cache, monkeypatch):
    b300 = load("b300")
    keep_summary(REQUEST, b300, CALIBRATED, FOUND, cache)
    assert kept_summary(REQUEST, b300, CALIBRATED, cache) == FOUND
    slower = replace(b300, memory_bytes_per_s=b300.memory_bytes_per_s / 2)
    assert kept_summary(REQUEST, slower, CALIBRATED, cache) is None
    assert kept_summary(REQUEST, b300, STUDY, cache) is None
    assert kept_summary(REQUEST, b300, replace(CALIBRATED, latency=False), cache) is None
    assert kept_summary(replace(REQUEST, batch=16), b300, CALIBRATED, cache) is None
    monkeypatch.setattr(summaries, "PRICING", ("price",))  # other code
    assert kept_summary(REQUEST, b300, CALIBRATED, cache) is None


@pytest.mark.parametrize(
    "wrong",
    [None, [], "text", {}, {"latency_s": "1"}, {"latency_s": -1.0}, {"latency_s": True},
     {"latency_s": None}, {"more": 1}],
)  # fmt: skip
def test_an_entry_that_is_no_summary_counts_as_absent(cache, wrong):
    key = summaries._key(REQUEST, load("b300"), CALIBRATED)
    cache.put_json(key, asdict(FOUND) | wrong if isinstance(wrong, dict) and wrong else wrong)
    assert kept_summary(REQUEST, load("b300"), CALIBRATED, cache) is None


def test_every_module_that_pricing_uses_counts():
    """What is in neither list decides no number: messages, units of tables, JSON files."""
    counted = {name.removesuffix(".py") for name in (*summaries.PRICING, *cache_module._SOURCES)}
    package = Path(cache_module.__file__).parent
    used = set()
    for name in ("price", "network", "kernel_time", "machine"):
        for path in (package / name).rglob("*.py"):
            used |= set(re.findall(r"from xla_cost\.(\w+)", path.read_text(encoding="utf-8")))
    assert used - counted == {"errors", "units", "jsonio"}


def test_infinite_figures_are_not_kept(cache):
    keep_summary(REQUEST, load("b300"), STUDY, replace(FOUND, latency_s=float("inf")), cache)
    assert kept_summary(REQUEST, load("b300"), STUDY, cache) is None


def test_a_repeated_search_has_the_figures_of_its_estimates(cache):
    problem = ModelProblem(REQUEST, cache)
    candidates = space(4, ("study",))
    first = search(problem, candidates, load("b300"), CALIBRATED, top=99)
    again = search(ModelProblem(REQUEST, cache), candidates, load("b300"), CALIBRATED, top=99)
    assert again.ranking == first.ranking
    assert again.from_cache == len(first.ranking) > 2
    for ranked in again.ranking:
        program = problem.cached(ranked.candidate)
        assert Summary.of(price(program, load("b300"), CALIBRATED)) == ranked.summary
        assert Summary.of(ranked.estimate) == ranked.summary


def test_a_summary_outlives_its_program(cache):
    """Somebody cleared half of the cache: the estimate is made again."""
    problem = ModelProblem(REQUEST, cache)
    first = search(problem, space(2, ("study",)), load("b300"), STUDY)
    cache.path_of(problem.request_of(first.ranking[0].candidate).key()).unlink()
    again = search(ModelProblem(REQUEST, cache), space(2, ("study",)), load("b300"), STUDY)
    assert again.ranking[0].estimate.latency_s == first.ranking[0].summary.latency_s
