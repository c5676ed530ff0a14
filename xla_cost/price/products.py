"""Products of one value with several weights run as one product.

The query and latent projections of attention, or gate and up of an FFN, are separate dots in a
program. XLA's GPU backend joins dots that share an operand (`DotMerger`), and serving engines keep
such weights side by side from the start (`fused_qkv_a_proj`, `gate_up_proj` in TensorRT-LLM, vLLM
and SGLang). So do we where the other operand of each is an argument or an unchanged part of one,
which can be laid out so once, when it is loaded. The joined product reads the shared value once.

Products of marked regions stay as they are: the fit of grouped products is to three kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from xla_cost.price.fusion import origin_of, value_bytes
from xla_cost.program import Matmul, Node, Op


class _Key(NamedTuple):
    """Which operand is shared (0 or 1), the node that makes it, and the sizes that must agree."""

    shared: int
    origin: int
    sizes: Matmul


def merge_products(nodes: Sequence[Node], takes_time: set[int]) -> Sequence[Node]:
    """`nodes` with such dots joined at the first of them; the others stay in place, made free.

    `takes_time` are the indices of nodes that are priced.
    """
    given = _given(nodes, takes_time)
    first: dict[_Key, int] = {}
    merged = list(nodes)
    for index in sorted(takes_time):
        node = nodes[index]
        key = _key(node, nodes, given)
        if key is None:
            continue
        assert isinstance(node, Op)
        at = first.setdefault(key, index)
        if at != index:
            merged[at] = _joined(merged[at], node, nodes, key)
            merged[index] = replace(node, kind="free", deps=(at,), matmuls=(), matmul_opcodes=())
    return merged


def _given(nodes: Sequence[Node], takes_time: set[int]) -> list[bool]:
    """Per node, whether nothing of this body has to run before its value is there."""
    found: list[bool] = []
    for index, node in enumerate(nodes):
        found.append(index not in takes_time and all(found[dep] for dep in node.deps))
    return found


def _key(node: Node, nodes: Sequence[Node], given: Sequence[bool]) -> _Key | None:
    """Equal for dots that can be one; None for a node that cannot be joined."""
    if not isinstance(node, Op) or node.opcode != "dot" or node.kind != "matmul":
        return None
    if len(node.deps) != 2 or len(node.matmuls) != 1:
        return None
    (matmul,), (left, right) = node.matmuls, node.deps
    if given[left] == given[right]:
        return None
    if given[right]:
        return _Key(0, origin_of(left, nodes), replace(matmul, n=0))
    return _Key(1, origin_of(right, nodes), replace(matmul, m=0))


def _joined(one: Node, other: Op, nodes: Sequence[Node], key: _Key) -> Op:
    assert isinstance(one, Op)
    (first,), (second,) = one.matmuls, other.matmuls
    if key.shared == 0:
        product = replace(first, n=first.n + second.n)
    else:
        product = replace(first, m=first.m + second.m)
    again = value_bytes(other.deps[key.shared], nodes)
    return replace(
        one,
        name=f"{one.name}+{other.name}",
        scope=_common(one.scope, other.scope),
        matmuls=(product,),
        bytes_read=one.bytes_read + max(0, other.bytes_read - again),
        source_bytes_read=one.source_bytes_read + max(0, other.source_bytes_read - again),
        bytes_written=one.bytes_written + other.bytes_written,
    )


def _common(one: str, other: str) -> str:
    """The scope that both are in."""
    parts = itertools.takewhile(
        lambda pair: pair[0] == pair[1], zip(one.split("/"), other.split("/"), strict=False)
    )
    return "/".join(part for part, _ in parts)
