"""Right answers over a folder of HLO text that others wrote.

The files are other people's data and no part of this project: name the folder in the
environment variable XLA_COST_CORPUS, or these tests are skipped.
"""

from __future__ import annotations

import os
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from xla_cost.inspect import inspect_path

FOLDER = os.environ.get("XLA_COST_CORPUS", "")
pytestmark = pytest.mark.skipif(
    not FOLDER, reason="XLA_COST_CORPUS names no folder with the HLO corpus"
)


@lru_cache(maxsize=16)
def read(start: str) -> dict[str, Any]:
    """The summary of the one file that begins so."""
    (path,) = sorted(Path(FOLDER).glob(f"{start}*.hlo"))
    return inspect_path(path)


def module(start: str) -> dict[str, Any]:
    """The only module of a file."""
    (found,) = read(start)["modules"]
    return found  # type: ignore[no-any-return]


def products(found: dict[str, Any]) -> int:
    """FLOPs of dots and convolutions of every spelling, library calls left out."""
    return sum(v for k, v in found["flops_by_opcode"].items() if k != "custom-call")


def moved(found: dict[str, Any], *keys: str) -> dict[tuple[Any, ...], tuple[int, int]]:
    """(bytes, executions) of the collectives by the given fields."""
    total: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for row in found["collectives"]:
        entry = total[tuple(row[key] for key in keys)]
        entry[0] += row["payload_bytes"] * row["executions"]
        entry[1] += row["executions"]
    return {key: (size, times) for key, (size, times) in total.items()}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("s01", 0),
        ("s03", 6 * 12_884_901_888),
        ("s05", 0),
        ("s10", 4 * 268_435_456),
        ("t02", 2 * 536_870_912),
        ("t03", 0),
        ("t04", 3 * 32_768 + 2 * 16_384),
        ("c01", 0), ("c02", 0), ("c03", 0), ("c04", 0), ("c08", 0), ("c09", 0),
        ("c11", 25 * 2_147_483_648),
        ("c15", 4_194_304),
        ("c18", 16 * 33_554_432),
        ("c21", 0), ("c23", 0),
        ("d06", 262_144),
        ("d08", 1_024),
        ("d09", 2_147_483_648),
        ("d10", 65_536),
        ("i01", 0),
        ("m03", 24_693_450_611_884_032),
        ("m06", 234_825_222_979_584),
        ("m14", 2_107_052_580_864),
        ("m15", 263_381_572_608),
        ("n01", 402_670_592),
    ],
)  # fmt: skip
def test_flops_of_dots_and_convolutions(start: str, expected: int) -> None:
    assert products(module(start)) == expected


@pytest.mark.parametrize(("start", "flops"), [("d01", 2_000_000), ("d02", 2_147_483_648)])
def test_flops_of_library_products(start: str, flops: int) -> None:
    found = module(start)
    assert found["flops"] == found["flops_by_opcode"]["custom-call"] == flops
    assert found["unpriced"] == []


def test_an_fp8_library_product_reads_its_operands_and_not_its_workspace() -> None:
    found = module("d02")
    assert found["flops_by_format"] == {"fp8": 2_147_483_648}
    assert found["bytes_read"] == 2 * 1_048_576
    assert found["bytes_written"] == 2 * 1024 * 1024


def test_packed_operands() -> None:
    # values 4,096 (f4) and 4,096 (f8), and scales of 32 x 8 and 16 x 8
    assert module("d06")["bytes_read"] == 4096 + 4096 + 32 * 8 + 16 * 8


@pytest.mark.parametrize(
    ("start", "kind", "size", "groups", "payload", "executions"),
    [
        ("s05", "all-gather", 8, 1, 262_144, 1),
        ("c01", "all-reduce", 10, 2, 16_384, 1),
        ("c02", "all-reduce", 2, 2, 16_384, 1),
        ("c03", "ragged-all-to-all", 4, 2, 524_288, 1),
        ("c04", "ragged-all-to-all", 2, 1, 64, 4),
        ("c08", "reduce-scatter", 4, 1, 24_576, 1),
        ("c09", "collective-permute", 2, 2, 16_384, 1),
        ("c15", "all-to-all", 4, 1, 65_536, 1),
        ("c18", "all-reduce", 4, 1, 2, 16),
        ("c21", "all-to-all", 16, 8, 3_758_096_384, 1),
        ("c23", "all-reduce", 1, 1, 4, 10),
        ("i01", "all-reduce", 4, 1, 20_480_000, 1),
    ],
)
def test_the_one_collective(
    start: str, kind: str, size: int, groups: int, payload: int, executions: int
) -> None:
    (row,) = module(start)["collectives"]
    keys = ("kind", "group_size", "groups", "payload_bytes", "executions")
    assert tuple(row[key] for key in keys) == (kind, size, groups, payload, executions)


