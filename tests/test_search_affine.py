"""Ledgers at a new batch out of those at three others: exact, or not at all."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from price_programs import dot, gather, loop, program

from xla_cost.cache import Cache
from xla_cost.program import Body
from xla_cost.programs import Found, Request, cached_program, store_program
from xla_cost.search.affine import interpolate, is_affine
from xla_cost.search.candidates import Candidate
from xla_cost.search.model_problem import ModelProblem


def made(batch, constant=3, per_sequence=5, seconds=1.0):
    """A loop whose gather sends `constant + per_sequence * batch` bytes."""
    body = Body((dot("d", (), seconds), gather("g", (0,), constant + per_sequence * batch, 4)))
    return replace(program(loop(body, 7)), provenance=(("batch", str(batch)),))


def sent(ledger):
    return next(op.collective.payload_bytes for op, _ in ledger.walk() if op.collective)


@given(st.integers(0, 50), st.integers(0, 9), st.lists(st.integers(1, 64), min_size=3, unique=True))
def test_an_affine_ledger_is_found_at_any_batch(constant, slope, batches):
    low, middle, high = sorted(batches)[:3]
    ledgers = {b: made(b, constant, slope) for b in (low, middle, high)}
    ends = ((low, ledgers[low]), (high, ledgers[high]))
    assert is_affine(*ends, (middle, ledgers[middle]))
    assert sent(interpolate(*ends, middle)) == constant + slope * middle


def test_a_ledger_off_the_line_is_noticed():
    ends = ((2, made(2)), (6, made(6)))
    assert is_affine(*ends, (4, made(4)))
    assert not is_affine(*ends, (4, made(4, constant=4)))


def test_other_structure_other_words_and_fractions_are_no_line():
    ends = (2, made(2)), (6, made(6))
    more = program(dot("d", (), 1.0))
    assert interpolate(ends[0], (6, more), 4) is None
    renamed = replace(made(6), name="other")
    assert interpolate(ends[0], (6, renamed), 4) is None
    # 3 + 5 * 2 = 13 and 3 + 5 * 6 + 1 = 34 bytes: 23.5 half-way
    assert interpolate(ends[0], (6, made(6, constant=4)), 4) is None


def test_nothing_becomes_negative():
    # 30 - 5 * 2 = 20, 30 - 5 * 6 = 0 bytes; at 8 it would be -10
    first, second = (2, made(2, 30, -5)), (6, made(6, 30, -5))
    assert interpolate(first, second, 8) is None
    assert sent(interpolate(first, second, 4)) == 10


@pytest.fixture
def stored(tmp_path):
    """A cache with ledgers of a tiny workload at batches 8, 16 and 64, on one line."""
    cache = Cache(tmp_path)
    for batch in (8, 16, 64):
        store_program(Request("tiny", (2, 2, 1), 64, batch), made(batch), cache)
    return cache


def test_a_batch_between_three_known_ones_is_computed_and_kept(stored, monkeypatch):
    monkeypatch.setattr("xla_cost.search.model_problem.model_program", None)  # must not be needed
    problem = ModelProblem(Request("tiny", (4, 1, 1), 64, 32), stored, (8, 16, 32, 64))
    candidate = Candidate("study", (2, 2, 1))
    assert problem.lower(candidate).entry == made(32).entry
    assert cached_program(problem.request_of(candidate), stored).entry == made(32).entry


@pytest.mark.parametrize(
    ("batch", "why"),
    [(128, "beyond the known batches"), (9, "padded on x = 2"), (12, "split over x otherwise")],
)
def test_any_other_batch_is_lowered(stored, monkeypatch, batch, why):
    monkeypatch.setattr(
        "xla_cost.search.model_problem.model_program",
        lambda request, cache: Found(made(batch, constant=1), {}, False),
    )
    mesh = (16, 2, 1) if batch == 12 else (2, 2, 1)
    problem = ModelProblem(Request("tiny", (4, 1, 1), 64, batch), stored, (8, 16, 64, batch))
    assert problem.lower(Candidate("study", mesh)).entry == made(batch, constant=1).entry
