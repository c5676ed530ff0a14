"""Rules for fused attention: cuDNN, Transformer Engine, splash attention on TPU.

Forward: S = Q K^T and O = P V, so 2 b h sq skv (d + dv) FLOPs, which is 4 b h sq skv d for
equal head sizes. Backward: S again, dP = dO V^T, dV = P^T dO, dQ = dS K, dK = dS^T Q: five
products, 2.5 times the forward (Dao, FlashAttention-2, arXiv 2307.08691, section 3.1.2).
Matmuls are counted whole; `work` is the share that a mask leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from xla_cost.hlo.ir import Shape
from xla_cost.program import Matmul
from xla_cost.walk.config import find_key, ints
from xla_cost.walk.formats import matmul_format
from xla_cost.walk.rules import CallCost, CustomCall, CustomCallRule


@dataclass(frozen=True, slots=True)
class Attention:
    """Sizes of one attention: heads counts batch x query heads."""

    heads: int
    sq: int
    skv: int
    d: int
    dv: int
    format: str

    def matmuls(self, qk: int, pv: int) -> tuple[Matmul, ...]:
        """`qk` products over the query-key head size and `pv` over the value head size."""
        score = Matmul(self.heads, self.sq, self.skv, self.d, self.format)
        value = Matmul(self.heads, self.sq, self.dv, self.skv, self.format)
        return (score,) * qk + (value,) * pv

    def cost(self, call: CustomCall, *, qk: int, pv: int, work: float, note: str = "") -> CallCost:
        """One launch that reads its operands and writes its results."""
        return CallCost(
            "kernel",
            self.matmuls(qk, pv),
            bytes_written=sum(shape.bytes for shape in call.results),
            region="flash_attention",
            work=work,
            note=note,
        )


@lru_cache(maxsize=256)
def unmasked(
    sq: int, skv: int, *, causal: bool, bottom_right: bool = False, window: int = -1
) -> float:
    """Share of the sq x skv scores that a mask leaves; `window` keys to the left, -1 for all."""
    if sq <= 0 or skv <= 0 or (not causal and window < 0):
        return 1.0
    offset = skv - sq if bottom_right else 0
    left = 0
    for row in range(sq):
        last = min(skv - 1, row + offset) if causal else skv - 1
        first = max(0, row + offset - window) if window >= 0 else 0
        left += max(0, last - first + 1)
    return left / (sq * skv)


#: Transformer Engine's NVTE_Mask_Type: causal ones, and those aligned at the bottom right.
_TE_CAUSAL = frozenset({2, 3, 4, 5})
_TE_BOTTOM_RIGHT = frozenset({4, 5})


def te_attention(backward: bool) -> CustomCallRule:
    """Rule for `te_fused_attn_{forward,backward}_ffi`: sizes are in its typed attributes."""

    def rule(call: CustomCall) -> CallCost | None:
        config = call.config
        try:
            batch = int(config["input_batch"])
            heads = int(config["attn_heads"])
            sq, skv = int(config["q_max_seqlen"]), int(config["kv_max_seqlen"])
            d = int(config.get("qk_head_dim", config.get("head_dim", 0)))
            dv = int(config.get("v_head_dim", d))
            mask = int(config.get("mask_type", 0))
            window = int(config.get("window_size_left", -1))
        except (KeyError, TypeError, ValueError):
            return None
        if not d or not call.arrays:
            return None
        sizes = Attention(batch * heads, sq, skv, d, dv, _format(call.arrays))
        work = unmasked(
            sq, skv, causal=mask in _TE_CAUSAL, bottom_right=mask in _TE_BOTTOM_RIGHT, window=window
        )
        qk, pv = (3, 2) if backward else (1, 1)
        return sizes.cost(call, qk=qk, pv=pv, work=work)

    return rule


def cudnn_attention(call: CustomCall) -> CallCost | None:
    """`__cudnn$fmha*`, forward and backward, any number format.

    The scores' shape [b, h, sq, skv] stands in the config; head sizes follow from the
    operands: q holds b h sq d elements, the value side's size is the output's.
    """
    shape = find_key(call.config, "intermediate_tensor_shape")
    dims = ints(shape.get("dimensions")) if isinstance(shape, dict) else ()
    if len(dims) != 4 or len(call.arrays) < 3 or 0 in dims or not call.results:
        return None
    batch, heads, sq, skv = dims
    backward = "backward" in call.target.lower()
    out = call.arrays[4] if backward and len(call.arrays) > 4 else call.results[0]
    queries = batch * heads * sq
    d = call.arrays[0].elements // queries
    dv = d if backward or out.elements % queries else out.elements // queries
    if not d:
        return None
    mask = str(find_key(call.config, "mask_type") or "")
    window = find_key(call.config, "sliding_window_length")
    work = unmasked(
        sq,
        skv,
        causal="CAUSAL" in mask,
        bottom_right="BOTTOM_RIGHT" in mask,
        window=int(window) if isinstance(window, int) and window > 0 else -1,
    )
    qk, pv = (3, 2) if backward else (1, 1)
    sizes = Attention(batch * heads, sq, skv, d, dv, _format(call.arrays))
    return sizes.cost(call, qk=qk, pv=pv, work=work)


def tpu_kernel(call: CustomCall) -> CallCost | None:
    """`tpu_custom_call`: splash or flash attention by name, else its own cost estimate.

    Splash attention's mask is data, so its FLOPs are the upper bound of a full mask.
    """
    name = f"{call.instruction.name} {call.instruction.op_name}".lower()
    if "splash_m" in name or "flash_attention" in name:
        found = _splash(call, name)
        if found is not None:
            return found
    return estimated(call)


#: Products over (query-key size, value size) of each kernel: dkv makes S, dK and dP, dV;
#: dq makes S, dQ and dP; the fused backward pass makes all five.
_SPLASH_PARTS: Mapping[str, tuple[int, int]] = {"dkv": (2, 2), "dq": (2, 1), "bwd": (3, 2)}


def _splash(call: CustomCall, name: str) -> CallCost | None:
    data = [a for a in call.arrays if len(a.dims) >= 3 and a.dtype[:1] in "bf"]
    if len(data) < 3 or not all(data[1].dims):
        return None
    q, k, v = data[:3]
    heads = q.elements // max(1, q.dims[-1] * q.dims[-2])
    sizes = Attention(heads, q.dims[-2], k.dims[-2], q.dims[-1], v.dims[-1], _format(data))
    parts = next((p for key, p in _SPLASH_PARTS.items() if f"_{key}" in name), (1, 1))
    note = "upper bound: the mask of splash attention is data"
    return sizes.cost(call, qk=parts[0], pv=parts[1], work=1.0, note=note)


def estimated(call: CustomCall) -> CallCost | None:
    """A Pallas or Mosaic kernel's own `cost_estimate` (flops, bytes_accessed), None without one."""
    estimate: Any = find_key(call.config, "cost_estimate")
    if not isinstance(estimate, dict):
        return None
    try:
        flops = int(estimate.get("flops", 0))
        moved = int(estimate.get("bytes_accessed", 0))
    except (TypeError, ValueError):
        return None
    written = sum(shape.bytes for shape in call.results)
    return CallCost(
        "kernel",
        _as_product(flops, call),
        bytes_read=max(0, moved - written) if moved else None,
        bytes_written=written,
        note="FLOPs from the kernel's own cost_estimate",
    )


