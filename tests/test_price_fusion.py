"""Which element-wise ops run as one kernel, and the bytes that are left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from price_programs import dot, free, machine, program, vector

from xla_cost.groups import DeviceGroups
from xla_cost.policy import policy
from xla_cost.price import price
from xla_cost.price.fusion import Kernel, fuse
from xla_cost.price.join import ROW_BYTES, join
from xla_cost.program import Collective, Matmul, Op

FUSED = policy("study", priced_kinds=frozenset({"matmul", "vector", "move"}), fuse_elementwise=True)


def test_chain_is_one_kernel_that_reads_its_input_and_writes_its_output():
    nodes = [
        free("parameter"),
        vector("a", "add", (0,), 100, 100),
        vector("b", "exponential", (1,), 100, 100),
        vector("c", "convert", (2,), 100, 50),
        free("tuple", (3,)),
    ]
    kernels, where = fuse(nodes, {1, 2, 3})
    assert kernels == [Kernel((1, 2, 3), 100, 50, 3)]
    assert where == {1: 0, 2: 0, 3: 0}


def test_value_read_by_two_kernels_is_written():
    """b and c are results of the body: three chains, so a's value is written and read twice."""
    nodes = [
        free("parameter"),
        vector("a", "add", (0,), 100, 100),
        vector("b", "exponential", (1,), 100, 100),
        vector("c", "tanh", (1,), 100, 100),
        free("tuple", (2, 3)),
    ]
    kernels, _ = fuse(nodes, {1, 2, 3})
    assert kernels == [
        Kernel((1,), 100, 100, 1),
        Kernel((2,), 100, 100, 2),
        Kernel((3,), 100, 100, 3),
    ]


def test_diamond_joins_and_reads_the_outside_once():
    """silu: x * logistic(x) reads x once."""
    nodes = [
        free("parameter"),
        vector("s", "logistic", (0,), 100, 100),
        vector("m", "multiply", (0, 1), 200, 100),
        free("tuple", (2,)),
    ]
    kernels, _ = fuse(nodes, {1, 2})
    assert kernels == [Kernel((1, 2), 100, 100, 2)]


def test_reduce_ends_a_kernel():
    """Norm: square and reduce in one pass, scale in a second that reads x and the sum again."""
    nodes = [
        free("parameter"),
        vector("sq", "multiply", (0,), 100, 100),
        vector("sum", "reduce", (1,), 100, 4),
        vector("r", "rsqrt", (2,), 4, 4),
        vector("bc", "broadcast", (3,), 4, 100),
        vector("y", "multiply", (0, 4), 200, 100),
        free("tuple", (5,)),
    ]
    kernels, _ = fuse(nodes, {1, 2, 3, 4, 5})
    assert kernels == [Kernel((1, 2), 100, 4, 2), Kernel((3, 4, 5), 4 + 100, 100, 5)]


def test_cheap_op_is_repeated_in_every_kernel_that_reads_it():
    """The fp32 copy of a bf16 value is never written: both kernels read the 50 bytes."""
    nodes = [
        free("parameter"),
        vector("wide", "convert", (0,), 50, 100),
        vector("sum", "reduce", (1,), 100, 4),
        vector("y", "multiply", (1, 2), 104, 100),
        free("tuple", (3,)),
    ]
    kernels, where = fuse(nodes, {1, 2, 3})
    assert kernels == [Kernel((1, 2), 50, 4, 2), Kernel((1, 3), 50 + 4, 100, 3)]
    assert 1 not in where


def test_value_that_a_dot_reads_is_written():
    nodes = [
        free("parameter"),
        vector("a", "add", (0,), 100, 100),
        vector("q", "convert", (1,), 100, 50),
        dot("d", (2,), 1.0),
    ]
    kernels, _ = fuse(nodes, {1, 2})
    assert kernels == [Kernel((1, 2), 100, 50, 2)]


def test_gather_stands_alone():
    nodes = [
        free("parameter"),
        vector("g", "gather", (0,), 100, 100, kind="move"),
        vector("a", "add", (1,), 100, 100),
        free("tuple", (2,)),
    ]
    kernels, _ = fuse(nodes, {1, 2})
    assert kernels == [Kernel((1,), 100, 100, 1), Kernel((2,), 100, 100, 2)]


def test_bitcast_between_members_does_not_part_them():
    nodes = [
        free("parameter"),
        vector("a", "add", (0,), 100, 100),
        free("bitcast", (1,)),
        vector("b", "negate", (2,), 100, 100),
        free("tuple", (3,)),
    ]
    kernels, _ = fuse(nodes, {1, 3})
    assert [kernel.members for kernel in kernels] == [(1, 3)]


def test_equal_ops_on_equal_operands_are_one():
    """Two dots quantise the same value: it is read and written once, (100 + 50) / 10 + 1 + 1."""
    nodes = (
        free("parameter"),
        vector("q1", "convert", (0,), 100, 50),
        dot("d1", (1,), 1.0),
        vector("q2", "convert", (0,), 100, 50),
        dot("d2", (3,), 1.0),
    )
    assert price(program(*nodes), machine(), FUSED).latency_s == pytest.approx(15.0 + 2.0)


