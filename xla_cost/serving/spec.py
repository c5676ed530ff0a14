"""A scenario as asked for: pools by model or by coefficients, load, promises. Also from TOML."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from xla_cost.errors import XlaCostError
from xla_cost.serving.curves import LatencyCurves, affine_decode, affine_prefill
from xla_cost.serving.load import LONGEST, RATES, Lengths, Load
from xla_cost.serving.lowered import WorkerModel
from xla_cost.serving.system import Mtp, Role, Slo
from xla_cost.serving.tables import Table
from xla_cost.serving.trace import read_trace

#: Largest coefficient of a curve or a transfer, in its unit: times of a run stay finite.
_LARGEST = 1e12

_LENGTH_KINDS: tuple[Literal["fixed", "uniform", "lognormal"], ...] = (
    "fixed", "uniform", "lognormal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One pool: workers of a model (curves are made), or of given curves.

    `kv_tokens` None: what the model's memory leaves (no limit for given curves).
    """

    role: Role
    workers: int
    worker: WorkerModel | LatencyCurves
    token_budget: int = 16384
    max_prompts: int | None = None
    chunked: bool = False
    max_batch: int | None = None
    kv_tokens: int | None = None
    kv_policy: Literal["queue", "preempt"] = "queue"
    kv_watermark: float = 0.01


@dataclass(frozen=True, slots=True)
class TransferSpec:
    """`tier`: name of a machine's tier, "" for the innermost that spans all devices.

    The other fields replace what machine and model say; bandwidth is per device.
    """

    tier: str = ""
    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None
    bytes_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class ServeSpec:
    """A whole scenario."""

    pools: tuple[PoolSpec, ...]
    load: Load
    slo: Slo = field(default_factory=Slo)
    mtp: Mtp = field(default_factory=Mtp)
    transfer: TransferSpec = field(default_factory=TransferSpec)
    routing: Literal["round-robin", "least-loaded"] = "round-robin"
    claim: Literal["after-prefill", "before-prefill"] = "after-prefill"
    first_token: Literal["prefill", "decode"] = "prefill"


def read_spec(path: str | Path) -> ServeSpec:
    """The scenario in a TOML file; docs/serving.md lists every key.

    Raises XlaCostError for anything missing, unknown or out of range.
    """
    name = Path(path).name
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise XlaCostError(f"{path}: cannot be read ({reason})") from error
    except UnicodeDecodeError as error:
        raise XlaCostError(f"{path}: byte {error.start} is not UTF-8; expected TOML") from error
    except (ValueError, RecursionError) as error:  # also what a number of 5000 digits raises
        raise XlaCostError(f"{name}: {error}; expected TOML") from error
    top = Table(f"{name}: ", values)
    roles: tuple[Role, ...] = ("prefill", "decode", "mixed")
    pools = tuple(_pool(top.table(role), role) for role in roles if top.has(role))
    for role in roles:
        top.table(role)
    routing = top.text("routing", "round-robin", ("round-robin", "least-loaded"))
    claim = top.text("claim", "after-prefill", ("after-prefill", "before-prefill"))
    first_token = top.text("first_token", "prefill", ("prefill", "decode"))
    spec = ServeSpec(
        pools=pools,
        load=_load(top.table("load"), Path(path).parent),
        slo=_slo(top.table("slo")),
        mtp=_mtp(top.table("mtp")),
        transfer=_transfer(top.table("transfer")),
        routing=routing,
        claim=claim,
        first_token=first_token,
    )
    top.finish()
    for key in ("transfer", "claim"):
        if top.has(key) and top.has("mixed"):
            raise XlaCostError(
                f"{name}: {key}: beside [mixed], whose workers pass no cache on; "
                "expected [prefill] and [decode]"
            )
    if not pools:
        raise XlaCostError(f"{name}: no pools; expected [prefill] and [decode], or [mixed]")
    return spec


def _pool(table: Table, role: Role) -> PoolSpec:
    worker: WorkerModel | LatencyCurves
    given = table.has("curve")
    worker = _curves(table.table("curve"), role) if given else _worker(table)
    budget = table.whole("token_budget", 16384, 1) if role != "decode" else 16384
    prompts = table.whole("max_prompts", None, 1) if role != "decode" else None
    chunked = table.flag("chunked", role == "mixed") if role != "decode" else False
    batch = table.whole("max_batch", None, 1) if role != "prefill" else None
    policy = table.text("kv_policy", "queue", ("queue", "preempt"))
    if table.has("kv_watermark") and policy == "queue":
        raise XlaCostError(
            f'{table.where}.kv_watermark: beside kv_policy = "queue", which sets all aside that a '
            'request will hold; must be beside "preempt"'
        )
    spec = PoolSpec(
        role=role,
        workers=table.whole("workers", 1, 1),
        worker=worker,
        token_budget=budget,
        max_prompts=prompts,
        chunked=chunked,
        max_batch=batch,
        kv_tokens=table.whole("kv_tokens", None, 1),
        kv_policy=policy,
        kv_watermark=table.number("kv_watermark", 0.01, 0.0, 1.0),
    )
    table.finish()
    return spec


