"""Curves from points of an analytic source, whose error is known."""

from __future__ import annotations

from math import ceil

import pytest

from xla_cost.serving.points import Cost, decode_curves, geometric, prefill_curves, worst


class Counting:
    """A source that counts what it is asked for."""

    def __init__(self, cost) -> None:  # type: ignore[no-untyped-def]
        self.cost = cost
        self.asked: set[tuple[str, int, int]] = set()

    def __call__(self, phase, batch, length) -> Cost:  # type: ignore[no-untyped-def]
        self.asked.add((phase, batch, length))
        seconds = self.cost(phase, batch, length)
        return Cost(seconds, 7 * seconds)


def test_geometric_nodes_reach_the_end() -> None:
    assert geometric(1, 16) == [1, 4, 16]
    assert geometric(2, 20) == [2, 8, 20]
    assert geometric(5, 5) == [5]
    assert geometric(3, 12, 2) == [3, 6, 12]


def test_affine_decode_needs_no_more_nodes() -> None:
    source = Counting(lambda _, b, s: 1e-3 + 2e-6 * b + 3e-10 * b * s)
    made = decode_curves(source, 1000, (1024, 8192))
    assert made.time.contexts == (1024, 8192)
    assert made.time.batches == (1, 4, 16, 64, 256, 1000)
    assert worst(made.checks) < 1e-12
    # 1e-3 + 2e-6 * 300 + 3e-10 * 300 * 5000
    assert made.time.step(300, 5000) == pytest.approx(1e-3 + 6e-4 + 4.5e-4, rel=1e-12)
    assert made.energy.step(300, 5000) == pytest.approx(7 * 2.05e-3, rel=1e-12)


def test_a_kink_draws_nodes_until_it_is_met() -> None:
    # memory-bound up to 100 requests, then compute-bound
    source = Counting(lambda _, b, s: max(1e-3, 1e-5 * b) + 1e-12 * b * s)
    made = decode_curves(source, 1024, (1024, 2048), tolerance=0.02)
    assert len(made.time.batches) > 6
    assert worst(made.checks) < 0.03
    assert made.time.batches[0] == 1
    assert made.time.batches[-1] == 1024


def test_quantised_batches_are_exact_at_multiples_and_rounded_between() -> None:
    source = Counting(lambda _, b, s: 1e-3 * ceil(b / 24) + 1e-9 * s)
    made = decode_curves(source, 480, (1000, 2000), quantum=24, first=24)
    assert all(b % 24 == 0 for _, b, _ in source.asked)
    assert made.time.step(25, 1500) == pytest.approx(2e-3 + 1.5e-6, rel=1e-12)


def test_prefill_is_linear_in_tokens_and_quadratic_in_length() -> None:
    source = Counting(lambda _, b, s: 2e-3 + 1e-6 * b * s + 5e-11 * b * s * s)
    made = prefill_curves(source, 32768, typical=8192, longest=8192)
    assert worst(made.checks) < 1e-9
    assert made.time.batch([(8192, 0)] * 3) == pytest.approx(
        2e-3 + 1e-6 * 24576 + 5e-11 * 3 * 8192**2, rel=1e-12
    )
    # a prompt of 8192 in two chunks costs one fixed part more, its attention stays the same
    halves = made.time.batch([(4096, 0)]) + made.time.batch([(4096, 4096)])
    assert halves == pytest.approx(made.time.batch([(8192, 0)]) + 2e-3, rel=1e-3)
    assert made.energy.batch([(8192, 0)]) == pytest.approx(7 * made.time.batch([(8192, 0)]))


def test_lengths_that_never_come_are_not_lowered() -> None:
    source = Counting(lambda _, b, s: 1e-6 * b * s)
    prefill_curves(source, 32768, typical=8192, longest=8192, shortest=8192)
    assert {length for _, _, length in source.asked} == {8192}


def test_what_no_node_can_follow_shows_in_the_error() -> None:
    wild = Counting(lambda _, b, s: 1e-3 * (2 + (b * 7919) % 13 / 13))
    made = decode_curves(wild, 4096, (64, 64))
    assert worst(made.checks) > 0.03
    assert len(made.time.batches) <= 7 + 8
