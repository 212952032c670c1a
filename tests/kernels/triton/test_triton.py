"""The check for Triton."""

import importlib.util

from regard.kernels import triton


def test_whether_it_is_there():
    assert (importlib.util.find_spec("triton") is not None) == triton.INSTALLED
