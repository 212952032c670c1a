"""watch: every attention of a model under its plain name, computed on demand from the inputs of the forward."""

import gc
import weakref
from collections.abc import Mapping

import pytest
import torch
from attention.cases import normal
from oracles import agree
from torch import nn

from regard.attention import Attention, Decoder, Encoder, Heads, Learned, watch
from regard.attention.grid import GridAttention, GridSelfAttention
from regard.attention.score import Additive, Dot, General
from regard.attention.span import Causal, Lengths, Mask, Predictive
from regard.attention.weighting import Hard
from regard.errors import RegardError, ShapeError, WatchError


class Counting(General):
    """A score that counts its calls."""

    form = "other"  # no fused kernel, which would bypass it
    calls = 0

    def compare(self, asked, projected, first=0):
        type(self).calls += 1
        return super().compare(asked, projected, first)


@pytest.fixture(autouse=True)
def fresh_count():
    Counting.calls = 0


class Nested(nn.Module):
    """Attentions as an attribute, in a list, a sequence, a dict and a nested model."""

    def __init__(self, score=General):
        super().__init__()
        self.first = Attention(score(5, 5))
        self.listed = nn.ModuleList([Attention(score(5, 5)) for _ in range(2)])
        self.named = nn.ModuleDict({"left": Attention(score(5, 5)), "right": Attention(score(5, 5))})
        self.inner = nn.Sequential(nn.Linear(5, 5), Inside(score))
        self.idle = Attention(score(5, 5))

    def forward(self, x, y):
        for attention in [self.first, *self.listed, *self.named.values()]:
            x = x + attention(x, y)
        return self.inner(x)


class Inside(nn.Module):
    def __init__(self, score=General):
        super().__init__()
        self.attend = Attention(score(5, 5))

    def forward(self, x):
        return x + self.attend(x, x, span=Causal())


NAMES = {"first", "listed.0", "listed.1", "named.left", "named.right", "inner.1.attend"}


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_every_attention_is_seen_under_its_plain_dotted_name():
    model, x, y = Nested().double(), normal(2, 3, 5), normal(2, 7, 5)
    with watch(model) as looks:
        model(x, y)
    assert isinstance(looks, Mapping)
    assert set(looks) == NAMES, "one that was not called has nothing to show"
    assert all(look.weights.shape[0] == 2 for look in looks.values())
    agree(looks["first"].weights, model.first.look(x, y).weights)
    assert looks["inner.1.attend"].weights.shape == (2, 3, 3)
    assert not looks["inner.1.attend"].weights[:, 0, 1:].any()


def test_only_those_that_are_asked_for_are_watched():
    model, x, y = Nested().double(), normal(2, 3, 5), normal(2, 7, 5)
    with watch(model, only=["listed.1", "first"]) as looks:
        assert hooks(model) == 4
        model(x, y)
    assert set(looks) == {"first", "listed.1"}
    agree(looks["first"].weights, model.first.look(x, y).weights)
    assert hooks(model) == 0
    with (
        pytest.raises(WatchError, match="only: 'second' is not an attention of this model; its attentions are first, "),
        watch(model, only=["second"]),
    ):
        pass
    assert hooks(model) == 0


def test_looks_have_what_was_passed():
    """Check spans and values, passed by position or by name."""
    model = nn.ModuleDict({"a": Attention(Dot()), "b": Attention(Dot())})
    query, keys, values = normal(2, 3, 5), normal(2, 7, 5), normal(2, 7, 4)
    with watch(model) as looks:
        one = model["a"](query, keys, values, Lengths([3, 7]))
        other = model["b"](query, keys=keys, span=Lengths([3, 7]), values=values)
    agree(looks["a"].context, one)
    agree(looks["b"].context, other)


def test_a_look_is_differentiable():
    model, x, y = nn.ModuleDict({"a": Attention(General(5, 5))}).double(), normal(2, 3, 5), normal(2, 7, 5)
    with watch(model) as looks:
        model["a"](x, y)
    (gradient,) = torch.autograd.grad(looks["a"].weights.pow(2).sum(), x)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("grows", [False, True])
