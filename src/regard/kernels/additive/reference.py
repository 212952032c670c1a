"""The specification of additive scores: e_ij = v·tanh(q_i + k_j), q and k already projected."""

# b batch · n queries · m keys · h hidden
import torch
from torch import Tensor

from regard.kernels.reference import matmul_wide, widen


def scores(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Compute scores: [*b n h], [*b m h] and [h] or [heads h] -> [*b n m]. The [*b n m h] between is held in memory.

    In float32 where the inputs are in half precision.
    """
    hidden = torch.tanh(widen(query).unsqueeze(-2) + widen(keys).unsqueeze(-3))
    vector = vector.to(hidden.dtype)
    if vector.ndim == 1:
        return matmul_wide(hidden, vector)
    return matmul_wide(hidden, vector[:, None, :, None]).squeeze(-1)
