"""DeepSeek-V3 prefill and decode: this model beside aiconfigurator, in one run.

    python benchmarks/against_aiconfigurator.py [--docs docs]

Needs the `calibrate` extra. aiconfigurator answers twice: `SOL`, its speed of light (peaks, no
efficiency), and `SILICON`, look-up in its measured tables; both add their operators up, one
after the other. Ours is `study` (peaks) and `calibrated` (fits to the same tables, but a
schedule over the partitioned program). Same formats everywhere: fp8 with 128x128 scales for
GEMMs and experts, bf16 attention and cache.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.machine import load
from xla_cost.price import price
from xla_cost.programs import Request, model_program
from xla_cost.validate.document import read, replaced
from xla_cost.validate.serving_points import serving_policy

MODEL = "deepseek-ai/DeepSeek-V3"
BACKEND = "trtllm"


@dataclass(frozen=True, slots=True)
class Case:
    """One phase on 8 ranks; `batch` counts sequences of one rank, or of all under heads."""

    machine: str
    system: str
    phase: str
    data_parallel: bool
    batch: int
    length: int

    @property
    def name(self) -> str:
        """For the table."""
        attention = "data" if self.data_parallel else "heads"
        return f"{self.phase}, attention by {attention}, batch {self.batch} x {self.length}"

    @property
    def request(self) -> Request:
        """The program of ours that does the same."""
        return Request(
            model="deepseek-v3",
            mesh=(1, 8, 1),
            seq=self.length,
            batch=self.batch * (8 if self.data_parallel else 1),
            phase=self.phase,
            format="fp8",
            plan="dp-attention" if self.data_parallel else "tensor-parallel",
        )


CASES = tuple(
    Case(machine, system, phase, data_parallel, batch, length)
    for machine, system in (("h200", "h200_sxm"), ("gb200", "gb200"))
    for phase, data_parallel, batch, length in (
        ("prefill", False, 1, 4096), ("prefill", True, 4, 4096),
        ("decode", False, 64, 8192), ("decode", True, 64, 8192),
    )
)  # fmt: skip


def theirs_ms(case: Case, mode: str) -> float:
    """aiconfigurator's answer in `SOL` or `SILICON` mode, ms."""
    engine = _engine(case.system, mode, case.data_parallel)
    if case.phase == "prefill":
        return float(engine.predict_prefill_latency(case.batch, case.length))
    return float(engine.predict_decode_latency(case.batch, case.length, 2))


def _engine(system: str, mode: str, data_parallel: bool) -> Any:
    try:
        import aiconfigurator_core
        from aiconfigurator_core.sdk import engine
        from aiconfigurator_core.sdk.config_builders import build_model_config
        from aiconfigurator_core.sdk.models import get_model
        from aiconfigurator_core.sdk.perf_database import (
            get_database_view,
            get_latest_database_version,
        )
    except ModuleNotFoundError:
        raise XlaCostError(
            "aiconfigurator-core is not installed; expected pip install 'xla-cost[calibrate]'"
        ) from None
    config = build_model_config(
        tp_size=1 if data_parallel else 8, pp_size=1, attention_dp_size=8 if data_parallel else 1,
        moe_tp_size=1, moe_ep_size=8, gemm_quant_mode="fp8_block", moe_quant_mode="fp8_block",
        kvcache_quant_mode="bfloat16", fmha_quant_mode="bfloat16", comm_quant_mode=None,
        forward_model=None, attention_backend=None,
    )  # fmt: skip
    version = get_latest_database_version(system, BACKEND)
    text = engine.build_engine_spec_json(
        get_model(MODEL, config, BACKEND), model_path=MODEL, system=system, backend=BACKEND,
        backend_version=version, kv_block_size=None, systems_path=None, nextn=0,
        database=get_database_view(system, BACKEND, version, database_mode=mode),
    )  # fmt: skip
    return engine.EngineHandle(aiconfigurator_core.engine_spec_bincode_from_json(text))


def rows() -> list[tuple[Case, float, float, float, float]]:
    """Per case: SOL, study, SILICON, calibrated, ms."""
    found = []
    for case in CASES:
        program, machine = model_program(case.request).program, load(case.machine)
        ours = [
            price(program, machine, rules).latency_s * 1e3 for rules in ("study", serving_policy())
        ]
        found.append((case, theirs_ms(case, "SOL"), ours[0], theirs_ms(case, "SILICON"), ours[1]))
    return found


def table(found: list[tuple[Case, float, float, float, float]]) -> str:
    """Markdown."""
    lines = [
        "| 8 ranks | machine | SOL ms | ours, study ms | silicon ms | ours, calibrated ms | "
        "calibrated / silicon |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for case, sol, study, silicon, calibrated in found:
        lines.append(
            f"| {case.name} | {case.machine} | {sol:.1f} | {study:.1f} | {silicon:.1f} | "
            f"{calibrated:.1f} | {calibrated / silicon:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table; with --docs put it into validation.md as well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=None)
    options = parser.parse_args()
    start = time.perf_counter()
    text = table(rows())
    print(text)
    print(f"{time.perf_counter() - start:.1f} s")
    if options.docs is not None:
        from xla_cost.jsonio import write_text

        path = options.docs / "validation.md"
        write_text(path, replaced(read(path), "aiconfigurator", text, path.name))


if __name__ == "__main__":
    main()
