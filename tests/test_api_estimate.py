"""`estimate` and `compare` by Lowered, ledger, function or `module:function`."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import xla_cost
from xla_cost.errors import XlaCostError
from xla_cost.lowering import ensure_devices
from xla_cost.machine import load

X = jax.ShapeDtypeStruct((4096, 8192), jnp.bfloat16)
W = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16)


def mesh_8():
    return jax.make_mesh((8,), ("x",), (AxisType.Auto,), devices=ensure_devices(8)[:8])


def matmul(x, w):
    return x @ w


@pytest.fixture(scope="module")
def lowered():
    return xla_cost.lower(matmul, X, W, mesh=mesh_8(), in_shardings=(P(None, "x"), P("x")))


def test_under_study_a_matmul_takes_its_flops_at_the_peak(lowered):
    estimate = xla_cost.estimate(lowered, "h100", "study")
    machine = load("h100")
    flops = 2 * 4096 * (8192 // 8) * 8192
    read = (4096 * 1024 + 1024 * 8192) * 2
    written = 4096 * 8192 * 2
    seconds = max(flops / machine.peak_flops["bf16"], (read + written) / machine.memory_bytes_per_s)
    assert estimate.compute_s == pytest.approx(seconds, rel=1e-12)
    assert estimate.comm_s > 0  # the sum over x
    assert estimate.latency_s == pytest.approx(seconds + estimate.comm_s, rel=1e-12)


def test_all_ways_of_saying_the_same_program_cost_the_same(lowered):
    by_lowered = xla_cost.estimate(lowered, "b300")
    by_program = xla_cost.estimate(lowered.program, load("b300"))
    by_function = xla_cost.estimate(
        matmul, "b300", args=(X, W), mesh=mesh_8(), in_shardings=(P(None, "x"), P("x"))
    )
    assert by_lowered.latency_s == by_program.latency_s == by_function.latency_s
    assert by_lowered.policy.name == "calibrated"


def test_against_a_photonic_twin(lowered):
    comparison = xla_cost.estimate(lowered, "b300", against="b300-photonic")
    assert comparison.first.machine.name == "b300"
    assert comparison.second.machine.name == "b300-photonic"
    assert comparison.ratio == comparison.first.latency_s / comparison.second.latency_s
    assert comparison.ratio > 1


def test_compare_takes_estimates_and_programs(lowered):
    replicated = xla_cost.lower(matmul, X, W, mesh=mesh_8(), in_shardings=(P(), P()))
    first, second = (xla_cost.estimate(each, "h100") for each in (lowered, replicated))
    assert xla_cost.compare(first, second).ratio == first.latency_s / second.latency_s
    assert xla_cost.compare(lowered, replicated, "h100").ratio == pytest.approx(
        first.latency_s / second.latency_s, rel=1e-12
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda low: xla_cost.estimate(low, "h99"), "h99"),
        (lambda low: xla_cost.estimate(low, "h100", "wild"), "policy 'wild' is unknown"),
        (lambda low: xla_cost.estimate(matmul, "h100"), r"matmul is a function; give .* args=\("),
        (
            lambda low: xla_cost.estimate(low, "h100", args=(X,), mesh=None),
            "a Lowered is lowered already; args, mesh must not be given",
        ),
        (lambda low: xla_cost.estimate(7, "h100"), "found a int; expected a Lowered"),
        (lambda low: xla_cost.estimate("nothing", "h100"), "expected module:function"),
    ],
)
def test_mistakes_get_one_sentence(lowered, call, message):
    with pytest.raises(XlaCostError, match=message) as caught:
        call(lowered)
    assert "\n" not in str(caught.value)


def test_everything_exports_to_pandas(lowered):
    ledger = lowered.to_pandas()
    assert list(ledger[ledger.kind == "matmul"].flops) == [
        op.flops for op, _ in lowered.program.walk() if op.kind == "matmul"
    ]
    assert set(ledger.collective) - {""} == {
        op.collective.kind for op, _ in lowered.program.walk() if op.collective is not None
    }
    both = xla_cost.estimate(lowered, "b300", against="b300-photonic")
    saved = both.first.latency_s - both.second.latency_s
    assert both.to_pandas().saved_s.sum() == pytest.approx(saved, abs=1e-12)
    assert both.to_pandas("ops").saved_s.sum() == pytest.approx(saved, abs=1e-12)
    with pytest.raises(XlaCostError, match="table 'timeline' is unknown"):
        both.to_pandas("timeline")