def test_repeated_calls_are_joined_along_the_queries(grows):
    """A decoder's loop makes one query per call; with `grows`, over a growing number of keys."""
    model = nn.ModuleDict({"attend": Attention(Dot())})
    query, keys = normal(2, 6, 5), normal(2, 6, 5)
    with watch(model) as looks:
        outputs = [model["attend"](query[:, i : i + 1], keys[:, : i + 1] if grows else keys) for i in range(6)]
    look = looks["attend"]
    expected = model["attend"].look(query, keys, span=Causal() if grows else None)
    assert look.weights.shape == (2, 6, 6)
    agree(look.weights, expected.weights, [query, keys])
    agree(look.context, torch.cat(outputs, dim=1))
    agree(look.entropy, expected.entropy)


def test_repeated_calls_of_heads_are_joined_along_the_queries():
    model, x = nn.ModuleDict({"attend": Heads(6, heads=3)}).double(), normal(2, 5, 6)
    with watch(model) as looks:
        outputs = [model["attend"](x[:, i : i + 1], x[:, : i + 1]) for i in range(5)]
    assert looks["attend"].weights.shape == (2, 3, 5, 5)
    agree(looks["attend"].weights, model["attend"].look(x, x, span=Causal()).weights)
    agree(looks["attend"].context, torch.cat(outputs, dim=1))


def test_heads_are_reported_once():
    """Report only the outermost attention, with all its heads."""
    model = nn.ModuleDict(
        {"self": Heads(6, heads=2), "cross": Heads(6, heads=2, score=lambda d: Additive(d, d, hidden=4))}
    )
    x = torch.randn(2, 5, 6)
    with watch(model) as looks:
        model["self"](x)
        model["cross"](x, x)
    assert set(looks) == {"self", "cross"}
    assert looks["self"].weights.shape == looks["cross"].weights.shape == (2, 2, 5, 5)


def test_encoders_and_decoders_have_the_names_of_the_design():
    model = nn.ModuleDict({"encoder": Encoder(6, heads=2, layers=2), "decoder": Decoder(6, heads=2, layers=2)}).eval()
    x, y = torch.randn(2, 5, 6), torch.randn(2, 3, 6)
    with watch(model) as looks:
        model["decoder"](y, model["encoder"](x))
    layers = range(2)
    names = {f"encoder.blocks.{i}.attention" for i in layers}
    names |= {f"decoder.blocks.{i}.{part}" for i in layers for part in ("attention", "cross")}
    assert set(looks) == names
    assert looks["decoder.blocks.1.cross"].weights.shape == (2, 2, 3, 5)
    assert not looks["decoder.blocks.0.attention"].weights.triu(1).any()


def test_only_what_is_asked_for_is_computed():
    model, x, y = Nested(Counting), torch.randn(2, 3, 5), torch.randn(2, 7, 5)
    model(x, y)
    plain = Counting.calls
    assert plain == len(NAMES)
    with watch(model) as looks:
        model(x, y)
    assert Counting.calls == 2 * plain, "watching computed something that nobody asked for"
    assert len(looks) >= len(NAMES)
    assert Counting.calls == 2 * plain, "listing names computed something"
    before = Counting.calls
    _ = looks["first"].weights
    assert Counting.calls == before + 1


def test_an_input_overwritten_since_is_refused():
    model, x, y = Nested(), torch.randn(2, 3, 5), torch.randn(2, 7, 5)
    with watch(model) as looks:
        model(x, y)
    y.add_(1)
    with pytest.raises(WatchError, match="first"):
        _ = looks["first"].weights
    assert looks["inner.1.attend"].weights.shape == (2, 3, 3)


def test_a_parameter_overwritten_since_is_refused():
    """An optimiser step between the forward and the look would show weights that the forward did not use."""
    model, x = nn.ModuleDict({"a": Attention(General(5, 5))}), torch.randn(2, 3, 5)
    with watch(model) as looks:
        model["a"](x, x)
    with torch.no_grad():
        model["a"].score.weight.add_(1)
    with pytest.raises(WatchError, match="a"):
        _ = looks["a"].weights


