"""Collectives inside the manual shard_map; over axes of size one they are the identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
from jax import lax

from xla_cost.models.layout import Axes, Layout

Array = jax.Array


@dataclass(frozen=True, slots=True)
class Comm:
    """The collectives of one `Layout`. Axes are named; dimension arguments are array dims."""

    layout: Layout

    def ranks(self) -> Mapping[str, Array | int]:
        """This device's coordinate on every mesh axis."""
        live = self.layout.live(self.layout.mesh_axes)
        return {axis: lax.axis_index(axis) if axis in live else 0 for axis in self.layout.mesh_axes}

    def rank(self, axes: Axes) -> Array | int:
        """Row-major index of this device along `axes`."""
        live = self.layout.live(axes)
        return lax.axis_index(live) if live else 0

    def all_gather(self, x: Array, axes: Axes, dim: int = 0) -> Array:
        """Concatenates the devices' arrays along `dim`."""
        live = self.layout.live(axes)
        return lax.all_gather(x, live, axis=dim, tiled=True) if live else x

    def reduce_scatter(self, x: Array, axes: Axes, dim: int = 0) -> Array:
        """Adds the devices' arrays and keeps this device's part of `dim`."""
        live = self.layout.live(axes)
        return lax.psum_scatter(x, live, scatter_dimension=dim, tiled=True) if live else x

    def all_reduce(self, x: Array, axes: Axes) -> Array:
        """Adds the devices' arrays."""
        live = self.layout.live(axes)
        return lax.psum(x, live) if live else x

    def all_max(self, x: Array, axes: Axes) -> Array:
        """Element-wise largest over the devices."""
        live = self.layout.live(axes)
        return lax.pmax(x, live) if live else x

    def all_to_all(self, x: Array, axes: Axes, split: int, concat: int) -> Array:
        """Sends part i of dimension `split` to device i, joins what arrives along `concat`."""
        live = self.layout.live(axes)
        return lax.all_to_all(x, live, split, concat, tiled=True) if live else x
