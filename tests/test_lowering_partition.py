"""Partitioned HLO from every kind of JAX program, without disturbing the process around it."""

import glob
import os
import re
import subprocess
import sys
import tempfile
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from xla_cost.errors import XlaCostError
from xla_cost.lowering import ensure_devices, partition, stop

ShapeDtype = jax.ShapeDtypeStruct


def mesh_of(kind=AxisType.Auto, shape=(4, 2), axes=("data", "model")):
    count = int(np.prod(shape))
    return jax.make_mesh(
        shape, axes, axis_types=(kind,) * len(shape), devices=ensure_devices(count)[:count]
    )


def dots(text):
    """(result shape, ..) of every dot, as text."""
    return sorted(re.findall(r"= \w+\[([\d,]*)\]\S* dot\(", text))


def collectives(text):
    kinds = r"all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
    return sorted(re.findall(rf" ({kinds})\(", text))


def matmul(x, w):
    return x @ w


X, W = ShapeDtype((64, 32), jnp.bfloat16), ShapeDtype((32, 16), jnp.bfloat16)
SPECS = (P("data", "model"), P("model", None))


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


def test_normal_compiles_work_before_between_and_after():
    x = jnp.arange(6.0).reshape(2, 3)
    assert float(jax.jit(lambda a: a.sum() * 2)(x)) == 2 * 15
    partition(matmul, (X, W))
    jitted = jax.jit(lambda a: a.sum() * 3)
    hlo = partition(jitted, (x,))  # the very function the user compiles next
    assert "HloModule jit__lambda" in hlo.text
    assert float(jitted(x)) == 3 * 15
    assert "xla_cost" not in jitted.lower(x).as_text()


def test_other_threads_compile_and_run_undisturbed():
    failures, stopped, results = [], threading.Event(), []

    def user():
        try:
            while not stopped.is_set():
                number = len(results)
                results.append(float(jax.jit(lambda a, n=number: a.sum() + n)(jnp.ones(7))))
        except Exception as error:
            failures.append(error)

    def model(index):
        try:
            for size in (8, 16, 24):
                hlo = partition(lambda a: a @ a, (ShapeDtype((size, size + 0), jnp.float32),))
                assert dots(hlo.text) == [f"{size},{size}"]
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=user)]
    threads += [threading.Thread(target=model, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    stopped.set()
    threads[0].join()
    assert failures == []
    assert results == [7.0 + number for number in range(len(results))]


def test_helpers_compiled_while_tracing_run_normally():
    seen = []

    def fn(x):
        with jax.ensure_compile_time_eval():
            seen.append(float(jnp.arange(5).sum()))  # compiled and run while tracing
        return x * seen[0]

    partition(fn, (X,))
    assert seen == [10.0]


def test_skipped_passes_do_not_change_the_text(monkeypatch):
    mesh = mesh_of()

    def fn(x, w):
        def layer(h, _):
            h = jax.lax.with_sharding_constraint(jnp.tanh(h @ w @ w.T), P("model", None))
            return h.at[0].add(jnp.arange(32.0).astype(h.dtype)), jnp.sort(h[:, 0])

        return jax.lax.scan(layer, x, None, length=5)

    def text():
        return partition(fn, (X, W), mesh=mesh, in_shardings=SPECS).text

    skipping = text()
    monkeypatch.setattr(stop, "SKIPPED_PASSES", ("all_to_all_decomposer",))
    assert text() == skipping


def test_storage_that_is_full_or_missing_falls_back(monkeypatch, tmp_path):
    expected = partition(matmul, (X, W)).text
    monkeypatch.setattr(stop, "MEMORY_BACKED", str(tmp_path / "none"))
    assert partition(matmul, (X, W)).text == expected

    # a file that ends in the middle, as on a disk that fills up
    monkeypatch.setattr(stop, "MEMORY_BACKED", str(tmp_path))
    monkeypatch.setattr(stop, "_NEEDED_BYTES", 0)
    read, tries = stop._read_dump, []

    def cut_short(folder):
        tries.append(folder)
        if folder.parent == tmp_path:
            for path in folder.glob("*.txt"):
                path.write_text(path.read_text()[:200])
        return read(folder)

    monkeypatch.setattr(stop, "_read_dump", cut_short)
    assert partition(matmul, (X, W)).text == expected
    assert len(tries) == 2
    assert list(tmp_path.iterdir()) == []


def leftovers() -> set[str]:
    folders = ("/dev/shm", tempfile.gettempdir())
    return {
        found for folder in folders for found in glob.glob(f"{folder}/xla_cost_{os.getpid()}_*")
    }


def test_nothing_is_left_in_temporary_storage():
    before = leftovers()
    partition(matmul, (X, W))
    with pytest.raises(XlaCostError):
        partition(lambda x: x @ x, (X,))
    after = leftovers()
    assert after - before == set()


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


def in_new_process(script):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )  # fmt: skip
    return done.stdout


def test_devices_are_made_before_jax_starts_and_counted_after():
    out = in_new_process(
        "from xla_cost.lowering import ensure_devices\n"
        "from xla_cost.errors import XlaCostError\n"
        "print(len(ensure_devices(8)), len(ensure_devices()))\n"
        "try: ensure_devices(2000)\n"
        "except XlaCostError as error: print(error)\n"
    )
    assert out.splitlines() == [
        "1152 1152",
        "devices: jax is already running with 1152 CPU devices and 2000 are needed; "
        "call xla_cost.lowering.ensure_devices(2000) before anything else uses jax",
    ]


def test_devices_asked_for_by_the_user_are_kept():
    out = in_new_process(
        "import jax\n"
        "jax.config.update('jax_num_cpu_devices', 4)\n"
        "jax.devices()\n"
        "from xla_cost.lowering import ensure_devices\n"
        "from xla_cost.errors import XlaCostError\n"
        "print(len(ensure_devices()), len(ensure_devices(3)))\n"
        "try: ensure_devices(8)\n"
        "except XlaCostError as error: print('refused')\n"
    )
    assert out.split() == ["4", "4", "refused"]


def test_untested_versions_of_jax_are_named():
    from xla_cost.lowering.devices import version_problem

    assert version_problem("jax", "0.10.2") == ""
    assert version_problem("jax", "0.10.3.dev2026") == ""
    assert version_problem("jaxlib", "0.9.1") == (
        "jaxlib 0.9.1 is installed; xla_cost needs jaxlib >= 0.10.2 and < 0.11.0"
    )
    assert version_problem("jax", "0.11.0") != ""


def test_the_tested_range_is_the_one_that_is_installed_with():
    import tomllib
    from pathlib import Path

    from xla_cost.lowering.devices import SUPPORTED_JAX

    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    low, high = (".".join(map(str, bound)) for bound in SUPPORTED_JAX)
    assert f"jax>={low},<{high.removesuffix('.0')}" in project["project"]["dependencies"]
