"""Which array is meant: values followed through tuples, bitcasts and the like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from xla_cost.hlo.ir import AnyShape, Shape, TupleShape


class Ref(NamedTuple):
    """The array (or tuple) at `path` inside the result of `producer`."""

    producer: str
    path: tuple[int, ...] = ()


#: A value: one producer's, or a tuple put together from several.
Value = Ref | list["Value"]


def element(value: Value, index: int) -> Value:
    """Element `index` of a tuple value."""
    if isinstance(value, Ref):
        return Ref(value.producer, (*value.path, index))
    return value[index] if index < len(value) else Ref("", ())


def at_path(value: Value, path: tuple[int, ...]) -> Value:
    """The part of a value at `path`."""
    for index in path:
        value = element(value, index)
    return value


def leaves(value: Value) -> Iterator[Ref]:
    """The references a value is made of, left to right, without recursion."""
    if isinstance(value, Ref):
        yield value
        return
    stack: list[Value] = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, Ref):
            yield top
        else:
            stack.extend(reversed(top))


def shape_at(shape: AnyShape, path: tuple[int, ...]) -> AnyShape:
    """The type at `path` inside a type; an opaque one where there is no such element."""
    for index in path:
        if not isinstance(shape, TupleShape) or index >= len(shape.elements):
            return Shape("opaque")
        shape = shape.elements[index]
    return shape


def first_array(shape: AnyShape) -> Shape:
    """The array of a type: itself, or the first one inside a tuple."""
    if isinstance(shape, Shape):
        return shape
    arrays = shape.arrays
    return arrays[0] if arrays else Shape("opaque")