def test_priced_chain_takes_the_time_of_its_borders():
    """(100 + 50) bytes at 10 B/s; unfused it would be (200 + 200 + 150) / 10."""
    nodes = (
        free("parameter"),
        vector("a", "add", (0,), 100, 100),
        vector("b", "exponential", (1,), 100, 100),
        vector("c", "convert", (2,), 100, 50),
    )
    assert price(program(*nodes), machine(), FUSED).latency_s == pytest.approx(15.0)
    unfused = policy(FUSED, fuse_elementwise=False)
    assert price(program(*nodes), machine(), unfused).latency_s == pytest.approx(55.0)


def test_slice_of_an_argument_is_an_address():
    nodes = (
        free("parameter"),
        vector("w", "dynamic-slice", (0,), 100, 100, kind="move"),
        dot("d", (1,), 2.0),
        vector("y", "slice", (2,), 70, 70, kind="move"),
    )
    # the slice of the dot's result is a copy of 140 bytes at 10 B/s
    assert price(program(*nodes), machine(), FUSED).latency_s == pytest.approx(2.0 + 14.0)


def joined(nodes, candidates, other_timed=()):
    """Members, bytes read and written, and root of each joined kernel."""
    kernels, where = fuse(nodes, candidates)
    head = {index: kernels[at].root for index, at in where.items()}
    sources = []
    for index, node in enumerate(nodes):
        inherited = frozenset().union(*(sources[dep] for dep in node.deps))
        own = head.get(index, index if index in other_timed else None)
        sources.append(inherited if own is None else frozenset((own,)))
    found, at = join(nodes, kernels, where, sources)
    assert all(index in found[place].members for index, place in at.items())
    return [(kernel.members, kernel.bytes_read, kernel.bytes_written, kernel.root)
            for kernel in found]  # fmt: skip


def row_sum(deps, read, written, row_bytes):
    """A reduce of rows of `row_bytes`, 0: across rows."""
    return replace(vector("sum", "reduce", deps, read, written), row_bytes=row_bytes)


def norm_after_add(row_bytes):
    """h + out goes on as it is, and normed and quantised into a dot."""
    return [
        free("parameter"),
        free("parameter"),
        vector("h", "add", (0, 1), 200, 100),
        vector("sq", "multiply", (2,), 100, 100),
        row_sum((3,), 100, 4, row_bytes),
        vector("r", "rsqrt", (4,), 4, 4),
        vector("bc", "broadcast", (5,), 4, 100),
        vector("y", "multiply", (2, 6), 200, 100),
        vector("q", "convert", (7,), 100, 50),
        dot("d", (8,), 1.0),
        free("tuple", (2, 9)),
    ]


def test_add_norm_quantise_is_one_kernel_that_writes_what_others_read():
    """Reads both addends; writes the sum, which is a result, and the 50 bytes of the dot."""
    members = (2, 3, 4, 5, 6, 7, 8)
    nodes = norm_after_add(row_bytes=ROW_BYTES)
    assert joined(nodes, set(members), {9}) == [(members, 200, 100 + 50, 2)]


@pytest.mark.parametrize("row_bytes", [0, ROW_BYTES + 1])
def test_a_reduce_across_rows_or_of_too_long_ones_still_ends_a_kernel(row_bytes):
    """It is itself no local op, so it stays apart from the add as well."""
    found = joined(norm_after_add(row_bytes), {2, 3, 4, 5, 6, 7, 8}, {9})
    assert [members for members, *_ in found] == [(2,), (3, 4), (5, 6, 7, 8)]


def test_a_kernel_that_waits_for_more_stays_apart():
    """c reads a and the dot between: joined to a it would make the dot wait for itself."""
    nodes = [
        free("parameter"),
        vector("a", "add", (0,), 100, 100),
        dot("d", (1,), 1.0),
        vector("c", "multiply", (1, 2), 200, 100),
        free("tuple", (3,)),
    ]
    assert [members for members, *_ in joined(nodes, {1, 3}, {2})] == [(1,), (3,)]


def test_a_dot_between_does_not_part_kernels_that_do_not_need_it():
    """b joins a and stands where a stood, before the dot that reads a."""
    nodes = [
        free("parameter"),
        vector("a", "add", (0,), 100, 100),
        dot("d", (1,), 1.0),
        vector("b", "negate", (1,), 100, 100),
        free("tuple", (2, 3)),
    ]
    assert joined(nodes, {1, 3}, {2}) == [((1, 3), 100, 100 + 100, 1)]


def test_an_update_in_place_joins_and_ends_the_kernel():
    """The new cache entry is written once, into the buffer; what reads the buffer is apart."""
    nodes = [
        free("parameter"),
        free("parameter"),
        vector("new", "convert", (0,), 100, 50),
        vector("put", "dynamic-update-slice", (1, 2), 50, 50, kind="move"),
        vector("all", "negate", (3,), 900, 900),
        free("tuple", (4,)),
    ]
    assert joined(nodes, {2, 3, 4}) == [((2, 3), 100, 50, 2), ((4,), 900, 900, 4)]


