"""Findings: what XLA complained about and large replicated arguments, with what they cost."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import xla_cost
from xla_cost.cli import app as cli
from xla_cost.findings import (
    LARGE_BYTES,
    REPLICATED,
    Finding,
    costed,
    finding_from_json,
    finding_json,
    replicated_arguments,
)
from xla_cost.hlo import parse

MESH = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
X = jax.ShapeDtypeStruct((8, 16, 256), jnp.bfloat16)
W = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)
WHOLE = 8 * 16 * 512 * 2


def resharded(x, w):
    h = jax.lax.with_sharding_constraint(x @ w, P("x", None, "y"))
    with jax.named_scope("block"):
        h = jnp.tanh(h.reshape(8, 16, 16, 32))
        h = jax.lax.with_sharding_constraint(h, P(("x", "y")))
        return jax.lax.with_sharding_constraint(h, P(None, "y", None, "x"))  # the mistake


def line_of(function, text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(n for n, line in enumerate(lines) if text in line)}"


@pytest.fixture(scope="module")
def lowered():
    return xla_cost.lower(resharded, X, W, mesh=MESH, in_shardings=(P("x"), P(None, "y")))


def test_a_rematerialization_has_both_lines_and_the_bytes_of_its_gather(lowered):
    (finding,) = lowered.findings
    assert finding.kind == "involuntary-full-rematerialization"
    assert (finding.op, finding.scope) == ("jit(resharded)/block/sharding_constraint", "block")
    assert finding.source == line_of(resharded, 'P(("x", "y"))')
    assert finding.used_at == line_of(resharded, "the mistake")
    assert finding.bytes == WHOLE
    assert finding.moved_bytes == WHOLE - WHOLE // 8  # all but the part it has
    assert finding.executions == 1
    assert finding.seconds is None
    assert finding.text in lowered.program.warnings  # so that nothing is printed twice


def test_its_seconds_are_those_of_the_gather(lowered):
    estimate = xla_cost.estimate(lowered, "b300")
    (finding,) = costed(lowered.findings, estimate)
    (gather,) = [row for row in estimate.collectives if row.kind == "all-gather"]
    assert finding.collectives == (gather.name,)
    assert (finding.seconds, finding.exposed_s) == (gather.seconds, gather.exposed_s)
    assert finding.machine == "b300"
    assert "131 kB on every device, 115 kB received (all-gather), " in str(finding)
    assert " us on b300" in str(finding)


def test_a_finding_survives_json(lowered):
    (finding,) = lowered.findings
    assert finding_from_json(json.loads(json.dumps(finding_json(finding)))) == finding


def test_inside_a_loop_the_bytes_count_every_trip():
    def loop(x, w):
        def step(h, _):
            with jax.named_scope("block"):
                h = jax.lax.with_sharding_constraint(jnp.tanh(h), P(("x", "y")))
                return jax.lax.with_sharding_constraint(h, P(None, "y", None, "x")), None

        start = (x @ w).reshape(8, 16, 16, 32)
        return jax.lax.scan(step, start, None, length=5)[0]

    found = xla_cost.lower(loop, X, W, mesh=MESH, in_shardings=(P("x"), P(None, "y"))).findings
    # one from each constraint to the next (the second goes through two gathers that XLA leaves
    # without a line), and one before the loop
    assert [(f.scope, f.executions, len(f.collectives)) for f in found] == [
        ("block", 5, 1), ("block", 5, 2), ("", 1, 2),
    ]  # fmt: skip
    assert {f.bytes for f in found} == {WHOLE}
    received = WHOLE - WHOLE // 8
    assert [f.moved_bytes for f in found] == [5 * received, 5 * received, received]
    assert len({name for f in found for name in f.collectives}) == 5


def test_a_clean_program_has_none():
    clean = xla_cost.lower(lambda x, w: x @ w, X, W, mesh=MESH, in_shardings=(P("x"), P()))
    assert clean.findings == ()


LARGE = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)


def test_a_large_argument_on_every_device_while_others_are_split():
    def matmul(split, whole):
        return split @ whole

    found = xla_cost.lower(matmul, LARGE, LARGE, mesh=MESH, in_shardings=(P("x"), P())).findings
    assert [(f.kind, f.op, f.bytes) for f in found] == [(REPLICATED, "whole", LARGE_BYTES)]
    assert LARGE_BYTES == 4096 * 4096 * 2
    assert "split up to 4 ways, which would leave 8.39 MB" in found[0].cure
    both = xla_cost.lower(matmul, LARGE, LARGE, mesh=MESH, in_shardings=(P("x"), P(None, "y")))
    assert both.findings == ()


def parameters(*shardings: str) -> str:
    lines = "\n".join(
        f"  p{n} = bf16[4096,4096]{{1,0}} parameter({n}), sharding={sharding}, "
        f"metadata={{op_name=\"w[\\'{n}\\']\"}}"
        for n, sharding in enumerate(shardings)
    )
    return f"HloModule m, num_partitions=8\n\nENTRY main {{\n{lines}\n  ROOT t = tuple(p0)\n}}\n"


@pytest.mark.parametrize(
    ("sharding", "is_whole"),
    [
        ("{replicated}", True),
        ("{devices=[1,1,8]<=[8] last_tile_dim_replicate}", True),
        ("{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}", True),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", False),
        ("{devices=[8,1]<=[8]}", False),
        ("{maximal device=0}", False),
        ("{manual}", False),
        ("{something new}", False),
    ],
)
def test_every_form_of_a_sharding_is_read(sharding: str, is_whole: bool):
    found = replicated_arguments(parameters(sharding, "{devices=[4,2]<=[8]}"))
    assert [f.op for f in found] == (["w['0']"] if is_whole else [])


def test_where_nothing_is_split_or_said_nothing_is_found():
    assert replicated_arguments(parameters("{replicated}", "{replicated}")) == ()
    assert replicated_arguments("") == ()
    assert replicated_arguments("HloModule m\n\nENTRY main {\n  p = f32[] parameter(0)\n}\n") == ()
    assert replicated_arguments("HloModule cut\n\nENTRY main {\n  p = f32[4096,4096]") == ()
    assert replicated_arguments("HloModule cut\n\nENTRY main {\n  = parameter(0)\n}\n") == ()


def test_the_dearest_comes_first():
    cheap, dear = (
        Finding("k", name, "", "", size, "cure") for name, size in (("a", 10), ("b", 20))
    )
    estimate = xla_cost.estimate(
        xla_cost.lower(lambda x, w: x @ w, X, W, mesh=MESH, in_shardings=(P("x"), P())), "b300"
    )
    assert costed((cheap, dear), estimate) == (dear, cheap)


def test_estimate_shows_findings_once_and_writes_them(tmp_path: Path, capfd):
    source = "\n".join(
        [
            "import jax, jax.numpy as jnp",
            "from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P",
            "MESH = AbstractMesh((4, 2), ('x', 'y'), axis_types=(AxisType.Auto,) * 2)",
            inspect.getsource(resharded),
            "def target():",
            "    x = jax.ShapeDtypeStruct((8, 16, 256), jnp.bfloat16)",
            "    w = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)",
            "    return {'fn': resharded, 'args': (x, w), 'mesh': MESH,",
            "            'in_shardings': (P('x'), P(None, 'y'))}",
        ]
    )
    path = tmp_path / "mine.py"
    path.write_text(source)
    out_file = tmp_path / "out.json"
    assert cli.run(["estimate", f"{path}:target", "--json", str(out_file)]) == 0
    out, err = capfd.readouterr()
    assert out.count("involuntary-full-rematerialization") == 1
    assert "131 kB on every device, 115 kB received (all-gather)" in out
    assert "involuntary" not in err
    (found,) = json.loads(out_file.read_text())["findings"]
    assert found["source"] == f"{path}:8"
    assert found["used_at"] == f"{path}:9"
    assert found["moved_bytes"] == WHOLE - WHOLE // 8
    assert found["seconds"] > 0.0


def nested(x, w):
    def inner(y):
        return outer(y)  # not the innermost

    def outer(y):
        return jnp.einsum("abc,cd->abd", y, w)  # the innermost

    return inner(x)


def test_source_is_the_innermost_line_of_the_users_stack():
    done = xla_cost.lower(nested, X, W, mesh=MESH, in_shardings=(P(None, None, "x"), P("x")))
    (op,) = [op for op, _ in done.program.walk() if op.collective is not None]
    assert op.source == line_of(nested, "# the innermost")
    (reduce,) = [i for i in parse(done.hlo)[0].entry.instructions if i.opcode == "all-reduce"]
    stack = [f"{f.file}:{f.line}" for f in reduce.frames if f.file == __file__]
    texts = ("# the innermost", "# not the innermost", "return inner(x)")
    assert stack[:3] == [line_of(nested, text) for text in texts]


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(512, use_bias=False, dtype=jnp.bfloat16)(x)  # linen's line


class Linear(nnx.Module):
    def __init__(self):
        self.linear = nnx.Linear(256, 512, use_bias=False, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.linear(x)  # nnx's line


def test_source_is_never_inside_flax():
    model = Dense()
    variables = jax.eval_shape(model.init, jax.random.key(0), X)
    split = jax.tree.map(lambda _: P("x"), variables)
    spread = P(None, None, "x")
    linen_made = xla_cost.lower(model.apply, variables, X, mesh=MESH, in_shardings=(split, spread))
    nnx_made = xla_cost.lower(nnx.eval_shape(Linear), X, mesh=MESH, in_shardings=(spread,))
    for made, kind, text in (
        (linen_made, Dense.__call__, "# linen's line"),
        (nnx_made, Linear.__call__, "# nnx's line"),
    ):
        sources = {op.source for op, _ in made.program.walk() if op.kind == "matmul"}
        assert sources == {line_of(inspect.unwrap(kind), text)}


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ((1, 2, 3), ["c.py:3", "b.py:2", "a.py:1"]),  # XLA today: the number of the parent + 1
        ((0, 1, 2), ["c.py:3", "b.py:2", "a.py:1"]),  # older text: the number itself
        ((1, 1, 1), ["c.py:3"]),
        ((0, 0, 3), ["c.py:3"]),  # its own parent: told once, no endless loop
    ],
)
def test_frames_of_either_way_to_number_parents(parents, expected):
    names = "\n".join(f'{n} "{name}.py"' for n, name in enumerate("abc", 1))
    places = "\n".join(f"{n} {{file_name_id={n} function_name_id=1 line={n}}}" for n in (1, 2, 3))
    frames = "\n".join(
        f"{n} {{file_location_id={n} parent_frame_id={parent}}}"
        for n, parent in enumerate(parents, 1)
    )
    (module,) = parse(
        f'HloModule m\n\nFileNames\n{names}\n\nFunctionNames\n1 "f"\n\nFileLocations\n{places}\n\n'
        f"StackFrames\n{frames}\n\nENTRY e {{\n  a = f32[] parameter(0)\n"
        "  ROOT b = f32[] negate(a), metadata={stack_frame_id=3}\n}\n"
    )
    assert [f"{f.file}:{f.line}" for f in module.entry.root.frames] == expected
