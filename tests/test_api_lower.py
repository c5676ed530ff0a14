"""The Python front door on every kind of JAX program: FLOPs and collectives as arithmetic."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import linen, nnx
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xla_cost
from xla_cost.errors import XlaCostError
from xla_cost.lowering import ensure_devices

ShapeDtype = jax.ShapeDtypeStruct
X, W = ShapeDtype((64, 32), jnp.bfloat16), ShapeDtype((32, 16), jnp.bfloat16)


def mesh_4x2(kind=AxisType.Auto):
    return jax.make_mesh(
        (4, 2), ("data", "model"), axis_types=(kind,) * 2, devices=ensure_devices(8)[:8]
    )


def flops(program):
    return sum(op.flops * times for op, times in program.walk())


def moved(program):
    """(kind, group size, payload bytes, executions) of every collective."""
    return sorted(
        (op.collective.kind, op.collective.groups.size, op.collective.payload_bytes, times)
        for op, times in program.walk()
        if op.collective is not None
    )


def matmul(x, w):
    with jax.named_scope("dense"):
        return x @ w


def test_a_plain_function_with_tensor_parallelism():
    lowered = xla_cost.lower(
        matmul, X, W, mesh=mesh_4x2(), in_shardings=(P("data", "model"), P("model"))
    )
    assert lowered.devices == 8
    assert flops(lowered.program) == 2 * (64 // 4) * (32 // 2) * 16
    assert moved(lowered.program) == [("all-reduce", 2, (64 // 4) * 16 * 2, 1)]
    assert lowered.needed_flops == {"dense": 2 * 64 * 32 * 16}
    assert lowered.waste()[0].factor == 1.0
    assert dict(lowered.program.provenance)["mesh"] == "data=4,model=2"
    assert lowered.warnings == ()


def test_replication_shows_as_waste():
    lowered = xla_cost.lower(matmul, X, W, mesh=mesh_4x2(), in_shardings=(P("data"), P()))
    (row,) = lowered.waste()
    # nobody splits anything over model: both of its devices do the same
    assert (row.scope, row.factor) == ("dense", 2.0)
    assert row.wasted_flops == 2 * 64 * 32 * 16


def test_an_explicit_mesh_and_a_jitted_function():
    mesh = mesh_4x2(AxisType.Explicit)

    @jax.jit
    def fn(x, w):
        return jnp.einsum("bk,kn->bn", x, w, out_sharding=P("data", None))

    lowered = xla_cost.lower(fn, X, W, mesh=mesh, in_shardings=(P("data", "model"), P("model")))
    assert flops(lowered.program) == 2 * 16 * 16 * 16
    assert moved(lowered.program) == [("all-reduce", 2, 16 * 16 * 2, 1)]


def test_shard_map_on_an_abstract_mesh():
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def local(x, w):  # [16, 16] and [16, 16]
        w = jax.lax.all_gather(w, "model", axis=0, tiled=True)
        return jax.lax.all_to_all(x @ w[:16], "data", 0, 1, tiled=True)

    fn = jax.shard_map(
        local, mesh=mesh, in_specs=(P("data", "model"), P("model")), out_specs=P("data"),
        check_vma=False,
    )  # fmt: skip
    program = xla_cost.trace(fn, X, W, mesh=mesh)
    assert flops(program) == 2 * 16 * 16 * 16
    assert moved(program) == [
        ("all-gather", 2, 16 * 16 * 2, 1),
        ("all-to-all", 4, 16 * 16 * 2, 1),
    ]


def test_a_training_step_with_remat_and_scan():
    def loss(w, x):
        def layer(h, wi):
            with jax.named_scope("layer"):
                return jnp.tanh(h @ wi), None

        h, _ = jax.lax.scan(jax.checkpoint(layer), x, w)
        return jnp.sum(h)

    lowered = xla_cost.lower(
        jax.grad(loss), ShapeDtype((6, 32, 32), jnp.float32), ShapeDtype((64, 32), jnp.float32),
        mesh=mesh_4x2(), in_shardings=(P(), P(("data", "model"))),
    )  # fmt: skip
    one = 2 * (64 // 8) * 32 * 32
    # per layer: forward, recomputed forward, gradient of the input, gradient of the weight
    assert flops(lowered.program) == 6 * 4 * one
    # gradients of the replicated weights, per layer, over all devices
    assert moved(lowered.program) == [("all-reduce", 8, 32 * 32 * 4, 6)]
    assert lowered.needed_flops == {"layer": 8 * 6 * 4 * one}


class LinenMlp(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Dense(64, use_bias=False, name="up")(x))
        return linen.Dense(32, use_bias=False, name="down")(x)


def test_flax_linen():
    x = ShapeDtype((64, 32), jnp.float32)
    variables = jax.eval_shape(LinenMlp().init, jax.random.key(0), x)
    specs = {"params": {"up": {"kernel": P(None, "model")}, "down": {"kernel": P("model")}}}
    lowered = xla_cost.lower(
        LinenMlp().apply, variables, x, mesh=mesh_4x2(), in_shardings=(specs, P("data"))
    )
    assert flops(lowered.program) == 2 * (2 * 16 * 32 * 32)
    assert moved(lowered.program) == [("all-reduce", 2, 16 * 32 * 4, 1)]


class NnxMlp(nnx.Module):
    def __init__(self, rngs):
        def linear(n_in, n_out, spec):
            init = nnx.with_partitioning(nnx.initializers.lecun_normal(), spec)
            return nnx.Linear(n_in, n_out, use_bias=False, rngs=rngs, kernel_init=init)

        self.up = linear(32, 64, (None, "model"))
        self.down = linear(64, 32, ("model", None))

    def __call__(self, x):
        return self.down(jax.nn.relu(self.up(x)))


def train_step(model, optimizer, x):
    def loss(model):
        return jnp.sum(model(x))

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


@pytest.mark.parametrize("step", [train_step, nnx.jit(train_step)], ids=["plain", "nnx.jit"])
def test_an_nnx_training_step_keeps_what_it_updates(step):
    mesh = mesh_4x2()
    with jax.set_mesh(mesh):
        model, optimizer = nnx.eval_shape(
            lambda: (m := NnxMlp(nnx.Rngs(0)), nnx.Optimizer(m, optax.sgd(0.1), wrt=nnx.Param))
        )
    x = ShapeDtype((64, 32), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    program = xla_cost.trace(step, model, optimizer, x, mesh=mesh)
    # up: forward and gradient of its weight (x is data); down: forward and both gradients
    assert flops(program) == 5 * (2 * 16 * 32 * 32)
    weight_bytes = 32 * 32 * 4  # 32 x 64 over model
    assert [row for row in moved(program) if row[1] == 4 and row[2] > 4] == [
        ("all-reduce", 4, weight_bytes, 1),
        ("all-reduce", 4, weight_bytes, 1),
    ]


def test_the_ledger_is_read_once_and_shown():
    lowered = xla_cost.lower(matmul, X, W)
    assert lowered.program is lowered.program
    text = repr(lowered)
    assert "Lowered matmul for 1 devices, target cpu" in text
    assert "collectives   none" in text
    assert f"{2 * 64 * 32 * 16:.4g} per device" in text
    assert "dot(" in lowered.hlo
    assert "stablehlo.dot_general" in lowered.stablehlo


def test_warnings_reach_the_ledger():
    def fn(x):
        x = jax.lax.with_sharding_constraint(jnp.sin(x), P(("data", "model")))
        return jax.lax.with_sharding_constraint(jnp.cos(x), P(None, "model", None, "data"))

    lowered = xla_cost.lower(fn, ShapeDtype((8, 16, 16, 32), jnp.bfloat16), mesh=mesh_4x2())
    (warning,) = lowered.warnings
    assert warning.kind == "involuntary-full-rematerialization"
    assert warning.bytes == 8 * 16 * 16 * 32 * 2
    assert str(warning) in lowered.program.warnings
    assert str(warning) in xla_cost.estimate(lowered, "h100").warnings
    assert "warning       involuntary-full-rematerialization" in repr(lowered)


def test_mistakes_are_ours_to_tell():
    with pytest.raises(XlaCostError, match="tracing matmul: TypeError: dot_general requires"):
        xla_cost.lower(matmul, X, X)


def test_importing_the_package_imports_nothing_heavy():
    script = (
        "import sys, xla_cost\n"
        "heavy = {'jax', 'numpy', 'flax', 'pandas', 'plotly', 'simpy'} & set(sys.modules)\n"
        "print(sorted(heavy), 'lower' in dir(xla_cost), callable(xla_cost.estimate))\n"
        "print('jax' in sys.modules)\n"
        "try: xla_cost.nothing\n"
        "except AttributeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "[] True True",
        "False",
        "module 'xla_cost' has no attribute 'nothing'",
    ], done.stderr
