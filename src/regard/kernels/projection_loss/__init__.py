"""The output projection and the cross-entropy behind it, as one operation."""

from regard.kernels.projection_loss.chunked import projection_loss

__all__ = ["projection_loss"]
