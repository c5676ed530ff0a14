"""Matrix products: dot, ragged-dot and scaled-dot as (batch, m, n, k)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from xla_cost.hlo.ir import Shape
from xla_cost.program import Matmul
from xla_cost.walk.formats import matmul_format

#: A complex multiply-add is four real ones.
_REAL_PER_COMPLEX = 4


def dot_matmul(
    lhs: Shape,
    rhs: Shape,
    *,
    lhs_contracting: Sequence[int],
    rhs_contracting: Sequence[int],
    lhs_batch: Sequence[int] = (),
    rhs_batch: Sequence[int] = (),
    algorithm: str = "",
) -> Matmul:
    """The product a `dot` of these operands does, at the upper bound of dynamic sizes.

    Raises IndexError for a dimension that an operand does not have.
    """
    for shape, dims in ((lhs, lhs_batch), (lhs, lhs_contracting), (rhs, rhs_batch),
                        (rhs, rhs_contracting)):  # fmt: skip
        if not set(dims) <= set(range(len(shape.dims))):
            raise IndexError(f"dimensions {list(dims)} of an operand that has {len(shape.dims)}")
    batch = _product(lhs, lhs_batch)
    if lhs.dtype in ("c64", "c128"):
        batch *= _REAL_PER_COMPLEX
    return Matmul(
        batch=batch,
        m=_product_but(lhs, lhs_batch, lhs_contracting),
        n=_product_but(rhs, rhs_batch, rhs_contracting),
        k=_product(lhs, lhs_contracting),
        format=matmul_format(lhs.dtype, rhs.dtype, algorithm),
    )


def ragged_matmuls(
    lhs: Shape,
    rhs: Shape,
    group_sizes: Shape,
    *,
    lhs_contracting: Sequence[int],
    rhs_contracting: Sequence[int],
    lhs_batch: Sequence[int] = (),
    rhs_batch: Sequence[int] = (),
    lhs_ragged: Sequence[int],
    rhs_group: Sequence[int] = (),
) -> tuple[Matmul, ...]:
    """A ragged-dot in any of its three modes, all rows of the ragged dimension in use.

    Group sizes are data, so this is the upper bound: the groups together own at most the
    ragged dimension. It is divided over the groups as evenly as whole rows allow.
    Modes as in XLA's `RaggedDotDimensionNumbers`: the ragged dimension of the left side is
    its own (one right side per group), contracting (one result per group), or batch.
    """
    ragged = lhs_ragged[0] if lhs_ragged else -1
    plain = dot_matmul(
        lhs,
        rhs,
        lhs_contracting=lhs_contracting,
        rhs_contracting=rhs_contracting,
        lhs_batch=lhs_batch,
        rhs_batch=rhs_batch,
    )
    if ragged in lhs_batch or ragged < 0:
        return (plain,)
    if ragged in lhs_contracting:
        groups = group_sizes.dims[-1] if group_sizes.dims else 1
        others = plain.k // max(1, lhs.dims[ragged])
        return tuple(
            Matmul(plain.batch * many, plain.m, plain.n, rows * others, plain.format, True)
            for many, rows in _spread(lhs.dims[ragged], groups)
        )
    groups = _product(rhs, rhs_group)
    columns = _product_but(rhs, (*rhs_batch, *rhs_group), rhs_contracting)
    return tuple(
        Matmul(plain.batch * many, rows, columns, plain.k, plain.format, True)
        for many, rows in _spread(plain.m, groups)
    )


def _spread(rows: int, groups: int) -> list[tuple[int, int]]:
    """(groups, rows each): `rows` over `groups` as evenly as whole rows allow."""
    groups = max(1, groups)
    each, left = divmod(rows, groups)
    parts = [(left, each + 1), (groups - left, each)]
    return [(many, size) for many, size in parts if many and size] or [(groups, 0)]


def _product(shape: Shape, dims: Iterable[int]) -> int:
    return prod(shape.dims[d] for d in dims)


def _product_but(shape: Shape, *left_out: Sequence[int]) -> int:
    skip = {d for dims in left_out for d in dims}
    return prod(size for d, size in enumerate(shape.dims) if d not in skip)
