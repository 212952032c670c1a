"""A custom score is computed as written, even where a faster path exists, or refused; and custom heads."""

import re
from pathlib import Path

import pytest
import torch
from attention.test_own_weightings import Learnt, Renamed
from torch import nn

from regard.attention import Attention, Decoder, Heads, fused_stack, use_backend, watch
from regard.attention.grid import GridAttention
from regard.attention.score import Additive, Cosine, Dot, General, Score
from regard.attention.span import Causal, Lengths
from regard.attention.weighting import Softmax
from regard.errors import BackendError, ShapeError
from regard.kernels import backends

ROOT = Path(__file__).parents[2]


def recipe(what):
    """Return the recipe that CONTRIBUTING gives for a new part."""
    return re.search(rf"^\| a {what} \| (.+?) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)[1]


class Distance(Score):
    """The recipe's score: minus the distance of W q and U k."""

    def __init__(self, query_size, key_size, hidden):
        super().__init__()
        self.query_size, self.key_size, self.hidden = query_size, key_size, hidden
        self.w, self.u = nn.Linear(query_size, hidden), nn.Linear(key_size, hidden)

    def project_query(self, query):
        return self.w(query)

    def project_keys(self, keys):
        return self.u(keys)

    def projected_size(self, key_size):
        return self.hidden

    def compare(self, asked, projected, first=0):
        return -torch.cdist(asked, projected)


def test_a_score_by_the_recipe():
    assert set(re.findall(r"`(\w+)`", recipe("score"))) == {"__all__", "compare", "project_query", "project_keys"}
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


# ---- methods that would never be called


@pytest.mark.parametrize("kind", [Score, Dot, General, Additive, Cosine])
def test_a_score_that_overrides_forward_is_refused(kind):
    def forward(self, query, projected):
        return query @ projected.mT * 0

    sentence = "Mine overrides `forward`, which attention does not call: override "
    sentence += r"`compare\(projected_query, projected_keys, first\)`"
    with pytest.raises(TypeError, match=sentence):
        type("Mine", (kind,), {"forward": forward})
    with pytest.raises(TypeError, match="override `compare"):  # inherited from another base class
        type("Mine", (type("Beside", (), {"forward": forward}), kind), {})


@pytest.mark.parametrize("form", ["other", "additive"])
def test_a_score_that_says_nothing_is_refused(form):
    x = torch.randn(2, 5, 4)
    attention = Attention(type("Silent", (Score,), {"form": form})())
    for call in (attention, attention.look):
        with pytest.raises(TypeError, match="Silent does not say how to compare: override `compare`"):
            call(x, x)


# ---- overrides of one method of a built-in score


class Negative:
    def compare(self, asked, projected, first=0):
        return -super().compare(asked, projected, first)


class Twice:
    def project_query(self, query):
        return 2 * super().project_query(query)


class Shifted:
    def project_keys(self, keys):
        return super().project_keys(keys) + 0.3


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
    """Return the scores that the class defines."""
    asked, projected = plain.project_query(query), plain.project_keys(keys)
    asked = 2 * asked if change is Twice else asked
    projected = projected + 0.3 if change is Shifted else projected
    if kind == "additive":
        scores = torch.tanh(asked[:, :, None] + projected[:, None]) @ plain.v
    else:
        scores = asked @ projected.mT * (1.7 if change is Learned else plain.scale(6))
    return -scores if change is Negative else scores * 0.5 if change is Half else scores


@pytest.mark.parametrize(("kind", "change"), CHANGES)
@pytest.mark.parametrize("rows", [2, 600])  # few rows, and so many that additive scores are computed in chunks
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
    for name in ("sdpa", "few-queries", "chunked", "dense"):
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
    expected = -(torch.tanh(score.project_query(query)[:, :, None] + score.project_keys(keys)[:, None]) @ score.v)
    for name in ("dense", "chunked"):
        with use_backend(name):
            torch.testing.assert_close(Attention(score)(query, keys), expected.softmax(-1) @ keys)


# ---- heads


def test_heads_of_ones_own_step_as_they_run():
    """A step over a cache goes through the overridden forward."""

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
    assert [*fused_stack.heads_features(decoder.blocks[0].attention)]


def test_kernels_for_blocks_know_nothing_of_ones_own():
    class Mine(Attention):
        pass

    heads = Heads(64, heads=2)
    assert not [*fused_stack.heads_features(heads)]
    heads.attention.__class__ = Mine
    assert [*fused_stack.heads_features(heads)]
    for weighting in (Renamed(), Learnt()):
        assert [*fused_stack.heads_features(Heads(64, heads=2, weighting=weighting))]
    for change in (Negative, Twice, Half, Learned):
        heads = Heads(64, heads=2, score=lambda width, change=change: changed("dot", change)[0])
        assert [*fused_stack.heads_features(heads)]


def test_a_score_or_weighting_of_ones_own_is_what_the_forward_computes():
    """The built-in's fused kernel does not serve a subclass."""

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


# ---- every other attribute of a score


class TwoArguments(Score):
    """`compare` as a first attempt would write it, without the index of the first key."""

    def compare(self, query, keys):
        return query @ keys.mT


def test_a_comparison_need_not_take_the_index_of_the_first_key():
    attention, x = Attention(TwoArguments()), torch.randn(2, 7, 6)
    expected = Attention(Dot())(x, x)
    blocks = [(x[:, :3], None), (x[:, 3:], None)]
    for context in (attention(x, x), attention.look(x, x).context, attention.fold(x, blocks)):
        torch.testing.assert_close(context, expected)
    heads = Heads(6, heads=2, score=lambda width: TwoArguments())
    plain = Heads(6, heads=2, score=lambda width: Dot())
    plain.load_state_dict(heads.state_dict())
    torch.testing.assert_close(heads(x), plain(x))


def test_one_that_takes_the_index_is_given_it():
    class Slope(Score):
        def compare(self, query, keys, first=0):
            return (first + torch.arange(keys.shape[-2])).expand(*query.shape[:-1], -1) * 0.5

    attention, x = Attention(Slope()), torch.randn(2, 7, 6)
    torch.testing.assert_close(attention.fold(x, [(x[:, :3], None), (x[:, 3:], None)]), attention(x, x))


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        (Dot, "__call__", "which attention does not call: override `compare"),
        (Dot, "fused_form", "which follows from `form` and `compare`"),
        (Additive, "scale", "which only a bilinear score has: override `compare`"),
        (Dot, "vector", "which only an Additive score has: override `compare`"),
        (General, "vector", "which only an Additive score has: override `compare`"),
    ],
)
def test_what_would_be_passed_by_is_refused(kind, name, says):
    method = lambda self, *given: 1.0  # noqa: E731
    with pytest.raises(TypeError, match=f"Mine overrides `{name}`, {says}"):
        type("Mine", (kind,), {name: method if name in ("__call__", "scale") else property(method)})


