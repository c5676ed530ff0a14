"""Device lists written as iota tilings and as axes of a mesh."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import prod

from xla_cost.errors import XlaCostError

#: No system has more devices; a larger number would only fill the memory.
MAX_DEVICES = 1 << 22

_MESH = re.compile(
    r"mesh\s*+\[([^\[\]]*+)\]\s*+"
    r"(?:,\s*+device_ids\s*+=\s*+\(((?:[^(){}]|\([^(){}]*+\))*+)\)\s*+)?+,?+\s*+\{([^{}]*+)\}\s*+"
)
_AXIS = re.compile(r"\s*+['\"]([^'\"]*+)['\"]\s*+=\s*+(\d{1,9})\s*+")
_AXIS_REF = re.compile(r"\s*+['\"]([^'\"]*+)['\"]\s*+(?::\s*+\((\d{1,9})\)\s*+(\d{1,9})\s*+)?+")
_IDS = re.compile(r"\[([\d,\s]*+)\]\s*+(?:T\(([\d,\s]*+)\))?+")
_IOTA_IDS = re.compile(r"\[[\d,\s]*+\]\s*+<=\s*+(\[.*)", re.DOTALL)


def numbers(text: str) -> list[int]:
    """The integers in `0,1,2`; pieces with nothing in them are left out."""
    return [int(piece.strip()[:18]) for piece in text.split(",") if piece.strip().isdecimal()]


def shown(text: str) -> str:
    """`text` on one line and not too long, for a message."""
    return " ".join(text.split())[:60]


def iota(dims: Sequence[int], reshape: Sequence[int], perm: str | None, where: str) -> list[int]:
    """Flat ids of `dims<=reshape T(perm)`: 0.., shaped `reshape`, transposed, flattened.

    Raises XlaCostError where the sizes do not multiply out or `perm` is no permutation.
    """
    count, total = prod(dims), prod(reshape)
    if count != total:
        raise XlaCostError(f"{where} tiles {count} devices, expected {total}")
    if not 0 < count <= MAX_DEVICES:
        raise XlaCostError(f"{where} names {count} devices, expected 1 to {MAX_DEVICES}")
    order = list(range(len(reshape))) if perm is None else numbers(perm)
    if sorted(order) != list(range(len(reshape))):
        raise XlaCostError(
            f"{where} transposes by T({shown(perm or '')}), "
            f"expected a permutation of {len(reshape)} dimensions"
        )
    return transposed(list(range(total)), reshape, order)


def transposed(values: Sequence[int], shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """`values`, laid out row-major as `shape`, in the order of the axes permuted by `order`."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    positions = [0]
    for axis in order:
        steps = [step * strides[axis] for step in range(shape[axis])]
        positions = [base + step for base in positions for step in steps]
    return [values[position] for position in positions]


def mesh_groups(text: str, where: str) -> list[list[int]]:
    """Groups of `mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}`.

    Each group runs over the axes named in braces, in that order, a sub-axis
    `'b':(2)2` being the part of `b` of size 2 that lies behind a part of size 2.

    Raises XlaCostError for an unknown axis and for sizes that do not multiply out.
    """
    match = _MESH.fullmatch(text.strip())
    if match is None:
        raise XlaCostError(
            f"{where}: replica_groups={shown(text)} found, "
            "expected mesh['axis'=size,..] {'axis',..}"
        )
    axes = _axes(match[1], where)
    ids = _device_ids(match[2], list(axes.values()), where)
    parts, chosen = _split_axes(axes, match[3], where)
    kept = [index for index in range(len(parts)) if index not in chosen]
    size = prod(parts[index] for index in chosen)
    flat = transposed(ids, parts, kept + chosen)
    return [flat[start : start + size] for start in range(0, len(flat), size)]


def _axes(text: str, where: str) -> dict[str, int]:
    axes: dict[str, int] = {}
    for piece in text.split(","):
        match = _AXIS.fullmatch(piece)
        if match is None or int(match[2]) == 0 or match[1] in axes:
            raise XlaCostError(
                f"{where}: mesh axis {shown(piece)} found, expected a new 'name'=size"
            )
        axes[match[1]] = int(match[2])
    if prod(axes.values()) > MAX_DEVICES:
        raise XlaCostError(
            f"{where}: mesh of {prod(axes.values())} devices found, expected at most {MAX_DEVICES}"
        )
    return axes


def _device_ids(text: str | None, sizes: list[int], where: str) -> Sequence[int]:
    """Device at each place of the mesh, row-major."""
    total = prod(sizes)
    if text is None:
        return range(total)
    text = text.strip()
    tiled = _IOTA_IDS.fullmatch(text)
    match = _IDS.fullmatch(tiled[1] if tiled else text)
    if match is not None:
        return iota(sizes, numbers(match[1]), match[2], f"{where}: device_ids=({shown(text)})")
    ids = numbers(text)
    if sorted(ids) != list(range(total)):
        raise XlaCostError(
            f"{where}: device_ids=({shown(text)}) found, expected each of {total} devices once"
        )
    return ids


def _split_axes(axes: dict[str, int], text: str, where: str) -> tuple[list[int], list[int]]:
    """(sizes of all axes with sub-axes split off, places among them of the axes named)."""
    named: list[tuple[str, int, int]] = []
    for piece in text.split(",") if text.strip() else []:
        match = _AXIS_REF.fullmatch(piece)
        if match is None or match[1] not in axes:
            raise XlaCostError(
                f"{where}: mesh axis {shown(piece)} found, expected one of {shown(', '.join(axes))}"
            )
        size = axes[match[1]]
        before, part = (int(match[2]), int(match[3])) if match[2] else (1, size)
        if before * part == 0 or size % (before * part):
            raise XlaCostError(
                f"{where}: sub-axis {shown(piece)} found, expected sizes that divide {size}"
            )
        named.append((match[1], before, part))
    parts: list[int] = []
    place: dict[tuple[str, int], int] = {}
    for axis, size in axes.items():
        cuts = sorted({1, size} | {b for n, b, _ in named if n == axis}
                      | {b * p for n, b, p in named if n == axis})  # fmt: skip
        for low, high in pairwise(cuts):
            if high % low:
                raise XlaCostError(f"{where}: sub-axes of {shown(axis)} found that overlap")
            place[axis, low] = len(parts)
            parts.append(high // low)
    chosen: list[int] = []
    for axis, before, part in named:
        low = before
        while low < before * part:
            chosen.append(place[axis, low])
            low *= parts[place[axis, low]]
    if len(set(chosen)) != len(chosen):
        raise XlaCostError(f"{where}: {{{shown(text)}}} found, expected each mesh axis once")
    return parts or [1], chosen
