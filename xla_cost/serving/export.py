"""Latency curves in the file that `dynamo.replay` (ai-dynamo) reads.

Keys: `prefill_isl` (tokens) and `prefill_ttft_ms`, one entry each; `decode_active_kv_tokens`
(cache tokens of the whole batch), `decode_context_length` (tokens of one request) and
`decode_itl` in milliseconds, one entry per point of the grid.
"""

from __future__ import annotations

from pathlib import Path

from xla_cost.errors import XlaCostError
from xla_cost.serving.points import geometric
from xla_cost.serving.system import System


def export_npz(system: System, path: Path, batches: int = 12) -> Path:
    """Write the curves of `system`'s workers to `path`; gives the path.

    Prefill: one prompt at a time at powers of two up to the longest node. Decode: every context
    node and `batches` batch sizes up to the largest node.
    """
    import numpy as np

    prefill = system.prefill or system.mixed
    decode = system.decode or system.mixed
    if prefill is None or decode is None:
        raise XlaCostError("export: a system without pools; expected prefill and decode curves")
    prompts, steps = prefill.curves.prefill, decode.curves.decode
    if prompts is None or steps is None:
        raise XlaCostError("export: a pool without a curve; expected prefill and decode curves")
    lengths = geometric(128, max(max(prompts.lengths), max(prompts.tokens), 256), 2)
    times = [prompts.batch([(length, 0)]) * 1e3 for length in lengths]
    sizes = geometric(max(steps.batches[0], 1), max(steps.batches[-1], 2), 2)[:batches]
    grid = [(b * c, c, steps.step(b, c) * 1e3) for c in steps.contexts for b in sizes if c > 0]
    kv, context, itl = zip(*grid, strict=True)
    np.savez(
        path,
        prefill_isl=np.array(lengths, dtype=np.int64),
        prefill_ttft_ms=np.array(times),
        decode_active_kv_tokens=np.array(kv, dtype=np.int64),
        decode_context_length=np.array(context, dtype=np.int64),
        decode_itl=np.array(itl),
    )
    return path
