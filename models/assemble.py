"""From workload, plan and mesh to a function and abstract arguments that XLA can partition."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import shard_map
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from xla_cost.errors import XlaCostError
from xla_cost.models import transformer
from xla_cost.models.automatic import Constraints, global_layout
from xla_cost.models.config import ModelConfig
from xla_cost.models.layout import Layout, resolve
from xla_cost.models.plan import Plan
from xla_cost.models.step import Step
from xla_cost.models.workload import Workload


@dataclass(frozen=True)
class ModelProgram:
    """What to lower: `jax.jit(fn).lower(*args)` inside a process with enough devices.

    `args` are abstract and carry their shardings; nothing is allocated. Byte counts are
    per device. `layout` says which token and which slot of the cache is where (see
    `xla_cost.models.arrange`). `padding` maps what is wasted to its size; `notes` says what
    was decided.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    mesh: Mesh
    layout: Layout
    weights_bytes: int
    kv_cache_bytes: int
    padding: Mapping[str, float]
    notes: tuple[str, ...]


def build(workload: Workload, plan: Plan, mesh_shape: tuple[int, ...]) -> ModelProgram:
    """The program of `workload` under `plan` on a mesh of (x, y, z) devices.

    Raises:
        XlaCostError: the mesh cannot run it, or this process has too few devices.
    """
    layout = resolve(workload, plan, mesh_shape)
    mesh = make_mesh(layout)
    step = Step.of(workload, layout)
    if plan.automatic:
        whole = global_layout(layout)
        step = replace(step, layout=whole, comm=Constraints(whole, layout, mesh))
    graph, weights, specs = _weights(workload, layout, mesh)
    tokens = PartitionSpec(layout.token_axes or None)
    ids = _abstract((layout.padded_tokens,), jnp.int32, tokens, mesh)
    arguments: tuple[Any, ...] = (weights, ids)
    in_specs: tuple[Any, ...] = (specs, tokens)
    cache_spec = PartitionSpec(None, layout.token_axes or None, None)
    if layout.decode:
        cache_spec = PartitionSpec(None, layout.batch_axes or None, layout.seq_axes or None, None)
        arguments = (weights, _caches(workload, layout, cache_spec, mesh), ids,
                     _abstract((), jnp.int32, PartitionSpec(), mesh))  # fmt: skip
        in_specs = (specs, cache_spec, tokens, PartitionSpec())
    forward: Callable[..., Any] = transformer.decode if layout.decode else transformer.prefill

    def run(weights: Any, *inputs: Any) -> Any:
        return forward(nnx.merge(graph, weights), *inputs, step=step)

    rows = tuple(axis for axis in layout.batch_axes if axis not in layout.vocab_axes)
    logits_spec = PartitionSpec(rows or None, layout.vocab_axes or None)
    out_specs = (logits_spec, cache_spec, PartitionSpec(layout.mesh_axes))
    fn: Callable[..., Any] = run
    if not plan.automatic:
        fn = shard_map(run, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    return ModelProgram(
        fn=fn,
        args=arguments,
        mesh=mesh,
        layout=step.layout,
        weights_bytes=sum(_local_bytes(leaf, layout) for leaf in jax.tree.leaves(weights)),
        kv_cache_bytes=_cache_bytes(workload, layout),
        padding=_padding(workload, layout),
        notes=_notes(workload, plan, layout),
    )


def make_mesh(layout: Layout) -> Mesh:
    """A mesh over the first devices of this process, in device order."""
    devices = jax.devices("cpu")
    if len(devices) < layout.devices:
        raise XlaCostError(
            f"mesh: {layout.devices} devices, expected at most the {len(devices)} of this process "
            f"(set before jax starts, by xla_force_host_platform_device_count)"
        )
    grid = np.array(devices[: layout.devices]).reshape(layout.mesh_sizes)
    return Mesh(grid, layout.mesh_axes, axis_types=(AxisType.Auto,) * grid.ndim)


@functools.lru_cache(maxsize=32)
def abstract_model(config: ModelConfig) -> Any:
    """The Flax model with shapes for weights."""
    return nnx.eval_shape(lambda: transformer.Transformer(config, jax.random.key(0)))


def _weights(workload: Workload, layout: Layout, mesh: Mesh) -> tuple[Any, Any, Any]:
    """Flax graph, abstract weights (padded, in their formats) and partition specs."""
    graph, state = nnx.split(abstract_model(workload.model))
    logical = {
        "heads": layout.head_axes,
        "experts": layout.expert_axes,
        "ffn": layout.ffn_axes,
        "vocab": layout.vocab_axes,
        "embed": layout.embed_axes,
    }
    leaves, specs = [], []
    for path, variable in nnx.to_flat_state(state):
        shape = variable.get_value().shape
        names = variable.get_metadata()["axes"]
        names = (None,) * (len(shape) - len(names)) + tuple(names)
        within = {**logical, "ffn": layout.expert_ffn_axes} if "experts" in names else logical
        axes = [within[name] if name else () for name in names]
        sizes = [layout.size(a) for a in axes]
        padded = tuple(-(-n // size) * size for n, size in zip(shape, sizes, strict=True))
        spec = PartitionSpec(*(a or None for a in axes))
        dtype = workload.formats.dtype(variable.get_metadata()["part"])
        leaves.append((path, _abstract(padded, dtype, spec, mesh)))
        specs.append((path, spec))
    return graph, _nested(leaves), _nested(specs)


def _caches(
    workload: Workload, layout: Layout, spec: PartitionSpec, mesh: Mesh
) -> transformer.Caches:
    """Abstract latent caches per stack of layers and micro-batch."""
    config = workload.model
    rows = layout.rows * layout.batch_ranks
    slots = layout.positions * layout.seq_ranks
    dtype = workload.formats.dtype("kv_cache")
    stacks = {"dense_layers": config.first_k_dense_replace, "moe_layers": config.moe_layers}
    return {
        name: [_abstract((layers, rows, slots, config.latent_dim), dtype, spec, mesh)]
        * layout.microbatches
        for name, layers in stacks.items()
        if layers
    }


def _abstract(shape: tuple[int, ...], dtype: Any, spec: PartitionSpec, mesh: Mesh) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))


def _nested(flat: list[tuple[tuple[Any, ...], Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, leaf in flat:
        node = tree
        for key in path[:-1]:
            node = node.setdefault(str(key), {})
        node[str(path[-1])] = leaf
    return tree


def _local_bytes(leaf: Any, layout: Layout) -> int:
    local: tuple[int, ...] = leaf.sharding.shard_shape(leaf.shape)
    return -(-math.prod(local) * _bits(leaf.dtype) // 8)


def _bits(dtype: Any) -> int:
    return int(jax.dtypes.itemsize_bits(dtype))


def _cache_bytes(workload: Workload, layout: Layout) -> int:
    per_token = workload.model.kv_cache_elements_per_token
    bits = _bits(workload.formats.dtype("kv_cache"))
    tokens = layout.tokens * layout.microbatches
    if layout.decode:
        tokens = layout.rows * layout.positions * layout.microbatches
    return (tokens * per_token * bits + 7) // 8


def _padding(workload: Workload, layout: Layout) -> dict[str, float]:
    """Shares of tokens and heads that are padding, and how full the expert buffers can be."""
    positions = 1 if layout.decode else workload.seq
    config = workload.model
    ranks = layout.size(layout.head_axes)
    padding = {
        "token_share": 1 - workload.batch * positions / layout.padded_tokens,
        "head_share": 1 - config.num_attention_heads / _round_up(config.num_attention_heads, ranks),
    }
    if config.moe_layers:
        wanted = layout.tokens * layout.size(layout.ffn_token_axes) * config.num_experts_per_tok
        by_device = layout.decode and layout.exchanges_tokens
        bins = layout.size(layout.expert_axes) if by_device else config.n_routed_experts
        slots = math.ceil(workload.capacity_factor * wanted / bins)
        padding["expert_slots_per_buffer"] = slots
        padding["expert_slot_share"] = max(0.0, 1 - wanted / (slots * bins))
        padding["dropped_share_if_balanced"] = max(0.0, 1 - slots * bins / wanted)
    return padding


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _notes(workload: Workload, plan: Plan, layout: Layout) -> tuple[str, ...]:
    sizes = ", ".join(f"{a}={s}" for a, s in zip(layout.mesh_axes, layout.mesh_sizes, strict=True))
    notes = [
        f"plan {plan.name} on {sizes}, slowest axis first",
        f"{layout.batch_ranks} parts of the batch, {layout.seq_ranks} stripes of each sequence",
    ]
    if not layout.decode and workload.attention == "flash":
        notes.append(f"causal attention computes {layout.causal_work:.4g} of the score matrix")
    heads = workload.model.num_attention_heads
    ranks = layout.size(layout.head_axes)
    if heads % ranks:
        held = -(-heads // ranks)
        idle = ranks - -(-heads // held)
        notes.append(f"{heads} heads over {ranks} devices: {held} each, {idle} devices idle")
    if plan.automatic:
        notes.append("collectives are XLA's own choice")
    return tuple(notes)
