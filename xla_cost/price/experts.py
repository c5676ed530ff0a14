"""Products of experts as a step runs them: the load of the busiest rank, the experts in use.

A program has slots for tokens and every expert's weights in it. A grouped GEMM reads the weights
of those experts alone that some token of the step goes to, which at small batches are few.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from xla_cost.policy import Policy
from xla_cost.program import Matmul, Op, Program

#: bytes of a weight in the format that it is stored and multiplied in
_WIDTH = {"fp4": 0.5, "int4": 0.5, "fp8": 1.0, "int8": 1.0, "fp16": 2.0, "bf16": 2.0, "tf32": 4.0,
          "fp32": 4.0, "fp64": 8.0}  # fmt: skip
#: an expert that is there in the last digits of a sum only
_ROUNDING = 1e-9
#: of more experts than these on a rank the busiest one's share is the mean, within a percent or two
_MANY = 4096


class InUse(NamedTuple):
    """Experts of the busiest rank that have a token, of those it has."""

    used: int
    local: int

    @property
    def share(self) -> float:
        """Part of the weights that is read."""
        return self.used / self.local


def grouped_work(op: Op, bytes_read: int, policy: Policy) -> tuple[tuple[Matmul, ...], int]:
    """The products of `op`, and the bytes it reads, on the busiest rank of experts.

    `expert_imbalance` multiplies the rows per expert. With `experts_in_use` a marked product has
    the experts in use alone, whose rows hold all the pairs of token and expert that the rank
    expects (or as many as the program has slots for), and the others' weights are not read.
    What is not of experts stays as it is.
    """
    if not any(_is_grouped(op, matmul) for matmul in op.matmuls):
        return op.matmuls, bytes_read
    found = []
    skipped_bytes = 0.0
    for matmul in op.matmuls:
        if _is_grouped(op, matmul):
            if policy.expert_imbalance != 1.0:
                matmul = replace(matmul, m=math.ceil(matmul.m * policy.expert_imbalance))
            in_use = experts_in_use(op, matmul, policy)
            if in_use is not None and in_use.used < in_use.local:
                idle = in_use.local - in_use.used
                skipped_bytes += idle * matmul.n * matmul.k * _WIDTH.get(matmul.format, 4.0)
                matmul = _of_used(op, matmul, in_use, policy.expert_imbalance)
        found.append(matmul)
    return tuple(found), max(0, bytes_read - int(skipped_bytes))


def _of_used(op: Op, matmul: Matmul, in_use: InUse, imbalance: float) -> Matmul:
    """The product of the experts in use: no pair of token and expert is lost by skipping."""
    pairs = op.routed_tokens * op.top_k * in_use.local / op.routed_experts * imbalance
    rows = min(pairs, float(matmul.m * in_use.local))
    return replace(matmul, batch=in_use.used, m=max(matmul.m, math.ceil(rows / in_use.used)))


def experts_in_use(op: Op, matmul: Matmul, policy: Policy) -> InUse | None:
    """Whole experts in use on the busiest rank; None where the policy or the mark do not say.

    At least one, for every step has a token; a rank with `imbalance` times the mean load sees
    its experts drawn that many times as often.
    """
    known = op.routed_tokens > 0 and 0 < op.top_k <= op.routed_experts
    if not policy.experts_in_use or not known or not matmul.batch:
        return None
    local = matmul.batch
    ranks = max(1, op.routed_experts // local)
    tokens = op.routed_tokens * policy.expert_imbalance
    share = busiest_share(tokens, op.top_k, op.routed_experts, ranks)
    return InUse(min(local, max(1, math.ceil(local * share - _ROUNDING))), local)


@lru_cache(maxsize=4096)
def busiest_share(tokens: float, top_k: int, experts: int, ranks: int) -> float:
    """Expected share of the experts in use on the rank that uses most, of `experts / ranks` each.

    Each token goes to `top_k` distinct experts, evenly at random: an expert has none with
    (1 - top_k / experts)^tokens. The n experts of a rank are taken as independent, so that the
    count F(k) of those in use is binomial; the expected largest of `ranks` counts is the sum
    over k < n of 1 - F(k)^ranks (order statistics: David and Nagaraja, 2003, 2.1 and 3.1).
    Group-limited routing, which sends a token to fewer ranks, is left out.
    """
    chosen = 1.0 - math.pow(1.0 - top_k / experts, tokens)
    count = experts // ranks
    if not 0.0 < chosen < 1.0 or count > _MANY:
        return chosen
    expected = below = 0.0
    for k in range(count):
        below += math.exp(
            math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
            + k * math.log(chosen) + (count - k) * math.log1p(-chosen)
        )  # fmt: skip
        expected += 1.0 - min(1.0, below) ** ranks
    return expected / count


def most_in_use(program: Program, policy: Policy) -> InUse | None:
    """The experts in use of the product with the largest share; None where no product says."""
    known = (
        experts_in_use(op, matmul, policy)
        for op, _ in program.walk()
        for matmul in op.matmuls
        if _is_grouped(op, matmul)
    )
    return max(filter(None, known), key=lambda found: found.share, default=None)


def _is_grouped(op: Op, matmul: Matmul) -> bool:
    """Whether a product is one of experts: a ragged dot, or a batched one in a marked region."""
    return matmul.grouped or op.region == "grouped_gemm"
