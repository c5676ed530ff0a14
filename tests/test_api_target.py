"""`module:function`: what it may return, and what is said when it does not."""

import os
import subprocess
import sys
import textwrap

import pytest

import xla_cost
from xla_cost.api import lower_target
from xla_cost.errors import XlaCostError
from xla_cost.target import load_target

SOURCE = """
import jax, jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P

mesh = AbstractMesh((8,), ("x",), axis_types=(AxisType.Auto,))
x = jax.ShapeDtypeStruct((64, 32), jnp.float32)
number = 3

def fn(x, w, scale=1.0):
    return x @ w * scale

def three():
    return fn, (x, x.update(shape=(32, 16))), mesh

def two():
    return fn, (x, x.update(shape=(32, 16)))

def full():
    return {
        "fn": fn, "args": (x, x.update(shape=(32, 16))), "mesh": mesh,
        "in_shardings": (P("x"), P()), "kwargs": {"scale": x.update(shape=())},
    }

class Cases:
    nested = staticmethod(three)

def none(): pass
def quits(): raise SystemExit(0)
def prints(): print("to the user"); return three()
def four(): return fn, (), mesh, 1
def no_fn(): return {"args": ()}
def bad_args(): return fn, x, mesh
def no_args(): return {"fn": fn, "mesh": mesh}
def no_args_but_shardings(): return {"fn": lambda: x, "mesh": mesh, "in_shardings": (P("x"),)}
def all_by_name(): return {"fn": lambda **given: given["x"] * 2, "kwargs": {"x": x}}
def odd_key(): return {"fn": fn, "shardings": 1}
def fails(): raise KeyError("layers")
def refuses():
    from xla_cost.errors import XlaCostError
    raise XlaCostError("config: layers = 0; must be at least 1")
def needs(n): return fn, (), mesh
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "my_target.py").write_text(textwrap.dedent(SOURCE))
    (tmp_path / "broken_target.py").write_text("def fn(:\n")
    (tmp_path / "needy_target.py").write_text("import not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("my_target", "broken_target", "needy_target"):
        sys.modules.pop(name, None)


def flops(program):
    return sum(op.flops * times for op, times in program.walk())


@pytest.mark.parametrize(
    ("spec", "devices"),
    [
        ("my_target:two", 1),
        ("my_target:three", 8),
        ("my_target:full", 8),
        ("my_target:Cases.nested", 8),
        ("my_target.py:three", 8),
    ],
)
def test_what_it_returns_is_lowered(here, spec, devices):
    path = list(sys.path)
    target = load_target(spec)
    assert target.name == spec
    lowered = lower_target(target)
    assert lowered.devices == devices
    rows = 64 // 8 if spec.endswith("full") else 64  # only `full` says how to split
    assert flops(lowered.program) == 2 * rows * 32 * 16
    assert sys.path == path


def test_a_function_of_keywords_needs_no_args(here):
    assert lower_target(load_target("my_target:all_by_name")).devices == 1


def test_estimate_takes_it_by_name(here):
    estimate = xla_cost.estimate("my_target:full", "h100")
    assert estimate.program.devices == 8
    assert flops(estimate.program) == 2 * 8 * 32 * 16


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_target", "expected module:function or file.py:function"),
        ("my_target:", "expected module:function"),
        (":three", "expected module:function"),
        ("absent_module:three", "there is no module 'absent_module'"),
        ("my_target.sub:three", "there is no module|needs"),
        ("absent.py:three", "there is no file absent.py"),
        ("my_target:tree", "my_target has no 'tree'; it has .*bad_args"),
        ("my_target:number", "number is a int; expected a function"),
        ("broken_target:fn", "importing broken_target: SyntaxError"),
        ("broken_target.py:fn", "running broken_target.py: SyntaxError"),
        ("needy_target:fn", "needy_target needs 'not_installed_anywhere', not there"),
        ("my_target:none", "returned None; expected a tuple"),
        ("my_target:four", "returned a tuple of 4; expected a tuple"),
        ("my_target:no_fn", "its fn is a NoneType; expected a callable"),
        ("my_target:bad_args", "its args are a ShapeDtypeStruct; expected a tuple"),
        (
            "my_target:no_args",
            r"returned no args \(its fn: missing a required argument: 'x'\); expected args",
        ),
        (
            "my_target:no_args_but_shardings",
            r"returned no args \(its in_shardings are for them\); expected args, a tuple",
        ),
        ("my_target:odd_key", "returned the key 'shardings'; expected fn, args"),
        ("my_target:quits", "calling it: SystemExit: 0"),
        ("my_target:fails", "calling it: KeyError: 'layers'"),
        ("my_target:needs", "calling it: TypeError: needs"),
        ("my_target:refuses", "config: layers = 0; must be at least 1"),
    ],
)
def test_mistakes_get_one_sentence(here, spec, message):
    with pytest.raises(XlaCostError, match=message) as caught:
        load_target(spec)
    assert "\n" not in str(caught.value)


def test_what_it_prints_stays_out_of_the_answer(here, capsys):
    load_target("my_target:prints")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "to the user\n")


def test_devices_exist_before_the_module_is_imported(tmp_path):
    (tmp_path / "spread.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def program():\n"
        "    mesh = jax.make_mesh((len(jax.devices()),), ('x',))\n"
        "    return jnp.sin, (jax.ShapeDtypeStruct((48,), jnp.float32),), mesh\n"
    )
    script = (
        "from xla_cost.target import load_target\n"
        "print(load_target('spread:program', devices=12).mesh.size)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "12\n", done.stderr
