"""Figures of serving results, PNG and SVG: column width, units on axes, colour-blind safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xla_cost.serving.optimise import Design
    from xla_cost.serving.results import ServeResult

# Okabe and Ito's palette; markers and dashes tell the lines apart without colour
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")
_STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "xla-cost",
}


def _save(figure: Any, out: Path, name: str) -> list[Path]:
    import matplotlib.pyplot as plt

    paths = [out / f"{name}.png", out / f"{name}.svg"]
    figure.savefig(paths[0], dpi=200, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


def _panels(count: int, height: float = 2.4) -> tuple[Any, list[Any]]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(
            1, count, figsize=(2.4 * count, height), layout="constrained", squeeze=False
        )
    return figure, list(axes[0])


def study_figures(runs: Mapping[int, tuple[ServeResult, ServeResult]], out: Path) -> list[Path]:
    """The study's figures 7 and 8 with our numbers: copper and photons by requests in flight.

    7: p99 of TTFT, TPOT and end to end. 8: input throughput per GPU and the decode batch.
    """
    seven = (
        ("p99 time to first token (s)", lambda r: r.ttft_s.p99),
        ("p99 time per output token (ms)", lambda r: r.tpot_s.p99 * 1e3),
        ("p99 end to end (s)", lambda r: r.e2e_s.p99),
    )
    eight = (
        ("input tokens / s / GPU", lambda r: r.input_tokens_per_s_per_gpu),
        ("mean decode batch (requests)", lambda r: r.decode_batch_mean),
    )
    return [
        *_bars(runs, seven, out, "serving-latency"),
        *_bars(runs, eight, out, "serving-throughput"),
    ]


def _bars(
    runs: Mapping[int, tuple[ServeResult, ServeResult]], panels: Sequence[Any], out: Path, name: str
) -> list[Path]:
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        figure, axes = _panels(len(panels))
        for axis, (label, value) in zip(axes, panels, strict=True):
            for side, (fabric, colour) in enumerate(
                zip(("copper", "photonic"), _COLOURS, strict=False)
            ):
                heights = [value(pair[side]) for pair in runs.values()]
                places = [i + 0.38 * (side - 0.5) for i in range(len(runs))]
                axis.bar(places, heights, 0.36, color=colour, label=fabric)
            for i, (copper, photonic) in enumerate(runs.values()):
                change = value(photonic) / value(copper) - 1
                top = max(value(copper), value(photonic))
                axis.annotate(
                    f"{change:+.0%}", (i, top), ha="center", va="bottom", xytext=(0, 1),
                    textcoords="offset points",
                )  # fmt: skip
            axis.set_xticks(range(len(runs)), [str(limit) for limit in runs])
            axis.set_xlabel("requests in flight")
            axis.set_ylabel(label)
            axis.margins(y=0.12)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return _save(figure, out, name)


def occupancy_figure(results: Sequence[tuple[str, ServeResult]], out: Path) -> list[Path]:
    """Decode batch and queues over time, one panel a machine."""
    import matplotlib as mpl

    kinds = (
        ("prefill_waiting", "prompts waiting"),
        ("decode_waiting", "waiting for decode"),
        ("decode_batch", "decoding"),
    )
    with mpl.rc_context(_STYLE):
        figure, axes = _panels(len(results), 2.6)
        for axis, (name, result) in zip(axes, results, strict=True):
            for (kind, label), colour in zip(kinds, _COLOURS, strict=False):
                times = [point[0] for point in result.series[kind]]
                values = [point[1] for point in result.series[kind]]
                axis.step(times, values, where="post", color=colour, label=label, linewidth=1)
            axis.set_title(name, fontsize=8)
            axis.set_xlabel("time (s)")
            axis.set_ylabel("requests")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        return _save(figure, out, "serving-occupancy")


def pareto_figure(found: Mapping[str, Sequence[Design]], out: Path) -> list[Path]:
    """Most goodput per GPU and per joule under each TPOT limit, one line a fabric."""
    import matplotlib as mpl

    panels: tuple[tuple[str, Callable[[Design], float]], ...] = (
        ("goodput (requests / s / GPU)", lambda d: d.goodput_per_gpu),
        ("goodput (requests / kJ)", lambda d: d.goodput_per_j * 1e3),
    )
    with mpl.rc_context(_STYLE):
        figure, axes = _panels(2, 2.8)
        for axis, (label, value) in zip(axes, panels, strict=True):
            for (name, designs), colour, marker in zip(
                found.items(), _COLOURS, _MARKERS, strict=False
            ):
                limits = sorted({d.tpot_limit_s for d in designs})
                best = [
                    max((value(d) for d in designs if d.tpot_limit_s == limit), default=0.0)
                    for limit in limits
                ]
                axis.plot(
                    [limit * 1e3 for limit in limits], best, color=colour, marker=marker,
                    markersize=4, label=f"{name}, best design",
                )  # fmt: skip
                fixed = [
                    max((value(d) for d in designs if d.tpot_limit_s == limit and d.split.is_study),
                        default=0.0)
                    for limit in limits
                ]  # fmt: skip
                axis.plot(
                    [limit * 1e3 for limit in limits], fixed, color=colour, marker=marker,
                    markersize=3, linestyle=":", label=f"{name}, 6 x 8 + 24",
                )  # fmt: skip
            axis.set_xlabel("time per output token allowed (ms)")
            axis.set_ylabel(label)
            axis.margins(y=0.08)
            axis.set_ylim(bottom=0)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return _save(figure, out, "serving-pareto")
