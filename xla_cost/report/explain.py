"""A result in a few sentences: what bounds it, and what would help most.

What would help is computed, not guessed: the program is priced again on machines in which one
resource is twice as good, and on one whose network is hidden completely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from xla_cost.errors import XlaCostError
from xla_cost.machine import Machine
from xla_cost.price import Estimate, price
from xla_cost.units import bytes_text, seconds_text


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Latency with one resource changed; `gain` is how many times faster the run is."""

    change: str
    latency_s: float
    gain: float


def what_ifs(estimate: Estimate) -> tuple[WhatIf, ...]:
    """Every single improvement that exists on the machine, the most helpful first."""
    found = []
    for change, machine in _better(estimate.machine):
        try:
            latency_s = price(
                estimate.program, machine, estimate.policy, estimate.network
            ).latency_s
        except XlaCostError:  # a torus of that size does not exist, for example
            continue
        found.append(WhatIf(change, latency_s, _gain(estimate.latency_s, latency_s)))
    return tuple(sorted(found, key=lambda one: (-one.gain, one.change)))


def _gain(before_s: float, after_s: float) -> float:
    return before_s / after_s if after_s else 1.0


def _better(machine: Machine) -> Iterator[tuple[str, Machine]]:
    peaks = {name: 2.0 * rate for name, rate in machine.peak_flops.items()}
    yield "twice the FLOP/s", replace(machine, peak_flops=peaks)
    yield (
        "twice the memory bandwidth",
        replace(machine, memory_bytes_per_s=2.0 * machine.memory_bytes_per_s),
    )
    tiers = machine.tiers
    for index, tier in enumerate(tiers):
        faster = replace(tier, bandwidth_bytes_per_s=2.0 * tier.bandwidth_bytes_per_s)
        changed = (*tiers[:index], faster, *tiers[index + 1 :])
        yield f"twice the {tier.name} bandwidth", replace(machine, tiers=changed)
    quicker = tuple(
        replace(
            tier,
            latency_s=tier.latency_s / 2.0,
            collectives=tuple(replace(fit, floor_s=fit.floor_s / 2.0) for fit in tier.collectives),
        )
        for tier in tiers
    )
    yield "half the network latency", replace(machine, tiers=quicker)
    first = tiers[0]
    if len(tiers) > 1 and not first.dims and 2 * first.size <= tiers[1].size:
        larger = (replace(first, size=2 * first.size), *tiers[1:])
        yield f"pods of {2 * first.size} instead of {first.size}", replace(machine, tiers=larger)


def explain(estimate: Estimate) -> tuple[str, ...]:
    """Sentences about one estimate, the most important first."""
    if not estimate.latency_s:
        return (f"On {estimate.machine.name} nothing in {estimate.program.name} takes time.",)
    return (
        _bound(estimate), *_largest(estimate), *_collective(estimate), _overlap(estimate),
        *_help(estimate), _memory(estimate),
    )  # fmt: skip


def _bound(estimate: Estimate) -> str:
    total = estimate.latency_s
    shares = sorted(estimate.bound_s.items(), key=lambda item: -item[1])
    words = {
        "compute": "the matrix units", "memory": "memory bandwidth", "network": "the network",
        "latency": "launches",
    }  # fmt: skip
    parts = [f"{words[name]} for {seconds / total:.0%}" for name, seconds in shares
             if seconds >= 0.005 * total]  # fmt: skip
    return (
        f"On {estimate.machine.name} the run takes {seconds_text(total)} and waits for "
        f"{_listed(parts)} of it."
    )


def _largest(estimate: Estimate) -> Iterator[str]:
    rows = estimate.by_scope
    if not rows:
        return
    row = rows[0]
    text = f"The largest part is {row.scope}: {row.critical_s / estimate.latency_s:.0%}, "
    text += f"{seconds_text(row.compute_s)} of computing"
    if row.comm_s:
        text += f" and {seconds_text(row.exposed_comm_s)} of exposed network"
    yield f"{text}."


def _collective(estimate: Estimate) -> Iterator[str]:
    if not estimate.collectives:
        yield "It does not communicate."
        return
    row = max(estimate.collectives, key=lambda one: (one.exposed_s, one.seconds))
    tiers = _listed(list(dict.fromkeys(tier for tier, *_ in row.phases)))
    yield (
        f"The dearest collective is the {row.kind} in {row.scope or 'no scope'}: "
        f"{row.executions:g} times {bytes_text(row.payload_bytes)} in groups of {row.group_size} "
        f"over {tiers or 'no tier'}, {seconds_text(row.seconds)} of which "
        f"{seconds_text(row.exposed_s)} are exposed."
    )


def _overlap(estimate: Estimate) -> str:
    exposed, comm = estimate.exposed_comm_s, estimate.comm_s
    if not comm:
        return "There is no network time to hide."
    hidden_s = max(estimate.compute_s, max(estimate.comm_s_by_tier.values()))
    gain = _gain(estimate.latency_s, hidden_s)
    if gain < 1.01:
        return "Overlap is exhausted: perfect overlap would gain less than one per cent."
    return (
        f"{exposed / comm:.0%} of the network time is exposed: overlapping all of it with "
        f"computing would make the run at most {gain:.2f} times as fast."
    )


def _help(estimate: Estimate) -> Iterator[str]:
    found = [one for one in what_ifs(estimate) if one.gain >= 1.005]
    if not found:
        yield "Doubling no single resource gains more than half a per cent."
        return
    best, rest = found[0], found[1:3]
    text = f"What would help most is {best.change}: {best.gain:.2f} times as fast"
    if rest:
        text += f"; then {_listed([f'{one.change} ({one.gain:.2f})' for one in rest])}"
    yield f"{text}."


def _memory(estimate: Estimate) -> str:
    memory = estimate.memory
    share = memory.needed_bytes / memory.capacity_bytes
    held = f"{bytes_text(memory.needed_bytes)} of {bytes_text(memory.capacity_bytes)}"
    if not memory.fits:
        return f"It does not fit: each device needs {held}."
    return f"It fits: each device needs {held} ({share:.0%})."


def _listed(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
