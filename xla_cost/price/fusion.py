"""Which ops of a body run as one kernel, and what such a kernel reads and writes.

The partitioned module is not fused: every convert and add stands alone. Compilers and serving
engines fuse such chains, so the `calibrated` policy does too, by one rule that any reader can
check by hand:

* A **fusible** op is element-wise or rearranges its input (slice, pad, transpose, broadcast..).
  A reduce may end a chain but not stand inside one: its value is complete only when its kernel
  is. What may then be put together again is in `xla_cost.price.join`.
* A fusible op joins its consumers' kernel when *all* its consumers sit in that one kernel. The
  value between them then moves no bytes. (As every path out of the op enters that kernel, no
  cycle can arise.)
* A **cheap** op (one operand, no arithmetic to speak of) whose consumers are all fusible but in
  several kernels is repeated in each; its own kernel disappears. One that is made of constants
  alone also in marked regions.
* Equal element-wise ops on equal operands are one op, as compilers see to it first.
* Everything else (gather, scatter, sort, dynamic-update-slice, dots, collectives, fusions made
  by a compiler) is a kernel of its own.

A fused kernel reads what its members read less what other members made, each outside value
once, and writes its last member's value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xla_cost.program import Node, Op

ELEMENTWISE = frozenset({
    "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "complex", "convert",
    "cosine", "divide", "erf", "exponential", "exponential-minus-one", "floor", "imag",
    "is-finite", "log", "log-plus-one", "logistic", "map", "maximum", "minimum", "multiply",
    "negate", "not", "or", "popcnt", "power", "real", "reduce-precision", "remainder",
    "round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sqrt",
    "stochastic-convert", "subtract", "tan", "tanh", "xor",
})  # fmt: skip
REARRANGING = frozenset({
    "broadcast", "concatenate", "copy", "dynamic-slice", "iota", "pad", "reshape", "reverse",
    "slice", "transpose",
})  # fmt: skip
_CHEAP = frozenset({
    "broadcast", "convert", "copy", "iota", "negate", "reshape", "slice", "transpose",
})  # fmt: skip
_REDUCING = frozenset({"reduce", "reduce-window"})
#: free ops that hand a value on unchanged
_SAME_VALUE = frozenset({"bitcast", "reshape", "bitcast-convert", "optimization-barrier"})


#: element-wise ops that are told apart by attributes the ledger does not keep
_HAS_ATTRIBUTES = frozenset({"compare", "map", "reduce-precision", "stochastic-convert"})


@dataclass(frozen=True, slots=True)
class Kernel:
    """Ops (indices into a body's nodes, ascending) that run as one, where `root` stands.

    The root is the last member, unless other kernels joined (`xla_cost.price.join`).
    """

    members: tuple[int, ...]
    bytes_read: int
    bytes_written: int
    root: int


def fuse(nodes: Sequence[Node], candidates: set[int]) -> tuple[list[Kernel], dict[int, int]]:
    """Groups the `candidates` (indices of priced vector and move ops) of one body.

    Returns the kernels and, per candidate that is not repeated, the index of the kernel it is
    in. Repeated ops have no kernel of their own.
    """
    users = users_of(nodes)
    constant = _constants(nodes)
    root_of: dict[int, int] = {}  # member -> root of its kernel
    members: dict[int, list[int]] = {}  # root -> members
    repeated: dict[int, list[int]] = {}  # cheap op -> roots it is repeated in
    for index in sorted(candidates, reverse=True):
        op = nodes[index]
        assert isinstance(op, Op)
        roots = _consumer_roots(index, nodes, users, root_of, repeated, index in constant)
        joinable = op.opcode in ELEMENTWISE or op.opcode in REARRANGING
        again = index in constant or (op.opcode in _CHEAP and roots)
        if joinable and roots is not None and len(roots) == 1 and index not in constant:
            root_of[index] = roots[0]
            members[roots[0]].append(index)
        elif again and roots is not None:
            repeated[index] = roots
            for root in roots:
                members[root].append(index)
        else:
            root_of[index] = index
            members[index] = [index]
    kernels: list[Kernel] = []
    where: dict[int, int] = {}
    for root in sorted(members):
        group = tuple(sorted(members[root]))
        read = bytes_read(nodes, group)
        written = nodes[root].bytes_written  # type: ignore[union-attr]
        where.update((member, len(kernels)) for member in group if member not in repeated)
        kernels.append(Kernel(group, read, written, root))
    return kernels, where


def merge_equal(nodes: Sequence[Node]) -> Sequence[Node]:
    """`nodes` with readers of a repeated op moved to its first occurrence.

    The repetitions stay in place, so that indices hold, but nothing reads them; they are made
    free.
    """
    first: dict[tuple[object, ...], int] = {}
    same: dict[int, int] = {}
    merged: list[Node] = []
    for index, node in enumerate(nodes):
        if any(dep in same for dep in node.deps):
            node = replace(node, deps=tuple(same.get(dep, dep) for dep in node.deps))
        if isinstance(node, Op) and _is_mergeable(node):
            origins = tuple(origin_of(dep, merged) for dep in node.deps)
            key = (node.opcode, origins, node.bytes_read, node.result_bytes)
            if key in first:
                same[index] = first[key]
                node = replace(node, kind="free", deps=(first[key],))
            else:
                first[key] = index
        merged.append(node)
    return merged if same else nodes


def _is_mergeable(op: Op) -> bool:
    return (
        op.kind == "vector"
        and op.opcode in ELEMENTWISE
        and op.opcode not in _HAS_ATTRIBUTES
        and len(op.deps) > 0
    )


def users_of(nodes: Sequence[Node]) -> list[list[int]]:
    """Per node, the nodes that read it."""
    users: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for dep in node.deps:
            users[dep].append(index)
    return users


def is_same_value(node: Node) -> bool:
    """Whether a node hands its operand on unchanged."""
    return isinstance(node, Op) and node.kind == "free" and node.opcode in _SAME_VALUE


def _consumer_roots(
    index: int,
    nodes: Sequence[Node],
    users: list[list[int]],
    root_of: dict[int, int],
    repeated: dict[int, list[int]],
    constant: bool,
) -> list[int] | None:
    """Roots of the kernels that read this value; None when something else reads it too.

    Of a `constant` the marked regions among its readers do not count: they make it themselves.
    """
    roots: set[int] = set()
    pending = list(users[index])
    if not pending:
        return None  # a result of the body
    while pending:
        user = pending.pop()
        if user in repeated:
            roots.update(repeated[user])
        elif user in root_of:
            if not _may_take_producers(nodes[user]):
                return None
            roots.add(root_of[user])
        elif is_same_value(nodes[user]) and users[user]:
            pending.extend(users[user])
        elif not (constant and _is_region(nodes[user])):
            return None
    return sorted(roots)


def _constants(nodes: Sequence[Node]) -> set[int]:
    """Nodes that only repeat, convert or rearrange constants."""
    found: set[int] = set()
    for index, node in enumerate(nodes):
        if not isinstance(node, Op):
            continue
        seed = node.opcode in ("constant", "iota") and not node.deps
        cheap = node.opcode in _CHEAP or is_same_value(node)
        if seed or (cheap and node.deps and found.issuperset(node.deps)):
            found.add(index)
    return found


def _is_region(node: Node) -> bool:
    return isinstance(node, Op) and node.kind == "kernel"


def _may_take_producers(node: Node) -> bool:
    return isinstance(node, Op) and (
        node.opcode in ELEMENTWISE or node.opcode in REARRANGING or node.opcode in _REDUCING
    )


def origin_of(index: int, nodes: Sequence[Node]) -> int:
    """The node that made a value, looking through bitcasts and free reshapes."""
    while is_same_value(nodes[index]) and nodes[index].deps:
        index = nodes[index].deps[0]
    return index


def value_bytes(index: int, nodes: Sequence[Node]) -> int:
    """Bytes of the value that a node makes."""
    node = nodes[index]
    return node.result_bytes or node.bytes_written if isinstance(node, Op) else 0


def bytes_read(nodes: Sequence[Node], group: tuple[int, ...]) -> int:
    """Bytes that the ops of one kernel take from outside it, each value once."""
    inside = set(group)
    seen: set[int] = set()
    total = 0
    for member in group:
        op = nodes[member]
        assert isinstance(op, Op)
        read, outside = op.bytes_read, False
        for dep in op.deps:
            origin = origin_of(dep, nodes)
            repeats = origin in seen and op.opcode in ELEMENTWISE
            if origin in inside or repeats:
                read -= value_bytes(dep, nodes)
            else:
                outside = True
                if op.opcode in ELEMENTWISE:
                    seen.add(origin)
        total += max(0, read) if outside or not op.deps else 0
    return total
