"""FLOPs per device and the payload of every collective equal closed forms, digit for digit.

Each case spells its local sizes out as numbers. Letters: D hidden, H heads on a device, E
routed experts, K experts per token, V words; b sequences, s positions and T residual tokens on
a device; keys a query sees; C rows per expert and source device.
"""

from collections import Counter
from dataclasses import dataclass

import pytest

from xla_cost.hlo import parse
from xla_cost.lowering import ensure_devices, partition
from xla_cost.models import Workload, build, get_config, get_formats, get_plan
from xla_cost.walk import walk

BF16 = 2
Q_RANK, KV_RANK, NOPE, ROPE, V_HEAD, DENSE, INNER = 1536, 512, 128, 64, 128, 18432, 2048
LAYERS, DENSE_LAYERS = 61, 3
MODELS = {  # hidden, experts, experts per token, vocabulary
    "deepseek-v3": (7168, 256, 8, 129280),
    "r1": (8064, 288, 8, 145440),
}


@dataclass(frozen=True)
class Prefill:
    model: str
    plan: str
    mesh: tuple[int, int, int]
    batch: int
    seq: int
    b: int  # sequences of an attention group
    s: int  # positions of each that a device has queries for
    heads: int  # on a device, padding included
    head_ranks: int = 1  # devices the output is reduce-scattered over
    stripes: int = 1  # devices each sequence is split over by position
    gathered: int = 1  # of those, how many have their whole stream gathered
    z_tokens: int = 1  # devices along z whose tokens are gathered before the FFN
    batch_on_vocab: int = 1  # parts of the batch on axes that split the vocabulary


CASES = [
    # 2048 * 8192 tokens: 8199 positions make 2048 * 8199 = 72 * 233216; 128 heads / 72 -> 2
    Prefill("r1", "study", (1, 72, 1), 2048, 8192, b=2048, s=8199, heads=2, head_ranks=72),
    Prefill("r1", "study", (1, 16, 1), 8192, 1024, b=8192, s=1024, heads=8, head_ranks=16),
    # 32 * 131076 = 144 * 29128; 128 / 144 -> 1
    Prefill("r1", "study", (2, 144, 1), 64, 131072, b=32, s=131076, heads=1, head_ranks=144),
    Prefill("r1", "study", (4, 72, 1), 64, 131072, b=16, s=131076, heads=2, head_ranks=72),
    # 2 * 1048608 = 288 * 7282
    Prefill("r1", "study", (4, 288, 1), 8, 2**20, b=2, s=1048608, heads=1, head_ranks=288),
    # x = 8 parts of the batch times 2 of the sequence: 524288 -> 524304 = 72 * 7282
    Prefill("r1", "study", (16, 72, 1), 8, 2**20, b=1, s=524304, heads=2, head_ranks=72,
            stripes=2),
    Prefill("r1", "study", (2, 24, 2), 64, 8192, b=32, s=8193, heads=6, head_ranks=24),
    # 144 = 9 query stripes * 16 heads ranks: ceil(131072 / 9) = 14564, 32 * 14564 = 16 * 29128
    Prefill("r1", "study-balanced", (2, 144, 1), 64, 131072, b=32, s=14564, heads=8,
            head_ranks=16, stripes=9, gathered=9),
    # 64 = 2 * 32 parts of the batch, 9 stripes each
    Prefill("r1", "dp-attention", (2, 144, 1), 64, 131072, b=2, s=14564, heads=128, stripes=9,
            batch_on_vocab=16),
    Prefill("r1", "dp-attention", (1, 18, 4), 64, 8192, b=8, s=911, heads=128, stripes=9,
            z_tokens=4, batch_on_vocab=8),
    Prefill("deepseek-v3", "study", (2, 64, 1), 64, 8192, b=32, s=8192, heads=2, head_ranks=64),
    Prefill("deepseek-v3", "study", (3, 32, 2), 4, 8192, b=4, s=2736, heads=4, head_ranks=32,
            stripes=3),
    Prefill("deepseek-v3", "dp-attention", (1, 32, 1), 64, 4096, b=2, s=4096, heads=128,
            batch_on_vocab=32),
]  # fmt: skip


