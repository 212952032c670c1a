"""Convolutional networks: Regard's ResNet, those of other libraries, and the image classifier.

Stand-ins replace missing libraries. The classifier's attention starts without effect, then sees across the picture.
"""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from regard.attention import watch
from regard.errors import CheckpointError, ConfigError, MissingExtraError, ShapeError
from regard.models.config import CaptionerConfig, ConvNetConfig
from regard.models.contract import Pictures, load_weights
from regard.models.convnet import Backbone, ConvNetModel, ResNet, from_torchvision, make_backbone
from regard.models.kinds import build, read_model_config
from regard.training import weight_files


def pixels(count=3, height=32, width=None):
    return torch.randint(0, 256, (count, 3, height, width or height), dtype=torch.uint8)


def stirred(net, scale=0.5):
    """Draw every weight, so that none keeps its initial value: γ and the second convolutions start at 0."""
    with torch.no_grad():
        for parameter in net.parameters():
            rows = parameter[0].numel() if parameter.ndim else 1
            parameter += scale * torch.randn_like(parameter) / max(1, rows) ** 0.5
    return net


# ---- the classifier


def classifier(labels=4, **options):
    return stirred(ConvNetModel(ConvNetConfig(**{"channels": 8, **options}), 0, labels)).eval()


def answer(model, source):
    return model.classify(model.encode(source))


def test_it_starts_as_the_network_without_the_layer():
    models = []
    for attention in (True, False):
        torch.manual_seed(3)
        models.append(ConvNetModel(ConvNetConfig(channels=8, reduction=2, attention=attention), 0, 5).eval())
    with_layer, without = models
    shared = without.state_dict()
    missing = with_layer.load_state_dict(shared, strict=False)
    assert all(name.startswith("attention.") for name in missing.missing_keys)
    source = Pictures(pixels())
    assert torch.equal(answer(with_layer, source), answer(without, source))
    with torch.no_grad():
        with_layer.attention.gamma.fill_(1.0)
    assert not torch.equal(answer(with_layer, source), answer(without, source))


@pytest.mark.parametrize("after", [1, 2, 3])
def test_the_memory_is_the_grid(after):
    model = classifier(stages=3, after=after, reduction=4)
    memory = model.encode(Pictures(pixels(2, 40)))
    assert memory.states.shape == (2, 25, 32)
    assert memory.lengths.tolist() == [25, 25]
    assert model.classify(memory).shape == (2, 4)


def test_what_each_place_looked_at_can_be_watched():
    model = classifier(stages=3, after=2, reduction=4)
    with watch(model) as looks, torch.no_grad():
        model.encode(Pictures(pixels(2, 40)))
    weights = looks["attention"].weights
    assert weights.shape == (2, 10, 10, 10, 10)
    torch.testing.assert_close(weights.sum((-2, -1)), torch.ones(2, 10, 10))


def test_a_picture_alone_has_the_scores_that_it_has_in_a_batch():
    model, source = classifier(reduction=2).double(), Pictures(pixels(4))
    together = answer(model, source)
    alone = [answer(model, Pictures(each[None])) for each in source.pixels]
    torch.testing.assert_close(torch.cat(alone), together)


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.shapes
def test_every_weight_of_the_classifier_gets_a_gradient(attention):
    model = classifier(reduction=2, attention=attention)
    answer(model, Pictures(pixels())).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        if name != "attention.key.bias":  # a softmax ignores a constant added to all scores
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("attention", [True, False])
def test_only_the_layer_sees_what_two_distant_places_have_to_do_with_each_other(attention):
    """Without attention, the effect of a change here on the answer does not depend on pixels far away."""
    torch.manual_seed(0)
    model = classifier(stages=2, reduction=2, attention=attention).double()
    picture = torch.randint(0, 256, (1, 3, 96, 96), dtype=torch.uint8)

    def answered(here, there):
        changed = picture.clone()
        changed[..., 4:12, 4:12] = here
        changed[..., 84:92, 84:92] = there
        return answer(model, Pictures(changed)).detach()

    effects = [answered(200, there) - answered(50, there) for there in (30, 220)]
    apart = float((effects[0] - effects[1]).abs().max() / effects[0].abs().max())
    assert apart > 1e-6 if attention else apart < 1e-9


