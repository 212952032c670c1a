"""Garbage is not collected inside, and afterwards as before."""

import gc

import pytest

from regard.kernels.garbage import pause_garbage_collection


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_as_it_was(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pause_garbage_collection():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with pytest.raises(ZeroDivisionError), pause_garbage_collection():
            1 / 0  # noqa: B018
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
