"""The affine map x Wᵀ + b, quicker where the same weights are asked for again and again."""

from regard.kernels.operations.linear.cpu import pack_weights
from regard.kernels.operations.linear.dispatch import Linear, linear

__all__ = ["Linear", "linear", "pack_weights"]