def _as_product(flops: int, call: CustomCall) -> tuple[Matmul, ...]:
    """FLOPs without a shape, as one product over the result's rows and columns if that fits."""
    if flops < 2 or not call.arrays:
        return ()
    out = call.results[0] if call.results else Shape("opaque")
    columns = out.dims[-1] if out.dims else 1
    rows = out.elements // max(1, columns)
    form = _format(call.arrays)
    if rows * columns and (flops // 2) % (rows * columns) == 0:
        return (Matmul(1, rows, columns, flops // 2 // (rows * columns), form),)
    return (Matmul(1, 1, 1, flops // 2, form),)


def _format(arrays: tuple[Shape, ...] | list[Shape]) -> str:
    second = arrays[1] if len(arrays) > 1 else arrays[0]
    return matmul_format(arrays[0].dtype, second.dtype)


ATTENTION_CALLS: Mapping[str, CustomCallRule] = {
    "te_fused_attn_forward_ffi": te_attention(False),
    "te_fused_attn_backward_ffi": te_attention(True),
    "te_fused_attn_forward": te_attention(False),
    "te_fused_attn_backward": te_attention(True),
    "tpu_custom_call": tpu_kernel,
}
ATTENTION_PREFIXES: Mapping[str, CustomCallRule] = {"__cudnn$fmha": cudnn_attention}
