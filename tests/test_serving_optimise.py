"""The co-design search on curves that are given: bounds, batch limits, the rate that is kept."""

from __future__ import annotations

import json

import pytest

from xla_cost.serving import optimise
from xla_cost.serving.candidates import candidates, decode_shapes, prefill_shapes
from xla_cost.serving.curves import LatencyCurves, affine_decode, affine_prefill
from xla_cost.serving.lowered import Workers
from xla_cost.serving.optimise import (
    Promise,
    Shapes,
    best_designs,
    drive,
    optimise_json,
    optimise_table,
)

SMALL = ((1, 4, 1), "study")
LARGE = ((1, 8, 1), "study")
DECODE = ((1, 24, 1), "dp-attention")
INPUTS, OUTPUTS = 1000, 101


def prefill(devices: int, per_token: float) -> Workers:
    curves = LatencyCurves(prefill=affine_prefill(0.0, per_token), devices=devices)
    return Workers(curves, 1 << 30, (), 1.0)


def decode(devices: int, fixed: float, per_request: float, kv_tokens: int = 1 << 30) -> Workers:
    curves = LatencyCurves(decode=affine_decode(fixed, per_request), devices=devices)
    return Workers(curves, kv_tokens, (), 1.0)


def test_bounds_are_the_slower_side() -> None:
    # a prompt takes 1000 * 20 us = 20 ms on 4 devices; a step of B takes (1 + B / 256) / 512 s
    found = list(
        candidates(
            {SMALL: prefill(4, 20e-6)}, {DECODE: decode(24, 2.0**-9, 2.0**-17)}, 72,
            tpot_s=2.0**-8, ttft_s=1.0, inputs=INPUTS, outputs=OUTPUTS,
        )
    )  # fmt: skip
    # 72 devices: one decode worker leaves 48 for 12 prefill workers, two leave 24 for 6
    assert [(c.decode_workers, c.prefill_workers, c.prompts) for c in found] == [
        (1, 12, 1), (2, 6, 1), (1, 12, 4), (2, 6, 4),
    ]  # fmt: skip
    # 1/256 s are kept up to 256 requests: one worker passes 256 * 256 / 100 steps a second
    assert {c.max_batch for c in found} == {256}
    # 12 prefill workers at 50 prompts a second pass 600, 6 pass 300
    assert [c.bound_per_s for c in found] == pytest.approx([600, 300, 600, 300])
    slow = candidates(
        {SMALL: prefill(4, 10e-6)}, {DECODE: decode(24, 2.0**-9, 2.0**-17)}, 72,
        tpot_s=2.0**-8, ttft_s=1.0, inputs=INPUTS, outputs=OUTPUTS,
    )  # fmt: skip
    # at 100 prompts a second one decode worker is the wall in front of 12, not in front of 6
    assert [c.bound_per_s for c in slow] == pytest.approx([655.36, 600, 655.36, 600])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer requests than a user gets."""
    monkeypatch.setattr(optimise, "_WARMUP", 100)
    monkeypatch.setattr(optimise, "_MEASURED", 400)


def test_what_cannot_keep_a_promise_is_left_out() -> None:
    shapes = ({SMALL: prefill(4, 20e-6)}, {DECODE: decode(24, 2e-3, 1e-5)})
    asked = {"devices": 72, "inputs": INPUTS, "outputs": OUTPUTS}
    # a step takes 2 ms before the first request
    assert list(candidates(*shapes, tpot_s=2e-3, ttft_s=1.0, **asked)) == []
    # four prompts take 80 ms, one takes 20
    prompts = {c.prompts for c in candidates(*shapes, tpot_s=4e-3, ttft_s=0.05, **asked)}
    assert prompts == {1}


def test_memory_limits_the_batch() -> None:
    tight = decode(24, 2e-3, 1e-5, kv_tokens=50 * (INPUTS + OUTPUTS) + 1)
    found = candidates(
        {SMALL: prefill(4, 20e-6)}, {DECODE: tight}, 28,
        tpot_s=4e-3, ttft_s=1.0, inputs=INPUTS, outputs=OUTPUTS,
    )  # fmt: skip
    assert {c.max_batch for c in found} == {50}


@pytest.mark.usefixtures("short")
def test_a_design_is_driven_to_its_bound() -> None:
    shapes = Shapes({SMALL: prefill(4, 20e-6)}, {DECODE: decode(24, 2e-3, 0.0)})
    promise = Promise(INPUTS, OUTPUTS, ttft_s=1.0, tpot_s=4e-3)
    [split] = [
        c
        for c in candidates(
            shapes.prefill, shapes.decode, 28, promise.tpot_s, promise.ttft_s, INPUTS, OUTPUTS
        )
        if c.prompts == 1
    ]
    design = drive(split, shapes, promise, devices=28)
    assert design is not None
    # one prefill worker passes 50 prompts a second; decode, with 2 ms a step, far more
    assert split.bound_per_s == pytest.approx(50)
    assert 0.9 * 50 <= design.rate_per_s < 50
    assert design.result.goodput_share >= 0.95
    kept = design.rate_per_s * design.result.goodput_share
    assert design.goodput_per_gpu == pytest.approx(kept / 28)


@pytest.mark.usefixtures("short")
def test_the_best_is_found_and_the_studys_split_stands_beside_it() -> None:
    # 8 devices are no faster than 4: twelve small workers pass twice what six large ones do
    shapes = Shapes(
        {SMALL: prefill(4, 20e-6), LARGE: prefill(8, 20e-6)}, {DECODE: decode(24, 1e-3, 1e-6)}
    )
    found = best_designs(shapes, Promise(INPUTS, OUTPUTS, ttft_s=1.0, tpot_s=4e-3), devices=72)
    best = max(found, key=lambda d: d.goodput_per_gpu)
    assert best.words == "12 x 1x4x1 study + 1 x 1x24x1 dp-attention"
    study = [d for d in found if d.split.is_study]
    assert {d.words for d in study} == {"6 x 1x8x1 study + 1 x 1x24x1 dp-attention"}
    assert best.rate_per_s > 1.8 * max(d.rate_per_s for d in study)
    table = optimise_table({"copper": found})
    assert "12 x 1x4x1 study" in table
    answer = json.loads(json.dumps(optimise_json({"copper": found})))
    assert len(answer["fabrics"]["copper"]) == len(found)


def test_candidate_shapes_have_the_sizes_they_say() -> None:
    for (x, y, z), plan in prefill_shapes() + decode_shapes():
        assert x * y * z in (4, 8, 12, 16, 24, 36, 48)
        assert (x, z) == (1, 1) or plan == "study"
    assert len(set(prefill_shapes())) == len(prefill_shapes())
    # 4: 2x2, 1x4; 8: 4x2, 2x4, 1x8; 16: 8x2, 4x4, 2x8, 1x16; and dp-attention on each size
    assert len(prefill_shapes()) == 2 + 3 + 4 + 3
