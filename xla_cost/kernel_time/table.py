"""`KernelTimes` and its strict reading from the `[efficiency]` section of a machine file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from xla_cost.errors import XlaCostError
from xla_cost.kernel_time.efficiency import AttentionFit, FitRecord, GemmFit, MemoryFit
from xla_cost.kernel_time.forms import MAX_SHARPNESS
from xla_cost.program import FORMATS

_ACIC = "aiconfigurator-core 0.12.0 systems/*.yaml (unofficial empirical corrections)"
_GEMM = "middle of measured shares of dense peak at m = 8192 on H100, B200 and GB300"
_MLA = "MLA context attention, 128 heads, 8192 causal, on H100, B200 and GB300"

#: What a machine without an `[efficiency]` section gets: shares of peak published for others.
DEFAULT_GEMM: Mapping[str, GemmFit] = {
    "bf16": GemmFit(0.72, record=FitRecord(_GEMM)),
    "fp8": GemmFit(0.55, record=FitRecord(_GEMM)),
    "fp4": GemmFit(0.33, record=FitRecord(_GEMM)),
}
DEFAULT_ATTENTION: Mapping[str, AttentionFit] = {
    "bf16": AttentionFit(0.55, record=FitRecord(_MLA)),
    "fp8": AttentionFit(0.32, record=FitRecord(_MLA)),
}
#: Decode attention streams its cache: only the share of memory bandwidth matters.
DEFAULT_DECODE = AttentionFit(0.55, memory_efficiency=0.8, record=FitRecord(_ACIC))
DEFAULT_MEMORY = MemoryFit(0.8, record=FitRecord(_ACIC))

#: Formats that use the same kind of matrix pipeline, nearest first.
_NEAREST: Mapping[str, tuple[str, ...]] = {
    "fp4": ("fp8", "int8", "bf16"),
    "int4": ("int8", "fp8", "fp4", "bf16"),
    "fp8": ("int8", "bf16", "fp16"),
    "int8": ("fp8", "bf16", "fp16"),
    "bf16": ("fp16", "fp8"),
    "fp16": ("bf16", "fp8"),
    "tf32": ("bf16", "fp16"),
    "fp32": ("tf32", "bf16", "fp16"),
    "fp64": ("fp32", "tf32", "bf16"),
}

_F = TypeVar("_F", GemmFit, AttentionFit)
_KINDS: Mapping[str, type[GemmFit] | type[AttentionFit]] = {
    "gemm": GemmFit,
    "grouped_gemm": GemmFit,
    "flash_attention": AttentionFit,
    "flash_decode": AttentionFit,
    "mla_prefill": AttentionFit,
    "mla_decode": AttentionFit,
}
_STREAMS = ("memory", "quantize", "router")
_POSITIVE = ("efficiency", "memory_efficiency", "sharpness")


@dataclass(frozen=True)
class KernelTimes:
    """Fits by kernel kind and number format; empty mappings fall back to the defaults.

    `inherited_from` names the machine they were measured on when it is not this one.
    """

    gemm: Mapping[str, GemmFit] = field(default_factory=dict)
    grouped_gemm: Mapping[str, GemmFit] = field(default_factory=dict)
    flash_attention: Mapping[str, AttentionFit] = field(default_factory=dict)
    flash_decode: Mapping[str, AttentionFit] = field(default_factory=dict)
    mla_prefill: Mapping[str, AttentionFit] = field(default_factory=dict)
    mla_decode: Mapping[str, AttentionFit] = field(default_factory=dict)
    memory: MemoryFit = DEFAULT_MEMORY
    quantize: MemoryFit | None = None
    router: MemoryFit | None = None
    launch_us: float = 3.0
    source: str = ""
    inherited_from: str = ""

    def gemm_fit(self, number_format: str) -> GemmFit:
        """The dense fit of the nearest format that has one."""
        return _pick(self.gemm, number_format) or _default(DEFAULT_GEMM, number_format)

    def grouped_fit(self, number_format: str) -> GemmFit:
        """The grouped fit of the nearest format, else the dense one."""
        return _pick(self.grouped_gemm, number_format) or self.gemm_fit(number_format)

    def attention_fit(self, number_format: str) -> AttentionFit:
        """Prefill attention."""
        found = _pick(self.flash_attention, number_format)
        return found or _default(DEFAULT_ATTENTION, number_format)

    def decode_fit(self, number_format: str) -> AttentionFit:
        """Decode attention over a cache of keys and values, else `DEFAULT_DECODE`."""
        return _pick(self.flash_decode, number_format) or DEFAULT_DECODE

    def mla_prefill_fit(self, number_format: str) -> AttentionFit:
        """Prefill attention whose keys are wider than its values, else the other prefill fit."""
        return _pick(self.mla_prefill, number_format) or self.attention_fit(number_format)

    def mla_decode_fit(self, number_format: str) -> AttentionFit:
        """Decode attention over a latent cache, else the prefill fit."""
        return _pick(self.mla_decode, number_format) or self.attention_fit(number_format)


def from_table(table: Mapping[str, Any], where: str) -> KernelTimes:
    """Read an `[efficiency]` table; `where` (`b300.toml: efficiency`) opens every error.

    Raises XlaCostError for an unknown key or format, a wrong type, or a share outside (0, 1].
    """
    allowed = {*_KINDS, *_STREAMS, "launch_us", "source"}
    _refuse_unknown(table, allowed, where)
    read: dict[str, Any] = {}
    for kind, fit_type in _KINDS.items():
        formats = _sub_table(table, kind, where)
        _refuse_unknown(formats, set(FORMATS), f"{where}.{kind}")
        read[kind] = {
            name: _fit(fit_type, _sub_table(formats, name, f"{where}.{kind}"),
                       f"{where}.{kind}.{name}")
            for name in formats
        }  # fmt: skip
    for kind in _STREAMS:
        if kind in table:
            read[kind] = _fit(MemoryFit, _sub_table(table, kind, where), f"{where}.{kind}")
    if "launch_us" in table:
        read["launch_us"] = _number(table["launch_us"], f"{where}.launch_us")
    if "source" in table:
        read["source"] = _text(table["source"], f"{where}.source")
    return KernelTimes(**read)


def _pick(fits: Mapping[str, _F], number_format: str) -> _F | None:
    for name in (number_format, *_NEAREST.get(number_format, ())):
        if name in fits:
            return fits[name]
    return next(iter(fits.values()), None)


def _default(fits: Mapping[str, _F], number_format: str) -> _F:
    found = _pick(fits, number_format)
    if found is None:
        raise XlaCostError(f"kernel times: format {number_format}; expected one of {FORMATS}")
    return found


def _fit(fit_type: type[Any], table: Mapping[str, Any], where: str) -> Any:
    """One fit: its own numbers and, among them, the keys of its record."""
    record_keys = [f.name for f in fields(FitRecord)]
    own_keys = [f.name for f in fields(fit_type) if f.name != "record"]
    _refuse_unknown(table, {*record_keys, *own_keys}, where)
    if "efficiency" not in table:
        raise XlaCostError(f"{where}: no efficiency; expected a share of peak in (0, 1]")
    own = {key: _number(table[key], f"{where}.{key}") for key in own_keys if key in table}
    for key in _POSITIVE:
        if own.get(key, 1.0) <= 0.0:
            raise XlaCostError(f"{where}.{key} = {own[key]:g}; must be > 0")
    for key in ("efficiency", "memory_efficiency"):
        if own.get(key, 1.0) > 1.0:
            raise XlaCostError(f"{where}.{key} = {own[key]:g}; must be at most 1 (a share of peak)")
    if own.get("sharpness", 1.0) > MAX_SHARPNESS:
        raise XlaCostError(
            f"{where}.sharpness = {own['sharpness']:g}; must be at most {MAX_SHARPNESS:g}"
        )
    return fit_type(**own, record=_record(table, where))


def _record(table: Mapping[str, Any], where: str) -> FitRecord:
    def error(key: str) -> float | None:
        return _number(table[key], f"{where}.{key}") if key in table else None

    return FitRecord(
        source=_text(table.get("source", ""), f"{where}.source"),
        rows=int(_number(table.get("rows", 0), f"{where}.rows")),
        held_out_rows=int(_number(table.get("held_out_rows", 0), f"{where}.held_out_rows")),
        median_error=error("median_error"),
        p90_error=error("p90_error"),
        median_error_all=error("median_error_all"),
        p90_error_all=error("p90_error_all"),
    )


def _sub_table(table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, Mapping):
        raise XlaCostError(f"{where}.{key} = {value!r}; expected a table")
    return value


def _number(value: object, where: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:  # type: ignore[operator, arg-type]
        raise XlaCostError(f"{where} = {value!r}; expected a number >= 0")
    return float(value)  # type: ignore[arg-type]


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise XlaCostError(f"{where} = {value!r}; expected text")
    return value


def _refuse_unknown(table: Mapping[str, Any], allowed: set[str], where: str) -> None:
    unknown = sorted(set(table) - allowed)
    if unknown:
        raise XlaCostError(f"{where}: unknown key {unknown[0]!r}; expected {sorted(allowed)}")
