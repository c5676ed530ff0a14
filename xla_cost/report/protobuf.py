"""The little of the protobuf wire format that a trace needs.

https://protobuf.dev/programming-guides/encoding/: a field is a key (number << 3 | wire type)
and a value; wire type 0 is a varint, 1 eight bytes, 2 a length and that many bytes.
"""

from __future__ import annotations

import struct

_SHORT = tuple(bytes([value]) for value in range(0x80))


def varint(value: int) -> bytes:
    """A whole number, at least 0, seven bits a byte, lowest first."""
    if value < 0x80:
        return _SHORT[value]
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def field(number: int, value: int | float | bool | str | bytes) -> bytes:
    """One field: whole numbers (at least 0) and booleans as varints, floats as doubles, texts
    and messages with their length.
    """
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode(errors="replace") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data
