"""Sweeps: kept point by point, made again when outdated, refused in another's folder; tables."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from xla_cost.cli.app import run as command
from xla_cost.errors import XlaCostError
from xla_cost.parallel import Workers
from xla_cost.sweep import run as run_module
from xla_cost.sweep.run import run_sweep, states
from xla_cost.sweep.spec import parse_spec
from xla_cost.sweep.tables import cube, table, write_tables

TABLE = {
    "name": "small",
    "models": ["tiny"],
    "machines": ["b300", "b300-photonic"],
    "devices": [2, 4],
    "workloads": [{"seq": 64, "batch": 8}],
    "meshes": ["1x2x1", "1x4x1", "2x2x1"],
}
SPEC = parse_spec(TABLE, "spec")
TOML = """
name = "small"
models = ["tiny"]
machines = ["b300", "b300-photonic"]
devices = [2, 4]
workloads = [{ seq = 64, batch = 8 }]
meshes = ["1x2x1", "1x4x1", "2x2x1"]
"""


def here(spec, out):
    with Workers(processes=0) as workers:
        return run_sweep(spec, out, workers=workers)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished sweep: (folder, result). The cache makes later runs cheap."""
    folder = tmp_path_factory.mktemp("sweep")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_COST_CACHE", str(folder / "cache"))
        return folder / "out", here(SPEC, folder / "out")


@pytest.fixture
def cached(finished, monkeypatch):
    """The programs of `finished` are at hand."""
    monkeypatch.setenv("XLA_COST_CACHE", str(finished[0].parent / "cache"))


def test_every_point_has_the_best_of_its_meshes(finished):
    _, result = finished
    assert [(row["devices"], row["machine"]) for row in result.rows] == [
        (2, "b300"), (2, "b300-photonic"), (4, "b300"), (4, "b300-photonic"),
    ]  # fmt: skip
    assert [row["candidates"] for row in result.rows] == [1, 1, 2, 2]
    assert {row["mesh"] for row in result.rows[:2]} == {"1x2x1"}
    assert (result.computed, result.reused) == (4, 0)


def test_run_again_it_computes_nothing(finished, tmp_path):
    out, result = finished
    again = here(SPEC, out)
    assert (again.computed, again.reused) == (0, 4)
    assert again.rows == result.rows


def test_damaged_and_outdated_points_are_made_again(finished, cached):
    out, result = finished
    files = sorted((out / "points").iterdir())
    files[0].write_text('{"code": "')
    files[1].unlink()
    stale = json.loads(files[2].read_text())
    older = stale["made_by"] | {"code": "older"}
    files[2].write_text(json.dumps(stale | {"made_by": older}))
    again = here(SPEC, out)
    assert (again.computed, again.reused) == (3, 1)
    assert again.rows == result.rows


def test_another_spec_is_refused(finished):
    out, _ = finished
    other = replace(SPEC, devices=(2,))
    with pytest.raises(XlaCostError, match=r"holds another sweep \(spec.json differs\); expected"):
        here(other, out)


def test_unknown_names_are_refused_before_anything_is_written(tmp_path, capsys):
    for key, name in (("machines", "b301"), ("policies", "best"), ("plans", "foo")):
        place = f"{key}\\[0\\] = '{name}'; expected one of "
        with pytest.raises(XlaCostError, match=f"sweep small: {place}"):
            here(replace(SPEC, **{key: (name,)}), tmp_path / "out")
        assert not (tmp_path / "out").exists()
    spec = tmp_path / "bad.toml"
    spec.write_text(f'{TOML}plans = ["study", "foo"]\n')
    assert command(["sweep", str(spec), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"xla-cost: {spec}: plans[1] = 'foo'; expected one of study, ")
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_point_that_nothing_can_run_says_why(tmp_path):
    result = here(replace(SPEC, devices=(16,), meshes=("1x16x1",)), tmp_path)
    assert result.rows[0]["why"].startswith("mesh: y = 16 devices, expected a divisor of the 8")
    none = here(replace(SPEC, devices=(3,)), tmp_path / "none")
    assert none.rows[0]["why"] == "no mesh of the spec has these devices"
    frame = table([*result.rows, *none.rows])
    assert frame["latency_s"].isna().all()


def test_the_tables_come_back_as_they_were_written(finished, tmp_path):
    _, result = finished
    files = write_tables(result.rows, tmp_path)
    assert [path.name for path in files] == ["table.parquet", "table.csv", "cube.nc"]
    frame = table(result.rows)
    pd.testing.assert_frame_equal(pd.read_parquet(files[0]), frame)
    pd.testing.assert_frame_equal(pd.read_csv(files[1])[["latency_s"]], frame[["latency_s"]])
    with xr.open_dataset(files[2]) as read:
        xr.testing.assert_identical(read.load(), cube(frame))
        point = read["latency_s"].sel(machine="b300", devices=4).to_numpy().item()
    assert point == result.rows[2]["latency_s"]


def test_ratio_and_throughput_are_what_they_say(finished):
    _, result = finished
    frame = table(result.rows)
    copper, photonic = result.rows[2], result.rows[3]
    row = frame[(frame["devices"] == 4) & (frame["machine"] == "b300")].iloc[0]
    assert row["ratio"] == pytest.approx(copper["latency_s"] / photonic["latency_s"])
    assert row["tokens_per_s_per_device"] == pytest.approx(64 * 8 / copper["latency_s"] / 4)
    assert np.isnan(frame[frame["machine"] == "b300-photonic"]["ratio"]).all()


def test_resume_insists_on_a_sweep(tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text(TOML)
    assert command(["sweep", str(spec), "--out", str(tmp_path / "new"), "--resume"]) == 2
    assert "holds no sweep to resume" in capsys.readouterr().err


def test_points_of_another_machine_file_or_price_are_made_again(finished, cached, monkeypatch):
    out, _ = finished
    sources = run_module._SOURCES
    monkeypatch.setattr(run_module, "_SOURCES", ("price",))  # as if the pricing had changed
    assert not any(done for _, done in states(SPEC, out))
    monkeypatch.setattr(run_module, "_SOURCES", sources)
    assert all(done for _, done in states(SPEC, out))
    b300 = run_module.load("b300")
    slower = replace(b300, memory_bytes_per_s=b300.memory_bytes_per_s / 2)
    monkeypatch.setattr(run_module, "load", lambda name: slower)
    assert not any(done for _, done in states(SPEC, out))


def test_the_list_says_what_is_done_and_computes_nothing(finished, tmp_path, capsys):
    out, result = finished
    spec, answer = tmp_path / "spec.toml", tmp_path / "list.json"
    spec.write_text(TOML)
    half = tmp_path / "half"
    assert command(["sweep", str(spec), "--out", str(half), "--list"]) == 0
    assert not half.exists()
    assert "0 points done, 4 missing" in capsys.readouterr().out
    shutil.copytree(out, half)
    sorted((half / "points").iterdir())[0].unlink()
    listed = ["sweep", str(spec), "--out", str(half), "--list", "--json", str(answer)]
    assert command(listed) == 0
    assert "3 points done, 1 missing" in capsys.readouterr().out
    points = json.loads(answer.read_text())["sweep_points"]
    assert [point["done"] for point in points].count(False) == 1
    assert [point["devices"] for point in points] == [row["devices"] for row in result.rows]
    other = tmp_path / "other.toml"
    other.write_text(TOML.replace("[2, 4]", "[2]"))
    assert command(["sweep", str(other), "--out", str(half), "--list"]) == 2
    assert "holds another sweep" in capsys.readouterr().err
