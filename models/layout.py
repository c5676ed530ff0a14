"""A plan resolved for one workload and mesh: which sub-axis splits what, and every local size.

Where an axis of the mesh serves two purposes (x holds 8 parts of the batch times 2 of the
sequence) it becomes two neighbouring sub-axes of the mesh that is lowered. Device order does
not change, and each collective simply names the sub-axes it runs over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from xla_cost.errors import XlaCostError
from xla_cost.models.plan import MESH_AXES, Plan
from xla_cost.models.workload import Workload

#: More sequences are split over an axis only while padding the batch wastes no more than
#: this share of it; the rest of the axis then splits positions (prefill) or the cache (decode).
#: One decode step is cheap and merging partial attention is not, hence the difference.
MAX_BATCH_PADDING: Mapping[str, float] = {"prefill": 0.01, "decode": 0.5}

Role = Literal["batch", "seq", "queries", "heads", "whole"]
Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Local sizes and the mesh axes of every purpose. Sizes are per device and micro-batch.

    Residual tokens of one attention group (the devices that share `rows` sequences and one
    stripe of positions) are split evenly over `group_axes`. Position of local index j on
    sequence rank r is `j * seq_ranks + r`: striping gives every rank the same causal work.
    """

    mesh_axes: Axes  # slowest to fastest
    mesh_sizes: tuple[int, ...]
    batch_axes: Axes
    seq_axes: Axes
    query_axes: Axes  # sequence axes over which the stream is gathered nevertheless
    head_axes: Axes
    stream_axes: Axes  # head axes that split the residual stream: all, or none of them
    group_axes: Axes
    token_axes: Axes  # all axes that split the residual stream
    expert_axes: Axes
    ffn_axes: Axes
    vocab_axes: Axes
    embed_axes: Axes
    batch: int  # sequences of the workload
    seq: int  # positions of each (prefill), or slots of the cache (decode)
    decode: bool
    microbatches: int
    rows: int  # sequences of one attention group
    positions: int  # positions per sequence (prefill: computed; decode: cache slots)
    tokens: int  # residual tokens
    exchanges_tokens: bool  # whether tokens travel to their experts and back
    #: format in which the hidden state is gathered over the sequence axes; "": latents are
    hidden_gather: str = ""

    def size(self, axes: Axes) -> int:
        """Devices along `axes`."""
        sizes = dict(zip(self.mesh_axes, self.mesh_sizes, strict=True))
        return math.prod(sizes[axis] for axis in axes)

    def live(self, axes: Axes) -> Axes:
        """`axes` without those of size one: a collective over nobody is not written."""
        return tuple(axis for axis in axes if self.size((axis,)) > 1)

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        return math.prod(self.mesh_sizes)

    @property
    def batch_ranks(self) -> int:
        """Parts of the batch."""
        return self.size(self.batch_axes)

    @property
    def seq_ranks(self) -> int:
        """Stripes of the sequence."""
        return self.size(self.seq_axes)

    @property
    def latent_axes(self) -> Axes:
        """Sequence axes over which only the latents are gathered."""
        return tuple(axis for axis in self.seq_axes if axis not in self.query_axes)

    @property
    def gather_axes(self) -> Axes:
        """Axes over which the residual stream is gathered before prefill attention."""
        return self.query_axes + self.stream_axes

    @property
    def head_sum_axes(self) -> Axes:
        """Head axes whose devices hold the same tokens: their partial outputs are added."""
        return tuple(axis for axis in self.head_axes if axis not in self.stream_axes)

    @property
    def embeds_own_tokens(self) -> bool:
        """Whether all devices of `embed_axes` hold the same tokens."""
        return all(axis not in self.token_axes for axis in self.embed_axes)

    @property
    def expert_ffn_axes(self) -> Axes:
        """FFN axes that split a routed expert inside."""
        return tuple(axis for axis in self.ffn_axes if axis not in self.expert_axes)

    @property
    def ffn_token_axes(self) -> Axes:
        """FFN axes that split tokens too: gathered before the FFN, reduce-scattered after."""
        return tuple(axis for axis in self.ffn_axes if axis in self.token_axes)

    @property
    def ffn_sum_axes(self) -> Axes:
        """FFN axes whose devices hold the same tokens: their partial sums are added."""
        return tuple(axis for axis in self.ffn_axes if axis not in self.token_axes)

    @property
    def expert_sum_axes(self) -> Axes:
        """Axes over which partial sums of experts are added, routed and shared ones."""
        here = () if self.exchanges_tokens else self.expert_axes
        return (*here, *(axis for axis in self.ffn_sum_axes if axis not in here))

    @property
    def routed_tokens(self) -> int:
        """Tokens, padding left out, that the experts along `expert_axes` get per micro-batch.

        Where other axes split tokens as well, each part has a copy of the experts: the largest.
        """
        joined = (*self.expert_axes, *self.ffn_token_axes)
        copies = self.size(tuple(axis for axis in self.token_axes if axis not in joined))
        tokens = self.batch * (1 if self.decode else self.seq)
        return -(-tokens // (copies * self.microbatches))

    @property
    def padded_tokens(self) -> int:
        """Residual tokens of all devices together, padding included."""
        return self.tokens * self.microbatches * self.size(self.token_axes)

    @property
    def causal_work(self) -> float:
        """Share of the score matrix below the diagonal on the busiest device.

        The last stripe sees position j * R + R of R * n keys at its j-th of n queries:
        (sum over j of R * (j + 1)) / (n * R * n) = (n + 1) / (2 n).
        """
        return (self.positions + 1) / (2 * self.positions)

    def token_coordinates(self, rank: Mapping[str, Any], index: Any, microbatch: int) -> Any:
        """(row, position) of local residual token `index`, in the whole workload.

        Rows of `batch` and more, or positions of `seq` and more, are padding. `rank` maps a
        mesh axis to the device's coordinate on it; works on integers, numpy and jax arrays
        alike. In decode the position is 0.
        """
        flat = self.fold(rank, self.group_axes) * self.tokens + index
        stride = 1 if self.decode else self.positions
        local_row, j = divide(flat, stride)
        first = self.fold(rank, self.batch_axes) * self.microbatches + microbatch
        row = first * self.rows + local_row
        # rows beyond the group's own are padding, not the next group's first ones
        row = row + (local_row >= self.rows) * (self.batch + self.padded_tokens)
        return row, j * self.seq_ranks + self.fold(rank, self.seq_axes) * (not self.decode)

    def fold(self, rank: Mapping[str, Any], axes: Axes) -> Any:
        """Row-major index of a device along several axes."""
        index: Any = 0
        for axis in axes:
            index = index * self.size((axis,)) + rank[axis]
        return index


def resolve(workload: Workload, plan: Plan, mesh_shape: tuple[int, ...]) -> Layout:
    """`Layout` of `workload` under `plan` on a mesh of x, y and z devices.

    Raises:
        XlaCostError: the mesh does not divide the experts, there is too little work for
            its devices, or it is no mesh.
    """
    sizes = _mesh_sizes(mesh_shape)
    _check_experts(workload, plan, sizes)
    parts = _split_axes(workload, plan, sizes)
    names = {axis: _sub_axes(axis, parts[axis]) for axis in MESH_AXES}

    def by_role(*roles: Role) -> Axes:
        return tuple(n for axis in MESH_AXES for n, role, _ in names[axis] if role in roles)

    def whole(logical: str) -> Axes:
        return tuple(n for axis in plan.axes(logical) for n, _, _ in names[axis])

    ordered = [part for axis in plan.axis_order for part in names[axis]]
    decode = workload.phase == "decode"
    counts = dict.fromkeys(("batch", "seq", "queries", "heads", "whole"), 1)
    for _, role, size in ordered:
        counts[role] *= size
    split_heads = 1 if plan.whole_stream else counts["heads"]
    rows, positions, tokens = _local_sizes(workload, counts, split_heads)
    seq_axes, head_axes = by_role("seq", "queries"), by_role("heads")
    stream_axes = () if plan.whole_stream else head_axes
    return Layout(
        mesh_axes=tuple(name for name, _, _ in ordered),
        mesh_sizes=tuple(size for _, _, size in ordered),
        batch_axes=by_role("batch"),
        seq_axes=seq_axes,
        query_axes=by_role("queries"),
        head_axes=head_axes,
        stream_axes=stream_axes,
        group_axes=seq_axes + stream_axes if decode else stream_axes,
        token_axes=by_role("batch", "seq", "queries", *(() if plan.whole_stream else ("heads",))),
        expert_axes=whole("experts"),
        ffn_axes=whole("ffn"),
        vocab_axes=whole("vocab"),
        embed_axes=whole("embed"),
        batch=workload.batch,
        seq=workload.seq,
        decode=decode,
        microbatches=workload.microbatches,
        rows=rows,
        positions=positions,
        tokens=tokens,
        exchanges_tokens=plan.exchanges_tokens,
        hidden_gather="" if decode else plan.hidden_gather,
    )


def _mesh_sizes(mesh_shape: tuple[int, ...]) -> dict[str, int]:
    text = "x".join(str(size) for size in mesh_shape)
    if len(mesh_shape) != len(MESH_AXES) or any(size < 1 for size in mesh_shape):
        raise XlaCostError(f"mesh {text!r}: expected three sizes of at least 1, as in 2x144x1")
    return dict(zip(MESH_AXES, mesh_shape, strict=True))


def _check_experts(workload: Workload, plan: Plan, sizes: Mapping[str, int]) -> None:
    experts, config = plan.axes("experts"), workload.model
    ranks = math.prod(sizes[axis] for axis in experts)
    if config.moe_layers and config.n_routed_experts % ranks:
        raise XlaCostError(
            f"mesh: {' times '.join(experts)} = {ranks} devices, expected a divisor of the "
            f"{config.n_routed_experts} experts of {config.name}"
        )
    ffn = math.prod(sizes[axis] for axis in plan.axes("ffn"))
    if ffn > config.moe_intermediate_size:
        raise XlaCostError(
            f"mesh: {ffn} devices split the FFN, expected at most its inner width of "
            f"{config.moe_intermediate_size} in {config.name}"
        )


def _split_axes(
    workload: Workload, plan: Plan, sizes: Mapping[str, int]
) -> dict[str, list[tuple[Role, int]]]:
    """What each mesh axis is used for: roles with sizes, slowest first."""
    parts: dict[str, list[tuple[Role, int]]] = {axis: [] for axis in MESH_AXES}
    sequences = 1  # parts of the batch so far
    for axis in MESH_AXES:
        tokens = sizes[axis] if axis in plan.axes("tokens") else 1
        whole_heads = 1
        if axis in plan.axes("heads"):
            whole_heads = sizes[axis]
            if plan.remainder != "pad":
                whole_heads = math.gcd(workload.model.num_attention_heads, sizes[axis])
            rest = sizes[axis] // whole_heads
            if plan.remainder == "queries":
                parts[axis].append(("queries", rest))
            else:
                tokens *= rest
        batch = 1 if plan.hidden_gather else _batch_part(workload, sequences, tokens)
        sequences *= batch
        parts[axis] = [("batch", batch), ("seq", tokens // batch), *parts[axis]]
        parts[axis].append(("heads", whole_heads))
        used = math.prod(size for _, size in parts[axis])
        parts[axis].append(("whole", sizes[axis] // used))
    return parts


def _batch_part(workload: Workload, sequences: int, size: int) -> int:
    """The largest divisor of `size` that splits the batch further without much padding."""
    limit = MAX_BATCH_PADDING[workload.phase]
    for part in range(size, 1, -1):
        ranks = sequences * part
        if size % part or ranks > workload.batch:
            continue
        if -(-workload.batch // ranks) * ranks <= workload.batch * (1 + limit):
            return part
    return 1


def _sub_axes(axis: str, parts: list[tuple[Role, int]]) -> list[tuple[str, Role, int]]:
    """(name, role, size) per sub-axis. An axis with one purpose keeps its name."""
    real = [(role, size) for role, size in parts if size > 1]
    if len(real) > 1:
        return [(f"{axis}_{role}", role, size) for role, size in real]
    role, size = real[0] if real else ("whole", 1)
    return [(axis, role, size)]


def _local_sizes(workload: Workload, counts: Mapping[str, int], heads: int) -> tuple[int, int, int]:
    """(rows, positions, residual tokens) per device and micro-batch, padded to fit evenly.

    `heads` ranks split the residual stream.
    """
    stripes = counts["seq"] * counts["queries"]
    if workload.seq < stripes:
        raise XlaCostError(
            f"workload: {workload.batch} sequences of {workload.seq} positions, expected at least "
            f"the {stripes} devices that split each sequence on this mesh"
        )
    rows = -(-workload.batch // (counts["batch"] * workload.microbatches))
    positions = -(-workload.seq // stripes)
    if workload.microbatches * counts["batch"] > workload.batch:
        raise XlaCostError(
            f"workload: microbatches = {workload.microbatches}, expected at most the "
            f"{workload.batch // counts['batch']} sequences that each device group holds"
        )
    if workload.phase == "decode":
        return rows, positions, -(-rows // (stripes * heads))
    if rows * positions < heads:
        raise XlaCostError(
            f"workload: {rows * positions} tokens per group of {heads} devices that share a "
            f"stream, expected at least one token per device"
        )
    more_positions = _round_up(positions, heads // math.gcd(rows, heads))
    more_rows = _round_up(rows, heads // math.gcd(positions, heads))
    if rows * more_positions <= more_rows * positions:
        positions = more_positions
    else:
        rows = more_rows
    return rows, positions, rows * positions // heads


def divide(index: Any, by: int) -> tuple[Any, Any]:
    """Quotient and remainder of a non-negative index.

    For jax arrays in two instructions; `//` would add a dozen that handle signs.
    """
    if isinstance(index, int):
        return divmod(index, by)
    import jax  # here: a search lays out hundreds of meshes and needs jax for none of them
    import jax.numpy as jnp
    from jax import lax

    if isinstance(index, jax.Array):
        divisor = jnp.asarray(by, index.dtype)
        return lax.div(index, divisor), lax.rem(index, divisor)
    return index // by, index % by


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
