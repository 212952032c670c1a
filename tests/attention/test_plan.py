"""Plans: which backend computes a call and why no faster one does; settled once, and renewed after a change."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from regard.attention import (
    Additive,
    Attention,
    Block,
    Causal,
    Cosine,
    Decoder,
    Dot,
    Encoder,
    General,
    Heads,
    Lengths,
    Mask,
    Monotonic,
    Packed,
    Predictive,
    Softmax,
    Span,
    fused_stack,
    join,
    plan_calls,
    stack_features,
    use_backend,
    watch,
)
from regard.attention.span import Shared, share
from regard.errors import BackendError
from regard.kernels import backends


def lines(plan):
    first, *rest = str(plan).splitlines()
    return first, {line.split(":")[0].removeprefix("  not "): line.split(": ", 1)[1] for line in rest}


def test_a_plan_says_who_and_why_not_those_before():
    x = torch.randn(2, 40, 16)
    with torch.no_grad():
        plan = Heads(16, heads=2).plan(x, span=Causal())
    first, reasons = lines(plan)
    assert (plan.name, first) == ("sdpa", "sdpa: bilinear scores, softmax and causality")
    assert list(reasons) == [*backends.NAMES[: backends.NAMES.index("sdpa")]]
    assert reasons["one-tile"] == "it runs on cuda"
    assert reasons["few-queries"] == "sdpa is faster here"
    assert "windows" in reasons["window"]
    with use_backend("dense"):
        assert Heads(16, heads=2).plan(x).name == "dense"
    with use_backend("one-tile"), pytest.raises(BackendError, match="it runs on cuda"):
        Heads(16, heads=2).plan(x)


def spy(backend, ran):
    def attend(call):
        ran.append(backend.name)
        return backend.attend(call)

    return replace(backend, attend=attend)


@pytest.mark.parametrize(
    ("attention", "span"),
    [
        (Attention(Dot()), Monotonic(1)),
        (Attention(Additive(8, 8, 4)), None),
        (Attention(Dot()), Packed([0, 3, 30])),
        (Attention(Dot(), span=Causal()), Lengths(30)),
    ],
)
def test_the_plan_is_what_is_done(attention, span, monkeypatch):
    x, ran = torch.randn(30, 8), []
    name = attention.plan(x, x, span=span).name
    assert attention.backend(x, x, span=span) == name
    monkeypatch.setattr(backends.BACKENDS, "rows", tuple(spy(row, ran) for row in backends.BACKENDS))
    attention(x, x, span=span)
    assert ran == [name]


class Sharp(Dot):
    """A custom score."""

    def scale(self, width):
        return 3.0


def weights(attention, x):
    return attention.look(x, x).weights


CHANGES = {
    "another score": lambda attention: setattr(attention, "score", Dot()),
    "a scale": lambda attention: setattr(attention.score, "scaled", False),
    "a scale of one's own": lambda attention: setattr(attention.score, "scale", lambda width: 7.0),
    "a class": lambda attention: setattr(attention.score, "__class__", Sharp),
    "another weighting": lambda attention: setattr(attention, "weighting", Softmax(temperature=0.1)),
    "a temperature": lambda attention: setattr(attention.weighting, "temperature", 0.1),
    "a compare": lambda attention: setattr(attention.score, "compare", lambda q, k, first=0: 9 * (q @ k.mT)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_settled_is_renewed(change):
    """The forward, which uses the plan, equals the look, which does not; before and after the change."""
    attention, x = Attention(Dot(scaled=True)), torch.randn(2, 5, 64)
    before = attention(x, x)
    torch.testing.assert_close(before, weights(attention, x) @ x)
    CHANGES[change](attention)
    after = attention(x, x)
    torch.testing.assert_close(after, weights(attention, x) @ x)
    assert not torch.allclose(before, after)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


MODULES = {
    "a projection": lambda heads: setattr(heads, "query", nn.Linear(64, 64)),
    "a parametrization": lambda heads: parametrize.register_parametrization(heads.projection, "weight", Doubled()),
    "one score of a head": lambda heads: heads.attention.score.scores.__setitem__(0, General(16, 16)),
    "float64": lambda heads: heads.double(),
    "assigned weights": lambda heads: heads.load_state_dict(
        {name: 2 * tensor for name, tensor in heads.state_dict().items()}, assign=True
    ),
}


@pytest.mark.parametrize("change", MODULES)
def test_heads_see_what_replaces_a_part(change):
    heads = Heads(64, heads=4, score=lambda width: General(width, width))
    x = torch.randn(2, 5, 64)
    before = heads(x)
    MODULES[change](heads)
    x = x.to(heads.output.weight.dtype)
    after = heads(x)
    torch.testing.assert_close(after, heads.look(x).context)
    assert not torch.allclose(before.to(after.dtype), after)


def test_hooks_are_asked_at_every_call():
    heads, x, seen = Heads(16, heads=2), torch.randn(2, 5, 16), []
    heads(x)
    handle = heads.key.register_forward_hook(lambda *_: seen.append("key"))
    heads(x)
    handle.remove()
    heads(x)
    assert seen == ["key"]
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    try:
        Encoder(16, heads=2, layers=2)(x)
    finally:
        handle.remove()
    assert seen.count(Heads) == 2


def test_what_is_settled_is_copied_with_its_module_and_never_more():
    attention, x = Attention(Cosine(3.0)), torch.randn(2, 5, 8)
    attention(x, x)
    for other in (copy.deepcopy(attention), pickle.loads(pickle.dumps(attention))):
        other.score.sharpness = 9.0
        torch.testing.assert_close(other(x, x), weights(other, x) @ x)
        assert not torch.allclose(other(x, x), attention(x, x))


# ---- spans that all layers of a stack share


class Own(Span):
    """A custom span that counts its calls."""

    def __init__(self):
        self.asked = 0

    def narrow(self, limits, query):
        self.asked += 1
        return limits.with_mask(torch.ones(limits.queries, limits.keys, dtype=torch.bool).tril())


SPANS = {
    "none": lambda: None,
    "lengths": lambda: Lengths([5, 2]),
    "causal": lambda: Causal(),
    "both": lambda: Lengths([5, 2]) & Causal(),
    "window": lambda: Lengths([5, 0]) & Monotonic(1),
    "mask": lambda: Mask(torch.rand(2, 5, 5) > 0.3),
    "own": Own,
    "own and lengths": lambda: Own() & Lengths([5, 2]),
}


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("name", SPANS)
def test_a_stack_equals_its_blocks(name, rotary, norm):
    """Blocks that are called one by one each resolve the span themselves."""
    span, x, memory = SPANS[name](), torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    encoder = Encoder(16, heads=2, layers=3, norm=norm, rotary=rotary)
    y = x
    for block in encoder.blocks:
        y = block(y, span=span)
    assert torch.equal(encoder(x, span=span), encoder.final_norm(y))
    decoder = Decoder(16, heads=2, layers=3, norm=norm, rotary=rotary)
    y = x
    for block in decoder.blocks:
        y = block(y, memory, span=join(Causal(), span), memory_span=span)
    assert torch.equal(decoder(x, memory, span=span, memory_span=span), decoder.final_norm(y))


def test_a_span_is_narrowed_once_for_all_layers(monkeypatch):
    asked, narrow = [], Lengths.narrow

    def counted(self, limits, query):
        asked.append(self)
        return narrow(self, limits, query)

    monkeypatch.setattr(Lengths, "narrow", counted)
    Encoder(16, heads=2, layers=4)(torch.randn(2, 5, 16), span=Lengths([5, 3]))
    assert len(asked) == 1
    own = Own()
    Encoder(16, heads=2, layers=4)(torch.randn(2, 5, 16), span=own)
    assert own.asked == 4  # its result may depend on the query


def test_what_asks_the_query_is_not_shared():
    assert isinstance(share(Causal() & Lengths([3])), Shared)
    for span in (Own(), Predictive(16, 2), Causal() & Own(), type("Later", (Causal,), {})()):
        assert share(span) is span
    assert isinstance(share(None), Shared)


class Seen(Heads):
    """Custom heads that record the span passed to them."""

    def forward(self, x, memory=None, values=None, span=None, start=0):
        self.given = span
        return super().forward(x, memory, values, span, start)


def test_whoever_listens_or_is_ones_own_is_given_the_span_itself():
    encoder, x, span = Encoder(16, heads=2, layers=3), torch.randn(2, 5, 16), Lengths([5, 3])
    expected, seen = encoder(x, span=span), []
    encoder.blocks[0].attention.__class__ = Seen
    encoder.blocks[1].attention.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["span"]), with_kwargs=True
    )
    assert torch.equal(encoder(x, span=span), expected)
    handle = encoder.blocks[2].register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["span"]), with_kwargs=True
    )
    assert torch.equal(encoder(x, span=span), expected)
    handle.remove()
    assert encoder.blocks[0].attention.given is span
    assert all(each is span for each in seen)
    assert len(seen) == 3
    with watch(encoder) as looks:
        encoder(x, span=span)
    assert looks["blocks.2.attention"].weights[1, :, :, 3:].abs().max() == 0


def test_a_step_asks_for_lengths_again_when_sentences_change():
    """A CPU keeps a memory's span between steps, until another sentence takes a row."""
    decoder = Decoder(16, heads=2, layers=2).eval()
    memory, x = torch.randn(2, 5, 16), torch.randn(2, 1, 16)
    with torch.no_grad():
        one, two = decoder.start(memory, 4, Lengths([5, 2])), decoder.start(memory.flip(0), 4, Lengths([3, 4]))
        decoder.step(x, one)
        one.put_(torch.tensor([1]), two.take(torch.tensor([0])))
        expected = decoder.start(torch.stack([memory[0], memory[1]]), 4, Lengths([5, 3]))
        fresh = decoder.start(memory, 4, Lengths([5, 3]))
        one.row, fresh.row = expected.row, fresh.row
        torch.testing.assert_close(decoder.step(x, one), decoder.step(x, fresh))


