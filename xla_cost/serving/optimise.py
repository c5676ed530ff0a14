"""Co-design: which workers, meshes and batch limits give most goodput under promises.

The splits with the best bounds (`candidates.py`) are simulated, each at the highest Poisson rate
at which 95 % of the requests keep the promises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xla_cost.cache import Cache
from xla_cost.errors import StorageError, XlaCostError
from xla_cost.serving.candidates import (
    PLACES,
    Candidate,
    Shape,
    candidates,
    decode_shapes,
    prefill_shapes,
    prompts_per_batch,
)
from xla_cost.serving.load import Lengths, Load
from xla_cost.serving.lowered import Points, WorkerModel, Workers, decode_worker, prefill_worker
from xla_cost.serving.results import ServeResult, summarise
from xla_cost.serving.simulate import simulate
from xla_cost.serving.system import Pool, Slo, System

_SHARE = 0.95  # of requests that must keep the promises
_SIMULATED = 6  # designs simulated per TPOT limit
_STEPS = 6  # halvings of the rate
_LIMITS = (0.2, 0.3, 0.4, 0.6, 1.0)  # TPOT limits, of the largest
_WARMUP, _MEASURED = 800, 2000  # requests of one simulation


@dataclass(frozen=True, slots=True)
class Shapes:
    """Curves of every worker shape that fits, by mesh and plan."""

    prefill: Mapping[Shape, Workers]
    decode: Mapping[Shape, Workers]


@dataclass(frozen=True, slots=True)
class Promise:
    """What every request has and is promised: tokens in and out, TTFT and TPOT limits."""

    inputs: int
    outputs: int
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Design:
    """One simulated split at the highest rate that keeps a promise.

    `goodput_per_gpu` in requests per second and device of all that were there to use,
    `goodput_per_j` in requests per joule.
    """

    tpot_limit_s: float
    split: Candidate
    rate_per_s: float
    goodput_per_gpu: float
    goodput_per_j: float
    result: ServeResult

    @property
    def words(self) -> str:
        """Workers as text: `6 x 1x8x1 study + 1 x 1x24x1 dp-attention`."""
        split = self.split
        return " + ".join(
            f"{count} x {'x'.join(map(str, mesh))} {plan}"
            for count, (mesh, plan) in (
                (split.prefill_workers, split.prefill),
                (split.decode_workers, split.decode),
            )
        )


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
    study's split is always among those simulated, on its best meshes.
    """
    shapes = lowered_shapes(machine, policy, input_tokens, output_tokens, note, store)
    found: list[Design] = []
    for share in _LIMITS:
        promise = Promise(input_tokens, output_tokens, ttft_s, tpot_s * share)
        if note:
            note(f"{machine}: designs with at most {promise.tpot_s * 1e3:.1f} ms per token")
        found += best_designs(shapes, promise, devices)
    return found


def lowered_shapes(
    machine: str, policy: str, inputs: int, outputs: int,
    note: Callable[[str], None] | None = None, store: Cache | None = None,
) -> Shapes:  # fmt: skip
    """R1 in FP4 on every candidate shape of `machine` that holds its weights."""
    attention = "plain" if policy == "study" else "flash"

    def points(shape: Shape) -> Points:
        mesh, plan = shape
        worker = WorkerModel("r1", mesh, plan, machine, "fp4", attention, policy)
        return Points(worker, store, note)

    def fitting(
        shapes: Sequence[Shape], make: Callable[[Shape], Workers]
    ) -> Mapping[Shape, Workers]:
        found = {}
        for shape in shapes:
            try:
                found[shape] = make(shape)
            except StorageError:
                raise
            except XlaCostError as mistake:
                if note:
                    note(f"left out: {shape[1]} on {'x'.join(map(str, shape[0]))}: {mistake}")
        return found

    def prefilling(shape: Shape) -> Workers:
        return prefill_worker(points(shape), inputs, max(prompts_per_batch(shape)) * inputs)

    def decoding(shape: Shape) -> Workers:
        return decode_worker(points(shape), PLACES * shape[0][1], (inputs, inputs + outputs))

    return Shapes(fitting(prefill_shapes(), prefilling), fitting(decode_shapes(), decoding))


