"""Kernels that wait for nothing but another kernel run inside it.

Chains are fused from their ends (`xla_cost.price.fusion`), which parts a norm into two kernels,
because a reduce ends a chain, and a residual add from the norm that reads it, because others read
it too. Compilers and serving engines run these as one: XLA's GPU backend fuses row reductions
with what comes after (`SoftmaxRewriterTriton`, "normalization diamonds"), adds consumers to a
producer as further outputs (`MultiOutputFusion`) and writes updates in place from the fusion that
makes them; engines ship "fused add, RMS norm, quantise" kernels. The rule:

* A kernel joins the one that makes its input when every other value it waits for is one that
  kernel waits for, too. It is delayed by nothing, delays nothing, and no cycle can arise.
* Both hold fusible ops alone. A reduce may stand inside only along rows (the fastest dimensions)
  that one multiprocessor can hold, so that its block goes on when the row is complete.
* An update in place (dynamic-update-slice) may join, and ends the kernel.

A joined kernel reads what enters it, each value once, and writes what others read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xla_cost.price.fusion import (
    ELEMENTWISE,
    REARRANGING,
    Kernel,
    bytes_read,
    is_same_value,
    users_of,
)
from xla_cost.program import Node, Op

#: 64 K registers of 4 bytes per multiprocessor: CUDA C++ Programming Guide, technical
#: specifications per compute capability, 3.5 to 10.x
ROW_BYTES = 256 * 1024
_UPDATE = "dynamic-update-slice"


@dataclass(slots=True)
class _Group:
    """Kernels that run as one; it stands where the first of them did."""

    root: int
    members: set[int]
    waits: frozenset[int]
    leads: bool
    joined: int = 1


def join(
    nodes: Sequence[Node],
    kernels: Sequence[Kernel],
    where: Mapping[int, int],
    sources: Sequence[frozenset[int]],
) -> tuple[list[Kernel], dict[int, int]]:
    """`kernels` and `where` of `fuse`, joined.

    `sources` has per node the timed nodes that its value waits for, members of a kernel as the
    kernel's `root`; negative ones are carried from the last iteration and done.
    """
    group_of: dict[int, _Group] = {}  # root of a kernel -> the group it is in
    for kernel in kernels:  # by ascending root
        own = _Group(
            kernel.root, set(kernel.members), _waits(nodes, kernel, sources, group_of),
            all(is_local(nodes[member]) for member in kernel.members),
        )  # fmt: skip
        home = _home(own, nodes, kernel, group_of)
        if home is None:
            group_of[kernel.root] = own
            continue
        group_of[kernel.root] = home
        home.members |= own.members
        home.joined += 1
        home.leads = own.leads
    return _finish(nodes, kernels, where, group_of)


def _waits(
    nodes: Sequence[Node],
    kernel: Kernel,
    sources: Sequence[frozenset[int]],
    group_of: Mapping[int, _Group],
) -> frozenset[int]:
    """Roots of the groups, and other timed nodes, that a kernel waits for."""
    found: set[int] = set()
    for member in kernel.members:
        for dep in nodes[member].deps:
            found.update(one for one in sources[dep] if one >= 0 and one != kernel.root)
    return frozenset(group_of[one].root if one in group_of else one for one in found)


def _home(
    own: _Group, nodes: Sequence[Node], kernel: Kernel, group_of: Mapping[int, _Group]
) -> _Group | None:
    """The group that a kernel may join: the latest that it waits for, if for nothing else."""
    root = nodes[kernel.root]
    is_update = isinstance(root, Op) and root.opcode == _UPDATE and len(kernel.members) == 1
    if not (own.leads or is_update) or not own.waits:
        return None
    home = group_of.get(max(own.waits))
    if home is None or not home.leads or not own.waits - {home.root} <= home.waits:
        return None
    return home


def is_local(node: Node) -> bool:
    """Whether an op can stand inside a kernel: it needs nothing from other blocks."""
    if not isinstance(node, Op):
        return False
    if node.opcode == "reduce":
        return 0 < node.row_bytes <= ROW_BYTES
    return node.opcode in ELEMENTWISE or node.opcode in REARRANGING


def _finish(
    nodes: Sequence[Node],
    kernels: Sequence[Kernel],
    where: Mapping[int, int],
    group_of: Mapping[int, _Group],
) -> tuple[list[Kernel], dict[int, int]]:
    users = users_of(nodes)
    homes: dict[int, set[int]] = {}  # member -> roots of the groups it is in; several if repeated
    for group in group_of.values():
        for member in group.members:
            homes.setdefault(member, set()).add(group.root)
    found: list[Kernel] = []
    place: dict[int, int] = {}  # root of a group -> its number
    for kernel in kernels:
        group = group_of[kernel.root]
        if group.root != kernel.root:
            continue
        if group.joined > 1:
            members = tuple(sorted(group.members))
            written = sum(
                _written(nodes[member])
                for member in members
                if member in where and _leaves(member, group, nodes, users, homes)
            )
            kernel = Kernel(members, bytes_read(nodes, members), written, group.root)
        place[group.root] = len(found)
        found.append(kernel)
    at = {member: place[group_of[kernels[index].root].root] for member, index in where.items()}
    return found, at


def _written(node: Node) -> int:
    return node.bytes_written if isinstance(node, Op) else 0


def _leaves(
    member: int,
    group: _Group,
    nodes: Sequence[Node],
    users: Sequence[Sequence[int]],
    homes: Mapping[int, set[int]],
) -> bool:
    """Whether a value is read outside its group, or is a result of the body."""
    pending = list(users[member])
    if not pending:
        return True
    while pending:
        user = pending.pop()
        if is_same_value(nodes[user]) and users[user]:
            pending.extend(users[user])
        elif homes.get(user) != {group.root}:
            return True
    return False
