"""All-gather, reduce-scatter and all-reduce, inside one unit and across tiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xla_cost.network.builder import Step, best, build
from xla_cost.network.inner import Inner
from xla_cost.network.nccl import nccl_over_pods, nccl_stages
from xla_cost.network.policy import CrossRule, NetworkPolicy
from xla_cost.network.result import CollectiveTime
from xla_cost.network.spread import Spread
from xla_cost.network.stage import (
    Rate,
    Stage,
    all_reduce_stages,
    cheapest,
    gather_stages,
    in_switch,
)

_THAKUR = "Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005"
_CHAN = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 19(13), 2007"
_STUDY = "inferred from the cells of arXiv 2609.01821 that cross a pod; its formulas are unknown"
_NCCL = ("library", "nccl")
_SHARDED = "payload sharded over the pod before it crosses: " + _CHAN


class Gathering:
    """One collective of this family on one spread: V bytes, a machine's rates, a policy."""

    def __init__(
        self, kind: str, vector_bytes: float, spread: Spread, inner: Inner,
        rates: Sequence[Rate], policy: NetworkPolicy,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.vector = vector_bytes
        self.spread = spread
        self.inner = inner
        self.rates = rates
        self.policy = policy
        self.reduces = kind == "all-reduce"
        #: what NCCL may run over pods, where it is asked for and the tiers allow it
        self.flat: list[CollectiveTime] = []
        if self.reduces and inner.switched and spread.top and policy.cross_pod in _NCCL:
            self.flat = nccl_over_pods(vector_bytes, spread, rates)

    def time(self) -> CollectiveTime:
        """The cheapest candidate that the policy allows."""
        if self.spread.top == 0:
            return best([self._inside_reduce() if self.reduces else self._inside()])
        return best(self._across())

    # inside one unit

    def _inside(self) -> CollectiveTime:
        stage = cheapest(self.inner.gather, self.rates[0], self.vector, self.vector, self.kind)
        return self._single(stage, f"(n-1)/n V / B + {stage.hops:g} hop", _THAKUR)

    def _inside_reduce(self) -> CollectiveTime:
        level = self.spread.levels[0]
        rate = self.rates[0]
        if self.inner.switched and self.policy.cross_pod == "nccl":
            stages = nccl_stages(level.fan, level.gather, level.gather_mean, rate)
        elif self.inner.switched:
            stages = all_reduce_stages(
                level.fan, level.gather, level.gather_mean, rate, self.policy.any_algorithm
            )  # fmt: skip
        else:
            stages = tuple(stage.twice() for stage in self.inner.gather)
        stage = cheapest(stages, rate, self.vector, self.vector, self.kind)
        formula = f"{stage.load:.6g} V / B + {stage.hops:g} hop"
        if stage.steps_s:
            formula += f" + steps of {1e6 * stage.steps_s:.4g} us in all"
        return self._single(stage, formula, _THAKUR)

    def _single(self, stage: Stage, formula: str, source: str) -> CollectiveTime:
        step = Step(0, stage, self.vector, self.vector, f"{self.kind} inside")
        return build([step], self.rates, self.kind, stage.algorithm, formula, source)

    # across tiers

    def _across(self) -> list[CollectiveTime]:
        rule = self.policy.cross_pod
        if rule == "flat-ring":
            return [self._flat_ring()]
        if rule == "hierarchical":
            return [self._hierarchical()]
        if self.flat:
            return self._as_nccl()
        if rule == "best" or rule in _NCCL:
            return [self._hierarchical(), self._flat_ring(), self._flat_direct()]
        return [self._unsharded(rule)]

    def _as_nccl(self) -> list[CollectiveTime]:
        """Two pods it joins as NVLink SHARP inside and a tree across, the hierarchical form.

        Beyond two its cost model halves the bandwidth of that tree (`NVLSTree`, NCCL 2.26.2,
        src/graph/tuning.cc), and rings over all devices are left.
        """
        joined = self.spread.levels[1].subunits == 2
        return [self._hierarchical(), *self.flat] if joined else self.flat

    def _unsharded(self, rule: CrossRule) -> CollectiveTime:
        """The study's readings: inside at the pod's size, the whole vector again across."""
        level = self.spread.levels[0]
        m = level.fan
        share = (m - 1) / m
        times = 2 if self.reduces else 1
        steps = []
        if m > 1:
            inside = Stage("ring", times * share, times * share, times * (m - 1))
            if not self.inner.switched:
                ring = self.inner.gather[0]
                inside = ring.twice() if self.reduces else ring
            steps.append(Step(0, inside, self.vector, self.vector, "inside the pod"))
        for i, outer in enumerate(self.spread.levels[1:], start=1):
            k = outer.fan
            if k == 1:
                continue
            cross = (k - 1) / 4 if rule == "reading-1" else (k - 1) / k
            stage = Stage(rule, times * cross, times * cross, times * (k - 1))
            steps.append(Step(i, stage, self.vector, self.vector, "across pods"))
        part = "(k-1)/4" if rule == "reading-1" else "(k-1)/k"
        formula = f"{times} ((m-1)/m V / B_in + {part} V / B_out)"
        return build(steps, self.rates, self.kind, rule, formula, _STUDY)

    def _flat_ring(self) -> CollectiveTime:
        """One ring in id order: every link carries (n-1)/n V, so the slowest tier decides."""
        n = self.spread.size
        share = (n - 1) / n
        times = 2 if self.reduces else 1
        hops = sum(
            level.ring_edges * rate.hop_s
            for level, rate in zip(self.spread.levels, self.rates, strict=False)
        )
        steps = []
        for i, level in enumerate(self.spread.levels):
            if level.ring_edges == 0:
                continue
            # every step of the ring waits for its slowest edge; in all a part passes them all
            hop = self.rates[i].hop_s
            slots = times * share * hops / hop if hop else 0.0
            sent = times * share * level.ring_edges / n
            load = share
            if i == 0 and not self.inner.switched:
                load = max(load, self.inner.gather[0].load)  # a ring leaves ports of a torus idle
            stage = Stage("ring", times * load, sent, slots)
            steps.append(Step(i, stage, self.vector, self.vector, "ring"))
        formula = f"{times} (n-1)/n V / min(B)"
        return build(steps, self.rates, self.kind, "flat ring", formula, _THAKUR, concurrent=True)

    def _flat_direct(self) -> CollectiveTime:
        """Every part straight to every taker: one hop, V of outside members over each NIC."""
        times = 2 if self.reduces else 1
        steps = []
        for i, level in enumerate(self.spread.levels):
            if level.peers == 0.0:
                continue
            partners = round(level.peers * self.spread.size)
            stage = Stage("direct", times * level.peers, times * level.peers_mean, times, partners)
            if i == 0:
                exchange = self.inner.exchange
                stage = exchange.twice() if self.reduces else exchange
            steps.append(Step(i, stage, self.vector, self.vector, "direct"))
        formula = f"{times} max over tiers of (M-m)/n V / B"
        return build(
            steps, self.rates, self.kind, "flat direct", formula, _THAKUR,
            concurrent=self.policy.concurrent_tiers,
        )  # fmt: skip

    def _hierarchical(self) -> CollectiveTime:
        """Shard inside, cross with one shard per member, gather inside."""
        inward = [self._level_step(i) for i in range(self.spread.top + 1)]
        used = [step for step in inward if step.stage.load > 0.0]
        if not self.reduces:
            steps = used[::-1] if self.kind == "all-gather" else used
            formula = "sum over tiers of (M-m)/(M m) V / B"
            return build(steps, self.rates, self.kind, "hierarchical", formula, _SHARDED)
        steps = [*used[:-1], self._outermost_reduce(used[-1]), *used[-2::-1]]
        formula = "2 sum over inner tiers of (M-m)/(M m) V / B + all-reduce of the shard outside"
        return build(steps, self.rates, self.kind, "hierarchical", formula, _SHARDED)

    def _level_step(self, i: int) -> Step:
        level = self.spread.levels[i]
        # the shard that one device carries across this tier, as a vector of its own
        shard = self.vector / level.least
        rate = self.rates[i]
        stages = self._inward_stages() if i == 0 else gather_stages(
            level.fan, level.gather, level.gather_mean, rate.tier, self.policy.any_algorithm
        )  # fmt: skip
        stage = cheapest(stages, rate, self.vector, shard, self.kind)
        return Step(i, stage, self.vector, shard, "inside" if i == 0 else "across")

    def _inward_stages(self) -> tuple[Stage, ...]:
        """One way inside the innermost unit, for an all-reduce in the switch as well."""
        level, rate, group = self.spread.levels[0], self.rates[0], self.spread.size
        if not self.reduces or not self.inner.switched or level.fan == 1:
            return self.inner.gather
        if self.flat:
            whole = nccl_stages(level.fan, level.gather, level.gather_mean, rate, group)
            # a tree ends in one device, not in shards: no half of it crosses
            shards = [stage for stage in whole if stage.algorithm != "tree"]
            return tuple(stage.half() for stage in shards) or self.inner.gather
        whole = in_switch(level.fan, rate, "all-reduce", group)
        return (*self.inner.gather, *(stage.half() for stage in whole))

    def _outermost_reduce(self, step: Step) -> Step:
        level = self.spread.levels[step.level]
        rate = self.rates[step.level]
        if step.level == 0:
            return replace(step, stage=step.stage.twice())
        shard = step.message_bytes
        stages = all_reduce_stages(
            level.fan, level.gather * level.least, level.gather_mean * level.least, rate,
            self.policy.any_algorithm,
        )  # fmt: skip
        chosen = cheapest(stages, rate, shard, shard, self.kind)
        return replace(step, stage=chosen, vector_bytes=shard, what="all-reduce across")
