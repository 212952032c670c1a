"""The specification of bilinear scores: e_ij = scale · q_i·k_j."""

# b batch · n queries · m keys · d width
from torch import Tensor

from regard.kernels.reference import matmul_wide, widen


def scores(query: Tensor, keys: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """Compute bilinear scores: [*b n d] and [*b m d] -> [*b n m], in float32 where the inputs are in half precision."""
    query = widen(query)
    return matmul_wide(query if scale == 1.0 else query * scale, keys.mT)
