"""The same work in smaller parts."""

import pytest
import torch

from regard.machine import is_out_of_memory
from regard.training.update import attempt_in_parts


@pytest.mark.parametrize("fits", [1, 2, 4, 16])
def test_parts_double_until_they_fit(fits):
    tried, told = [], []

    def attempt(parts):
        tried.append(parts)
        if parts < fits:
            raise torch.OutOfMemoryError("no room")
        return parts

    assert attempt_in_parts(attempt, told.append) == fits
    assert tried == [1, *told]
    assert told == [2**i for i in range(1, fits.bit_length())]


def test_another_error_goes_through():
    def attempt(parts):
        raise RuntimeError("shapes")

    with pytest.raises(RuntimeError, match="shapes"):
        attempt_in_parts(attempt, lambda parts: pytest.fail("again"))


def test_what_did_not_fit_is_let_go_before_the_next_try():
    """The traceback of the failure must not hold on to its tensors."""
    import gc
    import weakref

    held = []

    def attempt(parts):
        if parts == 1:
            large = torch.zeros(10)
            held.append(weakref.ref(large))
            raise torch.OutOfMemoryError("no room")
        gc.collect()
        return held[0]() is None

    assert attempt_in_parts(attempt, lambda parts: None)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (torch.OutOfMemoryError("x"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_which_errors_are_memory(error, is_memory):
    assert is_out_of_memory(error) is is_memory
