"""The likeliest allowed tokens of every row, and the sum that makes scores probabilities: one operation."""

from regard.kernels.likeliest.choose import likeliest

__all__ = ["likeliest"]
