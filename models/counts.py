"""Parameter counts, from the shapes of the abstract Flax parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from flax import nnx

from xla_cost.models.build import abstract_model
from xla_cost.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Numbers of parameters. `active` counts of the routed experts only the chosen ones.

    Both embeddings (table and head) are in `total` and `active`, as model cards count them.
    """

    total: int
    active: int
    by_part: Mapping[str, int]


def count_parameters(config: ModelConfig) -> ParameterCounts:
    """Counts of `config`; nothing is allocated. Parts are those that have a number format."""
    by_part: dict[str, int] = {}
    total, routed = 0, 0
    for _, variable in nnx.to_flat_state(nnx.state(abstract_model(config))):
        metadata = variable.get_metadata()
        size = math.prod(variable.get_value().shape)
        by_part[metadata["part"]] = by_part.get(metadata["part"], 0) + size
        total += size
        if "experts" in metadata["axes"]:
            routed += size
    idle = 1 - Fraction(config.num_experts_per_tok, config.n_routed_experts)
    return ParameterCounts(total, total - int(routed * idle), by_part)
