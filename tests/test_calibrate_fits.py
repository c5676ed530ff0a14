"""Fits find the parameters that made synthetic rows, and hold rows out the same way each time."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from xla_cost.calibrate.collectives import TierFit
from xla_cost.calibrate.fitting import errors, predict, rounding
from xla_cost.calibrate.machine_fit import Calibration
from xla_cost.calibrate.rows import Rows, best_source, is_held_out
from xla_cost.calibrate.writing import rewrite
from xla_cost.errors import XlaCostError
from xla_cost.kernel_time import AttentionFit, FitRecord, GemmFit, MemoryFit, from_table
from xla_cost.kernel_time.seconds import matmul_s
from xla_cost.machine import load
from xla_cost.program import Matmul

TRUE = GemmFit(0.8, half_m=8.0, half_n=50.0, half_k=100.0, half_outputs=1e5,
               memory_efficiency=0.9, sharpness=3.0, floor_us=3.0)  # fmt: skip
RATE, BANDWIDTH = 1e15, 3e12


def gemm_rows(m: list[float], n: list[float], k: list[float]) -> Rows:
    columns = tuple(np.array(values, dtype=float) for values in ([1.0] * len(m), m, n, k))
    _, rows, width, depth = columns
    keys = tuple(f"gemm:{a},{b},{c}" for a, b, c in zip(m, n, k, strict=True))
    blank = Rows(
        kind="gemm", number_format="bf16", seconds=rows, keys=keys, source="made up",
        total_bytes=2 * (rows * depth + width * depth + rows * width),
        size=2 * rows * width * depth, reserved=np.zeros(len(m), dtype=bool),
    )  # fmt: skip
    blank = dataclasses.replace(blank, products=((*columns, blank.total_bytes),))
    return dataclasses.replace(blank, seconds=predict(TRUE, blank, RATE, BANDWIDTH))


def test_prediction_for_arrays_is_the_pricing_function() -> None:
    rows = gemm_rows([1, 700], [512, 4096], [7168, 2048])

    @dataclasses.dataclass
    class Toy:
        peak_flops: dict[str, float]
        memory_bytes_per_s: float
        kernel_times: Any

    record = dataclasses.asdict(TRUE)
    del record["record"]
    toy = Toy({"bf16": RATE}, BANDWIDTH, from_table({"gemm": {"bf16": record}}, "toy"))
    for i, (m, n, k) in enumerate([(1, 512, 7168), (700, 4096, 2048)]):
        one = matmul_s(toy, Matmul(1, m, n, k, "bf16"), rows.total_bytes[i], 0.0)
        assert rows.seconds[i] == pytest.approx(one, rel=1e-12)


def test_fit_recovers_what_made_the_rows() -> None:
    pytest.importorskip("scipy", reason="scipy comes with the calibrate extra")
    from xla_cost.calibrate.fitting import fit_rows

    grid = [(m, n, k) for m in (1, 16, 128, 1024, 8192)
            for n in (256, 1024, 4096, 16384) for k in (128, 1024, 8192)]  # fmt: skip
    rows = gemm_rows(*(list(map(float, column)) for column in zip(*grid, strict=True)))
    fit = fit_rows(rows, RATE, BANDWIDTH, "package 1")
    assert fit.record.rows + fit.record.held_out_rows == 60
    assert fit.record.median_error < 0.01
    assert fit.efficiency == pytest.approx(TRUE.efficiency, rel=0.05)
    assert fit.floor_us == pytest.approx(TRUE.floor_us, rel=0.05)


def test_split_depends_on_the_content_of_a_row_alone() -> None:
    keys = [f"gemm bf16:{m},4096,4096" for m in range(1000)]
    held = is_held_out(keys)
    assert 150 < held.sum() < 250  # one in five
    assert list(is_held_out(reversed(keys))) == list(reversed(list(held)))


def test_reserved_rows_are_held_out() -> None:
    rows = gemm_rows([8192.0] * 3, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    rows = dataclasses.replace(rows, reserved=np.array([True, True, True]))
    assert rows.held_out.all()


def test_errors_are_relative_to_the_measurement() -> None:
    measured, predicted = np.array([1.0, 2.0, 4.0]), np.array([1.1, 2.0, 3.0])
    # |0.1|, 0, |-0.25|: median 0.1, 90th percentile 0.1 + 0.8 * 0.15
    assert errors(measured, predicted) == (0.1, 0.22)
    assert errors(np.array([]), np.array([])) == (None, None)


def test_the_kernel_that_is_mostly_fastest_is_chosen_whole() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "table": ["a"] * 3 + ["b"] * 3,
            "kernel_source": ["fast"] * 3 + ["slow"] * 3,
            "m": [1, 2, 3, 1, 2, 3],
            "latency": [1.0, 1.0, 5.0, 2.0, 2.0, 4.0],
        }
    )
    chosen = best_source(frame, ["m"])
    assert set(chosen.kernel_source) == {"fast"}
    assert list(chosen.latency) == [1.0, 1.0, 5.0]


def test_rounding_keeps_four_digits_and_drops_solver_dust() -> None:
    assert rounding(0.123456) == 0.1235
    assert rounding(3e-12) == 0.0


TEXT = """# a machine of ours
title = "toy"  # keep me

[[tiers]]
name = "scale-up"
# about the size
size = 8

[tiers.collectives.all-reduce]
floor_us = 99.0

[[tiers]]
name = "scale-out"

[tiers.collectives.all-gather]
floor_us = 77.0

[efficiency]
launch_us = 50.0

[efficiency.gemm.bf16]
efficiency = 0.1

