"""Garbage is not collected inside, and afterwards as before."""

import gc

import pytest

from regard.kernels.garbage import NEW, pause_garbage_collection, settle_memory


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


def test_what_is_there_is_not_looked_through_again():
    frozen, threshold = gc.get_freeze_count(), gc.get_threshold()
    try:
        settle_memory()
        assert gc.get_freeze_count() > frozen
        assert gc.get_threshold() == NEW
    finally:
        gc.set_threshold(*threshold)
        if not frozen:
            gc.unfreeze()
