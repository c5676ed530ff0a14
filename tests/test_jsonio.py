"""JSON in and out: what is accepted, what is refused and how, and that files are never half."""

import io
import json
import math
import os
import stat
import sys
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest

from xla_cost.errors import XlaCostError
from xla_cost.jsonio import canonical_json, check_file, make_folder, plain, read_json, write_json


@dataclass(frozen=True)
class Point:
    x: int
    y: tuple[float, ...]


class Colour(Enum):
    RED = "red"


def test_plain_takes_numpy_dataclasses_and_enums():
    value = {"a": np.float32(0.5), "b": np.arange(3), "c": Point(1, (2.0,)), "d": Colour.RED}
    assert plain(value) == {
        "a": 0.5,
        "b": [0, 1, 2],
        "c": {"x": 1, "y": [2.0]},
        "d": "red",
    }
    assert type(plain(np.int64(3))) is int
    assert plain({3: {"z", "a"}}) == {"3": ["a", "z"]}


@pytest.mark.parametrize("bad", [math.nan, math.inf, np.float64("nan")])
def test_non_finite_numbers_are_refused_with_their_place(tmp_path, bad):
    with pytest.raises(XlaCostError, match=r"results\[1\]\.latency_s: is (nan|inf); must be"):
        write_json(tmp_path / "x.json", {"results": [{}, {"latency_s": bad}]})
    assert list(tmp_path.iterdir()) == []


def test_other_types_are_refused():
    with pytest.raises(XlaCostError, match=r"value\.f: a function cannot be written as JSON"):
        plain({"f": plain})
    with pytest.raises(XlaCostError, match=r"has the key \(1, 2\); must be a string"):
        plain({(1, 2): 3})


def test_canonical_json_does_not_depend_on_order_or_number_type():
    assert canonical_json({"b": np.int32(1), "a": (2,)}) == '{"a":[2],"b":1}'
    assert canonical_json({"a": [2], "b": 1}) == '{"a":[2],"b":1}'


def test_written_file_reads_back_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("old")
    path.chmod(0o640)
    write_json(path, {"µ": [1, 2.5, None, True]})
    assert read_json(path) == {"µ": [1, 2.5, None, True]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_a_new_file_gets_the_usual_permissions(tmp_path):
    (tmp_path / "usual").write_text("")
    write_json(tmp_path / "x.json", 1)
    assert (tmp_path / "x.json").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.json").write_text("1")
    (tmp_path / "link.json").symlink_to("real.json")
    write_json(tmp_path / "link.json", 2)
    assert (tmp_path / "link.json").is_symlink()
    assert read_json(tmp_path / "real.json") == 2


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_json(path, "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(XlaCostError, match=r"x\.json: cannot be written \(No space left"):
        write_json(path, "new")
    assert read_json(path) == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_dash_is_standard_output_and_input(capsys, monkeypatch):
    write_json("-", {"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[1]")))
    assert read_json("-") == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1,}', r"x\.json:1:\d+: .*; must be JSON"),
        (b"[1,\n2", r"x\.json:2:2: expecting ',' delimiter; must be JSON"),
        (b"\xff", r"x\.json: byte 0 is not UTF-8; must be JSON text"),
        (b'{"a": NaN}', r"x\.json: holds NaN; JSON numbers must be finite"),
        (b"[" * 100_000, r"x\.json: is nested too deep to be read"),
        (b"", r"x\.json:1:1: expecting value; must be JSON"),
    ],
)
def test_bad_files_are_named_with_line_and_column(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(XlaCostError, match=message):
        read_json(path)


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(XlaCostError, match=r"none\.json: cannot be read \(No such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(XlaCostError, match=r"cannot be written \(No such file"):
        write_json(tmp_path / "none" / "x.json", 1)
    with pytest.raises(XlaCostError, match=r"cannot be written \(is a folder\)"):
        write_json(tmp_path, 1)


def test_a_device_is_written_directly():
    write_json("/dev/null", {"a": 1})
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_folder_is_made_or_refused_in_one_sentence(tmp_path):
    folder = tmp_path / "a" / "b"
    make_folder(folder, "--out")
    make_folder(folder, "--out")
    assert folder.is_dir()
    (folder / "file").write_text("kept")
    with pytest.raises(XlaCostError) as refusal:
        make_folder(folder / "file", "--out")
    assert str(refusal.value) == (
        f"--out {folder / 'file'}: cannot be used (File exists); expected a folder that can be "
        "written to"
    )


def test_a_file_that_cannot_be_written_is_refused_beforehand(tmp_path):
    for fine in (None, "", "-", tmp_path / "new.json"):
        check_file(fine, "--json")
    assert not (tmp_path / "new.json").exists()
    for path, reason in (
        (tmp_path, "it is a folder"),
        (tmp_path / "no" / "r.json", f"there is no folder {tmp_path / 'no'}"),
    ):
        with pytest.raises(XlaCostError) as refusal:
            check_file(path, "--json")
        assert str(refusal.value) == (
            f"--json {path}: cannot be written ({reason}); expected a file in a folder that can "
            "be written to"
        )
