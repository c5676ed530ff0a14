"""Sharded tiny models against plain numpy: every plan, every mesh, prefill and decode, in fp32."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
from flax import nnx
from models_numpy import forward

from xla_cost import models
from xla_cost.models import Workload, build, get_config, get_formats, get_plan
from xla_cost.models.arrange import arrange_ids, decode_cache, pad_weights, prefill_cache
from xla_cost.models.assemble import abstract_model
from xla_cost.models.moe import assign_slots

TINY = get_config("tiny")
MESHES = [(2, 4, 1), (4, 2, 1), (2, 2, 2)]
PLANS = ["study", "study-balanced", "hybrid", "dp-attention", "tensor-parallel"]
#: Nothing is dropped: every expert could take every token.
ROOMY = float(TINY.n_routed_experts)
BATCH, SEQ = 5, 22  # divide no mesh
#: These programs run once: no time for LLVM to optimise them.
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@cache
def weights(config):
    """Random weights of the Flax model's shapes; norms and router biases away from 1 and 0."""
    random = np.random.default_rng(7)

    def fill(leaf):
        fan_in = leaf.shape[-2] if len(leaf.shape) > 1 else 1
        return random.normal(0, fan_in**-0.5, leaf.shape).astype(np.float32)

    tree = jax.tree.map(fill, nnx.to_pure_dict(nnx.state(abstract_model(config))))
    return _norms_near_one(tree)


def _norms_near_one(tree):
    return {
        name: _norms_near_one(value) if isinstance(value, dict)
        else 1 + 0.1 * np.tanh(value) if name == "scale" else value
        for name, value in tree.items()
    }  # fmt: skip


@cache
def token_ids(batch=BATCH, seq=SEQ):
    return np.random.default_rng(5).integers(1, TINY.vocab_size, (batch, seq))


@cache
def expected(config, seq=SEQ):
    return forward(config, weights(config), token_ids()[:, :seq])


COMPILED = {}  # plans that come down to the same program on a mesh share one compile


def compile_once(lowered):
    text = lowered.as_text()
    if text not in COMPILED:
        COMPILED[text] = lowered.compile(FAST)
    return COMPILED[text]


def run(workload, plan, mesh, *, cache=None, position=None, ids=None):
    program = build(workload, get_plan(plan), mesh)
    ids = token_ids()[:, : workload.seq] if ids is None else ids
    inputs = [arrange_ids(ids, program.layout)]
    if cache is not None:
        inputs = [decode_cache(cache, program.layout), *inputs, np.int32(position)]
        inputs[0] = jax.tree.map(lambda a, s: a.astype(s.dtype), inputs[0], program.args[1])
    placed = jax.tree.map(
        lambda a, s: jax.device_put(a, s.sharding), tuple(inputs), tuple(program.args[1:])
    )
    compiled = compile_once(jax.jit(program.fn).lower(*program.args))
    logits, caches, dropped = compiled(
        pad_weights(weights(workload.model), program.args[0]), *placed
    )
    logits = np.asarray(logits)[: workload.batch, : workload.model.vocab_size]
    return logits, caches, int(np.sum(dropped)), program


def prefill(config=TINY, seq=SEQ, formats="fp32", **changes):
    return Workload(
        config, BATCH, seq, formats=get_formats(formats), capacity_factor=ROOMY, **changes
    )


@cache
def prefilled(plan, mesh, **changes):
    """All but the last token, and the cache they leave."""
    logits, caches, dropped, program = run(prefill(seq=SEQ - 1, **changes), plan, mesh)
    return logits, prefill_cache(caches, program.layout), dropped


def decoded(plan, mesh, cache, **changes):
    """One decode step of the last token."""
    return run(
        prefill(phase="decode", **changes), plan, mesh, cache=cache, position=SEQ - 1,
        ids=token_ids()[:, SEQ - 1 :],
    )  # fmt: skip


@pytest.mark.parametrize("mesh", [(1, 1, 1), *MESHES])
@pytest.mark.parametrize("plan", PLANS)
def test_prefill_equals_numpy(plan, mesh):
    logits, caches, dropped = prefilled(plan, mesh)
    want, want_caches = expected(TINY, SEQ - 1)
    np.testing.assert_allclose(logits, want, rtol=2e-4, atol=2e-4)
    assert caches.keys() == want_caches.keys()
    for name, want_cache in want_caches.items():
        np.testing.assert_allclose(caches[name], want_cache, rtol=2e-4, atol=2e-4)
    assert dropped == 0


