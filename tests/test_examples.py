"""The examples people start from: they run as scripts, and as targets of the command line."""

import contextlib
import functools
import io
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import xla_cost
from xla_cost.api import lower_target
from xla_cost.target import load_target

EXAMPLES = Path(__file__).parent.parent / "examples"


@functools.cache
def run(name):
    """Run an example as a script; what it printed, and what it left behind."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        left = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return printed.getvalue(), left


def flops_by_scope(program, depth):
    found = {}
    for op, times in program.walk():
        if op.flops:
            scope = "/".join(op.scope.split("/")[:depth])
            found[scope] = found.get(scope, 0) + op.flops * times
    return found


def test_every_example_is_run_here():
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == [
        "linen_encoder",
        "nnx_fsdp_tp",
        "shard_map_pipeline",
    ]


@pytest.mark.parametrize("name", ["linen_encoder", "nnx_fsdp_tp", "shard_map_pipeline"])
def test_it_prints_an_estimate(name):
    printed, _ = run(name)
    assert "Lowered " in printed
    assert "Estimate of " in printed
    assert "latency" in printed


def test_it_runs_in_a_process_of_its_own_without_a_word_on_standard_error():
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "shard_map_pipeline.py")],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run("shard_map_pipeline")[0]


def test_the_nnx_transformer_does_what_its_size_says():
    result = run("nnx_fsdp_tp")[1]["lowered"]
    tokens, width, hidden, vocab, layers = 128 * 2048, 2048, 5632, 32_000, 22
    # forward, recomputed and two gradients of every weight; the recomputation of a block's
    # last product is dropped, as the backward pass does not need its result
    ffn = layers * 2 * tokens * width * hidden * (2 * 4 + 3)
    head = 3 * 2 * tokens * width * vocab
    projections = layers * 2 * tokens * width * width * (4 * 4)
    # scores and weighted sum over all pairs of 2048 positions, forward, again, and two each
    pairs = layers * 2 * tokens * 2048 * width * (2 * 4)
    needed = result.needed_flops
    assert needed["ffn"] == ffn
    assert needed["head"] == head
    assert needed["attention"] == pytest.approx(projections + pairs, rel=1e-12)
    # 64 devices split all of it evenly: nothing is padded, nothing done twice
    assert flops_by_scope(result.program, 1) == {
        scope: flops / 64 for scope, flops in needed.items()
    }
    assert result.warnings == ()


def test_the_pipeline_wastes_its_bubble():
    result = lower_target(load_target(f"{EXAMPLES}/shard_map_pipeline.py:program"))
    microbatches, stages, rows, width, layers = 24, 8, 2048, 8192, 4
    rounds = microbatches + stages - 1
    assert flops_by_scope(result.program, 1) == {
        "stage": rounds * layers * 2 * (rows // 4) * width * width
    }
    needed = {"stage": microbatches * rows * stages * layers * 2 * width * width}
    (row,) = result.waste(needed)
    assert row.factor == rounds / microbatches
    hops = [
        (op.collective.payload_bytes, times, op.scope)
        for op, times in result.program.walk()
        if op.collective is not None
    ]
    assert hops == [((rows // 4) * width * 2, rounds, "hand_on")]


def test_the_linen_encoder_under_both_rule_sets():
    megatron = lower_target(load_target(f"{EXAMPLES}/linen_encoder.py:program"))
    tokens, width, hidden, layers, seq = 64 * 512, 4096, 16_384, 24, 512
    products = 4 * width * width + 2 * width * hidden
    pairs = 2 * seq * width
    total = layers * 2 * tokens * (products + pairs)
    done = sum(op.flops * times for op, times in megatron.program.walk())
    assert done == total / 16
    # one sum over `model` after attention and one after the network, per layer
    sums = [
        (op.collective.kind, op.collective.groups.size, op.collective.payload_bytes, times)
        for op, times in megatron.program.walk()
        if op.collective is not None
    ]
    assert sums == [("all-reduce", 4, (tokens // 4) * width * 2, layers)] * 2
    estimate = xla_cost.estimate(megatron, "b200")
    assert estimate.latency_s > done / estimate.machine.peak_flops["bf16"]
