"""The table of custom-call rules that comes with the walker.

A target without a rule here or from the user becomes an `unpriced` op. Add one with
`DEFAULT_RULES.with_custom_call("my_target", rule)`; see `rules.CustomCall`.
"""

from __future__ import annotations

from collections.abc import Mapping

from xla_cost.walk.attention_calls import ATTENTION_CALLS, ATTENTION_PREFIXES
from xla_cost.walk.gemm_calls import GEMM_CALLS, GEMM_PREFIXES
from xla_cost.walk.rules import CallCost, CustomCall, CustomCallRule, Rules

#: Vector FLOPs per element of a softmax: maximum, subtract, exponential, sum, divide.
_SOFTMAX = 5
#: Per element of a layer norm, forward: mean, centre, square, sum, scale, shift.
_NORM = 6


def free(call: CustomCall) -> CallCost:
    """An annotation: the result is the operand."""
    del call
    return CallCost("free", bytes_read=0, bytes_written=0)


def nothing(call: CustomCall) -> CallCost:
    """Reserves memory or synchronises: no traffic of its own."""
    del call
    return CallCost("move", bytes_read=0, bytes_written=0)


def host_copy(call: CustomCall) -> CallCost:
    """Moves its operand between device and host memory."""
    del call
    return CallCost("move", note="host offload")


def move(call: CustomCall) -> CallCost:
    """Reads its operands and writes its results."""
    del call
    return CallCost("move")


def vector(flops_per_element: int) -> CustomCallRule:
    """Streams its operands with so many vector FLOPs per element of the first."""

    def rule(call: CustomCall) -> CallCost:
        data = call.arrays[0].elements if call.arrays else sum(s.elements for s in call.results)
        written = sum(shape.bytes for shape in call.results)
        return CallCost("vector", vector_flops=flops_per_element * data, bytes_written=written)

    return rule


def top_k(call: CustomCall) -> CallCost:
    """`TopK`: every element is compared with the smallest kept one, log2(k) deep."""
    kept = call.results[0].dims[-1] if call.results and call.results[0].dims else 1
    data = call.arrays[0].elements if call.arrays else 0
    return CallCost("vector", vector_flops=data * max(1, (kept - 1).bit_length()))


def _table(rule: CustomCallRule, *targets: str) -> dict[str, CustomCallRule]:
    return dict.fromkeys(targets, rule)


_OTHERS: Mapping[str, CustomCallRule] = {
    **_table(
        free,
        "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint",
        "Pin", "Unpin", "SetBound", "AssumeGatherIndicesInBound", "ConcatBitcast",
        "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape",
        "PropagatedSharding", "ArAutoSharding", "optimization_barrier", "X64SplitLow",
    ),
    **_table(
        nothing, "AllocateBuffer", "CreateBuffer", "BarrierStart", "BarrierDone", "GlobalBarrier",
        "AwsNeuronModuleMarkerStart-Forward", "AwsNeuronModuleMarkerEnd-Forward",
    ),
    **_table(host_copy, "MoveToHost", "MoveToDevice", "annotate_device_placement"),
    **_table(
        move, "AwsNeuronTransferWithStaticRing", "SliceToDynamic", "PadToStatic", "X64Combine",
        "X64SplitHigh",
    ),
    **_table(
        vector(_SOFTMAX),
        "te_scaled_softmax_forward_ffi", "te_scaled_masked_softmax_forward_ffi",
        "te_scaled_upper_triang_masked_softmax_forward_ffi", "te_scaled_softmax_backward_ffi",
        "te_scaled_masked_softmax_backward_ffi", "__onednn$softmax", "AwsNeuronSoftmax",
        "te_scaled_upper_triang_masked_softmax_backward_ffi", "AwsNeuronSoftmaxBackward",
    ),
    **_table(
        vector(_NORM),
        "te_norm_forward_ffi", "te_norm_backward_ffi", "__cudnn$norm", "__onednn$layernorm",
        "AwsNeuronRmsNorm", "AwsNeuronLayerNorm",
    ),
    # an activation: one transcendental and a few multiplies
    **_table(
        vector(4), "AwsNeuronGelu", "AwsNeuronGeluBackward", "AwsNeuronSilu",
        "AwsNeuronSiluBackward", "te_act_lu_ffi", "te_dact_lu_ffi",
    ),
    **_table(vector(1), "te_quantize_ffi", "te_dbias_quantize_ffi", "AwsNeuronErf"),
    # 20 rounds of add, rotate and xor (Threefry-2x32)
    **_table(vector(60), "cu_threefry2x32", "cu_threefry2x32_ffi", "hip_threefry2x32_ffi"),
    **_table(top_k, "TopK", "__gpu$TopK", "AwsNeuronTopK"),
}  # fmt: skip

#: The rules used where a caller gives none.
DEFAULT_RULES = Rules(
    custom_calls={**_OTHERS, **GEMM_CALLS, **ATTENTION_CALLS},
    prefixes={**GEMM_PREFIXES, **ATTENTION_PREFIXES},
)
