"""The pytest plugin: a fixture `xla_cost` that holds what a program costs against a lock file.

    def test_cost(xla_cost):
        xla_cost.check(train_step, params, batch, mesh=mesh)

    def test_no_large_gather(xla_cost):
        costs = xla_cost.program(train_step, params, batch, mesh=mesh)
        costs.assert_no_collective("all-gather", larger_than_bytes=1_000_000)

pytest loads this in every run where xla_cost is installed, so it imports nothing else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xla_cost.gate.fixture import CostGate

#: beside the test file, so that a lock is reviewed with the code it guards
_FOLDER = "costs"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--xla-cost-update`."""
    group = parser.getgroup("xla-cost", "cost of partitioned JAX programs")
    group.addoption(
        "--xla-cost-update",
        action="store_true",
        help="write the lock files of xla_cost.check instead of comparing with them",
    )


@pytest.fixture
def xla_cost(request: pytest.FixtureRequest) -> CostGate:
    """What a JAX program computes and moves: `check` against a lock, or assertions about it."""
    from xla_cost.gate.fixture import CostGate

    return CostGate(
        default_lock=_lock_of_test(request),
        folder=request.path.parent,
        update=bool(request.config.getoption("--xla-cost-update")),
    )


def _lock_of_test(request: pytest.FixtureRequest) -> Path:
    """`costs/test_train.test_step.lock` beside the test file; a class and parameters are in it."""
    name = request.node.nodeid.partition("::")[2].replace("::", ".")
    safe = re.sub(r"[^\w.=+-]+", "-", name).strip("-")
    return Path(request.path.parent) / _FOLDER / f"{request.path.stem}.{safe}.lock"
