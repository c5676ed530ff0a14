"""Every machine file shown in docs/machines.md loads and prices as the text says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from network_machines import collective, rows

from xla_cost.machine import Machine, load
from xla_cost.network import CALIBRATED, collective_time

PAGE = Path(__file__).parent.parent / "docs" / "machines.md"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    folder = tmp_path_factory.mktemp("docs")
    blocks = re.findall(r"```toml\n# FILE: (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, text in blocks:
        (folder / name).write_text(text, encoding="utf-8")
    return {name.removesuffix(".toml"): load(folder / name) for name, _ in blocks}


def test_the_page_shows_these_fabrics(shown: dict[str, Machine]) -> None:
    assert list(shown) == ["rack64", "rack64-photonic", "circuits", "two-level", "hyperx"]
    assert shown["rack64-photonic"].memory_capacity_bytes == 144e9
    assert shown["rack64-photonic"].marks == (
        "speculative: rack64-photonic", "inherited: efficiencies of b300",
    )  # fmt: skip


def test_circuits_are_set_for_every_eight_partners(shown: dict[str, Machine]) -> None:
    exchange = collective("all-to-all", rows(1, 64), 0)
    time = collective_time(exchange, shown["circuits"], CALIBRATED)
    assert time.seconds == pytest.approx(8 * 10e-6 + 0.3e-6)  # ceil(63 / 8) settings


def test_the_twin_gathers_faster(shown: dict[str, Machine]) -> None:
    gather = collective("all-gather", rows(4, 64), 10**8)
    copper = collective_time(gather, shown["rack64"], CALIBRATED).seconds
    optical = collective_time(gather, shown["rack64-photonic"], CALIBRATED).seconds
    assert optical < copper / 3


def test_no_fabric_of_the_page_counts_as_perfect(shown: dict[str, Machine]) -> None:
    assert [machine.assumed_rates for machine in shown.values()] == [()] * len(shown)
