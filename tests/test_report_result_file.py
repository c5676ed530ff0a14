"""Result files from strangers: read strictly, refused in one sentence."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from report_results import RESULTS, estimate_result

from xla_cost.cli import app as cli
from xla_cost.errors import XlaCostError
from xla_cost.report.result_file import checked, read_result


@pytest.mark.parametrize("kind", RESULTS)
def test_kinds_are_told_apart(kind):
    assert checked(RESULTS[kind](), "r.json").kind == kind


def test_a_table_of_no_known_kind_is_still_a_result():
    assert checked({"rows_of": [{"a": 1}]}, "r.json").kind == "table"


def edited(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The estimate with one place changed, or taken away where `value` is ..."""
    result = copy.deepcopy(estimate_result())
    at: Any = result
    for step in path[:-1]:
        at = at[step]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return result


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("results", 0, "latency_s"), "1", "results[0].latency_s = '1'; expected a number of at"),
        (("results", 0, "latency_s"), -1.0, "results[0].latency_s = -1.0; expected a number of"),
        (("results", 1, "compute_s"), ..., "results[1].compute_s is missing; expected a number"),
        (("results", 0, "memory", "fits"), 1, "results[0].memory.fits = 1; expected true or fals"),
        (("results", 0, "machine"), None, "results[0].machine = None; expected a string"),
        (("results", 0, "tasks", "name"), [1], "results[0].tasks.name[0] = 1; expected a string"),
        (("results", 0, "timeline", "loops"), {}, "results[0].timeline.loops = a object; expected"),
        (("results",), {}, "results = a object; expected a list"),
        (("results",), [], "results is empty; expected at least one entry"),
        (("ratio",), True, "ratio = True; expected a number of at least 0"),
        (("provenance",), [], "provenance is a list; expected an object"),
        (("provenance", "result_version"), 2, "provenance.result_version = 2; this xla-cost reads"),
        (("provenance", "result_version"), "x" * 999, "provenance.result_version = 'xxx"),
    ],
)
def test_malformed_results_are_refused_with_their_place(path, value, said):
    with pytest.raises(XlaCostError) as caught:
        checked(edited(path, value), "r.json")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


EMPTY = ('{"results": [], "ratio": 1.0, "ratio_split": {}}', '{"points": []}')


@pytest.mark.parametrize(
    "text", ["[]", "3", '"x"', "null", "{}", '{"a": 1}', "", "{", "NaN", *EMPTY]
)
def test_what_is_no_result_exits_2_with_one_line(tmp_path, capfd, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    for command in ("report", "explain", "rerun"):
        arguments = [command, str(path)]
        if command == "report":
            arguments += ["--out", str(tmp_path / "r.html")]
        assert cli.run(arguments) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("xla-cost: ")
        assert err.count("\n") == 1
    assert not (tmp_path / "r.html").exists()


def test_numbers_beyond_the_range_and_endless_nesting_are_refused(tmp_path):
    path = tmp_path / "r.json"
    path.write_text('{"results": [], "ratio": 1e999}')
    with pytest.raises(XlaCostError, match="finite"):
        read_result(path)
    deep: Any = []
    for _ in range(150):
        deep = [deep]
    with pytest.raises(XlaCostError, match="nested deeper than 100"):
        checked({"rows": deep}, "r.json")


def test_later_versions_may_add_fields():
    result = edited(("results", 0, "new_field"), {"x": [1]})
    assert checked(result, "r.json").kind == "estimate"


def test_report_command_writes_the_page(tmp_path, capfd):
    path, out = tmp_path / "r.json", tmp_path / "r.html"
    path.write_text(json.dumps(estimate_result()))
    assert cli.run(["report", str(path), "--out", str(out)]) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert "wrote" in capfd.readouterr().err
    assert cli.run(["report", str(path), "--out", "-"]) == 0
    assert capfd.readouterr().out == out.read_text()
    assert cli.run(["report", str(path), "--out", str(tmp_path)]) == 2
    assert "is a folder" in capfd.readouterr().err
