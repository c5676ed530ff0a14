"""Estimates of hand-made programs: seconds, bytes, joules, splits and JSON as arithmetic."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from price_programs import dot, gather, loop, machine, permute, program, vector

from xla_cost.errors import XlaCostError
from xla_cost.machine import load
from xla_cost.policy import CALIBRATED, STUDY, policy
from xla_cost.price import compare, price
from xla_cost.price.as_json import estimate_json
from xla_cost.price.trace import trace_json
from xla_cost.program import Body, Matmul, Op


def layer() -> Body:
    """2 s of attention, 1 s of permute, 3 s of experts, one after the other."""
    return Body(
        (
            dot("a", (), 2.0, "layers/attention/q"),
            permute("p", (0,), 100, "layers/moe/dispatch"),
            dot("e", (1,), 3.0, "layers/moe/experts"),
        ),
        peak_live_bytes=70,
    )


def test_study_takes_the_larger_of_flops_and_bytes():
    """3000 FLOP at 1000/s against 20 + 30 B at 10 B/s: 5 s, bound by memory."""
    op = Op(
        "d", "dot", "matmul", (), matmuls=(Matmul(1, 1500, 1, 1, "fp8"),),
        bytes_read=999, source_bytes_read=20, bytes_written=30,
    )  # fmt: skip
    estimate = price(program(op), machine(), STUDY)
    assert estimate.compute_s == pytest.approx(5.0)
    assert estimate.ops[0].bound == "memory"
    assert estimate.bound_by == "memory"


def test_study_prices_nothing_but_dots_kernels_and_collectives():
    ledger = program(vector("v", "add", (), 1000, 1000), dot("d", (0,), 1.0))
    assert price(ledger, machine(), STUDY).latency_s == pytest.approx(1.0)


def test_study_refuses_a_format_the_machine_has_no_unit_for():
    op = Op("d", "dot", "matmul", (), matmuls=(Matmul(1, 500, 1, 1, "fp4"),))
    with pytest.raises(XlaCostError, match=r"machine toy: no fp4 peak; .*\['bf16', 'fp8'\]"):
        price(program(op), machine(), STUDY)


def test_kernel_does_its_share_of_the_region():
    """Half of 4000 FLOP at 1000/s."""
    op = Op(
        "f", "flash", "kernel", (), matmuls=(Matmul(1, 2000, 1, 1, "bf16"),), work=0.5,
        region="flash_attention",
    )  # fmt: skip
    estimate = price(program(op), machine(), STUDY)
    assert estimate.latency_s == pytest.approx(2.0)
    assert estimate.ops[0].flops == 2000.0


def test_imbalance_stretches_experts_and_exchanges():
    grouped = Op("g", "dot", "matmul", (), matmuls=(Matmul(2, 250, 1, 1, "fp8", grouped=True),))
    ledger = program(grouped, dot("d", (0,), 1.0))
    assert price(ledger, machine(), STUDY).latency_s == pytest.approx(1.0 + 1.0)
    loaded = policy("study", expert_imbalance=1.5)
    assert price(ledger, machine(), loaded).latency_s == pytest.approx(1.5 + 1.0)
    assert loaded.name == "study(expert_imbalance=1.5)"


def test_rounding_is_no_exposed_communication():
    """0.1, 0.2 and 0.3 s in a row, 7 times: added in two orders they differ in the last digits."""
    steps = tuple(dot(f"d{i}", (i - 1,) if i else (), 0.1 * (i + 1)) for i in range(3))
    estimate = price(program(loop(Body(steps), 7)), machine(), STUDY)
    assert estimate.latency_s != estimate.compute_s
    assert estimate.latency_s == pytest.approx(7 * 0.6)
    assert estimate.exposed_comm_s == 0.0


def test_parts_of_the_model_add_up():
    estimate = price(program(loop(layer(), 10)), machine(), STUDY)
    assert estimate.latency_s == pytest.approx(10 * (2.0 + 1.0 + 3.0))
    compute = {row.scope: row.compute_s for row in estimate.by_scope}
    exposed = {row.scope: row.exposed_comm_s for row in estimate.by_scope}
    assert compute == pytest.approx({"experts": 30.0, "attention": 20.0, "dispatch": 0.0})
    assert exposed == pytest.approx({"experts": 0.0, "attention": 0.0, "dispatch": 10.0})
    tree = {row.scope: row.critical_s for row in estimate.scope_tree}
    assert tree[""] == pytest.approx(60.0)
    assert tree["layers/moe"] == pytest.approx(40.0)


def test_exposed_time_of_the_parts_is_latency_less_compute():
    body = Body((dot("a", (), 2.0, "x"), permute("p", (), 300, "y"), permute("q", (0,), 100, "z")))
    estimate = price(program(loop(body, 7)), machine(), STUDY)
    exposed = sum(row.exposed_comm_s for row in estimate.by_scope)
    assert exposed == pytest.approx(estimate.latency_s - estimate.compute_s)
    assert estimate.exposed_comm_s == pytest.approx(exposed)


def test_tier_follows_from_device_ids():
    """4 devices fit the pod of 4: 3/4 of the gathered bytes at 100 B/s; 8 also cross at 10 B/s."""
    inside = price(program(gather("g", (), 100, 4)), machine(), STUDY)
    assert inside.comm_s_by_tier == pytest.approx({"scale-up": 300 / 100, "scale-out": 0.0})
    across = price(program(gather("g", (), 100, 8), devices=8), machine(), STUDY)
    assert across.comm_s_by_tier["scale-out"] > 0.0


def test_memory_counts_weights_cache_and_activations():
    memory = price(program(dot("d", (), 1.0)), machine(), STUDY).memory
    assert (memory.weights_bytes, memory.kv_cache_bytes) == (200, 0)
    assert memory.peak_activation_bytes == 100
    assert memory.fits  # 300 of 1000
    # a cache among the arguments, 100 of them: the peak of 100 is all activations
    held = program(dot("d", (), 1.0), weights_bytes=100, kv_cache_bytes=100)
    assert price(held, machine(), STUDY).memory.needed_bytes == 100 + 100 + 100
    # a cache that the program makes: 50 of the peak are its 50 bytes of results
    made = program(dot("d", (), 1.0), weights_bytes=600, kv_cache_bytes=351)
    estimate = price(made, machine(), STUDY)
    assert estimate.memory.needed_bytes == 600 + 351 + 50
    assert not estimate.memory.fits
    assert any("needs 1.00 kB per device, toy has 1 kB" in line for line in estimate.warnings)


def test_energy_is_flops_and_bytes_and_static_power():
    """(15 - 5) W / 1000 FLOP/s = 10 mJ per FLOP; 1 mJ per byte on scale-up; 5 W for 3 s."""
    ledger = program(dot("d", (), 2.0), permute("p", (0,), 100))
    energy = price(ledger, machine(), STUDY).energy
    assert energy.compute_j == pytest.approx(2000 * 0.010)
    assert energy.network_j == pytest.approx({"scale-up": 100 * 1e-3, "scale-out": 0.0})
    assert energy.static_j == pytest.approx(5.0 * 3.0)
    assert energy.energy_j == pytest.approx(20.0 + 0.1 + 15.0)
    assert energy.total_j == pytest.approx(4 * 35.1)


def test_ratio_splits_into_bandwidth_and_radix():
    """An all-gather over 8 of two pods of 4, then one pod of 64 with four times the bandwidth."""
    ledger = program(gather("g", (), 100, 8), devices=8)
    copper, photonic = machine(), machine(64, 400.0)
    found = compare(price(ledger, copper, STUDY), price(ledger, photonic, STUDY))
    assert set(found.split) == {"bandwidth", "radix"}
    assert found.split["bandwidth"] * found.split["radix"] == pytest.approx(found.ratio)
    fast_small = price(ledger, machine(4, 400.0), STUDY).latency_s
    slow_large = price(ledger, machine(64, 100.0), STUDY).latency_s
    first, second = found.first.latency_s, found.second.latency_s
    bandwidth = ((first / fast_small) * (slow_large / second)) ** 0.5
    assert found.split["bandwidth"] == pytest.approx(bandwidth)


def test_inside_one_pod_all_of_the_ratio_is_bandwidth():
    ledger = program(gather("g", (), 100, 4))
    found = compare(price(ledger, machine(), STUDY), price(ledger, machine(64, 400.0), STUDY))
    assert found.ratio == pytest.approx(4.0)
    assert found.split == pytest.approx({"bandwidth": 4.0, "radix": 1.0})


def test_faster_chips_are_a_factor_of_their_own():
    ledger = program(gather("g", (), 100, 4), dot("d", (0,), 3.0))
    better = machine(64, 400.0, name="b", peak_flops={"fp8": 2000.0, "bf16": 2000.0})
    found = compare(price(ledger, machine(), STUDY), price(ledger, better, STUDY))
    assert found.ratio == pytest.approx((3.0 + 3.0) / (0.75 + 1.5))
    assert set(found.split) == {"compute", "bandwidth", "radix"}
    product = found.split["compute"] * found.split["bandwidth"] * found.split["radix"]
    assert product == pytest.approx(found.ratio)


def test_comparison_names_the_parts_that_make_the_difference():
    ledger = program(loop(layer(), 10))
    found = compare(price(ledger, machine(), STUDY), price(ledger, machine(4, 400.0), STUDY))
    assert found.by_scope[0].scope == "dispatch"
    assert found.by_scope[0].saved_s == pytest.approx(10.0 - 2.5)
    assert found.ops[0].name == "p"


def test_calibrated_pays_a_launch_per_kernel():
    """Every kernel, however small, takes at least the machine's floor."""
    b300 = load("b300")
    tiny = program(vector("v", "add", (), 80, 80), vector("g", "gather", (0,), 80, 80, "move"))
    estimate = price(tiny, b300, CALIBRATED)
    floor_s = b300.kernel_times.memory.floor_us * 1e-6
    assert estimate.latency_s == pytest.approx(2 * floor_s, rel=1e-3)
    assert [op.bound for op in estimate.ops] == ["latency", "latency"]


