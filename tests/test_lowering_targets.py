"""The real GPU and TPU compilers without a device; skipped with a word where not installed."""

import importlib.util
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from xla_cost.errors import XlaCostError
from xla_cost.lowering import ensure_devices, partition, targets
from xla_cost.lowering.gpu_config import GPUS, target_config, topology_of
from xla_cost.lowering.targets import is_installed

X = jax.ShapeDtypeStruct((64, 32), jnp.bfloat16)
W = jax.ShapeDtypeStruct((32, 16), jnp.bfloat16)


def mesh(shape, axes):
    return AbstractMesh(shape, axes, axis_types=(AxisType.Auto,) * len(shape))


def matmul(x, w):
    return x @ w


@pytest.fixture
def stand_in(monkeypatch):
    """The CPU compiler behind the way that leads to the accelerators'."""
    monkeypatch.setattr(
        targets, "_compiler", lambda _, n: targets._Compiler("cpu", ensure_devices(n)[:n], {})
    )


@pytest.mark.parametrize(
    ("spec", "local"),
    [(P("data", "model"), "16,8"), (P(None, "model"), "64,8"), (P(), "64,16")],
)
def test_the_result_is_split_as_asked(stand_in, spec, local):
    text = partition(
        matmul, (X, W), mesh=mesh((4, 2), ("data", "model")), target="gpu:h100",
        in_shardings=(P("data"), P(None, "model")), out_shardings=spec,
    ).text  # fmt: skip
    assert f"->bf16[{local}]" in text.split("\n", 1)[0]


def test_what_a_jit_has_of_its_own_is_not_given_beside_it(stand_in):
    with pytest.raises(XlaCostError, match=r"^matmul: is jitted already, so out_shardings must"):
        partition(
            jax.jit(matmul), (X, W), mesh=mesh((4, 2), ("data", "model")), target="gpu:h100",
            out_shardings=P("data"),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("gpu:h99", "target: found 'gpu:h99'; expected cpu, gpu:h100, gpu:b200, gpu:b300 or tpu"),
        ("tpu:", "target: found 'tpu:'; expected cpu"),
        ("npu:x", "target: found 'npu:x'; expected cpu"),
    ],
)
def test_unknown_targets(target, message):
    with pytest.raises(XlaCostError, match=message):
        partition(matmul, (X, W), target=target)


@pytest.mark.parametrize(
    ("target", "extra"), [("gpu:h100", "xla-cost[gpu]"), ("tpu:v5e-16", "xla-cost[tpu]")]
)
def test_a_missing_extra_is_named(target, extra, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(XlaCostError, match="is not installed; install") as caught:
        partition(matmul, (X, W), target=target)
    assert str(caught.value).endswith(f"install {extra}")


def test_static_arguments_are_refused():
    with pytest.raises(XlaCostError, match="static_argnums is not taken; close over the value"):
        partition(matmul, (X, W), target="gpu:h100", static_argnums=1)


def test_a_gpu_is_described_as_the_compiler_wants_it():
    text = target_config(GPUS["b200"])
    assert "core_count: 148" in text
    assert "cuda_compute_capability { major: 10 minor: 0 }" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("devices", "topology"),
    [(1, "1x1x1"), (8, "1x1x8"), (64, "1x8x8"), (12, "1x2x6"), (7, "1x1x7"), (1152, "1x144x8")],
)
def test_hosts_are_as_full_as_the_mesh_allows(devices, topology):
    assert topology_of(GPUS["h100"], devices) == topology


# One process per compiler: the plugin must be loaded before jax has any client of its own.
SCRIPT = """
import os, sys
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P
import xla_cost

target, size = sys.argv[1], int(sys.argv[2])
mesh = AbstractMesh((size // 4, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

def fn(x, w):
    with jax.named_scope("up"):
        h = jnp.tanh(x @ w)
    with jax.named_scope("down"):
        return h @ w.T

x = jax.ShapeDtypeStruct((4096, 8192), jnp.bfloat16)
w = jax.ShapeDtypeStruct((8192, 16384), jnp.bfloat16)
lowered = xla_cost.lower(
    fn, x, w, mesh=mesh, in_shardings=(P("data"), P(None, "model")), target=target
)
flops = {}
for op, times in lowered.program.walk():
    if op.flops:
        flops[op.scope] = flops.get(op.scope, 0) + op.flops * int(times)
print(lowered.devices, "is_scheduled=true" in lowered.hlo, sorted(flops.items()))
print(sorted({op.collective.kind for op, _ in lowered.program.walk() if op.collective}))
print(lowered.hlo.split(",")[0], "call_exported" in lowered.hlo)
"""


def compiled(target, devices):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, target, str(devices)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def expected(devices):
    each = 2 * (4096 // (devices // 4)) * 8192 * (16384 // 4)
    return f"{devices} True [('down', {each}), ('up', {each})]"


@pytest.mark.skipif(not is_installed("gpu:h100"), reason="xla-cost[gpu] is not installed")
@pytest.mark.parametrize("target", ["gpu:h100", "gpu:b200"])
def test_the_gpu_compiler(target):
    first, kinds, head = compiled(target, 64)
    assert first == expected(64)
    assert kinds == "['all-reduce']"
    assert head == "HloModule jit_fn False"


@pytest.mark.skipif(not is_installed("tpu:v5e-16"), reason="xla-cost[tpu] is not installed")
def test_the_tpu_compiler():
    first, kinds, head = compiled("tpu:v5e-16", 16)
    assert first == expected(16)
    assert "all-reduce" in kinds or "reduce-scatter" in kinds
    assert head == "HloModule jit_fn False"


@pytest.mark.skipif(not is_installed("tpu:v5e-16"), reason="xla-cost[tpu] is not installed")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("tpu:v5e-8", "target tpu:v5e-8: has 8 devices and the mesh 16; must be equal"),
        ("tpu:v5e-3", "v5e-3 has no known topology; expected v5e-N or v6e-N"),
    ],
)
def test_a_tpu_slice_must_be_as_large_as_the_mesh(target, message):
    with pytest.raises(XlaCostError, match=message):
        partition(matmul, (X, W), mesh=mesh((4, 4), ("x", "y")), in_shardings=P("x"), target=target)
