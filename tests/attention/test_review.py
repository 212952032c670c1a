"""Cases that once gave a wrong result or a bare torch error."""

import pytest
import torch
from torch import nn

from regard.attention import Attention, Decoder, Encoder, Heads, Learned, watch
from regard.attention.grid import GridSelfAttention
from regard.attention.positions import Rotary
from regard.attention.score import Additive, Cosine, Dot
from regard.attention.span import Alibi, Causal, Lengths, Mask, Monotonic, Packed, Predictive
from regard.attention.weighting import Hard, Softmax, Weighed, Weighting
from regard.errors import ArgumentError, ShapeError, WatchError


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


def test_heads_of_different_kinds_are_refused():
    kinds = iter([Dot(), Dot(scaled=True)])
    with pytest.raises(ArgumentError, match="differ in kind"):
        Heads(8, heads=2, score=lambda width: next(kinds))


def test_a_projection_put_in_anothers_place_is_used():
    heads, x = Heads(8, heads=2), torch.randn(2, 5, 8)
    before = heads(x)
    heads.query = nn.Linear(8, 8)
    assert not torch.allclose(heads(x), before)
    torch.testing.assert_close(heads(x), heads(x, x.clone()))
    heads = Heads(8, heads=2)
    heads.projection = nn.Linear(8, 24)
    torch.testing.assert_close(heads(x), heads(x, x.clone()))


def test_folding_over_a_cache_that_is_not_full():
    attention, query = Attention(Dot()), torch.randn(2, 3, 4)
    cache = attention.cache(2, 6, keys=4, values=4)
    cache.extend(attention.prepare(torch.randn(2, 2, 4)))
    torch.testing.assert_close(attention.fold(query, [(cache, None)]), attention(query, cache))


def test_windows_and_causality_given_twice():
    x, query = torch.randn(2, 40, 4, dtype=torch.float64), torch.randn(2, 40, 4, dtype=torch.float64)
    attention, narrow = Attention(Dot()), Mask((torch.arange(40) - torch.arange(40)[:, None]).abs() <= 1)
    twice = Monotonic(3) & Monotonic(1)
    expected = attention(query, x, span=narrow)
    torch.testing.assert_close(attention(query, x, span=twice), expected)
    torch.testing.assert_close(attention.fold(query, [(x[:, :9], None), (x[:, 9:], None)], span=twice), expected)
    rows = Causal(torch.tensor([0, 5])) & Causal(torch.tensor([3, 1]))
    torch.testing.assert_close(attention(query, x, span=rows), attention(query, x, span=Causal(torch.tensor([0, 1]))))
    predicted = Predictive(4, 5).double()
    both = attention.look(query, x, span=predicted & Monotonic(3)).weights
    whole = attention.look(query, x, span=predicted).weights
    assert not both[(torch.arange(40) - torch.arange(40)[:, None]).abs().expand(2, -1, -1) > 3].any()
    assert (both.sum(-1) <= 1).all()
    assert whole.shape == both.shape


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_two_alibis_in_heads(batch):
    heads, x = Heads(8, heads=2).double(), torch.randn(batch, 5, 8, dtype=torch.float64)
    weights = heads.look(x, span=Alibi(2) & Alibi(2, start=1)).weights
    scores = heads.look(x).scores
    i, j, slopes = torch.arange(5)[:, None], torch.arange(5), torch.tensor([2.0**-4, 2.0**-8])[:, None, None]
    bias = -slopes * ((i - j).abs() + (i + 1 - j).abs())
    torch.testing.assert_close(weights, torch.softmax(scores + bias, -1))


@pytest.mark.parametrize("start", [200, -200])
def test_a_window_that_never_meets_a_key_gives_zeros(start):
    query, keys = torch.randn(2, 70, 4, requires_grad=True), torch.randn(2, 300, 4, requires_grad=True)
    context = Attention(Dot(), span=Monotonic(2, start=start + (300 if start > 0 else 0)))(query, keys)
    assert not context.any()
    context.sum().backward()
    assert torch.isfinite(keys.grad).all()


@pytest.mark.parametrize("score", [Dot(), Additive(4, 4, hidden=3)])
@pytest.mark.parametrize("span", [Monotonic(1), Predictive(4, 1)])
def test_no_queries(score, span):
    assert Attention(score, span=span)(torch.randn(2, 0, 4), torch.randn(2, 30, 4)).shape == (2, 0, 4)


def test_packed_with_a_causal_start_a_row():
    x = torch.randn(7, 4)
    found = Attention(Dot())(x, x, span=Packed([0, 3, 7]) & Causal(torch.tensor([1, 0])))
    alone = [Attention(Dot())(x[:3], x[:3], span=Causal(1)), Attention(Dot())(x[3:], x[3:], span=Causal())]
    torch.testing.assert_close(found, torch.cat(alone))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_zero_key_has_a_finite_gradient(dtype):
    keys = torch.zeros(1, 3, 4, dtype=dtype, requires_grad=True)
    Attention(Cosine())(torch.randn(1, 2, 4, dtype=dtype), keys, torch.randn(1, 3, 4, dtype=dtype)).sum().backward()
    assert keys.grad.abs().max() < 1e3


