"""Abstract arguments: where shardings given beside a function meet its arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from xla_cost.errors import XlaCostError
from xla_cost.lowering.messages import one_sentence


def attach_shardings(tree: Any, shardings: Any, mesh: Mesh | None) -> Any:
    """Return `tree` with every array replaced by a `ShapeDtypeStruct` that has its sharding.

    `shardings` is a prefix of `tree` of `PartitionSpec`s (then `mesh` is needed), shardings
    or None (leave as it is). Raises `XlaCostError` when it does not fit.
    """
    if shardings is None:
        return tree

    def is_leaf(node: Any) -> bool:
        return node is None or isinstance(node, PartitionSpec | Sharding)

    try:
        full = jax.tree.broadcast(shardings, tree, is_leaf=is_leaf)
    except ValueError as error:
        raise XlaCostError(
            f"in_shardings: not a prefix of the arguments ({one_sentence(error)})"
        ) from error
    return jax.tree.map(
        lambda sharding, leaf: _with_sharding(leaf, sharding, mesh), full, tree, is_leaf=is_leaf
    )


def _with_sharding(leaf: Any, sharding: Any, mesh: Mesh | None) -> Any:
    if sharding is None:
        return leaf
    if isinstance(sharding, PartitionSpec):
        if mesh is None:
            raise XlaCostError(f"in_shardings: {sharding} names mesh axes; give mesh= as well")
        try:
            sharding = NamedSharding(mesh, sharding)
        except ValueError as error:
            raise XlaCostError(f"in_shardings: {sharding}: {one_sentence(error)}") from error
    if not isinstance(sharding, Sharding):
        raise XlaCostError(
            f"in_shardings: found a {type(sharding).__name__}; "
            "expected a PartitionSpec, a Sharding or None"
        )
    aval = jax.typeof(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)


def mesh_of(mesh: Mesh | AbstractMesh | None, trees: Any) -> Mesh | AbstractMesh | None:
    """Return `mesh`, else the mesh of the first argument that carries a named sharding."""
    if mesh is not None:
        return mesh
    for leaf in jax.tree.leaves(trees):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding):
            found: Mesh | AbstractMesh = sharding.mesh
            return found
    return None


def check_mesh(mesh: Mesh | AbstractMesh | None) -> None:
    """Refuse a mesh of real accelerators: partitioning here is for virtual CPU devices."""
    if mesh is None or isinstance(mesh, AbstractMesh):
        return
    if not isinstance(mesh, Mesh):
        raise XlaCostError(f"mesh: found a {type(mesh).__name__}; expected a jax.sharding.Mesh")
    platforms = {device.platform for device in mesh.devices.flat}
    if platforms != {"cpu"}:
        count = mesh.devices.size
        raise XlaCostError(
            f"mesh: its devices are {'/'.join(sorted(platforms))}; build it from virtual CPU "
            f"devices, xla_cost.lowering.ensure_devices({count})[:{count}]"
        )


def mesh_axes(mesh: Mesh | AbstractMesh | None) -> tuple[tuple[str, int], ...]:
    """Return the mesh's axes as (name, size), slowest first; () without a mesh."""
    return () if mesh is None else tuple((str(k), int(v)) for k, v in mesh.shape.items())


def check_arguments(args: Any, kwargs: Mapping[str, Any] | None) -> None:
    """Refuse what is not a sequence of positional arguments."""
    if not isinstance(args, tuple | list):
        raise XlaCostError(
            f"args: found a {type(args).__name__}; expected a tuple of abstract arguments"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise XlaCostError(f"kwargs: found a {type(kwargs).__name__}; expected a dict")


def argument_bytes(trees: Any) -> int:
    """Global bytes of all array arguments, as declared (sub-byte types packed)."""
    total_bits = 0
    for leaf in jax.tree.leaves(trees):
        dtype, shape = getattr(leaf, "dtype", None), getattr(leaf, "shape", None)
        if (
            dtype is not None
            and shape is not None
            and not jax.dtypes.issubdtype(dtype, jax.dtypes.extended)
        ):
            total_bits += math.prod(shape) * _bits(np.dtype(dtype))
    return (total_bits + 7) // 8


def _bits(dtype: np.dtype[Any]) -> int:
    try:
        return int(jax.numpy.finfo(dtype).bits)
    except ValueError:
        pass
    try:
        return int(jax.numpy.iinfo(dtype).bits)
    except ValueError:
        return dtype.itemsize * 8
