"""FLOPs of the program before partitioning, by scope, and what partitioning wastes of them."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from xla_cost.errors import XlaCostError
from xla_cost.groups import DeviceGroups
from xla_cost.lowering import ensure_devices, partition
from xla_cost.lowering.global_view import global_flops, global_view
from xla_cost.program import Body, Collective, Loop, Matmul, Op, Program
from xla_cost.waste import ScopeWaste, total_waste, waste_by_scope


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def view(fn, *args, **options):
    return global_view(partition(fn, args, **options))


def mesh_4x2():
    return jax.make_mesh(
        (4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=ensure_devices(8)[:8]
    )


def test_scopes_loops_and_inner_functions():
    def model(x, w):
        def layer(h, wi):
            with jax.named_scope("attention"):
                h = h @ wi
            with jax.named_scope("ffn"):
                h = jax.jit(lambda a: a @ wi)(h)
            return h, None

        h, _ = jax.lax.scan(layer, x, w)
        with jax.named_scope("head"):
            return jnp.einsum("bd,vd->bv", h, w[0])

    assert global_flops(partition(model, (f32(4, 8), f32(5, 8, 8)))) == {
        "attention": 5 * 2 * 4 * 8 * 8,
        "ffn": 5 * 2 * 4 * 8 * 8,
        "head": 2 * 4 * 8 * 8,
    }


def test_a_training_step_counts_forward_and_backward():
    def loss(w, x):
        with jax.named_scope("dense"):
            return (x @ w).sum()

    # backward: one product for the gradient of w (x is not asked for)
    found = view(jax.value_and_grad(loss), f32(8, 16), f32(4, 8))
    assert found.flops == 2 * (2 * 4 * 8 * 16)
    assert set(found.flops_by_scope) == {"dense"}


@pytest.mark.parametrize(
    ("bounds", "trips"), [((0, 7), 7), ((3, 10), 7), ((5, 5), 0), ((-2, 1), 3)]
)
def test_counted_loops(bounds, trips):
    found = view(lambda x: jax.lax.fori_loop(*bounds, lambda i, a: a @ a, x), f32(8, 8))
    assert found.flops == trips * 2 * 8**3
    assert found.unknown_loops == ()


def test_loops_that_count_down_or_in_steps():
    def down(x):
        return jax.lax.while_loop(
            lambda s: s[0] > 1, lambda s: (s[0] - 3, s[1] @ s[1]), (jnp.int32(12), x)
        )[1]

    def until(x):
        return jax.lax.while_loop(
            lambda s: s[0] != 9, lambda s: (3 + s[0], s[1] @ s[1]), (jnp.int32(0), x)
        )[1]

    assert view(down, f32(8, 8)).flops == 4 * 2 * 8**3  # 12, 9, 6, 3
    assert view(until, f32(8, 8)).flops == 3 * 2 * 8**3  # 0, 3, 6


def test_a_loop_that_depends_on_data_is_counted_once_and_listed():
    def fn(x):
        with jax.named_scope("solve"):
            return jax.lax.while_loop(lambda a: a[0, 0] > 0, lambda a: a @ a, x)

    found = view(fn, f32(8, 8))
    assert found.flops == 2 * 8**3
    assert found.unknown_loops == ("solve",)


def test_the_dearest_branch_counts():
    def fn(x):
        return jax.lax.cond(x[0, 0] > 0, lambda a: a @ a @ a, lambda a: a @ a, x)

    assert view(fn, f32(8, 8)).flops == 2 * (2 * 8**3)


def test_convolutions_count_taps_inside_the_input():
    def fn(x, k):
        return jax.lax.conv_general_dilated(x, k, (2, 1), "SAME", feature_group_count=2)

    # rows: 8 outputs of 3 taps, the last one on the padding; columns: 16 x 3 less both ends
    taps = (8 * 3 - 1) * (16 * 3 - 2)
    # batch 2, 6 output features, 4 / 2 input features each
    assert view(fn, f32(2, 4, 16, 16), f32(6, 2, 3, 3)).flops == 2 * 2 * 6 * 2 * taps


def test_complex_and_batched_products():
    found = view(lambda a, b: jnp.einsum("bij,bjk->bik", a, b), f32(3, 4, 5), f32(3, 5, 6))
    assert found.flops == 2 * 3 * 4 * 5 * 6
    c64 = jax.ShapeDtypeStruct((4, 4), jnp.complex64)
    assert view(lambda a: a @ a, c64).flops == 4 * 2 * 4**3


def test_manual_sections_count_on_every_device_of_their_axes():
    mesh = mesh_4x2()

    def local(x, w):
        with jax.named_scope("expert"):
            return x @ w  # [4, 8] by [8, 16] on each of 8 devices

    fn = jax.shard_map(local, mesh=mesh, in_specs=(P("x"), P(None, "y")), out_specs=P("x", "y"))
    assert view(fn, f32(16, 8), f32(8, 32), mesh=mesh).flops_by_scope == {
        "expert": 8 * (2 * 4 * 8 * 16)  # = 2 * 16 * 8 * 32: nothing is done twice
    }


def test_a_section_manual_over_one_axis_counts_on_that_axis_only():
    mesh = mesh_4x2()
    fn = jax.shard_map(
        lambda x, w: x @ w,
        mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"), axis_names={"x"},
    )  # fmt: skip
    # 16 / 4 rows inside, the columns are still whole: y is automatic
    found = view(fn, f32(16, 8), f32(8, 32), mesh=mesh)
    assert found.flops == 4 * (2 * 4 * 8 * 32)


def test_replication_by_hand_counts_as_often_as_it_is_done():
    mesh = mesh_4x2()
    fn = jax.shard_map(lambda x, w: x @ w, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    # nothing is split over y, so both of its devices do the same product
    assert view(fn, f32(16, 8), f32(8, 32), mesh=mesh).flops == 2 * (2 * 16 * 8 * 32)


def test_custom_calls_without_a_rule_are_listed():
    found = view(lambda x: jnp.linalg.cholesky(x @ x), f32(8, 8))
    assert found.flops == 2 * 8**3
    assert any("potrf" in target for target in found.unpriced)


def test_a_program_from_elsewhere_has_no_global_view():
    hlo = partition(lambda x: x @ x, (f32(8, 8),))
    without = type(hlo)(
        **{**{n: getattr(hlo, n) for n in hlo.__dataclass_fields__}, "lowered": None}
    )
    assert without.stablehlo is None
    with pytest.raises(XlaCostError, match="was not kept"):
        global_view(without)


def test_stablehlo_text_has_the_scopes():
    hlo = partition(jax.named_scope("alpha")(lambda x: x @ x), (f32(8, 8),))
    assert "stablehlo.dot_general" in hlo.stablehlo
    assert "alpha/dot_general" in hlo.stablehlo


def program(devices, *ops):
    loop = Loop("layers", 3, Body(ops), ())
    return Program("p", devices, Body((loop,)), 0, 0)


def op(scope, m, n, k):
    return Op(scope, "dot", "matmul", (), scope, matmuls=(Matmul(1, m, n, k, "bf16"),))


def test_waste_compares_all_devices_with_the_need():
    # 10 heads over 4 devices: 3 each, 12 done; the router is done by all four
    partitioned = program(4, op("layer/attention/q", 3, 8, 8), op("layer/router", 1, 8, 8))
    needed = {"layer/attention/q": 3 * 2 * 10 * 8 * 8, "layer/router": 3 * 2 * 1 * 8 * 8}
    rows = waste_by_scope(partitioned, needed)
    assert rows == (
        ScopeWaste("layer/router", 4 * 3 * 2 * 1 * 8 * 8, 3 * 2 * 1 * 8 * 8),
        ScopeWaste("layer/attention/q", 4 * 3 * 2 * 3 * 8 * 8, 3 * 2 * 10 * 8 * 8),
    )
    assert [row.factor for row in rows] == [4.0, 12 / 10]
    assert total_waste(rows).factor == (4 + 12) / (1 + 10)
    assert waste_by_scope(partitioned, needed, depth=1) == (
        ScopeWaste("layer", 3 * 2 * 16 * 8 * 8, 3 * 2 * 11 * 8 * 8),
    )


def test_waste_of_work_that_was_not_asked_for_is_infinite():
    gather = Collective("all-gather", DeviceGroups.everyone(2), 8, 16, "bf16")
    silent = Op("g", "all-gather", "collective", (), "comm", collective=gather)
    (row,) = waste_by_scope(program(2, op("extra", 1, 1, 1), silent), {})
    assert (row.scope, row.factor) == ("extra", float("inf"))
    assert ScopeWaste("none", 0, 0).factor == 1.0
