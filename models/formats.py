"""Number formats per model part, and the presets with a name."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from xla_cost.errors import XlaCostError

#: Format name to the jax dtype that stands for it in the program.
DTYPES: dict[str, str] = {
    "fp4": "float4_e2m1fn",
    "fp8": "float8_e4m3fn",
    "bf16": "bfloat16",
    "fp32": "float32",
}


@dataclass(frozen=True, slots=True)
class Formats:
    """In which format each part multiplies, stores or sends. Weights are stored so too.

    `residual` is the stream between layers, what is gathered over the head axis, and what
    dots accumulate into; embedding, router, norms and head use it as well. Scale factors of
    block formats are not represented: the FLOPs and bytes are those of the elements.
    """

    attention: str = "bf16"  # projections around attention
    scores: str = "bf16"  # query by key, probabilities by value
    dense: str = "bf16"  # FFN of the dense layers
    experts: str = "bf16"  # routed and shared experts
    dispatch: str = "bf16"  # tokens sent to experts
    combine: str = "bf16"  # expert outputs sent back
    kv_cache: str = "bf16"
    residual: str = "bf16"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value not in DTYPES:
                raise XlaCostError(
                    f"formats: {field.name} = {value!r}, expected one of {', '.join(DTYPES)}"
                )

    def dtype(self, part: str) -> Any:
        """The dtype of `part`; parts without a format of their own use the residual's."""
        import jax.numpy as jnp  # here: everything else about a workload needs no jax

        return getattr(jnp, DTYPES[getattr(self, part, self.residual)])


#: `fp4` and `fp8+fp4` keep every payload and the cache in bf16, as the study does.
#: `fp8` is DeepSeek's production recipe: fp8 dispatch, bf16 combine (arXiv 2412.19437, 3.4).
PRESETS: dict[str, Formats] = {
    "bf16": Formats(),
    "fp8": Formats(attention="fp8", dense="fp8", experts="fp8", dispatch="fp8"),
    "fp4": Formats(attention="fp4", dense="fp4", experts="fp4"),
    "fp8+fp4": Formats(attention="fp8", dense="fp8", experts="fp4"),
    "fp32": Formats(*("fp32",) * 8),
}


def get_formats(text: str) -> Formats:
    """A preset, optionally with changes: `fp4` or `fp4:dispatch=fp8,kv_cache=fp8`.

    Raises:
        XlaCostError: unknown preset, part or format.
    """
    name, _, changes = text.partition(":")
    if name not in PRESETS:
        raise XlaCostError(f"format {name!r}: expected one of {', '.join(PRESETS)}")
    parts = [field.name for field in fields(Formats)]
    values: dict[str, str] = {}
    for change in filter(None, changes.split(",")):
        part, _, value = change.partition("=")
        if part not in parts:
            raise XlaCostError(f"format {text!r}: part {part!r}, expected one of {parts}")
        values[part] = value
    return replace(PRESETS[name], **values)
