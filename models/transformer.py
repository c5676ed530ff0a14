"""The whole model: embedding, dense layers, mixture-of-experts layers, head on the last token."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from xla_cost.models.attend import Angles, decode_angles, prefill_angles, write_entries
from xla_cost.models.config import ModelConfig
from xla_cost.models.layers import Array, GatedFFN, RMSNorm, parameter, pick, project
from xla_cost.models.layout import divide
from xla_cost.models.mla import LatentAttention
from xla_cost.models.moe import MixtureOfExperts
from xla_cost.models.step import Step

# Layers and micro-batches share one trace of each block, which halves lowering time.


@functools.partial(jax.jit, static_argnames=("graph", "step"))
def _attend_prefill(
    graph: Any, weights: Any, x: Array, angles: Angles, step: Step
) -> tuple[Array, Array]:
    attention: LatentAttention = nnx.merge(graph, weights)
    return attention.prefill(x, angles, step)


@functools.partial(jax.jit, static_argnames=("graph", "step"))
def _attend_decode(
    graph: Any, weights: Any, x: Array, cache: Array, position: Array, angles: Angles, step: Step
) -> tuple[Array, Array]:
    attention: LatentAttention = nnx.merge(graph, weights)
    return attention.decode(x, cache, position, angles, step)


@functools.partial(jax.jit, static_argnames=("graph", "step"))
def _mix_experts(
    graph: Any, weights: Any, x: Array, valid: Array, step: Step
) -> tuple[Array, Array]:
    moe: MixtureOfExperts = nnx.merge(graph, weights)
    return moe(x, valid, step)


class DecoderLayer(nnx.Module):  # type: ignore[misc]
    """Attention and FFN, each with its norm and residual."""

    def __init__(self, config: ModelConfig, dense: bool, key: Array):
        keys = jax.random.split(key, 2)
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = LatentAttention(config, keys[0])
        self.ffn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.dense = dense
        if dense:
            self.ffn = GatedFFN(config.hidden_size, config.intermediate_size, "dense", keys[1])
        else:
            self.moe = MixtureOfExperts(config, keys[1])

    def prefill(
        self, h: Array, angles: Angles, step: Step, microbatch: int
    ) -> tuple[Array, Array, Array]:
        """Next residual [tokens, hidden], new cache entries, dropped pairs."""
        x = self.attention_norm(h)
        with jax.named_scope("attention"):
            out, cache = _attend_prefill(*nnx.split(self.attention), x, angles, step)
        h, dropped = self._feed_forward(h + out, step, microbatch)
        return h, cache, dropped

    def decode(
        self,
        h: Array,
        cache: Array,
        position: Array,
        angles: Angles,
        step: Step,
        microbatch: int,
    ) -> tuple[Array, Array, Array]:
        """Next residual [tokens, hidden], new cache entries [rows, latent_dim], dropped pairs."""
        x = self.attention_norm(h)
        with jax.named_scope("attention"):
            graph, weights = nnx.split(self.attention)
            out, entries = _attend_decode(graph, weights, x, cache, position, angles, step)
        h, dropped = self._feed_forward(h + out, step, microbatch)
        return h, entries, dropped

    def _feed_forward(self, h: Array, step: Step, microbatch: int) -> tuple[Array, Array]:
        layout, comm = step.layout, step.comm
        x = self.ffn_norm(h)
        with jax.named_scope("ffn" if self.dense else "moe"):
            with jax.named_scope("gather"):
                x = comm.all_gather(x, layout.ffn_token_axes)
            if self.dense:
                out, dropped = self.ffn(x, step.operand("dense")), jnp.int32(0)
            else:
                valid = valid_tokens(step, microbatch, layout.ffn_token_axes)
                out, dropped = _mix_experts(*nnx.split(self.moe), x, valid, step)
            with jax.named_scope("scatter"):
                out = comm.reduce_scatter(out, layout.ffn_token_axes)
                sums = layout.ffn_sum_axes if self.dense else layout.expert_sum_axes
                out = comm.all_reduce(out, sums)
        return h + out, dropped


def valid_tokens(step: Step, microbatch: int, gathered: tuple[str, ...]) -> Array:
    """Which residual tokens, gathered over some axes, are no padding: bool [tokens]."""
    layout = step.layout
    group = layout.size(gathered)
    ranks = dict(step.comm.ranks())
    left = lax.iota(jnp.int32, group)[:, None]
    for axis in reversed(gathered):
        left, ranks[axis] = divide(left, layout.size((axis,)))
    index = lax.iota(jnp.int32, layout.tokens)[None, :]
    row, position = layout.token_coordinates(ranks, index, microbatch)
    valid = (row < layout.batch) & (position < layout.seq)
    return jnp.broadcast_to(valid, (group, layout.tokens)).reshape(-1)


def _stack(config: ModelConfig, dense: bool, count: int, key: Array) -> DecoderLayer:
    """`count` layers with stacked weights: every parameter has a leading layer dimension."""

    def make(one: Array) -> DecoderLayer:
        return DecoderLayer(config, dense, one)

    stacked: DecoderLayer = nnx.vmap(make)(jax.random.split(key, count))
    return stacked


class Transformer(nnx.Module):  # type: ignore[misc]
    """All weights at their global shapes; the methods run on a device's own parts of them."""

    def __init__(self, config: ModelConfig, key: Array):
        keys = jax.random.split(key, 4)
        hidden, vocab = config.hidden_size, config.vocab_size
        self.embed = parameter(keys[0], (vocab, hidden), (None, "embed"), "embed")
        if config.first_k_dense_replace:
            self.dense_layers = _stack(config, True, config.first_k_dense_replace, keys[1])
        if config.moe_layers:
            self.moe_layers = _stack(config, False, config.moe_layers, keys[2])
        self.final_norm = RMSNorm(hidden, config.rms_norm_eps)
        self.head = parameter(keys[3], (hidden, vocab), (None, "vocab"), "head")

    def stacks(self) -> list[tuple[str, Any]]:
        """Stacked layers by name, in the order they run."""
        return [(n, getattr(self, n)) for n in ("dense_layers", "moe_layers") if hasattr(self, n)]


