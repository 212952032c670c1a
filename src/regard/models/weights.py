"""Weights from files: read, checked, and put into a network.

A weight has finite numbers in any of torch's usual floats; anything else in a file is refused by name.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.messages import visible

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # that weights may be kept in
WRAPPERS = ("state_dict", "model", "model_state_dict")  # keys under which files of weights hold them
CODE = re.compile(r"GLOBAL ([\w.]{1,80})")  # what a pickle asks to be imported, in what torch says of it


def check_weight(name: str, weight: Tensor, dtype: torch.dtype, where: str) -> None:
    """Refuse a weight of a dtype that would have to be cast, and one with NaN or infinity in it."""
    if weight.dtype != dtype and (weight.dtype not in FLOATS or dtype not in FLOATS):
        kinds = [
            str(each).removeprefix("torch.") for each in (weight.dtype, *(FLOATS if dtype in FLOATS else (dtype,)))
        ]
        raise CheckpointError(f"{where}: weight {name} is {kinds[0]}, expected {' or '.join(kinds[1:])}")
    if dtype not in FLOATS:
        return
    with torch.no_grad():
        weight = weight.to(dtype)  # a number may be finite in float64 alone
        # A sum with NaN or infinity in it is neither finite; one pass, and nothing is made but where there is doubt.
        if bool(torch.isfinite(weight.sum())) or bool(torch.isfinite(weight).all()):
            return
        what = "NaN" if bool(torch.isnan(weight).any()) else "infinity"
    raise CheckpointError(
        f"{where}: weight {name} has {what} in it, expected finite numbers: training it diverged, or the file was "
        "changed; take another checkpoint of the run, or train it again with a lower training.rate"
    )


def load_weights(net: nn.Module, path: str) -> None:
    """Load a file's weights into a network; the file may have more, such as the classifier that was cut off."""
    weights = {unify_name(name): tensor for name, tensor in read_weights(path).items()}
    own = {unify_name(name): tensor for name, tensor in net.state_dict().items()}
    with torch.no_grad():
        for name, tensor in own.items():
            if name not in weights:
                if name.endswith("num_batches_tracked"):
                    continue
                raise CheckpointError(f"{path}: weight {name} is missing, which the backbone needs")
            if weights[name].shape != tensor.shape:
                shapes = f"{list(weights[name].shape)}, expected {list(tensor.shape)}"
                raise CheckpointError(f"{path}: weight {name} is {shapes}")
            check_weight(name, weights[name], tensor.dtype, path)
            tensor.copy_(weights[name])


def unify_name(name: str) -> str:
    """Unify a weight's name, however it is wrapped: timm writes blocks_0 for blocks.0 where it has stages alone."""
    return name.removeprefix("module.").replace(".", "_")


def refusal(error: str) -> str:
    """Say in our words what torch says of a file; torch advises to turn the check off, which runs code."""
    if "TorchScript" in error:
        return "a TorchScript archive, which holds code; expected weights: save its state_dict() as .safetensors"
    if name := CODE.search(error):
        return f"holds {name[1]} beside weights, which is not run; save its state_dict() as .safetensors, and give that"
    return "not a file that holds only weights; it may be cut or of another kind, expected a state_dict() in it"


def read_weights(path: str) -> Mapping[str, Tensor]:
    """Read the tensors of a .safetensors file, or of a state_dict in a .pt file; no code in it is run."""
    try:
        if Path(path).suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file ({visible(str(error)[:300])})") from None
    except Exception as error:  # what torch raises at other bytes, and at code among them, has no narrower name
        raise CheckpointError(f"{path}: {refusal(str(error))}") from None
    for name in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{path}: expected names with tensors, as state_dict() gives them")
    return content
