"""Repeats byte for byte, stretches equal single steps, and a naive twin agrees."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_naive import Job, naive

from xla_cost.serving.clock import to_ticks
from xla_cost.serving.curves import DecodeCurve, LatencyCurves, affine_decode, affine_prefill
from xla_cost.serving.load import Lengths, Load
from xla_cost.serving.result_io import to_json
from xla_cost.serving.results import summarise
from xla_cost.serving.simulate import Event, simulate
from xla_cost.serving.steps import StepTable
from xla_cost.serving.system import Mtp, Pool, System, Transfer
from xla_cost.serving.trace import Trace, TraceRow


def prefiller(seconds_per_token: float = 1.0, fixed: float = 0.0) -> LatencyCurves:
    return LatencyCurves(prefill=affine_prefill(fixed, seconds_per_token))


def decoder(fixed: float, per_request: float = 0.0, per_context: float = 0.0) -> LatencyCurves:
    return LatencyCurves(decode=affine_decode(fixed, per_request, per_context))


def _scenario() -> tuple[System, Load]:
    system = System(
        prefill=Pool("prefill", 2, prefiller(1e-5, 1e-3), token_budget=4096, chunked=True),
        decode=Pool(
            "decode", 2, decoder(0.002, 1e-5, 1e-9), max_batch=64, kv_tokens=12_000,
            kv_policy="preempt",
        ),
        transfer=Transfer(1000.0, 1e9, 2e9, 1e-5),
        routing="least-loaded",
        mtp=Mtp(1, 0.7),
    )  # fmt: skip
    load = Load(
        arrivals="gamma", cv=3.0, rate_per_s=60, in_flight=100, requests=600, warmup=50, seed=11,
        input_tokens=Lengths("lognormal", 1000, 1.0, 16, 8000),
        output_tokens=Lengths("uniform", low=1, high=300),
    )  # fmt: skip
    return system, load


def test_same_seed_same_bytes() -> None:
    system, load = _scenario()
    first, second = (to_json(summarise(system, simulate(system, load))) for _ in range(2))
    first.pop("elapsed_s")
    second.pop("elapsed_s")
    assert json.dumps(first) == json.dumps(second)
    other = to_json(summarise(system, simulate(system, Load(**{**_fields(load), "seed": 12}))))
    assert other["ttft_s"] != first["ttft_s"]


def _fields(load: Load) -> dict[str, object]:
    return {name: getattr(load, name) for name in load.__slots__}


@pytest.mark.parametrize("kind", ["split", "mixed"])
def test_stretches_and_single_steps_agree_to_the_tick(kind: str) -> None:
    system, load = _scenario()
    if kind == "mixed":
        curves = LatencyCurves(
            prefill=affine_prefill(1e-3, 1e-5), decode=affine_decode(0.002, 1e-5, 1e-9)
        )
        pool = Pool(
            "mixed", 3, curves, token_budget=512, chunked=True, max_batch=64, kv_tokens=12_000,
            kv_policy="preempt",
        )  # fmt: skip
        system = System(mixed=pool, routing="least-loaded")
    logs: list[list[Event]] = [[], []]
    fast = simulate(system, load, logs[0].append)
    slow = simulate(system, load, logs[1].append, single_steps=True)
    assert fast.samples == slow.samples
    assert logs[0] == logs[1]
    assert (fast.start, fast.end) == (slow.start, slow.end)
    assert fast.end["preemptions"] > 0
    assert fast.events < slow.events


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 12)),
        min_size=1,
        max_size=25,
    ),
    prefillers=st.integers(1, 3),
    decoders=st.integers(1, 2),
    budget=st.integers(30, 90),  # at least the longest prompt
    in_flight=st.integers(1, 12),
)
def test_the_naive_twin_agrees_to_the_tick(
    rows: list[tuple[int, int, int]], prefillers: int, decoders: int, budget: int, in_flight: int
) -> None:
    # whole steps collide in time on purpose: order within an instant must be the same
    rows = sorted(rows)
    first = rows[0][0]
    prefill = affine_prefill(1.0, 0.125, 1 / 256)
    grid = DecodeCurve((1, 4, 16), (0, 20, 60), ((1, 1, 2), (2, 2, 5), (3, 4, 9)))
    jobs = [Job(i, to_ticks(at - first), p, a) for i, (at, p, a) in enumerate(rows)]
    naive(jobs, prefill, StepTable(grid), prefillers, decoders, budget, 1 << 30, in_flight)
    system = System(
        prefill=Pool("prefill", prefillers, LatencyCurves(prefill=prefill), token_budget=budget),
        decode=Pool("decode", decoders, LatencyCurves(decode=grid)),
    )
    load = Load(
        arrivals="trace",
        in_flight=in_flight,
        trace=Trace(tuple(TraceRow(at - first, p, a) for at, p, a in rows)),
    )
    run = simulate(system, load)
    assert [(j.index, j.arrival, j.sent, j.first, j.finish) for j in jobs] == [
        s[:5] for s in run.samples
    ]