def best_designs(shapes: Shapes, promise: Promise, devices: int) -> list[Design]:
    """The splits with the best bounds, and the study's, as far as they keep the promise."""
    ranked = sorted(
        candidates(
            shapes.prefill, shapes.decode, devices,
            promise.tpot_s, promise.ttft_s, promise.inputs, promise.outputs,
        ),
        # where decode is the wall, the prefill with most to spare: its prompts wait least
        key=lambda split: (-split.bound_per_s, -split.prefill_per_s),
    )  # fmt: skip
    chosen = ranked[:_SIMULATED]
    chosen += [s for s in [s for s in ranked if s.is_study][:1] if s not in chosen]
    driven = (drive(split, shapes, promise, devices) for split in chosen)
    return [design for design in driven if design is not None]


def drive(split: Candidate, shapes: Shapes, promise: Promise, devices: int) -> Design | None:
    """The split at the highest rate that keeps the promise, None if none does."""
    system = _system(split, shapes, promise.inputs)
    slo = Slo(ttft_s=promise.ttft_s, tpot_s=promise.tpot_s)
    best: tuple[float, ServeResult] | None = None
    low, high = 0.0, split.bound_per_s
    rate = 0.9 * high
    for _ in range(_STEPS):
        load = Load(
            rate_per_s=rate,
            in_flight=8192,
            input_tokens=Lengths(mean=promise.inputs),
            output_tokens=Lengths(mean=promise.outputs),
            requests=_MEASURED,
            warmup=_WARMUP,
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
    energy = (result.energy_j_per_output_token or 0.0) * promise.outputs
    return Design(
        tpot_limit_s=promise.tpot_s,
        split=split,
        rate_per_s=rate,
        goodput_per_gpu=rate * result.goodput_share / devices,
        goodput_per_j=result.goodput_share / energy if energy else 0.0,
        result=result,
    )


def _system(split: Candidate, shapes: Shapes, inputs: int) -> System:
    prefilling, decoding = shapes.prefill[split.prefill], shapes.decode[split.decode]
    return System(
        prefill=Pool(
            "prefill",
            split.prefill_workers,
            prefilling.curves,
            token_budget=split.prompts * inputs,
            kv_tokens=prefilling.kv_tokens,
        ),
        decode=Pool(
            "decode",
            split.decode_workers,
            decoding.curves,
            max_batch=split.max_batch,
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

    split = design.split
    return {
        "tpot_limit_s": design.tpot_limit_s,
        **{name: getattr(split, name) for name in Candidate.__slots__},
        "bound_per_s": split.bound_per_s,
        "rate_per_s": design.rate_per_s,
        "goodput_per_gpu": design.goodput_per_gpu,
        "goodput_per_j": design.goodput_per_j,
        "is_study": split.is_study,
        "result": to_json(replace(design.result, series={}), series=False),
    }


def optimise_table(found: Mapping[str, Sequence[Design]]) -> str:
    """The best design per limit and fabric beside the study's split."""
    lines = []
    for name, designs in found.items():
        lines.append(f"{name}: goodput in requests/s/GPU and requests/kJ")
        for limit in sorted({d.tpot_limit_s for d in designs}):
            here = [d for d in designs if d.tpot_limit_s == limit]
            best = max(here, key=lambda d: d.goodput_per_gpu)
            study = next((d for d in here if d.split.is_study), None)
            beside = f"{study.goodput_per_gpu:.3f}, {study.words}" if study else "none"
            lines.append(
                f"  {limit * 1e3:5.1f} ms  {best.goodput_per_gpu:.3f}  "
                f"{best.goodput_per_j * 1e3:.2f}/kJ  {best.words}, batch {best.split.max_batch}, "
                f"{best.split.prompts} prompts  (6 x 8 + 24: {beside})"
            )
    return "\n".join(lines)