def embed(model: Transformer, ids: Array, step: Step) -> list[Array]:
    """Residual tokens of every micro-batch, [tokens, hidden] each, from ids [all tokens].

    The table is split by columns: every device looks its columns up for all tokens of the
    group, then an all-to-all turns columns of all tokens into all columns of its own; among
    devices that hold the same tokens the columns are gathered.
    """
    layout, comm = step.layout, step.comm
    with jax.named_scope("embed"):
        if layout.embeds_own_tokens:
            h = comm.all_gather(pick(model.embed[...], ids), layout.embed_axes, dim=1)
        else:
            every = comm.all_gather(ids, layout.embed_axes)
            part = pick(model.embed[...], every)
            h = comm.all_to_all(part, layout.embed_axes, split=0, concat=1)
        h = h[:, : step.config.hidden_size].astype(step.result)
        return [h[m * layout.tokens : (m + 1) * layout.tokens] for m in range(layout.microbatches)]


Caches = dict[str, list[Array]]


def microbatch_scope(index: int, count: int) -> AbstractContextManager[Any]:
    """Tells the kernels of one micro-batch from those of the next; no scope where there is one.

    A segment `microbatch[1]` does not show in scope paths, see `xla_cost.walk.scopes`.
    """
    return jax.named_scope(f"microbatch[{index}]") if count > 1 else nullcontext()


