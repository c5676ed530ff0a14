"""Host-side data in and out of a program: token ids, weights and caches in device order (numpy).

Only needed to run a model; lowering one needs none of it.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from xla_cost.models.layout import Axes, Layout

Ints = NDArray[np.int64]


def token_table(layout: Layout) -> tuple[Ints, Ints]:
    """(row, position) of every residual token, each [devices along token axes, micro-batches,
    tokens] in the order of the global token array. Padding has a row or position beyond
    the workload's.
    """
    ranks = _ranks(layout, layout.token_axes)
    index = np.arange(layout.tokens)[None, :]
    tables = [
        layout.token_coordinates(ranks, index, microbatch)
        for microbatch in range(layout.microbatches)
    ]
    shape = (layout.size(layout.token_axes), layout.tokens)
    rows = np.stack([np.broadcast_to(row, shape) for row, _ in tables], axis=1)
    positions = np.stack([np.broadcast_to(position, shape) for _, position in tables], axis=1)
    return rows, positions


def arrange_ids(ids: NDArray[Any], layout: Layout) -> NDArray[np.int32]:
    """Token ids [batch, seq] (decode: [batch, 1]) in device order, padding as id 0."""
    rows, positions = token_table(layout)
    real = (rows < ids.shape[0]) & (positions < ids.shape[1])
    picked = ids[np.where(real, rows, 0), np.where(real, positions, 0)]
    return np.where(real, picked, 0).astype(np.int32).reshape(-1)


def prefill_cache(entries: Any, layout: Layout) -> dict[str, NDArray[Any]]:
    """Cache entries that a prefill program returns, as [layers, batch, seq, latent] per stack."""
    rows, positions = token_table(layout)
    caches = {}
    for name, parts in entries.items():
        joined = np.stack([np.asarray(part).astype(np.float32) for part in parts], axis=2)
        layers, _, _, width = joined.shape
        device_order = joined.reshape(layers, -1, layout.tokens, layout.microbatches, width)
        device_order = device_order.transpose(0, 1, 3, 2, 4)
        real = (rows < layout.batch) & (positions < layout.seq)
        cache = np.zeros((layers, layout.batch, layout.seq, width), np.float32)
        cache[:, rows[real], positions[real]] = device_order[:, real]
        caches[name] = cache
    return caches


def decode_cache(caches: dict[str, NDArray[Any]], layout: Layout) -> dict[str, list[NDArray[Any]]]:
    """Caches [layers, batch, seq, latent] as a decode program takes them; missing slots are 0."""
    groups, stripes = layout.batch_ranks, layout.seq_ranks
    shape = (groups * layout.microbatches * layout.rows, stripes * layout.positions)
    arranged = {}
    for name, cache in caches.items():
        layers, batch, seq, width = cache.shape
        padded = np.zeros((layers, *shape, width), np.float32)
        padded[:, :batch, :seq] = cache
        # slot j of stripe r holds position j * stripes + r
        striped = padded.reshape(layers, shape[0], layout.positions, stripes, width)
        striped = striped.swapaxes(2, 3).reshape(
            layers, groups, layout.microbatches, layout.rows, shape[1], width
        )
        arranged[name] = [
            striped[:, :, m].reshape(layers, groups * layout.rows, shape[1], width)
            for m in range(layout.microbatches)
        ]
    return arranged


def pad_weights(weights: Any, abstract: Any) -> Any:
    """`weights` with zeros appended and dtypes as in `abstract`, placed on the devices."""

    def place(value: Any, target: Any) -> Any:
        array = np.asarray(value)
        widths = [(0, want - have) for want, have in zip(target.shape, array.shape, strict=True)]
        return jax.device_put(np.pad(array, widths).astype(target.dtype), target.sharding)

    return jax.tree.map(place, weights, abstract)


def _ranks(layout: Layout, axes: Axes) -> dict[str, Ints]:
    """Coordinates of all devices along `axes` in order, [devices, 1]; 0 on the other axes."""
    flat = np.arange(layout.size(axes))
    ranks = {axis: np.zeros_like(flat)[:, None] for axis in layout.mesh_axes}
    for axis in reversed(axes):
        flat, coordinate = np.divmod(flat, layout.size((axis,)))
        ranks[axis] = coordinate[:, None]
    return ranks
