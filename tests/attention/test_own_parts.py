"""A score, a span or a weighting of one's own is computed as it is written, whatever would be faster, or refused."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.attention import Attention, Decoder, Heads, fused_stack, use_backend, watch
from regard.attention.grid import GridAttention
from regard.attention.score import Additive, Cosine, Dot, General, Score
from regard.attention.span import Causal, Joined, Lengths, Mask, Monotonic, Packed, Span
from regard.attention.weighting import Softmax, Weighed, Weighting
from regard.errors import ArgumentError, BackendError
from regard.kernels import backends

ROOT = Path(__file__).parents[2]


def recipe(what):
    """What CONTRIBUTING says to write for a new part."""
    return re.search(rf"^\| a {what} \| (.+?) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)[1]


class Distance(Score):
    """The recipe's: minus the distance of W q and U k."""

    def __init__(self, query_size, key_size, hidden):
        super().__init__()
        self.query_size, self.key_size, self.hidden = query_size, key_size, hidden
        self.w, self.u = nn.Linear(query_size, hidden), nn.Linear(key_size, hidden)

    def ask(self, query):
        return self.w(query)

    def project(self, keys):
        return self.u(keys)

    def projected_size(self, key_size):
        return self.hidden

    def compare(self, asked, projected, first=0):
        return -torch.cdist(asked, projected)


def test_a_score_by_the_recipe():
    assert set(re.findall(r"`(\w+)`", recipe("score"))) == {"compare", "ask", "project"}
    score = Distance(5, 3, 4)
    attention, query, keys, values = Attention(score), torch.randn(2, 6, 5), torch.randn(2, 9, 3), torch.randn(2, 9, 2)
    span = Lengths([9, 4])
    there = torch.arange(9) < torch.tensor([9, 4])[:, None, None]
    scores = -torch.cdist(score.w(query), score.u(keys))
    expected = scores.masked_fill(~there, -torch.inf).softmax(-1) @ values
    assert attention.backend(query, keys, values, span=span) == "dense"
    prepared = attention.prepare(keys, values)
    cache = attention.cache(2, 9, keys=3, values=2)
    cache.extend(prepared)
    with watch(nn.ModuleDict({"here": attention})) as looks:
        found = [attention(query, keys, values, span=span)]
    found += [
        attention(query, prepared, span=span),
        attention(query, cache, span=span),
        attention.look(query, keys, values, span=span).context,
        looks["here"].context,
        attention.fold(query, [(keys[:, :4], values[:, :4]), (keys[:, 4:], values[:, 4:])], span=span),
        GridAttention(Attention(score))(query, keys.mT.unflatten(-1, (3, 3)), span=span),
    ]
    for context in found[:-1]:
        torch.testing.assert_close(context, expected)
    torch.testing.assert_close(found[-1], attention(query, keys, span=span))
    for name in (backend.name for backend in backends.BACKENDS if backend.name != "dense"):
        with use_backend(name), pytest.raises(BackendError):
            attention(query, keys, values, span=span)


def test_a_score_by_the_recipe_in_heads():
    heads, x = Heads(12, heads=3, score=lambda width: Distance(width, width, 5)), torch.randn(2, 7, 12)
    look = heads.look(x, span=Causal())
    torch.testing.assert_close(heads(x, span=Causal()), look.context)
    q, k, _ = (each.unflatten(-1, (3, 4)).transpose(1, 2) for each in heads.projection(x).split(12, -1))
    for head, score in enumerate(heads.attention.score.scores):
        expected = -torch.cdist(score.w(q[:, head]), score.u(k[:, head]))
        torch.testing.assert_close(look.scores[:, head], expected)