@pytest.mark.parametrize("mesh", [(1, 1, 1), *MESHES])
@pytest.mark.parametrize("plan", PLANS)
def test_prefill_then_absorbed_decode_equals_numpy_with_one_more_token(plan, mesh):
    logits, caches, dropped, program = decoded(plan, mesh, prefilled(plan, mesh)[1])
    want, want_caches = expected(TINY)
    np.testing.assert_allclose(logits, want, rtol=3e-4, atol=3e-4)
    for name, parts in decode_cache(want_caches, program.layout).items():
        for got, full in zip(caches[name], parts, strict=True):
            real = np.abs(full).sum(-1) > 0  # slots of padding rows hold anything
            np.testing.assert_allclose(np.asarray(got)[real], full[real], rtol=2e-4, atol=2e-4)
    assert dropped == 0


def test_two_microbatches_equal_one():
    plan, mesh = "study", (1, 2, 1)
    one, cache, _ = prefilled(plan, mesh)
    two, cache_of_two, _ = prefilled(plan, mesh, microbatches=2)
    np.testing.assert_allclose(two, one, rtol=2e-4, atol=2e-4)
    for name in cache:
        np.testing.assert_allclose(cache_of_two[name], cache[name], rtol=2e-4, atol=2e-4)
    logits, *_ = decoded(plan, mesh, cache_of_two, microbatches=2)
    np.testing.assert_allclose(logits, expected(TINY)[0], rtol=3e-4, atol=3e-4)


def test_tensor_parallel_ranks_hold_all_tokens_and_drop_each_pair_once():
    """At a fair share of capacity every expert counts its own drops, wherever it lies."""
    fair = replace(prefill(seq=SEQ - 1), capacity_factor=1.0)
    _, _, dropped, whole = run(fair, "tensor-parallel", (1, 4, 1))
    assert whole.layout.tokens == BATCH * (SEQ - 1)
    _, _, on_one_device, _ = run(fair, "tensor-parallel", (1, 1, 1))
    assert dropped == on_one_device > 0


VARIANTS = {
    "softmax router, best group by its best expert": replace(
        TINY, scoring_func="softmax", topk_method="group_limited_greedy", norm_topk_prob=False
    ),
    "no groups, two shared experts": replace(TINY, topk_method="greedy", n_shared_experts=2),
    "no shared expert, queries at full rank": replace(TINY, n_shared_experts=0, q_lora_rank=None),
}


def test_automatic_partitioning_gives_the_same_numbers():
    logits, cache, dropped = prefilled("study-auto", (2, 4, 1))
    np.testing.assert_allclose(logits, expected(TINY, SEQ - 1)[0], rtol=2e-4, atol=2e-4)
    logits, *_ = decoded("study-auto", (2, 4, 1), cache)
    np.testing.assert_allclose(logits, expected(TINY)[0], rtol=3e-4, atol=3e-4)
    assert dropped == 0


def test_keys_from_the_gathered_hidden_state_give_the_same_numbers(monkeypatch):
    exact = replace(get_plan("study-gathered"), hidden_gather="fp32")
    monkeypatch.setitem(models.PLANS, "exact", exact)
    want, want_caches = expected(TINY, SEQ - 1)
    logits, caches, _ = prefilled("exact", (4, 2, 1))
    np.testing.assert_allclose(logits, want, rtol=2e-4, atol=2e-4)
    for name, want_cache in want_caches.items():
        np.testing.assert_allclose(caches[name], want_cache, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())
def test_variants_of_the_family(config):
    logits, *_ = run(prefill(config), "study", (2, 2, 2))
    np.testing.assert_allclose(logits, expected(config)[0], rtol=2e-4, atol=2e-4)


def test_plain_and_flash_attention_give_the_same_numbers():
    plain, *_ = run(prefill(seq=SEQ - 1, attention="plain"), "study", (1, 1, 1))
    np.testing.assert_array_equal(plain, prefilled("study", (1, 1, 1))[0])


def test_slots_are_filled_in_order_and_what_does_not_fit_is_counted():
    # bin 0 gets items 1, 2 and 5 but holds two; item 3 has no bin (3 = padding)
    slots = jax.jit(lambda bins: assign_slots(bins, bins=3, capacity=2))(
        np.array([1, 0, 0, 3, 2, 0], np.int32)
    )
    assert int(slots.dropped) == 3 - 2
    assert slots.slot_of_item.tolist() == [1 * 2 + 0, 0 * 2 + 0, 0 * 2 + 1, 3 * 2, 2 * 2 + 0, 3 * 2]
    assert slots.filled.tolist() == [True, True, True, False, True, False]
    assert np.asarray(slots.item_of_slot)[np.asarray(slots.filled)].tolist() == [1, 2, 0, 4]


def test_unbalanced_routing_at_a_fair_share_of_capacity_drops_some():
    _, _, dropped, _ = run(replace(prefill(seq=SEQ - 1), capacity_factor=1.0), "study", (1, 1, 1))
    # three layers route 5 * 21 tokens to 2 experts each
    assert 0 < dropped < 3 * 5 * 21 * 2
