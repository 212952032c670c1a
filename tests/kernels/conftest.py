"""Kernels are interpreted here as a GPU runs them, whichever file is tested alone."""

import interpreted  # noqa: F401
