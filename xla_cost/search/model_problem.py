"""The search problem of a shipped model: what can be built, at least how slow, and the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from xla_cost.cache import Cache
from xla_cost.errors import StorageError, XlaCostError
from xla_cost.machine import Machine
from xla_cost.models.layout import Layout, resolve
from xla_cost.models.plan import get_plan
from xla_cost.models.workload import Workload
from xla_cost.price import Policy
from xla_cost.program import Program
from xla_cost.programs import Request, cached_program, model_program, store_program, workload_of
from xla_cost.search.affine import interpolate, is_affine
from xla_cost.search.candidates import Candidate
from xla_cost.search.engine import Lowered
from xla_cost.search.needs import device_seconds, held_bytes, moved_bytes
from xla_cost.search.summary import Summary, keep_summary, kept_summary

#: a workload, and how a mesh shares it out
Placed = tuple[Workload, Layout]


@dataclass(frozen=True)
class ModelProblem:
    """A workload of a shipped model. `request` fixes all but mesh, plan, placement, batches.

    `batches` names other batches of the same workload that are or will be searched: where
    three of them are in the cache and prove the program affine in the batch, one in between
    is computed from them instead of lowered. Implements `xla_cost.search.engine.Problem`.
    """

    request: Request
    cache: Cache = field(default_factory=Cache)
    batches: tuple[int, ...] = ()
    _read: dict[Candidate, Program] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _placed: dict[Candidate, Placed | str] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels to worker processes without what was read and laid out so far."""
        return ModelProblem, (self.request, self.cache, self.batches)

    def reject(self, candidate: Candidate) -> str | None:
        """The reason for which the plan cannot be laid out on the mesh, or None."""
        try:
            self._place(candidate)
        except XlaCostError as error:
            return str(error)
        return None

    def bound_s(self, candidate: Candidate, machine: Machine, policy: Policy) -> float:
        """Needed matrix work at peak and the moves of the residual stream over all links at once.

        A program never does less than that: efficiencies are at most 1. With one micro-batch
        the two add up, since every other step of a layer waits for those moves or is waited
        for; with several they may overlap.
        """
        workload, layout = self._place(candidate)
        compute_s = device_seconds(workload, layout, machine)
        links = sum(tier.bandwidth_bytes_per_s for tier in machine.tiers)
        moves_s = moved_bytes(workload, layout) / links
        if candidate.microbatches > 1:
            return max(compute_s, moves_s)
        return compute_s + moves_s

    def least_bytes(self, candidate: Candidate) -> float:
        """Weights of the routed experts and the cache: memory that no program does without."""
        return held_bytes(*self._place(candidate))

    def kept(self, candidate: Candidate, machine: Machine, policy: Policy) -> Summary | None:
        """The figures of `candidate` that an earlier search left in the cache."""
        return kept_summary(self.request_of(candidate), machine, policy, self.cache)

    def keep(
        self, candidate: Candidate, machine: Machine, policy: Policy, summary: Summary
    ) -> None:
        """Leave the figures of `candidate` in the cache."""
        keep_summary(self.request_of(candidate), machine, policy, summary, self.cache)

    def cached(self, candidate: Candidate) -> Lowered | None:
        """The program, if it was lowered before; read once however many machines are searched."""
        program = self._read.get(candidate)
        if program is None:
            program = cached_program(self.request_of(candidate), self.cache)
            if program is not None:
                self._read[candidate] = program
        return program

    def lower(self, candidate: Candidate) -> Lowered:
        """Partition `candidate` unless it is cached or follows from other batches.

        Raises StorageError where the compiler has no place to write: no fault of the candidate.
        """
        request = self.request_of(candidate)
        program = self._from_other_batches(candidate)
        if program is not None:
            store_program(request, program, self.cache)
            return program
        try:
            return model_program(request, self.cache).program
        except StorageError:
            raise
        except XlaCostError as error:
            return str(error)

    def request_of(self, candidate: Candidate) -> Request:
        """The request that makes the program of `candidate`."""
        x, y, z = candidate.mesh
        return replace(
            self.request,
            mesh=(x, y, z),
            plan=candidate.plan,
            placement="" if candidate.placement == "xyz" else candidate.placement,
            microbatches=candidate.microbatches,
        )

    def _from_other_batches(self, candidate: Candidate) -> Program | None:
        batch = self.request.batch
        known: dict[int, Program] = {}
        for other in self.batches:
            if other != batch:
                request = replace(self.request_of(candidate), batch=other)
                program = cached_program(request, self.cache)
                if program is not None:
                    known[other] = program
        if len(known) < 3 or not min(known) < batch < max(known):
            return None
        low, high = min(known), max(known)
        middle = min(known.keys() - {low, high}, key=lambda other: abs(other - batch))
        if not self._split_alike(candidate, (low, middle, high, batch)):
            return None
        first, second = (low, known[low]), (high, known[high])
        if not is_affine(first, second, (middle, known[middle])):
            return None
        return interpolate(first, second, batch)

    def _split_alike(self, candidate: Candidate, batches: tuple[int, ...]) -> bool:
        """Whether every batch is laid out the same way and fills its devices without rounding."""
        layouts = []
        for batch in batches:
            problem = replace(self, request=replace(self.request, batch=batch))
            workload, layout = problem._place(candidate)
            experts = workload.model.n_routed_experts
            slots = layout.tokens * workload.model.num_experts_per_tok * workload.capacity_factor
            if slots % experts:
                return False
            layouts.append(replace(layout, batch=0, rows=0, tokens=0))
        return all(layout == layouts[0] for layout in layouts)

    def _place(self, candidate: Candidate) -> Placed:
        """The workload and its layout on the mesh, made once however many machines are searched.

        Raises XlaCostError where the plan cannot be laid out on the mesh.
        """
        found = self._placed.get(candidate)
        if found is None:
            try:
                workload = workload_of(self.request_of(candidate))
                found = workload, resolve(workload, get_plan(candidate.plan), candidate.mesh)
            except XlaCostError as error:
                found = str(error)
            self._placed[candidate] = found
        if isinstance(found, str):
            raise XlaCostError(found)
        return found
