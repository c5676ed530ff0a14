"""Model configurations of the DeepSeek family: frozen, validated, by name or from Hugging Face.

Field names are those of a Hugging Face `config.json`, so that a figure can be looked up there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from xla_cost.errors import XlaCostError


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A DeepSeek-like transformer: latent attention, then dense or mixture-of-experts FFN.

    Not modelled, because none of it changes FLOPs or bytes of a forward pass worth counting:
    the YaRN rescaling of rotary frequencies and the multi-token-prediction layer.
    """

    name: str
    hidden_size: int
    num_hidden_layers: int
    first_k_dense_replace: int  # the first layers, whose FFN is dense
    num_attention_heads: int
    q_lora_rank: int | None  # None: queries straight from the hidden state
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    intermediate_size: int
    moe_intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    n_shared_experts: int
    vocab_size: int
    n_group: int = 1
    topk_group: int = 1
    scoring_func: Literal["sigmoid", "softmax"] = "sigmoid"
    topk_method: Literal["noaux_tc", "group_limited_greedy", "greedy"] = "noaux_tc"
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 1.0
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        _check(self)

    @property
    def latent_dim(self) -> int:
        """Elements of the KV cache per token and layer: latent plus shared rotary key."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def qk_head_dim(self) -> int:
        """Width of one query or key head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def moe_layers(self) -> int:
        """Layers whose FFN is a mixture of experts."""
        return self.num_hidden_layers - self.first_k_dense_replace

    @property
    def kv_cache_elements_per_token(self) -> int:
        """Elements of the latent KV cache per token, all layers."""
        return self.latent_dim * self.num_hidden_layers


_CHOICES = {
    "scoring_func": ("sigmoid", "softmax"),
    "topk_method": ("noaux_tc", "group_limited_greedy", "greedy"),
}
_MAY_BE_ZERO = ("first_k_dense_replace", "n_shared_experts")


def _check(config: ModelConfig) -> None:
    for field in fields(ModelConfig):
        value = getattr(config, field.name)
        place = f"model {config.name}: {field.name} = {value!r}"
        if field.name in _CHOICES:
            if value not in _CHOICES[field.name]:
                raise XlaCostError(f"{place}, expected one of {', '.join(_CHOICES[field.name])}")
        elif field.name in ("rope_theta", "rms_norm_eps", "routed_scaling_factor"):
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 < value < sys.float_info.max:
                raise XlaCostError(f"{place}, expected a number above 0")
        elif field.name not in ("name", "norm_topk_prob"):
            least = 0 if field.name in _MAY_BE_ZERO else 1
            if field.name == "q_lora_rank" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise XlaCostError(f"{place}, expected a whole number of at least {least}")
    _check_relations(config)


def _check_relations(config: ModelConfig) -> None:
    def refuse(field: str, expected: str) -> None:
        raise XlaCostError(
            f"model {config.name}: {field} = {getattr(config, field)!r}, expected {expected}"
        )

    if config.qk_rope_head_dim % 2:
        refuse("qk_rope_head_dim", "an even number, because rotary halves turn in pairs")
    if config.first_k_dense_replace > config.num_hidden_layers:
        refuse("first_k_dense_replace", f"at most the {config.num_hidden_layers} layers")
    if config.n_routed_experts % config.n_group:
        refuse("n_group", f"a divisor of the {config.n_routed_experts} routed experts")
    if config.topk_group > config.n_group:
        refuse("topk_group", f"at most the {config.n_group} groups")
    reachable = config.n_routed_experts // config.n_group * config.topk_group
    if config.topk_method == "greedy":
        reachable = config.n_routed_experts
    if config.num_experts_per_tok > reachable:
        refuse("num_experts_per_tok", f"at most the {reachable} experts of the chosen groups")


_DEEPSEEK_V3 = ModelConfig(
    name="deepseek-v3",  # https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/config.json
    hidden_size=7168,
    num_hidden_layers=61,
    first_k_dense_replace=3,
    num_attention_heads=128,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    n_routed_experts=256,
    num_experts_per_tok=8,
    n_shared_experts=1,
    vocab_size=129280,
    n_group=8,
    topk_group=4,
    routed_scaling_factor=2.5,
)


