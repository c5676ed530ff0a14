"""The study's two sweeps: devices at fixed tokens, and batch at fixed devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xla_cost.machine import load
from xla_cost.parallel import Workers
from xla_cost.price import price
from xla_cost.programs import Request
from xla_cost.study.cells import BATCHES, READINGS, Column, Reading
from xla_cost.study.reproduce import Times, lower_all, request_of, study_policy

DEVICES = (8, 16, 24, 36, 48, 72, 144, 288, 576, 1152)
#: batches of the batch sweep, as fractions of the batch of the ratio table
BATCH_SHARES = (0.125, 0.25, 0.5, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One point of a curve: `swept` is "devices" or "batch"."""

    model: str
    format: str
    machine: str
    swept: str
    seq: int
    devices: int
    batch: int
    mesh: tuple[int, int, int]
    copper: Times
    photonic: Times

    @property
    def tokens(self) -> int:
        """Tokens of the whole batch."""
        return self.seq * self.batch


def mesh_at(seq: int, devices: int) -> tuple[int, int, int]:
    """Reading 1's mesh at any device count: y alone inside a pod of 72, then x = 2 or 4."""
    if devices <= 72:
        return (1, devices, 1)
    x = 4 if seq >= 1048576 else 2
    return (x, devices // x, 1)


def curves(
    models: Sequence[str],
    machines: Sequence[str],
    number_format: str,
    workers: Workers,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[CurvePoint, ...]:
    """Both sweeps under reading 1; points that cannot be laid out are left out."""
    wanted = [
        (swept, model, seq, devices, batch)
        for model in models
        for swept, seq, devices, batch in _points()
    ]
    requests = {each: _request(number_format, *each[1:]) for each in wanted}
    programs = lower_all(requests.values(), workers, progress)
    rules = study_policy("study")
    pairs = [(name, load(name), load(f"{name}-photonic")) for name in machines]
    found = []
    for each in wanted:
        swept, model, seq, devices, batch = each
        request = requests[each]
        program = programs[request]
        if isinstance(program, str):
            continue
        for name, copper, photonic in pairs:
            found.append(
                CurvePoint(
                    model,
                    number_format,
                    name,
                    swept,
                    seq,
                    devices,
                    batch,
                    request.mesh,
                    Times.of(price(program, copper, rules)),
                    Times.of(price(program, photonic, rules)),
                )
            )
    return tuple(found)


def _points() -> list[tuple[str, int, int, int]]:
    by_devices = [
        ("devices", seq, devices, batch) for seq, batch in BATCHES.items() for devices in DEVICES
    ]
    by_batch = [
        ("batch", seq, 72, int(batch * share))
        for seq, batch in BATCHES.items()
        for share in BATCH_SHARES
        if batch * share >= 1
    ]
    return by_devices + by_batch


def _request(number_format: str, model: str, seq: int, devices: int, batch: int) -> Request:
    column = Column(seq, devices)
    how: Reading = replace(READINGS["reading-1"], meshes={column: mesh_at(seq, devices)})
    return replace(request_of(model, number_format, column, how), batch=batch)
