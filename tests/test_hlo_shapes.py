"""HLO types: text to Shape, sizes, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_cost.hlo.shapes import (
    BITS,
    MAX_NESTING,
    NO_SHAPE,
    AnyShape,
    Shape,
    TupleShape,
    parse_shape,
    shape_text,
)


@pytest.mark.parametrize(
    ("text", "shape", "size"),
    [
        ("f32[]", Shape("f32"), 4),
        ("bf16[8,128]{1,0}", Shape("bf16", (8, 128)), 8 * 128 * 2),
        ("f32[1, 1024,  16]", Shape("f32", (1, 1024, 16)), 1024 * 16 * 4),
        ("bf16[4,256]{1,0:T(8,128)(2,1)}", Shape("bf16", (4, 256)), 4 * 256 * 2),
        ("f32[16]{0:T(1024)S(5)}", Shape("f32", (16,), memory_space=5), 64),
        ("s32[]{:T(128)S(6)}", Shape("s32", memory_space=6), 4),
        ("bf16[1,128] {1,0}", Shape("bf16", (1, 128)), 256),
        ("u4[10,3]{1,0:E(4)}", Shape("u4", (10, 3), element_bits=4), 15),
        ("s8[3]{0:E(4)}", Shape("s8", (3,), element_bits=4), 2),
        ("f4e2m1fn[5]", Shape("f4e2m1fn", (5,)), 3),
        ("f8e8m0fnu[7]", Shape("f8e8m0fnu", (7,)), 7),
        ("pred[9]", Shape("pred", (9,)), 9),
        ("c128[2]", Shape("c128", (2,)), 32),
        ("f32[<=16,32]", Shape("f32", (16, 32), ("<=", "")), 16 * 32 * 4),
        ("f32[?,8]", Shape("f32", (0, 8), ("?", "")), 0),
        ("f32[0]{0}", Shape("f32", (0,)), 0),
        ("token[]", Shape("token"), 0),
        ("opaque[]", Shape("opaque"), 0),
        ("b(f32[4, 16])", Shape("f32", (4, 16)), 256),
    ],
)
def test_array_types_read_with_their_size(text: str, shape: Shape, size: int) -> None:
    assert parse_shape(text) == shape
    assert shape.bytes == size


def test_tuples_nest_and_flatten() -> None:
    shape = parse_shape("((f32[2,2], u8[3]), token[], /*index=2*/(s32[]))")
    f, u, t, s = Shape("f32", (2, 2)), Shape("u8", (3,)), Shape("token"), Shape("s32")
    assert shape == TupleShape((TupleShape((f, u)), t, TupleShape((s,))))
    assert shape.arrays == (f, u, t, s)
    assert shape.bytes == 16 + 3 + 0 + 4
    assert parse_shape("()") == TupleShape(())


@pytest.mark.parametrize(
    "text",
    [
        "f33[2]", "f32[2", "f32[a]", "f32[2]]", "(f32[2]", "f32[2])", "f32[2], f32[2]", "[2]",
        "f32[99999999999999999999]", "b(f32[2], f32[2])", "f32[2,,3]", " ", "-",
    ],
)  # fmt: skip
def test_text_that_is_no_type_gives_none(text: str) -> None:
    assert parse_shape(text) is None


def test_no_text_is_no_shape() -> None:
    assert parse_shape("") == NO_SHAPE == Shape("opaque")


def test_nesting_has_a_bound_and_no_recursion() -> None:
    def nested(depth: int) -> str:
        return "(" * depth + "f32[]" + ")" * depth

    deepest = parse_shape(nested(MAX_NESTING))
    assert deepest is not None
    assert deepest.bytes == 4
    assert parse_shape(nested(MAX_NESTING + 1)) is None
    assert parse_shape(nested(100_000)) is None


arrays = st.builds(
    Shape,
    st.sampled_from(sorted(BITS)),
    st.lists(st.integers(0, 10**6), max_size=4).map(tuple),
    memory_space=st.integers(0, 9),
    element_bits=st.none() | st.sampled_from([1, 2, 4, 8]),
)
shapes: st.SearchStrategy[AnyShape] = st.recursive(
    arrays, lambda inner: st.lists(inner, max_size=4).map(lambda s: TupleShape(tuple(s)))
)


@given(shapes)
def test_written_types_read_back(shape: AnyShape) -> None:
    assert parse_shape(shape_text(shape)) == shape
    assert shape.bytes == sum(array.bytes for array in shape.arrays)


@given(st.text(alphabet="fs32b16[](){},<=?: T/*E", max_size=40))
def test_any_text_gives_a_type_or_none(text: str) -> None:
    shape = parse_shape(text)
    assert shape is None or shape.bytes >= 0