def test_it_is_not_refused_where_the_comparison_is_its_own():
    class Mine(Additive):
        def scale(self, width):
            return 0.5

        def compare(self, query, keys, first=0):
            return super().compare(query, keys, first) * self.scale(self.hidden)

    score, x = Mine(6, 6, hidden=4), torch.randn(2, 5, 6)
    look = Attention(score).look(x, x)
    torch.testing.assert_close(
        look.scores, 0.5 * torch.tanh(score.query(x)[:, :, None] + score.key(x)[:, None]) @ score.v
    )
    torch.testing.assert_close(Attention(score)(x, x), look.context)


def test_its_own_check_is_asked_in_heads_too():
    class Even(Dot):
        def check(self, query_width, key_width):
            if query_width % 2:
                raise ValueError(f"mine: {query_width}")

    Heads(8, heads=2, score=lambda width: Even())
    with pytest.raises(ValueError, match="mine: 3"):
        Heads(6, heads=2, score=lambda width: Even())
    with pytest.raises(ValueError, match="mine: 5"):
        Attention(Even())(torch.randn(2, 5), torch.randn(3, 5))
    with pytest.raises(ShapeError, match="query: width 3 given, General expects 4"):
        Heads(6, heads=2, score=lambda width: General(4, 4))


def test_a_score_may_use_the_names_of_before():
    with pytest.warns(DeprecationWarning, match=r"Old\.(ask|project) is now called project_(query|keys)") as warned:

        class Old(General):
            def ask(self, query):
                return 2 * super().ask(query)

            def project(self, keys):
                return super().project(keys) + 0.3

    assert len(warned) == 2

    class New(General):
        def project_query(self, query):
            return 2 * super().project_query(query)

        def project_keys(self, keys):
            return super().project_keys(keys) + 0.3

    old, new = Old(5, 3), New(5, 3)
    new.load_state_dict(old.state_dict())
    query, keys = torch.randn(2, 4, 5), torch.randn(2, 6, 3)
    assert torch.equal(old.ask(query), new.project_query(query))
    assert torch.equal(Attention(old)(query, keys), Attention(new)(query, keys))
    assert not torch.equal(Attention(old)(query, keys), Attention(General(5, 3))(query, keys))
