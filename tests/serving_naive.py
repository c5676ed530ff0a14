"""A second simulator, written to be obvious: one pass per event, one event per iteration.

Knows prefill and decode pools with round-robin routing, unlimited memory and no transfer time.
Shares only the step table with the real one, and no code of the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xla_cost.serving.clock import UNITS_PER_TOKEN, to_ticks
from xla_cost.serving.curves import PrefillCurve
from xla_cost.serving.steps import StepTable


@dataclass
class Job:
    index: int
    arrival: int
    prompt: int
    answer: int
    sent: int = -1
    first: int = -1
    finish: int = -1
    left: int = 0
    context: int = 0


@dataclass
class Prefiller:
    queue: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    until: int = -1


@dataclass
class Decoder:
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    until: int = -1


def naive(
    jobs: list[Job],
    prefill: PrefillCurve,
    table: StepTable,
    prefillers: int,
    decoders: int,
    budget: int,
    max_batch: int,
    in_flight: int,
) -> list[Job]:
    """Fill in when each job was sent, had its first token and was finished."""
    outside = list(jobs)
    ps = [Prefiller() for _ in range(prefillers)]
    ds = [Decoder() for _ in range(decoders)]
    now = inside = p_turn = d_turn = 0
    while any(job.finish < 0 for job in jobs):
        # what ends now: prefill batches, then decode iterations worker by worker
        for p in ps:
            if p.running and p.until == now:
                for job in p.running:
                    job.first = now
                    if job.answer == 1:
                        job.finish = now
                        inside -= 1
                    else:
                        ds[d_turn].waiting.append(job)
                        d_turn = (d_turn + 1) % decoders
                p.running = []
        for d in ds:
            if d.running and d.until == now:
                for job in d.running:
                    job.left -= 1
                    job.context += UNITS_PER_TOKEN
                    if job.left == 0:
                        job.finish = now
                        inside -= 1
                d.running = [job for job in d.running if job.left]
                d.until = -1
        while outside and outside[0].arrival <= now and inside < in_flight:
            job = outside.pop(0)
            job.sent = now
            inside += 1
            ps[p_turn].queue.append(job)
            p_turn = (p_turn + 1) % prefillers
        # what starts now
        for p in ps:
            if not p.running and p.queue:
                tokens = 0
                while p.queue and (not tokens or tokens + p.queue[0].prompt <= budget):
                    job = p.queue.pop(0)
                    tokens += job.prompt
                    p.running.append(job)
                cost = prefill.batch((job.prompt, 0) for job in p.running)
                p.until = now + to_ticks(cost)
        for d in ds:
            if d.until < 0:
                while d.waiting and len(d.running) < max_batch:
                    job = d.waiting.pop(0)
                    job.left = job.answer - 1
                    job.context = (job.prompt + 1) * UNITS_PER_TOKEN
                    d.running.append(job)
                if d.running:
                    context = sum(job.context for job in d.running)
                    d.until = now + table.step(len(d.running), context)
        times = [p.until for p in ps if p.running] + [d.until for d in ds if d.running]
        if outside and inside < in_flight:
            times.append(outside[0].arrival)
        later = [t for t in times if t > now]
        if not later:
            break
        now = min(later)
    return jobs
