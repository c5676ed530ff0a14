"""What one forward pass needs at the least, as closed forms: no jax, no mesh, no padding.

Lower bounds for the search, and what the FLOPs of a partitioned program are held against:
whatever a program computes beyond this is replication, padding or unmasked attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from xla_cost.models.layout import Layout
from xla_cost.models.workload import Workload


def needed_flops(workload: Workload) -> Mapping[str, float]:
    """Matrix FLOPs of the whole workload over all devices, by number format.

    2 per multiply-add; attention causal, that is (s + 1) / 2 keys for the average query;
    each token through its top-k experts; head on one token per sequence. Decode counts the
    absorbed form: scores and values over the latent cache (DeepSeek-V2, arXiv 2405.04434, 2.1).
    """
    c, formats = workload.model, workload.formats
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
    used = c.num_experts_per_tok + c.n_shared_experts
    macs: Counter[str] = Counter()
    macs[formats.attention] += tokens * c.num_hidden_layers * projections
    macs[formats.scores] += tokens * c.num_hidden_layers * scores
    macs[formats.dense] += (
        tokens * c.first_k_dense_replace * 3 * c.hidden_size * c.intermediate_size
    )
    macs[formats.experts] += tokens * c.moe_layers * used * expert
    macs[formats.residual] += tokens * c.moe_layers * c.hidden_size * c.n_routed_experts  # router
    macs[formats.residual] += workload.batch * c.hidden_size * c.vocab_size
    return {name: 2.0 * count for name, count in macs.items() if count}


def gathered_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes each device must receive, then send on, so that attention sees its whole group.

    The residual stream is gathered over the head (and query) axes before attention and
    reduce-scattered after it: (g - 1) / g of [rows * positions, hidden] each way and layer.
    0 for plans whose devices attend to their own tokens, and for decode.
    """
    if workload.phase == "decode":
        return 0.0
    ranks = layout.size(layout.gather_axes)
    whole = layout.tokens * layout.microbatches * ranks * workload.model.hidden_size
    width = {"fp4": 0.5, "fp8": 1.0, "bf16": 2.0, "fp32": 4.0}[workload.formats.residual]
    return 2 * whole * width * (ranks - 1) / ranks * workload.model.num_hidden_layers