def test_whoever_begins_to_listen_between_steps_is_given_the_span_itself():
    decoder, x, seen = Decoder(16, heads=2, layers=2).eval(), torch.randn(2, 1, 16), []
    with torch.no_grad():
        state = decoder.start(torch.randn(2, 5, 16), 4, Lengths([5, 2]))
        decoder.step(x, state)
        handle = decoder.blocks[0].register_forward_pre_hook(
            lambda module, args, kwargs: seen.append((kwargs["span"], kwargs["memory_span"])), with_kwargs=True
        )
        decoder.step(x, state)
        handle.remove()
        decoder.step(x, state)
    ((own, across),) = seen
    assert own is None
    assert type(across) is Lengths


# ---- a whole model


def test_a_model_is_planned_layer_by_layer():
    decoder, encoder = Decoder(16, heads=2, layers=2), Encoder(16, heads=2, layers=1)
    model = nn.ModuleDict({"encoder": encoder, "decoder": decoder})
    x = torch.randn(2, 5, 16)
    with plan_calls(model) as plans:
        decoder(x, encoder(x, span=Lengths([5, 3])), memory_span=Lengths([5, 3]))
    assert {*plans} == {
        "encoder.blocks.0.attention",
        *(f"decoder.blocks.{i}.{part}" for i in range(2) for part in ("attention", "cross")),
    }
    assert {plan.name for plan in plans.values()} == {"sdpa"}
    assert [*plans.stacks] == ["encoder", "decoder"]
    assert all(plan.reasons == {"fused": "it runs on cuda"} for plan in plans.stacks.values())
    assert plans.stacks["decoder"].request.features == ("padded sequences", "a memory", HEAD_OF_8)
    text = str(plans)
    assert f"encoder: block by block: padded sequences and {HEAD_OF_8}\n  not fused: it runs on cuda\n" in text
    assert "decoder.blocks.1.cross: sdpa: " in text
    assert not decoder.blocks[0].attention._forward_pre_hooks