def test_sends_count_once() -> None:
    assert moved(module("c11"), "kind", "payload_bytes") == {
        ("send-recv", 4_194_304): (52 * 4_194_304, 52)
    }


def test_n01_all_reduces() -> None:
    assert moved(module("n01"), "kind", "group_size", "payload_bytes") == {
        ("all-reduce", 8, 65_536): (2 * 65_536, 2)
    }


def test_groups_of_one() -> None:
    sizes = {row["kind"]: row["group_size"] for row in module("n03")["collectives"]}
    assert (sizes["all-gather"], sizes["reduce-scatter"]) == (1, 1)


def test_the_first_layer_of_the_tpu_model() -> None:
    rows = {row["name"]: row for row in module("m01")["computations"]}
    (layer,) = [row for name, row in rows.items() if name.startswith("wide.region_1.8")]
    q_up, kv_up, out, gate, q_down, kv_down = (
        9_663_676_416, 4_294_967_296, 2_147_483_648, 2_415_919_104, 201_326_592, 75_497_472,
    )  # fmt: skip
    assert products(layer) == q_up + kv_up + out + 3 * gate + q_down + kv_down == 23_630_708_736
    total = sum(c["payload_bytes"] * c["executions"] for c in layer["collectives"])
    assert {(c["kind"], c["group_size"]) for c in layer["collectives"]} == {("all-gather", 4)}
    assert (total, sum(c["executions"] for c in layer["collectives"])) == (46_154_752, 10)


def test_llama_405b() -> None:
    found = module("m03")
    assert moved(found, "kind", "format", "group_size") == {
        ("all-gather", "bf16", 128): (12_617_121_792, 1_766),
        ("all-reduce", "bf16", 128): (811_706_777_600, 1_137),
        ("all-reduce", "fp32", 128): (148, 37),
        ("all-reduce", "s32", 128): (4, 1),
    }
    # attention: 126 layers, two forwards (one is recomputed) and a backward of 2.5 each
    forward = 4 * 1 * 128 * 8192 * 8192 * 128
    assert found["flops_by_opcode"]["custom-call"] == 126 * (2 * forward + forward * 5 // 2)
    assert [loop["trips"] for loop in found["loops"]] == [126, 126]


def test_llama_8b_context_parallel() -> None:
    found = moved(module("m06"), "kind", "format")
    assert found["all-gather", "bf16"] == (7_504_658_432, 450)
    assert found["all-reduce", "bf16"] == (16_060_522_496, 291)
    assert found["collective-permute", "bf16"] == (8_053_063_680, 352)
    pairs = {r["groups"] for r in module("m06")["collectives"] if r["kind"] == "collective-permute"}
    assert pairs == {4}


def test_a_batch_eight_times_as_big_costs_eight_times_as_much() -> None:
    assert products(module("m14")) == 8 * products(module("m15"))


def test_a_loop_on_data_is_said_to_be_one() -> None:
    assert module("m11")["unknown_trip_counts"] == ["while.7"]


def test_every_file_ends_in_a_reading_or_in_one_clear_reason() -> None:
    found = inspect_path(FOLDER)
    read_files = {Path(row["file"]).name for row in found["modules"]}
    failed = {Path(row["file"]).name: row["error"] for row in found["failed"]}
    assert read_files | failed.keys() == {path.name for path in Path(FOLDER).rglob("*.hlo")}
    assert not read_files & failed.keys()
    assert all(error and "\n" not in error for error in failed.values())
    # two negative tests, and one module that is a protobuf printed as text
    assert {name[:3] for name in failed} == {"c24", "c25", "s21"}
    for row in found["modules"]:
        assert 0.0 <= row["coverage"] <= 1.0
        for unpriced in row["unpriced"]:
            assert "reads" in unpriced["note"]
