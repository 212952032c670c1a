"""Interpret kernels here as a GPU runs them, even if only one file is tested."""

import interpreted  # noqa: F401
