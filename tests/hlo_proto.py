"""What XLA's own parser says of a text: its proto, decoded by hand as far as the tests ask.

Field numbers are those of xla/service/hlo.proto and xla/xla_data.proto.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from dataclasses import dataclass

Fields = dict[int, list["int | bytes"]]


def oracle_proto(text: str) -> bytes | None:
    """The serialized HloModuleProto that XLA makes of `text`; None where jaxlib has no parser."""
    try:
        parse = importlib.import_module("jaxlib._hlo").hlo_module_from_text
    except (ImportError, AttributeError):
        return None
    data: bytes = parse(text).as_serialized_hlo_module_proto()
    return data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> Fields:
    """Fields of one message by number."""
    found: Fields = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: int | bytes
        if key & 7 == 0:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at : at + size], at + size
        found[key >> 3].append(value)
    return found


def ints(values: list[int | bytes]) -> tuple[int, ...]:
    """A repeated integer, packed or not, as signed numbers."""
    out: list[int] = []
    for value in values:
        if isinstance(value, int):
            out.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            out.append(number)
    return tuple(n - (1 << 64) if n >> 63 else n for n in out)


def _messages(values: list[int | bytes]) -> list[Fields]:
    return [fields(value) for value in values if isinstance(value, bytes)]


def _text(values: list[int | bytes]) -> str:
    return values[-1].decode() if values and isinstance(values[-1], bytes) else ""


@dataclass(frozen=True)
class OracleInstruction:
    """An instruction as XLA read it."""

    name: str
    opcode: str
    raw: Fields

    @property
    def arrays(self) -> list[tuple[int, tuple[int, ...]]]:
        """(element type number, dimensions) of every array in the type, in order."""
        return _arrays(_messages(self.raw[3])[0])

    @property
    def dot_dims(self) -> tuple[tuple[int, ...], ...]:
        """lhs batch, lhs contracting, rhs batch, rhs contracting."""
        (dims,) = _messages(self.raw[30])
        return ints(dims[3]), ints(dims[1]), ints(dims[4]), ints(dims[2])

    @property
    def windows(self) -> list[tuple[int, ...]]:
        """size, stride, pad low, pad high, lhs dilation, rhs dilation, reversed per dimension."""
        (window,) = _messages(self.raw[15])
        order = (1, 2, 3, 4, 6, 5, 7)  # base dilation is the lhs's, window dilation the rhs's
        return [tuple((ints(dim[f]) or (0,))[0] for f in order) for dim in _messages(window[1])]

    @property
    def conv_labels(self) -> tuple[int | tuple[int, ...], ...]:
        """lhs b, f, spatial; rhs i, o, spatial; output b, f, spatial."""
        (dims,) = _messages(self.raw[16])
        one = {f: (ints(dims[f]) or (0,))[0] for f in (7, 8, 3, 4, 9, 10)}
        many = {f: ints(dims[f]) for f in (11, 6, 12)}
        return (one[7], one[8], many[11], one[3], one[4], many[6], one[9], one[10], many[12])

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """Explicit replica groups."""
        lists = _messages(self.raw[87])
        found = lists[0][1] if lists else self.raw[49]
        return [ints(group[1]) for group in _messages(found)]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Source-target pairs."""
        pairs = _messages(self.raw[52])
        return [((ints(p[1]) or (0,))[0], (ints(p[2]) or (0,))[0]) for p in pairs]

    @property
    def slices(self) -> list[tuple[int, ...]]:
        """start, limit, stride per dimension."""
        return [
            ((ints(s[1]) or (0,))[0], (ints(s[2]) or (0,))[0], (ints(s[3]) or (0,))[0])
            for s in _messages(self.raw[17])
        ]


def _arrays(shape: Fields) -> list[tuple[int, tuple[int, ...]]]:
    element = (ints(shape[2]) or (0,))[0]
    if element != 13:  # TUPLE
        return [(element, ints(shape[3]))]
    return [array for part in _messages(shape[4]) for array in _arrays(part)]


def oracle_computations(data: bytes) -> dict[str, list[OracleInstruction]]:
    """Instructions of every computation of a serialized module, by its name."""
    return {
        _text(computation[1]): [
            OracleInstruction(_text(i[1]), _text(i[2]), i) for i in _messages(computation[2])
        ]
        for computation in _messages(fields(data)[3])
    }
