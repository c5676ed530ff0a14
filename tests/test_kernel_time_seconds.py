"""Kernel times: the arithmetic of each form, monotonicity, strict tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_cost.errors import XlaCostError
from xla_cost.kernel_time import (
    KernelTimes,
    from_table,
    kernel_s,
    launch_s,
    matmul_s,
    memory_s,
    peak_flops,
)
from xla_cost.program import Matmul, Op

TABLE = {
    "launch_us": 2,
    "source": "a test",
    "memory": {"efficiency": 0.5, "floor_us": 2},
    "quantize": {"efficiency": 0.25, "floor_us": 4},
    "gemm": {
        "bf16": {
            "efficiency": 0.5, "half_m": 1, "half_n": 2, "half_k": 4, "half_outputs": 10,
            "memory_efficiency": 0.5, "sharpness": 1, "floor_us": 3, "median_error": 0.08,
        }
    },
    "grouped_gemm": {"bf16": {"efficiency": 0.25, "sharpness": 2, "floor_us": 0}},
    "flash_attention": {
        "bf16": {
            "efficiency": 0.5, "half_kv": 8, "half_rows": 32, "half_depth": 4,
            "sharpness": 1, "floor_us": 0,
        }
    },
}  # fmt: skip


@dataclass(frozen=True)
class Toy:
    """1 TFLOP/s bf16, 4 TFLOP/s fp8, 1 GB/s."""

    peak_flops: Mapping[str, float] = field(default_factory=lambda: {"bf16": 1e12, "fp8": 4e12})
    memory_bytes_per_s: float = 1e9
    kernel_times: KernelTimes = field(default_factory=lambda: from_table(TABLE, "toy"))


def test_matmul_adds_padding_ramps_and_floor() -> None:
    matmul = Matmul(batch=2, m=3, n=4, k=6, format="bf16")
    # outputs 2 * (3+1) * (4+2) + 10 = 58, deep 6+4 = 10, so 2 * 58 * 10 = 1160 FLOPs at 0.5 TF
    compute_s = 1160 / 0.5e12
    memory = 30 / 0.5e9  # sharpness 1: no overlap, so the two add
    assert matmul_s(Toy(), matmul, 20, 10) == pytest.approx(3e-6 + compute_s + memory, rel=1e-12)


def test_grouped_matmul_uses_its_own_fit_and_smooth_maximum() -> None:
    matmul = Matmul(batch=10, m=100, n=100, k=100, format="bf16", grouped=True)
    compute_s = 2e7 / 0.25e12
    memory = 1e5 / 0.8e9
    assert matmul_s(Toy(), matmul, 1e5, 0) == pytest.approx(
        (compute_s**2 + memory**2) ** 0.5, rel=1e-12
    )


def test_attention_ramps_with_keys_and_rows_and_skips_causal_work() -> None:
    scores = Matmul(4, 32, 24, 8, "bf16")
    values = Matmul(4, 32, 8, 24, "bf16")
    op = Op("a", "kernel", "kernel", (), matmuls=(scores, values), work=0.5,
            region="flash_attention")  # fmt: skip
    flops = 0.5 * 2 * (2 * 4 * 32 * 24 * 8)
    ramp = (1 + 8 / 24) * (1 + 32 / 128) * (1 + 4 / 8)
    assert kernel_s(Toy(), op) == pytest.approx(ramp * flops / 0.5e12, rel=1e-12)


def test_streams_and_launch() -> None:
    quantize = Op("q", "kernel", "kernel", (), region="quantize", bytes_read=100, bytes_written=50)
    assert kernel_s(Toy(), quantize) == pytest.approx(4e-6 + 150 / 0.25e9, rel=1e-12)
    assert memory_s(Toy(), 150) == pytest.approx(2e-6 + 150 / 0.5e9, rel=1e-12)
    assert launch_s(Toy()) == 2e-6


def test_a_format_without_a_unit_runs_in_the_next_wider_one() -> None:
    assert peak_flops(Toy(), "fp4") == 4e12
    assert peak_flops(Toy(), "fp16") == 1e12
    assert peak_flops(Toy(), "fp32") == pytest.approx(1e12 / 6)
    with pytest.raises(XlaCostError, match="no peak for format 'fp12'"):
        peak_flops(Toy(), "fp12")


def test_an_empty_table_gives_published_constants_with_sources() -> None:
    times = from_table({}, "toy.toml: efficiency")
    assert times.gemm_fit("bf16").efficiency == 0.72
    assert times.gemm_fit("fp4").record.source != ""
    assert times.grouped_fit("int8") == times.gemm_fit("fp8")
    assert times.mla_decode_fit("bf16") == times.attention_fit("bf16")
    assert times.mla_prefill_fit("bf16") == times.attention_fit("bf16")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"gem": {}}, "t: unknown key 'gem'"),
        ({"gemm": {"fp12": {}}}, "t.gemm: unknown key 'fp12'"),
        ({"gemm": {"bf16": {}}}, "t.gemm.bf16: no efficiency; expected a share"),
        (
            {"gemm": {"bf16": {"efficiency": 1.5}}},
            "efficiency = 1.5; must be at most 1 (a share of peak)",
        ),
        ({"gemm": {"bf16": {"efficiency": 0}}}, "t.gemm.bf16.efficiency = 0; must be > 0"),
        ({"memory": {"efficiency": "x"}}, "t.memory.efficiency = 'x'; expected a number >= 0"),
        ({"memory": 3}, "t.memory = 3; expected a table"),
        ({"launch_us": float("nan")}, "t.launch_us = nan; expected a number >= 0"),
    ],
)
def test_bad_tables_are_refused_by_place(table: dict[str, object], message: str) -> None:
    with pytest.raises(XlaCostError) as caught:
        from_table(table, "t")
    assert message in str(caught.value)


SIZE = st.integers(1, 1 << 20)


@given(batch=st.integers(1, 512), m=SIZE, n=SIZE, k=SIZE, grow=st.integers(1, 1 << 10))
def test_time_never_falls_when_a_size_grows(batch: int, m: int, n: int, k: int, grow: int) -> None:
    def seconds(*sizes: int) -> float:
        return matmul_s(Toy(), Matmul(*sizes, "bf16"), 1, 1)

    base = seconds(batch, m, n, k)
    grown = [seconds(batch + grow, m, n, k), seconds(batch, m + grow, n, k),
             seconds(batch, m, n + grow, k), seconds(batch, m, n, k + grow)]  # fmt: skip
    assert 0 < base <= min(grown)
