"""Sweeps: kept point by point, resumed after a kill, refused in another's folder; the tables."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from xla_cost.cli.app import run as command
from xla_cost.errors import XlaCostError
from xla_cost.parallel import Workers
from xla_cost.sweep.run import run_sweep
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
    files[2].write_text(json.dumps(stale | {"code": "older"}))
    again = here(SPEC, out)
    assert (again.computed, again.reused) == (3, 1)
    assert again.rows == result.rows


def test_another_spec_is_refused(finished):
    out, _ = finished
    other = replace(SPEC, devices=(2,))
    with pytest.raises(XlaCostError, match=r"holds another sweep \(spec.json differs\); expected"):
        here(other, out)


def test_unknown_names_are_refused_before_anything_is_computed(tmp_path):
    for change in ({"machines": ("b301",)}, {"policies": ("best",)}):
        with pytest.raises(XlaCostError, match=r"b301|best"):
            here(replace(SPEC, **change), tmp_path / next(iter(change)))
        assert not list((tmp_path / next(iter(change)) / "points").iterdir())


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


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on(finished, cached, tmp_path):
    out, spec = tmp_path / "out", tmp_path / "spec.toml"
    spec.write_text(TOML)
    process = subprocess.Popen(
        [sys.executable, "-m", "xla_cost", "sweep", spec, "--out", out, "--processes", "0", "-q"],
        env={**os.environ, "XLA_COST_CACHE": "off"},
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(out.glob("points/*.json")):
            assert process.poll() is None, "ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    left = len(list(out.glob("points/*.json")))
    assert 1 <= left < 4
    assert not (out / "table.parquet").exists()
    answer = tmp_path / "rows.json"
    code = command(["sweep", str(spec), "--out", str(out), "--resume", "--processes", "0", "-q",
                    "--json", str(answer)])  # fmt: skip
    assert code == 0
    written = json.loads(answer.read_text())
    assert (written["computed"], written["reused"]) == (4 - left, left)
    rows = finished[1].rows
    assert [row["latency_s"] for row in written["rows"]] == [row["latency_s"] for row in rows]
    assert len(pd.read_parquet(out / "table.parquet")) == 4


def test_resume_insists_on_a_sweep(tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text(TOML)
    assert command(["sweep", str(spec), "--out", str(tmp_path / "new"), "--resume"]) == 2
    assert "holds no sweep to resume" in capsys.readouterr().err