def test_every_preset_has_as_many_scores_as_labels():
    for preset in ("tiny", "small", "base"):
        config = read_model_config({"kind": "convnet", "preset": preset})
        assert build("convnet", config, 0, 7).readout.out_features == 7


# ---- networks of other libraries


class Residual(nn.Module):
    """The outline of torchvision's ResNet, with its names and strides."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(nn.Conv2d(4, 5, 3, 1, 1), nn.BatchNorm2d(5))
        self.layer2, self.layer3 = nn.Conv2d(5, 6, 3, 2, 1), nn.Conv2d(6, 7, 3, 2, 1)
        self.layer4 = nn.Conv2d(7, 8, 3, 2, 1)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 10)


class Straight(nn.Module):
    """The outline of VGG: all layers are in `features`."""

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
    """Return a module with the functions that Regard calls in torchvision."""
    made = {"resnet0": Residual, "vgg0": Straight, "odd": Odd}
    models = SimpleNamespace(list_models=lambda module=None: list(made), get_model=lambda name, weights: made[name]())
    module = ModuleType("torchvision")
    module.models = models
    monkeypatch.setitem(sys.modules, "torchvision", module)
    return made


def given(name, path, frozen=False):
    """Return a backbone with a user's weights, as in a new captioner."""
    backbone = Backbone(name, fixed_norms=True, frozen=frozen)
    load_weights(backbone.net, str(path))
    return backbone


@pytest.mark.parametrize(("name", "width"), [("resnet0", 7), ("vgg0", 8)])
def test_stages_are_kept_up_to_a_sixteenth(torchvision, name, width):
    backbone = Backbone(f"torchvision:{name}")
    assert backbone.width == width
    assert backbone(pixels(2, 64)).shape == (2, width, 4, 4)
    assert backbone(pixels(2, 96)).shape == (2, width, 6, 6)


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
        backbone.train()(pixels(2, 64)).sum().backward()
        assert torch.equal(backbone.net.get_submodule("bn1").running_mean, before) != moves
        assert backbone.net.get_submodule("conv1").weight.grad is not None
    batch = pixels(3, 64)
    torch.testing.assert_close(fixed_norms(batch), torch.cat([fixed_norms(each[None]) for each in batch]))


def test_what_is_frozen_is_not_trained(torchvision, tmp_path):
    torch.save(Residual().state_dict(), tmp_path / "x.pt")
    backbone = given("torchvision:resnet0", tmp_path / "x.pt", frozen=True).train()
    assert not backbone(pixels(2, 64)).requires_grad
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    assert not any(module.training for module in backbone.net.modules())


def test_pixels_are_what_such_networks_were_trained_on(torchvision):
    backbone = Backbone("torchvision:resnet0")
    backbone.net, seen = nn.Identity(), pixels(2, 64)
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
    grid = backbone(pixels(2, 96))
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
    assert backbone(pixels(2, 96)).shape == (2, backbone.width, 6, 6)


def test_options_name_a_backbone():
    net = make_backbone(CaptionerConfig(channels=4, stages=2, blocks=1))
    assert isinstance(net, ResNet)
    assert net.width == 8
    assert all(parameter.requires_grad for parameter in net.parameters())
    still = make_backbone(CaptionerConfig(channels=4, stages=2, blocks=1, weights="some.pt", frozen=True))
    assert not any(parameter.requires_grad for parameter in still.parameters())


# ---- the small ResNet: its grid, its reach, and that a picture alone gives the same as in a batch


