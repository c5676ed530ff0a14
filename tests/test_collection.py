"""The pause of the garbage collector ends as it began."""

import gc

import pytest

from xla_cost.collection import no_collection


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_is_off_inside_and_as_it_was_after(before):
    def fails():
        with no_collection():
            assert not gc.isenabled()
            raise ZeroDivisionError

    was = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        with pytest.raises(ZeroDivisionError):
            fails()
        assert gc.isenabled() is before
    finally:
        (gc.enable if was else gc.disable)()
