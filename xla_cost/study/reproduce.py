"""Every cell of the study under a reading: copper, photonic twin, ratio, known value, deviation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path

from xla_cost.cache import Cache
from xla_cost.errors import StorageError, XlaCostError
from xla_cost.machine import Machine, load
from xla_cost.models import get_config
from xla_cost.models.layout import resolve
from xla_cost.models.plan import get_plan
from xla_cost.parallel import Workers
from xla_cost.policy import STUDY, Policy
from xla_cost.price import Estimate, price
from xla_cost.program import Program
from xla_cost.programs import Request, cached_program, model_program, workload_of
from xla_cost.study.cells import COLUMNS, READINGS, Column, Reading
from xla_cost.study.known import COMPONENTS, RATIOS, Components, deviation


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one prefill on one fabric."""

    latency_s: float
    compute_s: float
    comm_s: float
    energy_j: float
    fits: bool

    @staticmethod
    def of(estimate: Estimate) -> Times:
        """The times of an estimate."""
        return Times(
            estimate.latency_s,
            estimate.compute_s,
            estimate.comm_s,
            estimate.energy_j,
            estimate.memory.fits,
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: a model in a format on a platform at a column, read one way.

    `known` is the study's (low, high) ratio, None where no digest gives it; `refused` says
    why a cell has no numbers.
    """

    model: str
    format: str
    machine: str
    column: Column
    reading: str
    mesh: tuple[int, int, int]
    plan: str
    copper: Times | None
    photonic: Times | None
    refused: str = ""

    @property
    def ratio(self) -> float | None:
        """Copper latency over photonic latency."""
        if self.copper is None or self.photonic is None:
            return None
        return self.copper.latency_s / self.photonic.latency_s

    @property
    def known(self) -> tuple[float, float] | None:
        """The study's ratio, where one is known: R1 in fp4 only."""
        if (self.model, self.format) != ("r1", "fp4"):
            return None
        return RATIOS.get(self.machine, {}).get(self.column)

    @property
    def deviation(self) -> float | None:
        """Relative distance of our ratio to the study's range; 0 inside it."""
        if self.ratio is None or self.known is None:
            return None
        return deviation(self.ratio, self.known)

    @property
    def components(self) -> Components | None:
        """The study's component times, where known: R1 in fp4 on B300."""
        if (self.model, self.format, self.machine) != ("r1", "fp4", "b300"):
            return None
        return COMPONENTS.get(self.column)


def study_policy(network: str) -> Policy:
    """The study's assumptions with a named rule for what crosses a pod."""
    return replace(STUDY, name=f"study ({network} crossing)", network=network)  # type: ignore[arg-type]


def request_of(model: str, number_format: str, column: Column, reading: Reading) -> Request:
    """What is partitioned for a cell: attention plain, as the study prices it.

    Where the experts do not divide over y (Mini has 128), y is their greatest common divisor
    and x takes the rest.
    """
    x, y, z = reading.mesh(column)
    experts = gcd(y, get_config(model).n_routed_experts)
    return Request(
        model=model,
        mesh=(x * y // experts, experts, z),
        seq=column.seq,
        batch=column.batch,
        format=number_format + reading.formats,
        plan=reading.plan,
        attention="plain",
    )


def lower_all(
    requests: Iterable[Request],
    workers: Workers,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[Request, Program | str]:
    """The program of each distinct request, or the sentence why there is none."""
    cache = Cache()
    found: dict[Request, Program | str] = {}
    missing = []
    distinct = list(dict.fromkeys(requests))
    for request in distinct:
        program = _read(request, cache) or _refusal(request)
        if program is None:
            missing.append(request)
        else:
            found[request] = program
    progress(len(found), len(distinct))
    for request, program_or_why in workers.map(_lower, missing):
        found[request] = program_or_why
        progress(len(found), len(distinct))
    return found


#: Programs read so far, by request and cache: waterfalls of every machine ask for the same ones.
_read_before: dict[tuple[Request, Path, str], Program] = {}
_KEPT = 256


def _read(request: Request, cache: Cache) -> Program | None:
    key = (request, cache.folder, cache.version)
    program = _read_before.get(key) or cached_program(request, cache)
    if program is not None and cache.enabled:
        if len(_read_before) >= _KEPT:
            _read_before.pop(next(iter(_read_before)))
        _read_before[key] = program
    return program


def _refusal(request: Request) -> str | None:
    """Why no program can be laid out, found without worker processes; None where one may be."""
    try:
        resolve(workload_of(request), get_plan(request.plan), request.mesh)
    except XlaCostError as error:
        return str(error)
    return None


def _lower(request: Request) -> Program | str:
    try:
        return model_program(request).program
    except StorageError:
        raise
    except XlaCostError as error:
        return str(error)


def reproduce(
    models: Sequence[str],
    machines: Sequence[str],
    formats: Sequence[str],
    workers: Workers,
    *,
    readings: Sequence[str] = tuple(READINGS),
    columns: Sequence[Column] = COLUMNS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Cell, ...]:
    """Every cell of the cross product, lowered once for all platforms and fabrics."""
    wanted = [
        (model, number_format, column, READINGS[name])
        for model in models
        for number_format in formats
        for name in readings
        for column in columns
    ]
    programs = lower_all((request_of(*each) for each in wanted), workers, progress)
    pairs = [(name, load(name), load(f"{name}-photonic")) for name in machines]
    return tuple(
        cell for each in wanted for cell in _cells(*each, request_of(*each), programs, pairs)
    )


def _cells(
    model: str,
    number_format: str,
    column: Column,
    reading: Reading,
    request: Request,
    programs: Mapping[Request, Program | str],
    pairs: Sequence[tuple[str, Machine, Machine]],
) -> Iterator[Cell]:
    program = programs[request]
    rules = study_policy(reading.network)
    for name, copper, photonic in pairs:
        base = Cell(
            model, number_format, name, column, reading.name, request.mesh, reading.plan,
            None, None,
        )  # fmt: skip
        if isinstance(program, str):
            yield replace(base, refused=program)
            continue
        yield replace(
            base,
            copper=Times.of(price(program, copper, rules)),
            photonic=Times.of(price(program, photonic, rules)),
        )
