"""Memory of decode and prefill programs: the cache once, and a rest that is one layer's.

A decode step has the cache as argument and as result and updates it in place. What is alive
beside weights and cache is then one layer's part of the cache, read from the stack of all
layers, and what that layer makes.
"""

from __future__ import annotations

from functools import cache

import pytest

from xla_cost.machine import load
from xla_cost.models import get_config
from xla_cost.price.memory import Memory, memory_of
from xla_cost.programs import Request, model_program
from xla_cost.search.candidates import Candidate
from xla_cost.search.model_problem import ModelProblem
from xla_cost.serving.lowered import Points, WorkerModel

PLANS = ("study", "study-balanced", "study-auto", "study-gathered", "hybrid", "dp-attention",
         "tensor-parallel")  # fmt: skip
BF16 = 2
TINY_LATENT = 16 + 4
TINY_LAYERS = 4


@cache
def memory(request: Request) -> Memory:
    return memory_of(model_program(request).program, load("b300"))


def tiny(plan: str, seq: int, microbatches: int = 1, attention: str = "flash") -> Memory:
    """A decode step of 16 sequences on 8 devices."""
    return memory(
        Request("tiny", (2, 2, 2), seq, 16, "decode", plan=plan, attention=attention,
                microbatches=microbatches)
    )  # fmt: skip


@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("plan", PLANS)
def test_a_longer_cache_costs_itself_and_one_layer(plan: str, microbatches: int) -> None:
    """512 positions more: of all layers as cache, of one layer of a micro-batch as read.

    Two micro-batches share one mask, a byte for every score, which none has to make anew.
    """
    short, long = tiny(plan, 1024, microbatches), tiny(plan, 1536, microbatches)
    parts = 8 if plan == "dp-attention" else 2  # of the batch, or of the positions
    added = 16 * 512 // parts * TINY_LATENT * BF16
    assert long.kv_cache_bytes - short.kv_cache_bytes == added * TINY_LAYERS
    rest = long.peak_activation_bytes - short.peak_activation_bytes
    heads = 6 if plan == "dp-attention" else 3
    mask = 16 * 512 // parts // microbatches * heads if microbatches > 1 else 0
    assert rest == added // microbatches + mask


@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("plan", PLANS)
def test_plain_attention_adds_its_scores(plan: str, microbatches: int) -> None:
    """At most four arrays of scores in fp32 and the latents of the cache read once more."""
    short = tiny(plan, 1024, microbatches, "plain")
    long = tiny(plan, 1536, microbatches, "plain")
    parts, heads = (8, 6) if plan == "dp-attention" else (2, 3)
    rows = 16 * 512 // parts // microbatches
    rest = long.peak_activation_bytes - short.peak_activation_bytes
    read, latents, scores = TINY_LATENT * BF16, 16 * BF16, 4 * 4 * heads
    assert rows * read < rest <= rows * (read + latents + scores)


R1_LAYERS, R1_LATENT = 61, 512 + 64


@pytest.mark.parametrize(
    ("mesh", "plan", "sequences", "positions"),
    [
        ((1, 16, 1), "dp-attention", 16, 131072),
        ((1, 8, 2), "dp-attention", 16, 131072),
        ((2, 8, 1), "study", 128, 131072),
        ((2, 8, 1), "study-gathered", 256, 65536),
        ((2, 8, 1), "tensor-parallel", 128, 131072),
    ],
)
def test_memory_of_a_decode_step_of_r1(mesh, plan, sequences, positions) -> None:
    """256 sequences at 131,072: weights, cache and one layer's part of both."""
    layer = sequences * positions * R1_LATENT * BF16
    for microbatches in (1, 2):
        found = memory(
            Request("r1", mesh, 131072, 256, "decode", plan=plan, microbatches=microbatches)
        )
        assert found.kv_cache_bytes == layer * R1_LAYERS
        rest = found.needed_bytes - found.weights_bytes - layer * R1_LAYERS
        stream = sequences * 128 * R1_LATENT * 4  # queries over the latent, in fp32
        made = found.weights_bytes / R1_LAYERS * 2 + 2 * stream
        assert layer / microbatches < rest < layer / microbatches + made


def test_what_fits_a_b300() -> None:
    """34.7 + 147.4 + 2.4 of 288 GB."""
    found = memory(Request("r1", (1, 16, 1), 131072, 256, "decode", plan="dp-attention"))
    assert found.kv_cache_bytes == 16 * 131072 * 576 * 61 * 2
    assert found.fits


@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan != "study-auto"])
def test_a_prefill_makes_its_cache_once(plan: str, microbatches: int) -> None:
    """The peak of the program holds the results; what is left of it is more than one stream."""
    request = Request("tiny", (2, 2, 2), 256, 16, plan=plan, microbatches=microbatches)
    made = model_program(request).program
    found = memory_of(made, load("b300"))
    config = get_config("tiny")
    tokens = found.kv_cache_bytes // (TINY_LATENT * BF16 * TINY_LAYERS)
    assert found.kv_cache_bytes == tokens * TINY_LATENT * BF16 * TINY_LAYERS
    assert made.entry.peak_live_bytes == found.kv_cache_bytes + found.peak_activation_bytes
    assert found.peak_activation_bytes > tokens * config.hidden_size * BF16


@pytest.mark.parametrize("plan", PLANS)
def test_no_decode_is_rejected_by_a_bound_above_its_need(plan: str) -> None:
    problem = ModelProblem(Request("tiny", (1, 1, 1), 512, 16, phase="decode"))
    for mesh in ((2, 2, 2), (1, 8, 1), (4, 2, 1)):
        for microbatches in (1, 2):
            candidate = Candidate(plan, mesh, microbatches=microbatches)
            if problem.reject(candidate):
                continue
            need = memory(problem.request_of(candidate)).needed_bytes
            assert 0 < problem.least_bytes(candidate) < need


def test_the_cache_a_worker_has_room_for_leaves_it_out_of_the_activations() -> None:
    """(0.9 of the memory - weights - one layer's part and what it makes) over bytes a token."""
    worker = WorkerModel("tiny", (2, 2, 2), "dp-attention", "b300")
    points = Points(worker)
    point, held = points.point("decode", 16, 1024), tiny("dp-attention", 1024)
    a_token = TINY_LATENT * BF16 * TINY_LAYERS / 8  # of any request, on each of 8 devices
    assert point["kv_bytes_per_token"] == a_token
    free = 0.9 * 288e9 - held.weights_bytes - held.peak_activation_bytes
    assert points.kv_tokens("decode", 16, 1024) == int(free / a_token)
    assert held.peak_activation_bytes < held.kv_cache_bytes
