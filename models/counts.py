"""Parameter counts, from the shapes of the abstract Flax parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from flax import nnx

from xla_cost.models.assemble import abstract_model
from xla_cost.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Numbers of parameters. `active` counts of the routed experts only the chosen ones.

    Both embeddings (table and head) count in both. The routing matrices are kept apart in
    `router`, as in the counts the study quotes: with them DeepSeek-V3 has 671.0B parameters,
    without 670.9B. `by_part` holds all, router included, by the part that sets their format.
    """

    total: int
    active: int
    router: int
    by_part: Mapping[str, int]


def count_parameters(config: ModelConfig) -> ParameterCounts:
    """Counts of `config`; nothing is allocated."""
    by_part: dict[str, int] = {}
    routed = 0
    for _, variable in nnx.to_flat_state(nnx.state(abstract_model(config))):
        metadata = variable.get_metadata()
        size = math.prod(variable.get_value().shape)
        by_part[metadata["part"]] = by_part.get(metadata["part"], 0) + size
        if "experts" in metadata["axes"]:
            routed += size
    router = by_part.get("router", 0)
    total = sum(by_part.values()) - router
    idle = 1 - Fraction(config.num_experts_per_tok, config.n_routed_experts)
    return ParameterCounts(total, total - int(routed * idle), router, by_part)
