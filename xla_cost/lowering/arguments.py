"""Abstract arguments: where shardings given beside a function meet its arguments."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from xla_cost.errors import XlaCostError
from xla_cost.lowering.devices import ensure_devices
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


def concrete_mesh(mesh: Mesh | AbstractMesh | None) -> Mesh | None:
    """Return a mesh of virtual CPU devices: the one given, or one of an abstract mesh's shape.

    Raises `XlaCostError` for a mesh of real accelerators: partitioning is for virtual ones.
    """
    if mesh is None:
        return None
    if isinstance(mesh, AbstractMesh):
        return _virtual(mesh)
    if not isinstance(mesh, Mesh):
        raise XlaCostError(f"mesh: found a {type(mesh).__name__}; expected a jax.sharding.Mesh")
    platforms = {device.platform for device in mesh.devices.flat}
    if platforms != {"cpu"}:
        count = mesh.devices.size
        raise XlaCostError(
            f"mesh: its devices are {'/'.join(sorted(platforms))}; build it from virtual CPU "
            f"devices, xla_cost.lowering.ensure_devices({count})[:{count}]"
        )
    return mesh


def _virtual(mesh: AbstractMesh) -> Mesh:
    devices = np.array(ensure_devices(mesh.size)[: mesh.size])
    return Mesh(devices.reshape(mesh.axis_sizes), mesh.axis_names, axis_types=mesh.axis_types)


def concrete_shardings(tree: Any) -> Any:
    """Return `tree` with shardings over abstract meshes moved to virtual CPU devices."""
    meshes: dict[AbstractMesh, Mesh] = {}

    def move(leaf: Any) -> Any:
        sharding = getattr(leaf, "sharding", None)
        if not isinstance(leaf, jax.ShapeDtypeStruct) or not isinstance(sharding, NamedSharding):
            return leaf
        if not isinstance(sharding.mesh, AbstractMesh) or sharding.mesh.empty:
            return leaf
        if sharding.mesh not in meshes:
            meshes[sharding.mesh] = _virtual(sharding.mesh)
        placed = NamedSharding(meshes[sharding.mesh], sharding.spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placed)

    return jax.tree.map(move, tree)


def unbind_module(fn: Any, args: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """Make an nnx module's parameters arguments when the module itself is the function.

    Calling it would close over its abstract parameters, which cannot be traced.
    """
    nnx = sys.modules.get("flax.nnx")  # whoever has such a module has imported it
    if nnx is None or not isinstance(fn, nnx.Module):
        return fn, args
    graph, state = nnx.split(fn)

    def call(state: Any, *rest: Any, **kwargs: Any) -> Any:
        return nnx.merge(graph, state)(*rest, **kwargs)

    call.__name__ = type(fn).__name__
    return call, (state, *args)


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
