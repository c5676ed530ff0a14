"""Multi-head latent attention: expanded for prefill, absorbed for decode (arXiv 2405.04434, 2.1).

Every device computes the heads whose weights it holds. Where the head axis splits the stream,
that is gathered before and reduce-scattered after, otherwise partial outputs are added. In prefill
latents alone are gathered over the devices that share a sequence; in decode every device attends
to its part of the cache and partial softmax sums are merged.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from xla_cost.models.attend import Angles, attend_causal, attend_to_cache
from xla_cost.models.config import ModelConfig
from xla_cost.models.formats import DTYPES
from xla_cost.models.layers import Array, RMSNorm, Rotation, contract, parameter, project
from xla_cost.models.step import Step


class LatentAttention(nnx.Module):  # type: ignore[misc]
    """Projections of MLA. Weights of heads are [rank, heads, width], or [heads, width, hidden]."""

    def __init__(self, config: ModelConfig, key: Array):
        keys = jax.random.split(key, 6)
        hidden, heads = config.hidden_size, config.num_attention_heads
        query_in = hidden
        if config.q_lora_rank is not None:
            query_in = config.q_lora_rank
            self.q_down = parameter(keys[0], (hidden, query_in), (None, None), "attention")
            self.q_norm = RMSNorm(query_in, config.rms_norm_eps)

        def per_head(key: Array, rank: int, width: int) -> Any:
            return parameter(key, (rank, heads, width), (None, "heads", None), "attention")

        self.q_up = per_head(keys[1], query_in, config.qk_head_dim)
        self.kv_down = parameter(keys[2], (hidden, config.latent_dim), (None, None), "attention")
        self.kv_norm = RMSNorm(config.kv_lora_rank, config.rms_norm_eps)
        self.k_up = per_head(keys[3], config.kv_lora_rank, config.qk_nope_head_dim)
        self.v_up = per_head(keys[4], config.kv_lora_rank, config.v_head_dim)
        shape = (heads, config.v_head_dim, hidden)
        self.out = parameter(keys[5], shape, ("heads", None, None), "attention")
        self.low_rank_queries = config.q_lora_rank is not None

    def prefill(self, x: Array, angles: Angles, step: Step) -> tuple[Array, Array]:
        """Attention output and this device's new cache entries.

        `x` [tokens, hidden] is the normed stream. Returns [tokens, hidden] and, in the
        cache format, [tokens, latent_dim].
        """
        layout, comm, config = step.layout, step.comm, step.config
        stripes = layout.size(layout.query_axes)
        rows, positions = layout.rows, layout.positions
        with jax.named_scope("gather"):
            stream = comm.all_gather(x, layout.gather_axes)
            stream = stream.reshape(stripes, rows, positions, x.shape[-1])
        stripe = comm.rank(layout.query_axes)
        own = lax.dynamic_index_in_dim(stream, stripe, keepdims=False) if stripes > 1 else stream[0]

        query = self._queries(own, angles.queries, step)
        if layout.hidden_gather:
            with jax.named_scope("hidden_gather"):
                sent = stream.astype(getattr(jnp, DTYPES[layout.hidden_gather]))
                stream = comm.all_gather(sent, layout.latent_axes, dim=2)
        latents = self._latents(stream, angles.keys, step)
        cache = latents[0]
        if layout.hidden_gather:
            first = comm.rank(layout.latent_axes) * positions
            cache = lax.dynamic_slice_in_dim(cache, first, positions, axis=1)
        if stripes > 1:
            cache = lax.dynamic_index_in_dim(latents, stripe, keepdims=False)
        start = comm.rank(layout.stream_axes) * layout.tokens
        cache = cache.reshape(rows * positions, config.latent_dim)
        cache = lax.dynamic_slice_in_dim(cache, start, layout.tokens)

        latents = jnp.moveaxis(latents, 0, 1).reshape(rows, -1, config.latent_dim)
        if not layout.hidden_gather:
            with jax.named_scope("latent_gather"):
                latents = comm.all_gather(latents, layout.latent_axes, dim=1)
        latents = latents.astype(step.result)
        keys, values = self._expand(latents, step)
        mixed = attend_causal(query, keys, values, step)  # [rows, heads, positions, v]
        with jax.named_scope("out"):
            out = contract(
                mixed, self.out[...], [(1, 0), (3, 1)], operand=step.operand("attention"),
                result=step.result,
            )  # fmt: skip
        with jax.named_scope("scatter"):
            out = out.reshape(rows * positions, out.shape[-1])
            out = comm.reduce_scatter(out, layout.stream_axes)
            return comm.all_reduce(out, layout.head_sum_axes), cache

    def decode(
        self, x: Array, cache: Array, position: Array, angles: Angles, step: Step
    ) -> tuple[Array, Array]:
        """Attention output and the new cache entries of one token per sequence.

        `x` [tokens, hidden] is the normed stream, `cache` [rows, slots, latent_dim] this
        layer's cache before this token, `position` the token's. Returns [tokens, hidden]
        and [rows, latent_dim] in the cache format.
        """
        layout, comm, operand = step.layout, step.comm, step.operand("attention")
        nope = step.config.qk_nope_head_dim
        with jax.named_scope("gather"):
            stream = comm.all_gather(x, layout.group_axes)[: layout.rows]
        query = self._queries(stream, angles.queries, step)
        entries = self._latents(stream, angles.keys, step)
        with jax.named_scope("k_up"):
            absorbed = contract(
                query[..., :nope], self.k_up[...], [(2, 2)], batch=[(1, 1)],
                operand=operand, result=step.result,
            )  # fmt: skip
            rotary = jnp.moveaxis(query[..., nope:], 1, 0)
            query = jnp.concatenate([absorbed, rotary], axis=-1)
        mixed = attend_to_cache(query, cache, entries, position, step)
        with jax.named_scope("v_up"):
            mixed = contract(
                mixed, self.v_up[...], [(2, 0)], batch=[(1, 1)], operand=operand, result=step.result
            )
        with jax.named_scope("out"):
            out = contract(
                mixed, self.out[...], [(0, 0), (2, 1)], operand=operand, result=step.result
            )
        with jax.named_scope("scatter"):
            missing = layout.tokens * layout.size(layout.stream_axes) - out.shape[0]
            if missing:
                out = jnp.pad(out, ((0, missing), (0, 0)))
            out = comm.reduce_scatter(out, layout.stream_axes)
            return comm.all_reduce(out, layout.head_sum_axes), entries

    def _queries(self, x: Array, rotation: Rotation, step: Step) -> Array:
        """Queries [.., heads, qk_head_dim] with their rotary part turned."""
        operand, nope = step.operand("attention"), step.config.qk_nope_head_dim
        if self.low_rank_queries:
            with jax.named_scope("q_down"):
                x = self.q_norm(project(x, self.q_down[...], operand, step.result))
        with jax.named_scope("q_up"):
            query = project(x, self.q_up[...], operand, step.result)
            turned = rotation.turn(query[..., nope:])
            return jnp.concatenate([query[..., :nope], turned], axis=-1)

    def _latents(self, x: Array, rotation: Rotation, step: Step) -> Array:
        """Cache entries [.., latent_dim] in the cache format: normed latent, turned rotary key."""
        rank = step.config.kv_lora_rank
        with jax.named_scope("kv_down"):
            both = project(x, self.kv_down[...], step.operand("attention"), step.result)
            turned = rotation.turn(both[..., rank:])
            entries = jnp.concatenate([self.kv_norm(both[..., :rank]), turned], axis=-1)
            return entries.astype(step.formats.dtype("kv_cache"))

    def _expand(self, latents: Array, step: Step) -> tuple[Array, Array]:
        """Keys [rows, seq, heads, qk_head_dim] and values [rows, seq, heads, v_head_dim]."""
        operand, rank = step.operand("attention"), step.config.kv_lora_rank
        latent, rotary = latents[..., :rank], latents[..., rank:]
        with jax.named_scope("k_up"):
            keys = project(latent, self.k_up[...], operand, step.result)
            shared = jnp.broadcast_to(
                rotary[..., None, :], (*keys.shape[:-1], step.config.qk_rope_head_dim)
            )
            keys = jnp.concatenate([keys, shared], axis=-1)
        with jax.named_scope("v_up"):
            return keys, project(latent, self.v_up[...], operand, step.result)
