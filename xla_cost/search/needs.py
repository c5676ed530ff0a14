"""What one forward pass needs at the least, as closed forms: no jax, no padding of tokens.

Lower bounds for the search, and what the FLOPs of a partitioned program are held against:
whatever a program computes beyond this is replication, padding or unmasked attention.
"""

from __future__ import annotations

from collections.abc import Mapping

from xla_cost.machine import Machine
from xla_cost.models.layout import Layout
from xla_cost.models.workload import Workload

_WIDTH_BYTES = {"fp4": 0.5, "fp8": 1.0, "bf16": 2.0, "fp32": 4.0}


def needed_flops(workload: Workload) -> Mapping[str, float]:
    """Matrix FLOPs of the whole workload over all devices, by number format.

    2 per multiply-add; attention causal, that is (s + 1) / 2 keys for the average query;
    each token through its top-k experts; head on one token per sequence. Decode counts the
    absorbed form: scores and values over the latent cache (DeepSeek-V2, arXiv 2405.04434, 2.1).
    """
    return _by_format(workload, _macs(workload))


def device_seconds(workload: Workload, layout: Layout, machine: Machine) -> float:
    """Seconds of matrix work on the busiest device at peak rates, at the least.

    Attention is split over parts of the batch, of the sequence and over whole heads, and
    repeated on devices along every other axis; the rest is split over all devices. Plain
    attention computes every score, causal or not, and moves each to memory and back.
    """
    share = _attention_share(workload, layout)
    shares = {"attention": share, "scores": share}
    macs = {n: count * shares.get(n, 1 / layout.devices) for n, count in _macs(workload).items()}
    scores = macs.pop("scores")
    seconds = _peak_seconds(_by_format(workload, macs), machine)
    if workload.attention == "flash" or workload.phase == "decode":
        return seconds + _peak_seconds(_by_format(workload, {"scores": scores}), machine)
    c, formats = workload.model, workload.formats
    count = workload.batch * workload.seq**2 * c.num_attention_heads * c.num_hidden_layers * share
    full = count * (c.qk_head_dim + c.v_head_dim)
    width = _WIDTH_BYTES[formats.residual] + _WIDTH_BYTES[formats.scores]
    moved_s = count * width / machine.memory_bytes_per_s
    return seconds + max(_peak_seconds(_by_format(workload, {"scores": full}), machine), moved_s)


def _attention_share(workload: Workload, layout: Layout) -> float:
    heads = workload.model.num_attention_heads
    mine = -(-heads // layout.size(layout.head_axes)) / heads
    return mine / (layout.batch_ranks * layout.seq_ranks)


def _peak_seconds(flops_by_format: Mapping[str, float], machine: Machine) -> float:
    """Seconds at peak; formats that the machine has no rate for are left out, not guessed."""
    peaks = machine.peak_flops
    return sum(flops / peaks[name] for name, flops in flops_by_format.items() if name in peaks)


def moved_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes of the residual stream that each device must receive or send, one after the other.

    Each layer gathers the stream over the head (and query) axes before attention and
    reduce-scatters it after: (g - 1) / g of [rows * positions, hidden] each way. FFN axes that
    split tokens do the same around the FFN. Over head and FFN axes that do not split tokens,
    partial sums of the local ones are added, at least (g - 1) / g of them. No step of a layer can
    run meanwhile, for what follows waits for it. Decode counts nothing: its streams are small.
    """
    if workload.phase == "decode":
        return 0.0
    width = _WIDTH_BYTES[workload.formats.residual]
    local = layout.tokens * layout.microbatches * workload.model.hidden_size * width
    gathered = layout.size(layout.gather_axes) - 1
    around_ffn = layout.size(layout.ffn_token_axes) - 1
    summed = [layout.size(axes) for axes in (layout.head_sum_axes, layout.ffn_sum_axes)]
    per_layer = 2 * gathered + 2 * around_ffn + sum((size - 1) / size for size in summed)
    return local * per_layer * workload.model.num_hidden_layers


def held_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes that each device holds at the least: routed experts and the cache it makes or reads."""
    c, formats = workload.model, workload.formats
    experts = c.moe_layers * c.n_routed_experts * 3 * c.hidden_size * c.moe_intermediate_size
    inside = layout.size(layout.expert_ffn_axes)
    experts_here = experts / layout.size(layout.expert_axes) / inside
    tokens = layout.rows * layout.positions if layout.decode else layout.tokens
    cache = tokens * layout.microbatches * c.kv_cache_elements_per_token
    return experts_here * _WIDTH_BYTES[formats.experts] + cache * _WIDTH_BYTES[formats.kv_cache]


def _macs(workload: Workload) -> Mapping[str, float]:
    """Multiply-adds of the whole workload by part of `Formats`."""
    c = workload.model
    decode = workload.phase == "decode"
    tokens = workload.batch * (1 if decode else workload.seq)
    heads, latent = c.num_attention_heads, c.kv_lora_rank
    query = (
        c.hidden_size * heads * c.qk_head_dim
        if c.q_lora_rank is None
        else c.q_lora_rank * (c.hidden_size + heads * c.qk_head_dim)
    )
    projections = query + c.hidden_size * (c.latent_dim + heads * c.v_head_dim)
    # absorbed or expanded, the two up-projections of the latent cost the same per token
    projections += latent * heads * (c.qk_nope_head_dim + c.v_head_dim)
    if decode:
        scores = workload.seq * heads * (c.latent_dim + latent)
    else:
        scores = (workload.seq + 1) // 2 * heads * (c.qk_head_dim + c.v_head_dim)
    expert = 3 * c.hidden_size * c.moe_intermediate_size
    kept = min(1.0, workload.capacity_factor)  # what exceeds the buffers is dropped
    used = c.num_experts_per_tok * kept + c.n_shared_experts
    router = tokens * c.moe_layers * c.hidden_size * c.n_routed_experts
    return {
        "attention": tokens * c.num_hidden_layers * projections,
        "scores": tokens * c.num_hidden_layers * scores,
        "dense": tokens * c.first_k_dense_replace * 3 * c.hidden_size * c.intermediate_size,
        "experts": tokens * c.moe_layers * used * expert,
        "residual": router + workload.batch * c.hidden_size * c.vocab_size,
    }


def _by_format(workload: Workload, macs: Mapping[str, float]) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for part, count in macs.items():
        if count:
            name = getattr(workload.formats, part)
            found[name] = found.get(name, 0.0) + 2.0 * count
    return found
