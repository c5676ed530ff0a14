"""From measured kernel tables to `Rows`: what was run, in FLOPs and bytes of our ledger.

Bytes are counted as the ledger counts them: payload at its own width, block scales left out,
so a fitted memory efficiency carries them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xla_cost.calibrate.package import Tables
from xla_cost.calibrate.rows import Flags, Rows, best_source, floats, row_keys, table_names

WIDTH = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}

#: Formats and the names the tables give them. fp8 is the 128x128 block-scaled one of DeepSeek.
GEMM_DTYPES = {"bf16": "bfloat16", "fp8": "fp8_block", "fp4": "nvfp4"}

GQA_COLUMNS = [
    "kernel_source", "kv_cache_dtype", "num_heads", "num_key_value_heads", "head_dim",
    "window_size", "batch_size", "isl", "step", "latency",
]  # fmt: skip

MLA_COLUMNS = [
    "kernel_source", "kv_cache_dtype", "num_heads", "batch_size", "isl", "step", "latency",
]  # fmt: skip


def kernel_rows(tables: Tables, bytes_per_s: float) -> list[Rows]:
    """Every kind and format that this GPU, of that memory bandwidth, has measurements of."""
    found = [
        *(gemm_rows(tables, name) for name in GEMM_DTYPES),
        *(grouped_rows(tables, name, bytes_per_s) for name in GEMM_DTYPES),
        *(prefill_rows(tables, name, "flash_attention") for name in ("bf16", "fp8")),
        *(prefill_rows(tables, name, "mla_prefill") for name in ("bf16", "fp8")),
        *(decode_rows(tables, name) for name in ("bf16", "fp8")),
        *(mla_decode_rows(tables, name) for name in ("bf16", "fp8")),
        quantize_rows(tables),
    ]
    return [rows for rows in found if len(rows.seconds)]


def gemm_rows(tables: Tables, number_format: str) -> Rows:
    """Dense GEMMs [m, k] x [k, n] to bf16. Reserved: m = 8192, which the validation quotes."""
    by = ["m", "n", "k"]
    columns = ["gemm_dtype", "kernel_source", *by, "latency"]
    frame = tables.read("gemm/*/*/gemm_perf.parquet", columns)
    frame = frame[frame.gemm_dtype == GEMM_DTYPES[number_format]]
    if number_format == "fp8":  # one 128x128 scale block at least
        frame = frame[(frame.n >= 128) & (frame.k >= 128)]
    frame = best_source(frame, by)
    source = table_names(frame)
    m, n, k = (floats(frame[name]) for name in by)
    total_bytes = WIDTH[number_format] * (m * k + n * k) + 2.0 * m * n
    return Rows(
        kind="gemm",
        number_format=number_format,
        seconds=floats(frame.latency) * 1e-3,
        total_bytes=total_bytes,
        size=2.0 * m * n * k,
        keys=row_keys(frame, by, f"gemm {number_format}"),
        reserved=np.asarray(m == 8192),
        source=source,
        products=((np.ones_like(m), m, n, k, total_bytes),),
    )


def grouped_rows(tables: Tables, number_format: str, bytes_per_s: float) -> Rows:
    """Experts of one rank: gate, up, down, as three kernels; tokens spread evenly.

    That is how our models run them. What the fused kernels of the tables do between (routing,
    activation, quantisation) is in the fitted floor and efficiency.

    `num_tokens` tokens enter all ranks together, so a local expert sees
    num_tokens * topk / num_experts rows. Left out: fewer than one row per expert (a program
    reads every expert's weights), and kernels that sort all tokens on more ranks than topk,
    whose time goes into skipping tokens of other ranks: a dispatch has done that in our programs.
    """
    by = ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
          "moe_ep_size"]  # fmt: skip
    columns = ["op_name", "moe_dtype", "distribution", "kernel_source", *by, "latency"]
    frame = tables.read("moe/*/*/*moe_perf.parquet", columns)
    even = frame.distribution.isin(["balanced", "uniform"])
    gated = ~frame.kernel_source.str.contains("nongated").astype(bool)
    frame = frame[even & gated & (frame.moe_dtype == GEMM_DTYPES[number_format])]
    masked = frame.op_name == "moe_generation"  # sees only the rows that a dispatch brought
    frame = frame[masked | (frame.moe_ep_size <= frame.topk)]
    frame = frame[frame.num_tokens * frame.topk >= frame.num_experts]
    frame = _touching_all_experts(frame, WIDTH[number_format], bytes_per_s)
    frame = best_source(_dispatched_where_faster(frame), by)
    source = table_names(frame)
    per_expert = floats(frame.num_tokens * frame.topk / frame.num_experts)
    experts = floats(frame.num_experts / frame.moe_ep_size)
    hidden, inter = floats(frame.hidden_size), floats(frame.inter_size / frame.moe_tp_size)
    width, tokens = WIDTH[number_format], per_expert * experts
    weights = width * experts * hidden * inter
    into = weights + tokens * (width * hidden + 2.0 * inter)
    back = weights + tokens * (width * inter + 2.0 * hidden)
    return Rows(
        kind="grouped_gemm",
        number_format=number_format,
        seconds=floats(frame.latency) * 1e-3,
        total_bytes=2.0 * into + back,
        size=6.0 * tokens * hidden * inter,
        keys=row_keys(frame, by, f"grouped {number_format}"),
        reserved=_none(frame),
        source=source,
        products=(
            (experts, per_expert, inter, hidden, into),
            (experts, per_expert, inter, hidden, into),
            (experts, per_expert, hidden, inter, back),
        ),
    )


def _touching_all_experts(frame: Any, width: float, bytes_per_s: float) -> Any:
    """Leave out layers whose router sent nothing to some experts.

    Kernels that route by themselves at expert parallelism 1 choose groups of experts; a layer
    of which any row reads its weights faster than the memory can did not touch them all. The
    tables of DeepGEMM behind a dispatch mix two modes, so there it is judged row by row.
    """
    if not len(frame):
        return frame
    weights = 3.0 * width * frame.num_experts / frame.moe_ep_size
    weights = weights * frame.hidden_size * frame.inter_size / frame.moe_tp_size
    possible = weights / (frame.latency * 1e-3) <= bytes_per_s
    layer = ["table", "kernel_source", "hidden_size", "inter_size", "topk", "num_experts",
             "moe_tp_size", "moe_ep_size"]  # fmt: skip
    whole_layer = possible.groupby([frame[name] for name in layer]).transform("all")
    return frame[whole_layer | (possible & (frame.kernel_source == "deepepmoe"))]


def _dispatched_where_faster(frame: Any) -> Any:
    """DeepGEMM behind a DeepEP dispatch alone, on GPUs where it beats the fused kernels.

    That is Hopper, and it is what DeepSeek-style serving runs there. Compared at 256 rows per
    expert and more, where the fused kernels' own permutation no longer counts.
    """
    keys = ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
            "moe_ep_size"]  # fmt: skip
    rows = frame[frame.num_tokens * frame.topk >= 256 * frame.num_experts]
    is_wide = rows.kernel_source == "deepepmoe"
    wide, fused = (rows[flag].groupby(keys).latency.min() for flag in (is_wide, ~is_wide))
    ratio = (fused / wide).dropna()
    if len(ratio) and float(ratio.median()) > 1.0:
        return frame[frame.kernel_source == "deepepmoe"]
    return frame[frame.kernel_source != "deepepmoe"]


def prefill_rows(tables: Tables, number_format: str, kind: str) -> Rows:
    """Causal attention over the whole prompt: `mla_prefill` (heads of 192 and 128) or grouped.

    fp8 is an fp8 cache: the kernels then run their products in fp8 as well. Reserved: MLA with
    128 heads at 8192, which the validation quotes.
    """
    by = ["num_heads", "num_key_value_heads", "qk_dim", "v_dim", "batch_size", "isl"]
    cache = GEMM_DTYPES[number_format].removesuffix("_block")
    if kind == "mla_prefill":
        frame = tables.read("mla/*/*/context_mla_perf.parquet", MLA_COLUMNS)
        frame = frame.assign(num_key_value_heads=frame.num_heads, qk_dim=192, v_dim=128)
    else:
        frame = tables.read("attention/*/*/context_attention_perf.parquet", GQA_COLUMNS)
        frame = frame[(frame.window_size == 0) & (frame.head_dim <= 256)]
        frame = frame.assign(qk_dim=frame.head_dim, v_dim=frame.head_dim)
    chosen = (frame.kv_cache_dtype == cache) & (frame.step == 0) & (frame.isl >= 16)
    frame = best_source(frame[chosen], by)
    source = table_names(frame)
    heads, kv_heads, qk, v, batch, length = (floats(frame[name]) for name in by)
    flops = batch * heads * length * length * (qk + v)  # half of 2 * s * s * (qk + v): causal
    tokens = batch * length
    return Rows(
        kind=kind,
        number_format=number_format,
        seconds=floats(frame.latency) * 1e-3,
        total_bytes=2.0 * tokens * (heads + kv_heads) * (qk + v),
        size=flops,
        keys=row_keys(frame, by, f"prefill {number_format}"),
        reserved=np.asarray((qk == 192) & (heads == 128) & (length == 8192)),
        source=source,
        attention=(batch * heads * length, length, qk, flops),
    )


def decode_rows(tables: Tables, number_format: str) -> Rows:
    """One new token per sequence over a cache of grouped keys and values."""
    by = ["num_heads", "num_key_value_heads", "head_dim", "batch_size", "length"]
    cache = GEMM_DTYPES[number_format].removesuffix("_block")
    frame = tables.read("attention/*/*/generation_attention_perf.parquet", GQA_COLUMNS)
    frame = frame[(frame.kv_cache_dtype == cache) & (frame.window_size == 0)]
    frame = frame.assign(length=frame.isl + frame.step)
    frame = best_source(frame, by)
    source = table_names(frame)
    heads, kv_heads, dim, batch, length = (floats(frame[name]) for name in by)
    flops = 4.0 * batch * heads * length * dim
    cache_bytes = 2.0 * batch * kv_heads * length * dim * WIDTH[number_format]
    return Rows(
        kind="flash_decode",
        number_format=number_format,
        seconds=floats(frame.latency) * 1e-3,
        total_bytes=cache_bytes + 4.0 * batch * heads * dim,
        size=flops,
        keys=row_keys(frame, by, f"decode {number_format}"),
        reserved=_none(frame),
        source=source,
        attention=(batch * heads, length, dim, flops),
    )


def mla_decode_rows(tables: Tables, number_format: str) -> Rows:
    """One new token per sequence over a latent cache of 512 + 64, all heads sharing it."""
    by = ["num_heads", "batch_size", "length"]
    cache = GEMM_DTYPES[number_format].removesuffix("_block")
    frame = tables.read(
        "mla/*/*/generation_mla_perf.parquet",
        MLA_COLUMNS,
    )
    frame = frame[frame.kv_cache_dtype == cache]
    frame = frame.assign(length=frame.isl + frame.step)
    frame = best_source(frame, by)
    source = table_names(frame)
    heads, batch, length = (floats(frame[name]) for name in by)
    flops = 2.0 * batch * heads * length * (576.0 + 512.0)
    return Rows(
        kind="mla_decode",
        number_format=number_format,
        seconds=floats(frame.latency) * 1e-3,
        total_bytes=batch * length * 576.0 * WIDTH[number_format] + 2.0 * batch * heads * 1088.0,
        size=flops,
        keys=row_keys(frame, by, f"mla decode {number_format}"),
        reserved=_none(frame),
        source=source,
        attention=(batch * heads, length, np.full_like(batch, 576.0), flops),
    )


def quantize_rows(tables: Tables) -> Rows:
    """A pass that reads [m, k] in bf16 and writes it scaled to fp8.

    Between 1 and 32 MB the benchmark, which repeats itself on one buffer, runs in the L2 cache
    (50 MB on Hopper): left out, because in a model the bytes come from memory.
    """
    by = ["m", "k"]
    frame = tables.read("quantize/*/*/scale_matrix_perf.parquet", ["kernel_source", *by, "latency"])
    cached = (frame.m * frame.k * 3.0).between(1e6, 32e6)
    frame = best_source(frame[~cached], by)
    source = table_names(frame)
    elements = floats(frame.m) * floats(frame.k)
    return Rows(
        kind="quantize",
        number_format="",
        seconds=floats(frame.latency) * 1e-3,
        total_bytes=3.0 * elements,
        size=3.0 * elements,
        keys=row_keys(frame, by, "quantize"),
        reserved=_none(frame),
        source=source,
    )


def _none(frame: Any) -> Flags:
    return np.zeros(len(frame), dtype=bool)
