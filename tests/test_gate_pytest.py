"""The pytest plugin, run by pytest itself on small test files."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

STEP = """
import jax, jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P
MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
X, W = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((64, 32), (32, 16)))
SPLIT = (P("data", "model"), P("model"))
def step(x, w):
    with jax.named_scope("ffn"):
        return x @ w
def target():
    return {"fn": step, "args": (X, W), "mesh": MESH, "in_shardings": SPLIT}
"""


@pytest.fixture
def files(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(steps=STEP)
    pytester.syspathinsert()
    return pytester


def test_it_is_registered_and_light():
    (found,) = [point for point in entry_points(group="pytest11") if point.name == "xla_cost"]
    assert found.value == "xla_cost.gate.pytest_plugin"
    code = (
        "import sys, pytest; before = set(sys.modules); import xla_cost.gate.pytest_plugin; "
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('xla_cost')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_check_writes_compares_and_fails(files: pytest.Pytester):
    files.makepyfile(
        test_a="""
        from steps import MESH, SPLIT, W, X, step

        class TestStep:
            def test_cost(self, xla_cost):
                xla_cost.check(step, X, W, mesh=MESH, in_shardings=SPLIT)
                xla_cost.check("steps:target")
        """
    )
    first = files.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines(
        ["costs/test_a.TestStep.test_cost.lock: there is no lock yet; make it with *"]
    )
    files.runpytest_inprocess("-q", "--xla-cost-update").assert_outcomes(passed=1)
    locks = sorted(path.name for path in (files.path / "costs").iterdir())
    assert locks == ["test_a.TestStep.test_cost.2.lock", "test_a.TestStep.test_cost.lock"]
    texts = [(files.path / "costs" / name).read_text() for name in locks]
    assert texts[0] == texts[1]
    assert "collective all-reduce bf16 4 devices x 2 [0:4:1] scope=ffn bytes=1024" in texts[0]
    files.runpytest_inprocess("-q").assert_outcomes(passed=1)

    for name, text in zip(locks, texts, strict=True):
        (files.path / "costs" / name).write_text(text.replace("bytes=1024", "bytes=512"))
    worse = files.runpytest_inprocess("-q")
    worse.assert_outcomes(failed=1)
    worse.stdout.fnmatch_lines(
        [
            "costs/test_a.TestStep.test_cost.lock: 1 of 1 changes are for the worse",
            "  WORSE  changed: all-reduce bf16 over 4 devices x 2 [[]0:4:1[]] in ffn: "
            "1 x 512 bytes -> 1 x 1,024 bytes (+100.0 % bytes)",
            "         at steps.py:8, * on b300",
            "  accept with: pytest --xla-cost-update",
        ]
    )
    assert "Traceback" not in worse.stdout.str()
    assert "fixture.py" not in worse.stdout.str()


def test_assertions_hold_and_fail_readably(files: pytest.Pytester):
    files.makepyfile(
        test_b="""
        import pytest
        import xla_cost as package
        from xla_cost.errors import XlaCostError
        from steps import MESH, SPLIT, W, X, step

        @pytest.fixture(scope="module")
        def lowered():
            return package.lower(step, X, W, mesh=MESH, in_shardings=SPLIT)

        def test_what_holds(xla_cost, lowered):
            costs = xla_cost.program(lowered)
            costs.assert_no_collective("all-gather")
            costs.assert_no_collective("all-reduce", larger_than_bytes=1024)
            costs.assert_no_collective("all-reduce", larger_than_bytes=1024, scope="ffn")
            costs.assert_stays_in_pod(4)
            costs.assert_stays_in_pod(2, "all-gather")
            costs.assert_flops_at_most(8192)
            costs.assert_peak_memory_at_most(costs.peak_memory_bytes)
            costs.assert_no_findings()

        def test_kind(xla_cost, lowered):
            xla_cost.program(lowered).assert_no_collective("all-reduce", larger_than_bytes=1023)

        def test_pod(xla_cost, lowered):
            xla_cost.program(lowered).assert_stays_in_pod(2)

        def test_flops(xla_cost, lowered):
            xla_cost.program(lowered).assert_flops_at_most(8191)

        def test_memory(xla_cost, lowered):
            xla_cost.program(lowered).assert_peak_memory_at_most(1)

        def test_misspelt(xla_cost, lowered):
            costs = xla_cost.program(lowered)
            with pytest.raises(XlaCostError, match="kind 'allgather' is unknown"):
                costs.assert_no_collective("allgather")
            with pytest.raises(XlaCostError, match="scope 'fnn': the program has none"):
                costs.assert_no_collective(scope="fnn")
            with pytest.raises(XlaCostError, match="pod = 0"):
                costs.assert_stays_in_pod(0)
            with pytest.raises(XlaCostError, match="a Lowered has its arguments already"):
                xla_cost.program(lowered, X)

        def test_one_lock_twice(xla_cost, lowered):
            with pytest.raises(pytest.fail.Exception, match="there is no lock yet"):
                xla_cost.check(lowered, lock="mine.lock")
            with pytest.raises(XlaCostError, match="'mine.lock': is used twice"):
                xla_cost.check(lowered, lock="mine.lock")
        """
    )
    result = files.runpytest_inprocess("-q")
    result.assert_outcomes(passed=3, failed=4)
    where = "all-reduce bf16 over 4 devices x 2 [[]0:4:1[]] in ffn: 1 x 1,024 bytes -> 1,024 at "
    result.stdout.fnmatch_lines(
        [
            "E * expected no all-reduce larger than 1.02 kB, found 1:",
            f"E * {where}steps.py:8",
            "E * expected no collective between pods of 2 devices, found 1:",
            f"E * {where}steps.py:8",
            "E * 8,192 FLOP per device; expected at most 8,191",
            "E * per device at the peak; expected at most 1 B",
        ]
    )
    assert "fixture.py" not in result.stdout.str()


def test_findings_fail_with_their_line_and_cure(files: pytest.Pytester):
    files.makepyfile(
        test_c="""
        import jax, jax.numpy as jnp
        from jax.sharding import PartitionSpec as P
        from steps import MESH

        LARGE = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)

        def test_nothing_to_mend(xla_cost):
            costs = xla_cost.program(
                lambda a, b: a @ b, LARGE, LARGE, mesh=MESH, in_shardings=(P("data"), P())
            )
            costs.assert_no_findings("involuntary-full-rematerialization")
            costs.assert_no_findings()
        """
    )
    result = files.runpytest_inprocess("-q")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E * expected no finding, found 1:", "E * large-replicated-argument: b: 33.6 MB on *"]
    )
