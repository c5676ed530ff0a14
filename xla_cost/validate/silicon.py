"""Decode step time against measured time per output token of DeepSeek-V3 and R1.

The rows are `silicon_sample.csv` of the `calibrate` extra: end-to-end serving measurements
with their parallel configuration. No fit reads that file.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xla_cost.calibrate.package import FOLDERS, PACKAGE, systems_folder
from xla_cost.errors import StorageError, XlaCostError
from xla_cost.machine import load
from xla_cost.price import price
from xla_cost.programs import Request, model_program
from xla_cost.validate.points import Point
from xla_cost.validate.serving_points import serving_policy

_MODELS = ("deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3")
_MACHINE = {folder: name for name, folder in FOLDERS.items()}
#: What the deployments run beside the stated GEMM precision; the file does not say, the
#: frameworks' published DeepSeek recipes do. An fp8 cache, read by fp8 attention kernels,
#: everywhere but under SGLang on Hopper. With fp4 experts, SGLang has fp8 attention projections
#: and fp8 tokens to experts (lmsys.org, GB200 NVL72), TensorRT-LLM bf16 projections and fp4 tokens
#: (its tech blogs 1 and 3 on DeepSeek-R1, "Precision strategy").
_CACHE = "kv_cache=fp8,scores=fp8"


@dataclass(frozen=True, slots=True)
class Decode:
    """One measured decode deployment; `batch` counts sequences over all its ranks."""

    identity: str
    machine: str
    number_format: str
    ranks: int
    data_parallel: bool
    batch: int
    length: int
    tpot_ms: float

    @property
    def request(self) -> Request:
        """Attention by data or by heads, experts over all ranks, cache filled half-way."""
        return Request(
            model="deepseek-v3",
            mesh=(1, self.ranks, 1),
            seq=self.length,
            batch=self.batch,
            phase="decode",
            format=self.number_format,
            plan="dp-attention" if self.data_parallel else "tensor-parallel",
        )


def decode_cases() -> list[Decode]:
    """Distinct rows whose decode configuration is stated and has a plan of ours.

    Disaggregated rows alone: there the time per token is decode steps and nothing else.
    Left out: pipeline stages, experts split inside (`moe_tp` > 1), ranks that do not divide the
    batch, and rows without a stated decode batch, some of which use speculative decoding
    (the same configuration appears at 7.4 and at 4.7 ms) without saying so.
    """
    folder, _ = systems_folder()
    found: dict[tuple[object, ...], Decode] = {}
    with (folder / "silicon_sample.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            case = _case(row)
            if case is not None:
                found.setdefault((case.machine, case.request, round(case.tpot_ms, 3)), case)
    return list(found.values())


def decode_points(report: Callable[[str], None] = lambda text: None) -> Iterator[Point]:
    """Predicted step time beside measured time per token, one point per row."""
    folder, version = systems_folder()
    source = f"{PACKAGE} {version} {folder.name}/silicon_sample.csv"
    for case in decode_cases():
        report(case.identity)
        try:
            program = model_program(case.request).program
        except StorageError:
            raise
        except XlaCostError as error:
            report(f"{case.identity}: left out, {error}")
            continue
        latency_s = price(program, load(case.machine), serving_policy()).latency_s
        kind = "data-parallel" if case.data_parallel else "head-parallel"
        name = f"{kind} attention, {case.ranks} ranks, batch {case.batch}, KV {case.length}"
        yield Point(
            "decode tpot", f"{name}, {case.number_format} [{case.identity}]", case.machine, "ms",
            case.tpot_ms, latency_s * 1e3, source,
        )  # fmt: skip


def _case(row: dict[str, str]) -> Decode | None:
    if row["model_path"] not in _MODELS or row["mode"] != "disagg":
        return None
    if row["precision"] not in ("fp8", "fp4") or row["system"] not in _MACHINE:
        return None
    batch, heads, data, inside, experts, stages = (
        _integer(row[f"decode_{name}"])
        for name in ("batch_size", "tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size",
                     "pp_size")
    )  # fmt: skip
    if not batch or not row["silicon_tpot_ms"] or inside != 1 or stages not in (0, 1):
        return None
    ranks = heads * data
    if ranks != experts or ranks < 2 or (heads > 1 and data > 1) or 256 % ranks:
        return None
    data_parallel = data > 1
    return Decode(
        identity=row["id"],
        machine=_MACHINE[row["system"]],
        number_format=_format(row),
        ranks=ranks,
        data_parallel=data_parallel,
        batch=batch * ranks if data_parallel else batch,
        length=_integer(row["isl"]) + _integer(row["osl"]) // 2,
        tpot_ms=float(row["silicon_tpot_ms"]),
    )


def _format(row: dict[str, str]) -> str:
    if row["precision"] == "fp4":
        if row["backend"] == "trtllm":
            return f"fp4:attention=bf16,dispatch=fp4,{_CACHE}"
        return f"fp8+fp4:dispatch=fp8,{_CACHE}"
    hopper_sglang = row["backend"] == "sglang" and row["system"][:4] in ("h100", "h200")
    return "fp8" if hopper_sglang else f"fp8:{_CACHE}"


def _integer(text: str) -> int:
    return int(float(text)) if text else 0
