"""The small ResNet: its grid, its reach, and that a picture alone gives what it gives among others."""

import pytest
import torch
from torch import nn

from regard.errors import ArgumentError, ShapeError
from regard.models.layers.resnet import ResNet
from regard.training import weight_files


def pictures(count=3, height=24, width=40):
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8)


def stirred(net):
    """With no weight at its first value: second convolutions start at 0."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.3 * torch.randn_like(parameter) / max(1, parameter[0].numel()) ** 0.5
    return net


@pytest.mark.parametrize(("stages", "grid"), [(1, (13, 20)), (2, (7, 10)), (3, (4, 5)), (4, (2, 3)), (5, (1, 2))])
def test_every_stage_halves_the_grid_and_doubles_the_channels(stages, grid):
    net = ResNet(8, stages, 1)
    assert net(pictures(2, 25, 39)).shape == (2, 8 * 2 ** (stages - 1), *grid)
    assert net.width == 8 * 2 ** (stages - 1)


@pytest.mark.parametrize("norm", ["batch", "place"])
def test_alone_is_as_in_a_batch(norm):
    net, batch = stirred(ResNet(8, 3, 2, norm)).double(), pictures(4)
    net.train()(pictures(8))  # so that running means are not as they began
    for mode in (True, False) if norm == "place" else (False,):  # of places while training, too
        together = net.train(mode)(batch)
        torch.testing.assert_close(torch.cat([net(each[None]) for each in batch]), together)


def reach(net, size):
    """The pixels that the place in the middle of the grid hangs on."""
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
    """With the norm of places; while training, a norm over the batch tells every place of all the others."""
    near = reach(stirred(ResNet(4, 2, 1, "place")), 64)
    assert len(near) <= 23 + 4  # the convolutions' field, and what the shortcut's mean adds
    assert near[0] < 32 < near[-1]
    assert len(reach(stirred(ResNet(4, 2, 1, "batch")).train(), 64)) == 64


@pytest.mark.parametrize("norm", ["batch", "place"])
def test_every_weight_gets_a_gradient(norm):
    net = stirred(ResNet(8, 3, 2, norm))
    net(pictures()).square().mean().backward()
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
    net, other, batch = stirred(ResNet(8, 3, 2)), ResNet(8, 3, 2), pictures()
    net.train()(pictures(8))
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
    with pytest.raises(ArgumentError, match='norm: \'group\' given, expected "batch" or "place"'):
        ResNet(4, 1, 1, "group")
    with pytest.raises(ArgumentError, match="stages"):
        ResNet(4, 0, 1)


def test_pictures_lie_as_convolutions_like_them():
    net = ResNet(8, 2, 1)
    assert net(pictures()).is_contiguous(memory_format=torch.channels_last)
    for module in net.modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1):
            assert module.weight.is_contiguous(memory_format=torch.channels_last)
