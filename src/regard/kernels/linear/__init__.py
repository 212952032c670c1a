"""The affine map x Wᵀ + b, quicker where the same weights are asked for again and again."""

from regard.kernels.linear.cpu import Linear, linear, packed

__all__ = ["Linear", "linear", "packed"]
