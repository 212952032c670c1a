"""The specification of additive scores: e_ij = v·tanh(q_i + k_j), q and k already projected."""

# b batch · n queries · m keys · h hidden
import torch
from torch import Tensor

__all__ = ["scores"]


def scores(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """[*b n h], [*b m h] and [h] or [heads h] -> [*b n m]. The [*b n m h] in between stands in memory."""
    hidden = torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3))
    if vector.ndim == 1:
        return hidden @ vector
    return (hidden @ vector[:, None, :, None]).squeeze(-1)