def _worker(table: Table) -> WorkerModel:
    from xla_cost.programs import ATTENTION, parse_mesh

    policy = table.text("policy", "calibrated", ("calibrated", "study"))
    return WorkerModel(
        model=table.text("model"),
        mesh=parse_mesh(table.text("mesh")),
        plan=table.text("plan", "dp-attention"),
        machine=table.text("machine", "b300"),
        format=table.text("format", "fp4"),
        attention=table.text("attention", ATTENTION[policy], ("flash", "plain")),
        policy=policy,
        microbatches=table.whole("microbatches", 1, 1),
        memory_share=table.number("memory_share", 0.9, 0.0, 1.0),
    )


def _curves(table: Table, role: Role) -> LatencyCurves:
    prefill = decode = None
    if role != "decode":
        prefill = affine_prefill(
            table.number("prefill_fixed_ms", 0.0, high=_LARGEST) / 1e3,
            table.number("prefill_per_token_us", high=_LARGEST) / 1e6,
            table.number("prefill_per_token_and_length_ns", 0.0, high=_LARGEST) / 1e9,
        )
    if role != "prefill":
        decode = affine_decode(
            table.number("decode_fixed_ms", high=_LARGEST) / 1e3,
            table.number("decode_per_request_us", 0.0, high=_LARGEST) / 1e6,
            table.number("decode_per_context_token_ns", 0.0, high=_LARGEST) / 1e9,
        )
    curves = LatencyCurves(
        prefill=prefill,
        decode=decode,
        devices=table.whole("devices", 1, 1),
        provenance=(("curve", "given coefficients"),),
    )
    table.finish()
    return curves


def _load(table: Table, folder: Path) -> Load:
    kinds = ("poisson", "gamma", "uniform", "closed", "trace")
    arrivals = table.text("arrivals", "poisson", kinds)
    trace = None
    if arrivals == "trace":
        cache = table.whole("prefix_cache_tokens", 0)
        trace = read_trace(folder / table.text("trace"), cache)
    elif table.has("trace"):
        raise XlaCostError(f'{table.where}.trace: beside arrivals = {arrivals!r}; must be "trace"')
    needs_rate = arrivals in ("poisson", "gamma", "uniform")
    load = Load(
        arrivals=arrivals,
        rate_per_s=table.number("rate_per_s", low=RATES[0], high=RATES[1]) if needs_rate else 1.0,
        cv=table.number("cv", 1.0, 1e-3, 1e3) if arrivals == "gamma" else 1.0,
        in_flight=_in_flight(table, arrivals == "closed"),
        input_tokens=_lengths(table.table("input_tokens")) if trace is None else Lengths(),
        output_tokens=_lengths(table.table("output_tokens")) if trace is None else Lengths(),
        prefix_hit_rate=0.0 if trace else table.number("prefix_hit_rate", 0.0, 0.0, 0.999999),
        requests=1000 if trace else table.whole("requests", 1000, 1),
        warmup=table.whole("warmup", 0),
        seed=table.whole("seed", 0),
        trace=trace,
    )
    table.finish()
    return load


def _in_flight(table: Table, needed: bool) -> int | None:
    limit: int | None = (
        table.whole("in_flight", low=1) if needed else table.whole("in_flight", None, 1)
    )
    return limit


def _lengths(table: Table) -> Lengths:
    kind = table.text("kind", "fixed", _LENGTH_KINDS)
    low, high = 1, LONGEST
    if kind != "fixed":
        low, high = table.whole("low", 1, 1), table.whole("high", 1 << 20, 1)
        if not low <= high <= LONGEST:
            raise XlaCostError(
                f"{table.where}: low = {low}, high = {high}; must be low <= high <= {LONGEST}"
            )
    lengths = Lengths(
        kind=kind,
        mean=table.number("mean", low=1.0, high=LONGEST) if kind != "uniform" else 1.0,
        cv=table.number("cv", 1.0, 0.0, 1e3) if kind == "lognormal" else 1.0,
        low=low,
        high=high,
    )
    table.finish()
    return lengths


def _slo(table: Table) -> Slo:
    tpot = table.number("tpot_ms", None, positive=True)
    slo = Slo(
        ttft_s=table.number("ttft_s", None, positive=True),
        tpot_s=None if tpot is None else tpot / 1e3,
        e2e_s=table.number("e2e_s", None, positive=True),
    )
    table.finish()
    return slo


def _mtp(table: Table) -> Mtp:
    mtp = Mtp(
        depth=table.whole("depth", 0),
        acceptance=table.number("acceptance", 0.0, 0.0, 1.0),
        draft_step_share=table.number("draft_step_share", 1 / 61, 0.0, 1.0),
    )
    table.finish()
    return mtp


def _transfer(table: Table) -> TransferSpec:
    bandwidth = table.number("bandwidth_GBps", None, 1e-9, _LARGEST)
    latency = table.number("latency_us", None, high=_LARGEST)
    transfer = TransferSpec(
        tier=table.text("tier", ""),
        bandwidth_bytes_per_s=None if bandwidth is None else bandwidth * 1e9,
        latency_s=None if latency is None else latency / 1e6,
        bytes_per_token=table.number("bytes_per_token", None, high=_LARGEST),
    )
    table.finish()
    return transfer