def test_an_unknown_name_lists_the_names_there_are():
    model, x = Nested(), torch.randn(2, 3, 5)
    with watch(model) as looks:
        model(x, x)
    with pytest.raises((RegardError, KeyError), match=r"inner\.1\.attend") as error:
        looks["inner.attend"]
    assert "inner.attend" in str(error.value)
    assert "first" in str(error.value)
    assert "inner.attend" not in looks
    assert looks.get("inner.attend") is None


def test_the_hooks_are_gone_after_the_block_and_nothing_is_kept():
    model, x = Nested(), torch.randn(2, 3, 5)
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    with watch(model) as looks:
        assert hooks(model) > 0
        model(x, x)
    assert hooks(model) == 0
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
    ref = weakref.ref(x)
    looks["first"].weights  # noqa: B018
    del looks, x
    gc.collect()
    assert ref() is None


def test_an_exception_inside_the_block_removes_the_hooks():
    model = Nested()
    with pytest.raises(RuntimeError, match="mine"), watch(model):
        raise RuntimeError("mine")
    assert hooks(model) == 0


def test_calls_outside_the_block_are_not_seen():
    model, x = nn.ModuleDict({"a": Attention(Dot())}), torch.randn(2, 3, 5)
    model["a"](x, x)
    with watch(model) as looks:
        model["a"](x, x)
    model["a"](x, x)
    assert looks["a"].weights.shape == (2, 3, 3)


def test_two_watchers_see_the_same():
    model, x = nn.ModuleDict({"a": Attention(Dot())}), torch.randn(2, 3, 5)
    with watch(model) as outer:
        with watch(model) as inner:
            model["a"](x, x)
        model["a"](x, x)
    assert inner["a"].weights.shape == (2, 3, 3)
    assert outer["a"].weights.shape == (2, 6, 3)


def test_a_hard_look_shows_the_draw_that_the_forward_used():
    attention = Attention(Dot(), weighting=Hard()).train()
    model, query, keys, values = nn.ModuleDict({"a": attention}), normal(50, 4, 5), normal(50, 7, 5), normal(50, 7, 3)
    with watch(model) as looks:
        context = attention(query, keys, values)
    torch.randn(3)  # the generator has moved on
    state = torch.get_rng_state()
    look = looks["a"]
    agree(look.context, context)
    agree(values.gather(1, look.picked[..., None].expand(-1, -1, 3)), context)
    assert torch.equal(torch.get_rng_state(), state), "asking for a look moved the random numbers of training"


def test_watching_does_not_change_the_result():
    model, x, y = Nested().double(), normal(2, 3, 5), normal(2, 7, 5)
    free = model(x, y)
    with watch(model):
        agree(model(x, y), free, [x, y, *model.parameters()])


def test_watching_hard_training_does_not_change_the_draws():
    attention, inputs = Attention(Dot(), weighting=Hard()).train(), [normal(50, 4, 5) for _ in range(3)]
    model = nn.ModuleDict({"a": attention})
    torch.manual_seed(5)
    free = attention(*inputs)
    torch.manual_seed(5)
    with watch(model):
        assert torch.equal(attention(*inputs), free)


@pytest.mark.parametrize("rotary", [False, True])
def test_a_decoder_that_steps_shows_what_it_shows_at_once(rotary):
    """One query per step over a growing cache, joined, equals teacher forcing."""
    decoder, x, memory = Decoder(8, 2, 2, rotary=rotary).double().eval(), normal(2, 5, 8), normal(2, 4, 8)
    with torch.no_grad():
        with watch(decoder) as whole:
            decoder(x, memory, memory_span=Lengths([2, 4]))
        with watch(decoder) as steps:
            state = decoder.start(memory, 9, memory_span=Lengths([2, 4]))
            for i in range(5):
                decoder.step(x[:, i : i + 1], state)
    assert set(steps) == set(whole) != set()
    for name, look in whole.items():
        agree(steps[name].weights, look.weights)
        agree(steps[name].context, look.context)


