"""Many pictures, a batch at a time, the answers in the order given."""

# b pictures of a batch · h w height and width
import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from regard.decoding.found import Found
from regard.decoding.options import Options
from regard.decoding.search import search
from regard.errors import ArgumentError
from regard.models.contract import Model, Pictures

__all__ = ["ROWS", "search_pictures", "searched"]

ROWS = 64  # pictures of a batch
HYPOTHESES = 1024  # of all pictures of a batch at most, if it is more than one
Pixels = UInt8[Tensor, "b 3 h w"] | UInt8[np.ndarray, "b 3 h w"]


def search_pictures(
    model: Model,
    pixels: Pixels | Iterable[np.ndarray | Tensor],
    options: Options = Options(),  # noqa: B008
    *,
    device: torch.device | str = "cpu",
    rows: int = ROWS,
) -> list[Found]:
    """What `search` finds for each of some pictures of one size, [b 3 h w] or one [3 h w] after the other."""
    return list(searched(model, pixels, options, device=device, rows=rows))


def searched(
    model: Model,
    pixels: Pixels | Iterable[np.ndarray | Tensor],
    options: Options = Options(),  # noqa: B008
    *,
    device: torch.device | str = "cpu",
    rows: int = ROWS,
) -> Iterator[Found]:
    """The same as they are asked for: no more than `rows` pictures are held at a time."""
    if rows < 1:
        raise ArgumentError(f"rows: {rows} given, expected at least 1")
    each, hypotheses = iter(pixels), options.nbest if options.sample else options.beam
    rows = min(rows, max(1, HYPOTHESES // hypotheses))
    while chunk := list(itertools.islice(each, rows)):
        batch = torch.stack([torch.as_tensor(one) for one in chunk])
        yield from search(model, Pictures(batch.to(device)), options)
