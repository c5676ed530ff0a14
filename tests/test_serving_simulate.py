"""The simulation against closed forms, and event logs written out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.serving.clock import TICKS_PER_S, to_ticks
from xla_cost.serving.curves import (
    LatencyCurves,
    affine_decode,
    affine_prefill,
)
from xla_cost.serving.load import Lengths, Load
from xla_cost.serving.results import summarise
from xla_cost.serving.simulate import Event, simulate
from xla_cost.serving.system import Mtp, Pool, Slo, System, Transfer
from xla_cost.serving.trace import Trace, TraceRow


def trace(*rows: tuple[float, int, int]) -> Load:
    return Load(arrivals="trace", trace=Trace(tuple(TraceRow(*row) for row in rows)))


def prefiller(seconds_per_token: float = 1.0, fixed: float = 0.0) -> LatencyCurves:
    return LatencyCurves(prefill=affine_prefill(fixed, seconds_per_token))


def decoder(fixed: float, per_request: float = 0.0, per_context: float = 0.0) -> LatencyCurves:
    return LatencyCurves(decode=affine_decode(fixed, per_request, per_context))


def log_of(system: System, load: Load) -> list[Event]:
    events: list[Event] = []
    simulate(system, load, events.append)
    return events


def test_a_single_request() -> None:
    system = System(
        prefill=Pool("prefill", 1, prefiller(0.25)),
        decode=Pool("decode", 1, decoder(fixed=0.5, per_context=1 / 64)),
        transfer=Transfer(bytes_per_token=8, sender_bytes_per_s=64, latency_s=0.5),
    )
    # prefill 16 * 0.25 = 4; transfer 16 * 8 / 64 + 0.5 = 2.5;
    # three steps of 0.5 + context / 64 with contexts 17, 18, 19: 1.5 + 54 / 64
    assert log_of(system, trace((0.0, 16, 4))) == [
        (0.0, "arrive", 0, ""),
        (0.0, "prefill", 0, "prefill0"),
        (4.0, "prefilled", 0, "prefill0"),
        (6.5, "arrived", 0, "decode0"),
        (6.5, "decode", 0, "decode0"),
        (6.5 + 1.5 + 54 / 64, "finish", 0, ""),
    ]
    result = summarise(system, simulate(system, trace((0.0, 16, 4))))
    assert result.ttft_s.mean == 4.0
    assert result.e2e_s.mean == 8.0 + 54 / 64
    assert result.tpot_s.mean == (4.0 + 54 / 64) / 3
    # gaps: 2.5 + 0.5 + 17/64 (transfer and first step), then 0.5 + 18/64 and 0.5 + 19/64
    assert result.inter_token_s.mean == (4.0 + 54 / 64) / 3
    assert result.inter_token_s.maximum == 3.0 + 17 / 64


def test_one_output_token_never_reaches_decode() -> None:
    system = System(Pool("prefill", 1, prefiller(0.5)), Pool("decode", 1, decoder(1.0)))
    assert [e[:2] for e in log_of(system, trace((1.0, 4, 1)))] == [
        (1.0, "arrive"),
        (1.0, "prefill"),
        (3.0, "prefilled"),
        (3.0, "finish"),
    ]


def test_continuous_batching_admits_at_the_end_of_the_running_iteration() -> None:
    system = System(
        prefill=Pool("prefill", 2, prefiller(0.25)),
        decode=Pool("decode", 1, decoder(fixed=1.0, per_request=0.5)),
    )
    # request 0: prefilled at 1, steps of 1.5 s at 1, 2.5, 4
    # request 1 (prompt of 8 from 1.0): prefilled at 3.0, in the middle of the step that ends at 4
    # both: 4 -> 6 -> 8; request 0 has its 4 steps done at 6, request 1 its 2 at 7.5
    events = log_of(system, trace((0.0, 4, 4), (1.0, 8, 3)))
    assert [e for e in events if e[1] in ("prefilled", "decode", "finish")] == [
        (1.0, "prefilled", 0, "prefill0"),
        (1.0, "decode", 0, "decode0"),
        (3.0, "prefilled", 1, "prefill1"),
        (4.0, "decode", 1, "decode0"),
        (6.0, "finish", 0, ""),
        (7.5, "finish", 1, ""),
    ]


def test_prompts_of_one_instant_share_a_batch_within_the_budget() -> None:
    system = System(
        prefill=Pool("prefill", 1, prefiller(0.125, fixed=1.0), token_budget=16),
        decode=Pool("decode", 1, decoder(1.0)),
    )
    # 8 + 8 tokens: 1 + 2 s; the third runs alone: 1 + 1 s
    events = log_of(system, trace((0.0, 8, 1), (0.0, 8, 1), (0.0, 8, 1)))
    assert [e[:3] for e in events if e[1] == "finish"] == [
        (3.0, "finish", 0),
        (3.0, "finish", 1),
        (5.0, "finish", 2),
    ]


def test_chunked_prefill_fills_the_budget() -> None:
    system = System(
        prefill=Pool("prefill", 1, prefiller(0.125, fixed=1.0), token_budget=12, chunked=True),
        decode=Pool("decode", 1, decoder(1.0)),
    )
    # batch 1: 8 tokens of request 0, 4 of request 1 = 1 + 12 / 8 s; batch 2: the other 4
    events = log_of(system, trace((0.0, 8, 1), (0.0, 8, 1)))
    assert [e[:3] for e in events if e[1] == "finish"] == [(2.5, "finish", 0), (4.0, "finish", 1)]


def test_a_cached_prefix_is_not_prefilled() -> None:
    system = System(Pool("prefill", 1, prefiller(0.5)), Pool("decode", 1, decoder(1.0)))
    load = Load(arrivals="trace", trace=Trace((TraceRow(0.0, 10, 1, 6), TraceRow(9.0, 10, 1, 10))))
    events = log_of(system, load)
    # 4 tokens left: 2 s; of a prompt that is cached whole the last token is computed: 0.5 s
    assert [e[0] for e in events if e[1] == "finish"] == [2.0, 9.5]


def test_mixed_worker_runs_chunks_beside_decode() -> None:
    curves = LatencyCurves(prefill=affine_prefill(0.0, 0.25), decode=affine_decode(1.0, 0.5))
    system = System(mixed=Pool("mixed", 1, curves, token_budget=5, chunked=True, max_batch=4))
    # 0.0: 4 tokens of request 0 = 1 s. 1.0: it decodes; budget 5 - 1 = 4.
    # 1.0: step 1.5 + 4 tokens of request 1 (8) = 1 -> 3.5: step + the other 4 -> 6.0: both decode
    # 6.0: request 0 has two steps left, request 1 one: 2 s -> 8.0; 1.5 -> 9.5
    assert log_of(system, trace((0.0, 4, 5), (0.5, 8, 2))) == [
        (0.0, "arrive", 0, ""),
        (0.0, "prefill", 0, "mixed0"),
        (0.5, "arrive", 1, ""),
        (1.0, "prefilled", 0, ""),
        (1.0, "decode", 0, "mixed0"),
        (3.5, "prefill", 1, "mixed0"),
        (6.0, "prefilled", 1, ""),
        (6.0, "decode", 1, "mixed0"),
        (8.0, "finish", 1, ""),
        (9.5, "finish", 0, ""),
    ]


def test_full_memory_lets_requests_wait() -> None:
    system = System(
        prefill=Pool("prefill", 2, prefiller(0.25)),
        decode=Pool("decode", 1, decoder(1.0), kv_tokens=13),
    )
    # each needs 4 + 3 = 7 of 13 tokens: the second waits for the first, 1 + 3 steps
    events = log_of(system, trace((0.0, 4, 4), (0.0, 4, 4)))
    assert [e for e in events if e[1] in ("decode", "finish")] == [
        (1.0, "decode", 0, "decode0"),
        (4.0, "finish", 0, ""),
        (4.0, "decode", 1, "decode0"),
        (7.0, "finish", 1, ""),
    ]


def test_full_memory_throws_the_last_one_out() -> None:
    system = System(
        prefill=Pool("prefill", 2, prefiller(0.25)),
        decode=Pool("decode", 1, decoder(1.0), kv_tokens=13, kv_policy="preempt", kv_watermark=0.0),
    )
    # contexts 5 + 5 at t=1, 6 + 6 at t=2, 7 + 7 > 13 at t=3: request 1 is thrown out. It has
    # 1 + 2 tokens, so 4 + 3 = 7 are prefilled again (1.75 s), which gives its fourth and last.
    assert log_of(system, trace((0.0, 4, 4), (0.0, 4, 4)))[8:] == [
        (1.0, "decode", 0, "decode0"),
        (1.0, "decode", 1, "decode0"),
        (3.0, "preempt", 1, "decode0"),
        (3.0, "prefill", 1, "prefill0"),
        (4.0, "finish", 0, ""),
        (4.75, "prefilled", 1, "prefill0"),
        (4.75, "finish", 1, ""),
    ]


def test_prefill_worker_keeps_caches_until_they_are_taken() -> None:
    system = System(
        prefill=Pool("prefill", 1, prefiller(0.25), kv_tokens=4),
        decode=Pool("decode", 1, decoder(1.0), max_batch=1),
    )
    # request 1 waits for a place until 3; only then has the prefill worker memory for request 2
    events = log_of(system, trace((0.0, 4, 3), (0.0, 4, 3), (0.0, 4, 3)))
    assert [e for e in events if e[1] in ("prefill", "prefilled", "finish")] == [
        (0.0, "prefill", 0, "prefill0"),
        (1.0, "prefilled", 0, "prefill0"),
        (1.0, "prefill", 1, "prefill0"),
        (2.0, "prefilled", 1, "prefill0"),
        (3.0, "finish", 0, ""),
        (3.0, "prefill", 2, "prefill0"),
        (4.0, "prefilled", 2, "prefill0"),
        (5.0, "finish", 1, ""),
        (7.0, "finish", 2, ""),
    ]


def test_claim_before_prefill_waits_in_front_of_the_prompt() -> None:
    system = System(
        prefill=Pool("prefill", 1, prefiller(0.25)),
        decode=Pool("decode", 1, decoder(1.0), max_batch=1),
        claim="before-prefill",
    )
    events = log_of(system, trace((0.0, 4, 3), (0.0, 4, 3)))
    assert [e for e in events if e[1] in ("prefill", "prefilled", "finish")] == [
        (0.0, "prefill", 0, "prefill0"),
        (1.0, "prefilled", 0, "prefill0"),
        (3.0, "finish", 0, ""),
        (3.0, "prefill", 1, "prefill0"),
        (4.0, "prefilled", 1, "prefill0"),
        (6.0, "finish", 1, ""),
    ]


def test_first_token_at_decode_counts_the_wait_as_ttft() -> None:
    system = System(
        prefill=Pool("prefill", 1, prefiller(0.25)),
        decode=Pool("decode", 1, decoder(1.0), max_batch=1),
        first_token="decode",
    )
    result = summarise(system, simulate(system, trace((0.0, 4, 3), (0.0, 4, 3))))
    # prefilled together at 2, taken into the batch at 2 and at 4, each then 2 steps of 1 s
    assert result.ttft_s.mean == (2.0 + 4.0) / 2
    assert result.tpot_s.mean == 1.0


def test_transfers_queue_at_the_sender_and_the_receiver() -> None:
    system = System(
        prefill=Pool("prefill", 1, prefiller(0.0, fixed=1.0), token_budget=8),
        decode=Pool("decode", 1, decoder(1.0)),
        transfer=Transfer(bytes_per_token=1, sender_bytes_per_s=4, receiver_bytes_per_s=2),
    )
    # both prefilled at 1; 4 bytes take the receiver 2 s each: there at 3 and at 5
    events = log_of(system, trace((0.0, 4, 2), (0.0, 4, 2)))
    assert [e[:3] for e in events if e[1] == "arrived"] == [
        (3.0, "arrived", 0),
        (5.0, "arrived", 1),
    ]


def test_multi_token_prediction_takes_fewer_steps() -> None:
    system = System(
        prefill=Pool("prefill", 1, prefiller(0.25)),
        decode=Pool("decode", 1, decoder(fixed=0.0, per_request=0.5)),
        mtp=Mtp(depth=1, acceptance=1.0, draft_step_share=0.25),
    )
    # 8 tokens in 4 steps, each verifies two rows and drafts one: 2 * 0.5 * 1.25
    result = summarise(system, simulate(system, trace((0.0, 4, 9))))
    assert result.e2e_s.mean == 1.0 + 4 * 1.25
    assert result.inter_token_s.mean == 1.25 / 2


def test_accepted_drafts_have_their_mean() -> None:
    system = System(
        prefill=Pool("prefill", 8, prefiller(1e-9)),
        decode=Pool("decode", 1, decoder(fixed=1.0)),
        mtp=Mtp(depth=2, acceptance=0.5, draft_step_share=0.0),
    )
    load = trace(*[(0.0, 4, 1001)] * 400)
    result = summarise(system, simulate(system, load))
    # 1 + 0.5 + 0.25 tokens a step: 0.5714 s a token, and its spread over 400 requests
    assert result.tpot_s.mean == pytest.approx(1 / 1.75, rel=0.005)


def test_md1_mean_wait_is_that_of_pollaczek_and_khinchine() -> None:
    system = System(
        Pool("prefill", 1, prefiller(1.0), max_prompts=1), Pool("decode", 1, decoder(1))
    )
    load = Load(rate_per_s=0.7, requests=15_000, warmup=1000, seed=3)
    result = summarise(system, simulate(system, load))
    # service 1 s: wait = rho / (2 (1 - rho)) = 0.7 / 0.6, time to first token 1 s more
    assert result.ttft_s.half_width is not None
    assert abs(result.ttft_s.mean - (1 + 0.7 / 0.6)) < 1.5 * result.ttft_s.half_width
    assert result.ttft_s.half_width < 0.15
    assert result.prefill_utilisation == pytest.approx(0.7, rel=0.02)


def test_littles_law_is_exact() -> None:
    system = System(
        prefill=Pool("prefill", 2, prefiller(1e-3)),
        decode=Pool("decode", 2, decoder(0.01, 1e-4, 1e-7), max_batch=20),
    )
    rows = [(0.05 * i, 100 + 37 * i % 300, 1 + 53 * i % 90) for i in range(200)]
    run = simulate(system, trace(*rows))
    assert run.sent == run.finished == len(run.samples) == 200
    # integral of the requests in flight = sum of their times in the system, to the tick
    assert run.end["in_flight"] == sum(finish - sent for _, _, sent, _, finish, _, _ in run.samples)
    # and the gaps between tokens add up to the time from first to last token
    assert run.meter.largest_batch == 20
    gaps = sum(finish - first for _, _, _, first, finish, _, _ in run.samples)
    assert run.meter.itl.total == 1024 * gaps
    assert run.meter.itl.weight == 1024 * sum(row[2] - 1 for row in rows)
    assert run.end["prefill_tokens"] == sum(row[1] for row in rows)
    assert run.end["decoded_units"] == 1024 * sum(row[2] - 1 for row in rows)


def test_saturated_throughput_is_the_capacity() -> None:
    system = System(
        prefill=Pool("prefill", 3, prefiller(0.001, fixed=0.024), token_budget=1000),
        decode=Pool("decode", 1, decoder(0.001)),
    )
    load = Load(
        arrivals="closed", in_flight=64, input_tokens=Lengths(mean=250),
        output_tokens=Lengths(mean=11), requests=2000, warmup=200,
    )  # fmt: skip
    result = summarise(system, simulate(system, load))
    # three workers, four prompts of 250 in a batch of 1.024 s
    assert result.requests_per_s == pytest.approx(3 * 4 / 1.024, rel=0.01)
    assert result.prefill_utilisation == pytest.approx(1.0, rel=1e-9)
    assert result.bottleneck.startswith("prefill: its workers are busy 100%")


def test_decode_bottleneck_is_named() -> None:
    system = System(
        prefill=Pool("prefill", 3, prefiller(1e-4)),
        decode=Pool("decode", 1, decoder(0.01), max_batch=8),
    )
    load = Load(
        arrivals="closed", in_flight=64, input_tokens=Lengths(mean=250),
        output_tokens=Lengths(mean=101), requests=500, warmup=100,
    )  # fmt: skip
    result = summarise(system, simulate(system, load))
    # 8 requests every 100 steps of 10 ms
    assert result.requests_per_s == pytest.approx(8.0, rel=0.03)
    assert "its batch is full at 8.0 requests a worker" in result.bottleneck


def test_goodput_counts_what_keeps_the_promise() -> None:
    system = System(Pool("prefill", 1, prefiller(0.5)), Pool("decode", 1, decoder(0.25)))
    load = trace((0.0, 2, 2), (0.5, 2, 2), (10.0, 2, 2))
    run = simulate(system, load)  # time to first token 1, 1.5, 1
    assert summarise(system, run, Slo(ttft_s=1.2)).goodput_share == 2 / 3
    assert summarise(system, run, Slo(ttft_s=1.2, tpot_s=0.2)).goodput_share == 0.0
    # three requests from 0 to 11.25
    assert summarise(system, run, Slo()).goodput_per_s == pytest.approx(3 / 11.25, rel=1e-12)


def test_energy_adds_up() -> None:
    curves = LatencyCurves(
        prefill=affine_prefill(0.0, 1.0),
        prefill_energy=affine_prefill(3.0, 0.5),
        decode=affine_decode(1.0),
        decode_energy=affine_decode(2.0, 1.0, 0.25),
    )
    system = System(Pool("prefill", 1, curves), Pool("decode", 1, curves))
    result = summarise(system, simulate(system, trace((0.0, 8, 3))))
    # prefill 3 + 4; two steps at contexts 9 and 10: 2 * 3 + 0.25 * 19; three tokens
    assert result.energy_j_per_output_token == (7.0 + 6.0 + 4.75) / 3


def test_impossible_requests_and_systems_are_refused() -> None:
    system = System(Pool("prefill", 1, prefiller()), Pool("decode", 1, decoder(1.0), kv_tokens=10))
    with pytest.raises(XlaCostError, match=r"decode\.kv_tokens = 10: request 0 needs 13"):
        simulate(system, trace((0.0, 8, 6)))
    small = replace(system, prefill=Pool("prefill", 1, prefiller(), token_budget=7))
    with pytest.raises(XlaCostError, match=r"prefill\.token_budget = 7: request 1 has 8 tokens"):
        simulate(small, trace((0.0, 7, 2), (0.0, 8, 2)))
    # of 8 tokens one is cached; thrown out before its last step it would have all 10 again
    hit = Load(arrivals="trace", trace=Trace((TraceRow(0.0, 8, 3, 1),)))
    assert simulate(small, hit).finished == 1
    assert system.decode is not None
    again = replace(small, decode=replace(system.decode, kv_policy="preempt"))
    with pytest.raises(XlaCostError, match="request 0 has 10 tokens to prefill in one batch"):
        simulate(again, hit)
    with pytest.raises(XlaCostError, match="must be prefill and decode, or mixed alone"):
        System(prefill=system.prefill)
    with pytest.raises(XlaCostError, match="max_batch = 64; must be below token_budget = 64"):
        Pool("mixed", 1, LatencyCurves(affine_prefill(0, 1), affine_decode(1)), 64, max_batch=64)


def test_ticks_are_exact_for_binary_fractions() -> None:
    assert to_ticks(0.375) == 3 * TICKS_PER_S // 8