def test_unpriced_ops_are_listed():
    mystery = Op("x", "custom-call", "unpriced", (), note="no rule for target foo", bytes_read=8)
    ledger = program(mystery, dot("d", (0,), 1.0), coverage=0.5)
    estimate = price(ledger, machine(), STUDY)
    assert estimate.coverage == 0.5
    assert [op.name for op, _ in estimate.unpriced] == ["x"]
    assert any("no rule for target foo" in line for line in estimate.warnings)


def test_marks_of_the_machine_are_said():
    ledger = program(permute("p", (), 100))
    assert any("speculative" in line for line in price(ledger, "r4", STUDY).warnings)


def test_a_tier_that_counts_as_perfect_is_said_where_rates_are_fitted():
    toy = machine()
    bare = replace(toy, tiers=(toy.tiers[0], replace(toy.tiers[1], efficiency_given=False)))
    ledger = program(dot("a", (), 1.0))
    said = "toy: tier scale-out: no efficiency given, priced at its full rate"
    assert said in price(ledger, bare, CALIBRATED).warnings
    assert said not in price(ledger, bare, STUDY).warnings
    assert said not in price(ledger, toy, CALIBRATED).warnings


def test_json_has_the_fields_of_the_interface():
    first = price(program(loop(layer(), 10)), machine(), STUDY)
    second = price(first.program, machine(64, 400.0, name="fast"), STUDY)
    answer = estimate_json({"model": "toy"}, [first, second], compare(first, second), {})
    answer = json.loads(json.dumps(answer, allow_nan=False))
    assert answer["program"]["flops_by_format"] == {"fp8": 10 * 5000.0}
    assert answer["program"]["loops"] == [{"name": "while", "trips": 10}]
    assert answer["program"]["coverage"] == 1.0
    assert answer["program"]["unpriced"] == []
    (moved,) = answer["program"]["collectives"]
    assert {key: moved[key] for key in ("kind", "group_size", "groups", "payload_bytes",
            "executions", "scope", "format")} == {
        "kind": "collective-permute", "group_size": 2, "groups": 4, "payload_bytes": 100,
        "executions": 10, "scope": "layers/moe/dispatch", "format": "bf16",
    }  # fmt: skip
    result = answer["results"][0]
    assert result["machine"] == "toy"
    assert result["latency_s"] == pytest.approx(60.0)
    assert result["memory"] == {
        "weights_bytes": 200, "kv_cache_bytes": 0, "peak_activation_bytes": 100,
        "capacity_bytes": 1000.0, "fits": True,
    }  # fmt: skip
    assert {"scope", "compute_s", "comm_s", "exposed_comm_s"} <= set(result["by_scope"][0])
    assert answer["ratio"] == pytest.approx(60.0 / 52.5)
    assert set(answer["ratio_split"]) == {"bandwidth", "radix"}


