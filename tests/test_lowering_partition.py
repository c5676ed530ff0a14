"""Partitioned HLO from every kind of JAX program, without disturbing the process around it."""

import re

import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from lowering_helpers import SPECS, ShapeDtype, W, X, collectives, dots, matmul, mesh_of

from xla_cost.errors import XlaCostError
from xla_cost.lowering import partition


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_contraction_over_a_sharded_dimension(kind):
    mesh = mesh_of(kind)

    def fn(x, w):
        # an explicit mesh wants the sharding of the result said
        if kind is AxisType.Explicit:
            return jnp.einsum("bk,kn->bn", x, w, out_sharding=P("data", None))
        return x @ w

    hlo = partition(fn, (X, W), mesh=mesh, in_shardings=SPECS, out_shardings=P("data"))
    assert hlo.devices == 4 * 2
    assert hlo.mesh == (("data", 4), ("model", 2))
    assert dots(hlo.text) == ["16,16"]  # 64 / 4 rows; contracting 32 / 2
    assert collectives(hlo.text) == ["all-reduce"]
    assert hlo.warnings == ()


def test_shardings_on_the_arguments_and_on_the_jit_say_the_same():
    mesh = mesh_of()
    named = [NamedSharding(mesh, spec) for spec in SPECS]
    x, w = (ShapeDtype(a.shape, a.dtype, sharding=s) for a, s in zip((X, W), named, strict=True))
    texts = {
        partition(matmul, (X, W), mesh=mesh, in_shardings=SPECS).text,
        partition(matmul, (x, w)).text,
        partition(jax.jit(matmul), (x, w), mesh=mesh).text,
        partition(jax.jit(matmul, in_shardings=tuple(named)), (X, W)).text,
    }
    # the frame of this very line differs from call to call: cut the tables off
    assert len({text[text.index("ENTRY") :] for text in texts}) == 1


