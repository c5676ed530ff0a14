"""`explain` for every kind of result file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.price import compare
from xla_cost.report.explain import explain
from xla_cost.report.recompute import recompute
from xla_cost.report.result_file import ResultFile
from xla_cost.units import seconds_text


def sentences(result: ResultFile, *, trusted: bool = False) -> tuple[str, ...]:
    """What a file says, in the order of importance.

    Estimates are priced again, see `explain`. Raises XlaCostError for a kind that holds no
    numbers to explain, and as `recompute` does.
    """
    if result.kind in ("estimate", "demo"):
        return tuple(_estimates(result, trusted))
    if result.kind == "search":
        return tuple(_search(result, trusted))
    if result.kind == "sweep":
        return tuple(_sweep(result.data["rows"]))
    if result.kind == "serve":
        return tuple(_serve(result.data))
    raise XlaCostError(
        f"{result.name}: a result of kind {result.kind}; expected one of estimate, demo, search, "
        "sweep, serve"
    )


def _estimates(result: ResultFile, trusted: bool) -> Iterator[str]:
    for one in recompute(result, trusted=trusted):
        for line in one.changed:
            yield f"Changed since: {line}; what follows is of now."
        if one.place:
            yield f"{one.place}:"
        for estimate in one.estimates:
            yield from explain(estimate)
        if len(one.estimates) > 1:
            comparison = compare(one.estimates[0], one.estimates[1])
            first, second = (estimate.machine.name for estimate in one.estimates[:2])
            factors = " and ".join(
                f"{value:.2f} from {name}"
                for name, value in comparison.split.items()
                if abs(value - 1.0) >= 0.005
            )
            yield (
                f"{second} is {comparison.ratio:.2f} times as fast as {first}"
                f"{f', a factor of {factors}' if factors else ''}."
            )


def _search(result: ResultFile, trusted: bool) -> Iterator[str]:
    data = result.data
    best = data["best"]
    if not best:
        yield f"None of {data['candidates']} candidates fits."
        return
    yield (
        f"Of {data['candidates']} candidates the best is mesh {_mesh(best[0])} under plan "
        f"{best[0]['plan']}: {seconds_text(best[0]['latency_s'])}."
    )
    if len(best) > 1:
        slower = best[1]["latency_s"] / best[0]["latency_s"] - 1.0 if best[0]["latency_s"] else 0.0
        yield f"The second, {_mesh(best[1])}, is {slower:.1%} slower."
    why = sorted(data.get("why") or [], key=lambda row: row["winner_s"] - row["runner_up_s"])
    if why and why[0]["runner_up_s"] > why[0]["winner_s"]:
        saved = why[0]["runner_up_s"] - why[0]["winner_s"]
        yield f"It wins most in {why[0]['part']}: {seconds_text(saved)}."
    if data.get("winner"):
        for one in recompute(result, trusted=trusted):
            for estimate in one.estimates:
                yield from explain(estimate)


def _mesh(row: Mapping[str, Any]) -> str:
    return "x".join(f"{size:g}" for size in row["mesh"])


def _sweep(rows: list[dict[str, Any]]) -> Iterator[str]:
    found = [row for row in rows if isinstance(row.get("latency_s"), int | float)]
    yield f"{len(rows)} points, {len(rows) - len(found)} without a mesh that works."
    keys = ("model", "phase", "seq", "batch", "format", "devices", "policy")
    known = {(*(row.get(key) for key in keys), row["machine"]): row for row in found}
    ratios = []
    for (*point, machine), row in known.items():
        twin = known.get((*point, f"{machine}-photonic"))
        if twin and twin["latency_s"]:
            ratios.append((row["latency_s"] / twin["latency_s"], row))
    if not ratios:
        return
    for word, (ratio, row) in (
        ("most", max(ratios, key=lambda one: one[0])),
        ("least", min(ratios, key=lambda one: one[0])),
    ):
        yield (
            f"Photons gain {word} at {row.get('devices')} devices, {row.get('seq')} tokens x "
            f"{row.get('batch')} on {row['machine']}: {ratio:.2f} times as fast."
        )


def _serve(data: Mapping[str, Any]) -> Iterator[str]:
    ttft, tpot = data["ttft_s"], data["tpot_s"]
    yield (
        f"Half of the users see the first token within {seconds_text(ttft['p50'])}, 99 % within "
        f"{seconds_text(ttft['p99'])}."
    )
    if tpot.get("p50") is not None and tpot.get("p99") is not None:  # null: one token each
        yield (
            f"Later tokens come every {seconds_text(tpot['p50'])} (median), "
            f"{seconds_text(tpot['p99'])} for the slowest per cent."
        )
    bottleneck = data.get("bottleneck")
    if isinstance(bottleneck, str) and bottleneck:
        yield f"What holds it back: {bottleneck.rstrip('.')}."
