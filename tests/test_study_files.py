"""Tables and figures of the study: every file is there, with its columns and something in it."""

import csv
import xml.etree.ElementTree as ElementTree

import pytest

from xla_cost.jsonio import plain
from xla_cost.study.cells import BATCHES, COLUMNS, READINGS, Column
from xla_cost.study.curves import CurvePoint, mesh_at
from xla_cost.study.free import FreeCell
from xla_cost.study.realism import STEPS, Bar
from xla_cost.study.reproduce import Cell, Times
from xla_cost.study.run import StudyResult, _add_free_bars, _figures, _tables, to_json
from xla_cost.study.sensitivity import RANGES, SPECULATIVE, Sample, band, sensitivity

DRAWN = ("reading-1", "reading-2")
PLACE = ("b300", Column(8192, 72))


def times(latency_s):
    return Times(latency_s, latency_s / 3, latency_s * 2 / 3, 100 * latency_s, False)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A small made-up study, written: (result, folder, files)."""
    result = StudyResult(
        cells=tuple(
            Cell("r1", "fp4", "b300", column, reading, (1, column.devices, 1), "study",
                 times(3.0), times(1.5))
            for reading in READINGS for column in COLUMNS
        ),
        curves=tuple(
            CurvePoint("r1", "fp4", "b300", swept, seq, devices, batch, mesh_at(seq, devices),
                       times(600 / devices), times(300 / devices))
            for swept in ("devices", "batch") for seq, batch in BATCHES.items()
            for devices in (16, 72, 288)
        ),
        free=(FreeCell("r1", "fp4", *PLACE, "study", "9x8x1 study", "72x1x1 study",
                       times(1.2), times(1.0)),),
        waterfalls={PLACE: (
            Bar("study", False, times(3.0), times(1.5), (("bandwidth", 2.0), ("radix", 1.0))),
            *(Bar(step.name, True, times(2.0), times(1.5)) for step in STEPS),
            *(Bar(step.name, False, times(2.0), times(1.6)) for step in STEPS[:-1]),
            Bar(STEPS[-1].name, False, None, None, refused="one sequence has no halves"),
        )},
        samples={PLACE: tuple(
            Sample(name, value, 1 + value / 10)
            for name, values in RANGES.items() for value in values
        )},
        bands={PLACE: (1.9, 2.1)},
    )  # fmt: skip
    _add_free_bars(result)
    folder = tmp_path_factory.mktemp("study")
    files = _tables(result, ["r1"], ["b300"], folder)
    with pytest.MonkeyPatch.context() as patch:  # one heat map per reading: two will do
        patch.setattr("xla_cost.study.run.READINGS", dict.fromkeys(DRAWN))
        files += _figures(result, ["r1"], ["b300"], ["fp4"], folder / "figures")
    return result, folder, files


def rows(folder, name):
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_table_has_its_rows_and_columns(written):
    _, folder, _ = written
    ratios = rows(folder, "ratios")
    assert len(ratios) == len(READINGS) * len(COLUMNS)
    assert {"ratio", "study_low", "study_high", "deviation", "cause", "mesh"} <= ratios[0].keys()
    assert {row["ratio"] for row in ratios} == {"2.0"}
    assert len(rows(folder, "components")) == len(READINGS) * 4 * 3
    assert len(rows(folder, "sweeps")) == 2 * 4 * 3
    assert rows(folder, "free_search")[0]["copper_choice"] == "9x8x1 study"
    assert len(rows(folder, "sensitivity")) == sum(len(values) for values in RANGES.values())
    assert rows(folder, "speculative_bands")[0]["highest_ratio"] == "2.1"
    assert [row["machine"] for row in rows(folder, "hardware")] == ["b300", "b300-photonic"]
    model = rows(folder, "models")[0]
    assert (model["model"], model["hidden"], model["experts"]) == ("r1", "8064", "288")


def test_the_waterfall_ends_with_the_best_mesh_of_each(written):
    _, folder, _ = written
    bars = rows(folder, "waterfall")
    assert (bars[0]["step"], bars[0]["ratio"], bars[0]["bandwidth"]) == ("study", "2.0", "2.0")
    assert bars[-1]["step"] == "best mesh of each, study"
    assert float(bars[-1]["ratio"]) == pytest.approx(1.2)
    assert bars[-2]["refused"] == "one sequence has no halves"


def test_every_figure_is_there_as_png_and_svg(written):
    _, folder, files = written
    figures = [path for path in files if path.parent == folder / "figures"]
    names = {path.stem for path in figures}
    assert names == {
        "components_by_batch_b300", "components_by_devices_b300", "latency_by_batch_b300",
        "latency_by_devices_b300", "waterfall_b300_8k_72", "tornado_b300_8k_72",
        *(f"ratios_r1_fp4_{reading}" for reading in DRAWN),
    }  # fmt: skip
    for path in figures:
        if path.suffix == ".png":
            assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
            assert path.stat().st_size > 5000
        else:
            assert len(list(ElementTree.parse(path).iter())) > 50
    assert {path.suffix for path in figures} == {".png", ".svg"}


def test_figures_of_the_same_data_are_the_same_bytes(written, tmp_path):
    from xla_cost.study.figures import tornado

    result, folder, _ = written
    for path in tornado(result.samples[PLACE], 2.0, PLACE[1], PLACE[0], tmp_path):
        assert path.read_bytes() == (folder / "figures" / path.name).read_bytes()


def test_the_json_form_has_every_row(written):
    answer = plain(to_json(written[0]))
    assert answer["kind"] == "study"
    assert len(answer["ratios"]) == len(READINGS) * len(COLUMNS)
    assert answer["waterfalls"][0]["bars"][0]["ratio"] == 2.0
    assert answer["speculative_bands"][0]["ratio"] == [1.9, 2.1]


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """The sensitivity of a tiny program across two pods of four would not cross: 144 devices."""
    from xla_cost.parallel import Workers
    from xla_cost.policy import STUDY
    from xla_cost.programs import Request, model_program

    request = Request("tiny", (18, 8, 1), 256, 36, attention="plain")
    with pytest.MonkeyPatch.context() as patch, Workers(processes=0) as workers:
        patch.setenv("XLA_COST_CACHE", str(tmp_path_factory.mktemp("cache")))
        found = sensitivity(request, STUDY, "b300", workers)
        return found, model_program(request).program


def test_sensitivity_covers_every_range_and_moves_the_right_way(samples):
    found, _ = samples
    by_name = {name: [s.ratio for s in found if s.parameter == name] for name in RANGES}
    assert {name: len(ratios) for name, ratios in by_name.items()} == {
        name: len(values) for name, values in RANGES.items()
    }
    multiples = by_name["scale-up multiple of the photonic twin"]
    assert multiples == sorted(multiples)
    assert multiples[0] == pytest.approx(1.0)  # same bandwidth, nothing crosses a pod
    scale_out = by_name["copper scale-out bandwidth"]
    assert scale_out == sorted(scale_out, reverse=True)


def test_the_band_of_a_sold_machine_is_a_point_and_of_a_guessed_one_holds_its_ratio(samples):
    from xla_cost.policy import STUDY
    from xla_cost.price import price

    _, program = samples
    low, high = band(program, STUDY, "b300")
    assert low == high
    for name in SPECULATIVE:
        low, high = band(program, STUDY, name)
        ratio = price(program, name, STUDY).latency_s
        ratio /= price(program, f"{name}-photonic", STUDY).latency_s
        assert low <= ratio <= high
        assert low < high
