"""Library calls: the table of rules, and how a user adds one."""

from __future__ import annotations

import json

import pytest
from walk_helpers import entry, flops, flops_by_format, op, walked

from xla_cost.program import Matmul
from xla_cost.walk import DEFAULT_RULES, CallCost, CustomCall

GEMM = {
    "dot_dimension_numbers": {
        "lhs_contracting_dimensions": ["1"],
        "rhs_contracting_dimensions": ["0"],
        "lhs_batch_dimensions": [],
        "rhs_batch_dimensions": [],
    }
}


@pytest.mark.parametrize(
    "config",
    [
        json.dumps({"gemm_backend_config": GEMM}),
        json.dumps(json.dumps({"alpha_real": 1, **GEMM})),  # older text: JSON in a string
        "",  # none at all: [m, k] by [k, n]
    ],
)
def test_cublas_in_every_spelling(config: str) -> None:
    backend = f", backend_config={config}" if config else ""
    program = walked(
        entry(
            "x = f16[100,40] parameter(0)",
            "w = f16[40,30] parameter(1)",
            "ROOT c = (f16[100,30], s8[80000]) custom-call(x, w), "
            f'custom_call_target="__cublas$gemm"{backend}',
        )
    )
    assert flops_by_format(program) == {"fp16": 2 * 100 * 40 * 30}
    assert op(program, "c").bytes_written == 2 * 100 * 30  # the workspace is not traffic


def test_cublas_f8_contracts_both_last_dimensions() -> None:
    config = json.loads(json.dumps(GEMM))
    config["dot_dimension_numbers"]["rhs_contracting_dimensions"] = ["1"]
    program = walked(
        entry(
            "x = f8e4m3fn[64,128] parameter(0)",
            "w = f8e5m2[32,128] parameter(1)",
            "s = f32[] parameter(2)",
            "ROOT c = (bf16[64,32], s8[4096]) custom-call(x, w, s, s), "
            'custom_call_target="__cublas$lt$matmul$f8", '
            f"backend_config={json.dumps({'gemm_backend_config': config})}",
        )
    )
    assert flops_by_format(program) == {"fp8": 2 * 64 * 32 * 128}


def test_grouped_cublas_is_a_ragged_dot() -> None:
    config = {
        "grouped_gemm_backend_config": {
            "ragged_dot_dimension_numbers": {
                "dot_dimension_numbers": {
                    "lhs_contracting_dimensions": ["1"],
                    "rhs_contracting_dimensions": ["1"],
                },
                "lhs_ragged_dimensions": ["0"],
                "rhs_group_dimensions": ["0"],
            }
        }
    }
    program = walked(
        entry(
            "x = bf16[64,16] parameter(0)",
            "w = bf16[4,16,8] parameter(1)",
            "g = s32[4] parameter(2)",
            "ROOT c = (bf16[64,8], s8[16]) custom-call(x, w, g), custom_call_target="
            f'"__cublas$lt$groupedMatmul", backend_config={json.dumps(config)}',
        )
    )
    assert flops(program) == 2 * 64 * 16 * 8


@pytest.mark.parametrize(
    ("target", "first", "second", "out"),
    [
        ("__cudnn$convForward", "2,8,8,4", "3,3,4,6", "2,8,8,6"),
        ("__cudnn$convBackwardInput", "2,8,8,6", "3,3,4,6", "2,8,8,4"),
        ("__cudnn$convBackwardFilter", "2,8,8,4", "2,8,8,6", "3,3,4,6"),
    ],
)
def test_cudnn_convolutions_of_one_layer_cost_the_same(
    target: str, first: str, second: str, out: str
) -> None:
    program = walked(
        entry(
            f"x = f16[{first}] parameter(0)",
            f"y = f16[{second}] parameter(1)",
            f"ROOT c = (f16[{out}], u8[1024]) custom-call(x, y), window={{size=3x3 pad=1_1x1_1}}, "
            f'dim_labels=b01f_01io->b01f, custom_call_target="{target}"',
        )
    )
    taps = 2 + 3 * 6 + 2
    assert flops(program) == 2 * 2 * 6 * 4 * taps * taps


