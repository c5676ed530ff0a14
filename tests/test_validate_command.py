"""`xla-cost validate`: an option that would be ignored is refused before anything runs."""

from __future__ import annotations

import pytest

from xla_cost.cli.app import run


def test_check_needs_the_folder_it_compares_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "--check"]) == 2
    assert capsys.readouterr() == (
        "",
        "xla-cost: --check: given without --docs; expected the folder it compares with\n",
    )
