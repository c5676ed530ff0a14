"""Dimension numbers and other typed attributes, as frozen values.

What they mean: XLA operation semantics, https://openxla.org/xla/operation_semantics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from xla_cost.errors import XlaCostError
from xla_cost.hlo.ir import Instruction
from xla_cost.hlo.lexing import inside, split_top

_INTEGER = re.compile(r"-?\d{1,18}")
_SPEC = re.compile(r"([a-z_]++)=(\S++)")
_PAD = re.compile(r"(-?\d{1,18})_(-?\d{1,18})(?:_(-?\d{1,18}))?+")
_LABELS = re.compile(r"([0-9a-z?]++)_([0-9a-z?]++)->([0-9a-z?]++)")
_RANGE = re.compile(r"\[\s*+(\d{1,18})\s*+:\s*+(\d{1,18})\s*+(?::\s*+(\d{1,18})\s*+)?+\]")


@dataclass(frozen=True, slots=True)
class DotDims:
    """Batch and contracting dimensions of the two operands of a dot."""

    lhs_batch: tuple[int, ...]
    lhs_contracting: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    rhs_contracting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowDim:
    """One dimension of a window. Padding may be negative (it crops)."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1
    reversed: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window, one entry per spatial (reduce-window: per) dimension."""

    dims: tuple[WindowDim, ...]


@dataclass(frozen=True, slots=True)
class ConvLabels:
    """Where batch, feature and spatial dimensions stand in a convolution.

    From `dim_labels=b01f_01io->b01f`. Spatial tuples are ordered by their digit, so entry
    `i` belongs to window dimension `i`. Dimensions labelled `?` are in none of them.
    """

    lhs_batch: int
    lhs_feature: int
    lhs_spatial: tuple[int, ...]
    rhs_input_feature: int
    rhs_output_feature: int
    rhs_spatial: tuple[int, ...]
    out_batch: int
    out_feature: int
    out_spatial: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceDim:
    """One dimension of a slice: `[start:limit:stride]`."""

    start: int
    limit: int
    stride: int = 1


@dataclass(frozen=True, slots=True)
class PadDim:
    """One dimension of a pad: `low_high_interior`."""

    low: int
    high: int
    interior: int = 0


def integers(instruction: Instruction, attribute: str) -> tuple[int, ...]:
    """The integers of an attribute `{0,2}`, `[0,2]` or `3`; empty where it is absent.

    Raises XlaCostError where something else stands there.
    """
    text = instruction.attributes.get(attribute, "")
    pieces = split_top(inside(text))
    if not all(_INTEGER.fullmatch(piece) for piece in pieces):
        raise _wrong(instruction, attribute, text, "integers such as {0,1}")
    return tuple(map(int, pieces))


def integer(instruction: Instruction, attribute: str, default: int) -> int:
    """The integer of an attribute; `default` where it is absent.

    Raises XlaCostError where something else stands there.
    """
    text = instruction.attributes.get(attribute)
    if text is None:
        return default
    if not _INTEGER.fullmatch(text):
        raise _wrong(instruction, attribute, text, "an integer")
    return int(text)


def dot_dims(instruction: Instruction) -> DotDims:
    """Dimension numbers of a dot, ragged-dot or scaled-dot; empty where they are not printed.

    Raises XlaCostError where they are no integers or the two sides differ in number.
    """
    dims = DotDims(
        integers(instruction, "lhs_batch_dims"),
        integers(instruction, "lhs_contracting_dims"),
        integers(instruction, "rhs_batch_dims"),
        integers(instruction, "rhs_contracting_dims"),
    )
    if len(dims.lhs_batch) != len(dims.rhs_batch):
        raise _wrong(
            instruction, "rhs_batch_dims", str(dims.rhs_batch), f"{len(dims.lhs_batch)} dimensions"
        )
    return dims


def window(instruction: Instruction) -> Window:
    """The window of a convolution or reduce-window; without dimensions where none is printed.

    Raises XlaCostError where it cannot be read or its parts differ in length.
    """
    text = instruction.attributes.get("window", "")
    spec = dict(_SPEC.findall(inside(text)))
    sizes = _sizes(instruction, text, spec.get("size", ""))
    count = len(sizes)
    parts = {
        name: _sizes(instruction, text, spec.get(name, ""), count, default)
        for name, default in
        (("stride", 1), ("lhs_dilate", 1), ("rhs_dilate", 1), ("rhs_reversal", 0))
    }  # fmt: skip
    pads = spec["pad"].split("x") if "pad" in spec else ["0_0"] * count
    padding = [_PAD.fullmatch(pad) for pad in pads]
    if len(padding) != count or not all(padding):
        raise _wrong(instruction, "window", text, f"pad=low_high for {count} dimensions")
    low_high = [(int(pad[1]), int(pad[2])) for pad in padding if pad]
    return Window(
        tuple(
            WindowDim(
                size,
                parts["stride"][i],
                *low_high[i],
                parts["lhs_dilate"][i],
                parts["rhs_dilate"][i],
                parts["rhs_reversal"][i] == 1,
            )
            for i, size in enumerate(sizes)
        )
    )


def _sizes(
    instruction: Instruction, text: str, part: str, count: int = -1, default: int = 0
) -> list[int]:
    """`3x3` as numbers; `count` times `default` where it is absent."""
    pieces = part.split("x") if part else []
    if not all(_INTEGER.fullmatch(piece) for piece in pieces):
        raise _wrong(instruction, "window", text, "sizes such as 3x3")
    if not pieces and count >= 0:
        return [default] * count
    if count >= 0 and len(pieces) != count:
        raise _wrong(instruction, "window", text, f"{count} sizes in each part")
    return list(map(int, pieces))


def conv_labels(instruction: Instruction) -> ConvLabels:
    """Dimension labels of a convolution.

    Raises XlaCostError where they are absent or not of the form `b01f_01io->b01f`.
    """
    text = instruction.attributes.get("dim_labels", "")
    match = _LABELS.fullmatch(text)
    if match is None:
        raise _wrong(instruction, "dim_labels", text, "labels such as b01f_01io->b01f")
    places = [
        {label: place for place, label in enumerate(part) if label != "?"}
        for part in match.groups()
    ]
    spatial = sorted(label for label in places[0] if label.isdecimal())
    wanted = [set("bf"), set("io"), set("bf")]
    for found, letters, part in zip(places, wanted, match.groups(), strict=True):
        if set(found) != letters | set(spatial) or len(found) != len(part.replace("?", "")):
            raise _wrong(instruction, "dim_labels", text, "each label once in each of the three")
    lhs, rhs, out = places
    return ConvLabels(
        lhs["b"], lhs["f"], tuple(lhs[label] for label in spatial),
        rhs["i"], rhs["o"], tuple(rhs[label] for label in spatial),
        out["b"], out["f"], tuple(out[label] for label in spatial),
    )  # fmt: skip


def feature_group_count(instruction: Instruction) -> int:
    """Groups that a convolution's features fall into; 1 where it is not printed."""
    return integer(instruction, "feature_group_count", 1)


