"""Weights from files: read without running code, checked, and refused by name."""

import pickle
import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from regard.errors import CheckpointError
from regard.models.contract import load_weights, read_weights
from regard.models.convnet import Stages


def test_weights_that_do_not_fit_are_named(tmp_path):
    net = Stages([("conv1", nn.Conv2d(3, 4, 3))])
    torch.save({"conv1.weight": torch.zeros(4, 3, 3, 3)}, tmp_path / "half.pt")
    with pytest.raises(CheckpointError, match="half.pt: weight conv1_bias is missing, which the backbone needs"):
        load_weights(net, str(tmp_path / "half.pt"))
    with pytest.raises(CheckpointError, match="none.pt: No such file"):
        read_weights(str(tmp_path / "none.pt"))
    for name in ("text.pt", "text.safetensors"):
        (tmp_path / name).write_text("no weights at all")
        with pytest.raises(CheckpointError, match=rf"{name}: not a "):
            read_weights(str(tmp_path / name))
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(CheckpointError, match="expected names with tensors"):
        read_weights(str(tmp_path / "list.pt"))


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('code was run')",)


def test_no_code_in_a_file_is_run(tmp_path):
    torch.save({"weight": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(CheckpointError, match=r"evil\.pt: holds exec beside weights, which is not run"):
        read_weights(str(tmp_path / "evil.pt"))


def test_a_refusal_does_not_say_how_to_turn_the_check_off(tmp_path):
    path, net = tmp_path / "file.pt", torch.nn.Linear(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(net), tmp_path / "script.pt")
    torch.save(net.state_dict(), tmp_path / "whole.pt")
    torch.save(net, tmp_path / "module.pt")
    torch.save(net, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    contents = [(tmp_path / name).read_bytes() for name in ("script.pt", "module.pt", "old.pt")]
    contents += [(tmp_path / "whole.pt").read_bytes()[:-40], pickle.dumps({"a": Evil()}), b"hello", b""]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            read_weights(str(path))
        said = str(caught.value)
        assert said.startswith(f"{path}: ")
        assert not any(word in said for word in ("weights_only", "torch.load", "safe_globals", "trust", "\x1b", "\n"))


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: torch.full_like(x, float("nan")), "has NaN in it"),
        (lambda x: torch.full_like(x, float("inf")), "has infinity in it"),
        (lambda x: x.to(torch.int8), "is int8, expected float16"),
        (lambda x: x > 0, "is bool, expected float16"),
        (lambda x: x.to(torch.complex64), "is complex64, expected float16"),
    ],
)
def test_weights_that_are_no_numbers(tmp_path, suffix, change, said):
    net = nn.Sequential(nn.Linear(2, 2))
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    weights["0.bias"] = change(weights["0.bias"])
    path = tmp_path / f"w.{suffix}"
    if suffix == "pt":
        torch.save(weights, path)
    else:
        save_file(weights, path)
    with pytest.raises(CheckpointError, match=f"w.{suffix}: weight 0_bias {said}"):
        load_weights(net, str(path))
