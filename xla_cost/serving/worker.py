"""One worker: a mesh of devices that prefills, decodes, or does both in one iteration.

An iteration is one decode step of the whole batch, one prefill batch, or both together. As long
as nothing joins or leaves, decode iterations are one event; a joiner cuts the stretch at the end
of the iteration that is running. Within one instant prompts and joiners arrive first, then
iterations end (worker after worker), then the next ones start: results depend on no accident of
event order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from xla_cost.serving.clock import UNITS_PER_TOKEN, to_ticks
from xla_cost.serving.decode_batch import DecodeBatch
from xla_cost.serving.memory import KvMemory
from xla_cost.serving.meter import Meter
from xla_cost.serving.request import Request
from xla_cost.serving.steps import Piece, StepTable, run_ticks, step_ticks, steps_until
from xla_cost.serving.system import Pool

# events of one instant, in this order (plus the worker's number); simpy's own have priority 1
_END, _START = 1_000, 1_000_000


class Worker:
    """State of one worker in a simulation. `log` gets (what, request number) of every event."""

    def __init__(
        self,
        env: Any,
        pool: Pool,
        number: int,
        meter: Meter,
        log: Callable[[str, Request, str], None] | None = None,
        single_steps: bool = False,
    ) -> None:
        self.env = env
        self.pool = pool
        self.name = f"{pool.role}{number}"
        self.number = pool.first_number + number
        self.meter = meter
        self.log = log
        self.memory = KvMemory(pool.kv_tokens, pool.kv_policy == "preempt", pool.kv_watermark)
        self.batch = DecodeBatch()
        self.prompts: deque[Request] = deque()
        self.joiners: list[Request] = []
        self.claims: deque[tuple[Request, Any]] = deque()
        #: requests holding a place, and tokens still to prefill: what routing looks at
        self.places = 0
        self.prompt_tokens = 0
        self._single_steps = single_steps
        self._steps = StepTable(pool.curves.decode) if pool.decodes and pool.curves.decode else None
        energy = pool.curves.decode_energy
        self._energy = StepTable(energy) if energy else None
        self._chunks: list[tuple[Request, int]] = []
        self._pieces: tuple[Piece, ...] = ()
        self._joined: list[Request] = []
        self._started = 0
        self._planned = 0
        self._counted = 0
        self._token = 0
        self._state = "idle"

    # what the outside asks

    def prefill(self, request: Request) -> Any:
        """Queue the prompt. The event given fires when its last token is prefilled."""
        request.done = self.env.event()
        request.prefilled = request.cached
        self.prompt_tokens += request.prompt - request.cached
        partial = bool(self.prompts) and self.prompts[0].prefilled > self.prompts[0].cached
        if request.preempted:  # goes first, but never ahead of one that is half done
            self.prompts.insert(1 if partial else 0, request)
        else:
            self.prompts.append(request)
        self.meter.prefill_waiting.change(self.env.now, 1)
        self._poke()
        return request.done

    def claim_now(self, request: Request) -> bool:
        """Take a place in the batch and memory if both are there and nobody waits in front."""
        ahead = self._preempted_claims() if request.preempted else len(self.claims)
        if ahead or not self._try_place(request):
            return False
        self._cut_to(self._memory_steps())
        return True

    def claim(self, request: Request) -> Any:
        """Ask for a place in the batch and memory. The event fires when both are there.

        A preempted request waits in front of those that never had a place.
        """
        event = self.env.event()
        self.claims.insert(self._preempted_claims() if request.preempted else len(self.claims),
                           (request, event))  # fmt: skip
        self.meter.decode_waiting.change(self.env.now, 1)
        return event

    def decode(self, request: Request) -> Any:
        """Join the batch (place and memory are held). Fires True when done, False if preempted."""
        request.done = self.env.event()
        self.joiners.append(request)
        self._poke()
        return request.done

    def leave(self, request: Request) -> None:
        """The request gives up its place without decoding: its prompt gave all it wanted."""
        self.places -= 1
        self.release(request)

    def release(self, request: Request) -> None:
        """The request's key/value cache has left this worker."""
        self.memory.release(request)
        self._grant()
        if self.prompts:
            self._poke()

    @property
    def load(self) -> int:
        """What `least-loaded` routing compares: tokens to prefill, places taken and asked for."""
        return self.prompt_tokens + self.places + len(self.claims)

    # places and memory

    def _preempted_claims(self) -> int:
        """Preempted requests that wait for a place; they are in front."""
        return sum(1 for _ in takewhile(lambda claim: claim[0].preempted, self.claims))

    def _need(self, request: Request) -> int:
        """Tokens of memory to set aside: with the policy "queue" all it will ever hold."""
        if not self.pool.decodes:
            return request.prompt
        if self.pool.kv_policy == "preempt":
            return request.prompt + 1
        return request.prompt + -(-request.steps * request.growth // UNITS_PER_TOKEN)

    def _context_now(self) -> int:
        """Units of context the batch holds in the iteration that runs now."""
        return self.batch.context + (self._iterations_by_now() - 1) * self.batch.growth

    def _try_place(self, request: Request) -> bool:
        if self.pool.decodes and self.places >= self.pool.max_batch:
            return False
        held = self._context_now() if self.memory.grows and self.batch.size else 0
        if not self.memory.reserve(request, self._need(request), held):
            return False
        if self.pool.decodes:
            self.places += 1
        return True

    def _grant(self) -> None:
        while self.claims and self._try_place(self.claims[0][0]):
            _, event = self.claims.popleft()
            self.meter.decode_waiting.change(self.env.now, -1)
            event.succeed()
            self._cut_to(self._memory_steps())

    # iterations

    def _poke(self) -> None:
        """Something can be done: start at once, or after the iteration that is running."""
        if self._state == "idle":
            self._schedule_start()
        elif self._state == "running" and self._planned > 1:
            self._cut_to(self._iterations_by_now())

    def _schedule_start(self) -> None:
        self._state = "starting"
        self._at(0, _START, self._start)

    def _at(self, delay: int, priority: int, action: Callable[[Any], None]) -> None:
        event = self.env.event()
        event._ok, event._value = True, None  # as simpy's own Timeout does
        event.callbacks.append(action)
        self.env.schedule(event, priority + self.number, delay)

    def _iterations_by_now(self) -> int:
        """The running iteration's place in its stretch, from 1; one that ends now still runs."""
        if self._state != "running" or self._planned <= 1:
            return 1
        since = self.env.now - self._started
        batch = self.batch
        return steps_until(self._pieces, batch.context, batch.growth, since, self._planned)

    def _cut_to(self, steps: int) -> None:
        """End the running stretch after `steps` iterations if it was planned longer."""
        if self._state == "running" and steps < self._planned:
            self._planned = steps
            length = run_ticks(self._pieces, self.batch.context, self.batch.growth, steps)
            self._schedule_end(self._started + length - self.env.now)

    def _schedule_end(self, delay: int) -> None:
        self._token += 1
        token = self._token
        self._at(delay, _END, lambda _: self._end(token))

    def _memory_steps(self) -> int:
        """Iterations the batch can do before its growing contexts fill the memory."""
        if not self.memory.grows or not self.batch.size:
            return 1 << 62
        free = self.memory.free_units(self.batch.context)
        return 1 << 62 if free is None else max(free // self.batch.growth + 1, 1)

    def _start(self, _: Any) -> None:
        self._take_joiners()
        preempted = self._preempt()
        self._chunks = self._take_prompts() if self.prompts and self.pool.prefills else []
        batch = self.batch
        if not batch.size and not self._chunks:
            self._state = "idle"
            return
        self._state = "running"
        self._started = self.env.now
        self._planned = 1
        length = 0
        if self._chunks:
            length += self._prefill_ticks()
        if batch.size and self._steps is not None:
            self._pieces = self._steps.pieces(batch.size)
            # after a preemption claims are looked at again when the next iteration ends
            if not (self._chunks or preempted or self._single_steps):
                self._planned = min(batch.steps_to_completion(), self._memory_steps())
            length += run_ticks(self._pieces, batch.context, batch.growth, self._planned)
        self._schedule_end(length)

    def _take_joiners(self) -> None:
        self._joined, self.joiners = self.joiners, []
        if self._joined:
            for request in self._joined:
                if self.memory.grows:
                    self.memory.release(request)  # from here on its context counts
                if request.first_token < 0:  # the user sees it from here on
                    request.first_token = request.last_token = self.env.now
                self.batch.join(request)
                if self.log:
                    self.log("decode", request, self.name)
            self.meter.decode_batch.change(self.env.now, len(self._joined))

    def _preempt(self) -> bool:
        """Throw out the last to join until the rest fits; says whether any was."""
        batch, memory, before = self.batch, self.memory, self.meter.preemptions
        while memory.grows and batch.size and (memory.free_units(batch.context) or 0) < 0:
            request = batch.preempt_last()
            if request in self._joined:  # no iteration since it joined, so no token either
                self._joined.remove(request)
            else:
                request.last_token = self.env.now
            self.places -= 1
            self.meter.preemptions += 1
            self.meter.decode_batch.change(self.env.now, -1)
            if self.log:
                self.log("preempt", request, self.name)
            request.done.succeed(False)
        return self.meter.preemptions > before

    def _take_prompts(self) -> list[tuple[Request, int]]:
        """Chunks of the next prefill batch, first come first served, within the token budget."""
        budget = self.pool.token_budget - self.batch.size
        chunks: list[tuple[Request, int]] = []
        while self.prompts and len(chunks) < self.pool.max_prompts:
            request = self.prompts[0]
            left = request.prompt - request.prefilled
            fits = left <= budget or self.pool.chunked or not chunks
            if (budget < 1 and chunks) or not fits:
                break
            if not self.memory.holds(request) and not self._try_place(request):
                break
            new = min(left, max(budget, 1)) if self.pool.chunked else left
            chunks.append((request, new))
            budget -= new
            if new < left:
                break
            self.prompts.popleft()
            self.meter.prefill_waiting.change(self.env.now, -1)
            if self.log:
                self.log("prefill", request, self.name)
        return chunks

    def _prefill_ticks(self) -> int:
        curve = self.pool.curves.prefill
        if curve is None:  # checked when the pool was made
            return 0
        parts = [(new, request.prefilled) for request, new in self._chunks]
        if self.pool.curves.prefill_energy is not None:
            self.meter.energy += to_ticks(self.pool.curves.prefill_energy.batch(parts))
        ticks = max(to_ticks(curve.batch(parts)), 1)
        self.meter.busy_prefill += ticks
        self.meter.prefill_batches += 1
        return ticks

    def _end(self, token: int) -> None:
        if token != self._token:
            return  # the stretch was cut after this end was scheduled
        self._state = "starting"
        if self.batch.size:
            self._end_decode()
        for request, new in self._chunks:
            request.prefilled += new
            self.prompt_tokens -= new
            self.meter.prefill_tokens += new
            if request.prefilled == request.prompt:
                request.done.succeed()
        self._chunks = []
        self._grant()
        self._schedule_start()

    def _end_decode(self) -> None:
        batch = self.batch
        self._count(self._planned)
        self._counted = 0
        batch.advance(self._planned)
        for request in batch.completed():
            self.places -= 1
            self.memory.release(request)
            self.meter.decode_batch.change(self.env.now, -1)
            request.done.succeed(True)

    def settle(self) -> None:
        """Count the iterations of the running stretch that are over, so that counters are exact."""
        if self._state == "running" and self.batch.size:
            self._count(self._iterations_by_now() - 1)

    def _count(self, upto: int) -> None:
        """Count the stretch's iterations from those counted before to `upto`."""
        steps = upto - self._counted
        if steps <= 0:
            return
        batch, meter, pieces, growth = self.batch, self.meter, self._pieces, self.batch.growth
        context = batch.context + self._counted * growth
        self._counted = upto
        if self._energy is not None:
            table = self._energy.pieces(batch.size)
            meter.energy += run_ticks(table, context, growth, steps)
        ticks = run_ticks(pieces, context, growth, steps)
        meter.busy_decode += ticks
        meter.iterations += steps
        meter.largest_batch = max(meter.largest_batch, batch.size)
        meter.member_iterations += steps * batch.size
        meter.decoded_units += steps * growth
        first = step_ticks(pieces, context)
        last = step_ticks(pieces, context + (steps - 1) * growth) if steps > 1 else first
        self._count_gaps(first, last, ticks, steps)

    def _count_gaps(self, first: int, last: int, ticks: int, steps: int) -> None:
        """Inter-token times: a step for every measured member, for joiners since their last token.

        Where a step gives several tokens, each of them counts with its part of the step.
        """
        # a mixed iteration, always a stretch of its own, lasts as long as its prefill and step
        extra = self.env.now - self._started - ticks if self._chunks else 0
        meter, growth = self.meter, self.batch.measured_growth
        unit = self.batch.measured * UNITS_PER_TOKEN
        joined = [request for request in self._joined if request.measured]
        for request in joined:
            gap = self._started + first + extra - request.last_token
            each = gap * UNITS_PER_TOKEN // request.growth
            meter.itl.add(each, each, request.growth, gap * UNITS_PER_TOKEN)
        rest = steps * growth - sum(request.growth for request in joined)
        if rest > 0:
            low = (first + extra) * unit // growth
            high = (last + extra) * unit // growth
            total = (ticks + extra) * unit - len(joined) * (first + extra) * UNITS_PER_TOKEN
            meter.itl.add(low, high, rest, total)
        self._joined = []
