"""Curves, and sums of decode steps in closed form against adding them one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_cost.errors import XlaCostError
from xla_cost.serving.clock import TICKS_PER_S, UNITS_PER_TOKEN
from xla_cost.serving.curves import (
    DecodeCurve,
    LatencyCurves,
    PrefillCurve,
    affine_decode,
    affine_prefill,
    interpolate,
)
from xla_cost.serving.steps import StepTable, run_ticks, step_ticks, steps_until


def test_interpolation_hits_nodes_and_goes_on_outside() -> None:
    nodes, values = (10, 20, 40), (1.0, 3.0, 4.0)
    assert [interpolate(nodes, values, x) for x in (10, 20, 40)] == [1.0, 3.0, 4.0]
    assert interpolate(nodes, values, 15) == 2.0
    assert interpolate(nodes, values, 30) == 3.5
    assert interpolate(nodes, values, 0) == -1.0
    assert interpolate(nodes, values, 60) == 5.0
    assert interpolate((7,), (2.5,), 1000) == 2.5


def test_affine_prefill_is_fixed_plus_tokens_plus_pairs() -> None:
    curve = affine_prefill(fixed=0.5, per_token=0.25, per_token_and_length=0.125)
    # two whole prompts of 4 and 8 tokens: 0.5 + 0.25 * 12 + 0.125 * (4 * 4 + 8 * 8)
    assert curve.batch([(4, 0), (8, 0)]) == 0.5 + 3.0 + 10.0
    # a chunk of 3 after 5 has 3 * (2 * 5 + 3) / 2 query-key pairs, twice that times 0.125
    assert curve.batch([(3, 5)]) == 0.5 + 0.75 + 0.125 * 39
    assert curve.batch([]) == 0.0


def test_chunks_of_a_prompt_have_the_attention_of_the_whole() -> None:
    curve = affine_prefill(fixed=0.0, per_token=0.25, per_token_and_length=0.125)
    parts = curve.batch([(6, 0)]) + curve.batch([(4, 6)]) + curve.batch([(22, 10)])
    assert parts == curve.batch([(32, 0)]) == 0.25 * 32 + 0.125 * 32 * 32


def test_sequences_are_rounded_up_to_the_places_they_are_spread_over() -> None:
    curve = PrefillCurve((0, 1), (0.0, 1.0), sequence_quantum=4)
    assert curve.batch([(10, 0)] * 4) == 40.0
    assert curve.batch([(10, 0)] * 5) == 80.0  # one place has two prompts, as with 8


def test_affine_decode() -> None:
    curve = affine_decode(fixed=1.0, per_request=0.5, per_context_token=0.25)
    assert curve.step(8, 100) == 1.0 + 0.5 * 8 + 0.25 * 800


def test_decode_batches_are_rounded_up_and_drafts_are_rows() -> None:
    curve = DecodeCurve((8, 16), (0, 100), ((1.0, 2.0), (3.0, 6.0)), batch_quantum=8)
    assert curve.step(1, 100) == curve.step(8, 100) == 2.0
    assert curve.step(9, 50) == 4.5
    drafted = DecodeCurve(
        (8, 16), (0, 100), ((1.0, 2.0), (3.0, 6.0)), rows_per_request=2, scale=1.5
    )
    assert drafted.step(8, 0) == 1.5 * 3.0


def test_bad_nodes_are_named() -> None:
    with pytest.raises(XlaCostError, match="prefill curve tokens: 2 nodes with 1 values"):
        PrefillCurve((1, 2), (1.0,))
    with pytest.raises(XlaCostError, match="decode curve contexts: nodes \\[5, 5\\]"):
        DecodeCurve((1,), (5, 5), ((1.0, 1.0),))
    with pytest.raises(XlaCostError, match="no decode curve"):
        LatencyCurves().decode_step_s(1, 1)


def test_pieces_of_an_affine_curve_are_its_coefficients() -> None:
    table = StepTable(affine_decode(fixed=2.0, per_request=0.5, per_context_token=1 / 1024))
    # 3 requests with 30 tokens in all: 2 + 1.5 + 30 / 1024 s
    ticks = table.step(3, 30 * UNITS_PER_TOKEN)
    assert ticks == 7 * TICKS_PER_S // 2 + 30 * TICKS_PER_S // 1024


knots = st.lists(st.integers(1, 200), min_size=1, max_size=5)


@given(
    widths=knots,
    values=st.lists(st.floats(1e-15, 1e-3), min_size=6, max_size=6),
    batch=st.integers(1, 5),
    start=st.integers(0, 600),
    growth=st.integers(0, 5000),
    steps=st.integers(1, 60),
    share=st.integers(0, 100),
)
def test_a_stretch_is_the_sum_of_its_steps(
    widths: list[int],
    values: list[float],
    batch: int,
    start: int,
    growth: int,
    steps: int,
    share: int,
) -> None:
    contexts = tuple(sum(widths[:i]) for i in range(len(widths) + 1))
    curve = DecodeCurve((1,), contexts, (tuple(values[: len(contexts)]),))
    pieces = StepTable(curve).pieces(batch)
    context = start * UNITS_PER_TOKEN
    single = [step_ticks(pieces, context + i * growth) for i in range(steps)]
    assert run_ticks(pieces, context, growth, steps) == sum(single)
    ticks = sum(single) * share // 100
    fewest = next(n for n in range(1, steps + 1) if sum(single[:n]) >= ticks)
    assert steps_until(pieces, context, growth, ticks, steps) == fewest
