"""Sweep specs: what is read, and one sentence for everything that is wrong."""

from pathlib import Path

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.sweep.spec import Point, parse_spec, read_spec

GOOD = {
    "name": "s",
    "models": ["tiny"],
    "machines": ["b300", "b300-photonic"],
    "devices": [4, 8],
    "workloads": [{"seq": 64, "batch": 8}, {"seq": 128, "batch": 4}, {"seq": 64, "batch": 16}],
}
READY = Path(__file__).parents[1] / "examples" / "sweeps"


def test_points_are_the_cross_product_with_machines_innermost():
    points = list(parse_spec(GOOD, "spec").points())
    assert len(points) == 3 * 2 * 2
    assert points[:3] == [
        Point("tiny", "prefill", 64, 8, "fp4", 4, "b300", "study"),
        Point("tiny", "prefill", 64, 8, "fp4", 4, "b300-photonic", "study"),
        Point("tiny", "prefill", 64, 8, "fp4", 8, "b300", "study"),
    ]


def test_batches_are_those_of_the_same_length():
    spec = parse_spec(GOOD, "spec")
    assert spec.batches(next(spec.points())) == (8, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "unknown key 'colour'; expected one of name, models, machines, devices"),
        ({"models": None}, "spec: models is missing; expected a non-empty list of names"),
        ({"models": []}, r"spec: models = \[\]; expected a non-empty list of names"),
        ({"models": "r1"}, "spec: models = 'r1'; expected a non-empty list of names"),
        ({"machines": ["b300", 3]}, r"spec: machines\[1\] = 3; expected a name"),
        ({"devices": [0]}, r"spec: devices\[0\] = 0; expected an integer of at least 1"),
        ({"devices": [True]}, r"spec: devices\[0\] = True; expected an integer of at least 1"),
        ({"devices": [8.0]}, r"spec: devices\[0\] = 8.0; expected an integer of at least 1"),
        ({"workloads": [{"seq": 1}]}, r"workloads\[0\] = {'seq': 1}; expected { seq = .., batch"),
        ({"workloads": [{"seq": 1, "batch": -1}]}, r"workloads\[0\].batch = -1; expected an int"),
        ({"phase": "train"}, "spec: phase = 'train'; expected prefill or decode"),
        ({"meshes": 3}, 'spec: meshes = 3; expected "search" or a list of shapes'),
        ({"name": ""}, "spec: name = ''; expected a name"),
        ({"models": ["tinny"]}, r"spec: models\[0\] = 'tinny'; expected one of deepseek-v3, r1, "),
        ({"machines": ["b300", "x"]}, r"spec: machines\[1\] = 'x'; expected one of .*b300"),
        ({"machines": ["no.toml"]}, r"spec: machines\[0\] = 'no.toml'; expected one of .* file$"),
        ({"formats": ["fp5"]}, r"spec: formats\[0\] = 'fp5'; expected one of .*fp8"),
        ({"formats": ["fp4:foo=fp8"]}, r"spec: formats\[0\]: format 'fp4:foo=fp8': part 'foo'"),
        ({"plans": ["study", "foo"]}, r"spec: plans\[1\] = 'foo'; expected one of study, "),
        ({"policies": ["best"]}, r"spec: policies\[0\] = 'best'; expected one of .*study"),
        ({"meshes": ["1x2x1", "8"]}, r"spec: meshes\[1\]: mesh '8': expected three sizes"),
        ({"devices": [4, 4]}, r"spec: devices\[1\] = 4; expected each value once, \[0\] is the"),
        ({"plans": ["study", "study"]}, r"spec: plans\[1\] = 'study'; expected each value once"),
        ({"meshes": ["1x2x1", "1X2X1"]}, r"spec: meshes\[1\] = \(1, 2, 1\); expected each value"),
        ({"workloads": [{"seq": 1, "batch": 2}] * 2}, r"spec: workloads\[1\] = \(1, 2\); expected"),
        ({"devices": [2049]}, r"spec: devices\[0\] = 2049; expected at most 2048"),
        (
            {"workloads": [{"seq": 1, "batch": 10**20}]},
            rf"spec: workloads\[0\].batch = {10**20}; expected at most {2**31 - 1}",
        ),
        (
            {"workloads": [{"seq": 2**31, "batch": 1}]},
            rf"spec: workloads\[0\].seq = {2**31}; expected at most {2**31 - 1}",
        ),
    ],
)
def test_what_is_wrong_is_named(change, message):
    table = {key: value for key, value in (GOOD | change).items() if value is not None}
    with pytest.raises(XlaCostError, match=message):
        parse_spec(table, "spec")


def test_files_that_are_no_spec(tmp_path):
    with pytest.raises(XlaCostError, match="cannot be read: No such file or directory"):
        read_spec(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ")
    with pytest.raises(XlaCostError, match=r"broken.toml: not a TOML file: "):
        read_spec(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(XlaCostError, match=r"broken.toml: not a TOML file: "):
        read_spec(broken)


def test_ready_made_specs_are_the_study_s_two_sweeps():
    devices = read_spec(READY / "r1-devices.toml")
    assert devices.models == ("r1",)
    assert len(devices.devices) > len(devices.workloads) == 4
    assert {(1024, 8192), (8192, 2048), (131072, 64), (1048576, 8)} == set(devices.workloads)
    batch = read_spec(READY / "r1-batch.toml")
    assert batch.devices == (72,)
    assert {seq for seq, _ in batch.workloads} == {1024, 8192, 131072, 1048576}
    assert len(batch.workloads) > 8
    for spec in (devices, batch):
        assert {name.removesuffix("-photonic") for name in spec.machines} == {
            "b200", "b300", "rubin", "r4",
        }  # fmt: skip
