"""How much of a ratio survives when the study's assumptions become realistic.

Each step replaces one assumption. A step is taken alone (from the study's assumptions) and on
top of all steps before it, so that a waterfall can be drawn and the order does not hide an
effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xla_cost.machine import load
from xla_cost.parallel import Workers
from xla_cost.policy import CALIBRATED, Policy
from xla_cost.price import compare, price
from xla_cost.program import Program
from xla_cost.programs import Request
from xla_cost.study.cells import READINGS, Column
from xla_cost.study.reproduce import Times, lower_all, request_of, study_policy

#: Load of the busiest expert rank over the mean that the imbalance step assumes. DeepSeek-V3
#: serves with redundant experts to keep ranks balanced (arXiv 2412.19437, 3.4.2); a fifth of
#: residual imbalance is our assumption, and `sensitivity` varies it.
IMBALANCE = 1.2


@dataclass(frozen=True, slots=True)
class Case:
    """What is lowered and how it is priced."""

    request: Request
    policy: Policy


@dataclass(frozen=True, slots=True)
class Step:
    """One assumption made realistic."""

    name: str
    description: str
    apply: Callable[[Case], Case]


def _policy(case: Case, **changes: object) -> Case:
    changed = replace(case.policy, **changes)  # type: ignore[arg-type]
    return replace(case, policy=changed)


def _flash(case: Case) -> Case:
    return replace(case, request=replace(case.request, attention="flash"))


def _efficiencies(case: Case) -> Case:
    return _policy(
        case,
        kernel_rates="fitted",
        network_rates="fitted",
        priced_kinds=CALIBRATED.priced_kinds,
        look_through_converts=CALIBRATED.look_through_converts,
        fuse_elementwise=CALIBRATED.fuse_elementwise,
        merge_products=CALIBRATED.merge_products,
    )


def _latency(case: Case) -> Case:
    return _policy(case, latency=True)


def _dp_attention(case: Case) -> Case:
    """Every device attends to its own tokens; experts stay on at most 72 neighbours."""
    devices = case.request.devices
    experts = next(size for size in range(min(devices, 72), 0, -1) if devices % size == 0)
    return replace(
        case,
        request=replace(case.request, plan="dp-attention", mesh=(devices // experts, experts, 1)),
    )


def _overlap(case: Case) -> Case:
    changed = replace(case, request=replace(case.request, microbatches=2))
    return _policy(changed, iterations_in_flight=CALIBRATED.iterations_in_flight)


def _topology(case: Case) -> Case:
    return _policy(case, network="best")


def _imbalance(case: Case) -> Case:
    return _policy(case, expert_imbalance=IMBALANCE)


STEPS: Sequence[Step] = (
    Step("flash attention", "scores stay on chip, causal blocks are skipped", _flash),
    Step(
        "measured efficiencies",
        "GEMM, attention, memory and collective efficiencies fitted to measurements; "
        "element-wise work and moves take time",
        _efficiencies,
    ),
    Step(
        "link latency",
        "hop latency, software floors, kernel launches, what a "
        "measured collective loses to its size",
        _latency,
    ),
    Step(
        "data-parallel attention",
        "no residual stream is gathered; experts over at most 72 devices",
        _dp_attention,
    ),
    Step("two-batch overlap", "one half computes while the other communicates", _overlap),
    Step("topology-aware collectives", "payloads are sharded before they cross a pod", _topology),
    Step("expert imbalance", f"the busiest expert rank has {IMBALANCE} times the mean", _imbalance),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a waterfall: the ratio after a step, `split` into bandwidth and radix."""

    step: str
    alone: bool
    copper: Times | None
    photonic: Times | None
    split: tuple[tuple[str, float], ...] = ()
    refused: str = ""

    @property
    def ratio(self) -> float | None:
        """Copper latency over photonic latency; None where the case cannot be built."""
        if self.copper is None or self.photonic is None:
            return None
        return self.copper.latency_s / self.photonic.latency_s


def waterfall(
    model: str,
    number_format: str,
    machine: str,
    column: Column,
    workers: Workers,
    *,
    reading: str = "reading-1",
    steps: Sequence[Step] = STEPS,
) -> tuple[Bar, ...]:
    """The study's ratio, then each step alone and on top of the ones before it.

    A cumulative step whose program cannot be built (two micro-batches of one sequence) is
    left out of what follows it, and says why.
    """
    how = READINGS[reading]
    base = Case(request_of(model, number_format, column, how), study_policy(how.network))
    alone = [(step.name, step.apply(base)) for step in steps]
    programs = lower_all([base.request, *(case.request for _, case in alone)], workers)
    bars = [_bar("study", False, base, programs[base.request], machine)]
    bars += [_bar(name, True, case, programs[case.request], machine) for name, case in alone]
    current = base
    for step in steps:
        case = step.apply(current)
        program = lower_all([case.request], workers)[case.request]
        bars.append(_bar(step.name, False, case, program, machine))
        if not isinstance(program, str):
            current = case
    return tuple(bars)


def _bar(name: str, alone: bool, case: Case, program: Program | str, machine: str) -> Bar:
    if isinstance(program, str):
        return Bar(name, alone, None, None, refused=program)
    first = price(program, load(machine), case.policy)
    second = price(program, load(f"{machine}-photonic"), case.policy)
    split = tuple(compare(first, second).split.items())
    return Bar(name, alone, Times.of(first), Times.of(second), split)
