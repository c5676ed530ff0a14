"""Flax models of the DeepSeek family, ready to be lowered. Imports jax; the core never imports this."""

from xla_cost.models.build import ModelProgram, build
from xla_cost.models.config import CONFIGS, ModelConfig, from_hugging_face, get_config
from xla_cost.models.formats import PRESETS, Formats, get_formats
from xla_cost.models.plan import PLANS, Plan, get_plan
from xla_cost.models.workload import Workload

__all__ = [
    "CONFIGS",
    "PLANS",
    "PRESETS",
    "Formats",
    "ModelConfig",
    "ModelProgram",
    "Plan",
    "Workload",
    "build",
    "from_hugging_face",
    "get_config",
    "get_formats",
    "get_plan",
]
