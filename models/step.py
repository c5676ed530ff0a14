"""What a forward pass knows besides its weights and its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from xla_cost.models.comm import Comm
from xla_cost.models.config import ModelConfig
from xla_cost.models.formats import Formats
from xla_cost.models.layout import Layout
from xla_cost.models.workload import Workload


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of one workload on one layout."""

    config: ModelConfig
    formats: Formats
    attention: Literal["flash", "plain"]
    capacity_factor: float
    layout: Layout
    comm: Comm

    @staticmethod
    def of(workload: Workload, layout: Layout) -> Step:
        """The step that runs `workload` on `layout`."""
        return Step(
            workload.model,
            workload.formats,
            workload.attention,
            workload.capacity_factor,
            layout,
            Comm(layout),
        )

    @property
    def result(self) -> Any:
        """Dtype of the residual stream and of every dot's result."""
        return self.formats.dtype("residual")

    def operand(self, part: str) -> Any:
        """Dtype in which the dots of `part` multiply."""
        return self.formats.dtype(part)
