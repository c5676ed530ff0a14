"""Co-design: which workers, meshes and batch limits give most goodput under promises.

Every split of the devices into prefill and decode workers of the candidate shapes is bounded
from its curves (no request is faster than a whole prefill, no step shorter than the curve), the
best by that bound are simulated, and each is driven at the highest Poisson rate at which 95 % of
the requests keep the promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xla_cost.cache import Cache
from xla_cost.serving.curves import LatencyCurves
from xla_cost.serving.load import Lengths, Load
from xla_cost.serving.lowered import Points, WorkerModel, Workers, decode_worker, prefill_worker
from xla_cost.serving.results import ServeResult, summarise
from xla_cost.serving.simulate import simulate
from xla_cost.serving.system import Pool, Slo, System

#: Candidate shapes: (mesh, plan).
PREFILL_SHAPES = (((1, 4, 1), "study"), ((1, 8, 1), "study"), ((1, 16, 1), "study"))
DECODE_SHAPES = (
    ((1, 12, 1), "dp-attention"),
    ((1, 24, 1), "dp-attention"),
    ((1, 36, 1), "dp-attention"),
)

#: The study's system, kept in every comparison.
_STUDY = (((1, 8, 1), "study"), 6, ((1, 24, 1), "dp-attention"), 1)

_SHARE = 0.95  # of requests that must keep the promises
_SIMULATED = 3  # designs simulated per TPOT limit
_STEPS = 5  # halvings of the rate
_LIMITS = (0.2, 0.3, 0.4, 0.6, 1.0)  # TPOT limits, of the largest
_BUDGETS = (1, 4)  # prompts in a prefill batch
Shape = tuple[tuple[int, int, int], str]


@dataclass(frozen=True, slots=True)
class Design:
    """One simulated system at its highest rate under a TPOT limit."""

    tpot_limit_s: float
    prefill: Shape
    prefill_workers: int
    decode: Shape
    decode_workers: int
    max_batch: int
    prompts: int
    rate_per_s: float
    goodput_per_gpu: float
    goodput_per_j: float
    result: ServeResult
    is_study: bool = False

    @property
    def words(self) -> str:
        """Workers as text: `6 x 1x8x1 study + 1 x 1x24x1 dp-attention`."""
        sides = []
        for count, (mesh, plan) in (
            (self.prefill_workers, self.prefill),
            (self.decode_workers, self.decode),
        ):
            sides.append(f"{count} x {'x'.join(map(str, mesh))} {plan}")
        return " + ".join(sides)


@dataclass(frozen=True, slots=True)
class _Candidate:
    prefill: Shape
    prefill_workers: int
    decode: Shape
    decode_workers: int
    prompts: int
    max_batch: int
    bound_per_s: float

    @property
    def is_study(self) -> bool:
        return (self.prefill, self.prefill_workers, self.decode, self.decode_workers) == _STUDY


@dataclass(frozen=True, slots=True)
class _Shapes:
    prefill: Mapping[Shape, Workers]
    decode: Mapping[Shape, Workers]


def optimise(
    machine: str,
    policy: str = "study",
    ttft_s: float = 10.0,
    tpot_s: float = 0.025,
    devices: int = 72,
    input_tokens: int = 8192,
    output_tokens: int = 1024,
    note: Callable[[str], None] | None = None,
    store: Cache | None = None,
) -> list[Design]:
    """Designs on up to `devices` of `machine`, the best under each of five TPOT limits.

    The limits go from `tpot_s` down to a fifth of it; TTFT is promised within `ttft_s`. The
    study's own split is always among those simulated.
    """
    shapes = _shapes(machine, policy, input_tokens, output_tokens, note, store)
    limits = [tpot_s * share for share in _LIMITS]
    found: list[Design] = []
    for limit in limits:
        if note:
            note(f"{machine}: designs with at most {limit * 1e3:.1f} ms per token")
        ranked = sorted(
            _candidates(shapes, devices, limit, ttft_s, input_tokens, output_tokens),
            key=lambda c: -c.bound_per_s,
        )
        chosen = ranked[:_SIMULATED]
        study = [c for c in ranked if c.is_study]
        chosen += [c for c in study[:1] if c not in chosen]
        for candidate in chosen:
            design = _drive(candidate, shapes, limit, ttft_s, devices, input_tokens, output_tokens)
            if design is not None:
                found.append(design)
    return found


def _shapes(
    machine: str, policy: str, inputs: int, outputs: int,
    note: Callable[[str], None] | None, store: Cache | None,
) -> _Shapes:  # fmt: skip
    attention = "plain" if policy == "study" else "flash"

    def points(shape: Shape) -> Points:
        mesh, plan = shape
        worker = WorkerModel("r1", mesh, plan, machine, "fp4", attention, policy)
        return Points(worker, store, note)

    contexts = (inputs, inputs + outputs)
    return _Shapes(
        {s: prefill_worker(points(s), inputs, max(_BUDGETS) * inputs) for s in PREFILL_SHAPES},
        {s: decode_worker(points(s), 64 * s[0][1], contexts) for s in DECODE_SHAPES},
    )


def _candidates(
    shapes: _Shapes, devices: int, tpot_s: float, ttft_s: float, inputs: int, outputs: int
) -> Iterator[_Candidate]:
    """Every split that can keep the promises at all, with a bound on its rate."""
    context = inputs + outputs / 2
    for decode, decoding in shapes.decode.items():
        batch = _largest_batch(decoding, tpot_s, context, inputs + outputs)
        if not batch:
            continue
        step = decoding.curves.decode_step_s(batch, context)
        per_decoder = batch / (step * (outputs - 1))
        for prefill, prefilling in shapes.prefill.items():
            for prompts in _BUDGETS:
                seconds = prefilling.curves.prefill_s([inputs] * prompts)
                if seconds > ttft_s:
                    continue
                per_prefiller = prompts / seconds
                sizes = (prefilling.curves.devices, decoding.curves.devices)
                for decoders in range(1, devices // sizes[1] + 1):
                    prefillers = (devices - decoders * sizes[1]) // sizes[0]
                    if prefillers:
                        bound = min(prefillers * per_prefiller, decoders * per_decoder)
                        yield _Candidate(
                            prefill, prefillers, decode, decoders, prompts, batch, bound
                        )


def _largest_batch(decoding: Workers, tpot_s: float, context: float, tokens: int) -> int:
    """Most requests of one decode worker whose step is within the limit and that fit."""
    devices = decoding.curves.devices
    most = decoding.kv_tokens // tokens
    low, high = 0, min(max(most, 1), 64 * devices)
    while low < high:
        middle = (low + high + 1) // 2
        if decoding.curves.decode_step_s(middle, context) <= tpot_s:
            low = middle
        else:
            high = middle - 1
    return low


def _drive(
    candidate: _Candidate, shapes: _Shapes, tpot_s: float, ttft_s: float, devices: int,
    inputs: int, outputs: int,
) -> Design | None:  # fmt: skip
    """The design at the highest rate that keeps the promises, None if none does."""
    system = _system(candidate, shapes, inputs)
    slo = Slo(ttft_s=ttft_s, tpot_s=tpot_s)
    best: tuple[float, ServeResult] | None = None
    low, high = 0.0, candidate.bound_per_s
    rate = 0.9 * high
    for _ in range(_STEPS):
        load = Load(
            rate_per_s=rate,
            in_flight=8192,
            input_tokens=Lengths(mean=inputs),
            output_tokens=Lengths(mean=outputs),
            requests=1000,
            warmup=600,
            seed=7,
        )
        result = summarise(system, simulate(system, load), slo)
        # what waits outside was late as well: an overload must not look like a full house
        if result.goodput_share >= _SHARE and result.wait_outside_s.maximum == 0:
            low, best = rate, (rate, result)
        else:
            high = rate
        rate = (low + high) / 2
    if best is None:
        return None
    rate, result = best
    kept = rate * result.goodput_share
    energy = (result.energy_j_per_output_token or 0.0) * outputs
    return Design(
        tpot_limit_s=tpot_s,
        prefill=candidate.prefill,
        prefill_workers=candidate.prefill_workers,
        decode=candidate.decode,
        decode_workers=candidate.decode_workers,
        max_batch=candidate.max_batch,
        prompts=candidate.prompts,
        rate_per_s=rate,
        goodput_per_gpu=kept / devices,
        goodput_per_j=result.goodput_share / energy if energy else 0.0,
        result=result,
        is_study=candidate.is_study,
    )


def _system(candidate: _Candidate, shapes: _Shapes, inputs: int) -> System:
    prefilling, decoding = shapes.prefill[candidate.prefill], shapes.decode[candidate.decode]
    prefill: LatencyCurves = prefilling.curves
    return System(
        prefill=Pool(
            "prefill",
            candidate.prefill_workers,
            prefill,
            token_budget=candidate.prompts * inputs,
            kv_tokens=prefilling.kv_tokens,
        ),
        decode=Pool(
            "decode",
            candidate.decode_workers,
            decoding.curves,
            max_batch=candidate.max_batch,
            kv_tokens=decoding.kv_tokens,
        ),
        routing="least-loaded",
        first_token="decode",
    )


def optimise_json(found: Mapping[str, Sequence[Design]]) -> dict[str, Any]:
    """Designs by fabric, JSON-ready."""
    return {"fabrics": {name: [_plain(d) for d in designs] for name, designs in found.items()}}


def _plain(design: Design) -> dict[str, Any]:
    from xla_cost.serving.result_io import to_json

    fields = {name: getattr(design, name) for name in Design.__slots__ if name != "result"}
    return {**fields, "result": to_json(replace(design.result, series={}), series=False)}


def optimise_table(found: Mapping[str, Sequence[Design]]) -> str:
    """The best design per limit and fabric beside the study's split."""
    lines = []
    for name, designs in found.items():
        lines.append(f"{name}: goodput in requests/s/GPU and requests/kJ")
        for limit in sorted({d.tpot_limit_s for d in designs}):
            here = [d for d in designs if d.tpot_limit_s == limit]
            best = max(here, key=lambda d: d.goodput_per_gpu)
            study = next((d for d in here if d.is_study), None)
            beside = f"{study.goodput_per_gpu:.3f}" if study else "none"
            lines.append(
                f"  {limit * 1e3:5.1f} ms  {best.goodput_per_gpu:.3f}  "
                f"{best.goodput_per_j * 1e3:.2f}/kJ  {best.words}, batch {best.max_batch}, "
                f"{best.prompts} prompts  (6 x 8 + 24: {beside})"
            )
    return "\n".join(lines)