def fmha(target: str, operands: int, results: int, mask: str = "NO_MASK") -> str:
    config = {
        "cudnn_fmha_backend_config": {
            "intermediate_tensor_shape": {"dimensions": ["2", "3", "64", "128"]},
            "mask_type": mask,
        }
    }
    # q, out and gradients: b 2, h 3, sq 64, d 16; keys and values: skv 128
    shapes = ["2,3,64,16", "2,3,128,16", "2,3,128,16", "2,3,64,16", "2,3,64,16", "2,3,64,16"]
    given = [f"p{i} = bf16[{shapes[i]}] parameter({i})" for i in range(operands)]
    out = ", ".join(["bf16[2,3,64,16]"] * results + ["u8[0]"])
    names = ", ".join(f"p{i}" for i in range(operands))
    call = f'ROOT c = ({out}) custom-call({names}), custom_call_target="{target}", '
    return entry(*given, call + f"backend_config={json.dumps(config)}")


def test_cudnn_attention_forward_and_backward() -> None:
    forward = 4 * 2 * 3 * 64 * 128 * 16
    program = walked(fmha("__cudnn$fmhaSoftmax", 3, 1))
    assert flops(program) == forward
    assert op(program, "c").region == "flash_attention"
    assert op(program, "c").work == 1.0
    # five products against two: FlashAttention-2, section 3.1.2
    assert flops(walked(fmha("__cudnn$fmhaSoftmaxBackward", 6, 3))) == forward * 5 // 2
    assert flops(walked(fmha("__cudnn$fmhaSoftmaxF8", 3, 1))) == forward


def test_a_causal_mask_leaves_what_lies_on_and_below_the_diagonal() -> None:
    program = walked(fmha("__cudnn$fmhaSoftmax", 3, 1, "CAUSAL"))
    assert op(program, "c").work == sum(range(1, 65)) / (64 * 128)
    assert flops(program) == 4 * 2 * 3 * 64 * 128 * 16  # counted whole


def te(backward: bool, mask: int) -> str:
    name = "backward" if backward else "forward"
    config = (
        "{attn_heads = 12 : i64, input_batch = 2 : i64, q_max_seqlen = 64 : i64, "
        "kv_max_seqlen = 96 : i64, qk_head_dim = 24 : i64, v_head_dim = 16 : i64, "
        f"num_gqa_groups = 4 : i64, mask_type = {mask} : i64, scaling_factor = 1.0e+00 : f64, "
        "window_size_left = -1 : i64, deterministic = false}"
    )
    return entry(
        "q = bf16[2,64,12,24] parameter(0)",
        "k = bf16[2,96,4,24] parameter(1)",
        "v = bf16[2,96,4,16] parameter(2)",
        "ROOT c = (bf16[2,64,12,16], f32[2,12,64,1], u8[48]) custom-call(q, k, v), "
        f'custom_call_target="te_fused_attn_{name}_ffi", backend_config={config}',
    )


def test_transformer_engine_attention_reads_its_typed_attributes() -> None:
    score, value = 2 * 2 * 12 * 64 * 96 * 24, 2 * 2 * 12 * 64 * 96 * 16
    assert flops(walked(te(False, 0))) == score + value
    assert flops(walked(te(True, 0))) == 3 * score + 2 * value
    assert op(walked(te(False, 2)), "c").work == sum(range(1, 65)) / (64 * 96)
    # aligned at the bottom right: row i sees i + 32 further keys
    assert op(walked(te(False, 4)), "c").work == sum(i + 33 for i in range(64)) / (64 * 96)


def splash(kind: str) -> str:
    return entry(
        "m = s8[1,1,1] parameter(0)",
        "q = bf16[8,128,192] parameter(1)",
        "k = bf16[2,256,192] parameter(2)",
        "v = bf16[2,256,128] parameter(3)",
        f"ROOT splash_mha_{kind}.1 = bf16[8,128,128] custom-call(m, q, k, v), "
        'custom_call_target="tpu_custom_call"',
    )


def test_splash_attention_is_found_by_its_name() -> None:
    score, value = 2 * 8 * 128 * 256 * 192, 2 * 8 * 128 * 256 * 128
    assert flops(walked(splash("fwd"))) == score + value
    assert flops(walked(splash("dkv"))) == 2 * score + 2 * value
    assert flops(walked(splash("dq"))) == 2 * score + value
    assert "upper bound" in op(walked(splash("fwd")), "splash_mha_fwd.1").note


