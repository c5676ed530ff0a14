"""From what a user asks for to a Program, through the cache: models, JAX functions, HLO files.

Everything that decides the program is in `Request`; an equal request never partitions twice.
Models, jax and the reader are imported only when the cache has no answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xla_cost.cache import Cache
from xla_cost.collection import no_collection
from xla_cost.errors import XlaCostError
from xla_cost.program import Program

if TYPE_CHECKING:
    from xla_cost.models.workload import Workload

#: device ids of XLA's CPU client from here on belong to another process
MOST_DEVICES = 2048
#: tokens, cache slots, expert slots and sequences are numbered in 32 bits
MOST_COUNTED = 2**31 - 1

#: defaults that follow the policy: what the study does, and what a real engine does
ATTENTION = {"study": "plain", "calibrated": "flash"}


@dataclass(frozen=True, slots=True)
class Request:
    """One model program. `mesh` is (x, y, z); `placement` the mesh axes, slowest first.

    `model` is a name or the path of a Hugging Face `config.json`; `format` a preset with
    changes (`fp4:dispatch=fp8`), see `xla_cost.models.get_formats`.
    """

    model: str
    mesh: tuple[int, int, int]
    seq: int
    batch: int
    phase: str = "prefill"
    format: str = "fp4"
    plan: str = "study"
    attention: str = "flash"
    microbatches: int = 1
    capacity_factor: float = 1.0
    placement: str = ""
    target: str = "cpu"

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        x, y, z = self.mesh
        return x * y * z

    def key(self) -> dict[str, Any]:
        """What the cache knows the program by; a model file counts by its content."""
        fields = {"kind": "model-program", **asdict(self)}
        path = Path(self.model)
        if path.is_dir():
            path = path / "config.json"
        if path.is_file():
            fields["model_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        return fields


@dataclass(frozen=True, slots=True)
class Found:
    """A program and how it was come by; `facts` is what the model says of itself."""

    program: Program
    facts: Mapping[str, Any]
    from_cache: bool


def parse_mesh(text: str) -> tuple[int, int, int]:
    """`2x144x1` to (2, 144, 1). Raises XlaCostError for anything else."""
    parts = text.lower().replace("*", "x").split("x")
    try:
        sizes = tuple(int(part) for part in parts)
    except ValueError:
        sizes = ()
    if len(sizes) != 3 or min(sizes) < 1:
        raise XlaCostError(f"mesh {text!r}: expected three sizes of at least 1, such as 2x144x1")
    check_devices(sizes[0] * sizes[1] * sizes[2])
    return sizes


def check_devices(count: int) -> None:
    """Raise XlaCostError for more devices than XLA's CPU client numbers in one process."""
    if count > MOST_DEVICES:
        raise XlaCostError(f"{count} devices: XLA partitions for at most {MOST_DEVICES} here")


def model_program(request: Request, cache: Cache | None = None) -> Found:
    """The program of a model, from the cache or partitioned now.

    Raises XlaCostError for what cannot be built, with the reason.
    """
    from xla_cost import program_io

    workload_of(request)  # says what is wrong with a value that no key can hold
    cache = cache or Cache()
    key = request.key()
    stored = cache.get_json(key)
    if stored is not None:
        return Found(program_io.program_from_json(stored["program"]), stored["facts"], True)
    program, facts = _partition(request)
    cache.put_json(key, {"program": program_io.program_to_json(program), "facts": facts})
    return Found(program, facts, False)


def cached_program(request: Request, cache: Cache) -> Program | None:
    """The program of `request` if it is in `cache`; never partitions, never imports jax."""
    from xla_cost import program_io

    stored = cache.get_json(request.key())
    return None if stored is None else program_io.program_from_json(stored["program"])


def store_program(request: Request, program: Program, cache: Cache) -> None:
    """Keep a program that was derived rather than partitioned; `facts` say so."""
    from xla_cost import program_io

    facts = {"notes": ["computed from ledgers at other batches, proved affine"]}
    cache.put_json(request.key(), {"program": program_io.program_to_json(program), "facts": facts})


def model_hlo(request: Request) -> tuple[Any, Any]:
    """(PartitionedHlo, ModelProgram) of a model, always partitioned anew."""
    from xla_cost.lowering import ensure_devices, partition

    ensure_devices(request.devices)
    built = _build(request)
    try:
        with no_collection():  # tracing leaves some MB of cycles, which wait until it is done
            return partition(built.fn, built.args, mesh=built.mesh, target=request.target), built
    except XlaCostError as error:
        if not isinstance(error.__cause__, OverflowError):
            raise
        size = f"{built.layout.tokens} tokens per device ({built.layout.padded_tokens} on all)"
        if built.layout.decode:
            size = (
                f"{built.layout.rows} sequences with caches of {built.layout.positions} per device"
            )
        raise XlaCostError(
            f"workload: {size}, expected fewer: tokens, cache slots and expert slots are numbered "
            f"up to {MOST_COUNTED}"
        ) from error


def program_of_text(
    text: str,
    name: str,
    warnings: tuple[str, ...] = (),
    *,
    whole: bool = False,
    provenance: tuple[tuple[str, str], ...] = (),
) -> Program:
    """The program of HLO text; of several modules the first.

    With `whole` a text that is cut is refused: what is missing cannot be compared. Without a
    `provenance` it is the hash of the text.
    """
    from xla_cost.hlo import parse
    from xla_cost.hlo.fingerprint import hlo_sha256
    from xla_cost.walk import walk

    modules = parse(text, where=name)
    if not modules:
        raise XlaCostError(f"{name}: holds no HLO module; expected HLO text")
    for part in modules[0].computations.values() if whole else ():
        if not part.is_complete:
            raise XlaCostError(f"{name}: the text ends inside {part.name}; expected a whole module")
    program = walk(modules[0])
    return replace(
        program,
        name=name,
        warnings=(*warnings, *program.warnings),
        provenance=provenance or (*program.provenance, ("hlo_sha256", hlo_sha256(text))),
    )


def workload_of(request: Request) -> Workload:
    """The workload a request describes. Raises XlaCostError for what does not exist."""
    from xla_cost import models

    return models.Workload(
        model=models.get_config(request.model),
        batch=request.batch,
        seq=request.seq,
        phase=request.phase,  # type: ignore[arg-type]
        formats=models.get_formats(request.format),
        attention=request.attention,  # type: ignore[arg-type]
        microbatches=request.microbatches,
        capacity_factor=request.capacity_factor,
    )


def _build(request: Request) -> Any:
    from xla_cost import models

    plan = models.get_plan(request.plan)
    if request.placement:
        plan = replace(plan, axis_order=tuple(request.placement))
    return models.build(workload_of(request), plan, request.mesh)


def _partition(request: Request) -> tuple[Program, dict[str, Any]]:
    from xla_cost.findings import finding_json, findings

    hlo, built = model_hlo(request)
    name = f"{request.model} {request.phase}"
    warnings = tuple(str(warning) for warning in hlo.warnings)
    program = program_of_text(hlo.text, name, warnings, provenance=hlo.provenance)
    facts = {
        "padding": dict(built.padding),
        "notes": list(built.notes),
        "seconds_to_partition": hlo.trace_s + hlo.lower_s + hlo.partition_s,
    }
    if hlo.warnings:
        facts["findings"] = [finding_json(found) for found in findings(program, hlo.warnings)]
    program = replace(
        program, weights_bytes=built.weights_bytes, kv_cache_bytes=built.kv_cache_bytes
    )
    return program, facts