def _derived(base: ModelConfig, **changes: Any) -> ModelConfig:
    return ModelConfig(**({f.name: getattr(base, f.name) for f in fields(base)} | changes))


#: The study (arXiv 2609.01821) names Mini, R1 and Next by active and total parameters only.
#: R1's dimensions are reported by digests of it; Mini (DeepSeek-V2 with 128 experts) and
#: Next are the shapes that reproduce the reported counts.
CONFIGS: dict[str, ModelConfig] = {
    "deepseek-v3": _DEEPSEEK_V3,
    "r1": _derived(
        _DEEPSEEK_V3, name="r1", hidden_size=8064, n_routed_experts=288, vocab_size=145440
    ),
    "mini": _derived(
        _DEEPSEEK_V3,
        name="mini",  # https://huggingface.co/deepseek-ai/DeepSeek-V2/blob/main/config.json
        hidden_size=5120,
        num_hidden_layers=60,
        first_k_dense_replace=1,
        intermediate_size=12288,
        moe_intermediate_size=1536,
        n_routed_experts=128,
        num_experts_per_tok=6,
        n_shared_experts=2,
        vocab_size=102400,
        topk_group=3,
        scoring_func="softmax",
        topk_method="group_limited_greedy",
        norm_topk_prob=False,
        routed_scaling_factor=16.0,
    ),
    "next": _derived(
        _DEEPSEEK_V3,
        name="next",
        hidden_size=16128,
        num_attention_heads=256,
        intermediate_size=36864,
        moe_intermediate_size=4096,
        n_routed_experts=1152,
        num_experts_per_tok=12,
        vocab_size=145440,
    ),
    # Small enough to run on a CPU; six heads and 250 words so that padding is exercised.
    "tiny": ModelConfig(
        name="tiny",
        hidden_size=64,
        num_hidden_layers=4,
        first_k_dense_replace=1,
        num_attention_heads=6,
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=8,
        intermediate_size=96,
        moe_intermediate_size=32,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_shared_experts=1,
        vocab_size=250,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=2.5,
    ),
}


def get_config(name_or_path: str | Path) -> ModelConfig:
    """The configuration called `name_or_path`, or read from that Hugging Face `config.json`.

    Raises:
        XlaCostError: no such name or file, or a file that is not of the DeepSeek family.
    """
    found = CONFIGS.get(str(name_or_path))
    if found is not None:
        return found
    path = Path(name_or_path)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise XlaCostError(
            f"model {str(name_or_path)!r} is neither a file nor one of {', '.join(CONFIGS)}"
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise XlaCostError(f"{path}: not readable as JSON ({error})") from error
    return from_hugging_face(raw, name=path.parent.name or path.stem, place=str(path))


def from_hugging_face(raw: Any, *, name: str, place: str = "config.json") -> ModelConfig:
    """`ModelConfig` from the parsed `config.json` of a DeepSeek V2, V3 or R1 checkpoint.

    Unknown keys are ignored. Raises XlaCostError for a missing key, a wrong type, or a
    model that is not the same architecture (sparse attention, MoE on every n-th layer).
    """
    if not isinstance(raw, dict):
        raise XlaCostError(f"{place}: holds a {type(raw).__name__}, expected an object")
    kind = raw.get("model_type")
    if kind not in ("deepseek_v2", "deepseek_v3"):
        raise XlaCostError(
            f"{place}: model_type = {kind!r}, expected 'deepseek_v2' or 'deepseek_v3'"
        )
    if raw.get("moe_layer_freq", 1) != 1:
        raise XlaCostError(f"{place}: moe_layer_freq = {raw['moe_layer_freq']!r}, expected 1")
    values: dict[str, Any] = {"name": name}
    for field in fields(ModelConfig):
        if field.name == "name":
            continue
        if raw.get(field.name) is not None or (field.name == "q_lora_rank" and field.name in raw):
            values[field.name] = raw[field.name]
        elif field.default is MISSING:
            raise XlaCostError(f"{place}: {field.name} is missing, expected a whole number")
    return ModelConfig(**values)
