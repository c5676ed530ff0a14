"""How a ratio moves with each figure of the fabric, and with what is only guessed of a platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xla_cost.machine import Machine, load, scaled
from xla_cost.parallel import Workers
from xla_cost.policy import Policy
from xla_cost.price import price
from xla_cost.program import Program
from xla_cost.programs import Request
from xla_cost.study.reproduce import lower_all


@dataclass(frozen=True, slots=True)
class Sample:
    """The ratio at one value of one parameter."""

    parameter: str
    value: float
    ratio: float


#: Values of each swept parameter; the first and last are the ends of the tornado's bar.
RANGES: Mapping[str, Sequence[float]] = {
    "scale-up multiple of the photonic twin": (1, 2, 4, 6, 8),
    "photonic pod": (8, 16, 72, 144, 288, 576, 1152),
    "copper scale-out bandwidth": (0.25, 0.5, 1, 2, 4),
    "link latency": (0, 1, 4, 10),
    "expert capacity factor": (1.0, 1.25, 1.5, 2.0),
    "expert imbalance": (1.0, 1.2, 1.5, 2.0),
}

#: What a value of a parameter is: devices, or a multiple of the machine file's figure.
UNITS: Mapping[str, str] = {
    "scale-up multiple of the photonic twin": "x",
    "photonic pod": " devices",
    "copper scale-out bandwidth": "x",
    "link latency": "x",
    "expert capacity factor": "",
    "expert imbalance": "",
}

#: Ranges of the figures that are speculative, as multiples of the table's value: what the
#: sources of the machine files span (Rubin: 35 to 50 PFLOP/s fp4, 13 to 22 TB/s; R4: 70 to
#: 100 PFLOP/s, 32 to 44 TB/s; both 800 or 1600 Gb/s per NIC).
SPECULATIVE: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "rubin": {"compute": (0.7, 1.0), "memory": (13 / 22, 1.0), "scale-out": (1.0, 2.0)},
    "r4": {"compute": (1.0, 10 / 7), "memory": (1.0, 44 / 32), "scale-out": (1.0, 2.0)},
}


def sensitivity(
    request: Request, rules: Policy, machine: str, workers: Workers
) -> tuple[Sample, ...]:
    """The ratio of `request` on `machine` over its twin, one parameter varied at a time."""
    factors = RANGES["expert capacity factor"]
    by_capacity = {factor: replace(request, capacity_factor=float(factor)) for factor in factors}
    programs = lower_all([request, *by_capacity.values()], workers)
    program = programs[request]
    if isinstance(program, str):
        return ()
    copper, photonic = load(machine), load(f"{machine}-photonic")
    multiple = photonic.tiers[0].bandwidth_bytes_per_s / copper.tiers[0].bandwidth_bytes_per_s
    samples: list[Sample] = []

    def take(name: str, value: float, first: Machine, second: Machine, how: Policy = rules) -> None:
        samples.append(Sample(name, value, _ratio(program, first, second, how)))

    for value in RANGES["scale-up multiple of the photonic twin"]:
        twin = scaled(photonic, scale_up=value / multiple)
        take("scale-up multiple of the photonic twin", value, copper, twin)
    for value in RANGES["photonic pod"]:
        take("photonic pod", value, copper, _pod(photonic, copper, int(value)))
    for value in RANGES["copper scale-out bandwidth"]:
        take("copper scale-out bandwidth", value, scaled(copper, scale_out=value), photonic)
    for value in RANGES["link latency"]:
        slow = replace(rules, latency=True)
        take(
            "link latency", value, scaled(copper, latency=value), scaled(photonic, latency=value),
            slow,
        )  # fmt: skip
    for value in RANGES["expert imbalance"]:
        take("expert imbalance", value, copper, photonic, replace(rules, expert_imbalance=value))
    for value, changed in by_capacity.items():
        other = programs[changed]
        if not isinstance(other, str):
            ratio = _ratio(other, copper, photonic, rules)
            samples.append(Sample("expert capacity factor", value, ratio))
    return tuple(samples)


def band(program: Program, rules: Policy, machine: str) -> tuple[float, float]:
    """Lowest and highest ratio over the corners of what is guessed of `machine`.

    For a machine without speculative figures both are its ratio.
    """
    guesses = SPECULATIVE.get(machine)
    copper, photonic = load(machine), load(f"{machine}-photonic")
    if guesses is None:
        ratio = _ratio(program, copper, photonic, rules)
        return ratio, ratio
    ratios = [
        _ratio(
            program,
            _guess(copper, compute, memory, scale_out),
            _guess(photonic, compute, memory, scale_out),
            rules,
        )
        for compute in guesses["compute"]
        for memory in guesses["memory"]
        for scale_out in guesses["scale-out"]
    ]
    return min(ratios), max(ratios)


def _ratio(program: Program, first: Machine, second: Machine, rules: Policy) -> float:
    return price(program, first, rules).latency_s / price(program, second, rules).latency_s


def _pod(photonic: Machine, copper: Machine, size: int) -> Machine:
    """The twin with pods of `size`, joined by the copper machine's scale-out."""
    pod = replace(photonic.tiers[0], size=size)
    outer = tuple(tier for tier in copper.tiers[1:] if tier.size > size)
    return replace(photonic, name=f"{photonic.name}[pod={size}]", tiers=(pod, *outer))


def _guess(machine: Machine, compute: float, memory: float, scale_out: float) -> Machine:
    peaks = {name: peak * compute for name, peak in machine.peak_flops.items()}
    changed = scaled(machine, scale_out=scale_out)
    return replace(
        changed,
        peak_flops=peaks,
        memory_bytes_per_s=machine.memory_bytes_per_s * memory,
    )
