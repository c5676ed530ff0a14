"""Mixture of experts with real expert parallelism: route, dispatch, grouped GEMMs, combine.

Buffers are static. A device keeps `capacity` rows per expert, so with balanced routing and a
capacity factor of 1 nothing is dropped; what does not fit is dropped and counted.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from xla_cost.models.config import ModelConfig
from xla_cost.models.layers import Array, GatedFFN, contract, parameter, pick, project, silu
from xla_cost.models.layout import divide
from xla_cost.models.step import Step


class Routing(NamedTuple):
    """Chosen experts [tokens, k] (`n_routed_experts` where a token is padding), weights fp32."""

    experts: Array
    weights: Array


class Router(nnx.Module):  # type: ignore[misc]
    """Scores every expert and picks the best k of the best groups (arXiv 2412.19437, 2.1.2)."""

    def __init__(self, config: ModelConfig, key: Array):
        shape = (config.hidden_size, config.n_routed_experts)
        self.weight = parameter(key, shape, (None, None), "router")
        if config.topk_method == "noaux_tc":
            zeros = jnp.zeros((config.n_routed_experts,), jnp.float32)
            self.bias = nnx.Param(zeros, axes=(None,), part="norm")

    def __call__(self, x: Array, valid: Array, step: Step) -> Routing:
        """Routing of `x` [tokens, hidden]; tokens that are not `valid` go nowhere."""
        config = step.config
        logits = project(x, self.weight[...], step.result, jnp.float32)
        if config.scoring_func == "sigmoid":
            scores = lax.logistic(logits)
        else:
            raised = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
            scores = raised / jnp.sum(raised, axis=-1, keepdims=True)
        choice = scores
        if config.topk_method == "noaux_tc":
            choice = scores + self.bias[...].astype(jnp.float32)
        if config.topk_method != "greedy":
            choice = _best_groups(choice, config)
        _, experts = lax.top_k(choice, config.num_experts_per_tok)
        token = lax.broadcasted_iota(jnp.int32, experts.shape, 0)
        weights = scores.at[token, experts].get(
            mode="promise_in_bounds", wrap_negative_indices=False
        )
        if config.norm_topk_prob:
            weights = weights / (jnp.sum(weights, axis=-1, keepdims=True) + 1e-20)
        experts = jnp.where(valid[:, None], experts, config.n_routed_experts)
        return Routing(experts, weights * config.routed_scaling_factor)


def _best_groups(choice: Array, config: ModelConfig) -> Array:
    """`choice` [tokens, experts] with every expert outside the best groups at -inf."""
    grouped = choice.reshape(choice.shape[0], config.n_group, -1)
    if config.topk_method == "noaux_tc":
        best, _ = lax.top_k(grouped, min(2, grouped.shape[-1]))
        group_score = jnp.sum(best, axis=-1)
    else:
        group_score = jnp.max(grouped, axis=-1)
    _, chosen = lax.top_k(group_score, config.topk_group)
    groups = lax.iota(jnp.int32, config.n_group)
    allowed = jnp.any(chosen[:, :, None] == groups, axis=1)
    return jnp.where(allowed[:, :, None], grouped, -jnp.inf).reshape(choice.shape)


class Slots(NamedTuple):
    """Where each of n items goes in [bins, capacity] slots, and back.

    `item_of_slot` [bins * capacity] (any item where the slot is empty), `filled` likewise,
    `slot_of_item` [n] (bins * capacity where the item was dropped), `dropped` a count.
    """

    item_of_slot: Array
    filled: Array
    slot_of_item: Array
    dropped: Array


def assign_slots(bin_of_item: Array, bins: int, capacity: int) -> Slots:
    """First come, first served: items of a bin fill its slots in order.

    Items whose bin is `bins` or more are no items: they get no slot and are not counted.
    """
    n = bin_of_item.shape[0]
    items = lax.iota(jnp.int32, n)
    sorted_bin, order = lax.sort((bin_of_item, items), num_keys=1)
    counts = (
        jnp.zeros((bins,), jnp.int32)
        .at[bin_of_item]
        .add(1, mode="drop", wrap_negative_indices=False)
    )
    starts = jnp.cumsum(counts) - counts
    clipped = jnp.minimum(sorted_bin, bins - 1)
    place = items - pick(starts, clipped)
    fits = (sorted_bin < bins) & (place < capacity)
    slot = jnp.where(fits, clipped * capacity + place, bins * capacity)
    slot_of_item = (
        jnp.zeros((n,), jnp.int32)
        .at[order]
        .set(slot, unique_indices=True, mode="promise_in_bounds", wrap_negative_indices=False)
    )
    slots = lax.iota(jnp.int32, bins * capacity)
    which, nth = divide(slots, capacity)
    item_of_slot = pick(order, jnp.minimum(pick(starts, which) + nth, n - 1))
    dropped = jnp.sum(jnp.maximum(counts - capacity, 0))
    return Slots(item_of_slot, nth < pick(counts, which), slot_of_item, dropped)


class Experts(nnx.Module):  # type: ignore[misc]
    """Gated FFNs, one per expert, as three grouped GEMMs."""

    def __init__(self, config: ModelConfig, key: Array):
        keys = jax.random.split(key, 3)
        experts, hidden = config.n_routed_experts, config.hidden_size
        inner = config.moe_intermediate_size
        into, out = ("experts", None, "ffn"), ("experts", "ffn", None)
        self.gate = parameter(keys[0], (experts, hidden, inner), into, "experts")
        self.up = parameter(keys[1], (experts, hidden, inner), into, "experts")
        self.down = parameter(keys[2], (experts, inner, hidden), out, "experts")

    def __call__(self, x: Array, step: Step) -> Array:
        """`x` [experts, rows, hidden] to the same shape."""
        with jax.named_scope("quantize"):
            x = x.astype(step.operand("experts"))
        gate = _grouped("gate", x, self.gate[...], step)
        up = _grouped("up", x, self.up[...], step)
        with jax.named_scope("quantize"):
            inner = (silu(gate) * up).astype(step.operand("experts"))
        return _grouped("down", inner, self.down[...], step)


def _grouped(name: str, x: Array, weight: Array, step: Step) -> Array:
    """One product per expert, marked with what it is given: shapes hold slots, not tokens."""
    config = step.config
    routed = (
        f"tokens={step.layout.routed_tokens},experts={config.n_routed_experts},"
        f"top_k={config.num_experts_per_tok}"
    )
    with jax.named_scope(f"{name}/kernel[grouped_gemm,{routed}]"):
        return contract(
            x, weight, [(2, 1)], batch=[(0, 0)], operand=step.operand("experts"), result=step.result
        )


class MixtureOfExperts(nnx.Module):  # type: ignore[misc]
    """Routed experts over the expert axes plus shared experts on the device's own tokens."""

    def __init__(self, config: ModelConfig, key: Array):
        keys = jax.random.split(key, 3)
        self.router = Router(config, keys[0])
        self.experts = Experts(config, keys[1])
        self.has_shared = config.n_shared_experts > 0
        if self.has_shared:
            inner = config.moe_intermediate_size * config.n_shared_experts
            self.shared = GatedFFN(config.hidden_size, inner, "experts", keys[2])

    def __call__(self, x: Array, valid: Array, step: Step) -> tuple[Array, Array]:
        """`x` [tokens, hidden] to the same shape, and the dropped (token, expert) pairs."""
        with _kernel("router", step):
            routing = self.router(x, valid, step)
        route = _in_place
        if step.layout.exchanges_tokens:
            route = _by_device if step.layout.decode else _by_expert
        out, dropped = route(self.experts, x, routing, step)
        if self.has_shared:
            with jax.named_scope("shared"):
                out = out + self.shared(x, step.operand("experts"))
        return out, dropped