def test_a_mosaic_kernel_is_taken_at_its_own_estimate() -> None:
    config = {"custom_call_config": {"cost_estimate": {"flops": 4096, "bytes_accessed": 900}}}
    program = walked(
        entry(
            "x = bf16[16,8] parameter(0)",
            'ROOT c = bf16[16,8] custom-call(x), custom_call_target="tpu_custom_call", '
            f"backend_config={json.dumps(config)}",
        )
    )
    assert flops(program) == 4096
    assert op(program, "c").bytes_read + op(program, "c").bytes_written == 900


def test_block_scaled_dot_and_onednn() -> None:
    scaled = walked(
        entry(
            "x = f4e2m1fn[64,256] parameter(0)",
            "w = f4e2m1fn[32,256] parameter(1)",
            "s = f8e4m3fn[64,16] parameter(2)",
            "t = f8e4m3fn[32,16] parameter(3)",
            "ROOT c = f32[64,32] custom-call(x, w, s, t), "
            'custom_call_target="__op$block_scaled_dot"',
        )
    )
    assert flops_by_format(scaled) == {"fp4": 2 * 64 * 32 * 256}
    dnn = walked(
        entry(
            "x = f32[5,64,16] parameter(0)",
            "w = f32[5,16,32] parameter(1)",
            'ROOT c = f32[5,64,32] custom-call(x, w), custom_call_target="__onednn$matmul"',
        )
    )
    assert flops(dnn) == 2 * 5 * 64 * 16 * 32


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("Sharding", "free"),
        ("xla.sdy.FuncResultSharding", "free"),
        ("MoveToHost", "move"),
        ("annotate_device_placement", "move"),
        ("te_scaled_softmax_forward_ffi", "vector"),
        ("AwsNeuronGelu", "vector"),
        ("AwsNeuronTransferWithStaticRing", "move"),
        ("nobody_knows", "unpriced"),
    ],
)
def test_known_targets_have_a_kind(target: str, kind: str) -> None:
    program = walked(
        entry(
            "x = bf16[64,16] parameter(0)",
            f'c = bf16[64,16] custom-call(x), custom_call_target="{target}"',
            "ROOT n = bf16[64,16] negate(c)",
        )
    )
    found = op(program, "c")
    assert found.kind == kind
    moved = 2 * 64 * 16
    assert (found.bytes_read, found.bytes_written) == ((0, 0) if kind == "free" else (moved, moved))


def test_an_unknown_target_says_what_it_may_cost() -> None:
    program = walked(
        entry(
            "x = bf16[64,16] parameter(0)",
            'ROOT c = f32[64] custom-call(x), custom_call_target="nobody_knows"',
        )
    )
    note = op(program, "c").note
    assert note == "custom call nobody_knows has no rule: reads 2048 bytes, writes 256 bytes"
    assert program.coverage == 1 - 1 / 2
    assert program.coverage_bytes == 0.0
    assert program.warnings == ("unpriced 1 times: custom call nobody_knows has no rule",)


def mine(call: CustomCall) -> CallCost | None:
    rows, inner = call.arrays[0].dims
    if call.config.get("skip"):
        return None
    return CallCost("matmul", (Matmul(1, rows, call.config["n"], inner, "bf16"),))


@pytest.mark.parametrize("pattern", ["my_kernel", "my_*"])
def test_a_user_adds_a_rule(pattern: str) -> None:
    rules = DEFAULT_RULES.with_custom_call(pattern, mine)
    text = entry(
        "x = bf16[64,16] parameter(0)",
        'ROOT c = bf16[64,3] custom-call(x), custom_call_target="my_kernel", '
        'backend_config={"n":3}',
    )
    assert flops(walked(text, rules)) == 2 * 64 * 3 * 16
    assert op(walked(text), "c").kind == "unpriced"  # the default table is as it was


def test_a_rule_that_fails_or_declines_leaves_the_call_unpriced() -> None:
    rules = DEFAULT_RULES.with_custom_call("my_kernel", mine)
    call = 'ROOT c = bf16[8] custom-call(x), custom_call_target="my_kernel", '
    text = "x = bf16[{dims}] parameter(0)\n " + call
    failed = walked(entry(text.format(dims="8") + 'backend_config={"n":3}'), rules)
    assert "the rule for custom call my_kernel failed" in op(failed, "c").note
    declined = walked(entry(text.format(dims="8,8") + 'backend_config={"skip":1}'), rules)
    assert "not of a form its rule can read" in op(declined, "c").note