def batch_group_count(instruction: Instruction) -> int:
    """Groups that a convolution's batch falls into; 1 where it is not printed."""
    return integer(instruction, "batch_group_count", 1)


def dimensions(instruction: Instruction) -> tuple[int, ...]:
    """`dimensions={..}` of a broadcast, reduce, transpose, concatenate, collective, .."""
    return integers(instruction, "dimensions")


def slice_dims(instruction: Instruction) -> tuple[SliceDim, ...]:
    """`slice={[0:8], [0:16:2]}` per dimension.

    Raises XlaCostError where it cannot be read.
    """
    text = instruction.attributes.get("slice", "")
    found = [_RANGE.fullmatch(piece) for piece in split_top(inside(text))]
    if not all(found):
        raise _wrong(instruction, "slice", text, "ranges such as {[0:8], [0:16:2]}")
    return tuple(SliceDim(int(m[1]), int(m[2]), int(m[3] or 1)) for m in found if m)


def padding(instruction: Instruction) -> tuple[PadDim, ...]:
    """`padding=0_512x1_1_2` of a pad, per dimension.

    Raises XlaCostError where it cannot be read.
    """
    text = instruction.attributes.get("padding", "")
    found = [_PAD.fullmatch(piece) for piece in text.split("x")] if text else []
    if not all(found):
        raise _wrong(instruction, "padding", text, "low_high or low_high_interior")
    return tuple(PadDim(int(m[1]), int(m[2]), int(m[3] or 0)) for m in found if m)


def _wrong(instruction: Instruction, attribute: str, found: str, expected: str) -> XlaCostError:
    return XlaCostError(
        f"line {instruction.line}: {instruction.opcode} {instruction.name}: "
        f"{attribute}={' '.join(found.split())[:60]} found, expected {expected}"
    )
