"""What a co-design search chooses among: worker shapes, splits of the devices, batch limits.

A split is bounded from its curves: no request is faster than a whole prefill batch allows, no
step shorter than its curve. Only the best by that bound are simulated (`optimise.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xla_cost.serving.lowered import Workers

#: Mesh and plan of a worker.
Shape = tuple[tuple[int, int, int], str]

#: Devices of a prefill and of a decode worker.
PREFILL_SIZES = (4, 8, 16)
DECODE_SIZES = (8, 12, 24, 36, 48)

#: The study's split, kept in every comparison: 6 prefill workers of 8 devices, 1 to decode of 24.
STUDY_SPLIT = (6, 8, 1, 24)

#: Most requests a device may decode at once; decode curves go that far.
PLACES = 64


def prefill_shapes() -> tuple[Shape, ...]:
    """The study's plan on every x * y of a size (z has never paid here), and `dp-attention`."""
    shapes: list[Shape] = []
    for size in PREFILL_SIZES:
        shapes += [((size // y, y, 1), "study") for y in range(2, size + 1) if size % y == 0]
        shapes.append(((1, size, 1), "dp-attention"))
    return tuple(shapes)


def decode_shapes() -> tuple[Shape, ...]:
    """`dp-attention` on every size: other plans keep copies of the latent cache."""
    return tuple(((1, size, 1), "dp-attention") for size in DECODE_SIZES)


def prompts_per_batch(shape: Shape) -> tuple[int, ...]:
    """Prompts in one prefill batch: one or four; one on every device under `dp-attention`."""
    (_, y, _), plan = shape
    return (y,) if plan == "dp-attention" else (1, 4)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A split: workers of two shapes, prompts in a prefill batch, requests in a decode batch.

    `prefill_per_s` and `decode_per_s`: requests per second that either side cannot exceed.
    """

    prefill: Shape
    prefill_workers: int
    decode: Shape
    decode_workers: int
    prompts: int
    max_batch: int
    prefill_per_s: float
    decode_per_s: float

    @property
    def bound_per_s(self) -> float:
        """Requests per second that the whole cannot exceed."""
        return min(self.prefill_per_s, self.decode_per_s)

    @property
    def is_study(self) -> bool:
        """Whether it has the study's worker counts and sizes, on whatever mesh."""
        sizes = (_size(self.prefill), _size(self.decode))
        return (self.prefill_workers, sizes[0], self.decode_workers, sizes[1]) == STUDY_SPLIT


def _size(shape: Shape) -> int:
    (x, y, z), _ = shape
    return x * y * z


def candidates(
    prefill: Mapping[Shape, Workers],
    decode: Mapping[Shape, Workers],
    devices: int,
    tpot_s: float,
    ttft_s: float,
    inputs: int,
    outputs: int,
) -> Iterator[Candidate]:
    """Every split of up to `devices` that can keep the promises at all, with its bound.

    Requests have `inputs` and `outputs` tokens. The decode batch is the largest whose step at
    the mean context keeps `tpot_s`; a prefill batch has to take less than `ttft_s`.
    """
    context = inputs + outputs / 2
    for decode_shape, decoding in decode.items():
        batch = _largest_batch(decoding, tpot_s, context, inputs + outputs)
        if not batch:
            continue
        per_decoder = batch / (decoding.curves.decode_step_s(batch, context) * (outputs - 1))
        for prefill_shape, prefilling in prefill.items():
            for prompts in prompts_per_batch(prefill_shape):
                seconds = prefilling.curves.prefill_s([inputs] * prompts)
                if seconds > ttft_s:
                    continue
                for decoders in range(1, devices // _size(decode_shape) + 1):
                    left = devices - decoders * _size(decode_shape)
                    prefillers = left // _size(prefill_shape)
                    if prefillers:
                        yield Candidate(
                            prefill_shape, prefillers, decode_shape, decoders, prompts, batch,
                            prefillers * prompts / seconds, decoders * per_decoder,
                        )  # fmt: skip


def _largest_batch(decoding: Workers, tpot_s: float, context: float, tokens: int) -> int:
    """Most requests of one decode worker whose step is within the limit and that fit; 0: none."""
    low, high = 0, min(decoding.kv_tokens // tokens, PLACES * decoding.curves.devices)
    while low < high:
        middle = (low + high + 1) // 2
        if decoding.curves.decode_step_s(middle, context) <= tpot_s:
            low = middle
        else:
            high = middle - 1
    return low
