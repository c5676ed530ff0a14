"""Plans: which mesh axes each logical axis of the model is split over. A plan is only data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xla_cost.errors import XlaCostError

MESH_AXES = ("x", "y", "z")
LOGICAL_AXES = ("tokens", "heads", "experts", "ffn", "vocab", "embed")


@dataclass(frozen=True, slots=True)
class Plan:
    """A named rule set.

    `rules` maps logical axes to mesh axes. `tokens` are split batch first, then by
    position, over their axes in order. The residual stream is split over the `tokens` and the
    `heads` axes; with `whole_stream` over `tokens` alone, and partial sums of attention are
    added over `heads`. Where `ffn` axes split tokens too, tokens are gathered over them around
    the FFN, otherwise its partial sums are added. Where `experts` axes split tokens, these are
    exchanged (dispatch and combine); otherwise every device picks its experts' tokens from its
    own copy and partial sums are added. An axis of both `experts` and `ffn` splits the dense and
    shared FFNs inside, and the routed ones by expert.

    `remainder` says what the part of the `heads` axis does that does not divide the heads:
    "pad" gives every rank whole heads and lets some idle, "queries" splits the positions
    of the queries over it (the stream is still gathered over the whole axis), "tokens"
    treats it as another `tokens` axis.

    `axis_order` lists the mesh axes from slowest to fastest: the last one is laid out on
    neighbouring devices.
    """

    name: str
    description: str
    rules: tuple[tuple[str, tuple[str, ...]], ...]
    remainder: Literal["pad", "queries", "tokens"] = "pad"
    axis_order: tuple[str, ...] = MESH_AXES
    automatic: bool = False
    #: number format in which the whole hidden state is gathered over the `tokens` axes to make
    #: keys and values; those axes then split positions only. "": the latents are gathered
    hidden_gather: str = ""
    #: every rank of the `heads` axis keeps all tokens of its group, as Megatron's tensor
    #: parallelism does (arXiv 1909.08053, 3)
    whole_stream: bool = False

    def __post_init__(self) -> None:
        if sorted(self.axis_order) != sorted(MESH_AXES):
            raise XlaCostError(
                f"plan {self.name}: axis_order = {self.axis_order}, expected x, y, z in any order"
            )
        for logical, axes in self.rules:
            if logical not in LOGICAL_AXES or not set(axes) <= set(MESH_AXES):
                raise XlaCostError(
                    f"plan {self.name}: rule {logical} = {axes}, expected one of "
                    f"{', '.join(LOGICAL_AXES)} on axes out of x, y, z"
                )
        if len(self.axes("heads")) > 1 or set(self.axes("heads")) & set(self.axes("tokens")):
            raise XlaCostError(
                f"plan {self.name}: heads = {self.axes('heads')}, expected at most one axis that "
                f"tokens = {self.axes('tokens')} does not use"
            )
        if self.whole_stream and self.remainder != "pad":
            raise XlaCostError(
                f"plan {self.name}: remainder = {self.remainder!r}, expected 'pad' where the "
                f"stream is whole"
            )
        if self.exchanges_tokens and set(self.axes("experts")) & set(self.axes("ffn")):
            raise XlaCostError(
                f"plan {self.name}: ffn = {self.axes('ffn')}, expected no axis of experts = "
                f"{self.axes('experts')}, which split tokens"
            )

    @property
    def exchanges_tokens(self) -> bool:
        """Whether tokens travel to their experts, because an axis of `experts` splits them."""
        split = {*self.axes("tokens"), *(() if self.whole_stream else self.axes("heads"))}
        return not self.axes("experts") or not split.isdisjoint(self.axes("experts"))

    def axes(self, logical: str) -> tuple[str, ...]:
        """Mesh axes that `logical` is split over; () where it is whole on every device."""
        return dict(self.rules).get(logical, ())


_STUDY = (
    ("tokens", ("x",)),
    ("heads", ("y",)),
    ("experts", ("y",)),
    ("ffn", ("z",)),
    ("vocab", ("y", "z")),
    ("embed", ("y",)),
)

PLANS: dict[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan(
            "study",
            "x: batch, then sequence; y: experts, heads and residual stream, padded to whole "
            "heads; z: FFN",
            _STUDY,
        ),
        Plan(
            "study-balanced",
            "study, with the queries split over the part of y that does not divide the heads",
            _STUDY,
            remainder="queries",
        ),
        Plan(
            "study-auto",
            "study, partitioned by XLA from sharding constraints instead of by hand; to compare",
            _STUDY,
            automatic=True,
        ),
        Plan(
            "study-gathered",
            "study, but x splits only the sequence, and keys and values are made from the hidden "
            "state, gathered over x in fp8 (reading 2 of the reference study)",
            _STUDY,
            hidden_gather="fp8",
        ),
        Plan(
            "hybrid",
            "study, with whole tokens split over the part of y that does not divide the heads",
            _STUDY,
            remainder="tokens",
        ),
        Plan(
            "dp-attention",
            "every device attends to its own tokens; experts over y; x and z split tokens, z also "
            "the FFN",
            (("tokens", ("x", "y", "z")), *(rule for rule in _STUDY if rule[0] in
             ("experts", "ffn", "vocab", "embed"))),
        ),
        Plan(
            "tensor-parallel",
            "x: batch; y: heads, experts and dense FFNs, each rank with all tokens of its part and "
            "all-reduces after attention and FFN; z: FFN",
            (*(rule for rule in _STUDY if rule[0] != "ffn"), ("ffn", ("y", "z"))),
            whole_stream=True,
        ),
    )
}  # fmt: skip


def get_plan(name: str) -> Plan:
    """The plan called `name`. Raises XlaCostError for an unknown one."""
    if name not in PLANS:
        raise XlaCostError(f"plan {name!r}: expected one of {', '.join(PLANS)}")
    return PLANS[name]
