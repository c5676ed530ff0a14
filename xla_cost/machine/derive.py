"""Machines made from machines: sensitivity, and the split of a ratio."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.machine.check import check_figures, check_shapes
from xla_cost.machine.model import Machine, Tier


def with_tier(machine: Machine, index: int, **changes: Any) -> Machine:
    """`machine` with fields of `tiers[index]` replaced (SI units). The name says what changed.

    Raises XlaCostError for an unknown tier or field, a value that a machine file may not have, or
    sizes that no longer increase.
    """
    if not 0 <= index < len(machine.tiers):
        raise XlaCostError(
            f"machine {machine.name}: tier {index} is unknown; expected 0 to "
            f"{len(machine.tiers) - 1}"
        )
    unknown = sorted(set(changes) - set(Tier.__slots__))
    if unknown:
        raise XlaCostError(
            f"machine {machine.name}: tier field {unknown[0]!r} is unknown; expected one of "
            f"{', '.join(Tier.__slots__)}"
        )
    tiers = list(machine.tiers)
    given = {"efficiency_given": True} if "efficiency" in changes else {}
    tiers[index] = replace(tiers[index], **{**given, **changes})
    check_figures(tiers[index], machine.name)
    text = ",".join(f"{tiers[index].name}.{key}={value}" for key, value in changes.items())
    return _with_tiers(machine, tuple(tiers), f"{machine.name}[{text}]")


def scaled(
    machine: Machine,
    *,
    scale_up: float = 1.0,
    pod: int | None = None,
    scale_out: float = 1.0,
    latency: float = 1.0,
) -> Machine:
    """`machine` for a sensitivity run, unchanged arguments leaving it as it is.

    `scale_up` and `scale_out` multiply the bandwidth of the innermost and of all other tiers,
    `pod` sets the devices of an innermost unit, `latency` multiplies every hop. A switched pod
    as large as the tier outside it replaces that tier. Raises XlaCostError for a factor that is
    not positive, a pod larger than the outermost of several tiers, or what a file may not have.
    """
    for name, factor in (("scale_up", scale_up), ("scale_out", scale_out), ("latency", latency)):
        if not 0.0 <= factor < float("inf") or (factor == 0.0 and name != "latency"):
            raise XlaCostError(f"scaled: {name} = {factor}; must be a finite number > 0")
    tiers = tuple(
        replace(
            tier,
            bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * (scale_out if i else scale_up),
            latency_s=tier.latency_s * latency,
        )
        for i, tier in enumerate(machine.tiers)
    )
    if pod is not None:
        tiers = _resize(machine, tiers, pod, machine)
    given = {"scale_up": scale_up, "pod": pod, "scale_out": scale_out, "latency": latency}
    changed = [f"{key}={value:g}" for key, value in given.items() if value not in (None, 1.0)]
    if not changed:
        return machine
    return _with_tiers(machine, tiers, f"{machine.name}[{','.join(changed)}]")


def _resize(
    machine: Machine, tiers: tuple[Tier, ...], pod: int, around: Machine
) -> tuple[Tier, ...]:
    """`tiers` of `machine` with an innermost unit of `pod` devices, inside those of `around`."""
    if isinstance(pod, bool) or not isinstance(pod, int) or pod < 2:
        raise XlaCostError(f"scaled: pod = {pod!r}; must be a whole number >= 2")
    outermost = around.tiers[-1]
    if len(around.tiers) > 1 and pod > outermost.size:
        raise XlaCostError(
            f"scaled: pod = {pod} on {around.name}; must be <= {outermost.size}, the size of "
            f"{outermost.name}"
        )
    if tiers[0].dims:
        raise XlaCostError(
            f"scaled: pod = {pod} on {machine.name}; must be a machine whose pod has no fixed dims"
        )
    outer = tuple(tier for tier in tiers[1:] if tier.size > pod)
    return (replace(tiers[0], size=pod), *outer)


def hybrid(compute_of: Machine, network_of: Machine, pod: int | None = None) -> Machine:
    """Compute and memory of one machine on the network of another.

    With `pod` the innermost tier keeps its bandwidth but has that many devices, and what it no
    longer reaches goes over the next tier of `compute_of`. So `hybrid(b300, b300_photonic,
    pod=72)` is four times the bandwidth at the copper radix, and `hybrid(b300_photonic, b300,
    pod=1152)` the copper bandwidth at the photonic radix.
    """
    tiers = network_of.tiers
    name = f"{compute_of.name}+{network_of.name}"
    if pod is not None:
        outer = tuple(tier for tier in compute_of.tiers[1:] if tier.size > pod)
        tiers = (*_resize(network_of, tiers[:1], pod, compute_of), *outer)
        name += f"[pod={pod}]"
    marks = tuple(dict.fromkeys((*compute_of.marks, *network_of.marks)))
    return replace(
        compute_of,
        name=name,
        title=f"{compute_of.title} on the network of {network_of.title}",
        tiers=tiers,
        marks=marks,
        speculative=compute_of.speculative or network_of.speculative,
        figures=(),
    )


def _with_tiers(machine: Machine, tiers: tuple[Tier, ...], name: str) -> Machine:
    for tier in tiers:
        check_figures(tier, name)
    check_shapes(tiers, [(name, f"tiers[{i}]") for i in range(len(tiers))])
    kept = tuple(figure for figure in machine.figures if not figure.key.startswith("tiers["))
    return replace(machine, name=name, tiers=tiers, figures=kept)
