"""A model's copy in bfloat16, for searches on a GPU. The scores of tokens are in float32 still."""

# r rows · d width · v vocabulary
import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models import Model

ROWS = 16  # scores of a row are a multiple of it
MORE = 8  # columns behind a readout's weights: two are used, and products want a multiple of eight


class WideReadout(nn.Module):
    """An output projection whose scores are in float32: in bfloat16 those of likely tokens would often be equal.

    The bias is two more columns of the weights, what bfloat16 has of it and what that leaves, so that it is in the same
    product: added to the scores it would cost twice as much as they do. Rows of zeros behind the weights make a row of
    scores a multiple of sixteen: for a vocabulary of any other size the product takes three times as long.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        weight = linear.weight.detach().to(torch.bfloat16)
        bias = torch.zeros_like(linear.weight[:, 0]) if linear.bias is None else linear.bias.detach()
        high = bias.to(torch.bfloat16)
        more = weight.new_zeros(len(weight), MORE)
        more[:, 0], more[:, 1] = high, (bias.float() - high.float()).to(torch.bfloat16)
        rows = -len(weight) % ROWS
        self.register_buffer("weight", F.pad(torch.cat([weight, more], 1), (0, 0, 0, rows)), persistent=False)
        ones = torch.zeros(MORE)
        ones[:2] = 1
        self.register_buffer("ones", ones.to(weight), persistent=False)
        self.out_features = linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        """Compute x Wᵀ + b, summed and returned in float32."""
        assert isinstance(self.ones, Tensor)
        assert isinstance(self.weight, Tensor)
        wide = torch.cat([x, self.ones.expand(*x.shape[:-1], -1)], -1).flatten(0, -2)
        if x.is_cuda:
            scores = torch.mm(wide, self.weight.t(), out_dtype=torch.float32)
        else:
            scores = wide.float() @ self.weight.t().float()
        return scores[:, : self.out_features].unflatten(0, x.shape[:-1])


def to_bfloat16(model: Model) -> Model:
    """Copy a model, with weights in bfloat16."""
    half = copy.deepcopy(model)
    wide = {
        name: WideReadout(part.readout)
        for name, part in half.named_modules()
        if isinstance(part, Model) and part.projects and isinstance(getattr(part, "readout", None), nn.Linear)
    }
    half = half.to(torch.bfloat16).eval().requires_grad_(False)
    for name, readout in wide.items():
        half.get_submodule(name).readout = readout
    for part in half.modules():
        if isinstance(part, nn.RNNBase):
            flatten(part)
    return half


def flatten(part: nn.RNNBase) -> None:
    """Put the weights side by side, as cuDNN wants them; `flatten_parameters` wrongly skips bfloat16."""
    if not part.weight_ih_l0.is_cuda or not torch._use_cudnn_rnn_flatten_weight():
        return
    from torch.backends.cudnn.rnn import get_cudnn_mode

    torch._cudnn_rnn_flatten_weight(
        part._flat_weights,  # type: ignore[arg-type]
        4 if part.bias else 2,
        part.input_size,
        get_cudnn_mode(part.mode),
        part.hidden_size,
        part.proj_size,
        part.num_layers,
        part.batch_first,
        bool(part.bidirectional),
    )
