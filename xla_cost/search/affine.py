"""One ledger out of two: programs whose every number is affine in the batch.

Partitioning R1 for every batch of a sweep would repeat the same work: as long as a batch
divides the mesh in the same way, the program keeps its structure and each count in it is
`a + b * batch`. That is checked, not assumed: a third lowered batch must be predicted to the
last digit, or the caller lowers every batch.
"""

from __future__ import annotations

from typing import Any

from xla_cost.program import Program
from xla_cost.program_io import from_json, to_json


class _NotAffineError(Exception):
    """The two ledgers differ in more than integers, or an integer does not come out whole."""


def interpolate(
    first: tuple[int, Program], second: tuple[int, Program], batch: int
) -> Program | None:
    """The ledger at `batch` from those at two other batches, or None if it is not affine.

    Every integer is taken as affine in the batch; everything else must be equal. None too
    when an interpolated integer would be fractional or negative.
    """
    (low, a), (high, b) = first, second
    try:
        return from_json(_mix(to_json(a), to_json(b), low, high, batch))
    except _NotAffineError:
        return None


def is_affine(
    first: tuple[int, Program], second: tuple[int, Program], third: tuple[int, Program]
) -> bool:
    """Whether the third ledger is exactly what the first two predict at its batch."""
    predicted = interpolate(first, second, third[0])
    return predicted is not None and _same(predicted, third[1])


def _same(a: Program, b: Program) -> bool:
    """Equality of all that is priced; provenance names the batch and may differ."""
    return (a.entry, a.devices, a.parameter_bytes, a.output_bytes) == (
        b.entry,
        b.devices,
        b.parameter_bytes,
        b.output_bytes,
    )


def _mix(a: Any, b: Any, low: int, high: int, at: int) -> Any:
    """`a + (b - a) * (at - low) / (high - low)`, leaf by leaf."""
    if type(a) is not type(b):
        raise _NotAffineError
    if isinstance(a, dict):
        if a.keys() != b.keys():
            raise _NotAffineError
        return {
            key: a[key] if key == "provenance" else _mix(a[key], b[key], low, high, at) for key in a
        }
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            raise _NotAffineError
        return [_mix(x, y, low, high, at) for x, y in zip(a, b, strict=True)]
    if isinstance(a, int) and not isinstance(a, bool):
        step, rest = divmod((b - a) * (at - low), high - low)
        if rest or a + step < 0:
            raise _NotAffineError
        return a + step
    if a != b:
        raise _NotAffineError
    return a