def _kernel(name: str, step: Step) -> AbstractContextManager[Any]:
    """A scope that real implementations run as one kernel: routing, or moving tokens to slots.

    Marked where attention is a kernel as well, so a `plain` program stays as it is written.
    """
    return jax.named_scope(f"{name}/kernel[{name}]" if step.attention == "flash" else name)


def fair_share(items: int, bins: int, step: Step) -> int:
    """Slots per bin that hold `items` spread evenly over `bins`, times the capacity factor."""
    return math.ceil(step.capacity_factor * items / bins)


def _by_expert(experts: Experts, x: Array, routing: Routing, step: Step) -> tuple[Array, Array]:
    """One buffer per (source device, expert): experts need no second sorting on arrival."""
    config, comm, axes = step.config, step.comm, step.layout.expert_axes
    tokens, hidden = x.shape
    k = config.num_experts_per_tok
    capacity = fair_share(tokens * k, config.n_routed_experts, step)
    with jax.named_scope("dispatch"):
        with _kernel("permute", step):
            slots = assign_slots(routing.experts.reshape(-1), config.n_routed_experts, capacity)
            sent = pick(x.astype(step.operand("dispatch")), divide(slots.item_of_slot, k)[0])
            sent = sent.reshape(config.n_routed_experts, capacity, hidden)
        arrived = comm.all_to_all(sent, axes, split=0, concat=1)
    with jax.named_scope("experts"):
        done = experts(arrived, step)
    with jax.named_scope("combine"):
        back = comm.all_to_all(done.astype(step.operand("combine")), axes, split=1, concat=0)
        with _kernel("permute", step):
            rows = back.reshape(config.n_routed_experts * capacity, hidden)
            out = combine(rows, slots.slot_of_item.reshape(tokens, k), routing, step)
    return out, slots.dropped


