"""The model once more, in plain numpy on one device, loops and all; shares no code with models/.

Written from the papers (arXiv 2405.04434 and 2412.19437): multi-head latent attention in its
expanded form, sigmoid routing with group limits, every expert applied to the tokens it gets.
"""

import numpy as np


def rms(x, scale, eps):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rope(vector, position, theta):
    """Pairs of neighbours turned by position * theta ** (-2 i / width)."""
    out = vector.copy()
    for i in range(vector.shape[-1] // 2):
        angle = position * theta ** (-2 * i / vector.shape[-1])
        a, b = vector[..., 2 * i], vector[..., 2 * i + 1]
        out[..., 2 * i] = a * np.cos(angle) - b * np.sin(angle)
        out[..., 2 * i + 1] = a * np.sin(angle) + b * np.cos(angle)
    return out


def attention(c, w, x):
    """x [seq, hidden] of one sequence; returns its output and the cache entries."""
    seq, heads = x.shape[0], c.num_attention_heads
    nope, rank, theta = c.qk_nope_head_dim, c.kv_lora_rank, c.rope_theta
    q_in = x
    if c.q_lora_rank is not None:
        q_in = rms(x @ w["q_down"], w["q_norm"]["scale"], c.rms_norm_eps)
    entries = x @ w["kv_down"]
    latent = rms(entries[:, :rank], w["kv_norm"]["scale"], c.rms_norm_eps)
    rotary = np.stack([rope(entries[t, rank:], t, theta) for t in range(seq)])
    out = np.zeros_like(x)
    for h in range(heads):
        q = q_in @ w["q_up"][:, h]
        q[:, nope:] = np.stack([rope(q[t, nope:], t, theta) for t in range(seq)])
        k = np.concatenate([latent @ w["k_up"][:, h], rotary], axis=-1)
        scores = q @ k.T / np.sqrt(q.shape[-1])
        scores[np.triu_indices(seq, 1)] = -np.inf
        out += softmax(scores) @ (latent @ w["v_up"][:, h]) @ w["out"][h]
    return out, np.concatenate([latent, rotary], axis=-1)


def ffn(w, x):
    return (silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]


def route(c, w, x):
    """Experts and weights of one token."""
    logits = x @ w["weight"]
    scores = 1 / (1 + np.exp(-logits)) if c.scoring_func == "sigmoid" else softmax(logits)
    choice = scores + w["bias"] if c.topk_method == "noaux_tc" else scores.copy()
    if c.topk_method != "greedy":
        groups = choice.reshape(c.n_group, -1)
        if c.topk_method == "noaux_tc":
            value = np.sort(groups, axis=-1)[:, -2:].sum(-1)
        else:
            value = groups.max(-1)
        best = np.argsort(-value)[: c.topk_group]
        for g in set(range(c.n_group)) - set(best.tolist()):
            groups[g] = -np.inf
        choice = groups.reshape(-1)
    experts = np.argsort(-choice)[: c.num_experts_per_tok]
    weights = scores[experts]
    if c.norm_topk_prob:
        weights = weights / weights.sum()
    return experts, weights * c.routed_scaling_factor


def moe(c, w, x):
    out = np.zeros_like(x)
    for t in range(x.shape[0]):
        for e, weight in zip(*route(c, w["router"], x[t]), strict=True):
            one = {name: w["experts"][name][e] for name in ("gate", "up", "down")}
            out[t] += weight * ffn(one, x[t])
    return out + ffn(w["shared"], x) if c.n_shared_experts else out


def layer_of(stack, index):
    return {
        name: layer_of(value, index) if isinstance(value, dict) else value[index]
        for name, value in stack.items()
    }


def forward(c, weights, ids):
    """Logits [batch, vocab] of the last position, and per stack [layers, batch, seq, _]."""
    logits, caches = [], {}
    for sequence in ids:
        h = weights["embed"][sequence].astype(np.float64)
        for stack in ("dense_layers", "moe_layers"):
            entries = []
            count = weights[stack]["attention_norm"]["scale"].shape[0] if stack in weights else 0
            for index in range(count):
                w = layer_of(weights[stack], index)
                x = rms(h, w["attention_norm"]["scale"], c.rms_norm_eps)
                out, cache = attention(c, w["attention"], x)
                entries.append(cache)
                h = h + out
                x = rms(h, w["ffn_norm"]["scale"], c.rms_norm_eps)
                h = h + (ffn(w["ffn"], x) if "ffn" in w else moe(c, w["moe"], x))
            if count:
                caches.setdefault(stack, []).append(np.stack(entries))
        h = rms(h[-1], weights["final_norm"]["scale"], c.rms_norm_eps)
        logits.append(h @ weights["head"])
    return np.stack(logits), {name: np.stack(c, axis=1) for name, c in caches.items()}
