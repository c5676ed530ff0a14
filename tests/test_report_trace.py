"""Traces, read back with Perfetto's own protos."""

from __future__ import annotations

import pytest
from price_programs import dot, gather, loop, program
from report_results import toy_machines, toy_program

from xla_cost.errors import XlaCostError
from xla_cost.policy import CALIBRATED, STUDY
from xla_cost.price import price
from xla_cost.program import Body
from xla_cost.report.protobuf import field, varint
from xla_cost.report.trace import trace_bytes, write_trace

protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


def read(data: bytes):
    """(names of tracks by uuid, slices as (track, name, start, end, arguments), counters)."""
    trace = protos.Trace()
    trace.ParseFromString(data)
    assert trace.SerializeToString() != b""
    tracks, slices, counters, open_on = {}, [], {}, {}
    last = 0
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            about = packet.track_descriptor
            tracks[about.uuid] = about.process.process_name or about.name
            continue
        event = packet.track_event
        if event.type == event.TYPE_COUNTER:
            counters.setdefault(tracks[event.track_uuid], []).append(
                (packet.timestamp, event.double_counter_value)
            )
            continue
        assert packet.timestamp >= last
        last = packet.timestamp
        stack = open_on.setdefault(event.track_uuid, [])
        if event.type == event.TYPE_SLICE_BEGIN:
            notes = {n.name: getattr(n, n.WhichOneof("value")) for n in event.debug_annotations}
            stack.append((event.name, packet.timestamp, notes))
        else:
            assert event.type == event.TYPE_SLICE_END
            name, start, notes = stack.pop()
            slices.append((tracks[event.track_uuid], name, start, packet.timestamp, notes))
    assert not any(open_on.values())
    return tracks, slices, counters


def on(slices, track: str):
    return sorted((start, end, name) for where, name, start, end, _ in slices if where == track)


def test_one_matmul_and_one_gather():
    """2 s of matmul, then 3 x 40 B at 100 B/s: 1.2 s on the scale-up lane."""
    made = program(dot("dot", (), 2.0), gather("gather", (0,), 40, 4, scope="layer/comm"))
    estimate = price(made, toy_machines()[0], STUDY)
    tracks, slices, counters = read(trace_bytes(estimate))
    assert list(tracks.values()) == [
        "/device:toy (1 of 4, predicted)", "XLA Modules", "Framework Name Scope", "XLA Loops",
        "XLA Ops", "scale-up", "scale-out", "memory traffic", "memory held, at most",
    ]  # fmt: skip
    assert on(slices, "XLA Ops") == [(0, 2_000_000_000, "dot")]
    assert on(slices, "scale-up") == [(2_000_000_000, 3_200_000_000, "gather")]
    assert on(slices, "scale-out") == []
    assert on(slices, "XLA Modules") == [(0, 3_200_000_000, "toy")]
    assert on(slices, "Framework Name Scope") == [
        (0, 2_000_000_000, "ffn"), (0, 2_000_000_000, "layer")]  # fmt: skip
    arguments = {name: notes for _, name, _, _, notes in slices}
    assert arguments["dot"]["hlo_category"] == "convolution"
    assert arguments["dot"]["flops"] == 2000
    assert arguments["dot"]["tf_op"] == "layer/ffn"
    assert arguments["gather"]["hlo_category"] == "all-gather"
    assert arguments["gather"]["bytes_accessed"] == 40
    assert arguments["gather"]["replica_groups"] == "1 x 4"
    assert arguments["gather"]["tier"] == "scale-up"
    # weights and arguments 200, activations 100
    assert counters["memory held, at most"] == [(0, 300.0), (3_200_000_000, 300.0)]


@pytest.mark.parametrize("policy", [STUDY, CALIBRATED], ids=lambda policy: policy.name)
def test_every_event_of_the_timeline_is_a_slice(policy):
    """Nested, ordered, on its lane, to the nanosecond."""
    machines = toy_machines()
    estimate = price(toy_program(), machines[0], policy)
    _, slices, _ = read(trace_bytes(estimate))
    found = sorted(
        ("XLA Ops" if event.stream == "compute" else event.stream,
         round(event.start_s * 1e9), round(event.end_s * 1e9), event.name)
        for event in estimate.timeline.events
    )  # fmt: skip
    lanes = ("XLA Ops", "scale-up", "scale-out")
    assert found == sorted((t, s, e, n) for t, n, s, e, _ in slices if t in lanes)
    (trips,) = {notes["trips"] for t, _, _, _, notes in slices if t == "XLA Loops"}
    assert trips == 3


def test_memory_traffic_is_bytes_over_seconds():
    """One element-wise op of 300 bytes at 10 B/s, then nothing."""
    estimate = price(toy_program(), toy_machines()[0], CALIBRATED)
    _, _, counters = read(trace_bytes(estimate))
    samples = counters["memory traffic"]
    assert samples[-1][1] == 0.0
    assert max(value for _, value in samples) <= estimate.machine.memory_bytes_per_s * (1 + 1e-9)


def test_nested_loops_nest():
    inner = loop(Body((dot("dot", (), 1.0),)), 2)
    estimate = price(program(loop(Body((inner,)), 3)), toy_machines()[0], STUDY)
    _, slices, _ = read(trace_bytes(estimate))
    spans = on(slices, "XLA Loops")
    assert [(start, end) for start, end, _ in spans] == [
        (0, 2_000_000_000), (0, 6_000_000_000)]  # fmt: skip


def test_an_empty_program_is_a_trace():
    estimate = price(program(), toy_machines()[0], STUDY)
    _, slices, _ = read(trace_bytes(estimate))
    assert [(name, start, end) for _, name, start, end, _ in slices] == [("toy", 0, 0)]


def test_wire_format():
    """The examples of the encoding guide: 150 is 96 01; field 1 = 150 is 08 96 01."""
    assert varint(150) == bytes([0x96, 0x01])
    assert field(1, 150) == bytes([0x08, 0x96, 0x01])
    assert field(2, "testing") == bytes([0x12, 0x07]) + b"testing"
    assert field(1, 1.0) == bytes([0x09]) + bytes(6) + bytes([0xF0, 0x3F])


def test_written_whole_or_refused(tmp_path):
    estimate = price(toy_program(), toy_machines()[0], STUDY)
    write_trace(tmp_path / "t.perfetto-trace", estimate)
    assert (tmp_path / "t.perfetto-trace").read_bytes() == trace_bytes(estimate)
    with pytest.raises(XlaCostError, match="is a folder"):
        write_trace(tmp_path, estimate)
