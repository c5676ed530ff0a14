"""HLO types: element types, array and tuple shapes, and how their text is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

#: Bits per element of every HLO element type that has a size.
BITS: Mapping[str, int] = {
    "pred": 8,
    **{f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    "f4e2m1fn": 4,
    **dict.fromkeys(
        ("f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz",
         "f8e3m4", "f8e8m0fnu"),
        8,
    ),
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
    "token": 0,
    "opaque": 0,
}  # fmt: skip

#: Tuples nested deeper than this are no real program; reading them would only cost stack
#: in whoever compares or prints the value.
MAX_NESTING = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """An array type. `dims` are upper bounds where a dimension is dynamic.

    `dynamic[i]` is "" (static), "<=" (bounded) or "?" (unbounded, then `dims[i]` is 0);
    an empty tuple means all static. `element_bits` is set by a packed layout `E(4)`.
    """

    dtype: str
    dims: tuple[int, ...] = ()
    dynamic: tuple[str, ...] = ()
    element_bits: int | None = None
    memory_space: int = 0

    @property
    def elements(self) -> int:
        """Number of elements, at the upper bound of bounded dimensions."""
        product = 1
        for size in self.dims:
            product *= size
        return product

    @property
    def bytes(self) -> int:
        """Bytes of the array; sub-byte types are packed (rounded up to a whole byte)."""
        bits = BITS.get(self.dtype, 0) if self.element_bits is None else self.element_bits
        return (self.elements * bits + 7) // 8

    @property
    def arrays(self) -> tuple[Shape, ...]:
        """The arrays inside this type, flattened: itself."""
        return (self,)


@dataclass(frozen=True, slots=True)
class TupleShape:
    """A tuple type, possibly nested."""

    elements: tuple[Shape | TupleShape, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all arrays inside."""
        return sum(array.bytes for array in self.arrays)

    @property
    def arrays(self) -> tuple[Shape, ...]:
        """The arrays inside this type, flattened in order."""
        found: list[Shape] = []
        todo: list[Shape | TupleShape] = [self]
        while todo:
            shape = todo.pop()
            if isinstance(shape, Shape):
                found.append(shape)
            else:
                todo.extend(reversed(shape.elements))
        return tuple(found)


AnyShape = Shape | TupleShape

#: What stands where a line prints no type.
NO_SHAPE = Shape("opaque")

_PIECE = re.compile(
    r"\s*+(?:/\*[^*]*+\*/\s*+)*+"
    r"(?:(?P<mark>b?+\(|[),])"
    r"|(?P<dtype>[a-z]\w*+)\s*+(?:\[(?P<dims>[^\[\]]*+)\])?+(?:\s*+\{(?P<layout>[^{}]*+)\})?+)"
)
_DIM = re.compile(r"\s*+(<=|)\s*+(\d{1,18}|\?)\s*+")
_PACKED = re.compile(r"E\((\d{1,4})\)")
_SPACE = re.compile(r"S\((\d{1,4})\)")


@lru_cache(maxsize=1 << 14)
def parse_shape(text: str) -> AnyShape | None:
    """Type printed as `text`, such as `(f32[8,<=16]{1,0:T(8,128)S(1)}, token[])`.

    A buffer `b(f32[8])` is the array it holds. None where `text` is no HLO type; the empty
    text gives `NO_SHAPE`.
    """
    if not text:
        return NO_SHAPE
    open_tuples: list[tuple[list[AnyShape], bool]] = []
    top: list[AnyShape] = []
    here = top
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _PIECE.match(text, position)
        if match is None:
            return None
        position = match.end()
        mark = match["mark"]
        if mark is None:
            array = _array(match["dtype"], match["dims"], match["layout"])
            if array is None:
                return None
            here.append(array)
        elif mark in ("(", "b("):
            if len(open_tuples) == MAX_NESTING:
                return None
            open_tuples.append((here, mark == "b("))
            here = []
        elif mark == ")":
            if not open_tuples:
                return None
            outer, is_buffer = open_tuples.pop()
            if is_buffer and len(here) != 1:
                return None
            outer.append(here[0] if is_buffer else TupleShape(tuple(here)))
            here = outer
        elif not open_tuples:
            return None
    return top[0] if len(top) == 1 and not open_tuples else None


def _array(dtype: str, dims_text: str | None, layout: str | None) -> Shape | None:
    """One array type from its pieces; None where the element type or a size is unknown."""
    if dtype not in BITS:
        return None
    sizes: list[int] = []
    marks: list[str] = []
    if dims_text and not dims_text.isspace():
        for piece in dims_text.split(","):
            match = _DIM.fullmatch(piece)
            if match is None:
                return None
            unbounded = match[2] == "?"
            marks.append("?" if unbounded else match[1])
            sizes.append(0 if unbounded else int(match[2]))
    packed = _PACKED.search(layout) if layout else None
    space = _SPACE.search(layout) if layout else None
    return Shape(
        dtype,
        tuple(sizes),
        tuple(marks) if any(marks) else (),
        int(packed[1]) if packed else None,
        int(space[1]) if space else 0,
    )


def shape_text(shape: AnyShape) -> str:
    """The shortest HLO text of `shape`; `parse_shape` of it gives `shape` back."""
    out: list[str] = []
    todo: list[AnyShape | str] = [shape]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            out.append(item)
        elif isinstance(item, Shape):
            out.append(_array_text(item))
        else:
            todo.append(")")
            for index, element in reversed(tuple(enumerate(item.elements))):
                todo.append(element)
                if index:
                    todo.append(", ")
            todo.append("(")
    return "".join(out)


def _array_text(shape: Shape) -> str:
    marks = shape.dynamic or ("",) * len(shape.dims)
    dims = ("?" if m == "?" else f"{m}{d}" for m, d in zip(marks, shape.dims, strict=True))
    layout = f"E({shape.element_bits})" if shape.element_bits is not None else ""
    layout += f"S({shape.memory_space})" if shape.memory_space else ""
    return f"{shape.dtype}[{','.join(dims)}]" + (f"{{:{layout}}}" if layout else "")
