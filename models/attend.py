"""Softmax attention of this device's heads: causal over a sequence, or one token over a cache."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from xla_cost.models.layers import Array, Rotation, contract
from xla_cost.models.step import Step

#: A score that no softmax notices; finite, so that a rank which sees no key makes no NaN.
_HIDDEN = -1e30


def stripe_positions(step: Step) -> Array:
    """Positions [query stripes, positions] of the stream that keys are made from.

    Where the hidden state is gathered over the sequence ranks, theirs lie one after the other.
    """
    layout = step.layout
    if layout.hidden_gather:
        shape = (layout.seq_ranks, layout.positions)
        rank, local = (lax.broadcasted_iota(jnp.int32, shape, dim) for dim in (0, 1))
        return (local * layout.seq_ranks + rank).reshape(1, -1)
    stripes = layout.size(layout.query_axes)
    rank = step.comm.rank(layout.latent_axes) * stripes + lax.iota(jnp.int32, stripes)
    return lax.iota(jnp.int32, layout.positions) * layout.seq_ranks + rank[:, None]


def query_positions(step: Step) -> Array:
    """Positions [positions] of this device's queries."""
    layout = step.layout
    local = lax.iota(jnp.int32, layout.positions)
    return local * layout.seq_ranks + step.comm.rank(layout.seq_axes)


class Angles(NamedTuple):
    """Rotary angles of one step, the same in every layer: made once, before the loops."""

    queries: Rotation
    keys: Rotation


def prefill_angles(step: Step) -> Angles:
    """Queries [positions, 1, ..] over heads, keys [query stripes, 1, positions, ..] over rows."""
    width, theta = step.config.qk_rope_head_dim, step.config.rope_theta
    queries = Rotation.at(query_positions(step)[:, None], width, theta)
    return Angles(queries, Rotation.at(stripe_positions(step)[:, None, :], width, theta))


def decode_angles(position: Array, step: Step) -> Angles:
    """All rows are at the same position."""
    rotation = Rotation.at(position[None], step.config.qk_rope_head_dim, step.config.rope_theta)
    return Angles(rotation, rotation)


def attend_causal(query: Array, keys: Array, values: Array, step: Step) -> Array:
    """Causal attention, [rows, heads, positions, v_head_dim].

    `query` [rows, positions, heads, qk_head_dim], `keys` and `values` [rows, seq, heads, ..].
    Keys of all sequence ranks lie one after the other: key (r, j) has position j * R + r.
    """
    layout, operand = step.layout, step.operand("scores")
    name = "scores"
    if step.attention == "flash":
        name = f"scores/kernel[flash_attention,work={layout.causal_work:.6g}]"
    with jax.named_scope(name):
        scores = contract(
            query, keys, [(3, 3)], batch=[(0, 0), (2, 2)], operand=operand, result=step.result
        )
        ranks = (layout.seq_ranks, layout.positions)
        stripe, local = (lax.broadcasted_iota(jnp.int32, ranks, dim) for dim in (0, 1))
        key_position = (local * layout.seq_ranks + stripe).reshape(-1)
        visible = key_position[None, :] <= query_positions(step)[:, None]
        scores = scores.astype(jnp.float32) * step.config.qk_head_dim**-0.5
        scores = jnp.where(visible, scores, _HIDDEN)
        weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
        weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
        return contract(
            weights, values, [(3, 1)], batch=[(0, 0), (1, 2)], operand=operand, result=step.result
        )


