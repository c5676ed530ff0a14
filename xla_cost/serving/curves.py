"""Latency and energy of a worker as plain frozen values: prefill batches and decode steps.

Prefill: a batch costs g(T) + sum of q * h(2p + q) over its chunks, where T are all new tokens,
q the new tokens of one chunk and p those of the same prompt computed before. g is what depends
on tokens only (GEMMs, dispatch), h the attention per token, which is linear in the length
attended to. A chunk of q tokens after p has q * (2p + q) / 2 causal query-key pairs, as many
per new token as a whole prompt of length 2p + q.

Decode: one step costs f(B, L) for B requests with mean context L, bilinear between nodes. At
fixed B it is piecewise affine in the total context B * L, which is what lets a stretch of steps
be added up in closed form (`steps.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from xla_cost.errors import XlaCostError


def interpolate(nodes: Sequence[float], values: Sequence[float], at: float) -> float:
    """Piecewise-linear value at `at`; beyond the nodes the outermost pieces go on.

    A single node is a constant.
    """
    if len(nodes) == 1:
        return values[0]
    right = min(max(bisect_right(nodes, at), 1), len(nodes) - 1)
    left = right - 1
    share = (at - nodes[left]) / (nodes[right] - nodes[left])
    return values[left] + share * (values[right] - values[left])


def _round_up(count: int, quantum: int) -> int:
    return -(-count // quantum) * quantum


def _check_nodes(where: str, nodes: Sequence[float], values: Sequence[object]) -> None:
    if not nodes or len(nodes) != len(values):
        raise XlaCostError(
            f"{where}: {len(nodes)} nodes with {len(values)} values; "
            "must be as many of both, at least one"
        )
    if any(b <= a for a, b in pairwise(nodes)):
        raise XlaCostError(f"{where}: nodes {list(nodes)}; must increase strictly")


@dataclass(frozen=True, slots=True)
class PrefillCurve:
    """Cost of one prefill batch: g(T) plus attention h(length) per token.

    `tokens`, `base`: nodes of g in new tokens of the batch. `lengths`, `per_token`: nodes of h,
    which is negative below the length that g was taken at.
    Values are seconds (or joules). `sequence_quantum`: sequences are spread over that many
    places, so a batch takes as long as one whose sequences are rounded up to a multiple.
    """

    tokens: tuple[int, ...]
    base: tuple[float, ...]
    lengths: tuple[int, ...] = (1,)
    per_token: tuple[float, ...] = (0.0,)
    sequence_quantum: int = 1

    def __post_init__(self) -> None:
        _check_nodes("prefill curve tokens", self.tokens, self.base)
        _check_nodes("prefill curve lengths", self.lengths, self.per_token)

    def batch(self, chunks: Iterable[tuple[int, int]]) -> float:
        """Cost of a batch of (new tokens, tokens of that prompt computed before) chunks."""
        total, attention, sequences = 0, 0.0, 0
        for new, before in chunks:
            total += new
            attention += new * interpolate(self.lengths, self.per_token, 2 * before + new)
            sequences += 1
        if not total:
            return 0.0
        padding = _round_up(sequences, self.sequence_quantum) / sequences
        base = interpolate(self.tokens, self.base, total * padding)
        # a smaller batch than the smallest lowered never comes out cheaper than nothing
        return max(base + attention * padding, 0.0)


@dataclass(frozen=True, slots=True)
class DecodeCurve:
    """Cost of one decode step on a grid: `steps[i][j]` at `batches[i]` and `contexts[j]`.

    Batches are requests on the whole worker, contexts mean tokens per request, values seconds
    (or joules). A batch is rounded up to a multiple of `batch_quantum`, the number of places
    that requests are spread over: the busiest one sets the pace. With `rows_per_request` each
    request takes part as that many (drafted tokens to verify); the cost is times `scale`.
    """

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    steps: tuple[tuple[float, ...], ...]
    batch_quantum: int = 1
    rows_per_request: int = 1
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_nodes("decode curve batches", self.batches, self.steps)
        for row in self.steps:
            _check_nodes("decode curve contexts", self.contexts, row)

    def rounded(self, batch: int) -> int:
        """Rows of `batch` requests, rounded up to the quantum."""
        return _round_up(batch * self.rows_per_request, self.batch_quantum)

    def row(self, batch: int) -> tuple[float, ...]:
        """Step cost at every context node for `batch` requests (rounded up to the quantum)."""
        size = self.rounded(batch)
        columns = zip(*self.steps, strict=True)
        return tuple(self.scale * interpolate(self.batches, column, size) for column in columns)

    def step(self, batch: int, context: float) -> float:
        """Cost of one step of `batch` requests with a mean context of `context` tokens."""
        return max(interpolate(self.contexts, self.row(batch), context), 0.0)


@dataclass(frozen=True, slots=True)
class LatencyCurves:
    """What a worker takes: the plain values a simulation needs of a model on a machine.

    `prefill` and `decode` in seconds, the energies in joules of the whole worker. `devices` is
    the worker's size. `provenance` says what the curves were made from, `worst_error` the largest
    relative deviation of the interpolation from a fresh lowering that was checked.
    """

    prefill: PrefillCurve | None = None
    decode: DecodeCurve | None = None
    prefill_energy: PrefillCurve | None = None
    decode_energy: DecodeCurve | None = None
    devices: int = 1
    worst_error: float = 0.0
    provenance: tuple[tuple[str, str], ...] = field(default=())

    def prefill_s(self, lengths: Iterable[int], before: int = 0) -> float:
        """Seconds of one prefill batch of prompts (or chunks after `before` tokens)."""
        if self.prefill is None:
            raise XlaCostError("latency curves: no prefill curve; expected one for a prefill pool")
        return self.prefill.batch((length, before) for length in lengths)

    def decode_step_s(self, batch: int, context: float) -> float:
        """Seconds of one decode step of `batch` requests with mean context `context`."""
        if self.decode is None:
            raise XlaCostError("latency curves: no decode curve; expected one for a decode pool")
        return self.decode.step(batch, context)


def affine_prefill(
    fixed: float, per_token: float, per_token_and_length: float = 0.0
) -> PrefillCurve:
    """fixed + per_token * T + per_token_and_length * sum(q * (2p + q)), exactly."""
    return PrefillCurve(
        tokens=(0, 1),
        base=(fixed, fixed + per_token),
        lengths=(0, 1),
        per_token=(0.0, per_token_and_length),
    )


def affine_decode(
    fixed: float, per_request: float = 0.0, per_context_token: float = 0.0
) -> DecodeCurve:
    """fixed + per_request * B + per_context_token * B * L, exactly."""
    return DecodeCurve(
        batches=(0, 1),
        contexts=(0, 1),
        steps=((fixed, fixed), (fixed + per_request, fixed + per_request + per_context_token)),
    )