def test_repr_and_frames_are_readable():
    estimate = price(program(loop(layer(), 10)), machine(), STUDY)
    assert "latency  60 s, bound by compute" in repr(estimate)
    assert list(estimate.to_pandas("by_scope")["scope"]) == ["experts", "attention", "dispatch"]
    assert len(estimate.to_pandas("timeline")) == 3
    with pytest.raises(XlaCostError, match="table 'nonsense' is unknown"):
        estimate.to_pandas("nonsense")


def test_html_escapes_hostile_names():
    op = dot("d", (), 1.0, "<script>alert(1)</script>")
    html = price(program(op), machine(), STUDY)._repr_html_()
    assert "<script>" not in html
    assert "&lt;" in html


def test_unknown_policy_machine_and_field_are_named():
    ledger = program(dot("d", (), 1.0))
    with pytest.raises(XlaCostError, match="policy 'nosuch' is unknown"):
        price(ledger, machine(), "nosuch")
    with pytest.raises(XlaCostError, match="nosuch"):
        price(ledger, "nosuch")
    with pytest.raises(XlaCostError, match="policy field 'colour' is unknown"):
        policy("study", colour=1)
    with pytest.raises(XlaCostError, match=r"expert_imbalance = 0\.5; must be >= 1"):
        policy("study", expert_imbalance=0.5)


def test_trace_has_a_lane_per_stream_and_every_event():
    estimate = price(program(loop(layer(), 10)), machine(), STUDY)
    trace = trace_json(estimate)
    lanes = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    assert list(lanes.values()) == ["loops", "compute", "scale-up", "scale-out"]
    shown = [(e["name"], lanes[e["tid"]], e["ts"], e["dur"]) for e in trace["traceEvents"]
             if e["ph"] == "X"]  # fmt: skip
    assert shown == [
        ("while", "loops", 0.0, 60e6),
        ("a", "compute", 0.0, 2e6),
        ("p", "scale-up", 2e6, 1e6),
        ("e", "compute", 3e6, 3e6),
    ]
