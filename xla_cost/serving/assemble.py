"""From a scenario as asked for to a system that can be simulated: curves, memory, transfer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from xla_cost.cache import Cache
from xla_cost.errors import XlaCostError
from xla_cost.serving.curves import LatencyCurves
from xla_cost.serving.load import Lengths, Load
from xla_cost.serving.lowered import (
    Points,
    WorkerModel,
    bytes_per_token,
    decode_worker,
    prefill_worker,
)
from xla_cost.serving.points import Check, worst
from xla_cost.serving.spec import PoolSpec, ServeSpec
from xla_cost.serving.system import Pool, System, Transfer, refuse_longer

#: Requests that curves reach to where nothing limits the decode batch.
_LARGEST_BATCH = 8192


@dataclass(frozen=True, slots=True)
class Assembled:
    """A system, and every fresh point that its curves were checked against."""

    system: System
    checks: tuple[Check, ...]

    @property
    def worst_error(self) -> float:
        """The largest relative error of a curve, without its sign."""
        return worst(self.checks)


Note = Callable[[str], None]


def assemble(
    spec: ServeSpec, machine: str = "", note: Note | None = None, store: Cache | None = None
) -> Assembled:
    """The system of `spec`, with all model workers on `machine` if one is named."""
    pools: dict[str, Pool] = {}
    checks: tuple[Check, ...] = ()
    for asked in spec.pools:
        pool, more = _pool(_on(asked, machine), spec.load, note, store)
        pools[asked.role] = pool
        checks += more
    system = System(
        prefill=pools.get("prefill"),
        decode=pools.get("decode"),
        mixed=pools.get("mixed"),
        transfer=Transfer(),
        routing=spec.routing,
        claim=spec.claim,
        first_token=spec.first_token,
        mtp=spec.mtp,
    )
    return Assembled(replace(system, transfer=_transfer(spec, system, machine)), checks)


def _on(pool: PoolSpec, machine: str) -> PoolSpec:
    if machine and isinstance(pool.worker, WorkerModel):
        return replace(pool, worker=replace(pool.worker, machine=machine))
    return pool


def _pool(
    asked: PoolSpec, load: Load, note: Note | None, store: Cache | None
) -> tuple[Pool, tuple[Check, ...]]:
    _refuse_long_prompts(asked, load)
    curves, room, checks = _curves(asked, load, note, store)
    pool = Pool(
        role=asked.role,
        workers=asked.workers,
        curves=curves,
        token_budget=asked.token_budget,
        max_prompts=asked.max_prompts or 1 << 30,
        chunked=asked.chunked,
        max_batch=asked.max_batch or (asked.token_budget - 1 if asked.role == "mixed" else 1 << 30),
        kv_tokens=asked.kv_tokens if asked.kv_tokens is not None else room,
        kv_policy=asked.kv_policy,
        kv_watermark=asked.kv_watermark,
    )
    return pool, checks


def _refuse_long_prompts(asked: PoolSpec, load: Load) -> None:
    """Before anything is lowered; a lognormal length has no longest, its prompts are looked at
    when they are sent."""
    if asked.role == "decode" or asked.chunked:
        return
    if load.trace is not None:
        longest = max(row.input_tokens - row.cached for row in load.trace.rows)
    elif load.input_tokens.kind == "lognormal":
        return
    else:
        prompt = _range(load, 0)[1]
        longest = prompt - int(prompt * load.prefix_hit_rate)
    refuse_longer(asked.role, asked.token_budget, longest, "the longest prompt")


def _curves(
    asked: PoolSpec, load: Load, note: Note | None, store: Cache | None
) -> tuple[LatencyCurves, int | None, tuple[Check, ...]]:
    if isinstance(asked.worker, LatencyCurves):
        return asked.worker, None, ()
    points = Points(asked.worker, store, note)
    prompts, answers = _range(load, 0), _range(load, 1)
    typical = _typical(load)
    curves = LatencyCurves(devices=asked.worker.devices)
    checks: tuple[Check, ...] = ()
    rooms: list[int] = []
    if asked.role != "decode":
        budget = max(asked.token_budget, typical)  # `typical` is rounded up
        # a chunk may be any part of a prompt, and a cached prefix leaves a part too
        whole = not asked.chunked and not load.prefix_hit_rate and load.trace is None
        shortest = min(prompts[0], typical) if whole else 1
        made = prefill_worker(points, typical, budget, shortest, max(prompts[1], typical))
        curves, checks = made.curves, made.checks
        rooms.append(made.kv_tokens)
    if asked.role != "prefill":
        contexts = (_tidy(prompts[0]), _tidy(prompts[1] + answers[1]))
        room = points.kv_tokens("decode", asked.worker.devices, contexts[1])
        most = min(
            asked.max_batch or _LARGEST_BATCH,
            load.in_flight or _LARGEST_BATCH,
            max(room // max(prompts[0], 1), 1),
        )
        found = decode_worker(points, most, contexts)
        curves = replace(found.curves, prefill=curves.prefill, prefill_energy=curves.prefill_energy)
        checks += found.checks
        rooms.append(found.kv_tokens)
    return replace(curves, worst_error=worst(checks)), min(rooms), checks


def _typical(load: Load) -> int:
    if load.trace is not None:
        lengths = sorted(row.input_tokens for row in load.trace.rows)
        return _tidy(lengths[len(lengths) // 2])
    spread = load.input_tokens
    middle = (spread.low + spread.high) // 2 if spread.kind == "uniform" else round(spread.mean)
    return _tidy(middle)


def _range(load: Load, which: int) -> tuple[int, int]:
    """From short to long: where curves need nodes. Mean contexts of batches lie inside."""
    if load.trace is not None:
        rows = load.trace.rows
        values = [(row.input_tokens, row.output_tokens)[which] for row in rows]
        return min(values), max(values)
    lengths: Lengths = (load.input_tokens, load.output_tokens)[which]
    if lengths.kind == "fixed":
        return round(lengths.mean), round(lengths.mean)
    if lengths.kind == "uniform":
        return lengths.low, lengths.high
    low = max(lengths.low, round(lengths.mean / 4))
    return low, min(lengths.high, round(lengths.mean * (1 + 3 * lengths.cv)))


def _tidy(length: int) -> int:
    """Up to a multiple of 64, so that equal scenarios share programs."""
    return max(-(-length // 64) * 64, 64)


def _transfer(spec: ServeSpec, system: System, machine: str) -> Transfer:
    asked = spec.transfer
    if system.mixed is not None or system.prefill is None or system.decode is None:
        return Transfer()
    models = [p.worker for p in spec.pools if isinstance(p.worker, WorkerModel)]
    bandwidth, latency = asked.bandwidth_bytes_per_s, asked.latency_s
    size, tier = asked.bytes_per_token, asked.tier
    if models:
        from xla_cost.machine import load as load_machine

        found = load_machine(machine or models[0].machine)
        spans = [t for t in found.tiers if t.size >= system.devices] or list(found.tiers[-1:])
        link = found.tier(tier) if tier else spans[0]
        tier = link.name
        bandwidth = link.bandwidth_bytes_per_s * link.efficiency if bandwidth is None else bandwidth
        latency = link.latency_s if latency is None else latency
        size = bytes_per_token(models[0]) if size is None else size
    elif tier:
        raise XlaCostError(
            f"transfer.tier = {tier!r}: the pools name no machine; expected bandwidth_GBps and "
            "bytes_per_token instead"
        )
    elif (size is None) != (bandwidth is None):
        missing = "bytes_per_token" if size is None else "bandwidth_GBps"
        raise XlaCostError(
            f"transfer.{missing}: missing; expected one, as the pools name no machine"
        )
    per_device = float("inf") if bandwidth is None else bandwidth
    return Transfer(
        bytes_per_token=size or 0.0,
        sender_bytes_per_s=per_device * system.prefill.curves.devices,
        receiver_bytes_per_s=per_device * system.decode.curves.devices,
        latency_s=latency or 0.0,
        tier=tier,
    )
