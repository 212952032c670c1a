"""What a weight may be: finite numbers, in any of torch's usual floats. Anything else in a file is refused by name."""

import torch
from torch import Tensor

from regard.errors import CheckpointError

__all__ = ["FLOATS", "check_numbers"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # that weights may be kept in


def check_numbers(name: str, given: Tensor, dtype: torch.dtype, where: str) -> None:
    """Refuse a weight of a dtype that would have to be cast, and one with NaN or infinity in it."""
    if given.dtype != dtype and (given.dtype not in FLOATS or dtype not in FLOATS):
        kinds = [str(each).removeprefix("torch.") for each in (given.dtype, *(FLOATS if dtype in FLOATS else (dtype,)))]
        raise CheckpointError(f"{where}: weight {name} is {kinds[0]}, expected {' or '.join(kinds[1:])}")
    if dtype not in FLOATS:
        return
    with torch.no_grad():
        given = given.to(dtype)  # a number may be finite in float64 alone
        # A sum with NaN or infinity in it is neither finite; one pass, and nothing is made but where there is doubt.
        if bool(torch.isfinite(given.sum())) or bool(torch.isfinite(given).all()):
            return
        what = "NaN" if bool(torch.isnan(given).any()) else "infinity"
    raise CheckpointError(
        f"{where}: weight {name} has {what} in it, expected finite numbers: training it diverged, or the file was "
        "changed; take another checkpoint of the run, or train it again with a lower training.rate"
    )
