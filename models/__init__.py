"""Flax models of the DeepSeek family, ready to be lowered. The core never imports this.

Configurations, workloads, plans and layouts need no jax; `build` imports it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from xla_cost.models.config import CONFIGS, ModelConfig, from_hugging_face, get_config
from xla_cost.models.formats import PRESETS, Formats, get_formats
from xla_cost.models.plan import PLANS, Plan, get_plan
from xla_cost.models.workload import Workload

if TYPE_CHECKING:
    from xla_cost.models.assemble import ModelProgram, build

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


def __getattr__(name: str) -> Any:
    if name in ("ModelProgram", "build"):
        # the module is not called `build`: importing it would bind that name to the module
        module = importlib.import_module("xla_cost.models.assemble")
        globals().update(ModelProgram=module.ModelProgram, build=module.build)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
