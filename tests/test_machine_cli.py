"""`xla-cost machines`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from xla_cost.cli.machines import machines
from xla_cost.machine import load, names

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, name: str = "", out: str = "") -> str:
    machines(name, out)
    return capsys.readouterr().out


def test_the_list_names_every_machine(capsys: Capture) -> None:
    lines = run(capsys).splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(names())]] == names()


@pytest.mark.parametrize("name", ["b300", "rubin-photonic", "tpu-v5p", "hyperx-16x128"])
def test_one_machine_shows_every_figure_in_80_columns(capsys: Capture, name: str) -> None:
    text = run(capsys, name)
    assert max(map(len, text.splitlines())) <= 80
    words = set(text.split())
    machine = load(name)
    for figure in machine.figures:
        key = figure.key.rpartition(".")[2]
        assert ".collectives." in figure.key or key in words
        assert set(figure.source.split()) <= words
    for tier in machine.tiers:
        for fit in tier.collectives:
            assert fit.kind + ("*" if fit.inherited_from else "") in words
            assert f"{fit.efficiency:.3g}" in words


def test_tiers_without_fit_or_efficiency_are_told_apart(capsys: Capture) -> None:
    """The ICI has an efficiency and no fit, the data-centre network neither."""
    lines = run(capsys, "tpu-v5e").splitlines()
    assert "none: what counts is the efficiency of each tier" in lines
    said = "assumed: tier dcn: no efficiency given, priced at its full rate"
    assert [line for line in lines if line.startswith("assumed")] == [said]
    assert "assumed" not in run(capsys, "b300")


def test_json_alone_on_standard_output(capsys: Capture) -> None:
    found = json.loads(run(capsys, "b300", "-"))["machines"][0]
    assert found["name"] == "b300"
    assert found["tiers"][1]["bandwidth_bytes_per_s"] == 100e9


def test_a_bad_name_is_one_line_and_exit_two_without_jax() -> None:
    code = "import sys; from xla_cost.__main__ import main; main()"
    found = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, "machines", "b400"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 2
    imported = [line.rpartition("|")[2].strip() for line in found.stderr.splitlines()]
    assert not {"jax", "numpy", "pandas"} & set(imported)
    assert found.stderr.splitlines()[-1].startswith("xla-cost: machine: 'b400' is unknown")
