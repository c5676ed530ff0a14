"""The study on the terminal: everything fits the 80 columns of a pipe."""

import io

import pytest

from xla_cost.show.console import console
from xla_cost.show.study import show_study
from xla_cost.study.cells import COLUMNS, READINGS, Column
from xla_cost.study.free import FreeCell
from xla_cost.study.realism import STEPS, Bar
from xla_cost.study.reproduce import Cell, Times
from xla_cost.study.run import StudyResult

LONGEST = Column(1048576, 1152)


def times(latency_s):
    return Times(latency_s, latency_s / 3, latency_s * 2 / 3, 100 * latency_s, False)


@pytest.fixture(scope="module")
def lines():
    """A made-up study of long names and ratios of 12.34 (of 12.34 s and 1 s) on 80 columns."""
    slow, fast = times(12.34), times(1.0)
    choice = "144x2x4 study-balanced"
    result = StudyResult(
        cells=tuple(
            Cell("r1", "fp8+fp4", machine, column, reading, (1, column.devices, 1), "study",
                 slow, fast)
            for machine in ("b200", "b300", "rubin", "r4")
            for reading in READINGS for column in COLUMNS
        ),
        curves=(),
        free=(FreeCell("r1", "fp4", "rubin", LONGEST, "calibrated", choice, choice, slow, fast),),
        waterfalls={("rubin", LONGEST): (
            *(Bar(step.name, True, slow, fast) for step in STEPS),
            *(Bar(step.name, False, slow, fast, (("bandwidth", 12.34), ("radix", 12.34)))
              for step in STEPS),
            Bar("best mesh of each, calibrated", False, slow, fast),
        )},
        samples={}, bands={},
    )  # fmt: skip
    out = io.StringIO()
    show_study(console(out), result)
    return out.getvalue().splitlines()


def test_nothing_is_cut(lines):
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def test_every_ratio_is_there(lines):
    heads = [line.split()[1:] for line in lines if line.startswith("copper/photonic")]
    assert heads == [list(map(str, COLUMNS[:5])), list(map(str, COLUMNS[5:]))] * len(READINGS)
    rows = [line.split() for line in lines if line.split()[:1] == ["b300"]]
    ratios = [row for row in rows if len(row) == 6]
    assert ratios == [["b300", *["12.34"] * 5]] * 2 * len(READINGS)
