"""What bounds a run and what would help, on ledgers whose answers are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from price_programs import dot, gather, machine, program, vector
from report_results import RESULTS, search_result, serve_result, sweep_result

from xla_cost.errors import XlaCostError
from xla_cost.policy import STUDY
from xla_cost.price import compare, price
from xla_cost.report.explain import explain, what_ifs
from xla_cost.report.result_file import checked
from xla_cost.report.sentences import sentences
from xla_cost.search.candidates import Candidate
from xla_cost.search.engine import Ranked, SearchResult
from xla_cost.search.summary import Summary


def gains(nodes, **changes) -> dict[str, float]:
    estimate = price(program(*nodes), machine(**changes), STUDY)
    return {one.change: one.gain for one in what_ifs(estimate)}


def test_twice_of_what_bounds_it_is_twice_as_fast():
    """Only a matmul: twice the FLOP/s, twice as fast, and nothing else helps."""
    assert gains([dot("dot", (), 2.0)]) == {
        "twice the FLOP/s": 2.0, "twice the memory bandwidth": 1.0,
        "twice the scale-up bandwidth": 1.0, "twice the scale-out bandwidth": 1.0,
        "half the network latency": 1.0, "pods of 8 instead of 4": 1.0,
    }  # fmt: skip


def test_amdahl():
    """2 s of matmul, then 3 x 40 B at 100 B/s = 1.2 s: 3.2 / 2.2 and 3.2 / 2.6."""
    found = gains([dot("dot", (), 2.0), gather("gather", (0,), 40, 4)])
    assert found["twice the FLOP/s"] == pytest.approx(3.2 / 2.2)
    assert found["twice the scale-up bandwidth"] == pytest.approx(3.2 / 2.6)
    assert found["twice the scale-out bandwidth"] == 1.0


def test_larger_pods_help_groups_that_leave_the_pod():
    """Eight devices in pods of four; in one pod of eight nothing crosses."""
    nodes = [gather("gather", (), 40, 8)]
    estimate = price(program(*nodes, devices=8), machine(), STUDY)
    larger = price(program(*nodes, devices=8), machine(pod=8), STUDY)
    found = {one.change: one.gain for one in what_ifs(estimate)}
    assert found["pods of 8 instead of 4"] == pytest.approx(estimate.latency_s / larger.latency_s)
    assert found["pods of 8 instead of 4"] > 2.0


def test_sentences_of_an_estimate():
    made = program(dot("dot", (), 2.0), gather("gather", (0,), 40, 4, scope="layer/comm"))
    text = " ".join(explain(price(made, machine(), STUDY)))
    for words in (
        "the run takes 3.20 s and waits for the matrix units for 62% and the network for 38%",
        "The largest part is ffn: 62%, 2 s of computing.",
        "the all-gather in layer/comm: 1 times 40 B in groups of 4 over scale-up, 1.20 s of which "
        "1.20 s are exposed",
        "100% of the network time is exposed: overlapping all of it with computing would make the "
        "run at most 1.60 times as fast",
        "What would help most is twice the FLOP/s: 1.45 times as fast",
        "It fits: each device needs 300 B of 1 kB (30%).",
    ):
        assert words in text


def test_overlap_that_is_exhausted():
    """Gather and matmul start together; the gather is hidden already."""
    made = program(gather("gather", (), 40, 4), dot("dot", (), 2.0))
    assert any("Overlap is exhausted" in line for line in explain(price(made, machine(), STUDY)))


def test_nothing_to_explain_and_nothing_that_fits():
    (only,) = explain(price(program(), machine(), STUDY))
    assert "nothing in toy takes time" in only
    full = replace(program(dot("dot", (), 1.0)), parameter_bytes=5000)
    lines = explain(price(full, machine(), STUDY))
    assert lines[-1] == "It does not fit: each device needs 5.10 kB of 1 kB."
    assert "It does not communicate." in lines


def test_other_kinds_of_results():
    result = search_result()
    del result["winner"]
    text = " ".join(sentences(checked(result, "r.json")))
    assert "Of 3 candidates the best is mesh 2x4x1 under plan study: 1 s." in text
    assert "The second, 1x8x1, is 50.0% slower. It wins most in comm: 500 ms." in text
    text = " ".join(sentences(checked(sweep_result(), "r.json")))
    assert "8 points, 1 without a mesh that works." in text
    assert "gain most at 16 devices, 1024 tokens x 4 on toy: 4.00 times" in text
    assert "gain least at 8 devices, 8192 tokens x 4 on toy: 2.00 times" in text
    text = " ".join(sentences(checked(serve_result(), "r.json")))
    assert "within 100 ms, 99 % within 1.50 s" in text
    assert "What holds it back: prefill." in text
    assert "Later tokens come every" in text
    single = serve_result()
    single["tpot_s"] = dict.fromkeys(single["tpot_s"])  # null, as where answers have one token
    assert "Later tokens" not in " ".join(sentences(checked(single, "r.json")))
    with pytest.raises(XlaCostError, match="kind study; expected one of"):
        sentences(checked(RESULTS["study"](), "r.json"))


HOSTILE = "<img src=x onerror=alert(1)>&\"'"


def test_notebook_tables_escape_names():
    made = program(dot("dot", (), 1.0, scope=HOSTILE), vector("a", "add", (0,), 100, 100))
    made = replace(made, name=HOSTILE)
    one = price(made, replace(machine(), name=HOSTILE), STUDY)
    two = price(made, replace(machine(scale_up=200.0), name="other"), STUDY)
    ranked = Ranked(Candidate(HOSTILE, (2, 2, 1)), Summary.of(one), lambda: one)
    search = SearchResult(one.machine, STUDY, 1, (ranked,), (), 1, 0, 0.5)
    for shown in (one, compare(one, two), search):
        text = shown._repr_html_()
        assert text.startswith("<table>")
        assert "<img" not in text
        assert "&lt;img src=x onerror=alert(1)&gt;&amp;" in text
    assert "1 of 1 candidates, 0 rejected" in search._repr_html_()
