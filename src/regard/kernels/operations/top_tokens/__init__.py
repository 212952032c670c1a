"""The likeliest allowed tokens of every row, and the sum that makes scores probabilities: one operation."""

from regard.kernels.operations.top_tokens.dispatch import top_tokens

__all__ = ["top_tokens"]