def test_what_a_marked_region_reads_of_constants_is_made_inside():
    """The broadcast of a constant is no kernel, though region and add read it; the copy is."""
    region = Op("k", "kernel", "kernel", (1,), region="router")
    nodes = [
        free("constant"),
        vector("ones", "broadcast", (0,), 4, 100),
        region,
        free("parameter"),
        vector("a", "add", (1, 3), 200, 100),
        free("tuple", (2, 4)),
    ]
    kernels, where = fuse(nodes, {1, 4})
    assert kernels == [Kernel((1, 4), 4 + 100, 100, 4)]
    assert where == {4: 0}


def added_up(devices):
    """A dot, an all-reduce over the first `devices`, the residual add and its twin after."""
    groups = DeviceGroups.everyone(devices)
    summed = Collective("all-reduce", groups, 100, 100, "bf16")
    return (
        free("parameter"),
        dot("d", (0,), 1.0),
        Op("all", "all-reduce", "collective", (1,), collective=summed, result_bytes=100),
        vector("add", "add", (0, 2), 200, 100),
        dot("next", (3,), 1.0),
        vector("late", "multiply", (2, 4), 200, 100),
    )


@pytest.mark.parametrize(("devices", "launches"), [(4, 0), (8, 1)])
def test_what_ends_an_all_reduce_inside_a_pod_pays_no_launch(devices, launches):
    """300 bytes at 10 B/s; two pods of four run NCCL, which has no such kernel."""
    rules = policy("calibrated", kernel_rates="peak", network_rates="peak")
    found = price(program(*added_up(devices), devices=devices), machine(), rules)
    seconds = {
        task.name: time.seconds for task, time in zip(found.graph.tasks, found.times, strict=True)
    }
    launch_s = machine().kernel_times.launch_us * 1e-6
    assert seconds["add"] == pytest.approx(300 / 10 + launches * launch_s, abs=1e-9)
    assert seconds["late"] == pytest.approx(300 / 10 + launch_s, abs=1e-9)  # waits for more


PRODUCTS = policy("study", priced_kinds=frozenset({"matmul", "vector"}), merge_products=True)


def product(name, deps, m, n, scope):
    """[m, 10] by [10, n] in fp8."""
    read, written = 10 * m + 10 * n, 2 * m * n
    return Op(
        name, "dot", "matmul", deps, scope=scope, matmuls=(Matmul(1, m, n, 10, "fp8"),),
        bytes_read=read, source_bytes_read=read, bytes_written=written, result_bytes=written,
    )  # fmt: skip


def test_products_of_one_value_with_two_weights_are_one():
    """[4, 10] by [10, 6] and [10, 2]: one of [10, 8] that reads the 40 bytes once."""
    nodes = (
        free("parameter"),
        free("parameter"),
        vector("x", "negate", (0,), 40, 40),
        product("up", (2, 1), 4, 6, "layer/ffn/up"),
        vector("w", "dynamic-slice", (1,), 20, 20, kind="move"),
        product("gate", (2, 4), 4, 2, "layer/ffn/gate"),
        vector("y", "add", (3, 5), 64, 48),
    )
    found = price(program(*nodes), machine(), PRODUCTS)
    (joint,) = [task for task in found.graph.tasks if task.matmuls]
    assert joint.matmuls == (Matmul(1, 4, 6 + 2, 10, "fp8"),)
    assert (joint.op.name, joint.op.scope) == ("up+gate", "layer/ffn")
    assert (joint.bytes_read, joint.bytes_written) == (40 + 60 + 20, 2 * 4 * (6 + 2))
    # bytes at 10 B/s: x, the product, the sum
    assert found.latency_s == pytest.approx((80 + 120 + 64 + 64 + 48) / 10)


@pytest.mark.parametrize(
    "weight", [vector("w", "negate", (1,), 400, 400), vector("w", "add", (2,), 400, 400)]
)
def test_products_with_a_weight_that_is_made_here_stay_apart(weight):
    nodes = (
        free("parameter"),
        free("parameter"),
        vector("x", "negate", (0,), 40, 40),
        product("a", (2, 1), 4, 6, "a"),
        weight,
        product("b", (2, 4), 4, 2, "b"),
    )
    found = price(program(*nodes), machine(), PRODUCTS)
    assert [task.name for task in found.graph.tasks if task.matmuls] == ["a", "b"]


def test_products_of_other_sizes_stay_apart():
    """[4, 10] by [10, 6] and, of the same bytes, [2, 20] by [20, 2]."""
    deep = replace(product("b", (2, 1), 4, 2, "b"), matmuls=(Matmul(1, 2, 2, 20, "fp8"),))
    nodes = (
        free("parameter"),
        free("parameter"),
        vector("x", "negate", (0,), 40, 40),
        product("a", (2, 1), 4, 6, "a"),
        deep,
    )
    found = price(program(*nodes), machine(), PRODUCTS)
    assert [task.name for task in found.graph.tasks if task.matmuls] == ["a", "b"]
