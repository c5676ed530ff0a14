"""Which element-wise ops run as one kernel, and the bytes that are left."""

from __future__ import annotations

import pytest
from price_programs import dot, free, machine, program, vector

from xla_cost.policy import policy
from xla_cost.price import price
from xla_cost.price.fusion import Kernel, fuse

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
    assert kernels == [Kernel((1, 2, 3), 100, 50)]
    assert where == {1: 0, 2: 0, 3: 0}


def test_value_read_by_two_kernels_is_written():
    """b and c are results of the body: two kernels, so a's value is written and read twice."""
    nodes = [
        free("parameter"),
        vector("a", "add", (0,), 100, 100),
        vector("b", "exponential", (1,), 100, 100),
        vector("c", "tanh", (1,), 100, 100),
        free("tuple", (2, 3)),
    ]
    kernels, _ = fuse(nodes, {1, 2, 3})
    assert kernels == [Kernel((1,), 100, 100), Kernel((2,), 100, 100), Kernel((3,), 100, 100)]


def test_diamond_joins_and_reads_the_outside_once():
    """silu: x * logistic(x) reads x once."""
    nodes = [
        free("parameter"),
        vector("s", "logistic", (0,), 100, 100),
        vector("m", "multiply", (0, 1), 200, 100),
        free("tuple", (2,)),
    ]
    kernels, _ = fuse(nodes, {1, 2})
    assert kernels == [Kernel((1, 2), 100, 100)]


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
    assert kernels == [Kernel((1, 2), 100, 4), Kernel((3, 4, 5), 4 + 100, 100)]


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
    assert kernels == [Kernel((1, 2), 50, 4), Kernel((1, 3), 50 + 4, 100)]
    assert 1 not in where


def test_value_that_a_dot_reads_is_written():
    nodes = [
        free("parameter"),
        vector("a", "add", (0,), 100, 100),
        vector("q", "convert", (1,), 100, 50),
        dot("d", (2,), 1.0),
    ]
    kernels, _ = fuse(nodes, {1, 2})
    assert kernels == [Kernel((1, 2), 100, 50)]


def test_gather_stands_alone():
    nodes = [
        free("parameter"),
        vector("g", "gather", (0,), 100, 100, kind="move"),
        vector("a", "add", (1,), 100, 100),
        free("tuple", (2,)),
    ]
    kernels, _ = fuse(nodes, {1, 2})
    assert kernels == [Kernel((1,), 100, 100), Kernel((2,), 100, 100)]


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
