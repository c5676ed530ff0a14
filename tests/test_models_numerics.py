"""Sharded tiny models against plain numpy: every plan, every mesh, prefill and decode, in fp32."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
from flax import nnx
from models_numpy import forward

from xla_cost.models import Workload, build, get_config, get_formats, get_plan
from xla_cost.models.arrange import arrange_ids, decode_cache, pad_weights, prefill_cache
from xla_cost.models.build import abstract_model

TINY = get_config("tiny")
MESHES = [(2, 4, 1), (4, 2, 1), (2, 2, 2)]
PLANS = ["study", "study-balanced", "hybrid", "dp-attention"]
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
    compiled = jax.jit(program.fn).lower(*program.args).compile(FAST)
    logits, caches, dropped = compiled(
        pad_weights(weights(workload.model), program.args[0]), *placed
    )
    logits = np.asarray(logits)[: workload.batch, : workload.model.vocab_size]
    return logits, caches, int(np.sum(dropped)), program


def prefill(config=TINY, seq=SEQ, formats="fp32", **changes):
    return Workload(
        config, BATCH, seq, formats=get_formats(formats), capacity_factor=ROOMY, **changes
    )


@pytest.mark.parametrize("mesh", [(1, 1, 1), *MESHES])
@pytest.mark.parametrize("plan", PLANS)
def test_prefill_equals_numpy(plan, mesh):
    logits, caches, dropped, program = run(prefill(), plan, mesh)
    want, want_caches = expected(TINY)
    np.testing.assert_allclose(logits, want, rtol=2e-4, atol=2e-4)
    got = prefill_cache(caches, program.layout)
    for name, cache in want_caches.items():
        np.testing.assert_allclose(got[name], cache, rtol=2e-4, atol=2e-4)
    assert dropped == 0


@pytest.mark.parametrize("mesh", [(1, 1, 1), *MESHES])
@pytest.mark.parametrize("plan", PLANS)
def test_absorbed_decode_step_equals_expanded_prefill_of_one_more_token(plan, mesh):
    before = expected(TINY, SEQ - 1)[1]
    want, want_caches = expected(TINY)
    workload = replace(prefill(), phase="decode")
    logits, caches, dropped, program = run(
        workload, plan, mesh, cache=before, position=SEQ - 1, ids=token_ids()[:, SEQ - 1 :]
    )
    np.testing.assert_allclose(logits, want, rtol=2e-4, atol=2e-4)
    updated = decode_cache(want_caches, program.layout)
    for name in updated:
        for got, cache in zip(caches[name], updated[name], strict=True):
            real = np.abs(cache).sum(-1) > 0
            np.testing.assert_allclose(np.asarray(got)[real], cache[real], rtol=2e-4, atol=2e-4)
    assert dropped == 0


@pytest.mark.parametrize("plan", PLANS)
def test_own_prefill_then_decode_equals_longer_prefill(plan):
    _, caches, _, program = run(prefill(seq=SEQ - 1), plan, (2, 2, 2))
    workload = replace(prefill(), phase="decode")
    logits, *_ = run(
        workload, plan, (2, 4, 1), cache=prefill_cache(caches, program.layout), position=SEQ - 1,
        ids=token_ids()[:, SEQ - 1 :],
    )  # fmt: skip
    longer, *_ = run(prefill(), plan, (4, 2, 1))
    np.testing.assert_allclose(logits, longer, rtol=3e-4, atol=3e-4)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("plan", ["study", "dp-attention"])
def test_two_microbatches_equal_one(plan, phase):
    mesh = (1, 2, 1)
    extra = {}
    if phase == "decode":
        extra = {
            "cache": expected(TINY, SEQ - 1)[1],
            "position": SEQ - 1,
            "ids": token_ids()[:, SEQ - 1 :],
        }
    one, *_ = run(prefill(phase=phase), plan, mesh, **extra)
    two, *_ = run(prefill(phase=phase, microbatches=2), plan, mesh, **extra)
    np.testing.assert_allclose(two, one, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(two, expected(TINY)[0], rtol=2e-4, atol=2e-4)


VARIANTS = {
    "softmax router, best group by its best expert": replace(
        TINY, scoring_func="softmax", topk_method="group_limited_greedy", norm_topk_prob=False
    ),
    "no groups, two shared experts": replace(TINY, topk_method="greedy", n_shared_experts=2),
    "no shared expert, queries at full rank": replace(TINY, n_shared_experts=0, q_lora_rank=None),
}


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())
def test_variants_of_the_family(config):
    logits, *_ = run(prefill(config), "study", (2, 2, 2))
    np.testing.assert_allclose(logits, expected(config)[0], rtol=2e-4, atol=2e-4)


def test_plain_and_flash_attention_give_the_same_numbers():
    plain, *_ = run(prefill(attention="plain"), "study", (2, 4, 1))
    flash, *_ = run(prefill(attention="flash"), "study", (2, 4, 1))
    np.testing.assert_array_equal(plain, flash)
