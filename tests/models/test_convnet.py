"""The image classifier with self-attention: it starts as the network without, and then sees across the picture."""

import pytest
import torch

from regard.attention import watch
from regard.errors import ConfigError
from regard.models.config import ConvNetConfig
from regard.models.contract import Pictures
from regard.models.convnet import ConvNetModel
from regard.models.kinds import build, read_model_config


def pictures(count=3, size=32):
    return Pictures(torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8))


def stirred(model):
    """With no weight at its first value: γ and the second convolutions start at 0."""
    with torch.no_grad():
        for parameter in model.parameters():
            rows = parameter[0].numel() if parameter.ndim else 1
            parameter += 0.5 * torch.randn_like(parameter) / max(1, rows) ** 0.5
    return model.eval()


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
    source = pictures()
    assert torch.equal(answer(with_layer, source), answer(without, source))
    with torch.no_grad():
        with_layer.attention.gamma.fill_(1.0)
    assert not torch.equal(answer(with_layer, source), answer(without, source))


@pytest.mark.parametrize("after", [1, 2, 3])
def test_the_memory_is_the_grid(after):
    model = stirred(ConvNetModel(ConvNetConfig(channels=8, stages=3, after=after, reduction=4), 0, 4))
    memory = model.encode(pictures(2, 40))
    assert memory.states.shape == (2, 25, 32)
    assert memory.lengths.tolist() == [25, 25]
    assert model.classify(memory).shape == (2, 4)


def test_what_each_place_looked_at_can_be_watched():
    model = stirred(ConvNetModel(ConvNetConfig(channels=8, stages=3, after=2, reduction=4), 0, 4))
    with watch(model) as looks, torch.no_grad():
        model.encode(pictures(2, 40))
    weights = looks["attention"].weights
    assert weights.shape == (2, 10, 10, 10, 10)
    torch.testing.assert_close(weights.sum((-2, -1)), torch.ones(2, 10, 10))


def test_alone_is_as_in_a_batch():
    model, source = stirred(ConvNetModel(ConvNetConfig(channels=8, reduction=2), 0, 4)).double(), pictures(4)
    together = answer(model, source)
    alone = [answer(model, Pictures(each[None])) for each in source.pixels]
    torch.testing.assert_close(torch.cat(alone), together)


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.shapes
def test_every_weight_gets_a_gradient(attention):
    model = stirred(ConvNetModel(ConvNetConfig(channels=8, reduction=2, attention=attention), 0, 4))
    answer(model, pictures()).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        if name != "attention.key.bias":  # a softmax does not see what all scores have in common
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("attention", [True, False])
def test_only_the_layer_sees_what_two_distant_places_have_to_do_with_each_other(attention):
    """Without it, what a change here does to the answer does not hang on what is there, far away."""
    torch.manual_seed(0)
    model = stirred(ConvNetModel(ConvNetConfig(channels=8, stages=2, reduction=2, attention=attention), 0, 4)).double()
    picture = torch.randint(0, 256, (1, 3, 96, 96), dtype=torch.uint8)

    def answered(here, there):
        changed = picture.clone()
        changed[..., 4:12, 4:12] = here
        changed[..., 84:92, 84:92] = there
        return answer(model, Pictures(changed)).detach()

    effects = [answered(200, there) - answered(50, there) for there in (30, 220)]
    apart = float((effects[0] - effects[1]).abs().max() / effects[0].abs().max())
    assert apart > 1e-6 if attention else apart < 1e-9


def test_options_and_presets():
    for preset in ("tiny", "small", "base"):
        config = read_model_config({"kind": "convnet", "preset": preset})
        assert build("convnet", config, 0, 7).readout.out_features == 7
    with pytest.raises(ConfigError, match="after: 4 given, but there are 3 stages"):
        ConvNetConfig(after=4)
    with pytest.raises(ConfigError, match="reduction: 10 channels are not divisible by 8"):
        ConvNetConfig(channels=5)
