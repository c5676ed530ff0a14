"""Configurations, parameter counts, formats, and what a mesh or a file is refused for."""

import json
import re
from dataclasses import asdict, replace

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.models import (
    PLANS,
    Workload,
    build,
    from_hugging_face,
    get_config,
    get_formats,
    get_plan,
)
from xla_cost.models.counts import count_parameters
from xla_cost.models.layout import resolve

R1 = get_config("r1")


def test_deepseek_v3_counts_spelled_out():
    attention = (
        7168 * 1536 + 1536 * 128 * (128 + 64) + 7168 * (512 + 64)
        + 512 * 128 * (128 + 128) + 128 * 128 * 7168
    )  # fmt: skip
    norms = 61 * (7168 + 1536 + 512 + 7168) + 7168 + 58 * 256  # and the router's bias
    expert = 3 * 7168 * 2048
    rest = 61 * attention + norms + 3 * 3 * 7168 * 18432 + 2 * 129280 * 7168
    counts = count_parameters(get_config("deepseek-v3"))
    assert counts.total == rest + 58 * (256 + 1) * expert
    assert counts.active == rest + 58 * (8 + 1) * expert
    assert counts.router == 58 * 7168 * 256
    assert counts.total + counts.router == sum(counts.by_part.values()) == 671_026_419_200


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("deepseek-v3", "670.9", "37.4"),
        ("r1", "846.6", "42.0"),
        ("mini", "191.1", "21.3"),
        ("next", "13304.2", "200.4"),
    ],
)
def test_counts_as_published(name, total, active):
    counts = count_parameters(get_config(name))
    assert (f"{counts.total / 1e9:.1f}", f"{counts.active / 1e9:.1f}") == (total, active)


def test_a_hugging_face_file_gives_the_same_model(tmp_path):
    config = get_config("deepseek-v3")
    raw = {k: v for k, v in asdict(config).items() if k != "name"}
    folder = tmp_path / "deepseek-v3"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(raw | {"model_type": "deepseek_v3", "bos": 0}))
    assert get_config(folder / "config.json") == config
    assert get_config(folder) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "llama"}, "model_type = 'llama', expected 'deepseek_v2' or 'deepseek_v3'"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "7168"}, "hidden_size = '7168', expected a whole number of at least 1"),
        ({"hidden_size": 0}, "hidden_size = 0, expected a whole number of at least 1"),
        ({"n_group": 7}, "n_group = 7, expected a divisor of the 256 routed experts"),
        ({"topk_group": 9}, "topk_group = 9, expected at most the 8 groups"),
        ({"num_experts_per_tok": 200}, "num_experts_per_tok = 200, expected at most the 128"),
        ({"qk_rope_head_dim": 63}, "qk_rope_head_dim = 63, expected an even number"),
        ({"first_k_dense_replace": 62}, "first_k_dense_replace = 62, expected at most the 61"),
        ({"scoring_func": "relu"}, "scoring_func = 'relu', expected one of sigmoid, softmax"),
        ({"rope_theta": 0}, "rope_theta = 0, expected a number above 0"),
        ({"moe_layer_freq": 2}, "moe_layer_freq = 2, expected 1"),
    ],
)
def test_a_file_that_is_not_right_is_refused_in_one_sentence(change, message):
    raw = asdict(get_config("deepseek-v3")) | {"model_type": "deepseek_v3"} | change
    with pytest.raises(XlaCostError, match=re.escape(message)):
        from_hugging_face(raw, name="file", place="config.json")


def test_unreadable_models_are_refused(tmp_path):
    broken = tmp_path / "config.json"
    broken.write_text("{")
    with pytest.raises(XlaCostError, match="not readable as JSON"):
        get_config(broken)
    with pytest.raises(XlaCostError, match="model 'gpt' is neither a file nor one of deepseek-v3"):
        get_config("gpt")
    with pytest.raises(XlaCostError, match="holds a list, expected an object"):
        from_hugging_face([], name="x")


def test_formats():
    assert get_formats("fp4").experts == "fp4"
    assert (get_formats("fp8+fp4").attention, get_formats("fp8+fp4").experts) == ("fp8", "fp4")
    changed = get_formats("fp4:dispatch=fp8,kv_cache=fp8")
    assert changed == replace(get_formats("fp4"), dispatch="fp8", kv_cache="fp8")
    for text, message in {
        "int3": "format 'int3': expected one of bf16",
        "fp4:wheels=fp8": "part 'wheels'",
        "fp4:dispatch=int3": "dispatch = 'int3', expected one of fp4, fp8",
    }.items():
        with pytest.raises(XlaCostError, match=message):
            get_formats(text)


