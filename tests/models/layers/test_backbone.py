"""Networks of other libraries as encoders of pictures; stand-ins of torch's own parts where those are not there."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from regard.errors import CheckpointError, ConfigError, MissingExtraError
from regard.models.captioner.backbone import Backbone, from_torchvision, make_backbone
from regard.models.config import CaptionerConfig
from regard.models.layers.resnet import ResNet
from regard.models.weights import load_weights


def pictures(count=2, size=64):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8)


class Residual(nn.Module):
    """The outline of torchvision's ResNet: names and strides are its own."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(nn.Conv2d(4, 5, 3, 1, 1), nn.BatchNorm2d(5))
        self.layer2, self.layer3 = nn.Conv2d(5, 6, 3, 2, 1), nn.Conv2d(6, 7, 3, 2, 1)
        self.layer4 = nn.Conv2d(7, 8, 3, 2, 1)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 10)


class Straight(nn.Module):
    """The outline of VGG: everything in `features`."""

    def __init__(self):
        super().__init__()
        parts = []
        for before, width in ((3, 4), (4, 5), (5, 6), (6, 7), (7, 8)):
            parts += [nn.Conv2d(before, width, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)]
        self.features, self.classifier = nn.Sequential(*parts), nn.Linear(8, 10)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.inception = nn.Conv2d(3, 4, 3)


@pytest.fixture
def torchvision(monkeypatch):
    """A module that offers what is asked of torchvision."""
    made = {"resnet0": Residual, "vgg0": Straight, "odd": Odd}
    models = SimpleNamespace(list_models=lambda module=None: list(made), get_model=lambda name, weights: made[name]())
    module = ModuleType("torchvision")
    module.models = models
    monkeypatch.setitem(sys.modules, "torchvision", module)
    return made


def given(name, path, frozen=False):
    """A backbone with a person's weights, as a new captioner has it."""
    backbone = Backbone(name, fixed_norms=True, frozen=frozen)
    load_weights(backbone.net, str(path))
    return backbone


@pytest.mark.parametrize(("name", "width"), [("resnet0", 7), ("vgg0", 8)])
def test_stages_are_kept_up_to_a_sixteenth(torchvision, name, width):
    backbone = Backbone(f"torchvision:{name}")
    assert backbone.width == width
    assert backbone(pictures(size=64)).shape == (2, width, 4, 4)
    assert backbone(pictures(size=96)).shape == (2, width, 6, 6)


@pytest.mark.parametrize("name", ["resnet0", "vgg0"])
@pytest.mark.parametrize("form", ["pt", "safetensors", "wrapped"])
def test_a_file_of_the_whole_network_fits(torchvision, tmp_path, name, form):
    whole = torchvision[name]()
    weights = whole.state_dict()
    path = tmp_path / f"x.{'safetensors' if form == 'safetensors' else 'pt'}"
    if form == "safetensors":
        save_file(weights, path)
    else:
        inside = {f"module.{key}": value for key, value in weights.items()}
        torch.save({"epoch": 3, "state_dict": inside} if form == "wrapped" else weights, path)
    backbone = given(f"torchvision:{name}", path)
    for key, value in backbone.net.state_dict().items():
        assert torch.equal(value, weights[key])


def test_batch_norms_with_weights_stay_as_they_are(torchvision, tmp_path):
    torch.save(Residual().state_dict(), tmp_path / "x.pt")
    trained, fixed_norms = Backbone("torchvision:resnet0"), given("torchvision:resnet0", tmp_path / "x.pt")
    for backbone, moves in ((trained, True), (fixed_norms, False)):
        before = backbone.net.get_submodule("bn1").running_mean.clone()
        backbone.train()(pictures()).sum().backward()
        assert torch.equal(backbone.net.get_submodule("bn1").running_mean, before) != moves
        assert backbone.net.get_submodule("conv1").weight.grad is not None
    batch = pictures(3)
    torch.testing.assert_close(fixed_norms(batch), torch.cat([fixed_norms(each[None]) for each in batch]))


def test_what_is_frozen_is_not_trained(torchvision, tmp_path):
    torch.save(Residual().state_dict(), tmp_path / "x.pt")
    backbone = given("torchvision:resnet0", tmp_path / "x.pt", frozen=True).train()
    assert not backbone(pictures()).requires_grad
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    assert not any(module.training for module in backbone.net.modules())


def test_pixels_are_what_such_networks_were_trained_on(torchvision):
    backbone = Backbone("torchvision:resnet0")
    backbone.net, seen = nn.Identity(), pictures()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = (seen.float() / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    torch.testing.assert_close(backbone(seen), expected)


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_library_that_is_not_there_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} is not installed; .*regard\[backbones\]"):
        Backbone(f"{package}:resnet18")


def test_networks_that_cannot_serve_are_named(torchvision):
    with pytest.raises(
        ConfigError, match='model.backbone: "torchvision:resnet9" given, which this torchvision does not have'
    ):
        Backbone("torchvision:resnet9")
    with pytest.raises(ConfigError, match="expected a network whose stages follow one another"):
        from_torchvision("odd")


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_100", "convnext_atto"])
def test_timm_itself(name, tmp_path):
    import timm

    whole = timm.create_model(name, pretrained=False)
    torch.save(whole.state_dict(), tmp_path / "x.pt")
    backbone = given(f"timm:{name}", tmp_path / "x.pt")
    grid = backbone(pictures(size=96))
    assert grid.shape == (2, backbone.width, 6, 6)
    torch.save({"x": torch.zeros(1)}, tmp_path / "wrong.pt")
    with pytest.raises(CheckpointError, match="is missing"):
        given(f"timm:{name}", tmp_path / "wrong.pt")


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "convnext_tiny"])
def test_torchvision_itself(name, tmp_path):
    import torchvision

    whole = torchvision.models.get_model(name, weights=None)
    torch.save(whole.state_dict(), tmp_path / "x.pt")
    backbone = given(f"torchvision:{name}", tmp_path / "x.pt")
    assert backbone(pictures(size=96)).shape == (2, backbone.width, 6, 6)


def test_options_name_a_backbone():
    net = make_backbone(CaptionerConfig(channels=4, stages=2, blocks=1))
    assert isinstance(net, ResNet)
    assert net.width == 8
    assert all(parameter.requires_grad for parameter in net.parameters())
    still = make_backbone(CaptionerConfig(channels=4, stages=2, blocks=1, weights="some.pt", frozen=True))
    assert not any(parameter.requires_grad for parameter in still.parameters())
