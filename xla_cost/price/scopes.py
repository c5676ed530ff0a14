"""Which part of a model a scope path belongs to."""

from __future__ import annotations

import re
from functools import lru_cache

#: segments that only hold others: `layer/attention/q_down` is part of `attention`
_HOLDER = re.compile(
    r"^((dense|moe|hidden)_?)?(moe|layer|block|stage|microbatch|mb|half|model|transformer|decoder|"
    r"encoder|body|loss|step|train_step|forward|backward)s?([_\[]?\d+\]?)?$",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def part_of(scope: str) -> str:
    """The first segment that names something: `attention` of `layer/attention/q_down`.

    The last segment when all are holders, "(no scope)" for an empty path.
    """
    if not scope:
        return "(no scope)"
    segments = scope.split("/")
    return next((s for s in segments if not _HOLDER.match(s)), segments[-1])