@pytest.mark.parametrize(
    ("plan", "mesh", "batch", "seq", "changes", "message"),
    [
        ("study", (1, 7, 1), 64, 8192, {}, "y = 7 devices, expected a divisor of the 288 experts"),
        ("study", (4, 2), 64, 8192, {}, "mesh '4x2': expected three sizes of at least 1"),
        ("study", (0, 2, 1), 64, 8192, {}, "mesh '0x2x1': expected three sizes of at least 1"),
        ("study", (16, 2, 1), 1, 8, {}, "1 sequences of 8 positions, expected at least the 16"),
        ("study", (1, 72, 1), 2, 8, {}, "16 tokens per group of 72 devices"),
        ("study", (1, 1, 4096), 2, 8, {}, "4096 devices split the FFN, expected at most its inner"),
        (
            "study",
            (8, 2, 1),
            8,
            64,
            {"microbatches": 2},
            "microbatches = 2, expected at most the 1",
        ),
        ("study", (1, 2, 1), 1, 64, {"microbatches": 2}, "microbatches = 2, expected at most the"),
    ],
)
def test_a_mesh_that_cannot_work_is_refused(plan, mesh, batch, seq, changes, message):
    with pytest.raises(XlaCostError, match=re.escape(message)):
        resolve(Workload(R1, batch, seq, **changes), get_plan(plan), mesh)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "batch = 0, expected a whole number of at least 1"),
        ({"seq": 1.5}, "seq = 1.5, expected a whole number of at least 1"),
        ({"phase": "train"}, "phase = 'train', expected prefill or decode"),
        ({"attention": "ring"}, "attention = 'ring', expected flash or plain"),
        ({"capacity_factor": 0.0}, "capacity_factor = 0.0, expected a number above 0"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(XlaCostError, match=re.escape(message)):
        Workload(**({"model": R1, "batch": 8, "seq": 64} | changes))


def test_unknown_plan():
    with pytest.raises(XlaCostError, match="plan 'best': expected one of study, study-balanced"):
        get_plan("best")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"remainder": "queries"}, "remainder = 'queries', expected 'pad' where the stream is"),
        ({"whole_stream": False}, "ffn = ('y', 'z'), expected no axis of experts = ('y',), which"),
    ],
)
def test_rules_that_contradict_a_whole_stream_are_refused(changes, message):
    with pytest.raises(XlaCostError, match=re.escape(message)):
        replace(get_plan("tensor-parallel"), **changes)


#: batch, sequence and mesh of the study's cells
STUDY_POINTS = [
    (8192, 1024, (1, 16, 1)),
    (8192, 1024, (1, 72, 1)),
    (2048, 8192, (1, 16, 1)),
    (2048, 8192, (1, 72, 1)),
    (64, 131072, (1, 16, 1)),
    (64, 131072, (1, 72, 1)),
    (64, 131072, (2, 144, 1)),
    (64, 131072, (4, 72, 1)),
    (8, 2**20, (4, 72, 1)),
    (8, 2**20, (4, 144, 1)),
    (8, 2**20, (4, 288, 1)),
    (8, 2**20, (16, 72, 1)),
]


@pytest.mark.parametrize(("batch", "seq", "mesh"), STUDY_POINTS)
@pytest.mark.parametrize("plan", PLANS)
def test_padding_wastes_less_than_one_percent_of_tokens_at_the_study_points(plan, batch, seq, mesh):
    layout = resolve(Workload(R1, batch, seq), get_plan(plan), mesh)
    assert layout.padded_tokens >= batch * seq
    assert 1 - batch * seq / layout.padded_tokens < 0.01


@pytest.mark.parametrize(
    ("plan", "mesh", "phase", "batch", "microbatches", "tokens"),
    [
        ("dp-attention", (1, 8, 1), "decode", 1, 1, 1),  # padding on the other seven is no token
        ("dp-attention", (1, 8, 1), "decode", 64, 1, 64),  # all of them meet at the experts
        ("tensor-parallel", (2, 4, 1), "decode", 9, 1, 5),  # two copies of the experts: 5 and 4
        ("study", (2, 4, 1), "prefill", 4, 1, 4 * 4096 // 2),
        ("dp-attention", (1, 4, 2), "prefill", 16, 2, 16 * 4096 // 2),  # z is gathered: one copy
    ],
)
def test_tokens_that_one_copy_of_the_experts_gets(plan, mesh, phase, batch, microbatches, tokens):
    workload = Workload(R1, batch, 4096, phase, microbatches=microbatches)
    assert resolve(workload, get_plan(plan), mesh).routed_tokens == tokens


def test_x_splits_the_batch_first_and_then_positions_in_stripes():
    layout = resolve(Workload(R1, 8, 2**20), get_plan("study"), (16, 72, 1))
    assert layout.mesh_axes == ("x_batch", "x_seq", "y", "z")
    assert layout.mesh_sizes == (8, 2, 72, 1)
    # the second stripe's j-th query sees 2 j + 2 of 2 n keys
    n = layout.positions
    assert layout.causal_work == sum(2 * j + 2 for j in range(100)) / (2 * 100 * 100) * (
        (n + 1) / n / (101 / 100)
    )


def test_facts_of_a_program():
    program = build(
        Workload(R1, 2048, 8192, formats=get_formats("fp4")), get_plan("study"), (1, 72, 1)
    )
    assert program.mesh.shape == {"x": 1, "y": 72, "z": 1}
    # ceil(8 * 233216 / 288) slots per expert and source device
    assert program.padding["expert_slots_per_buffer"] == 6479
    assert program.padding["dropped_share_if_balanced"] == 0
    assert program.padding["head_share"] == 1 - 128 / 144
    assert "128 heads over 72 devices: 2 each, 8 devices idle" in program.notes
    # every device keeps the latents of its own tokens, two bytes each
    assert program.kv_cache_bytes == 233216 * 576 * 61 * 2
