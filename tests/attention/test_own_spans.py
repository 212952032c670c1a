"""A custom span is computed as written, or refused."""

import re

import pytest
import torch
from attention.test_own_scores import recipe

from regard.attention import Attention, Decoder, fused_stack, watch
from regard.attention.score import Dot
from regard.attention.span import Causal, Joined, Lengths, Mask, Monotonic, Packed, Span
from regard.attention.weighting import Weighed, Weighting
from regard.errors import ArgumentError, WatchError
from regard.kernels import backends, describe


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


def test_a_packed_span_that_narrows_is_refused():
    with pytest.raises(TypeError, match="Mine overrides `narrow`, which is not always called for a Packed span"):
        type("Mine", (Packed,), {"narrow": lambda self, limits, query: limits})


class Backwards:
    """A span that sees the complement of its parent."""

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
    """Return the mask of the backward span."""
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
    query, prepared = attention.check_inputs(x, x, None)
    call = attention.resolve_packed_call(query, prepared, packed, [span])
    assert call.limits.needs_padding, "kernels for packed sequences do not know it"
    assert not backends.packed_natively(describe(call))
    known = fused_stack.STACK.rows[0].features
    assert not known.issuperset(fused_stack.describe_span(packed & span, windows=True)[1])
    assert known.issuperset(fused_stack.describe_span(packed & Causal(), windows=True)[1])


def test_joined_spans_of_ones_own_are_asked():
    class Either(Joined):
        def narrow(self, limits, query):
            masks = [part.narrow(limits, query).mask() for part in self.parts]
            return limits.with_mask(masks[0] | masks[1])

    x, attention = torch.randn(2, 7, 6), Attention(Dot())
    i, j = torch.arange(7)[:, None], torch.arange(7)
    mask = ((j <= i) | (j < 3)) & (j < 6)
    weights = (x @ x.mT).masked_fill(~mask, -torch.inf).softmax(-1)
    span = Either([Causal(), Lengths([3, 3])])
    torch.testing.assert_close(attention(x, x, span=span & Lengths([6, 6])), weights @ x)
    alone = (x @ x.mT).masked_fill(~((j <= i) | (j < 3)), -torch.inf).softmax(-1)
    for context in (
        attention(x, x, span=span),
        attention.look(x, x, span=span).context,
        Attention(Dot(), span=span)(x, x),
    ):
        torch.testing.assert_close(context, alone @ x)
    for packed in (Packed([0, 3, 7]), Packed([0, 3, 7]) & Causal()):
        with pytest.raises(ArgumentError, match="given inside a span with its own `narrow`"):
            attention(x[0], x[0], span=Either([packed, Lengths([3])]))
    with pytest.raises(ArgumentError, match="whose `narrow` needs the number of keys"):
        attention.fold(x, [(x, x)], span=span)


def test_a_decoder_does_not_drop_a_span_of_ones_own():
    decoder, memory = Decoder(8, heads=2, layers=1).eval(), torch.randn(2, 7, 8)
    for name in ("lengths", "mask"):
        with pytest.raises(ArgumentError, match="memory_span: .* given, expected Lengths or Mask"):
            decoder.start(memory, 4, memory_span=SPANS[name]((Backwards,)))


def test_a_span_that_names_its_own_parts_is_asked_itself():
    class Strict(Causal):
        @property
        def parts(self):
            return ()

    x = torch.randn(2, 7, 6)
    assert not Attention(Dot()).look(x, x, span=Strict()).weights.triu(1).any()


def test_what_a_span_of_ones_own_holds_may_not_be_overwritten():
    class Held(Joined):
        def __init__(self, mask):
            super().__init__([])
            self.mask = mask

        def narrow(self, limits, query):
            return limits.with_mask(self.mask)

    mask, attention, x = torch.ones(7, 7, dtype=torch.bool), Attention(Dot()), torch.randn(2, 7, 6)
    with watch(attention) as looks:
        attention(x, x, span=Held(mask))
    mask[:, 3:] = False
    with pytest.raises(WatchError, match="overwritten"):
        looks[""]


@pytest.mark.parametrize("answer", [None, torch.ones(7, 7, dtype=torch.bool)])
def test_an_answer_that_is_none_is_refused(answer):
    class Odd(Span):
        def narrow(self, limits, query):
            return answer

    attention, x = Attention(Dot()), torch.randn(2, 7, 6)
    for span in (Odd(), Odd() & Causal(), Causal() & Odd()):
        for call in (attention, attention.look):
            with pytest.raises(TypeError, match=r"Odd.narrow returned \w+, expected limits, such as limits.with_mask"):
                call(x, x, span=span)


@pytest.mark.parametrize("name", ["queries", "keys", "pad_queries", "pad_keys", "unpad", "unpad_pairs"])
def test_a_packed_span_of_another_layout_is_refused(name):
    with pytest.raises(TypeError, match=f"Mine overrides `{name}`, which is not always called for a Packed span"):
        type("Mine", (Packed,), {name: None})
