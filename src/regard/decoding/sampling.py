"""Sampling: tokens drawn by their probability, the same for a sentence whatever it is searched together with.

`top_k` is Fan et al. 2018 (arXiv:1805.04833), `top_p` the nucleus of Holtzman et al. 2020 (arXiv:1904.09751).
"""

# s sentences · r rows of a sentence · v vocabulary
import zlib

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.options import Options


def random_numbers(source: list[int], steps: int, rows: int, seed: int) -> Float[Tensor, "t r"]:
    """Draw a sentence's random numbers in [0, 1), one per step and row, which hang on its tokens and the seed alone."""
    # A generator has 32 bits of seed: sentence and seed go into them together.
    key = zlib.crc32(torch.tensor([seed % 2**63, *source], dtype=torch.int64).numpy().tobytes())
    generator = torch.Generator().manual_seed(key)
    # Row by row, so that the first of many samples are those of a few.
    return torch.rand(rows, steps, generator=generator, dtype=torch.float64).T


def sample_tokens(
    scores: Float[Tensor, "s r v"], numbers: Float[Tensor, "s r"], options: Options
) -> Int[Tensor, "s r"]:
    """Sample a token a row: the one on which its random number falls, with probabilities laid end to end."""
    device = scores.device
    scores = (scores.cpu() if device.type == "mps" else scores).double()  # Apple's GPU has no float64
    scores = (scores - scores.amax(-1, keepdim=True)) / options.temperature  # however small: the likeliest stays at 0
    order = None
    if 0 < options.top_k < scores.shape[-1]:
        scores, order = scores.topk(options.top_k)
    elif options.top_p < 1:
        scores, order = scores.sort(descending=True)
    probability = scores.softmax(-1)
    if options.top_p < 1:
        before = probability.cumsum(-1) - probability
        probability = probability.masked_fill(before >= options.top_p, 0.0)  # the first stays: nothing is before it
    summed = probability.cumsum(-1)
    place = (summed <= numbers[..., None].to(summed.device) * summed[..., -1:]).sum(-1, keepdim=True)
    place = place.clamp(max=probability.shape[-1] - 1)
    return (place if order is None else order.gather(-1, place))[..., 0].to(device)
