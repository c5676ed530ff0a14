"""The space of a search: factorisations and placements, counted by hand."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_cost.errors import XlaCostError
from xla_cost.search.candidates import Candidate, factorisations, placements, space


def test_288_has_126_ordered_shapes():
    # 288 = 2^5 * 3^2: C(5+2, 2) ways to deal five twos over three axes, C(2+2, 2) the threes
    assert len(list(factorisations(288))) == 21 * 6


@given(st.integers(1, 400))
def test_factorisations_multiply_out_and_never_repeat(devices):
    shapes = list(factorisations(devices))
    assert all(prod(shape) == devices for shape in shapes)
    assert len(set(shapes)) == len(shapes)


def test_zero_devices_is_refused():
    with pytest.raises(XlaCostError, match="devices = 0; must be at least 1"):
        list(factorisations(0))


def test_axes_of_size_one_do_not_multiply_the_placements():
    assert placements((2, 144, 1)) == ("xyz", "yxz")
    assert placements((1, 72, 1)) == ("xyz",)
    assert len(placements((2, 4, 8))) == 6


def test_space_is_the_cross_product():
    found = space(8, ("study", "dp-attention"), microbatches=(1, 2))
    assert len(found) == 2 * 10 * 2  # 8 = 2^3: C(5, 2) = 10 shapes
    assert Candidate("study", (2, 4, 1), "xyz", 2) in found
    assert str(Candidate("study", (2, 4, 1), "yxz", 2)) == "2x4x1 study placed yxz mb2"