def test_a_large_pool_by_a_learned_query_is_chunked():
    pool, keys = Attention(Additive(64, 64, hidden=64), query=Learned(1, 64)), torch.randn(16, 1024, 64)
    assert pool.backend(None, keys) == "chunked"


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: Attention(Dot())(x, x, span=Mask(torch.ones(2, 1, 5, 5).bool())), "mask"),
        (lambda x: Heads(8, heads=2)(x, span=Mask(torch.ones(2, 5, 5, 5).bool())), "mask"),
        (lambda x: Attention(Dot())(x[0], x[0], span=Packed([0, 5]) & Mask(torch.tensor(True))), "mask"),
        (lambda x: Attention(Dot())(x[0], x, span=Packed([0, 5])), "keys"),
        (lambda x: Attention(Dot())(x[:1], x[:2], x.repeat(2, 1, 1)[:3]), "leading dimensions"),
        (lambda x: Heads(8, heads=2, score=Dot()), "function"),
        (lambda x: Lengths([[1], [2, 3]]), "lengths"),
        (lambda x: Heads(8, heads=2).cache(2, 3).select_(torch.tensor([1])), "rows"),
        (lambda x: Decoder(8, heads=2, layers=1).start(x[0], 5), "memory"),
    ],
)
def test_it_is_named(call, said):
    with pytest.raises(ArgumentError, match=said):
        call(torch.randn(2, 5, 8))


def test_caches_take_only_what_fits():
    one, other = Heads(8, heads=2), Heads(8, heads=2)
    with pytest.raises(ArgumentError, match="another module"):
        one.cache(2, 3).put_(torch.tensor([0]), other.cache(1, 3))
    for wrong in (torch.randn(2, 8), torch.randn(3, 1, 8)):
        with pytest.raises(ShapeError, match="the cache's rows"):
            one.cache(2, 5).extend(one.prepare(wrong))
    decoder = Decoder(8, heads=2, layers=1)
    with pytest.raises(ShapeError, match="the state's 2 rows"):
        decoder.step(torch.randn(1, 1, 8), decoder.start(torch.randn(2, 3, 8), 5))


def test_steps_do_not_grow_a_graph():
    decoder = Decoder(8, heads=2, layers=1)
    state = decoder.start(torch.randn(2, 3, 8), 5)
    for _ in range(3):
        decoder.step(torch.randn(2, 1, 8), state)
    assert not state.row["past.0"].keys.requires_grad


def test_rotary_takes_starts_from_the_host():
    rotary, x = Rotary(4), torch.randn(2, 3, 4)
    torch.testing.assert_close(rotary(x, start=torch.tensor([1, 2]))[1], rotary(x[1], start=2))


# ---- watch


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


def test_a_weighting_that_says_it_draws_is_looked_at_with_the_same_draw():
    class Noisy(Weighting):
        draws = True

        def weigh(self, scores, mask=None):
            return Weighed(torch.softmax(scores + torch.randn_like(scores), -1))

    attention, x = Attention(Dot(), weighting=Noisy()), torch.randn(2, 5, 4)
    with watch(attention) as looks:
        called = attention(x, x)
    torch.testing.assert_close(looks[""].context, called)


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


def test_a_cache_under_a_mask_of_its_whole_size():
    heads = Heads(8, heads=2)
    cache = heads.cache(2, 6)
    cache.extend(heads.prepare(torch.randn(2, 2, 8)))
    with watch(heads) as looks:
        called = heads(torch.randn(2, 1, 8), cache, span=Mask(torch.ones(1, 6, dtype=torch.bool)))
    torch.testing.assert_close(looks[""].context, called)


def test_maps_are_not_joined_along_their_places():
    layer, x = GridSelfAttention(8), torch.randn(2, 8, 3, 4)
    with watch(layer) as looks:
        layer(layer(x))
    with pytest.raises(WatchError, match="2 calls.*cannot be joined"):
        looks[""]


def test_the_shapes_of_joined_looks_are_joined():
    attention, x = Attention(Dot()), torch.randn(2, 5, 4)
    with watch(attention) as looks:
        for i in range(3):
            attention(x[:, i : i + 1], x)
    assert "q  [2, 3, 4]" in looks[""].explain()


def test_a_parallel_wrapper_has_the_plain_names():
    encoder = Encoder(8, heads=2, layers=1)
    with watch(nn.DataParallel(encoder)) as looks:
        encoder(torch.randn(2, 3, 8))
    assert list(looks) == ["blocks.0.attention"]
