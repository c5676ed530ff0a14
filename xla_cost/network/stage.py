"""One step on one tier: what it loads the links with, and the seconds that takes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from xla_cost.machine.model import CollectiveFit, Machine, Tier
from xla_cost.network.policy import NetworkPolicy

#: A kind without a fit of its own takes that of the kind that moves the same bytes.
_LIKE = {
    "reduce-scatter": ("all-gather",),
    "all-gather": ("reduce-scatter",),
    "ragged-all-to-all": ("all-to-all",),
    "all-reduce-nccl": ("all-reduce",),
    "send-recv": ("collective-permute",),
    "collective-permute": ("send-recv",),
    "dispatch": ("all-to-all",),
    "combine": ("dispatch", "all-to-all"),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Shares per byte of vector: `load` on the busiest device's links, `sent` by a mean device.

    `partners` is how many other devices one talks to: on a circuit-switched tier that decides
    how often the circuits are set. `fit` names the measured fit that prices the stage, where
    that is not the collective's own, `message` the share of the message that this fit counts.
    `steps_s` is what the steps of a library's protocol take, beyond hops of the tier.
    """

    algorithm: str
    load: float
    sent: float
    hops: float
    partners: int = 2
    fit: str = ""
    message: float = 1.0
    steps_s: float = 0.0

    def twice(self) -> Stage:
        """The same step forth and back: reduce-scatter, then all-gather."""
        return self._times(2.0)

    def half(self) -> Stage:
        """One way of a step forth and back."""
        return self._times(0.5)

    def _times(self, factor: float) -> Stage:
        return replace(
            self, load=factor * self.load, sent=factor * self.sent, hops=factor * self.hops,
            steps_s=factor * self.steps_s,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rate:
    """A tier as a policy sees it. `inner` is the tier inside it.

    What a kernel costs before it moves anything is a property of the kernel, not of the links: a
    tier on which nobody measured `kind` takes that cost from the tier inside.
    """

    tier: Tier
    hop_s: float
    reconfiguration_s: float
    fitted: bool
    latency: bool
    energy_j_per_byte: float
    inner: Rate | None = None

    def fit(self, kind: str) -> CollectiveFit | None:
        """The measured fit that prices `kind` here, if the policy uses fits."""
        if not self.fitted:
            return None
        for name in (kind, *_LIKE.get(kind, ())):
            found = self.tier.fit(name)
            if found is not None:
                return found
        return None

    def floor_s(self, kind: str, stage: Stage) -> float:
        """Software floor of one collective that runs as `stage`, beyond its hops."""
        fit = self.fit(stage.fit or kind)
        if fit is None:
            return self.inner.floor_s(kind, stage) if self.inner else 0.0
        return fit.floor_s if self.latency else 0.0

    def fixed_s(self, kind: str, stage: Stage, load_bytes: float, message_bytes: float) -> float:
        """The part of the ramp that does not grow with the bytes, for `load_bytes` in all.

        The ramp adds load (half / M)^ramp bytes, which grow as M^(1-ramp): by the tangent at M
        the share `ramp` of that is fixed, the rest goes with the bytes.
        """
        fit = self.fit(stage.fit or kind)
        if fit is None:
            if self.inner is None:
                return 0.0
            return self.inner.fixed_s(kind, stage, load_bytes, message_bytes)
        if not self.latency or message_bytes <= 0.0:
            return 0.0
        ramp: float = (fit.half_bytes / message_bytes) ** fit.ramp
        return fit.ramp * load_bytes * ramp / (self.tier.bandwidth_bytes_per_s * fit.efficiency)

    @property
    def unfitted_bytes_per_s(self) -> float:
        """Bandwidth at the tier's own efficiency: what counts where no fit does."""
        return self.tier.bandwidth_bytes_per_s * (self.tier.efficiency if self.fitted else 1.0)

    def setup_s(self, stage: Stage) -> float:
        """Circuit switching: one setting for every `circuit_ports` partners; 0 when packets."""
        if self.reconfiguration_s == 0.0 or stage.load == 0.0:
            return 0.0
        ports = self.tier.circuit_ports
        return self.reconfiguration_s * (math.ceil(stage.partners / ports) if ports else 1)

    def seconds(
        self, stage: Stage, vector_bytes: float, message_bytes: float, kind: str,
        stretch: float = 1.0, started: bool = False,
    ) -> float:  # fmt: skip
        """`setup + steps + hops * hop + load / (bandwidth * efficiency)`, load times `stretch`.

        The efficiency is 1, the tier's, or that of a fit: `e / (1 + (half / M)^ramp)` for a
        message of M bytes; `half`, a latency in disguise, counts only where latency does.
        Without its fixed part where that is paid already, `started`.
        """
        load_bytes = stage.load * vector_bytes * stretch
        message_bytes *= stage.message
        fit = self.fit(stage.fit or kind)
        bandwidth = self.unfitted_bytes_per_s
        if fit is not None:
            bandwidth = self.tier.bandwidth_bytes_per_s * fit.efficiency
            if self.latency and message_bytes > 0.0:
                ramp = (fit.half_bytes / message_bytes) ** fit.ramp
                load_bytes *= 1.0 + (ramp * (1.0 - fit.ramp) if started else ramp)
        steps_s = stage.hops * self.hop_s + (stage.steps_s if self.latency else 0.0)
        return self.setup_s(stage) + steps_s + load_bytes / bandwidth


@lru_cache(maxsize=256)
def rates(machine: Machine, policy: NetworkPolicy) -> tuple[Rate, ...]:
    """Every tier of `machine` under `policy`, innermost first."""
    found: list[Rate] = []
    for tier in machine.tiers:
        energy = tier.energy_j_per_byte
        if tier.through_inner:
            energy += found[-1].energy_j_per_byte
        found.append(
            Rate(
                tier,
                tier.latency_s if policy.latency else 0.0,
                tier.reconfiguration_s if policy.latency else 0.0,
                policy.fitted,
                policy.latency,
                energy,
                found[-1] if found else None,
            )
        )
    return tuple(found)


def log2_steps(members: int) -> int:
    """Rounds of recursive doubling."""
    return max(0, math.ceil(math.log2(members)))


def gather_stages(
    members: int, load: float, sent: float, tier: Tier, any_algorithm: bool
) -> tuple[Stage, ...]:
    """All-gather or reduce-scatter on a switched tier.

    Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH",
    IJHPCA 19(1), 2005: ring (n-1) steps, recursive doubling/halving log2 n steps, all moving
    (n-1)/n V per device; direct sends every part straight to its taker in one hop.
    """
    ring = Stage("ring", load, sent, members - 1)
    if not any_algorithm:
        return (ring,)
    steps = log2_steps(members)
    found = (
        Stage("direct", load, sent, 1, members - 1),
        Stage("recursive doubling", load, sent, steps, steps),
        ring,
    )
    return _allowed(found, tier) or (ring,)


def all_reduce_stages(
    members: int, load: float, sent: float, rate: Rate, any_algorithm: bool
) -> tuple[Stage, ...]:
    """All-reduce on a switched tier.

    Twice the gather forms (Rabenseifner 2004; direct: "two-shot"), one-shot (everyone sends
    everything, one hop), double binary tree (Sanders, Speck, Traff, Parallel Computing 35, 2009;
    NCCL 2.4: 2 V over log2 n hops), and reduction in the switch (Klenk et al., ISCA 2020; NVLink
    SHARP: V up and V/n down to reduce, V/n up and V down to spread, (1 + 1/n) V each way).
    A fitted efficiency is relative to the ring bound (NCCL's bus bandwidth), so under one that
    was not measured in the switch, in-network counts as no less than that.
    """
    gathers = gather_stages(members, load, sent, rate.tier, any_algorithm)
    found = tuple(stage.twice() for stage in gathers)
    if not any_algorithm:
        return found
    more = [
        Stage("one-shot", members - 1, members - 1, 1, members - 1),
        Stage("tree", 2.0, 2.0, 2 * log2_steps(members), 3),
    ]
    if rate.tier.in_network_reduction:
        share = 1.0 + 1.0 / members
        measured = in_switch(members, rate, "all-reduce")
        unmeasured = Stage("in-network", max(share, 2 * load) if rate.fitted else share, share, 2)
        more.append(measured[0] if measured else unmeasured)
    return found + _allowed(more, rate.tier)


def in_switch(members: int, rate: Rate, smaller: str, group: int = 0) -> tuple[Stage, ...]:
    """The all-reduce in the switch as measured, for groups that the fit `smaller` has not seen.

    Each device has the switch reduce its share of V/n and
    spread it: (1 + 1/n) V each way. The fit counts that share, because the library cuts it, not
    the vector, into the pieces it pipelines (NCCL 2.26.2, src/enqueue.cc, `calcCollChunking`:
    the piece grows with V / (heads * channels)). The share is one of `group` devices where the
    members are only those of one pod: a piece waits for the other pods as well. Empty where
    nothing was measured.
    """
    fit, other = rate.fit("all-reduce-in-switch"), rate.fit(smaller)
    if fit is None or other is None or not rate.tier.in_network_reduction:
        return ()
    if members <= other.devices:
        return ()
    share = 1.0 + 1.0 / members
    stage = Stage("in-network", share, share, 2, 2, fit.kind, 1.0 / (group or members))
    return _allowed((stage,), rate.tier)


def _allowed(stages: Iterable[Stage], tier: Tier) -> tuple[Stage, ...]:
    """Those that the machine file allows on the tier; all where it names none."""
    return tuple(s for s in stages if not tier.algorithms or s.algorithm in tier.algorithms)


def cheapest(
    stages: Iterable[Stage], rate: Rate, vector_bytes: float, message_bytes: float, kind: str
) -> Stage:
    """The stage that takes the least time, floor included; the first of equals."""
    return min(
        stages,
        key=lambda stage: (
            rate.floor_s(kind, stage) + rate.seconds(stage, vector_bytes, message_bytes, kind)
        ),
    )
