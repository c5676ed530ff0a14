"""The same layers for automatic partitioning: global arrays and sharding constraints.

Where the manual program writes a collective, this one only says how the array should be split
there, and leaves the collective to XLA (GSPMD or Shardy). Kept to compare: XLA does not make
an all-to-all out of dispatch and combine, and tokens or sequences that the mesh does not
divide bring it to gather whole hidden states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xla_cost.models.comm import Comm
from xla_cost.models.layers import Array
from xla_cost.models.layout import Axes, Layout


@dataclass(frozen=True, slots=True)
class Constraints(Comm):
    """`Comm` for global arrays. `layout` is one device's view of everything, `split` the
    layout of the plan, whose axes the constraints name.
    """

    split: Layout
    mesh: Mesh

    def all_gather(self, x: Array, axes: Axes, dim: int = 0) -> Array:
        """Residual tokens no longer split over `axes`; anything else unchanged."""
        if x.ndim != 2 or not axes:
            return x
        kept = tuple(axis for axis in self.split.token_axes if axis not in axes)
        return self._constrain(x, kept)

    def reduce_scatter(self, x: Array, axes: Axes, dim: int = 0) -> Array:
        """Residual tokens split over all token axes."""
        return self._constrain(x, self.split.token_axes)

    def all_reduce(self, x: Array, axes: Axes) -> Array:
        """Unchanged: XLA adds partial sums where it splits a contraction."""
        return x

    def all_max(self, x: Array, axes: Axes) -> Array:
        """Unchanged."""
        return x

    def all_to_all(self, x: Array, axes: Axes, split: int, concat: int) -> Array:
        """Expert buffers [experts, rows, hidden] split by expert, both ways."""
        return self._constrain(x, axes) if x.ndim == 3 else x

    def _constrain(self, x: Array, axes: Axes) -> Array:
        spec = PartitionSpec(axes or None, *(None,) * (x.ndim - 1))
        constrained: Array = jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))
        return constrained


def global_layout(split: Layout) -> Layout:
    """One device's view of the whole workload, padded so that the arguments divide evenly."""
    rows = split.rows * split.batch_ranks
    positions = split.positions * split.seq_ranks
    return replace(
        split,
        mesh_sizes=(1,) * len(split.mesh_sizes),
        rows=rows,
        positions=positions,
        tokens=split.tokens * split.size(split.token_axes),
    )