def test_a_span_and_a_weighting_by_the_recipe():
    assert "`narrow`" in recipe("span")
    assert {"weigh", "Weighed"} <= set(re.findall(r"`(\w+)`", recipe("weighting")))

    class Even(Span):
        def narrow(self, limits, query):
            return limits.with_mask(torch.arange(limits.keys) % 2 == 0)

    class Squares(Weighting):
        def weigh(self, scores, mask=None):
            squares = scores.square() if mask is None else scores.square().masked_fill(~mask, 0.0)
            return Weighed(squares / squares.sum(-1, keepdim=True))

    x = torch.randn(2, 6, 4)
    squares = (x @ x.mT).square() * (torch.arange(6) % 2 == 0)
    attention = Attention(Dot(), span=Even(), weighting=Squares())
    expected = squares / squares.sum(-1, keepdim=True) @ x
    torch.testing.assert_close(attention(x, x), expected)
    torch.testing.assert_close(attention.look(x, x).context, expected)


# ---- what nobody would call


@pytest.mark.parametrize("kind", [Score, Dot, General, Additive, Cosine])
def test_a_score_that_overrides_forward_is_refused(kind):
    def forward(self, query, projected):
        return query @ projected.mT * 0

    sentence = "Mine overrides `forward`, which attention does not call: override "
    sentence += r"`compare\(projected_query, projected_keys, first\)`"
    with pytest.raises(TypeError, match=sentence):
        type("Mine", (kind,), {"forward": forward})
    with pytest.raises(TypeError, match="override `compare"):  # from a class beside it
        type("Mine", (type("Beside", (), {"forward": forward}), kind), {})


@pytest.mark.parametrize("kind", [Weighting, Softmax])
def test_a_weighting_that_overrides_forward_is_refused(kind):
    with pytest.raises(TypeError, match=r"Mine overrides `forward`, .* override `weigh\(scores, mask\)`"):
        type("Mine", (kind,), {"forward": lambda self, scores, mask=None: scores})


def test_a_packed_span_that_narrows_is_refused():
    with pytest.raises(TypeError, match="Mine overrides `narrow`, which is not called of a Packed span"):
        type("Mine", (Packed,), {"narrow": lambda self, limits, query: limits})


@pytest.mark.parametrize("form", ["other", "additive"])
def test_a_score_that_says_nothing_is_refused(form):
    x = torch.randn(2, 5, 4)
    attention = Attention(type("Silent", (Score,), {"form": form})())
    for call in (attention, attention.look):
        with pytest.raises(TypeError, match="Silent does not say how to compare: override `compare`"):
            call(x, x)


# ---- what replaces a part of what is there


class Negative:
    def compare(self, asked, projected, first=0):
        return -super().compare(asked, projected, first)


class Twice:
    def ask(self, query):
        return 2 * super().ask(query)


class Shifted:
    def project(self, keys):
        return super().project(keys) + 0.3


class Half:
    def scale(self, width):
        return 0.5 * super().scale(width)


class Learned:
    def scale(self, width):
        return self.size


class Turned:
    @property
    def vector(self):
        return -super().vector


KINDS = {
    "dot": lambda bases: type("Mine", (*bases, Dot), {})(scaled=True),
    "general": lambda bases: type("Mine", (*bases, General), {})(6, 6),
    "cosine": lambda bases: type("Mine", (*bases, Cosine), {})(2.0),
    "additive": lambda bases: type("Mine", (*bases, Additive), {})(6, 6, hidden=5),
}
CHANGES = [
    *((kind, change) for kind in KINDS for change in (Negative, Twice, Shifted)),
    *((kind, change) for kind in ("dot", "general", "cosine") for change in (Half, Learned)),
]


def changed(kind, change):
    torch.manual_seed(0)
    score, plain = KINDS[kind]((change,)), KINDS[kind](())
    plain.load_state_dict(score.state_dict())
    if change is Learned:
        score.size = nn.Parameter(torch.tensor(1.7))
    return score, plain


def by_hand(kind, change, plain, query, keys):
    """The scores that the class says."""
    asked, projected = plain.ask(query), plain.project(keys)
    asked = 2 * asked if change is Twice else asked
    projected = projected + 0.3 if change is Shifted else projected
    if kind == "additive":
        scores = torch.tanh(asked[:, :, None] + projected[:, None]) @ plain.v
    else:
        scores = asked @ projected.mT * (1.7 if change is Learned else plain.scale(6))
    return -scores if change is Negative else scores * 0.5 if change is Half else scores


