"""Strict reading of TOML tables: every key known, every value of the kind expected."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from xla_cost.errors import XlaCostError

_MISSING = object()


class Table:
    """One table of a file; `finish` refuses keys that nobody asked for.

    Every reader raises XlaCostError naming place, value and what was expected.
    """

    def __init__(self, where: str, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise XlaCostError(f"{where} = {values!r}; must be a table")
        self.where = where
        self._values = values
        self._asked: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self._values

    def table(self, key: str) -> Table:
        """A table inside, empty where it is missing."""
        self._asked.add(key)
        return Table(self._place(key), self._values.get(key, {}))

    def number(
        self, key: str, default: Any = _MISSING, low: float = 0.0, high: float = float("inf"),
        positive: bool = False,
    ) -> Any:  # fmt: skip
        """A finite number in low..high, with `positive` any above zero."""
        value = self._take(key, default)
        if value is default:
            return value
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if (
            not good
            or not low <= value <= min(high, sys.float_info.max)
            or (positive and not value)
        ):
            limits = f"number in {low:g} .. {high:g}"
            if high == float("inf"):
                limits = "finite number > 0" if positive else f"finite number >= {low:g}"
            raise XlaCostError(f"{self._place(key)} = {value!r}; must be a {limits}")
        return float(value)

    def whole(self, key: str, default: Any = _MISSING, low: int = 0) -> Any:
        """A whole number of at least `low`."""
        value = self._take(key, default)
        if value is default:
            return value
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise XlaCostError(f"{self._place(key)} = {value!r}; must be a whole number >= {low}")
        return value

    def text(self, key: str, default: Any = _MISSING, allowed: Sequence[str] = ()) -> Any:
        """A string, one of `allowed` if there are any."""
        value = self._take(key, default)
        if value is default:
            return value
        if not isinstance(value, str) or (allowed and value not in allowed):
            wanted = "one of " + ", ".join(allowed) if allowed else "a string"
            raise XlaCostError(f"{self._place(key)} = {value!r}; must be {wanted}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise XlaCostError(f"{self._place(key)} = {value!r}; must be true or false")
        return value

    def finish(self) -> None:
        """Refuse keys that were not asked for."""
        unknown = sorted(set(self._values) - self._asked)
        if unknown:
            raise XlaCostError(
                f"{self._place(unknown[0])}: unknown key; must be one of "
                + ", ".join(sorted(self._asked))
            )

    def _take(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        value = self._values.get(key, default)
        if value is _MISSING:
            raise XlaCostError(f"{self._place(key)}: missing; expected a value")
        return value

    def _place(self, key: str) -> str:
        return f"{self.where}{'' if self.where.endswith(': ') else '.'}{key}"