HEAD_OF_8 = "heads of width 8, not 16, 32, 64 or 128 (model.size, model.heads, model.depth)"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, None),
        ({"rotary": True}, "rotary positions (model.positions)"),
        ({"norm": "none"}, "no layer norms (model.norm)"),
        ({"residual": False}, "no residuals (model.residual)"),
        ({"feed_forward": False}, "no feed-forward net, or one of its own kind (model.feed_forward)"),
        ({"score": lambda width: Additive(width, width, 8)}, "scores that are no dot products (model.score)"),
        ({"depth": 8}, HEAD_OF_8),
    ],
)
def test_the_option_that_costs_the_fused_path_is_named(options, words):
    expected = [] if words is None else [words]
    assert [*stack_features(Encoder(64, heads=4, layers=2, **options))] == expected
    assert [*fused_stack.block_features(Block(64, 4, **options))] == expected


def test_options_are_those_of_a_block():
    with pytest.raises(TypeError, match="colour"):
        Encoder(16, heads=2, layers=2, colour="red")
    encoder = Encoder(16, heads=2, layers=2, norm="post", dropout=0.5, mixing=lambda: Mixing(), rotary=True)
    assert [block.dropout for block in encoder.blocks] == [0.5, 0.5]


class Mixing(nn.Module):
    def forward(self, x, span):
        assert span is None
        return x
