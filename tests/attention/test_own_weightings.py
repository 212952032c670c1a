"""A custom weighting is computed as written, even where a faster path exists, or refused."""

import pytest
import torch
from torch import nn

from regard.attention import Attention, Heads
from regard.attention.score import Dot
from regard.attention.weighting import Gumbel, Hard, Plain, Softmax, Sparsemax, Weighting
from regard.errors import ArgumentError


@pytest.mark.parametrize("kind", [Weighting, Softmax])
def test_a_weighting_that_overrides_forward_is_refused(kind):
    with pytest.raises(TypeError, match=r"Mine overrides `forward`, .* override `weigh\(scores, mask\)`"):
        type("Mine", (kind,), {"forward": lambda self, scores, mask=None: scores})


class Renamed(Softmax):
    name = "softmax"

    def weigh(self, scores, mask=None):
        return super().weigh(scores * 0, mask)


class Learnt(Softmax):
    def __init__(self):
        Weighting.__init__(self)
        self.warmth = nn.Parameter(torch.tensor(2.0))

    @property
    def temperature(self):
        return self.warmth


def test_a_softmax_of_ones_own_is_computed():
    x = torch.randn(2, 5, 6)
    attention = Attention(Dot(), weighting=Renamed())
    assert attention.backend(x, x) == "dense"
    for context in (attention(x, x), attention.look(x, x).context):
        torch.testing.assert_close(context, x.mean(1, keepdim=True).expand_as(x))
    with pytest.raises(ArgumentError, match="fold: Renamed given, expected Softmax"):
        attention.fold(x, [(x, x)])


def test_a_learned_temperature_has_its_gradient():
    x = torch.randn(2, 5, 6)
    for module in (Attention(Dot(), weighting=Learnt()), Heads(6, heads=2, weighting=Learnt())):
        module(x, x).square().sum().backward()
        (temperature,) = (p for name, p in module.named_parameters() if name.endswith("warmth"))
        assert temperature.grad.abs() > 0
        torch.testing.assert_close(module(x, x), module.look(x, x).context)


@pytest.mark.parametrize("name", ["__call__", "fused_name"])
def test_what_would_be_passed_by_is_refused(name):
    with pytest.raises(TypeError, match=rf"Mine overrides `{name}`, .* override `weigh\(scores, mask\)`"):
        type("Mine", (Softmax,), {name: lambda self, *given: "softmax"})


@pytest.mark.parametrize("kind", [Hard, Gumbel, Sparsemax, Plain])
def test_a_temperature_that_is_not_used_is_refused(kind):
    with pytest.raises(TypeError, match=f"Mine has a `temperature`, which {kind.__name__} does not use"):
        type("Mine", (kind,), {"temperature": 2.0})

    class Warm(kind):
        temperature = 2.0

        def weigh(self, scores, mask=None):
            return super().weigh(scores / self.temperature, mask)

    x = torch.randn(2, 5, 6)
    expected = Attention(Dot(), weighting=kind()).eval().look(x / 2, x, x)
    torch.testing.assert_close(Attention(Dot(), weighting=Warm()).eval()(x, x), expected.context)


def test_weights_alone_are_no_answer():
    class Bare(Weighting):
        def weigh(self, scores, mask=None):
            return torch.softmax(scores, -1)

    attention, x = Attention(Dot(), weighting=Bare()), torch.randn(2, 5, 6)
    for call in (attention, attention.look):
        with pytest.raises(TypeError, match="Bare.weigh returned Tensor, expected a Weighed"):
            call(x, x)