def attend_to_cache(
    query: Array, cache: Array, entries: Array, position: Array, step: Step
) -> Array:
    """Attention of one token per sequence to the latent cache and to itself.

    `query` [heads, rows, latent_dim] is absorbed, `cache` [rows, slots, latent_dim] lacks the
    token, `entries` [rows, latent_dim] are its own. Returns latents [rows, heads,
    kv_lora_rank]; where the cache is split over sequence ranks, each gets its share of the
    (padded) rows.
    """
    layout, operand = step.layout, step.operand("scores")
    kernel: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if step.attention == "flash":
        kernel = jax.named_scope("kernel[mla_decode]")
    with jax.named_scope("scores"):
        with kernel:
            scores = contract(
                query, cache, [(2, 2)], batch=[(1, 0)], operand=operand, result=step.result
            )
            scale = step.config.qk_head_dim**-0.5
            scores = scores.astype(jnp.float32) * scale
            scores = jnp.where(_cached(cache.shape[1], position, step), scores, _HIDDEN)
            own = _own_scores(query, entries, position, step) * scale
            highest = jnp.maximum(jnp.max(scores, axis=-1, keepdims=True), own)
            weights, own = jnp.exp(scores - highest), jnp.exp(own - highest)
            total = jnp.sum(weights, axis=-1, keepdims=True) + own
            if layout.seq_ranks == 1:
                weights, own = weights / total, own / total
            rank = step.config.kv_lora_rank
            mixed = contract(
                weights, cache[..., :rank], [(2, 1)], batch=[(0, 0)], operand=operand,
                result=step.result if layout.seq_ranks == 1 else jnp.float32,
            )  # fmt: skip
            mixed = mixed + own * entries[:, None, :rank].astype(jnp.float32)
            if layout.seq_ranks == 1:
                return mixed.astype(step.result)
        return _merge(mixed, total, highest, step)


def _cached(slots: int, position: Array, step: Step) -> Array:
    """Which local slots hold earlier tokens, bool [slots]."""
    layout = step.layout
    first = step.comm.rank(layout.seq_axes)
    return lax.iota(jnp.int32, slots) * layout.seq_ranks + first < position


def _own_scores(query: Array, entries: Array, position: Array, step: Step) -> Array:
    """Scores of the new tokens with themselves, fp32 [rows, heads, 1], on one sequence rank.

    Kept out of the cache until the loop is over: putting them in first would copy it.
    """
    layout = step.layout
    own = jnp.sum(query.astype(jnp.float32) * entries.astype(jnp.float32), axis=-1)
    own = own.T[..., None]
    if layout.seq_ranks > 1:
        own = jnp.where(_holds(position, step), own, _HIDDEN)
    return own


def _holds(position: Array, step: Step) -> Array:
    """Whether `position` belongs to this device's stripe."""
    layout = step.layout
    stripe: Array = lax.rem(position, jnp.int32(layout.seq_ranks))
    return stripe == step.comm.rank(layout.seq_axes)


def _merge(mixed: Array, total: Array, highest: Array, step: Step) -> Array:
    """Softmax over all sequence ranks from each rank's sums (arXiv 2311.01282, 3.1)."""
    layout, comm = step.layout, step.comm
    with jax.named_scope("merge"):
        scale = jnp.exp(highest - comm.all_max(highest, layout.seq_axes))
        sums = jnp.concatenate([mixed * scale, total * scale], axis=-1)
        missing = layout.tokens * layout.size(layout.group_axes) - layout.rows
        sums = jnp.pad(sums, ((0, missing), (0, 0), (0, 0)))
        sums = comm.reduce_scatter(sums, layout.seq_axes)
        # padding rows are all zero: keep them so instead of dividing by zero
        divisor = jnp.maximum(sums[..., -1:], 1e-30)
        return (sums[..., :-1] / divisor).astype(step.result)


def write_entries(cache: Array, entries: Array, position: Array, step: Step) -> Array:
    """`cache` [layers, rows, slots, latent_dim] with `entries` [layers, rows, latent_dim] put
    at `position`, on the one sequence rank that holds it.
    """
    layout = step.layout
    slot = lax.div(position, jnp.int32(layout.seq_ranks))
    start = (jnp.int32(0), jnp.int32(0), slot, jnp.int32(0))
    new = entries[:, :, None, :]
    if layout.seq_ranks > 1:
        new = jnp.where(_holds(position, step), new, lax.dynamic_slice(cache, start, new.shape))
    return lax.dynamic_update_slice(cache, new, start)
