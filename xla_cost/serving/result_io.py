"""A result as JSON (shared field names) and as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from math import isnan
from typing import Any

from xla_cost.serving.results import Distribution, ServeResult

_DISTRIBUTIONS = (
    ("ttft_s", "time to first token"),
    ("tpot_s", "time per output token"),
    ("inter_token_s", "inter-token time"),
    ("e2e_s", "end to end"),
    ("wait_outside_s", "waiting to be sent"),
)


def to_json(result: ServeResult, series: bool = True) -> dict[str, Any]:
    """Plain values, SI units; null for latencies of which there are none.

    Everything but `elapsed_s` repeats byte for byte.
    """
    fields = asdict(result)
    mean, most = fields.pop("decode_batch_mean"), fields.pop("decode_batch_max")
    fields["decode_batch"] = {"mean": mean, "max": most}
    for name, _ in _DISTRIBUTIONS:
        value = fields[name]
        fields[name] = {
            **{part: _number(value[part]) for part in ("mean", "p50", "p90", "p99")},
            "max": _number(value["maximum"]),
            "mean_half_width_95": value["half_width"],
        }
    if not series:
        del fields["series"]
    return fields


def _number(value: float) -> float | None:
    return None if isnan(value) else value


def table(results: list[tuple[str, ServeResult]]) -> str:
    """Results side by side, one column each, in friendly units."""
    rows = [["", *(name for name, _ in results)]]
    for field, label in _DISTRIBUTIONS:
        if field == "wait_outside_s" and all(r.wait_outside_s.maximum == 0 for _, r in results):
            continue
        for part in ("mean", "p50", "p90", "p99"):
            cells = [seconds(getattr(getattr(r, field), part)) for _, r in results]
            rows.append([f"{label} {part}", *cells])
    for label, show in _LINES:
        rows.append([label, *(show(r) for _, r in results)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines += [f"bottleneck, {name}: {result.bottleneck}" for name, result in results]
    return "\n".join(lines)


def seconds(value: float) -> str:
    """A duration with four digits and its unit, - for none (NaN)."""
    if isnan(value):
        return "-"
    if value >= 1:
        return f"{value:.4g} s"
    return f"{value * 1e3:.4g} ms" if value >= 1e-3 else f"{value * 1e6:.4g} us"


def _confidence(value: Distribution) -> str:
    return "-" if value.half_width is None else seconds(value.half_width)


def _busy(result: ServeResult) -> str:
    return f"{result.prefill_utilisation:.0%} / {result.decode_utilisation:.0%}"


_LINES: tuple[tuple[str, Callable[[ServeResult], str]], ...] = (
    ("mean TTFT 95 % +-", lambda r: _confidence(r.ttft_s)),
    ("mean TPOT 95 % +-", lambda r: _confidence(r.tpot_s)),
    ("requests/s", lambda r: f"{r.requests_per_s:.4g}"),
    ("input tokens/s per GPU", lambda r: f"{r.input_tokens_per_s_per_gpu:.5g}"),
    ("output tokens/s per GPU", lambda r: f"{r.output_tokens_per_s_per_gpu:.5g}"),
    ("requests within SLO", lambda r: f"{r.goodput_share:.1%}"),
    ("goodput requests/s per GPU", lambda r: f"{r.goodput_per_s_per_gpu:.4g}"),
    (
        "decode batch a worker, mean / max",
        lambda r: f"{r.decode_batch_mean:.1f} / {r.decode_batch_max}",
    ),
    ("prompts waiting", lambda r: f"{r.prefill_queue_mean:.1f}"),
    ("waiting for decode", lambda r: f"{r.decode_queue_mean:.1f}"),
    (
        "prefill / decode busy",
        _busy,
    ),
    ("preemptions", lambda r: str(r.preemptions)),
    (
        "energy per output token",
        lambda r: (
            "-" if r.energy_j_per_output_token is None else f"{r.energy_j_per_output_token:.4g} J"
        ),
    ),
    ("events", lambda r: str(r.events)),
    ("simulated in", lambda r: seconds(r.elapsed_s)),
)
