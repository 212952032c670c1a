"""The specification of bilinear scores: e_ij = scale · q_i·k_j."""

# b batch · n queries · m keys · d width
from torch import Tensor

__all__ = ["scores"]


def scores(query: Tensor, keys: Tensor, scale: float = 1.0) -> Tensor:
    """[*b n d] and [*b m d] -> [*b n m]."""
    # The query is scaled, not the product: in float16 the unscaled product of wide vectors overflows.
    return (query if scale == 1.0 else query * scale) @ keys.mT