def test_a_grid_in_a_loop_is_joined_along_the_queries():
    """A captioner's loop: one word per call, weights [b n h w]."""
    model, query, features = (
        nn.ModuleDict({"look": GridAttention(Attention(Dot()))}),
        normal(2, 4, 5),
        normal(2, 5, 3, 7),
    )
    with watch(model) as looks:
        outputs = [model["look"](query[:, i : i + 1], features) for i in range(4)]
    agree(looks["look"].weights, model["look"].look(query, features).weights)
    agree(looks["look"].context, torch.cat(outputs, dim=1))


def test_zhangs_layer_is_seen():
    model, x = nn.Sequential(nn.Conv2d(3, 8, 1), GridSelfAttention(8)), torch.randn(2, 3, 4, 5)
    with watch(model) as looks:
        model(x)
    assert set(looks) == {"1"}
    assert looks["1"].weights.shape == (2, 4, 5, 4, 5)


def test_calls_that_cannot_be_joined_are_refused():
    """Rows leave the batch between two calls."""
    model = nn.ModuleDict({"a": Attention(Dot())})
    with watch(model) as looks:
        model["a"](torch.randn(3, 1, 5), torch.randn(3, 4, 5))
        model["a"](torch.randn(2, 1, 5), torch.randn(2, 4, 5))
    with pytest.raises(WatchError, match="a"):
        _ = looks["a"].weights


def test_a_learned_query_is_seen():
    model = nn.ModuleDict({"pool": Attention(Dot(), query=Learned(2, 5))})
    with watch(model) as looks:
        model["pool"](None, torch.randn(3, 6, 5), span=Lengths([2, 6, 1]))
    assert looks["pool"].weights.shape == (3, 2, 6)


def test_a_cache_that_was_still_empty_is_seen_as_such():
    model = nn.ModuleDict({"a": Heads(4, heads=2)})
    cache = model["a"].cache(3, 5)
    with watch(model) as looks:
        model["a"](torch.randn(3, 1, 4), cache)
        cache.extend(model["a"].prepare(torch.randn(3, 2, 4)))
        model["a"](torch.randn(3, 1, 4), cache)
    assert looks["a"].weights.shape == (3, 2, 2, 2)
    assert not looks["a"].weights[:, :, 0].any()
    assert torch.allclose(looks["a"].weights[:, :, 1].sum(-1), torch.ones(3, 2))


def test_watching_in_inference_mode():
    encoder = Encoder(8, heads=2, layers=1)
    with torch.inference_mode(), watch(encoder) as looks:
        encoder(torch.randn(2, 3, 8))
        assert looks["blocks.0.attention"].weights.shape == (2, 2, 3, 3)


def test_a_look_is_taken_in_the_mode_of_the_call():
    attention, x = Attention(Dot(), weighting=Hard()), torch.randn(2, 5, 4)
    attention.train()
    attention.weighting.eval()
    with watch(attention) as looks:
        called = attention(x, x)
    attention.eval()
    attention.weighting.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(looks[""].context, called)
    assert not attention.training
    assert attention.weighting.training


def test_what_a_span_holds_may_not_be_overwritten_either():
    mask, x = torch.ones(5, 5, dtype=torch.bool), torch.randn(2, 5, 4)
    own, given, predictive = Attention(Dot(), span=Mask(mask)), Attention(Dot()), Predictive(4, 2)
    with watch(nn.ModuleList([own, given])) as looks:
        own(x, x)
        given(x, x, span=predictive)
    mask[:, 3:] = False
    with torch.no_grad():
        predictive.v.add_(1)
    for name in ("0", "1"):
        with pytest.raises(WatchError, match="overwritten"):
            looks[name]


def test_a_call_that_failed_was_not_seen():
    attention, x = Attention(Dot()), torch.randn(2, 5, 4)
    with watch(attention) as looks:
        with pytest.raises(ShapeError):
            attention(x, torch.randn(2, 5, 3))
        attention(x, x)
    assert looks[""].weights.shape == (2, 5, 5)


def test_a_parallel_wrapper_has_the_plain_names():
    encoder = Encoder(8, heads=2, layers=1)
    with watch(nn.DataParallel(encoder)) as looks:
        encoder(torch.randn(2, 3, 8))
    assert list(looks) == ["blocks.0.attention"]
