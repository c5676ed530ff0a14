"""Abstract arguments: where shardings given beside a function meet its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from xla_cost.errors import XlaCostError
from xla_cost.lowering.messages import one_sentence

M = TypeVar("M", Mesh, AbstractMesh)


def attach_shardings(tree: Any, shardings: Any, mesh: Mesh | AbstractMesh | None) -> Any:
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


def _with_sharding(leaf: Any, sharding: Any, mesh: Mesh | AbstractMesh | None) -> Any:
    if sharding is None:
        return leaf
    named = _named("in_shardings", sharding, mesh)
    aval = jax.typeof(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=named)


def _named(place: str, sharding: Any, mesh: Mesh | AbstractMesh | None) -> Sharding:
    """A sharding as it is, a `PartitionSpec` over `mesh`."""
    if isinstance(sharding, PartitionSpec):
        if mesh is None:
            raise XlaCostError(f"{place}: {sharding} names mesh axes; give mesh= as well")
        try:
            return NamedSharding(mesh, sharding)
        except ValueError as error:
            raise XlaCostError(f"{place}: {sharding}: {one_sentence(error)}") from error
    if not isinstance(sharding, Sharding):
        raise XlaCostError(
            f"{place}: found a {type(sharding).__name__}; "
            "expected a PartitionSpec, a Sharding or None"
        )
    return sharding


def result_shardings(shardings: Any, mesh: Mesh | AbstractMesh | None) -> Any:
    """Return `out_shardings` (a prefix tree of the result) as shardings over `mesh`.

    `PartitionSpec`s get the mesh, shardings over an abstract one of the same axes move to it,
    None stays: XLA chooses. Raises `XlaCostError` for anything else, or a spec without a mesh.
    """

    def is_leaf(node: Any) -> bool:
        return node is None or isinstance(node, PartitionSpec | Sharding)

    def resolve(sharding: Any) -> Any:
        if sharding is None:
            return None
        return _onto(mesh, _named("out_shardings", sharding, mesh))

    return jax.tree.map(resolve, shardings, is_leaf=is_leaf)


def settle_mesh(
    mesh: Mesh | AbstractMesh | None, trees: Any
) -> tuple[Mesh | AbstractMesh | None, Any]:
    """Return the mesh to trace under, and the arguments with their shardings on one mesh.

    A concrete mesh, given or carried by an argument, wins over an abstract one of the same
    axes; without any of them an abstract one needs no devices. Raises `XlaCostError` for a
    mesh of real accelerators: partitioning is for virtual devices.
    """
    if mesh is not None and not isinstance(mesh, Mesh | AbstractMesh):
        raise XlaCostError(f"mesh: found a {type(mesh).__name__}; expected a jax.sharding.Mesh")
    carried = _carried_meshes(trees)
    concrete = mesh if isinstance(mesh, Mesh) else next(_only(Mesh, carried), None)
    home = concrete or mesh or next(_only(AbstractMesh, carried), None)
    if isinstance(home, Mesh):
        _check_virtual(home)
    if isinstance(home, AbstractMesh):  # drop what ties it to one kind of device
        home = AbstractMesh(home.axis_sizes, home.axis_names, axis_types=home.axis_types)
    ambient = None if mesh is None and concrete is not None else home
    return ambient, jax.tree.map(lambda leaf: _moved(leaf, home), trees)


def _moved(leaf: Any, home: Mesh | AbstractMesh | None) -> Any:
    """A leaf sharded over an abstract mesh, sharded alike over `home` where its axes agree."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(leaf, jax.ShapeDtypeStruct) or sharding is None:
        return leaf
    moved = _onto(home, sharding)
    if moved is sharding:
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=moved)


def _onto(home: Mesh | AbstractMesh | None, sharding: Sharding) -> Sharding:
    """The sharding over `home` where it is over an abstract mesh of the same axes."""
    if (
        home is None
        or not isinstance(sharding, NamedSharding)
        or not isinstance(sharding.mesh, AbstractMesh)
        or sharding.mesh.shape_tuple != home.shape_tuple
    ):
        return sharding
    return NamedSharding(home, sharding.spec)


def free_on(mesh: AbstractMesh, trees: Any) -> Any:
    """Return the arguments on `mesh`, split as the partitioner likes.

    Over explicit axes that cannot be said: there they are whole on every device.
    """
    automatic = all(kind == AxisType.Auto for kind in mesh.axis_types)

    def place(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        free = [PartitionSpec.UNCONSTRAINED] * (len(leaf.shape) if automatic else 0)
        sharding = NamedSharding(mesh, PartitionSpec(*free))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, trees)


def _carried_meshes(trees: Any) -> list[Mesh | AbstractMesh]:
    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(trees))
    meshes = (each.mesh for each in shardings if isinstance(each, NamedSharding))
    return [mesh for mesh in dict.fromkeys(meshes) if not mesh.empty]


def carried_mesh(trees: Any) -> Mesh | AbstractMesh | None:
    """Return the mesh of the first argument that is sharded over one."""
    return next(iter(_carried_meshes(trees)), None)


def _only(kind: type[M], meshes: Iterable[Mesh | AbstractMesh]) -> Iterator[M]:
    return (mesh for mesh in meshes if isinstance(mesh, kind))


def _check_virtual(mesh: Mesh) -> None:
    platforms = {device.platform for device in mesh.devices.flat}
    if platforms != {"cpu"}:
        count = mesh.devices.size
        raise XlaCostError(
            f"mesh: its devices are {'/'.join(sorted(platforms))}; build it from virtual CPU "
            f"devices, xla_cost.lowering.ensure_devices({count})[:{count}]"
        )


def mesh_axes(mesh: Mesh | AbstractMesh | None, trees: Any) -> tuple[tuple[str, int], ...]:
    """Return the axes of the mesh, or of one the arguments carry: (name, size), slowest first."""
    found = mesh or carried_mesh(trees)
    return () if found is None else tuple((str(k), int(v)) for k, v in found.shape.items())


def check_arguments(fn: Any, args: Any, kwargs: Mapping[str, Any] | None) -> None:
    """Refuse what is not a function with a sequence of positional arguments."""
    if not callable(fn):
        raise XlaCostError(f"fn: found a {type(fn).__name__}; expected a function")
    if not isinstance(args, tuple | list):
        raise XlaCostError(
            f"args: found a {type(args).__name__}; expected a tuple of abstract arguments"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise XlaCostError(f"kwargs: found a {type(kwargs).__name__}; expected a dict")
