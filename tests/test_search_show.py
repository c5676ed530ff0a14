"""A search on the terminal and its exit code: counts that add up, nothing cut without a word."""

import io
import json

import pytest
from price_programs import dot, machine, program
from rich.console import Console

from xla_cost.cli.app import run
from xla_cost.policy import STUDY
from xla_cost.price import price
from xla_cost.search.candidates import Candidate
from xla_cost.search.engine import Ranked, Rejected, SearchResult
from xla_cost.search.summary import Summary
from xla_cost.show.search import show_search

PARTS = ("a", "b", "c", "d", "e", "f")


def ranked(y, seconds):
    """A candidate whose parts run one after another."""
    nodes = [
        dot(part, (i - 1,) if i else (), one, scope=part)
        for i, (part, one) in enumerate(zip(PARTS, seconds, strict=True))
    ]
    estimate = price(program(*nodes), machine(), STUDY)
    return Ranked(Candidate("study", (1, y, 1)), Summary.of(estimate), lambda: estimate)


def shown(*rejected):
    winner, second = ranked(2, (1, 1, 1, 1, 1, 1)), ranked(4, (9, 8, 7, 6, 3, 1.5))
    rows = tuple(Rejected(Candidate("study", (1, 8, 1)), *row) for row in rejected)
    result = SearchResult(machine(), STUDY, 2 + len(rows), (winner, second), rows, 2, 0, 0.0)
    out = io.StringIO()
    show_search(Console(file=out, width=300, color_system=None), [result], 10)
    return out.getvalue()


def test_smaller_differences_are_added_up():
    # 8, 7, 6 and 5 s are spelled out; e and f are left: (3 - 1) + (1.5 - 1)
    assert "a -8 s, b -7 s, c -6 s, d -5 s, and 2 smaller, together -2.50 s" in shown()


def test_every_candidate_is_counted_once_and_reasons_left_out_are_counted():
    text = shown(
        ("full", "memory"), ("slow", "bound"), ("slow", "bound"), ("no", "xla"),
        *((f"reason {name}", "layout") for name in "abc"),
    )  # fmt: skip
    assert (
        "9 candidates: 2 ranked, 1 priced but over memory, 3 rejected before lowering, "
        "1 refused by XLA, 2 pruned by bound"
    ) in text
    assert "2 x slow" in text
    # six reasons for seven candidates, of which slow and three of one each are shown
    assert f"and {6 - 4} more reasons for {7 - 2 - 3} candidates" in text


def test_reasons_that_differ_in_figures_are_one_reason():
    text = shown(
        ("needs 300 GB per device, b300 has 288 GB", "memory"),
        ("needs 1.18 TB per device, b300 has 288 GB", "memory"),
        ("cannot beat 2e-05 s: its lower bound is 0.3 s", "bound"),
        ("cannot beat 2e-05 s: its lower bound is 4.5e-05 s", "bound"),
    )
    assert "2 such as: needs 300 GB per device, b300 has 288 GB" in text
    assert "2 such as: cannot beat 2e-05 s: its lower bound is 0.3 s" in text
    assert "more reason" not in text


SEARCH = ["search", "tiny", "--machine", "b300", "--seq", "16", "--processes", "0", "-q"]


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """Runs a search in a cache of its own; gives its exit code and JSON."""
    monkeypatch.setenv("XLA_COST_CACHE", str(tmp_path / "cache"))

    def search(*more):
        place = tmp_path / "r.json"
        return run([*SEARCH, *more, "--json", str(place)]), json.loads(place.read_text())

    return search


def test_where_nothing_can_run_the_exit_code_is_1_and_the_json_says_why(answer):
    # x: one token, y: eight experts, z: an FFN of width 32; none can be dealt to 37 devices
    code, found = answer("--devices", "37", "--batch", "1", "--seq", "1")
    assert (code, found["best"], len(found["rejected"])) == (1, [], 3)
    assert found["counts"]["rejected_before_lowering"] == 3


def test_what_is_asked_twice_is_searched_once(answer):
    code, found = answer(
        "--devices", "2", "--batch", "8", "--plan", "study,study", "--microbatches", "1,1"
    )
    assert (code, found["candidates"]) == (0, 3)  # 2x1x1, 1x2x1, 1x1x2
    assert sum(found["counts"].values()) == 3