def _by_device(experts: Experts, x: Array, routing: Routing, step: Step) -> tuple[Array, Array]:
    """One buffer per (source, destination) device, sorted by expert on arrival.

    A decode step has fewer tokens per device than there are experts, so buffers per expert
    would be mostly empty. The expert's number travels in binary, as a few more columns.
    """
    config, comm, axes = step.config, step.comm, step.layout.expert_axes
    (tokens, hidden), k = x.shape, config.num_experts_per_tok
    ranks = step.layout.size(axes)
    local = config.n_routed_experts // ranks
    capacity = fair_share(tokens * k, ranks, step)
    with jax.named_scope("dispatch"):
        with _kernel("permute", step):
            chosen = routing.experts.reshape(-1)
            device, expert = divide(chosen, local)
            slots = assign_slots(device, ranks, capacity)
            number = jnp.where(slots.filled, pick(expert, slots.item_of_slot) + 1, 0)
            bits = number[:, None] >> lax.iota(jnp.int32, local.bit_length()) & 1
            sent = pick(x.astype(step.operand("dispatch")), divide(slots.item_of_slot, k)[0])
            sent = jnp.concatenate([sent, bits.astype(sent.dtype)], axis=-1)
        arrived = comm.all_to_all(sent, axes, split=0, concat=0)
        with _kernel("permute", step):
            bits = arrived[:, hidden:].astype(jnp.int32) << lax.iota(jnp.int32, local.bit_length())
            number = jnp.sum(bits, axis=-1)
            bins = jnp.where(number > 0, number - 1, local)
            rows_per_expert = fair_share(ranks * tokens * k, config.n_routed_experts, step)
            inner = assign_slots(bins, local, rows_per_expert)
            sorted_rows = pick(arrived[:, :hidden], inner.item_of_slot)
    with jax.named_scope("experts"):
        done = experts(sorted_rows.reshape(local, rows_per_expert, hidden), step)
    with jax.named_scope("combine"):
        with _kernel("permute", step):
            done = done.reshape(local * rows_per_expert, hidden).astype(step.operand("combine"))
            kept = inner.slot_of_item < done.shape[0]
            done = pick(done, jnp.minimum(inner.slot_of_item, done.shape[0] - 1))
            done = jnp.where(kept[:, None], done, jnp.zeros_like(done))
        back = comm.all_to_all(done, axes, split=0, concat=0)
        with _kernel("permute", step):
            out = combine(back, slots.slot_of_item.reshape(tokens, k), routing, step)
    return out, slots.dropped + inner.dropped


def _in_place(experts: Experts, x: Array, routing: Routing, step: Step) -> tuple[Array, Array]:
    """This device's experts on those of its tokens that chose them: a partial sum, no exchange.

    Every device of the expert axes holds the same tokens and routes all of them.
    """
    config, axes = step.config, step.layout.expert_axes
    (tokens, hidden), k = x.shape, config.num_experts_per_tok
    local = config.n_routed_experts // step.layout.size(axes)
    capacity = fair_share(tokens * k, config.n_routed_experts, step)
    with jax.named_scope("permute"), _kernel("permute", step):
        chosen = routing.experts.reshape(-1) - step.comm.rank(axes) * local
        bins = jnp.where((chosen >= 0) & (chosen < local), chosen, local)
        slots = assign_slots(bins, local, capacity)
        rows = pick(x.astype(step.operand("experts")), divide(slots.item_of_slot, k)[0])
    with jax.named_scope("experts"):
        done = experts(rows.reshape(local, capacity, hidden), step)
    with jax.named_scope("combine"), _kernel("permute", step):
        rows = done.reshape(local * capacity, hidden)
        out = combine(rows, slots.slot_of_item.reshape(tokens, k), routing, step)
    return out, slots.dropped


def combine(rows: Array, slot: Array, routing: Routing, step: Step) -> Array:
    """Weighted sum of each token's expert outputs, [tokens, hidden]; dropped ones count zero.

    Multiplied and added, not a matrix product: kernels do it while they un-permute.
    """
    kept = slot < rows.shape[0]
    weights = jnp.where(kept, routing.weights, 0.0)[..., None]
    picked = pick(rows, jnp.minimum(slot, rows.shape[0] - 1)).astype(jnp.float32)
    return jnp.sum(picked * weights, axis=1).astype(step.result)
