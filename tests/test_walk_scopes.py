"""Scopes and source lines."""

from __future__ import annotations

import pytest
from walk_helpers import DOT, SQUARE, entry, op, walked

from xla_cost.program import Op
from xla_cost.walk.names import full_name
from xla_cost.walk.scopes import scope_of

# scopes


@pytest.mark.parametrize(
    ("op_name", "path"),
    [
        ("jit(f)/layer/attention/q_down/dot_general", "layer/attention/q_down"),
        ("jit(f)/jit(main)/shard_map/while/body/closed_call/layer/dot_general", "layer"),
        ("jit(f)/transpose(jvp(layer))/attention/dot_general", "layer/attention"),
        ("jit(f)/jvp()/while/body/remat/checkpoint/rematted_computation/mlp/mul", "mlp"),
        ("jit(f)/attention/bshk,bthk->bhst/dot_general", "attention"),
        ("jit(f)/cond/branch_1_fun/expert/dot_general", "expert"),
        ("jit(f)/vmap(jit(inner))/head/add", "head"),
        ("jit(f)/vmap(head/norm)/add", "head/norm"),
        ("jit(_where)/select_n", ""),
        ("while", ""),
        ("", ""),
    ],
)
def test_a_scope_is_what_the_user_wrote(op_name: str, path: str) -> None:
    assert scope_of(op_name).path == path


def test_what_experts_are_given_is_read_from_the_mark_and_not_part_of_the_path() -> None:
    found = scope_of("jit(f)/moe/gate/kernel[grouped_gemm,tokens=64,experts=256,top_k=8]/dot")
    assert found.path == found.region == "moe/gate/kernel[grouped_gemm]"
    assert (found.kernel, found.tokens, found.experts, found.top_k) == ("grouped_gemm", 64, 256, 8)
    odd = scope_of("kernel[grouped_gemm,tokens=-1,experts=many,work=0.5]/dot")
    assert odd.region == "kernel[grouped_gemm,work=0.5]"
    assert (odd.tokens, odd.experts, odd.top_k, odd.work) == (0, 0, 0, 0.5)


def test_names_relative_to_a_call_are_completed() -> None:
    assert full_name("jit(f)/model/closed_call", "attn/dot") == "jit(f)/model/closed_call/attn/dot"
    assert (
        full_name("jit(f)/model/while", "while/body/attn/dot") == "jit(f)/model/while/body/attn/dot"
    )
    assert (
        full_name("jit(f)/model/while", "jit(f)/model/while/body/a") == "jit(f)/model/while/body/a"
    )
    assert full_name("", "a/b") == "a/b"
    assert full_name("jit(f)", "") == ""


def test_one_function_in_two_scopes_keeps_them_apart() -> None:
    called = SQUARE.replace(DOT, DOT + ', metadata={op_name="scores/dot_general"}')
    call = 'y{} = f32[8,8] call({}), to_apply=square, metadata={{op_name="jit(f)/{}/jit(square)"}}'
    program = walked(
        entry(
            "x = f32[8,8] parameter(0)",
            call.format(1, "x", "encoder"),
            call.format(2, "y1", "decoder"),
            "ROOT n = f32[8,8] negate(y2)",
            before=called,
        )
    )
    scopes = [node.scope for node in program.entry.nodes if isinstance(node, Op) and node.matmuls]
    assert scopes == ["encoder/scores", "decoder/scores"]


def test_the_source_line_is_kept() -> None:
    metadata = 'metadata={op_name="jit(f)/a/neg" source_file="model.py" source_line=12}'
    program = walked(entry("x = f32[8] parameter(0)", f"ROOT n = f32[8] negate(x), {metadata}"))
    assert (op(program, "n").scope, op(program, "n").source) == ("a", "model.py:12")
