"""What a run says: latencies, goodput, throughput, occupancy, energy, and what holds it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xla_cost.serving.clock import UNITS_PER_TOKEN, to_s
from xla_cost.serving.simulate import Run
from xla_cost.serving.system import Slo, System

if TYPE_CHECKING:
    from numpy import ndarray

#: Batches of the method of batch means, and Student's t for 95 % with one degree less.
_BATCHES, _T95 = 20, 2.093

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Seconds, all NaN where nothing was measured (TPOT of answers of one token).

    `half_width` is half the 95 % confidence interval of the mean (None: too few).
    """

    mean: float
    p50: float
    p90: float
    p99: float
    maximum: float
    half_width: float | None = None


@dataclass(frozen=True, slots=True)
class ServeResult:
    """One simulated scenario. Per GPU means per device of all pools.

    Latencies are of the measured requests: TTFT from sending to first token, TPOT the time from
    first to last token over the tokens after the first (one value a request), inter-token times
    between tokens (one value a token). A request of one token has neither and keeps any TPOT
    promise. Throughput, occupancy and queues are over the measuring window, from the sending of
    the first measured request to the end of the last. `decode_batch_mean` and `decode_batch_max`:
    requests in an iteration of one worker, over the iterations of all workers in the window.
    Energy is what the curves give for work done (idle time is free). `series`: (seconds, average)
    over the whole run, of all workers together.
    """

    requests: int
    ttft_s: Distribution
    tpot_s: Distribution
    inter_token_s: Distribution
    e2e_s: Distribution
    wait_outside_s: Distribution
    goodput_share: float
    goodput_per_s: float
    goodput_per_s_per_gpu: float
    requests_per_s: float
    input_tokens_per_s_per_gpu: float
    output_tokens_per_s_per_gpu: float
    decode_batch_mean: float
    decode_batch_max: int
    in_flight_mean: float
    prefill_queue_mean: float
    decode_queue_mean: float
    prefill_utilisation: float
    decode_utilisation: float
    transfer_utilisation: float
    preemptions: int
    energy_j_per_output_token: float | None
    bottleneck: str
    window_s: float
    simulated_requests: int
    devices: int
    series: dict[str, tuple[tuple[float, float], ...]]
    events: int
    elapsed_s: float


def summarise(system: System, run: Run, slo: Slo | None = None) -> ServeResult:
    """The result of `run`."""
    import numpy as np

    table = np.array(run.samples, dtype=np.float64)
    arrival, sent, first, finish = (table[:, i] / 2.0**60 for i in (1, 2, 3, 4))
    output = table[:, 6]
    ttft, e2e = first - sent, finish - sent
    more = output > 1
    tpot = (finish - first)[more] / (output[more] - 1)
    kept = _kept(slo or Slo(), ttft, e2e, (finish - first) / np.maximum(output - 1, 1))
    change = {name: run.end[name] - run.start[name] for name in run.end}
    window = max(to_s(change["ticks"]), 1e-12)
    devices = system.devices
    count, inputs, outputs = run.window_finished
    goodput = float(kept.mean()) * count / window
    itl = run.meter.itl
    p50, p90, p99 = itl.quantiles_s(QUANTILES)
    uses = _utilisation(system, change)
    tokens = change["decoded_units"] / UNITS_PER_TOKEN + count
    energy = to_s(change["energy"]) / tokens if change["energy"] else None
    means = {
        name: change[name] / max(change["ticks"], 1)
        for name in ("in_flight", "prefill_waiting", "decode_waiting")
    }
    batch = change["member_iterations"] / max(change["iterations"], 1)
    return ServeResult(
        requests=len(run.samples),
        ttft_s=distribution(ttft),
        tpot_s=distribution(tpot),
        inter_token_s=Distribution(
            itl.mean_s, p50, p90, p99, to_s(itl.maximum) if itl.weight else float("nan")
        ),
        e2e_s=distribution(e2e),
        wait_outside_s=distribution(sent - arrival),
        goodput_share=float(kept.mean()),
        goodput_per_s=goodput,
        goodput_per_s_per_gpu=goodput / devices,
        requests_per_s=count / window,
        input_tokens_per_s_per_gpu=inputs / window / devices,
        output_tokens_per_s_per_gpu=outputs / window / devices,
        decode_batch_mean=batch,
        decode_batch_max=run.meter.largest_batch,
        in_flight_mean=means["in_flight"],
        prefill_queue_mean=means["prefill_waiting"],
        decode_queue_mean=means["decode_waiting"],
        prefill_utilisation=uses["prefill"],
        decode_utilisation=uses["decode"],
        transfer_utilisation=uses["transfer"],
        preemptions=change["preemptions"],
        energy_j_per_output_token=energy,
        bottleneck=_bottleneck(system, uses, means, batch, change["preemptions"]),
        window_s=window,
        simulated_requests=run.sent,
        devices=devices,
        series=_series(run),
        events=run.events,
        elapsed_s=run.elapsed_s,
    )


