"""Run a sweep: search every point, keep each result as soon as it is there.

The folder holds `spec.json`, one file per finished point under `points/`, and at the end the
tables. Every file appears whole or not at all, so a killed sweep goes on where it stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xla_cost.cache import code_version, sources_version
from xla_cost.errors import XlaCostError
from xla_cost.jsonio import canonical_json, read_json, write_json
from xla_cost.machine import load
from xla_cost.parallel import Workers
from xla_cost.price import policy
from xla_cost.programs import ATTENTION, Request, parse_mesh
from xla_cost.search.candidates import Candidate, space
from xla_cost.search.engine import SearchResult, search
from xla_cost.search.model_problem import ModelProblem
from xla_cost.search.summary import PRICING
from xla_cost.sweep.axes import check_axes
from xla_cost.sweep.spec import Point, SweepSpec

#: code that decides a row beside what makes the program
_SOURCES = (*PRICING, "search", "sweep")


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The finished rows of a sweep, in the order of its points."""

    rows: tuple[dict[str, Any], ...]
    computed: int
    reused: int


def run_sweep(
    spec: SweepSpec,
    out: Path,
    *,
    workers: Workers,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SweepResult:
    """Every point of `spec`, from `out` where an earlier run left it, else searched now.

    Raises XlaCostError, before anything is written, as `check_axes` does and when `out` holds
    another sweep.
    """
    check_axes(spec, f"sweep {spec.name}")
    _claim(spec, out)
    points = list(spec.points())
    rows: dict[Point, dict[str, Any]] = {}
    computed = 0
    for done, point in enumerate(_computing_order(spec, points)):
        progress(done, len(points))
        row = _finished(out, point)
        if row is None:
            row = asdict(point) | _search_point(spec, point, workers)
            write_json(_file_of(out, point), {"made_by": _made_by(point), "row": row})
            computed += 1
        rows[point] = row
    progress(len(points), len(points))
    return SweepResult(tuple(rows[point] for point in points), computed, len(points) - computed)


def states(spec: SweepSpec, out: Path) -> tuple[tuple[Point, bool], ...]:
    """Every point of `spec` in order, and whether `out` holds its row; computes nothing.

    Raises XlaCostError as `run_sweep` does.
    """
    check_axes(spec, f"sweep {spec.name}")
    _refuse_another(spec, out)
    return tuple((point, _finished(out, point) is not None) for point in spec.points())


def _computing_order(spec: SweepSpec, points: list[Point]) -> list[Point]:
    """Smallest, largest and middle batch first: the others may then follow from those."""

    def rank(point: Point) -> int:
        batches = spec.batches(point)
        first = (0, len(batches) - 1, len(batches) // 2)
        index = batches.index(point.batch)
        return first.index(index) if index in first else len(first) + index

    return sorted(points, key=rank)


def _claim(spec: SweepSpec, out: Path) -> None:
    """Make `out` this sweep's folder, or refuse one that belongs to another."""
    (out / "points").mkdir(parents=True, exist_ok=True)
    if not _refuse_another(spec, out):
        write_json(out / "spec.json", spec.to_dict())


def _refuse_another(spec: SweepSpec, out: Path) -> bool:
    """Whether `out` is this sweep's folder; XlaCostError where it is another's."""
    path = out / "spec.json"
    if not path.exists():
        return False
    if canonical_json(read_json(path)) != canonical_json(spec.to_dict()):
        raise XlaCostError(
            f"{out}: holds another sweep ({path.name} differs); expected an empty folder or "
            "the one this spec was started in"
        )
    return True


def _file_of(out: Path, point: Point) -> Path:
    digest = hashlib.sha256(canonical_json(asdict(point)).encode()).hexdigest()[:24]
    return out / "points" / f"{digest}.json"


def _made_by(point: Point) -> dict[str, str]:
    """What decides the row of `point` beside its own fields: a machine's file may change."""
    return {
        "code": f"{code_version()}-{sources_version(_SOURCES)}",
        "machine": load(point.machine).content_hash,
    }


def _finished(out: Path, point: Point) -> dict[str, Any] | None:
    """The row of `point` in `out`, unless it is missing, damaged or made by other code."""
    path = _file_of(out, point)
    if not path.exists():
        return None
    try:
        stored = read_json(path)
    except XlaCostError:
        return None
    if not isinstance(stored, dict) or stored.get("made_by") != _made_by(point):
        return None
    row = stored.get("row")
    return row if isinstance(row, dict) and asdict(point).items() <= row.items() else None


def _search_point(spec: SweepSpec, point: Point, workers: Workers) -> dict[str, Any]:
    """The best candidate of `point` and what it costs; `why` says why there is none."""
    assumptions = policy(point.policy)
    request = Request(
        model=point.model,
        mesh=(point.devices, 1, 1),
        seq=point.seq,
        batch=point.batch,
        phase=point.phase,
        format=point.format,
        attention=ATTENTION.get(assumptions.name, "flash"),
    )
    problem = ModelProblem(request, batches=spec.batches(point))
    found = search(
        problem,
        tuple(_candidates(spec, point)),
        load(point.machine),
        assumptions,
        top=1,
        need_fit=assumptions.name != "study",
        workers=workers,
    )
    return _row(found)


def _candidates(spec: SweepSpec, point: Point) -> Iterator[Candidate]:
    if isinstance(spec.meshes, str):
        yield from space(point.devices, spec.plans)
        return
    for text in spec.meshes:
        mesh = parse_mesh(text)
        for plan in spec.plans:
            candidate = Candidate(plan, mesh)
            if candidate.devices == point.devices:
                yield candidate


def _row(found: SearchResult) -> dict[str, Any]:
    row: dict[str, Any] = {"candidates": found.candidates, "evaluated": found.evaluated}
    if not found.ranking:
        why = found.rejected[0].why if found.rejected else "no mesh of the spec has these devices"
        return row | {"why": why}
    best = found.ranking[0]
    summary = best.summary
    return row | {
        "mesh": "x".join(map(str, best.candidate.mesh)),
        "plan": best.candidate.plan,
        "latency_s": summary.latency_s,
        "compute_s": summary.compute_s,
        "comm_s": summary.comm_s,
        "exposed_comm_s": summary.exposed_comm_s,
        "energy_j": summary.energy_j,
        "fits": summary.fits,
        "marks": "; ".join(found.machine.marks),
    }