@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.parametrize("given", ["mesh", "arguments"])
def test_specs_of_the_result_are_over_the_mesh(abstract, given):
    mesh = mesh_of()
    mesh = mesh.abstract_mesh if abstract else mesh
    args = (X, W)
    if given == "arguments":
        args = [
            ShapeDtype(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
            for a, spec in zip(args, SPECS, strict=True)
        ]
    options = {"mesh": mesh, "in_shardings": SPECS} if given == "mesh" else {}

    def fn(x, w):
        return x @ w, {"x": x, "rest": (w, w)}

    specs = P("data"), {"x": P(None, "model"), "rest": (None, P())}
    text = partition(fn, args, out_shardings=specs, **options).text
    # x @ w by rows; of the dict, in order of its keys, w as it came, w whole, x by columns
    layout = text[text.index(")->(") : text.index("\n")]
    assert re.findall(r"bf16\[([\d,]+)\]", layout) == [
        f"{64 // 4},16", f"{32 // 2},16", "32,16", f"64,{32 // 2}",
    ]  # fmt: skip


def test_the_same_program_gives_the_same_text():
    mesh = mesh_of()
    first, second = (partition(matmul, (X, W), mesh=mesh, in_shardings=SPECS) for _ in range(2))
    assert first.text == second.text
    assert first.sha256 == second.sha256
    assert dict(first.provenance)["mesh"] == "data=4,model=2"
    assert first.text.startswith("HloModule jit_matmul,")
    assert "xla_cost" not in first.text  # our own frames and names stay out


def test_an_abstract_mesh_needs_no_devices():
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    x = ShapeDtype(X.shape, X.dtype, sharding=NamedSharding(mesh, SPECS[0]))
    w = ShapeDtype(W.shape, W.dtype, sharding=NamedSharding(mesh, SPECS[1]))
    for hlo in (
        partition(matmul, (x, w)),
        partition(matmul, (X, W), mesh=mesh, in_shardings=SPECS),
    ):
        assert (hlo.devices, dots(hlo.text)) == (8, ["16,16"])


def test_one_device_gives_the_whole_program():
    hlo = partition(matmul, (X, W))
    assert (hlo.devices, hlo.mesh) == (1, ())
    assert dots(hlo.text) == ["64,16"]


def test_shard_map_on_a_mesh_of_one_device():
    mesh = mesh_of(shape=(1,), axes=("x",))

    inner = jax.shard_map(
        lambda x, w: jax.lax.psum(x @ w, "x"), mesh=mesh, in_specs=(P("x"), P()), out_specs=P()
    )

    def fn(x, w):
        return jax.lax.with_sharding_constraint(inner(x, w), P("x"))

    hlo = partition(fn, (X, W), mesh=mesh)
    assert hlo.devices == 1
    assert dots(hlo.text) == ["64,16"]
    assert "Sharding" not in hlo.text


def test_shard_map_partitions_into_the_collectives_written():
    mesh = mesh_of()

    def local(x, w):  # x: [16, 16], w: [16, 16]
        x = jax.lax.all_to_all(x, "data", 1, 0, tiled=True)
        return jax.lax.psum_scatter(x @ w[:4], "model", scatter_dimension=1, tiled=True)

    fn = jax.shard_map(local, mesh=mesh, in_specs=SPECS, out_specs=P("data", "model"))
    hlo = partition(fn, (X, W), mesh=mesh)
    assert dots(hlo.text) == ["64,16"]
    assert collectives(hlo.text) == ["all-to-all", "reduce-scatter"]


def test_a_training_step_with_remat_and_scan():
    mesh = mesh_of()
    weights = ShapeDtype((6, 32, 32), jnp.float32)

    def loss(w, x):
        def layer(h, wi):
            return jnp.tanh(h @ wi), None

        h, _ = jax.lax.scan(jax.checkpoint(layer), x, w)
        return jnp.mean(h**2)

    def step(w, x):
        value, gradient = jax.value_and_grad(loss)(w, x)
        return value, w - 0.1 * gradient

    hlo = partition(
        step, (weights, ShapeDtype((64, 32), jnp.float32)), mesh=mesh,
        in_shardings=(P(None, None, "model"), P("data")),
    )  # fmt: skip
    # forward 1, recomputed 1, and two products of the backward pass
    assert len(dots(hlo.text)) == 4
    assert hlo.text.count(" while(") == 2
    assert "all-reduce" in collectives(hlo.text)  # gradients over data


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        def kernel(*axes):
            return linen.with_logical_partitioning(linen.initializers.lecun_normal(), axes)

        x = linen.Dense(64, use_bias=False, kernel_init=kernel("embed", "mlp"))(x)
        x = linen.with_logical_constraint(linen.relu(x), ("batch", "mlp"))
        return linen.Dense(32, use_bias=False, kernel_init=kernel("mlp", "embed"))(x)


def test_flax_linen_with_logical_axes():
    mesh = mesh_of()
    rules = (("batch", "data"), ("mlp", "model"), ("embed", None))
    x = ShapeDtype((64, 32), jnp.float32)
    variables = jax.eval_shape(Linen().init, jax.random.key(0), x)
    shardings = linen.logical_to_mesh_sharding(linen.get_partition_spec(variables), mesh, rules)

    def apply(variables, x):
        with linen.logical_axis_rules(rules):
            return Linen().apply(variables, x)

    hlo = partition(apply, (variables, x), mesh=mesh, in_shardings=(shardings, P("data")))
    assert dots(hlo.text) == ["16,32", "16,32"]  # 64 / 4 rows; 64 / 2 columns, then 32 whole
    assert collectives(hlo.text) == ["all-reduce"]


class Nnx(nnx.Module):
    def __init__(self, rngs):
        def linear(n_in, n_out, spec):
            init = nnx.with_partitioning(nnx.initializers.lecun_normal(), spec)
            return nnx.Linear(n_in, n_out, use_bias=False, rngs=rngs, kernel_init=init)

        self.up = linear(32, 64, (None, "model"))
        self.down = linear(64, 32, ("model", None))

    def __call__(self, x):
        return self.down(jax.nn.relu(self.up(x)))


def abstract_nnx(mesh):
    with jax.set_mesh(mesh):
        return nnx.eval_shape(lambda: Nnx(nnx.Rngs(0)))


def nnx_forward(model, x):
    return model(x)


@pytest.mark.parametrize("way", ["nnx.jit", "module argument", "module", "split"])
def test_flax_nnx(way):
    mesh = mesh_of()
    model = abstract_nnx(mesh)
    x = ShapeDtype((64, 32), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    graph, state = nnx.split(model)
    if way == "nnx.jit":
        hlo = partition(nnx.jit(nnx_forward), (model, x), mesh=mesh)
    elif way == "module argument":
        hlo = partition(nnx_forward, (model, x), mesh=mesh)
    elif way == "module":
        hlo = partition(model, (x,), mesh=mesh)
    else:
        hlo = partition(lambda state, x: nnx.merge(graph, state)(x), (state, x), mesh=mesh)
    assert hlo.devices == 8
    assert dots(hlo.text) == ["16,32", "16,32"]
    assert collectives(hlo.text) == ["all-reduce"]


def test_fp4_partitions_though_the_cpu_cannot_run_it():
    mesh = mesh_of()

    def fp4(x, w):
        four = jnp.float4_e2m1fn
        return jnp.dot(x.astype(four), w.astype(four), preferred_element_type=jnp.bfloat16)

    hlo = partition(fp4, (X, W), mesh=mesh, in_shardings=(P("data"), P()))
    assert dots(hlo.text) == ["16,16"]
    assert "f4e2m1fn[16,32]" in hlo.text


def test_static_arguments_donation_and_keywords():
    def fn(x, power, *, scale):
        return x**power * scale

    hlo = partition(fn, (X, 3), kwargs={"scale": W.update(shape=())}, static_argnums=1)
    assert "bf16[64,32]" in hlo.text
    with pytest.raises(XlaCostError, match=r"is jitted already, so donate_argnums must be given"):
        partition(jax.jit(matmul), (X, W), donate_argnums=0)


def broken(x):
    raise RuntimeError("no such layer\n\nlong story")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition(broken, (X,)), r"^tracing broken: RuntimeError: no such layer$"),
        (lambda: partition(matmul, (X, X)), r"^tracing matmul: TypeError: dot_general requires"),
        (lambda: partition(3, (X,)), r"^fn: found a int; expected a function$"),
        (lambda: partition(matmul, X), r"^args: found a ShapeDtypeStruct; expected a tuple"),
        (lambda: partition(matmul, (X, W), kwargs=[1]), r"^kwargs: found a list; expected a dict"),
        (lambda: partition(matmul, (X, W), mesh=8), r"^mesh: found a int; expected a jax.sharding"),
        (
            lambda: partition(matmul, (X, W), in_shardings=SPECS),
            r"^in_shardings: P\('data', 'model'\) names mesh axes; give mesh= as well$",
        ),
        (
            lambda: partition(matmul, (X, W), mesh=mesh_of(), in_shardings=P("dat")),
            r"^in_shardings: P\('dat',\): ValueError: Resource axis: dat",
        ),
        (
            lambda: partition(matmul, (X, W), mesh=mesh_of(), in_shardings=(P(),)),
            r"^in_shardings: not a prefix of the arguments",
        ),
        (
            lambda: partition(matmul, (X, W), mesh=mesh_of(), in_shardings="data"),
            r"^in_shardings: found a str; expected a PartitionSpec, a Sharding or None$",
        ),
        (
            lambda: partition(matmul, (X, W), mesh=mesh_of(), out_shardings=("data", None)),
            r"^out_shardings: found a str; expected a PartitionSpec, a Sharding or None$",
        ),
        (
            lambda: partition(matmul, (X, W), out_shardings=P("data")),
            r"^out_shardings: P\('data',\) names mesh axes; give mesh= as well$",
        ),
        (
            lambda: partition(matmul, (X, W), mesh=mesh_of(), out_shardings=P("rows")),
            r"^out_shardings: P\('rows',\): ValueError: Resource axis: rows of .* is not found",
        ),
        (
            lambda: partition(
                matmul, (ShapeDtype((63, 32), X.dtype), W), mesh=mesh_of(), in_shardings=P("data")
            ),
            r"^tracing matmul: IndivisibleError: Sharding .* axis 0 is partitioned 4 times",
        ),
        (lambda: partition(matmul, (X, W), target="abacus"), r"^target: found 'abacus'; expected"),
    ],
)
def test_mistakes_get_one_sentence(call, message):
    with pytest.raises(XlaCostError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_original_error_is_the_cause():
    with pytest.raises(XlaCostError) as caught:
        partition(broken, (X,))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "long story" in str(caught.value.__cause__)