def flops(case):
    D, E, K, V = MODELS[case.model]
    _, y, z = case.mesh
    b, s, H = case.b, case.s, case.heads
    keys = case.stripes * s
    T = b * s // case.head_ranks
    T_ffn = T * case.z_tokens
    C = -(-T_ffn * K // E)
    attention = (
        2 * b * s * D * Q_RANK
        + 2 * b * s * Q_RANK * H * (NOPE + ROPE)
        + 2 * case.gathered * b * s * D * (KV_RANK + ROPE)
        + 2 * b * keys * KV_RANK * H * (NOPE + V_HEAD)
        + 2 * b * s * H * V_HEAD * D
    )
    scores = 2 * b * H * s * keys * (NOPE + ROPE + V_HEAD)
    dense = 3 * 2 * T_ffn * D * DENSE // z
    router = 2 * T_ffn * D * E
    experts = 3 * 2 * (E // y) * (y * C) * D * INNER // z
    shared = 3 * 2 * T_ffn * D * INNER // z
    head = 2 * b * case.batch_on_vocab * D * (V // (y * z))
    moe_layers = LAYERS - DENSE_LAYERS
    return {
        "fp4": LAYERS * attention + DENSE_LAYERS * dense + moe_layers * (experts + shared),
        "bf16": LAYERS * scores + moe_layers * router + head,
    }


def collectives(case):
    """(kind, devices per group, payload bytes) to executions."""
    D, E, K, _ = MODELS[case.model]
    _, y, z = case.mesh
    T = case.b * case.s // case.head_ranks
    C = -(-T * case.z_tokens * K // E)
    found = Counter()

    def add(kind, devices, payload, times):
        if devices > 1:
            found[kind, devices, payload] += times

    stream = case.head_ranks * case.gathered
    add("all-gather", stream, T * D * BF16, LAYERS)
    latent = case.stripes // case.gathered
    add("all-gather", latent, case.b * case.s * case.gathered * (KV_RANK + ROPE) * BF16, LAYERS)
    add("reduce-scatter", case.head_ranks, case.b * case.s * D * BF16, LAYERS)
    add("all-to-all", y, E * C * D * BF16, 2 * (LAYERS - DENSE_LAYERS))
    add("all-gather", case.z_tokens, T * D * BF16, LAYERS)
    add("reduce-scatter", case.z_tokens, T * case.z_tokens * D * BF16, LAYERS)
    add("all-reduce", z // case.z_tokens, T * D * BF16, LAYERS)
    # embedding: ids of all tokens over y, then the columns of each device's part of the table
    add("all-gather", y, T * 4, 1)
    add("all-to-all", y, y * T * -(-D // y) * BF16, 1)
    # head: the last token of every sequence, on the one device that has it
    add("all-reduce", case.head_ranks * case.stripes, case.b * D * BF16, 1)
    add("all-gather", case.batch_on_vocab, case.b * D * BF16, 1)
    return found


def ledger(workload, plan, mesh):
    ensure_devices(1152)
    program = build(workload, get_plan(plan), mesh)
    hlo = partition(program.fn, program.args, mesh=program.mesh)
    assert hlo.warnings == ()
    (module,) = parse(hlo.text)
    return walk(module)


def measured(program):
    by_format, found = Counter(), Counter()
    for op, times in program.walk():
        assert op.kind != "unpriced", op
        for matmul in op.matmuls:
            by_format[matmul.format] += matmul.flops * int(times)
        if op.collective is not None:
            groups = op.collective.groups
            assert groups.size * groups.count == program.devices
            found[op.collective.kind, groups.size, op.collective.payload_bytes] += int(times)
    return dict(by_format), found


@dataclass(frozen=True)
class TensorParallel:
    """`b` rows of `s` positions (decode: slots) on every device of its y and z axes."""

    phase: str
    model: str
    mesh: tuple[int, int, int]
    batch: int
    seq: int
    b: int
    s: int
    heads: int  # on a device, padding included
    dense: int  # of the inner width of a dense FFN
    shared: int  # of a shared expert
    stripes: int = 1  # devices that hold parts of one cache


TENSOR_PARALLEL = [
    # 128 heads over 8 devices; 18432 / 8; 2048 / 8
    TensorParallel("decode", "deepseek-v3", (1, 8, 1), 64, 4096, b=64, s=4096, heads=16,
                   dense=2304, shared=256),
    # two replicas of half the batch; routed experts split in two inside, shared ones in eight
    TensorParallel("decode", "deepseek-v3", (2, 4, 2), 6, 4096, b=3, s=4096, heads=32,
                   dense=2304, shared=256),
    # one sequence on two replicas: each holds half of its cache
    TensorParallel("decode", "deepseek-v3", (2, 4, 1), 1, 4096, b=1, s=2048, heads=32,
                   dense=4608, shared=512, stripes=2),
    # 128 heads / 72 -> 2; 18432 / 72 = 256; 2048 / 72 -> 29
    TensorParallel("decode", "r1", (1, 72, 1), 512, 8192, b=512, s=8192, heads=2, dense=256,
                   shared=29),
    TensorParallel("prefill", "deepseek-v3", (2, 8, 2), 16, 4096, b=8, s=4096, heads=16,
                   dense=1152, shared=128),
    TensorParallel("prefill", "r1", (1, 72, 1), 64, 8192, b=64, s=8192, heads=2, dense=256,
                   shared=29),
]  # fmt: skip


def tensor_parallel_flops(case):
    D, E, K, V = MODELS[case.model]
    _, y, z = case.mesh
    b, s, H = case.b, case.s, case.heads
    decode = case.phase == "decode"
    T = b if decode else b * s
    C = -(-T * K // E)
    per_token = D * Q_RANK + Q_RANK * H * (NOPE + ROPE) + D * (KV_RANK + ROPE)
    per_token += KV_RANK * H * (NOPE + V_HEAD) + H * V_HEAD * D
    keys = KV_RANK + ROPE + KV_RANK if decode else NOPE + ROPE + V_HEAD
    experts = 3 * 2 * (E // y) * C * D * INNER // z
    ffn = 3 * 2 * T * D
    moe_layers = LAYERS - DENSE_LAYERS
    return {
        "fp4": LAYERS * 2 * T * per_token
        + DENSE_LAYERS * ffn * case.dense
        + moe_layers * (experts + ffn * case.shared),
        "bf16": LAYERS * 2 * T * H * s * keys
        + moe_layers * 2 * T * D * E
        + 2 * b * D * (V // (y * z)),
    }


def tensor_parallel_collectives(case):
    """All-reduces of all tokens, twice a layer; no token is gathered, scattered or sent."""
    D = MODELS[case.model][0]
    _, y, z = case.mesh
    T = case.b if case.phase == "decode" else case.b * case.s
    found = Counter()
    found["all-reduce", y, T * D * BF16] += LAYERS
    found["all-reduce", y * z, T * D * BF16] += LAYERS
    found["all-gather", y, T * -(-D // y) * BF16] += 1  # columns of the embedding
    if case.stripes > 1:  # two halves of one token's attention become one
        found["all-gather", case.stripes, T * D * BF16] += LAYERS + 1
        found["all-reduce", case.stripes, case.b * case.heads * 4] += LAYERS
        merged = case.stripes * T * case.heads * (KV_RANK + 1) * 4
        found["reduce-scatter", case.stripes, merged] += LAYERS
    return found


@pytest.mark.parametrize("case", TENSOR_PARALLEL, ids=lambda c: f"{c.phase}-{c.model}-{c.mesh}")
def test_tensor_parallel(case):
    formats, config = get_formats("fp4"), get_config(case.model)
    workload = Workload(config, case.batch, case.seq, case.phase, formats, attention="plain")
    program = ledger(workload, "tensor-parallel", case.mesh)
    by_format, found = measured(program)
    assert by_format == tensor_parallel_flops(case)
    assert found == tensor_parallel_collectives(case)


def test_memory_of_tensor_parallel_decode():
    """Bytes on each of 8 devices: every cache entry, an eighth of heads, experts, FFNs and words.

    Down-projections of attention, norms and routers are whole on every device.
    """
    config = get_config("deepseek-v3")
    workload = Workload(config, 64, 4096, "decode", get_formats("fp8"))
    ensure_devices(8)
    built = build(workload, get_plan("tensor-parallel"), (1, 8, 1))
    D, E, _, V = MODELS["deepseek-v3"]
    moe_layers = LAYERS - DENSE_LAYERS
    whole = D * Q_RANK + D * (KV_RANK + ROPE)
    heads = Q_RANK * 128 * (NOPE + ROPE) + KV_RANK * 128 * (NOPE + V_HEAD) + 128 * V_HEAD * D
    fp8 = LAYERS * (whole + heads // 8) + DENSE_LAYERS * 3 * D * DENSE // 8
    fp8 += moe_layers * (E + 1) * 3 * D * INNER // 8
    norms = LAYERS * (2 * D + Q_RANK + KV_RANK) + D
    bf16 = 2 * D * V // 8 + norms + moe_layers * (D * E + E)
    assert built.weights_bytes == fp8 + BF16 * bf16
    assert built.kv_cache_bytes == 64 * 4096 * LAYERS * (KV_RANK + ROPE) * BF16


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.model}-{c.plan}-{c.mesh}-{c.seq}")
def test_prefill(case):
    workload = Workload(
        get_config(case.model), case.batch, case.seq, formats=get_formats("fp4"), attention="plain"
    )
    by_format, found = measured(ledger(workload, case.plan, case.mesh))
    assert by_format == flops(case)
    assert found == collectives(case)


def test_communication_of_the_study_at_8k_on_72_devices():
    """2 * 61 stream passes and 2 * 58 exchanges at 900 GB/s: about 40.2 s, as derived before."""
    case = CASES[0]
    wire = 0
    for (kind, devices, payload), times in collectives(case).items():
        share = (
            (devices - 1) * payload if kind == "all-gather" else (devices - 1) * payload / devices
        )
        wire += times * share * (2 if kind == "all-reduce" else 1)
    assert wire / 900e9 == pytest.approx(40.2, rel=0.01)


@dataclass(frozen=True)
class Decode:
    model: str
    plan: str
    mesh: tuple[int, int, int]
    batch: int
    seq: int
    b: int  # sequences of an attention group
    slots: int  # of the cache on a device
    T: int  # residual tokens of a device
    heads: int
    head_ranks: int = 1
    stripes: int = 1
    batch_on_vocab: int = 1


DECODE_CASES = [
    # 512 sequences over 72 devices: 8 each, 576 with padding
    Decode("r1", "study", (1, 72, 1), 512, 8192, b=512, slots=8192, T=8, heads=2, head_ranks=72),
    # 2048 / 24 -> 86
    Decode("r1", "dp-attention", (1, 24, 1), 2048, 8192, b=86, slots=8192, T=86, heads=128,
           batch_on_vocab=24),
    # 8 sequences, 3 stripes each: 8192 / 3 -> 2731 slots, one sequence's token per 3 devices
    Decode("r1", "dp-attention", (1, 24, 1), 8, 8192, b=1, slots=2731, T=1, heads=128, stripes=3,
           batch_on_vocab=8),
    Decode("deepseek-v3", "study", (2, 32, 1), 128, 4096, b=64, slots=4096, T=2, heads=4,
           head_ranks=32),
    Decode("deepseek-v3", "dp-attention", (1, 64, 1), 256, 4096, b=4, slots=4096, T=4, heads=128,
           batch_on_vocab=64),
]  # fmt: skip


def decode_flops(case):
    D, E, K, V = MODELS[case.model]
    _, y, _ = case.mesh
    b, H, T = case.b, case.heads, case.T
    # rows that have a device's final attention result: its share of the (padded) sequences
    rows = b if case.stripes == 1 else T * case.head_ranks
    attention = (
        2 * b * D * Q_RANK
        + 2 * b * Q_RANK * H * (NOPE + ROPE)
        + 2 * b * D * (KV_RANK + ROPE)
        + 2 * b * H * NOPE * KV_RANK
        + 2 * rows * H * KV_RANK * V_HEAD
        + 2 * rows * H * V_HEAD * D
    )
    scores = 2 * b * H * case.slots * (KV_RANK + ROPE + KV_RANK)
    rows_per_expert = -(-y * T * K // E)
    dense, shared = 3 * 2 * T * D * DENSE, 3 * 2 * T * D * INNER
    experts = 3 * 2 * (E // y) * rows_per_expert * D * INNER
    head = 2 * b * case.batch_on_vocab * D * (V // y)
    moe_layers = LAYERS - DENSE_LAYERS
    return {
        "fp4": LAYERS * attention + DENSE_LAYERS * dense + moe_layers * (experts + shared),
        "bf16": LAYERS * scores + moe_layers * 2 * T * D * E + head,
    }


def decode_collectives(case):
    D, E, K, _ = MODELS[case.model]
    _, y, _ = case.mesh
    T, H, group = case.T, case.heads, case.head_ranks * case.stripes
    found = Counter()

    def add(kind, devices, payload, times):
        if devices > 1:
            found[kind, devices, payload] += times

    moe_layers = LAYERS - DENSE_LAYERS
    add("all-gather", group, T * D * BF16, LAYERS)
    # merging partial softmax: the highest score, then values and sum in fp32
    add("all-reduce", case.stripes, case.b * H * 4, LAYERS)
    add("reduce-scatter", case.stripes, T * group * H * (KV_RANK + 1) * 4, LAYERS)
    add("reduce-scatter", case.head_ranks, T * case.head_ranks * D * BF16, LAYERS)
    # one buffer per destination device; expert 0..E/y-1 or "empty" in binary rides along
    rows = y * -(-T * K // y)
    add("all-to-all", y, rows * (D + (E // y).bit_length()) * BF16, moe_layers)
    add("all-to-all", y, rows * D * BF16, moe_layers)
    add("all-gather", y, T * 4, 1)
    add("all-to-all", y, y * T * -(-D // y) * BF16, 1)
    add("all-gather", group, T * D * BF16, 1)
    add("all-gather", case.batch_on_vocab, case.b * D * BF16, 1)
    return found


@pytest.mark.parametrize(
    "case", DECODE_CASES, ids=lambda c: f"{c.model}-{c.plan}-{c.mesh}-{c.batch}"
)
def test_decode(case):
    workload = Workload(get_config(case.model), case.batch, case.seq, "decode", get_formats("fp4"))
    program = ledger(workload, case.plan, case.mesh)
    by_format, found = measured(program)
    assert by_format == decode_flops(case)
    assert found == decode_collectives(case)
    kernels = [op for op, _ in program.walk() if op.region == "mla_decode"]
    cache_of_a_layer = case.b * case.slots * (KV_RANK + ROPE) * BF16
    assert all(op.bytes_read > cache_of_a_layer for op in kernels)
    assert len(kernels) == 2  # one in the loop over dense layers, one over the others
