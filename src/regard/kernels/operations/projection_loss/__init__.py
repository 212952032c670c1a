"""The output projection and the cross-entropy behind it, as one operation."""

from regard.kernels.operations.projection_loss.dispatch import projection_loss

__all__ = ["projection_loss"]
