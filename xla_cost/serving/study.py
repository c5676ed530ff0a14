"""The reference study's serving scenario (its section V-E, arXiv 2609.01821), and its figures.

Known of it: 72 B300, DeepSeek-R1-like model, FP4; six prefill workers of 8 GPUs, one decode
worker of 24; Poisson arrivals of 250 requests/s, 8192 tokens in, 1024 out; at most 2048, 4096 or
6144 requests in flight. What digests do not say is chosen here once, for both fabrics, with the
reason beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xla_cost.serving.load import Lengths, Load
from xla_cost.serving.lowered import WorkerModel
from xla_cost.serving.results import ServeResult
from xla_cost.serving.spec import PoolSpec, ServeSpec

CONCURRENCY = (2048, 4096, 6144)

#: p99 TTFT in seconds at 2048 in flight: copper, photons
STUDY_P99_TTFT_S = (29.4, 25.8)

#: Photonic over copper, the range over the three settings.
STUDY_CHANGES = {
    "p99 TTFT": (-0.20, -0.12),
    "p99 TPOT": (0.77, 1.10),
    "p99 end to end": (-0.05, -0.01),
    "input tokens/s per GPU": (0.01, 0.04),
}


def study_spec(
    concurrency: int = 2048,
    policy: str = "study",
    requests: int = 6144,
    places_per_gpu: int | None = None,
    prefill_mesh: tuple[int, int, int] = (2, 4, 1),
    prompts: int = 4,
    seed: int = 1,
) -> ServeSpec:
    """The scenario on B300.

    Chosen here: prefill under the study's own plan at 2x4x1, the one mesh of eight devices that
    a search puts first on either fabric (`prefill_mesh` sets another; docs/serving.md shows what
    each does); decode at 1x24x1 under `dp-attention`, since the study's plan keeps a copy of the
    latent cache on every y rank, which at y = 24 leaves room for about 400 requests and takes
    0.15 ms a step for each; no limit on the decode batch but memory (`places_per_gpu` sets one);
    `prompts` in a prefill batch; the first token is sent by the decode worker, so waiting for
    it counts as TTFT. The first `concurrency` requests fill the system and are not measured.
    """
    attention = "plain" if policy == "study" else "flash"
    prefill = WorkerModel(
        "r1", prefill_mesh, "study", "b300", "fp4", attention, policy, memory_share=0.9
    )
    decode = WorkerModel(
        "r1", (1, 24, 1), "dp-attention", "b300", "fp4", attention, policy, memory_share=0.9
    )
    return ServeSpec(
        pools=(
            PoolSpec("prefill", 6, prefill, token_budget=prompts * 8192),
            PoolSpec("decode", 1, decode, max_batch=places_per_gpu and 24 * places_per_gpu),
        ),
        load=Load(
            arrivals="poisson",
            rate_per_s=250.0,
            in_flight=concurrency,
            input_tokens=Lengths(mean=8192),
            output_tokens=Lengths(mean=1024),
            requests=requests,
            warmup=concurrency,
            seed=seed,
        ),
        first_token="decode",
    )


@dataclass(frozen=True, slots=True)
class Change:
    """Photonic over copper less one, beside the study's range and how far outside it is."""

    what: str
    copper: float
    photonic: float
    study_low: float
    study_high: float

    @property
    def change(self) -> float:
        """Relative change."""
        return self.photonic / self.copper - 1 if self.copper else 0.0

    @property
    def deviation(self) -> float:
        """Distance from the study's range, zero inside."""
        return min(self.change - self.study_low, 0.0) + max(self.change - self.study_high, 0.0)


def changes(copper: ServeResult, photonic: ServeResult) -> tuple[Change, ...]:
    """Our changes beside the study's."""
    values = (
        (copper.ttft_s.p99, photonic.ttft_s.p99),
        (copper.tpot_s.p99, photonic.tpot_s.p99),
        (copper.e2e_s.p99, photonic.e2e_s.p99),
        (copper.input_tokens_per_s_per_gpu, photonic.input_tokens_per_s_per_gpu),
    )
    return tuple(
        Change(what, before, after, *STUDY_CHANGES[what])
        for what, (before, after) in zip(STUDY_CHANGES, values, strict=True)
    )


def change_lines(found: Sequence[Change]) -> list[str]:
    """One line a change: ours, the study's range, the distance."""
    lines = [f"{'photonic against copper':26}{'ours':>9}{'study':>18}{'outside by':>12}"]
    for change in found:
        known = f"{change.study_low:+.0%} .. {change.study_high:+.0%}"
        lines.append(f"{change.what:26}{change.change:>+9.1%}{known:>18}{change.deviation:>+12.1%}")
    return lines
