"""A residual, the bias and the dropout before it and the layer norm after it, as one operation."""

from regard.kernels.operations.residual.dispatch import residual

__all__ = ["residual"]
