"""An estimate as a Perfetto trace: https://ui.perfetto.dev opens it.

Lanes and arguments are named as XProf names them ("XLA Modules", "Framework Name Scope",
"XLA Ops", `hlo_category`, `tf_op`, `bytes_accessed`, ..), so that a predicted and a measured
trace read the same. One process is one device; each network tier is a lane. Of a loop the
scheduled iterations are drawn, see `xla_cost.price.timeline`.

Field numbers: protos/perfetto/trace/{trace_packet,track_event/*}.proto of Perfetto.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache
from pathlib import Path

from xla_cost.errors import XlaCostError
from xla_cost.jsonio import replace_file
from xla_cost.price.estimate import Estimate
from xla_cost.price.timeline import Event, LoopSpan
from xla_cost.report.protobuf import field

Value = int | float | str

_BEGIN, _END, _COUNTER = 1, 2, 4
_SEQUENCE, _PID = 1, 1
_PROCESS = 1  # uuid of the process track; the others follow
_CLEARED = 1  # sequence_flags: nothing was interned before

_OF_SEQUENCE = field(10, _SEQUENCE)  # trusted_packet_sequence_id, in every packet

#: XProf's hlo_category of our kinds of ops; a collective is its own opcode
_CATEGORY = {
    "matmul": "convolution",  # XProf's word for all matrix products
    "kernel": "custom-call",
    "vector": "loop fusion",
    "move": "data formatting",
}


@dataclass(frozen=True, slots=True)
class _Slice:
    start_ns: int
    end_ns: int
    track: int
    name: str
    category: str
    arguments: Mapping[str, Value] = dataclass_field(default_factory=dict)


def write_trace(path: str | os.PathLike[str], estimate: Estimate) -> None:
    """Write `trace_bytes(estimate)` to a file, whole or not at all.

    Raises XlaCostError when it cannot be written.
    """
    try:
        replace_file(Path(path), trace_bytes(estimate), sync=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise XlaCostError(f"{os.fspath(path)}: cannot be written ({reason})") from error


def trace_bytes(estimate: Estimate) -> bytes:
    """The trace of one device: lanes for modules, scopes, loops, compute and every tier, and
    two counters, the memory traffic (bytes/s) and the bytes held.
    """
    timeline = estimate.timeline
    lanes = ["XLA Modules", "Framework Name Scope", "XLA Loops", "XLA Ops", *timeline.streams[1:]]
    track = {name: _PROCESS + 1 + index for index, name in enumerate(lanes)}
    traffic, held = (_PROCESS + 1 + len(lanes) + index for index in range(2))
    machine, program = estimate.machine.name, estimate.program
    packets = [_process(f"/device:{machine} (1 of {program.devices}, predicted)")]
    packets += [_thread(uuid, name, index) for index, (name, uuid) in enumerate(track.items())]
    packets.append(_counter(traffic, "memory traffic", "B/s"))
    packets.append(_counter(held, "memory held, at most", "B"))
    slices = [
        _Slice(0, _ns(timeline.latency_s), track["XLA Modules"], program.name, "module",
               _module_arguments(estimate)),
        *(_loop(loop, track["XLA Loops"]) for loop in timeline.loops),
        *(_op(estimate, event, track) for event in timeline.events),
        *_scopes(timeline.events, track["Framework Name Scope"]),
    ]  # fmt: skip
    packets += _ordered(slices)
    packets += [_sample(at, traffic, value) for at, value in _traffic(estimate)]
    packets += [_sample(at, held, value) for at, value in _held(estimate)]
    return b"".join(field(1, packet) for packet in packets)


def _ns(seconds: float) -> int:
    return max(0, round(seconds * 1e9))


def _module_arguments(estimate: Estimate) -> dict[str, Value]:
    found: dict[str, Value] = {
        "machine": estimate.machine.name,
        "policy": estimate.policy.name,
        "latency_s": estimate.latency_s,
        "devices": estimate.program.devices,
    }
    return found | {f"provenance/{key}": value for key, value in estimate.program.provenance}


def _op(estimate: Estimate, event: Event, track: Mapping[str, int]) -> _Slice:
    task, time = estimate.graph.tasks[event.task], estimate.times[event.task]
    op, moved = task.op, task.op.collective
    arguments: dict[str, Value] = {
        "hlo_op": op.name,
        "hlo_category": moved.kind if moved else _CATEGORY.get(op.kind, op.opcode),
        "tf_op": op.scope,
        "source": op.source,
        "bytes_accessed": moved.payload_bytes if moved else task.bytes,
        "bound_by": time.bound,
        "occurrences": int(event.times),
        "iteration": event.iteration,
    }
    if op.matmuls:
        arguments |= {"flops": int(op.flops), "model_flops": int(op.flops * op.work),
                      "format": op.matmuls[0].format}  # fmt: skip
    if moved and time.collective:
        groups = moved.groups
        arguments |= {"replica_groups": f"{groups.count} x {groups.size}", "tier": event.stream,
                      "algorithm": time.collective.algorithm, "format": moved.format}  # fmt: skip
        for phase in time.collective.phases:
            if phase.tier == event.stream:
                arguments[f"phase: {phase.what}"] = int(phase.bytes)
    lane = track["XLA Ops"] if event.stream == "compute" else track[event.stream]
    return _Slice(
        _ns(event.start_s), _ns(event.end_s), lane, event.name,
        str(arguments["hlo_category"]), arguments,
    )  # fmt: skip


def _loop(loop: LoopSpan, lane: int) -> _Slice:
    arguments: dict[str, Value] = {
        "hlo_op": loop.name, "hlo_category": "while", "tf_op": loop.scope, "trips": loop.trips,
        "iterations_drawn": loop.drawn, "iteration_s": loop.iteration_s,
    }  # fmt: skip
    name = f"{loop.scope or loop.name} x {loop.trips}"
    return _Slice(_ns(loop.start_s), _ns(loop.end_s), lane, name, "while", arguments)


def _scopes(events: Sequence[Event], lane: int) -> Iterator[_Slice]:
    """Nested slices of the scopes the compute stream is in, as long as they do not change."""
    open_since: list[tuple[str, int]] = []
    end = 0
    for event in (event for event in events if event.stream == "compute"):
        start, path = _ns(event.start_s), event.scope.split("/") if event.scope else []
        kept = 0
        while kept < min(len(path), len(open_since)) and open_since[kept][0] == path[kept]:
            kept += 1
        for name, since in open_since[kept:]:
            yield _Slice(since, end, lane, name, "scope")
        open_since[kept:] = [(name, start) for name in path[kept:]]
        end = _ns(event.end_s)
    for name, since in open_since:
        yield _Slice(since, end, lane, name, "scope")


def _traffic(estimate: Estimate) -> Iterator[tuple[int, float]]:
    """Bytes per second that the running kernel reads and writes; 0 between kernels."""
    end = -1
    for event in (event for event in estimate.timeline.events if event.stream == "compute"):
        start = _ns(event.start_s)
        if end >= 0 and start > end:
            yield end, 0.0
        end = _ns(event.end_s)
        seconds = event.end_s - event.start_s
        if end > start:
            yield start, estimate.graph.tasks[event.task].bytes / seconds
    yield max(end, 0), 0.0


def _held(estimate: Estimate) -> Iterator[tuple[int, float]]:
    """Weights, cache and the peak of activations, which is a bound for every moment."""
    needed = float(estimate.memory.needed_bytes)
    yield 0, needed
    yield _ns(estimate.latency_s), needed


def _ordered(slices: Sequence[_Slice]) -> Iterator[bytes]:
    """Begins and ends by time; at one moment ends first, inner before outer, and an outer
    slice begins before an inner one. A slice of no length begins and ends after the rest.
    """
    edges: list[tuple[int, int, int, int, bytes]] = []
    for index, one in enumerate(slices):
        length = one.end_ns - one.start_ns
        begin, end = _begin(one), _event(_END, one.track)
        edges.append((one.start_ns, 1, -length, 2 * index, _packet(one.start_ns, begin)))
        rank = (0, length, -index) if length else (1, 0, 2 * index + 1)
        edges.append((one.end_ns, *rank, _packet(one.end_ns, end)))
    edges.sort(key=lambda edge: edge[:4])
    return (edge[4] for edge in edges)


def _process(name: str) -> bytes:
    process = field(1, _PID) + field(6, name)
    return _descriptor(field(1, _PROCESS) + field(3, process) + field(11, 3))


def _thread(uuid: int, name: str, rank: int) -> bytes:
    """A lane; `child_ordering` of its parent is EXPLICIT (3), so `rank` orders it."""
    return _descriptor(
        field(1, uuid) + field(2, name) + field(5, _PROCESS) + field(12, rank)
    )  # fmt: skip


def _counter(uuid: int, name: str, unit: str) -> bytes:
    counter = field(6, unit)
    return _descriptor(
        field(1, uuid) + field(2, name) + field(5, _PROCESS) + field(8, counter)
        + field(12, uuid)
    )  # fmt: skip


def _descriptor(descriptor: bytes) -> bytes:
    return _OF_SEQUENCE + field(60, descriptor) + field(13, _CLEARED)


def _begin(one: _Slice) -> bytes:
    notes = b"".join(field(4, _annotation(k, v)) for k, v in one.arguments.items() if v != "")
    return _event(_BEGIN, one.track) + field(22, one.category) + field(23, one.name) + notes


@lru_cache
def _event(kind: int, track: int) -> bytes:
    return field(9, kind) + field(11, track)


def _sample(at_ns: int, track: int, value: float) -> bytes:
    return _packet(at_ns, _event(_COUNTER, track) + field(44, value))


def _packet(at_ns: int, event: bytes) -> bytes:
    return field(8, at_ns) + _OF_SEQUENCE + field(11, event)


@lru_cache(maxsize=1 << 14, typed=True)  # the same few names and values, op after op
def _annotation(name: str, value: Value) -> bytes:
    number = 6 if isinstance(value, str) else 5 if isinstance(value, float) else 4
    return field(10, name) + field(number, value)