def prefill(model: Transformer, ids: Array, step: Step) -> tuple[Array, Caches, Array]:
    """Logits, cache entries and dropped pairs of one device.

    `ids` [microbatches * tokens]. Returns logits [rows, this device's words], cache
    entries per stack of layers and micro-batch, each [layers, tokens, latent_dim], and the
    number of dropped (token, expert) pairs, [1].
    """
    streams = embed(model, ids, step)
    angles = prefill_angles(step)
    entries: Caches = {}
    dropped = jnp.zeros((), jnp.int32)
    for name, stack in model.stacks():
        graph, weights = nnx.split(stack)

        def body(carry: Any, layer_weights: Any, graph: Any = graph) -> Any:
            layer = nnx.merge(graph, layer_weights)
            done = []
            for m, h in enumerate(carry):
                with microbatch_scope(m, len(carry)):
                    done.append(layer.prefill(h, angles, step, m))
            return [h for h, _, _ in done], ([e for _, e, _ in done], [d for _, _, d in done])

        with jax.named_scope(name):
            streams, (entries[name], lost) = lax.scan(body, streams, weights)
        dropped = dropped + sum(jnp.sum(one) for one in lost)
    with jax.named_scope("head"):
        last = jnp.concatenate([last_tokens(h, step) for h in streams])
        logits = head(model, last, step)
    return logits, entries, dropped[None]


def decode(
    model: Transformer, caches: Caches, ids: Array, position: Array, step: Step
) -> tuple[Array, Caches, Array]:
    """Logits, updated caches and dropped pairs of one device, for one token per sequence.

    `caches` per stack and micro-batch [layers, rows, slots, latent_dim], `ids`
    [microbatches * tokens], `position` the scalar position of the token in every sequence.
    Inside the loop the cache is only read; its new entries are written once, after it.
    """
    streams = embed(model, ids, step)
    angles = decode_angles(position, step)
    updated: Caches = {}
    dropped = jnp.zeros((), jnp.int32)
    for name, stack in model.stacks():
        graph, weights = nnx.split(stack)

        def body(carry: Any, xs: Any, graph: Any = graph) -> Any:
            layer_weights, cache = xs
            layer = nnx.merge(graph, layer_weights)
            done = []
            for m, h in enumerate(carry):
                with microbatch_scope(m, len(carry)):
                    done.append(layer.decode(h, cache[m], position, angles, step, m))
            return [h for h, _, _ in done], ([e for _, e, _ in done], [d for _, _, d in done])

        with jax.named_scope(name):
            streams, (entries, lost) = lax.scan(body, streams, (weights, caches[name]))
            with jax.named_scope("cache_update"):
                updated[name] = [
                    write_entries(old, new, position, step)
                    for old, new in zip(caches[name], entries, strict=True)
                ]
        dropped = dropped + sum(jnp.sum(one) for one in lost)
    with jax.named_scope("head"):
        layout, comm = step.layout, step.comm
        rows = [comm.all_gather(h, layout.group_axes)[: layout.rows] for h in streams]
        logits = head(model, jnp.concatenate(rows), step)
    return logits, updated, dropped[None]


def last_tokens(h: Array, step: Step) -> Array:
    """The residual of each sequence's last position, [rows, hidden], on all of the group.

    Only one device holds it: the others add zeros, which is exact.
    """
    layout, comm = step.layout, step.comm
    rank = comm.ranks()
    last = layout.seq - 1
    index = lax.iota(jnp.int32, layout.rows) * layout.positions + last // layout.seq_ranks
    local = index - layout.fold(rank, layout.group_axes) * layout.tokens
    mine = (local >= 0) & (local < layout.tokens)
    mine = mine & (layout.fold(rank, layout.seq_axes) == last % layout.seq_ranks)
    picked = pick(h, jnp.clip(local, 0, layout.tokens - 1))
    picked = jnp.where(mine[:, None], picked, jnp.zeros_like(picked))
    return comm.all_reduce(picked, layout.seq_axes + layout.stream_axes)


def head(model: Transformer, last: Array, step: Step) -> Array:
    """Logits of `last` [rows, hidden] for this device's words.

    Rows are first gathered over batch axes that also split the vocabulary.
    """
    layout, comm = step.layout, step.comm
    shared = tuple(axis for axis in layout.vocab_axes if axis in layout.batch_axes)
    last = comm.all_gather(model.final_norm(last), shared)
    return project(last, model.head[...], step.result, step.result)
