"""`xla-cost demo`: the main job on the reference study's own points, beside its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from xla_cost.price import Comparison
    from xla_cost.programs import Request

MACHINES = ("b300", "b300-photonic")


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the study: R1, FP4, B300."""

    seq: int
    batch: int
    mesh: tuple[int, int, int]

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        x, y, z = self.mesh
        return x * y * z


POINTS = (Point(8192, 2048, (1, 72, 1)), Point(131072, 64, (2, 144, 1)))


def demo(
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
    top: Annotated[int, typer.Option(help="rows of the tables", min=1)] = 6,
) -> None:  # fmt: skip
    """R1 prefill at 72 and 288 devices, B300 against its photonic twin, beside the study."""
    answers = []
    for policy in ("study", "calibrated"):
        for point in POINTS:
            comparison, request, facts = _priced(point, policy)
            answers.append(_answer(point, request, comparison))
            if json != "-":
                _show(point, request, comparison, facts, top)
    if json:
        from xla_cost.jsonio import write_json
        from xla_cost.provenance import provenance

        write_json(json, {"points": answers, "provenance": provenance(["demo"])})


def _priced(
    point: Point, policy: str, plan: str = "study"
) -> tuple[Comparison, Request, Mapping[str, Any]]:
    from xla_cost.price import compare, price
    from xla_cost.programs import ATTENTION, Request, model_program
    from xla_cost.show.progress import working

    request = Request(
        model="r1",
        mesh=point.mesh,
        seq=point.seq,
        batch=point.batch,
        format="fp4",
        plan=plan,
        attention=ATTENTION[policy],
    )
    with working(f"partitioning R1 for {point.devices} devices, plan {plan}"):
        found = model_program(request)
    first, second = (price(found.program, name, policy) for name in MACHINES)
    return compare(first, second), request, found.facts


def _known(point: Point) -> dict[str, float | None]:
    """The study's component times at a point, by our names; None where no digest gives one."""
    from xla_cost.study.cells import Column
    from xla_cost.study.known import COMPONENTS

    known = COMPONENTS.get(Column(point.seq, point.devices))
    if known is None:
        return {}
    return {
        "compute_s": known.compute_s,
        "copper_comm_s": known.copper_comm_s,
        "photonic_comm_s": known.photonic_comm_s,
    }


def _ours(comparison: Comparison) -> dict[str, float]:
    return {
        "compute_s": comparison.first.compute_s,
        "copper_comm_s": comparison.first.comm_s,
        "photonic_comm_s": comparison.second.comm_s,
    }


def _answer(point: Point, request: Request, comparison: Comparison) -> dict[str, Any]:
    from xla_cost.price.as_json import comparison_json, result_json

    ours, known = _ours(comparison), _known(point)
    return {
        "request": asdict(request),
        "policy": comparison.first.policy.name,
        "results": [result_json(comparison.first), result_json(comparison.second)],
        **comparison_json(comparison),
        "study": {
            name: {
                "ours": ours[name],
                "study": value,
                "deviation": ours[name] / value - 1 if value else None,
            }
            for name, value in known.items()
        },
    }


def _show(
    point: Point, request: Request, comparison: Comparison, facts: Mapping[str, Any], top: int
) -> None:
    from xla_cost.show.console import console
    from xla_cost.show.estimate import show_estimates, show_warnings

    out = console()
    policy = comparison.first.policy
    mesh = "x".join(map(str, point.mesh))
    out.rule(f"[bold]R1 prefill, {point.seq} tokens x {point.batch}, {point.devices} devices")
    out.print(
        f"mesh {mesh}, fp4, plan {request.plan}, {request.attention} attention; "
        f"policy [bold]{policy.name}[/bold]: {policy.summary}"
    )
    out.print()
    show_estimates(out, (comparison.first, comparison.second), comparison, top)
    out.print()
    _show_study(out, point, comparison, facts)
    show_warnings(out, sorted({*comparison.first.warnings, *comparison.second.warnings}))
    out.print()


def _show_study(
    out: Console, point: Point, comparison: Comparison, facts: Mapping[str, Any]
) -> None:
    from xla_cost.show.console import table
    from xla_cost.units import seconds_text

    named = {
        "compute_s": "compute",
        "copper_comm_s": f"network, {MACHINES[0]}",
        "photonic_comm_s": f"network, {MACHINES[1]}",
    }
    ours, known = _ours(comparison), _known(point)
    made = table("beside the study (arXiv 2609.01821)", "here", "study", "deviation")
    for name, value in known.items():
        text = f"{ours[name] / value - 1:+.1%}" if value else ""
        shown = seconds_text(value) if value else "not known"
        made.add_row(named[name], seconds_text(ours[name]), shown, text)
    out.print(made)
    for reason in _reasons(point, comparison, facts):
        out.print(f"- {reason}")


def _reasons(point: Point, comparison: Comparison, facts: Mapping[str, Any]) -> Iterator[str]:
    """Why ours differs from the study, each with the seconds it stands for."""
    from xla_cost.units import seconds_text

    first = comparison.first
    if first.policy.name != "study":
        yield (
            "the study counts peak rates, un-fused attention and no latency; here they are "
            "measured efficiencies, one causal attention kernel, and floors"
        )
        return
    scores = sum(op.seconds for op in first.ops if op.scope.endswith("/scores"))
    yield (
        f"attention scores take {seconds_text(scores)} of the compute: all of them, also those "
        "above the diagonal, written and read once in bf16; the study does not say its format"
    )
    heads = facts["padding"]["head_share"]
    if heads:
        balanced = _priced(point, "study", "study-balanced")[0].first
        yield (
            f"whole heads on {point.mesh[1]} devices leave {heads:.1%} of the heads padding; with "
            f"queries split over what does not divide them (plan study-balanced) compute is "
            f"{seconds_text(balanced.compute_s)}, network {seconds_text(balanced.comm_s)}"
        )
    across_s = first.comm_s_by_tier.get("scale-out", 0.0)
    if across_s:
        yield (
            f"{seconds_text(across_s)} of the network time crosses pods by the rule that the "
            "study's cells imply (the payload is not sharded inside the pod first); the study's "
            "own formula is not published"
        )