def distribution(values: ndarray) -> Distribution:
    """Mean, linear-interpolated percentiles, and the batch-means confidence of the mean.

    NaN everywhere where there are no values.
    """
    import numpy as np

    if not len(values):
        return Distribution(*[float("nan")] * 5)
    p50, p90, p99 = (float(v) for v in np.percentile(values, [50, 90, 99]))
    return Distribution(
        float(values.mean()), p50, p90, p99, float(values.max()), half_width(values)
    )


def half_width(values: ndarray) -> float | None:
    """Half the 95 % confidence interval of the mean by 20 batch means in order of sending.

    Neighbours in a queue are alike, so single values would promise too much; means of long
    batches are nearly independent (Law and Kelton, Simulation Modeling and Analysis, ch. 9).
    None with fewer than ten values a batch.
    """
    size = len(values) // _BATCHES
    if size < 10:
        return None
    means = values[: size * _BATCHES].reshape(_BATCHES, size).mean(axis=1)
    return float(_T95 * means.std(ddof=1) / _BATCHES**0.5)


def _kept(slo: Slo, ttft: ndarray, e2e: ndarray, tpot: ndarray) -> ndarray:
    import numpy as np

    kept = np.ones(len(ttft), dtype=bool)
    for limit, values in ((slo.ttft_s, ttft), (slo.tpot_s, tpot), (slo.e2e_s, e2e)):
        if limit is not None:
            kept &= values <= limit
    return kept


def _utilisation(system: System, change: dict[str, int]) -> dict[str, float]:
    """Busy shares of the prefill workers, the decode workers and the transfer's senders."""
    ticks = max(change["ticks"], 1)
    prefill = system.prefill or system.mixed
    decode = system.decode or system.mixed
    prefillers = prefill.workers if prefill else 1
    decoders = decode.workers if decode else 1
    return {
        "prefill": min(change["busy_prefill"] / (ticks * prefillers), 1.0),
        "decode": min(change["busy_decode"] / (ticks * decoders), 1.0),
        "transfer": min(change["busy_transfer"] / (ticks * prefillers), 1.0),
    }


def _bottleneck(
    system: System, uses: dict[str, float], means: dict[str, float], batch: float, preempted: int
) -> str:
    """One sentence: which resource makes requests wait, and the figures that say so."""
    decode = system.decode or system.mixed
    places = decode.max_batch if decode else 0
    waiting, claiming = means["prefill_waiting"], means["decode_waiting"]
    if system.mixed is not None:
        used = uses["prefill"] + uses["decode"]
        if used < 0.95:
            return f"nothing: the mixed workers are busy {used:.0%} of the time"
        share = uses["prefill"] / used
        return (
            f"the mixed workers: busy all the time, {share:.0%} of it with prompts, "
            f"and {waiting:.1f} prompts wait on average"
        )
    if uses["transfer"] > 0.95:
        return (
            f"the cache transfer over tier {system.transfer.tier or 'unnamed'}: "
            f"its senders are busy {uses['transfer']:.0%} of the time"
        )
    if claiming > max(waiting, 1.0):
        why = "batch" if batch >= 0.95 * places else "memory"
        return (
            f"decode: {claiming:.1f} requests wait for a place, its {why} is full "
            f"at {batch:.1f} requests a worker"
        )
    if preempted:
        return f"decode memory: {preempted} requests were thrown out and prefilled again"
    if waiting > 1.0 or uses["prefill"] > 0.95:
        return (
            f"prefill: its workers are busy {uses['prefill']:.0%} of the time "
            f"and {waiting:.1f} prompts wait on average"
        )
    return (
        f"nothing: prefill workers are busy {uses['prefill']:.0%} of the time "
        f"and decode runs {batch:.1f} requests a worker without a queue"
    )


def _series(run: Run) -> dict[str, tuple[tuple[float, float], ...]]:
    names: Sequence[str] = ("in_flight", "prefill_waiting", "decode_waiting", "decode_batch")
    return {name: getattr(run.meter, name).points(run.now) for name in names}
