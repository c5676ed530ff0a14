"""Prefill throughput of DeepSeek-V3 in production and at serving projects."""

from __future__ import annotations

from dataclasses import dataclass

from xla_cost.machine import load
from xla_cost.policy import Policy, policy
from xla_cost.price import price
from xla_cost.programs import Request, model_program
from xla_cost.validate.points import Point


@dataclass(frozen=True, slots=True)
class Prefill:
    """One measured prefill deployment: expert parallel over `ranks`, attention data parallel."""

    name: str
    machine: str
    ranks: int
    prompt: int
    tokens_per_gpu: int
    number_format: str
    microbatches: int
    tokens_per_s: float
    source: str


PREFILLS = (
    Prefill("H800 EP32, 4K prompts", "h800", 32, 4096, 16384, "fp8", 2, 7839,
            "deepseek-ai/profile-data: EP32, 4K prompts, 16K tokens per GPU, two micro-batches"),
    Prefill("H100 EP32, 1K prompts", "h100", 32, 1024, 16384, "fp8", 2, 7209,
            "SGLang, lmsys.org blog, large-scale expert parallelism: 1K prompts"),
    Prefill("GB200 EP2, 2K prompts", "gb200", 2, 2048, 16384, "fp8+fp4", 1, 26156,
            "SGLang, lmsys.org blog, GB200 NVL72: fp8 attention, NVFP4 experts, 2 ranks"),
)  # fmt: skip


def serving_policy() -> Policy:
    """`calibrated`, with the dispatch of DeepEP and its like: a token once to each device.

    At most four nodes per token: DeepSeek's group-limited routing.
    """
    return policy("calibrated", dedup="device", top_k=8, max_pods=4)


def request(case: Prefill) -> Request:
    """The program of one deployment: every device its own prompts, experts over all."""
    return Request(
        model="deepseek-v3",
        mesh=(1, case.ranks, 1),
        seq=case.prompt,
        batch=case.tokens_per_gpu * case.ranks // case.prompt,
        phase="prefill",
        format=case.number_format,
        plan="dp-attention",
        microbatches=case.microbatches,
    )


def prefill_tokens_per_s(case: Prefill) -> float:
    """Predicted prompt tokens per second and GPU."""
    program = model_program(request(case)).program
    return case.tokens_per_gpu / price(program, load(case.machine), serving_policy()).latency_s


def prefill_points() -> list[Point]:
    """All comparisons of prefill throughput; partitions three programs."""
    return [
        Point("prefill throughput", case.name, case.machine, "tokens/s per GPU",
              case.tokens_per_s, prefill_tokens_per_s(case), case.source)
        for case in PREFILLS
    ]  # fmt: skip