@pytest.mark.parametrize(("kind", "change"), CHANGES)
@pytest.mark.parametrize("rows", [2, 600])  # few, and so many that additive scores are computed in chunks
def test_whatever_a_subclass_changes_is_computed(kind, change, rows):
    score, plain = changed(kind, change)
    query, keys, values = torch.randn(2, 3, 6), torch.randn(2, rows, 6), torch.randn(2, rows, 4)
    if rows > 2 and kind == "additive":
        query = torch.randn(2, 300, 6)
    attention = Attention(score)
    expected = by_hand(kind, change, plain, query, keys).softmax(-1) @ values
    torch.testing.assert_close(attention(query, keys, values), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(attention.look(query, keys, values).context, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(attention.fold(query, [(keys, values)]), expected, rtol=1e-4, atol=1e-5)
    served = 0
    for name in ("sdpa", "few", "chunked", "dense"):
        with use_backend(name), torch.no_grad():
            try:
                found = attention(query, keys, values)
            except BackendError:
                continue
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            served += 1
    assert served == (1 if change in (Negative, Learned) else 2 if kind == "additive" else 3)


def test_a_learned_scale_has_its_gradient():
    score, _ = changed("dot", Learned)
    x = torch.randn(2, 5, 6)
    for module in (Attention(score), Heads(12, heads=2, score=lambda width: changed("dot", Learned)[0])):
        given = x if isinstance(module, Attention) else torch.randn(2, 5, 12)
        module(given, given).square().sum().backward()
        sizes = [p for name, p in module.named_parameters() if name.endswith("size")]
        assert sizes
        assert all(size.grad is not None and size.grad.abs() > 0 for size in sizes)


def test_a_method_put_into_one_score_is_computed():
    attention, x = Attention(Dot()), torch.randn(2, 5, 6)
    attention.score.compare = lambda asked, projected, first=0: -(asked @ projected.mT)
    torch.testing.assert_close(attention(x, x), (-x @ x.mT).softmax(-1) @ x)


def test_a_subclass_with_its_own_vector():
    score = KINDS["additive"]((Turned,))
    query, keys = torch.randn(2, 3, 6), torch.randn(2, 4, 6)
    expected = -(torch.tanh(score.ask(query)[:, :, None] + score.project(keys)[:, None]) @ score.v)
    for name in ("dense", "chunked"):
        with use_backend(name):
            torch.testing.assert_close(Attention(score)(query, keys), expected.softmax(-1) @ keys)


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


# ---- spans


class Backwards:
    """Sees what its parent does not."""

    def narrow(self, limits, query):
        whole = super().narrow(limits, query).mask()
        return limits.with_mask(torch.ones(1, limits.keys, dtype=torch.bool) if whole is None else ~whole)


SPANS = {
    "lengths": lambda bases: type("Mine", (*bases, Lengths), {})([3, 6]),
    "causal": lambda bases: type("Mine", (*bases, Causal), {})(),
    "monotonic": lambda bases: type("Mine", (*bases, Monotonic), {})(1),
    "mask": lambda bases: type("Mine", (*bases, Mask), {})(torch.rand(7, 7) < 0.5),
}


def shown(name, span):
    """What the backward one sees."""
    i, j = torch.arange(7)[:, None], torch.arange(7)
    if name == "lengths":
        return j >= torch.tensor([3, 6])[:, None, None]
    return {"causal": j > i, "monotonic": (i - j).abs() > 1}[name] if name != "mask" else ~span.mask


@pytest.mark.parametrize("name", SPANS)
def test_a_span_that_narrows_in_its_own_way_is_asked(name):
    span, x, attention = SPANS[name]((Backwards,)), torch.randn(2, 7, 6), Attention(Dot())
    mask = shown(name, span)
    weights = (x @ x.mT).masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)
    for given in (span, Lengths([7, 7]) & span):
        torch.testing.assert_close(attention(x, x, span=given), weights @ x)
        torch.testing.assert_close(attention.look(x, x, span=given).context, weights @ x)


@pytest.mark.parametrize("name", ["causal", "monotonic", "mask"])
def test_beside_packed_sequences_it_is_asked_too(name):
    x, packed, attention = torch.randn(7, 6), Packed([0, 7]), Attention(Dot())
    span = SPANS[name]((Backwards,))
    weights = (x @ x.mT).masked_fill(~shown(name, span), -torch.inf).softmax(-1).nan_to_num(0.0)
    torch.testing.assert_close(attention(x, x, span=packed & span), weights @ x)
    query, prepared = attention.inputs(x, x, None)
    call = attention.packed_call(query, prepared, packed, [span])
    assert attention.request(call, packed=True, spans=[span]).mask, "kernels for packed sequences do not know it"
    assert not fused_stack.short(packed & span, windows=True)
    assert fused_stack.short(packed & Causal(), windows=True)


def test_joined_spans_of_ones_own_are_asked():
    class Either(Joined):
        def narrow(self, limits, query):
            masks = [part.narrow(limits, query).mask() for part in self.parts]
            return limits.with_mask(masks[0] | masks[1])

    x, attention = torch.randn(2, 7, 6), Attention(Dot())
    i, j = torch.arange(7)[:, None], torch.arange(7)
    mask = ((j <= i) | (j < 3)) & (j < 6)
    weights = (x @ x.mT).masked_fill(~mask, -torch.inf).softmax(-1)
    span = Either([Causal(), Lengths([3, 3])]) & Lengths([6, 6])
    torch.testing.assert_close(attention(x, x, span=span), weights @ x)


def test_a_decoder_does_not_drop_a_span_of_ones_own():
    decoder, memory = Decoder(8, heads=2, layers=1).eval(), torch.randn(2, 7, 8)
    for name in ("lengths", "mask"):
        with pytest.raises(ArgumentError, match="memory_span: .* given, expected Lengths or Mask"):
            decoder.start(memory, 4, memory_span=SPANS[name]((Backwards,)))


# ---- heads


def test_heads_of_ones_own_step_as_they_run():
    """A step looks at what is there through the forward, where that is one's own."""

    class Loud(Heads):
        def forward(self, x, memory=None, span=None, start=0):
            return 3 * super().forward(x, memory, span, start)

    torch.manual_seed(0)
    decoder = Decoder(8, heads=2, layers=2).eval()
    for block in decoder.blocks:
        block.attention.__class__ = block.cross.__class__ = Loud
    memory, words = torch.randn(3, 5, 8), torch.randn(3, 4, 8)
    with torch.no_grad():
        expected = decoder(words, memory)
        state = decoder.start(memory, 4)
        steps = [decoder.step(words[:, i : i + 1], state) for i in range(4)]
    torch.testing.assert_close(torch.cat(steps, 1), expected)
    assert not fused_stack.plain_heads(decoder.blocks[0].attention)


def test_kernels_for_blocks_know_nothing_of_ones_own():
    class Mine(Attention):
        pass

    heads = Heads(64, heads=2)
    assert fused_stack.plain_heads(heads)
    heads.attention.__class__ = Mine
    assert not fused_stack.plain_heads(heads)
    for weighting in (Renamed(), Learnt()):
        assert not fused_stack.plain_heads(Heads(64, heads=2, weighting=weighting))
    for change in (Negative, Twice, Half, Learned):
        assert not fused_stack.plain_heads(
            Heads(64, heads=2, score=lambda width, change=change: changed("dot", change)[0])
        )


def test_a_score_or_weighting_of_ones_own_is_what_the_forward_computes():
    """A subclass of a built-in part is not served by the built-in's fused kernel."""

    class Opposite(Dot):
        def compare(self, asked, projected, first=0):
            return -super().compare(asked, projected, first)

    class Even(Softmax):
        def weigh(self, scores, mask=None):
            return super().weigh(scores * 0, mask)

    x = torch.randn(2, 5, 4)
    for attention in (Attention(Opposite()), Attention(Dot(), weighting=Even())):
        assert attention.backend(x, x) == "dense"
        torch.testing.assert_close(attention(x, x), attention.look(x, x).context)
