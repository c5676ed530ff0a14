"""Points, bars and the document of `xla-cost validate`."""

from pathlib import Path

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.machine import load
from xla_cost.policy import CALIBRATED
from xla_cost.validate import BARS, Point, describe, summaries, validate
from xla_cost.validate.document import causes_of, replaced, tables_of, update_file, updated
from xla_cost.validate.network_points import GIB, bus_gbps, seconds
from xla_cost.validate.serving_points import serving_policy


def point(group: str, measured: float, predicted: float, cause: str = "") -> Point:
    return Point(group, "a row", "h100", "ms", measured, predicted, "somebody", cause)


def test_error_is_relative_and_bars_are_per_group() -> None:
    near, far, free = (
        point("deepep", 2.0, 2.2), point("deepep", 2.0, 1.0), point("gemm", 1.0, 9.0)
    )  # fmt: skip
    assert near.error == pytest.approx(0.1)
    assert far.error == -0.5
    assert [near.misses, far.misses, free.misses] == [False, True, False]
    deepep, gemm = summaries([near, far, free])
    assert deepep.median_error == pytest.approx(0.3)  # of 0.1 and 0.5
    assert (deepep.points, deepep.missed, deepep.passes, gemm.passes) == (2, 1, False, None)


def test_json_has_medians_points_and_what_was_left_out() -> None:
    found = describe([point("deepep", 2.0, 1.0, "slow")], ["decode: no extra"])
    assert found["groups"][0]["median_error"] == 0.5
    assert found["points"][0]["cause"] == "slow"
    assert found["skipped"] == ["decode: no extra"]


def test_bus_bandwidth_is_nccls() -> None:
    # 8 GPUs, 1 GiB in 10 ms: 2 * 7/8 * 2^30 B / 0.01 s
    assert bus_gbps("all-reduce", 8, GIB, 0.01) == pytest.approx(2 * 7 / 8 * 2**30 / 0.01 / 1e9)
    assert bus_gbps("all-gather", 8, GIB, 0.01) == pytest.approx(7 / 8 * 2**30 / 0.01 / 1e9)


def test_dispatch_kernels_are_faster_than_nccl_all_to_all_on_gb200() -> None:
    machine, vector = load("gb200"), 2.0**28
    assert seconds(machine, "all-to-all", 32, vector, role="dispatch") < seconds(
        machine, "all-to-all", 32, vector
    )


def test_decode_rows_are_priced_as_anybody_prices_them() -> None:
    rules, calibrated = serving_policy().describe(), CALIBRATED.describe()
    changed = {key for key in rules if rules[key] != calibrated[key]} - {"name"}
    assert changed == {"dedup", "top_k", "max_pods"}  # how tokens are exchanged, nothing else


def test_quick_parts_hold_their_bars_but_for_racks() -> None:
    outcome = validate(("network",))
    medians = {one.group: one.passes for one in summaries(outcome.points)}
    assert medians["nccl above 16 MiB"]
    assert medians["nvlink all-to-all"]
    assert medians["deepep"]
    assert all(point.cause for point in outcome.points if point.misses)
    assert set(BARS) >= {one.group for one in summaries(outcome.points) if one.bar}


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(XlaCostError, match="part 'nets'; expected one of network"):
        validate(("nets",))


def test_document_blocks_are_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "validation.md"
    path.write_text("head\n<!-- begin network -->\nold\n<!-- end network -->\ntail\n")
    points = {"network": [point("deepep", 2.0, 1.0, "slow links")]}
    assert update_file(path, points)
    text = path.read_text()
    assert text.startswith("head\n<!-- begin network -->\n| group |")
    assert text.endswith("<!-- end network -->\ntail\n")
    assert "| deepep | a row | h100 | ms | 2 | 1 | -50.0% **misses** |" in text
    assert "- slow links (h100 a row)" in text
    assert not update_file(path, points)  # nothing changed: current
    assert "old" not in tables_of(points["network"]) + causes_of(points["network"])


def test_a_document_without_the_block_is_refused() -> None:
    with pytest.raises(XlaCostError, match=r"v.md: no block network; expected <!-- begin network"):
        updated("text", {"network": []}, "v.md")
    assert replaced("<!-- begin a -->x<!-- end a -->", "a", "y", "f") == (
        "<!-- begin a -->\ny<!-- end a -->"
    )
