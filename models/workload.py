"""What is asked of a model: phase, batch, sequence, formats, attention, micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from xla_cost.errors import XlaCostError
from xla_cost.models.config import ModelConfig
from xla_cost.models.formats import Formats


@dataclass(frozen=True, slots=True)
class Workload:
    """One forward pass of `batch` sequences.

    Prefill runs `seq` tokens of each; decode runs one token of each against a latent KV
    cache of `seq` slots, whose last one the step itself fills.

    `attention` is "flash" (one marked kernel, causal, scores never in memory) or "plain"
    (scores and probabilities materialised and computed in full, as the study prices them).
    `microbatches` splits the batch into independent parts inside every layer.
    `capacity_factor` scales the expert buffers, 1.0 holding balanced routing exactly.
    """

    model: ModelConfig
    batch: int
    seq: int
    phase: Literal["prefill", "decode"] = "prefill"
    formats: Formats = field(default_factory=Formats)
    attention: Literal["flash", "plain"] = "flash"
    microbatches: int = 1
    capacity_factor: float = 1.0

    def __post_init__(self) -> None:
        for name in ("batch", "seq", "microbatches"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise XlaCostError(
                    f"workload: {name} = {value!r}, expected a whole number of at least 1"
                )
        if self.phase not in ("prefill", "decode"):
            raise XlaCostError(f"workload: phase = {self.phase!r}, expected prefill or decode")
        if self.attention not in ("flash", "plain"):
            raise XlaCostError(f"workload: attention = {self.attention!r}, expected flash or plain")
        if not 0 < self.capacity_factor <= self.model.n_routed_experts:
            raise XlaCostError(
                f"workload: capacity_factor = {self.capacity_factor!r}, expected a number above 0 "
                f"and at most the {self.model.n_routed_experts} experts"
            )
        if self.microbatches > self.batch:
            raise XlaCostError(
                f"workload: microbatches = {self.microbatches}, expected at most the batch of "
                f"{self.batch}"
            )