# about power
[power]
max_W = 700
"""

RECORD = FitRecord("package 1", 10, 2, 0.05, 0.1, 0.06, 0.2)
FITTED = Calibration(
    "toy",
    "package 1",
    {
        ("gemm", "bf16"): dataclasses.replace(TRUE, record=RECORD),
        ("mla_decode", "fp8"): AttentionFit(0.5, record=RECORD),
        ("quantize", ""): MemoryFit(0.7, 2.0, RECORD),
    },
    (TierFit("all-to-all", 5.0, 0.7, 2.0, 0.5, RECORD),),
)


def test_rewriting_touches_its_own_tables_only() -> None:
    after = rewrite(TEXT, FITTED)
    for kept in ("# a machine of ours", "# keep me", "# about the size", "floor_us = 77.0",
                 "[power]\nmax_W = 700", "# about power"):  # fmt: skip
        assert kept in after
    assert "99.0" not in after
    assert "launch_us = 50.0" not in after
    assert rewrite(after, FITTED) == after


def test_what_is_written_reads_back() -> None:
    import tomllib

    content = tomllib.loads(rewrite(TEXT, FITTED))
    assert content["tiers"][0]["collectives"]["all-to-all"]["half_MB"] == 2.0
    assert content["tiers"][1]["collectives"]["all-gather"]["floor_us"] == 77.0
    times = from_table(content["efficiency"], "toy")
    assert times.gemm["bf16"] == dataclasses.replace(TRUE, record=RECORD)
    assert times.mla_decode["fp8"].record.median_error == 0.05
    assert times.memory.efficiency == 0.7
    assert times.launch_us == 2.0


def test_what_is_fixed_is_not_fitted_and_the_group_is_written() -> None:
    pytest.importorskip("scipy", reason="scipy comes with the calibrate extra")
    from xla_cost.calibrate.collectives import Traffic, fit_traffic

    shares = 2.0 ** np.arange(20, 30)  # of one of 8 devices
    load = 8 * shares * (1 + 1 / 8)
    seconds = 25e-6 + 2e-6 + load * (1 + 3e6 / shares) / (900e9 * 0.5)
    traffic = Traffic(
        "all-reduce-in-switch", seconds, shares, load, 2.0, tuple(f"{v}" for v in shares),
        np.zeros(10, dtype=bool), "made up", 8, {"floor_us": 25.0, "ramp": 1.0},
    )  # fmt: skip
    fit = fit_traffic(traffic, 900e9, 1e-6, "package 1")
    assert (fit.floor_us, fit.ramp, fit.devices) == (25.0, 1.0, 8)
    assert fit.efficiency == pytest.approx(0.5, rel=1e-3)
    assert fit.half_MB == pytest.approx(3.0, rel=1e-3)
    written = rewrite(TEXT, dataclasses.replace(FITTED, collectives=(fit,)))
    assert "devices = 8" in written
    assert "devices" not in rewrite(TEXT, FITTED)


def test_a_file_without_tiers_is_refused() -> None:
    with pytest.raises(XlaCostError, match=r"toy.toml: no \[\[tiers\]\] table"):
        rewrite("title = 'x'\n", FITTED, "toy.toml")


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "gb200", "b300", "gb300"])
def test_every_measured_machine_carries_its_fits(name: str) -> None:
    machine = load(name)
    assert machine.kernel_times.source == "aiconfigurator-core 0.12.0"
    fits = machine.kernel_times.gemm
    assert fits.keys() >= {"bf16", "fp8"}
    for fit in fits.values():
        assert fit.record.rows > 20000
        assert fit.record.median_error is not None
        assert fit.record.median_error < 0.12
    kinds = {fit.kind for fit in machine.scale_up.collectives}
    assert kinds >= {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "dispatch"}


@pytest.mark.parametrize("name", ["h800", "rubin", "r4", "b300-photonic", "r4-photonic"])
def test_a_machine_nobody_measured_says_whose_efficiencies_it_has(name: str) -> None:
    machine = load(name)
    assert machine.kernel_times.inherited_from == machine.inherits_efficiency_from != ""
    assert f"inherited: efficiencies of {machine.inherits_efficiency_from}" in machine.marks


def test_exchanges_of_a_twin_fabric_are_fitted_to_its_one_sided_kernels(monkeypatch) -> None:
    """DeepEP on the four GPUs of a GB300 node is left aside for what was measured on the GB200."""
    pandas = pytest.importorskip("pandas")
    from xla_cost.calibrate import collectives

    tokens, topk, hidden = 4096, 8, 7168

    class Measured:
        def __init__(self, one_sided: bool) -> None:
            self.one_sided = one_sided

        def read(self, pattern: str, columns: list[str]) -> Any:
            row = {"op_name": "alltoall_combine", "kernel_source": "NVLinkOneSided",
                   "moe_dtype": "nvfp4", "num_tokens": tokens, "hidden_size": hidden, "topk": topk,
                   "moe_ep_size": 16, "latency": 0.5, "node_num": 1, "num_token": tokens,
                   "num_topk": topk, "combine_transmit_us": 2000.0,
                   "table": "comm/some/1"}  # fmt: skip
            found = pandas.DataFrame([row])[[*columns, "table"]]
            return found if self.one_sided or "deepep" in pattern else found.iloc[:0]

    monkeypatch.setattr(collectives, "tables_of", lambda name: Measured(name == "gb200"))
    for machine, seconds, members in (("gb300", 0.5e-3, 16), ("b300", 2e-3, 8)):
        found = collectives._moe_kernel(Measured(False), machine, "combine")
        assert found.seconds.tolist() == [seconds]
        assert found.source.startswith("gb200/comm") == (machine == "gb300")
        copies = topk if machine == "gb300" else 8 * (1 - (1 - 1 / 8) ** topk)
        load = tokens * hidden * 2 * copies * (members - 1) / members
        assert found.load_bytes.tolist() == pytest.approx([load])
