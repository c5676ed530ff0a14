"""Latency curves in the file that `dynamo.replay` (ai-dynamo 1.4.2) reads.

All arrays are float64; its reader falls back to a built-in polynomial, with no more than a line
in its log, where one is of another type or shape. `prefill_isl` (tokens) and
`prefill_ttft_ms` have one entry per node. `decode_itl` (milliseconds) has a row for each of
`decode_active_kv_tokens` (cache tokens of the whole batch) and a column for each of
`decode_context_length` (mean tokens of a request); the replay interpolates linearly in both.
"""

from __future__ import annotations

from pathlib import Path

from xla_cost.errors import XlaCostError
from xla_cost.serving.curves import DecodeCurve, interpolate
from xla_cost.serving.points import geometric
from xla_cost.serving.system import System

#: At fixed context a step is affine in the cache tokens, at fixed cache tokens it goes with one
#: over the context: nodes an eighth of an octave apart leave less than 0.1 % of that.
_PER_OCTAVE = 8


def _fine(low: int, high: int) -> list[float]:
    """Nodes from `low` to at least `high`, an eighth of an octave apart."""
    nodes = [float(low)]
    while nodes[-1] < high:
        nodes.append(low * 2.0 ** (len(nodes) / _PER_OCTAVE))
    return nodes


def _step_ms(curve: DecodeCurve, kv_tokens: float, context: float) -> float:
    """A step of `kv_tokens / context` requests, a fraction of a request counted as such."""
    requests = kv_tokens / context * curve.rows_per_request
    columns = zip(*curve.steps, strict=True)
    row = [interpolate(curve.batches, column, requests) for column in columns]
    return max(curve.scale * interpolate(curve.contexts, row, context), 0.0) * 1e3


def export_npz(system: System, path: Path) -> Path:
    """Write the curves of `system`'s workers to `path`; gives the path.

    Prefill: one prompt at a time at powers of two up to the longest node. Decode: contexts over
    the curve's nodes, cache tokens from none to the largest batch at the longest context.
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
    shortest = max(steps.contexts[0], 1)
    # two nodes at least: a single one is a constant to us and an error to the replay
    contexts = _fine(shortest, max(steps.contexts[-1], 2 * shortest))
    most = int(max(steps.batches[-1], 2) * contexts[-1] / steps.rows_per_request)
    kv_tokens = [0.0, *_fine(shortest, most)]
    np.savez(
        path,
        prefill_isl=np.array(lengths, dtype=np.float64),
        prefill_ttft_ms=np.array([prompts.batch([(length, 0)]) * 1e3 for length in lengths]),
        decode_active_kv_tokens=np.array(kv_tokens),
        decode_context_length=np.array(contexts),
        decode_itl=np.array([[_step_ms(steps, kv, c) for c in contexts] for kv in kv_tokens]),
    )
    return path
