"""The simulation: a request's story, the load that tells it, and the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from xla_cost.collection import no_collection
from xla_cost.errors import XlaCostError
from xla_cost.serving.clock import UNITS_PER_TOKEN, to_s, to_ticks
from xla_cost.serving.curves import DecodeCurve, LatencyCurves
from xla_cost.serving.load import Load
from xla_cost.serving.meter import Meter
from xla_cost.serving.request import Request
from xla_cost.serving.system import Mtp, Pool, System, refuse_longer
from xla_cost.serving.worker import Worker

#: (seconds, what, request number, where)
Event = tuple[float, str, int, str]

#: (number, arrival, sent, first token, finish, input, output) of a finished request, in ticks
Sample = tuple[int, int, int, int, int, int, int]


#: Requests that may be in the system without `in_flight`, beside twice those asked for.
_MOST_IN_FLIGHT = 100_000


@dataclass(frozen=True)
class Run:
    """All that a simulation saw. `start` and `end`: counters when measuring began and ended."""

    samples: tuple[Sample, ...]
    start: dict[str, int]
    end: dict[str, int]
    meter: Meter
    sent: int
    finished: int
    window_finished: tuple[int, int, int]  # requests, input and output tokens in the window
    now: int
    events: int
    elapsed_s: float


def simulate(
    system: System,
    load: Load,
    log: Callable[[Event], None] | None = None,
    single_steps: bool = False,
) -> Run:
    """Run `load` on `system`.

    `log` gets every event of every request. `single_steps` makes each decode iteration an event
    of its own: the same result, slowly (tests compare both).
    """
    return _Simulation(system, load, log, single_steps).run()


class _Simulation:
    def __init__(
        self,
        system: System,
        load: Load,
        log: Callable[[Event], None] | None,
        single_steps: bool,
    ) -> None:
        import simpy

        self.env = simpy.Environment(initial_time=0)
        self.system = system
        self.load = load
        self._log = log
        self.meter = Meter(bin_ticks=to_ticks(0.001))
        self.workers: dict[str, list[Worker]] = {}
        number = 0
        for pool in system.pools:
            numbered = _with_drafts(replace(pool, first_number=number), system.mtp)
            number += pool.workers
            self.workers[pool.role] = [
                Worker(self.env, numbered, i, self.meter, self._note if log else None, single_steps)
                for i in range(pool.workers)
            ]
        self._turn = dict.fromkeys(self.workers, 0)
        self._sender_free = [0] * number
        self._receiver_free = [0] * number
        self._gate: Any = None
        self._stop = self.env.event()
        self._measured = _measured(load)
        self._preempts = any(p.decodes and p.kv_policy == "preempt" for p in system.pools)
        self._samples: list[Sample] = []
        self._start: dict[str, int] | None = None
        self._sent = self._finished = 0
        self._totals = [0, 0, 0]
        self._window_start = (0, 0, 0)

    def run(self) -> Run:
        began = time.perf_counter()
        self.env.process(self._source())
        with no_collection():  # no cycle of events and processes outlives them
            self.env.run(until=self._stop)
        now = self.env.now
        self._samples.sort()
        window = tuple(b - a for a, b in zip(self._window_start, self._totals, strict=True))
        return Run(
            samples=tuple(self._samples),
            start=self._start or {},
            end=self._counters(),
            meter=self.meter,
            sent=self._sent,
            finished=self._finished,
            window_finished=(window[0], window[1], window[2]),
            now=now,
            events=next(self.env._eid),  # simpy numbers its events; nothing public counts them
            elapsed_s=time.perf_counter() - began,
        )

    def _counters(self) -> dict[str, int]:
        for workers in self.workers.values():
            for worker in workers:
                worker.settle()
        return self.meter.counters(self.env.now)

    # the story of one request

    def _source(self) -> Generator[Any, Any, None]:
        env, limit = self.env, self.load.in_flight
        most = _MOST_IN_FLIGHT + 2 * (self.load.warmup + self.load.requests)
        endless = limit is None and self.load.trace is None
        for request in self.load.generate(self.system.mtp):
            self._check_fits(request)
            if endless and self.meter.in_flight.value >= most:
                raise XlaCostError(
                    f"load.rate_per_s = {self.load.rate_per_s:g}: {most} requests in the system "
                    f"after {to_s(env.now):.3g} s, {self._finished} answered; expected a rate that "
                    "it can pass, or load.in_flight"
                )
            if request.arrival > env.now:
                yield env.timeout(request.arrival - env.now)
            while limit is not None and self.meter.in_flight.value >= limit:
                self._gate = env.event()
                yield self._gate
            self._send(request)

    def _send(self, request: Request) -> None:
        now = self.env.now
        if self._sent == self.load.warmup:
            self._start = self._counters()
            self.meter.largest_batch = 0
            self._window_start = (self._totals[0], self._totals[1], self._totals[2])
        self._sent += 1
        request.sent = now
        request.measured = 0 <= request.index - self.load.warmup < self._measured
        self.meter.in_flight.change(now, 1)
        self._note("arrive", request, "")
        self.env.process(self._life(request))

    def _life(self, request: Request) -> Generator[Any, Any, None]:
        if "mixed" in self.workers:
            yield from self._stay(request, self._route("mixed"))
        else:
            yield from self._travel(request)
        self._finish(request)

    def _stay(self, request: Request, worker: Worker) -> Generator[Any, Any, None]:
        """Prefill and decode on the same worker, again after every preemption."""
        while True:
            yield worker.prefill(request)
            self._prefilled(request, "")
            if not request.steps:
                worker.leave(request)
                return
            if (yield worker.decode(request)):
                return

    def _travel(self, request: Request) -> Generator[Any, Any, None]:
        """Prefill here, decode there, the cache carried over in between."""
        first = self.system.claim == "before-prefill"
        while True:
            target = None
            if first and request.steps:
                target = self._route("decode")
                if not target.claim_now(request):
                    yield target.claim(request)
            worker = self._route("prefill")
            yield worker.prefill(request)
            self._prefilled(request, worker.name)
            if not request.steps:
                worker.release(request)
                if target is not None:
                    target.leave(request)
                return
            if target is None:
                target = self._route("decode")
                if not target.claim_now(request):
                    yield target.claim(request)
            ticks = self._transfer_ticks(request, worker, target)
            if ticks:
                yield self.env.timeout(ticks)
            worker.release(request)
            self._note("arrived", request, target.name)
            if (yield target.decode(request)):
                return

    def _prefilled(self, request: Request, where: str) -> None:
        now = self.env.now
        if request.preempted:  # computed again: this prefill gave its next token
            gap = now - request.last_token
            if request.measured:
                self.meter.itl.add(gap, gap, UNITS_PER_TOKEN, gap * UNITS_PER_TOKEN)
        elif self.system.first_token == "prefill" or not request.steps:
            request.first_token = now
        request.last_token = now
        self._note("prefilled", request, where)

    def _finish(self, request: Request) -> None:
        now = self.env.now
        request.finish = now
        self._finished += 1
        totals = self._totals
        totals[0] += 1
        totals[1] += request.input_tokens
        totals[2] += request.output_tokens
        self.meter.in_flight.change(now, -1)
        self._note("finish", request, "")
        if request.measured:
            self._sample(request)
        if self._gate is not None and not self._gate.triggered:
            self._gate.succeed()

    def _sample(self, r: Request) -> None:
        self._samples.append(
            (r.index, r.arrival, r.sent, r.first_token, r.finish, r.input_tokens, r.output_tokens)
        )
        if len(self._samples) == self._measured:
            self._stop.succeed()

    # where requests go

    def _route(self, role: str) -> Worker:
        workers = self.workers[role]
        if len(workers) == 1:
            return workers[0]
        if self.system.routing == "least-loaded":
            return min(workers, key=lambda worker: worker.load)
        turn = self._turn[role]
        self._turn[role] = (turn + 1) % len(workers)
        return workers[turn]

    def _transfer_ticks(self, request: Request, source: Worker, target: Worker) -> int:
        """Ticks until the cache has arrived, behind those the two ends are busy with."""
        transfer = self.system.transfer
        size = request.prompt * transfer.bytes_per_token
        now, sender, receiver = self.env.now, source.number, target.number
        send = to_ticks(size / transfer.sender_bytes_per_s)
        start = max(now, self._sender_free[sender])
        self._sender_free[sender] = start + send
        taken = to_ticks(size / transfer.receiver_bytes_per_s)
        self._receiver_free[receiver] = max(start, self._receiver_free[receiver]) + taken
        self.meter.busy_transfer += send
        done = max(start + send, self._receiver_free[receiver])
        return int(done - now) + to_ticks(transfer.latency_s)

    def _check_fits(self, request: Request) -> None:
        whole = request.prompt + -(-request.steps * request.growth // UNITS_PER_TOKEN)
        for pool in self.system.pools:
            need = whole if pool.decodes else request.prompt
            if pool.kv_tokens is not None and need > pool.kv_tokens:
                raise XlaCostError(
                    f"{pool.role}.kv_tokens = {pool.kv_tokens}: request {request.index} needs "
                    f"{need}; expected room for it"
                )
            if pool.prefills and not pool.chunked:
                # a preempted request is prefilled again with all it has produced, nothing cached
                new = whole if self._preempts else request.prompt - request.cached
                refuse_longer(pool.role, pool.token_budget, new, f"request {request.index}")

    def _note(self, what: str, request: Request, where: str) -> None:
        if self._log is not None:
            self._log((to_s(self.env.now), what, request.index, where))


def _measured(load: Load) -> int:
    if load.trace is None:
        return load.requests
    rows = len(load.trace.rows)
    if load.warmup >= rows:
        raise XlaCostError(
            f"load.warmup = {load.warmup}; must be below the trace's {rows} requests"
        )
    return rows - load.warmup


def _with_drafts(pool: Pool, mtp: Mtp) -> Pool:
    """The pool with its decode steps verifying drafted tokens too."""
    if not mtp.depth or pool.curves.decode is None:
        return pool
    rows, scale = mtp.depth + 1, 1 + mtp.depth * mtp.draft_step_share

    def drafted(curve: DecodeCurve | None) -> DecodeCurve | None:
        return curve and replace(curve, rows_per_request=rows, scale=scale)

    curves: LatencyCurves = replace(
        pool.curves,
        decode=drafted(pool.curves.decode),
        decode_energy=drafted(pool.curves.decode_energy),
    )
    return replace(pool, curves=curves)
