"""Points from the real pipeline: a model on a mesh, partitioned, walked and priced.

Programs come from the cache (`xla_cost.programs`), so a second machine or policy costs no
compiler; priced points are cached too, under the machine's content, the policy and the source
of what prices them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from xla_cost.cache import PRICING_SOURCES, Cache, sources_version
from xla_cost.errors import XlaCostError
from xla_cost.serving.curves import LatencyCurves
from xla_cost.serving.points import Check, Cost, decode_curves, prefill_curves, worst

if TYPE_CHECKING:
    from xla_cost.machine import Machine
    from xla_cost.programs import Request


@dataclass(frozen=True, slots=True)
class WorkerModel:
    """One worker: a model under a plan on a mesh of one machine, priced under a policy.

    `memory_share`: part of the device's memory that weights, cache and activations may use.
    """

    model: str
    mesh: tuple[int, int, int]
    plan: str
    machine: str
    format: str = "fp4"
    attention: str = "flash"
    policy: str = "calibrated"
    microbatches: int = 1
    memory_share: float = 0.9

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        x, y, z = self.mesh
        return x * y * z

    def request(self, phase: str, batch: int, length: int) -> Request:
        """The program of one prefill batch or decode step of equal requests."""
        from xla_cost.programs import Request

        return Request(
            model=self.model,
            mesh=self.mesh,
            seq=length,
            batch=batch,
            phase=phase,
            format=self.format,
            plan=self.plan,
            attention=self.attention,
            microbatches=min(self.microbatches, batch),
        )


class Points:
    """Costs of one worker's batches and steps, each partitioned and priced once.

    `note` is called with a few words for every point that is not in the cache.
    """

    def __init__(
        self,
        worker: WorkerModel,
        store: Cache | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        from xla_cost.machine import load

        self.worker = worker
        self.machine: Machine = load(worker.machine)
        self._store = store or Cache()
        self._note = note
        self._known: dict[tuple[str, int, int], dict[str, float]] = {}

    def __call__(self, phase: Literal["prefill", "decode"], batch: int, length: int) -> Cost:
        """Seconds and joules of the whole worker."""
        point = self.point(phase, batch, length)
        return Cost(point["latency_s"], point["energy_j"])

    def point(self, phase: str, batch: int, length: int) -> dict[str, float]:
        """Cost and memory of one point: `weights_bytes`, `kv_bytes_per_token` and
        `activation_bytes` are of one device, the second per token of any request.
        """
        place = (phase, batch, length)
        if place not in self._known:
            key = self._key(phase, batch, length)
            found = self._store.get_json(key)
            if found is None:
                if self._note:
                    self._note(f"pricing {self.worker.model} {phase} {batch} x {length}")
                found = self._made(phase, batch, length)
                self._store.put_json(key, found)
            self._known[place] = found
        return self._known[place]

    def _key(self, phase: str, batch: int, length: int) -> dict[str, Any]:
        from xla_cost.policy import policy

        return {
            "kind": "serving-point",
            "program": self.worker.request(phase, batch, length).key(),
            "machine": self.machine.content_hash,
            "policy": policy(self.worker.policy).describe(),
            "pricing": sources_version(PRICING_SOURCES),
        }

    def _made(self, phase: str, batch: int, length: int) -> dict[str, float]:
        from xla_cost.price import price
        from xla_cost.programs import model_program

        program = model_program(self.worker.request(phase, batch, length), self._store).program
        estimate = price(program, self.machine, self.worker.policy)
        return {
            "latency_s": estimate.latency_s,
            "energy_j": estimate.energy.total_j,
            "weights_bytes": float(estimate.memory.weights_bytes),
            "kv_bytes_per_token": estimate.memory.kv_cache_bytes / (batch * length),
            "activation_bytes": float(estimate.memory.peak_activation_bytes),
        }

    def kv_tokens(self, phase: str, batch: int, length: int) -> int:
        """Tokens of cache that fit beside weights and the activations of that point, which leave
        its cache out.

        Raises XlaCostError where not even the weights fit.
        """
        point = self.point(phase, batch, length)
        room = self.machine.memory_capacity_bytes * self.worker.memory_share
        free = room - point["weights_bytes"] - point["activation_bytes"]
        if free <= 0:
            raise XlaCostError(
                f"{self.worker.model} {phase} on {'x'.join(map(str, self.worker.mesh))}: "
                f"{point['weights_bytes'] / 1e9:.0f} GB of weights and "
                f"{point['activation_bytes'] / 1e9:.0f} GB of activations a device; "
                f"must leave room in {room / 1e9:.0f} GB for the cache"
            )
        return int(free / point["kv_bytes_per_token"])


@dataclass(frozen=True, slots=True)
class Workers:
    """Curves of one worker, the cache it holds in tokens, and how the curves were checked."""

    curves: LatencyCurves
    kv_tokens: int
    checks: tuple[Check, ...]
    bytes_per_token: float


def prefill_worker(
    points: Points,
    typical: int,
    max_tokens: int,
    shortest: int | None = None,
    longest: int | None = None,
) -> Workers:
    """Curves for batches up to `max_tokens`, exact at whole prompts of `typical` tokens.

    `shortest` and `longest` prompts or chunks: `typical` where not given.
    """
    quantum = batch_ranks(points.worker, "prefill", max(max_tokens // typical, 1), typical)
    made = prefill_curves(
        points, max_tokens, typical, longest or typical, quantum, shortest or typical
    )
    curves = LatencyCurves(
        prefill=made.time,
        prefill_energy=made.energy,
        devices=points.worker.devices,
        worst_error=worst(made.checks),
        provenance=_provenance(points),
    )
    room = points.kv_tokens("prefill", max(max_tokens // typical, 1), typical)
    return Workers(curves, room, made.checks, bytes_per_token(points.worker))


def decode_worker(points: Points, max_batch: int, contexts: tuple[int, int]) -> Workers:
    """Curves for steps of up to `max_batch` requests at mean contexts in `contexts`."""
    devices = points.worker.devices
    quantum = batch_ranks(points.worker, "decode", max(max_batch, devices), contexts[1])
    made = decode_curves(points, max_batch, contexts, quantum, first=devices)
    curves = LatencyCurves(
        decode=made.time,
        decode_energy=made.energy,
        devices=devices,
        worst_error=worst(made.checks),
        provenance=_provenance(points),
    )
    room = points.kv_tokens("decode", devices, contexts[1])
    return Workers(curves, room, made.checks, bytes_per_token(points.worker))


def batch_ranks(worker: WorkerModel, phase: str, batch: int, length: int) -> int:
    """Places that the requests of a batch are spread over under the worker's plan."""
    from xla_cost import models
    from xla_cost.models.layout import resolve
    from xla_cost.programs import workload_of

    request = worker.request(phase, batch, length)
    layout = resolve(workload_of(request), models.get_plan(worker.plan), worker.mesh)
    return max(int(layout.batch_ranks), 1)


def bytes_per_token(worker: WorkerModel) -> float:
    """Bytes of the whole model's latent cache of one token, in the format it is kept in."""
    from xla_cost import models
    from xla_cost.hlo.ir import BITS
    from xla_cost.models.formats import DTYPES, get_formats

    config = models.get_config(worker.model)
    kept = get_formats(worker.format).kv_cache
    short = {"float4_e2m1fn": "f4e2m1fn", "float8_e4m3fn": "f8e4m3fn", "bfloat16": "bf16"}
    bits = BITS[short.get(DTYPES[kept], "f32")]
    return float(config.kv_cache_elements_per_token * bits) / 8


def _provenance(points: Points) -> tuple[tuple[str, str], ...]:
    worker = points.worker
    return (
        ("model", worker.model),
        ("mesh", "x".join(map(str, worker.mesh))),
        ("plan", worker.plan),
        ("machine", worker.machine),
        ("machine_hash", points.machine.content_hash),
        ("format", worker.format),
        ("attention", worker.attention),
        ("policy", worker.policy),
    )
