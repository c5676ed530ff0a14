"""The reproduction against the numbers that digests of the study report (arXiv 2609.01821)."""

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.parallel import Workers
from xla_cost.programs import Request
from xla_cost.study.cells import COLUMNS, READINGS, Column, seq_text
from xla_cost.study.known import COMPONENTS, RATIOS, deviation
from xla_cost.study.realism import STEPS, waterfall
from xla_cost.study.reproduce import lower_all, reproduce, request_of
from xla_cost.study.tables import cause, component_rows, ratio_rows, ratio_with_study_compute

ONE_POD = tuple(column for column in COLUMNS if column.devices <= 72)
CROSSING = (Column(131072, 288), Column(1048576, 1152))


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """R1 in fp4 on B200 and B300 by (reading, machine, column); the cache is this module's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_COST_CACHE", str(tmp_path_factory.mktemp("cache")))
        with Workers(processes=0) as workers:
            found = [
                cell
                for reading, columns in (("reading-1", ONE_POD + CROSSING), ("reading-2", CROSSING))
                for cell in reproduce(
                    ["r1"], ["b200", "b300"], ["fp4"], workers, readings=[reading], columns=columns
                )
            ]
            bars = waterfall("r1", "fp4", "b300", Column(8192, 72), workers, steps=STEPS[:1])
    return {(c.reading, c.machine, c.column): c for c in found}, bars


@pytest.mark.parametrize("column", ONE_POD, ids=str)
@pytest.mark.parametrize("machine", ["b200", "b300"])
def test_cells_that_stay_in_a_pod_are_within_ten_percent(cells, machine, column):
    cell = cells[0]["reading-1", machine, column]
    assert cell.mesh == (1, column.devices, 1)
    assert abs(cell.deviation) <= 0.10


@pytest.mark.parametrize("reading", ["reading-1", "reading-2"])
@pytest.mark.parametrize(("column", "study_s"), [(CROSSING[0], 35.5), (CROSSING[1], 39.2)])
def test_communication_across_pods_is_within_twelve_percent(cells, reading, column, study_s):
    assert COMPONENTS[column].copper_comm_s == study_s
    assert cells[0][reading, "b300", column].copper.comm_s == pytest.approx(study_s, rel=0.12)


def test_reading_two_is_the_gather_at_one_byte_per_element(cells):
    # 61 layers: 15/16 of 8 x 1M tokens x 8064 bytes over racks, and the pod's own share
    across_s = 61 * 15 / 16 * 8 * 2**20 * 8064 / 100e9
    cell = cells[0]["reading-2", "b300", CROSSING[1]]
    assert across_s == pytest.approx(38.69, abs=0.01)
    assert cell.copper.comm_s == pytest.approx(across_s + 1.25, abs=0.01)


def test_four_times_the_bandwidth_takes_a_quarter_of_the_time_inside_a_pod(cells):
    for column in ONE_POD:
        for machine in ("b200", "b300"):
            cell = cells[0]["reading-1", machine, column]
            assert cell.copper.comm_s == pytest.approx(4 * cell.photonic.comm_s, rel=1e-9)
            assert cell.copper.compute_s == cell.photonic.compute_s


def test_the_waterfall_starts_at_the_cell(cells):
    cell = cells[0]["reading-1", "b300", Column(8192, 72)]
    bars = cells[1]
    assert [(bar.step, bar.alone) for bar in bars] == [
        ("study", False), ("flash attention", True), ("flash attention", False),
    ]  # fmt: skip
    assert bars[0].copper == cell.copper
    assert bars[0].ratio == cell.ratio
    assert bars[1].ratio == bars[2].ratio > cell.ratio  # less compute to hide behind
    assert dict(bars[0].split)["bandwidth"] == pytest.approx(cell.ratio)
    assert dict(bars[0].split)["radix"] == pytest.approx(1.0)


def test_rows_name_deviation_and_cause(cells):
    row = next(iter(ratio_rows([cells[0]["reading-1", "b300", Column(8192, 72)]])))
    assert (row["mesh"], row["batch"], row["cause"]) == ("1x72x1", 2048, "within 10%")
    assert row["ratio"] == row["copper_latency_s"] / row["photonic_latency_s"]
    far = cells[0]["reading-1", "b300", CROSSING[1]]
    # (26.2 + network on copper) / (26.2 + network on photons)
    with_theirs = (26.2 + far.copper.comm_s) / (26.2 + far.photonic.comm_s)
    assert ratio_with_study_compute(far) == with_theirs
    assert cause(far).startswith("compute: ours computes +")
    assert cause(far).endswith("128 heads over 288 devices take 2.25 times the even share of "
                               "attention")  # fmt: skip
    assert [r["study_s"] for r in component_rows([far])] == [26.2, 39.2, 1.6]


def test_deviation_is_the_distance_to_the_range():
    assert deviation(2.0, (1.5, 2.5)) == 0
    assert deviation(3.0, (1.5, 2.5)) == pytest.approx(0.2)
    assert deviation(1.2, (1.5, 2.5)) == pytest.approx(-0.2)


def test_the_study_s_table_has_ten_columns_and_every_reading_a_mesh_for_each():
    assert len(COLUMNS) == 10
    for machine, row in RATIOS.items():
        assert set(row) == set(COLUMNS), machine
    for reading in READINGS.values():
        for column in COLUMNS:
            x, y, z = reading.mesh(column)
            assert x * y * z == column.devices
    with pytest.raises(XlaCostError, match="reading reading-1: has no mesh for 8K/8"):
        READINGS["reading-1"].mesh(Column(8192, 8))


def test_experts_that_do_not_divide_move_devices_to_x():
    # Mini has 128 experts: of y = 72 they divide over gcd(72, 128) = 8, so x = 9
    request = request_of("mini", "fp4", Column(8192, 72), READINGS["reading-1"])
    assert request.mesh == (9, 8, 1)


def test_lengths_read_as_the_study_writes_them():
    assert [seq_text(n) for n in (1024, 131072, 1048576, 100)] == ["1K", "128K", "1M", "100"]


def test_what_cannot_be_laid_out_needs_no_workers(tmp_path, monkeypatch):
    """Each waterfall asks for such a step; a cluster would start only to refuse it."""
    monkeypatch.setenv("XLA_COST_CACHE", str(tmp_path))
    request = Request("tiny", (1, 16, 1), 64, 8)
    workers = Workers(address="tcp://nobody.is.here:1")
    found = lower_all([request], workers)
    assert found == {request: "mesh: y = 16 devices, expected a divisor of the 8 experts of tiny"}
