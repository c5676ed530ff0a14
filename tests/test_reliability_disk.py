"""Disks that are full or cannot be written: one line, exit 2, and what was there stays."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from xla_cost.cli.app import run

MODULE = Path(__file__).parent / "hlo_modules" / "oracle" / "collectives.hlo"

#: The kernel refuses to let any file grow beyond 512 bytes, as on a disk that is full.
FULL = """
import resource, signal, sys
from xla_cost.cli.app import run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
sys.exit(run(sys.argv[1:]))
"""


def on_a_full_disk(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FULL, *arguments], capture_output=True, text=True, check=False
    )


def test_a_full_disk_keeps_the_old_result(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    assert run(["inspect", str(MODULE), "--json", str(out)]) == 0
    before = out.read_bytes()
    assert len(before) > 512
    done = on_a_full_disk("inspect", str(MODULE), "--json", str(out))
    assert done.returncode == 2
    assert done.stderr == f"xla-cost: {out}: cannot be written (File too large)\n"
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


def test_a_full_disk_leaves_no_half_report(tmp_path: Path) -> None:
    result, page = tmp_path / "result.json", tmp_path / "page.html"
    assert run(["inspect", str(MODULE), "--json", str(result)]) == 0
    done = on_a_full_disk("report", str(result), "--out", str(page))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [result]


def test_a_dump_that_cannot_be_written_ends_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of a mesh, so none is rejected for it."""
    monkeypatch.setenv("XLA_COST_CACHE", "off")
    place = tmp_path / "r.json"
    arguments = ["--devices", "2", "--machine", "b300", "--seq", "16", "--batch", "8", "-q"]
    done = on_a_full_disk(
        "search", "tiny", *arguments, "--processes", "0", "--json", str(place)
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("xla-cost: the dump of XLA cannot be written in ")
    assert done.stderr.count("\n") == 1
    assert not place.exists()


def test_a_cache_that_cannot_be_made_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody, not even root, can make a folder in /proc."""
    monkeypatch.setenv("XLA_COST_CACHE", "/proc/xla-cost-cache")
    out = tmp_path / "r.json"
    with caplog.at_level(logging.WARNING, logger="xla_cost.cache"):
        arguments = ["tiny", "--mesh", "2x4x1", "--quiet", "--json", str(out)]
        assert run(["estimate", *arguments]) == 0
    assert json.loads(out.read_text())["results"][0]["latency_s"] > 0
    told = [record for record in caplog.records if record.name == "xla_cost.cache"]
    assert len(told) == 1
    assert "going on without it" in told[0].getMessage()


@pytest.mark.parametrize(
    "arguments",
    [("inspect", str(MODULE), "--json"), ("machines", "b300", "--json"), ("models", "--json")],
)
def test_a_folder_that_is_not_there_is_named(
    arguments: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "none" / "r.json"
    assert run([*arguments, str(place)]) == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith(f"xla-cost: {place}: cannot be")
