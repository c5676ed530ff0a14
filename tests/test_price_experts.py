"""Experts in use: which of a rank's experts a step reads, and what that saves."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_cost.policy import CALIBRATED, STUDY, Policy, policy
from xla_cost.price import price
from xla_cost.price.experts import (
    InUse,
    busiest_share,
    experts_in_use,
    grouped_work,
    most_in_use,
)
from xla_cost.program import Body, Matmul, Op, Program
from xla_cost.show.estimate import assumptions

INNER, HIDDEN = 2048, 7168
WEIGHT = INNER * HIDDEN  # bytes of one expert's matrix in fp8


def product(tokens: int, ranks: int = 8, experts: int = 256, top_k: int = 8, **changes) -> Op:
    """One marked product of experts with the slots that even routing needs."""
    local, rows = experts // ranks, ceil(tokens * top_k / experts)
    op = Op(
        "gate", "kernel", "kernel", (), matmuls=(Matmul(local, rows, INNER, HIDDEN, "fp8"),),
        region="grouped_gemm", bytes_read=local * (WEIGHT + rows * HIDDEN),
        bytes_written=local * rows * INNER * 2, routed_tokens=tokens, routed_experts=experts,
        top_k=top_k,
    )  # fmt: skip
    return replace(op, **changes)


def latency_s(op: Op, rules: str | Policy = "calibrated") -> float:
    return price(Program("p", 1, Body((op,)), 0, 0), "h200", rules).latency_s


def test_busiest_rank_is_the_expected_largest_of_binomial_counts() -> None:
    # one rank: the mean, 1 - (1 - 1/8)^3 with one expert per token, 1 - (1 - 2/8)^3 with two
    assert busiest_share(3, 1, 8, 1) == pytest.approx(1 - (7 / 8) ** 3)
    assert busiest_share(3, 2, 8, 1) == pytest.approx(1 - (6 / 8) ** 3)
    # two ranks of one expert each, p = 1/2: one of them is in use unless neither is
    assert busiest_share(1, 1, 2, 2) == pytest.approx(1 - (1 / 2) ** 2)
    # two ranks of two experts, p = 1/4: P(largest >= 1) + P(largest >= 2), halved
    at_least_one, both = 1 - (3 / 4) ** 4, 1 - (1 - (1 / 4) ** 2) ** 2
    assert busiest_share(1, 1, 4, 2) == pytest.approx((at_least_one + both) / 2)
    assert busiest_share(10**6, 8, 256, 8) == 1.0


def test_one_token_top_8_of_256_over_8_ranks() -> None:
    # 8 pairs over 8 ranks: each of a rank's 32 experts with 1/32, the largest of 8 counts
    def at_most(k: int) -> float:
        return sum(comb(32, j) * (1 / 32) ** j * (31 / 32) ** (32 - j) for j in range(k + 1))

    expected = sum(1 - at_most(k) ** 8 for k in range(32))
    assert 32 * busiest_share(1, 8, 256, 8) == pytest.approx(expected)
    (found,), read = grouped_work(product(1), product(1).bytes_read, CALIBRATED)
    assert found == Matmul(ceil(expected), 1, INNER, HIDDEN, "fp8")
    assert read == product(1).bytes_read - (32 - ceil(expected)) * WEIGHT
    # one rank has them all: the token's own 8
    (alone,), _ = grouped_work(product(1, ranks=1), 0, CALIBRATED)
    assert alone.batch == 8


def test_independent_experts_are_close_to_exact_where_all_cases_can_be_listed() -> None:
    # one token, 2 of 4 experts over 2 ranks: 2 of the 6 pairs lie on one rank, 4 on both
    assert 2 * busiest_share(1, 2, 4, 2) == pytest.approx((2 * 2 + 4 * 1) / 6, rel=0.05)


def test_experts_that_no_token_goes_to_are_neither_multiplied_nor_read() -> None:
    # 8 of 32 experts on one rank: 24 weight matrices of 14.7 MB less to read at 4.8 TB/s
    op = product(1, ranks=1, experts=32)
    saved = 24 * WEIGHT / 4.8e12
    whole = latency_s(op, policy("calibrated", experts_in_use=False))
    assert whole - latency_s(op) == pytest.approx(saved / 0.8, rel=0.1)
    assert whole == latency_s(replace(op, routed_tokens=0))  # a mark that does not say


def test_a_large_batch_changes_nothing() -> None:
    op = product(8192)
    assert grouped_work(op, op.bytes_read, CALIBRATED) == (op.matmuls, op.bytes_read)
    assert latency_s(op) == latency_s(op, policy("calibrated", experts_in_use=False))


def test_the_study_reads_what_the_program_reads() -> None:
    assert not STUDY.experts_in_use
    op = product(1)
    assert grouped_work(op, op.bytes_read, STUDY) == (op.matmuls, op.bytes_read)
    assert latency_s(op, "study") == latency_s(replace(op, routed_tokens=0), "study")


@given(
    tokens=st.integers(1, 4096), more=st.integers(0, 512), ranks=st.sampled_from([1, 4, 32, 256])
)
def test_a_larger_batch_is_never_faster_and_loses_no_pair(
    tokens: int, more: int, ranks: int
) -> None:
    few, many = product(tokens, ranks), product(tokens + more, ranks)
    assert latency_s(few) <= latency_s(many) * (1 + 1e-12)
    (used,), read = grouped_work(few, few.bytes_read, CALIBRATED)
    (whole,) = few.matmuls
    assert 1 <= used.batch <= whole.batch
    assert used.batch * WEIGHT <= read <= few.bytes_read
    assert used.batch * used.m >= tokens * 8 / ranks - 1e-6


def test_slots_that_the_program_lacks_are_not_made_up() -> None:
    # capacity 1/4: 64 tokens x 8 pairs want 2 rows of each expert, the program has 1
    op = product(64, ranks=1, matmuls=(Matmul(256, 1, INNER, HIDDEN, "fp8"),))
    (used,), _ = grouped_work(op, op.bytes_read, CALIBRATED)
    assert used.batch < 256
    assert used.m == ceil(256 / used.batch)


def test_imbalance_is_more_rows_and_more_experts_on_the_busiest_rank() -> None:
    even, loaded = policy("calibrated"), policy("calibrated", expert_imbalance=4.0)
    op = product(4, ranks=1)
    (matmul,) = op.matmuls
    # four times the load of 4 tokens is that of 16
    assert experts_in_use(op, matmul, loaded) == experts_in_use(product(16, 1), matmul, even)
    assert latency_s(op, loaded) > latency_s(op)
    big = product(8192)  # all in use: rows alone, as before
    (matmul,), _ = grouped_work(big, big.bytes_read, loaded)
    assert (matmul.batch, matmul.m) == (32, 4 * 8192 * 8 // 256)


def test_a_mark_without_sense_is_left_alone() -> None:
    for op in (product(4, top_k=0), product(4, top_k=300), product(4, region="router")):
        assert grouped_work(op, op.bytes_read, CALIBRATED) == (op.matmuls, op.bytes_read)


def test_an_estimate_says_what_it_reads() -> None:
    program = Program("p", 1, Body((product(1, ranks=1),)), 0, 0)
    assert most_in_use(program, CALIBRATED) == InUse(8, 256)
    assert (
        "experts in use: 3% of the local experts' weights are read per layer (8 of 256 on the "
        "busiest rank), random routing"
    ) in assumptions(program, CALIBRATED, {})
    assert not any("experts in use" in line for line in assumptions(program, STUDY, {}))
