"""`xla-cost serve`: options that are wrong or would be ignored are refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_serving_spec import GIVEN, command, write

from xla_cost.cache import Cache
from xla_cost.serving import simulate as simulation
from xla_cost.serving.lowered import Points, WorkerModel

TRACE = GIVEN.split("[load]")[0] + '[load]\narrivals = "trace"\ntrace = "t.csv"\n'


def refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> str:
    """What is said of bad arguments; nothing may be simulated."""

    def never(*_: object) -> None:
        raise AssertionError("simulated")

    monkeypatch.setattr(simulation, "_Simulation", never)
    assert command(monkeypatch, "serve", *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err.removeprefix("xla-cost: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--scenario study --seed -1", "--seed -1: expected a whole number of at least 0"),
        ("SPEC --seed -3", "--seed -3: expected a whole number of at least 0"),
        ("SPEC --concurrency 0", "--concurrency 0: expected a whole number of at least 1"),
        ("SPEC --requests 0", "--requests 0: expected a whole number of at least 1"),
        ("SPEC --ttft 3", "--ttft 3: given without --optimise; expected beside it"),
        ("--tpot-ms 9", "--tpot-ms 9: given without --optimise; expected beside it"),
        ("--optimise --ttft 0", "--ttft 0: expected a finite number above 0"),
        ("--optimise --ttft nan", "--ttft nan: expected a finite number above 0"),
        ("--optimise --tpot-ms -2", "--tpot-ms -2: expected a finite number above 0"),
        ("--optimise --tpot-ms inf", "--tpot-ms inf: expected a finite number above 0"),
        ("--optimise --policy none", "policy 'none' is unknown; expected one of"),
        ("--optimise --seed 3", "--optimise: beside --seed (3), which it does not look at;"),
        ("--optimise SPEC", "--optimise: beside SPEC ("),
        ("SPEC --series", "--series: given without --json; expected beside it"),
        ("SPEC --machine b300", "--machine b300: all pools of "),
        ("SPEC --against h100", "--against h100: all pools of "),
        ("--scenario study --machine none", "machine: 'none' is unknown; expected one of"),
        ("SPEC --policy study", "--policy study: given with "),
        ("TRACE --requests 5", "--requests 5: given with a trace, which is measured to its end;"),
    ],
)
def test_options_that_are_wrong_or_would_be_ignored(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "t.csv").write_text("arrival_s,input_tokens,output_tokens\n0,8,2\n")
    path = str(write(tmp_path, TRACE if "TRACE" in arguments else GIVEN))
    words = [path if word in ("SPEC", "TRACE") else word for word in arguments.split()]
    assert refusal(monkeypatch, capsys, *words).startswith(message)


def test_the_folder_is_made_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path, GIVEN))
    file = tmp_path / "afile"
    file.write_text("kept")
    for place, reason in ((file, "File exists"), (file / "x", "Not a directory")):
        assert refusal(monkeypatch, capsys, path, "--out", str(place)) == (
            f"--out {place}: cannot be used ({reason}); expected a folder that can be written to"
        )
        assert refusal(monkeypatch, capsys, "--optimise", "--out", str(place)).startswith("--out")
    assert file.read_text() == "kept"


def test_a_mistake_that_only_the_simulation_sees_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path, GIVEN.replace("kv_tokens = 100000", "kv_tokens = 1000")))
    assert command(monkeypatch, "serve", path) == 2
    assert "xla-cost: spec.toml: decode.kv_tokens = 1000: request 0 needs" in (
        capsys.readouterr().err
    )


def test_files_are_said_and_quiet_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = str(write(tmp_path, GIVEN)), tmp_path / "new" / "out"
    assert command(monkeypatch, "serve", path, "--out", str(out)) == 0
    said = capsys.readouterr().err.splitlines()
    assert sorted(said) == [f"wrote {file}" for file in sorted(out.iterdir())]
    answer = tmp_path / "a.json"
    assert command(
        monkeypatch, "serve", path, "--quiet", "--out", str(out), "--json", str(answer)
    ) == 0  # fmt: skip
    assert capsys.readouterr() == ("", "")
    assert json.loads(answer.read_text())["requests"] == 60


def test_only_points_that_are_made_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"latency_s": 1.0, "energy_j": 2.0}
    monkeypatch.setattr(Points, "_made", lambda *_: made)
    worker = WorkerModel("tiny", (1, 2, 1), "dp-attention", "b300")
    for expected in (["pricing tiny decode 4 x 64"], []):  # the second time it is in the cache
        said: list[str] = []
        points = Points(worker, Cache(tmp_path), said.append)
        for _ in range(2):
            assert points("decode", 4, 64).energy_j == 2.0
        assert said == expected
