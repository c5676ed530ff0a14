"""What is counted of a run, and for which requests; who waits in front; loads without end."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from test_serving_simulate import decoder, log_of, prefiller, trace

from xla_cost.errors import XlaCostError
from xla_cost.serving.load import Lengths, Load
from xla_cost.serving.result_io import table, to_json
from xla_cost.serving.results import summarise
from xla_cost.serving.simulate import simulate
from xla_cost.serving.system import Pool, Slo, System


@pytest.mark.parametrize("policy", ["queue", "preempt"])
@pytest.mark.parametrize("first_token", ["prefill", "decode"])
def test_inter_token_times_are_those_of_the_measured_requests(
    policy: Literal["queue", "preempt"], first_token: Literal["prefill", "decode"]
) -> None:
    system = System(
        prefill=Pool("prefill", 2, prefiller(1e-3)),
        decode=Pool("decode", 2, decoder(0.01, 1e-3), kv_tokens=900, kv_policy=policy),
        first_token=first_token,
    )
    load = Load(
        rate_per_s=15.0, requests=200, warmup=60, seed=4,
        input_tokens=Lengths("uniform", low=50, high=150), output_tokens=Lengths(mean=41),
    )  # fmt: skip
    run = simulate(system, load)
    assert (run.end["preemptions"] > 0) == (policy == "preempt")
    # 40 gaps a request that add up to the time from first to last token, whoever was thrown out
    assert run.meter.itl.weight == 200 * 40 * 1024
    assert run.meter.itl.total == 1024 * sum(s[4] - s[3] for s in run.samples)
    result = summarise(system, run)
    assert result.inter_token_s.mean == pytest.approx(result.tpot_s.mean, rel=1e-12)


def test_the_decode_batch_is_that_of_one_worker_in_the_window() -> None:
    system = System(
        prefill=Pool("prefill", 1, prefiller(1e-6), token_budget=1000),
        decode=Pool("decode", 2, decoder(1.0)),
    )
    # six requests of two steps at 0, three on either worker; the window starts with the last two
    rows = [(0.0, 1, 3)] * 6 + [(9.0, 1, 3)] * 2
    load = replace(trace(*rows), warmup=6)
    result = summarise(system, simulate(system, load))
    assert (result.decode_batch_mean, result.decode_batch_max) == (1.0, 1)
    whole = summarise(system, simulate(system, trace(*rows)))
    # two steps of three on each worker, then two steps of one
    assert (whole.decode_batch_mean, whole.decode_batch_max) == ((4 * 3 + 4 * 1) / 8, 3)


def test_answers_of_one_token_have_no_time_per_token() -> None:
    system = System(Pool("prefill", 1, prefiller(0.5)), Pool("decode", 1, decoder(1.0)))
    run = simulate(system, trace((0.0, 4, 1), (5.0, 4, 1)))
    result = summarise(system, run, Slo(tpot_s=1e-9))
    assert result.goodput_share == 1.0  # nothing to keep
    answer = to_json(result)
    for name in ("tpot_s", "inter_token_s"):
        assert set(answer[name].values()) == {None}
    assert answer["ttft_s"]["p50"] == 2.0
    rows = [
        line.split("  ")[0] for line in table([("x", result)]).splitlines() if line.endswith(" -")
    ]
    assert "time per output token p99" in rows
    assert "inter-token time mean" in rows


def test_the_preempted_wait_in_front() -> None:
    system = System(
        prefill=Pool("prefill", 3, prefiller(0.25)),
        decode=Pool("decode", 1, decoder(1.0), kv_tokens=13, kv_policy="preempt", kv_watermark=0.0),
    )
    # 0 and 1 join at 1; at 3 either would hold 7 of 13: 1 is thrown out. 2, prefilled at 3, needs
    # 8 + 1 and waits. The 7 tokens of 1 are prefilled again at 4.75; when 0 is done at 6, 1 gets
    # the 8 it needs in front of 2, who has waited longer and gets in when 1 is done
    events = log_of(system, trace((0.0, 4, 6), (0.0, 4, 6), (1.0, 8, 6)))
    assert [e for e in events if e[1] == "decode"] == [
        (1.0, "decode", 0, "decode0"),
        (1.0, "decode", 1, "decode0"),
        (6.0, "decode", 1, "decode0"),
        (8.0, "decode", 2, "decode0"),
    ]


def test_a_rate_that_nothing_passes_ends_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xla_cost.serving.simulate._MOST_IN_FLIGHT", 500)
    system = System(Pool("prefill", 1, prefiller(1.0)), Pool("decode", 1, decoder(1.0)))
    load = Load(rate_per_s=1e7, requests=100, warmup=50)
    # none is answered in the 80 us it takes to send 500 + 2 * 150
    with pytest.raises(XlaCostError, match=r"rate_per_s = 1e\+07: 800 requests .* 0 answered;"):
        simulate(system, load)
    assert len(simulate(system, replace(load, in_flight=20)).samples) == 100
