"""Measured rows in the form the fits take, and their split into fitted and held out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: One row in five is held out.
HELD_OUT_SHARE = 5
LARGE_FLOPS = 1e9
LARGE_BYTES = 1e6
#: Rows of less than 1 GFLOP (1 MB) count this much in a fit: the aim is on the large ones.
SMALL_WEIGHT = 0.3


@dataclass(frozen=True)
class Rows:
    """Measurements of one kernel kind in one number format.

    `products` are GEMMs that run one after the other, as (batch, m, n, k, bytes) columns;
    `attention` is (rows, keys, depth, flops). `size` is FLOPs (bytes for streams), `keys` the text
    that identifies a row. `reserved` rows are quoted by the validation and never fitted.
    """

    kind: str
    number_format: str
    seconds: Floats
    total_bytes: Floats
    size: Floats
    keys: tuple[str, ...]
    reserved: Flags
    source: str
    products: tuple[tuple[Floats, Floats, Floats, Floats, Floats], ...] = ()
    attention: tuple[Floats, Floats, Floats, Floats] | None = None

    @property
    def held_out(self) -> Flags:
        """Rows kept from the fit: reserved ones, and one in five by a hash of their key."""
        return is_held_out(self.keys) | self.reserved

    @property
    def large(self) -> Flags:
        """Rows of at least 1 GFLOP, or 1 MB for what only moves bytes."""
        limit = LARGE_FLOPS if self.products or self.attention else LARGE_BYTES
        flags: Flags = self.size >= limit
        return flags

    def take(self, chosen: Flags) -> Rows:
        """The chosen rows."""
        return replace(
            self,
            seconds=self.seconds[chosen],
            total_bytes=self.total_bytes[chosen],
            size=self.size[chosen],
            keys=tuple(key for key, one in zip(self.keys, chosen, strict=True) if one),
            reserved=self.reserved[chosen],
            products=tuple(tuple(c[chosen] for c in one) for one in self.products),  # type: ignore[misc]
            attention=_take(self.attention, chosen),
        )


def _take(columns: Any, chosen: Flags) -> Any:
    return None if columns is None else tuple(column[chosen] for column in columns)


def is_held_out(keys: Iterable[str]) -> Flags:
    """One row in five, chosen by a hash of what the row measures: the same on every run."""
    return np.array([_hash(key) % HELD_OUT_SHARE == 0 for key in keys], dtype=bool)


def _hash(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def best_source(frame: Any, by: list[str]) -> Any:
    """The rows of the one kernel that is fastest on the whole, with its table and name.

    A kernel is a `kernel_source` of one table. Mixing kernels row by row would fit their
    coverage, not the hardware; the slowest one would fit a library's bug. Ranked by the mean
    slow-down against the fastest over shapes that several kernels ran, then by number of rows;
    a kernel needs a tenth of all shapes.
    """
    if not len(frame):
        return frame
    frame = frame.assign(kernel=frame.table + " " + frame.kernel_source.astype(str))
    grouped = frame.groupby(by)
    shared = frame.assign(
        slow_down=frame.latency / grouped.latency.transform("min"),
        kernels=grouped.kernel.transform("nunique"),
    )
    shapes = grouped.ngroups
    rows = frame.groupby("kernel").size()
    ranked = shared[shared.kernels > 1].groupby("kernel").slow_down.mean()
    choices = [name for name in rows.index if rows[name] * 10 >= shapes] or list(rows.index)
    best = min(choices, key=lambda n: (round(float(ranked.get(n, 1.0)), 2), -rows[n], n))
    chosen = frame[frame.kernel == best]
    return chosen.groupby([*by, "table", "kernel_source"], as_index=False).latency.min()


def floats(column: Any) -> Floats:
    """A column as float64."""
    return np.asarray(column, dtype=np.float64)


def row_keys(frame: Any, by: list[str], prefix: str) -> tuple[str, ...]:
    """A text per row that names it, the same on every machine and run."""
    parts = [frame[name].astype(str) for name in by]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined + "," + part
    return tuple(f"{prefix}:{text}" for text in joined)


def table_names(frame: Any) -> str:
    """`gemm/sglang/0.5.14 kernel, ..`: which tables and kernels the rows come from."""
    names = (frame["table"] + " " + frame["kernel_source"].astype(str)).unique()
    return ", ".join(sorted(names))
