"""Triton kernels of additive attention, imported by `regard.kernels.additive.triton` when they are called."""
