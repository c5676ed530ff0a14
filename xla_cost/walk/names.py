"""Full `op_name`s: names inside a called computation are often relative to the call.

Before XLA inlines calls, and in loop bodies also afterwards, `op_name` starts at the function
that holds the instruction: `attention/dot_general` under a call named `jit(f)/model/call`.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=65536)
def full_name(context: str, own: str) -> str:
    """`own` seen from the entry, `context` being the full name of what runs the computation.

    A name that begins as the context does is full already. A name that repeats the end of
    the context (`layer/while` runs `layer/while/body/add`) continues it. Any other is put
    behind the context.
    """
    if not own or not context:
        return own
    root = context.split("/", 1)[0]
    if own == root or own.startswith(root + "/"):
        return own
    first = own.split("/", 1)[0]
    position = 0
    while position >= 0:  # the longest end of the context that `own` begins with
        end = context[position:]
        if end.split("/", 1)[0] == first and own.startswith(end + "/"):
            return context[:position] + own
        following = context.find("/", position)
        position = following + 1 if following >= 0 else -1
    return f"{context}/{own}"