@pytest.mark.parametrize(("stages", "grid"), [(1, (13, 20)), (2, (7, 10)), (3, (4, 5)), (4, (2, 3)), (5, (1, 2))])
def test_every_stage_halves_the_grid_and_doubles_the_channels(stages, grid):
    net = ResNet(8, stages, 1)
    assert net(pixels(2, 25, 39)).shape == (2, 8 * 2 ** (stages - 1), *grid)
    assert net.width == 8 * 2 ** (stages - 1)


@pytest.mark.parametrize("norm", ["batch", "place"])
def test_alone_is_as_in_a_batch(norm):
    net, batch = stirred(ResNet(8, 3, 2, norm)).double(), pixels(4, 24, 40)
    net.train()(pixels(8, 24, 40))  # move the running means away from their initial values
    for mode in (True, False) if norm == "place" else (False,):  # of places in training, too
        together = net.train(mode)(batch)
        torch.testing.assert_close(torch.cat([net(each[None]) for each in batch]), together)


def reach(net, size):
    """Return the pixels that the middle place of the grid depends on."""
    one = torch.full((1, 3, size, size), 100, dtype=torch.uint8)
    middle = size // 2 ** len(net.stages) // 2
    here, found = net(one)[0, :, middle, middle], []
    for at in range(size):
        other = one.clone()
        other[:, :, size // 2, at] = 200
        if not torch.equal(net(other)[0, :, middle, middle], here):
            found.append(at)
    return found


def test_a_place_hangs_on_its_neighbourhood_alone():
    """With the norm of places; in training, a batch norm makes every place depend on all others."""
    near = reach(stirred(ResNet(4, 2, 1, "place"), 0.3), 64)
    assert len(near) <= 23 + 4  # the convolutions' field, and the shortcut's mean
    assert near[0] < 32 < near[-1]
    assert len(reach(stirred(ResNet(4, 2, 1, "batch")).train(), 64)) == 64


@pytest.mark.parametrize("norm", ["batch", "place"])
def test_every_weight_gets_a_gradient(norm):
    net = stirred(ResNet(8, 3, 2, norm))
    net(pixels(3, 24, 40)).square().mean().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0, name


def test_blocks_start_as_what_they_add_to():
    net = ResNet(8, 2, 3, "place")
    x = torch.randn(2, 8, 10, 10)
    assert torch.equal(net.stages[0](x), x)


def test_bytes_become_numbers_about_nought():
    net = ResNet(4, 1, 1)
    with torch.no_grad():
        net.stem.weight.zero_()
        net.stem.weight[:, :, 1, 1] = 1
        net.stem.bias.zero_()
    black, white = (torch.full((1, 3, 4, 4), value, dtype=torch.uint8) for value in (0, 255))
    assert net.start(black).flatten().tolist() == pytest.approx([-3] * 16)
    assert net.start(white).flatten().tolist() == pytest.approx([3] * 16)


def test_weights_come_back_as_they_were():
    net, other, batch = stirred(ResNet(8, 3, 2)), ResNet(8, 3, 2), pixels(3, 24, 40)
    net.train()(pixels(8, 24, 40))
    weight_files.load_weights(
        other, {name: tensor.detach().clone() for name, tensor in weight_files.weights_of(net).items()}, "here"
    )
    assert torch.equal(other.eval()(batch), net.eval()(batch))  # running means, too


@pytest.mark.unchecked
def test_what_is_no_picture_is_refused():
    net = ResNet(4, 3, 1)
    for shape in ((1, 3, 0, 40), (1, 4, 32, 32), (3, 32, 32)):
        with pytest.raises(ShapeError, match=r"pixels: .* given, expected \[b 3 h w\]"):
            net(torch.zeros(shape, dtype=torch.uint8))


def test_pictures_lie_as_convolutions_like_them():
    net = ResNet(8, 2, 1)
    assert net(pixels(3, 24, 40)).is_contiguous(memory_format=torch.channels_last)
    for module in net.modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1):
            assert module.weight.is_contiguous(memory_format=torch.channels_last)
