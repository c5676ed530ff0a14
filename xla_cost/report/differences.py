"""What differs between two results, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: what may differ between two runs of the same thing: how long it took, what the cache held,
#: where files lie, and what made it (compared by itself)
VOLATILE = frozenset({
    "elapsed_s", "seconds_to_partition", "from_cache", "lowered", "computed", "reused", "files",
    "provenance", "source", "file",
})  # fmt: skip


def differences(stored: Any, now: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(place, stored value, value now) of every field of `stored` that is not the same in `now`.

    Numbers must be equal to the last bit. Fields that only `now` has are none: later versions
    write more. Goes through without recursion, in the order of the file.
    """
    pending = [(place, stored, now)]
    while pending:
        where, old, new = pending.pop()
        if isinstance(old, dict) and isinstance(new, dict):
            inner = [
                (f"{where}.{key}" if where else str(key), value, new.get(key, "(nothing)"))
                for key, value in old.items()
                if key not in VOLATILE
            ]
            pending.extend(reversed(inner))
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            pairs = zip(old, new, strict=True)
            inner = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(pairs)]
            pending.extend(reversed(inner))
        elif old != new or isinstance(old, bool) is not isinstance(new, bool):
            yield where, old, new
