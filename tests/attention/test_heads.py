"""Heads against the loop of Vaswani et al., section 3.2.2, and the properties that all heads share."""

import copy
import math
import pickle

import oracles
import pytest
import torch
from attention.cases import SPANS, WEIGHTINGS, each_backend, leading, normal, number, scrambled
from oracles import agree
from torch import nn

from regard.attention import Heads
from regard.attention.positions import Rotary
from regard.attention.score import Additive, Cosine, Dot, General, Score
from regard.attention.span import Alibi, Causal, Lengths, Mask, Monotonic, Packed, Predictive
from regard.attention.weighting import Hard
from regard.errors import ArgumentError, ShapeError


def matrix(module, size):
    """Return the matrix [out, in] and the offset [out] of an affine module, however it stores them."""
    offset = module(torch.zeros(1, size, dtype=torch.float64))[0]
    return (module(torch.eye(size, dtype=torch.float64)) - offset).mT, offset


def by_loop(module, x, memory=None, *, heads, **options):
    """Run the oracle with the module's projections."""
    memory = x if memory is None else memory
    parts = [
        oracles.slices(*matrix(part, width), heads)
        for part, width in (
            (module.query, x.shape[-1]),
            (module.key, memory.shape[-1]),
            (module.value, memory.shape[-1]),
        )
    ]
    output = oracles.linear(*matrix(module.output, module.output.in_features))
    return oracles.multi_head(x, memory, *parts, output, **options)


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_self_attention_equals_the_loop(heads, bias):
    module, x = scrambled(Heads(6, heads=heads, bias=bias)), normal(*leading(), number(1, 5), 6)
    expected = by_loop(module, x, heads=heads)
    for _, actual in each_backend(module, x):
        agree(actual, expected.context, [x, *module.parameters()])
    agree(module.look(x).weights, expected.weights)
    assert any("bias" in name for name, _ in module.named_parameters()) == bias


@pytest.mark.parametrize(
    "options",
    [
        {"query_size": 9},
        {"query_size": 3},
        {"value_size": 12},
        {"memory_size": 5},
        {"query_size": 12, "value_size": 3, "memory_size": 7},
    ],
)
def test_sizes_are_free(options):
    """D_Q and D_V over all heads and the memory's width are free; the result has the input's width."""
    module, lead = scrambled(Heads(6, heads=3, **options)), leading()
    x, memory = normal(*lead, number(1, 4), 6), normal(*lead, number(1, 6), options.get("memory_size", 6))
    expected = by_loop(module, x, memory, heads=3)
    assert expected.context.shape == x.shape
    for _, actual in each_backend(module, x, memory):
        agree(actual, expected.context, [x, memory, *module.parameters()])


@pytest.mark.parametrize("options", [{}, {"memory_size": 5}, {"query_size": 9, "value_size": 3}, {"split": "input"}])
def test_values_of_their_own(options):
    """MultiHead(Q, K, V) as in the paper: weights from Q and K, contexts from V, in every calling form."""
    module, lead = scrambled(Heads(6, 1 if "memory_size" in options else 3, **options)), leading()
    width, m = options.get("memory_size", 6), number(1, 6)
    x, keys, values = normal(*lead, number(1, 4), 6), normal(*lead, m, width), normal(*lead, m, width)

    def split(tensor):
        return tensor.unflatten(-1, (module.heads, -1)).transpose(-3, -2)

    q, k, v = split(module.query(x)), split(module.key(keys)), split(module.value(values))
    weights = (q @ k.mT / math.sqrt(module.width)).softmax(-1)
    expected = (weights @ v).transpose(-3, -2).flatten(-2)
    expected = expected if module.output is None else module.output(expected)
    leaves = [x, keys, values, *module.parameters()]
    for _, actual in each_backend(module, x, keys, values):
        agree(actual, expected, leaves)
    agree(module.look(x, keys, values).weights, weights)
    agree(module.look(x, keys, values=values).context, expected)
    agree(module(x, module.prepare(keys, values=values)), expected, leaves)
    agree(module(x, keys, keys), module(x, keys))


def test_values_of_their_own_under_a_span_and_positions():
    module, x, values = scrambled(Heads(8, 2, rotary=Rotary(4))), normal(2, 5, 8), normal(2, 5, 8)
    agree(module(x, x, values, Causal(), 3)[:, 0], module(x[:, :1], x[:, :1], values[:, :1], start=3)[:, 0])
    agree(module(x, None, values, span=Causal(), start=3), module(x, x, values, Causal(), 3))
    agree(module(x, None, x, Causal(), 3), module(x, None, Causal(), start=3))  # a span in place of the values
    agree(module(x, None, Causal(), 3), module(x, None, span=Causal(), start=3))  # and then the start
    agree(module(x, None, None, 3), module(x, start=3))


@pytest.mark.unchecked
def test_values_that_do_not_fit_are_refused():
    module, x = Heads(6, 2), torch.randn(4, 6)
    with pytest.raises(ShapeError, match=r"values: 3 given, expected one per key, 4"):
        module(x, x, torch.randn(3, 6))
    with pytest.raises(ArgumentError, match=r"values: given together with a prepared memory.*`prepare`"):
        module(x, module.prepare(x), x)
    with pytest.raises(ArgumentError, match=r"values: Causal\(.*\) given together with span=Lengths"):
        module(x, x, Causal(), Lengths(torch.tensor(2)))


def test_the_scale_is_the_root_of_a_heads_width():
    """√d_k with d_k = query_size / heads: not √size, not √query_size, not √n."""
    module, x = scrambled(Heads(6, heads=2, query_size=8)), normal(5, 6)
    q, k = (part(x).unflatten(-1, (2, 4)).transpose(0, 1) for part in (module.query, module.key))
    agree(module.look(x).weights, (q @ k.mT / math.sqrt(4)).softmax(-1))


@pytest.mark.parametrize("name", SPANS)
def test_every_span_equals_the_loop(name):
    lead, n, m = leading(2), number(1, 4), number(1, 6)
    module, x, memory = scrambled(Heads(6, heads=2)), normal(*lead, n, 6), normal(*lead, m, 6)
    span = SPANS[name](lead, n, m, 6)
    expected = by_loop(module, x, memory, heads=2, span=span.oracle)
    for _, actual in each_backend(module, x, memory, span=span.span):
        agree(actual, expected.context, [x, memory, *module.parameters(), *span.parameters])
    look = module.look(x, memory, span=span.span)
    agree(look.weights, expected.weights, [x, memory, *span.parameters])
    agree(look.context, expected.context)


@pytest.mark.parametrize("lead", [(), (2,), (3, 2)])
def test_a_mask_may_be_one_a_head(lead):
    module, x = scrambled(Heads(6, heads=2)), normal(*lead, 4, 6)
    mask = torch.rand(*lead, 2, 4, 4) < 0.6
    expected = by_loop(module, x, heads=2, span=oracles.mask(mask))
    for _, actual in each_backend(module, x, span=Mask(mask)):
        agree(actual, expected.context, [x, *module.parameters()])


def test_a_mask_a_row_is_not_taken_for_one_a_head():
    """With as many rows as heads, [b n m] is a mask per row."""
    module, x, mask = scrambled(Heads(6, heads=2)), normal(2, 4, 6), torch.rand(2, 4, 4) < 0.6
    expected = by_loop(module, x, heads=2, span=oracles.mask(mask))
    agree(module(x, span=Mask(mask)), expected.context, [x])


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 3])
def test_alibi_equals_the_loop(heads, start):
    lead, n, m = leading(2), number(1, 3), number(1, 6)
    module, x, memory = scrambled(Heads(6, heads=heads)), normal(*lead, n, 6), normal(*lead, m, 6)
    oracle = oracles.join(oracles.alibi(heads, start), oracles.causal(start))
    expected = by_loop(module, x, memory, heads=heads, span=oracle)
    for _, actual in each_backend(module, x, memory, span=Alibi(heads, start) & Causal(start)):
        agree(actual, expected.context, [x, memory, *module.parameters()])


def test_alibi_takes_a_start_a_row():
    starts, module = torch.tensor([0, 4]), scrambled(Heads(6, heads=3))
    x, memory = normal(2, 2, 6), normal(2, 6, 6)
    expected = by_loop(module, x, memory, heads=3, span=oracles.alibi(3, starts))
    agree(module(x, memory, span=Alibi(3, starts)), expected.context, [x, memory])


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_every_weighting_equals_the_loop(name):
    build, weighting = WEIGHTINGS[name]
    module, x, memory = scrambled(Heads(6, heads=2, weighting=build())), normal(2, 3, 6), normal(2, 5, 6)
    expected = by_loop(module, x, memory, heads=2, weighting=weighting)
    agree(module(x, memory), expected.context, [x, memory, *module.parameters()])


FACTORIES = {
    "dot": (lambda d: Dot(), lambda score: oracles.dot),
    "general": (lambda d: General(d, d), lambda score: oracles.general(score.weight)),
    "additive": (
        lambda d: Additive(d, d, hidden=5),
        lambda score: oracles.additive(score.query.weight, score.key.weight, score.key.bias, score.v),
    ),
    "cosine": (lambda d: Cosine("learned"), lambda score: oracles.cosine(score.log_sharpness.exp())),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("span_name", ["none", "lengths-causal", "predictive-lengths"])
def test_a_score_with_its_own_parameters_in_each_head(name, span_name):
    factory, oracle = FACTORIES[name]
    widths = []
    module = scrambled(Heads(6, heads=3, query_size=12, score=lambda d: (widths.append(d), factory(d))[1]))
    assert widths == [4, 4, 4]
    x, memory, span = normal(2, 3, 6), normal(2, 5, 6), SPANS[span_name]((2,), 3, 5, 6)
    each = [part for part in module.modules() if isinstance(part, Score) and not any(part.children())]
    if name == "additive":
        each = [part for part in module.modules() if isinstance(part, Additive)]
    scores = [oracle(part) for part in each] * (3 if name == "dot" else 1)  # one oracle serves all heads
    assert len(scores) == 3
    expected = by_loop(module, x, memory, heads=3, score=scores, span=span.oracle)
    for _, actual in each_backend(module, x, memory, span=span.span):
        agree(actual, expected.context, [x, memory, *module.parameters(), *span.parameters])


@pytest.mark.parametrize("options", [{}, {"memory_size": 8}, {"query_size": 6, "value_size": 8}])
def test_split_input_gives_each_head_its_slice_and_no_output_projection(options):
    module, lead = scrambled(Heads(4, heads=2, split="input", **options)), leading(2)
    memory_size = options.get("memory_size", 4)
    x, memory = normal(*lead, 3, 4), normal(*lead, 5, memory_size)
    parts = []
    for part, width in ((module.query, 4), (module.key, memory_size), (module.value, memory_size)):
        weight, bias = matrix(part, width)
        own = []
        for head in range(2):
            rows = slice(head * len(weight) // 2, (head + 1) * len(weight) // 2)
            columns = slice(head * width // 2, (head + 1) * width // 2)
            own.append(oracles.of_slice(oracles.linear(weight[rows, columns], bias[rows]), head, 2))
        parts.append(own)
    expected = oracles.multi_head(x, memory, *parts, None)
    for _, actual in each_backend(module, x, memory):
        agree(actual, expected.context, [x, memory, *module.parameters()])
    assert getattr(module, "output", None) is None


def test_split_input_keeps_heads_apart():
    """The first head's result does not depend on the second head's slice."""
    module, x = scrambled(Heads(6, heads=2, split="input")), normal(4, 6)
    (gradient,) = torch.autograd.grad(module(x)[:, :3].sum(), x)
    assert gradient[:, :3].any()
    assert not gradient[:, 3:].any()


@pytest.mark.parametrize("start", [0, 5, torch.tensor([2, 0])])
def test_rotary_turns_queries_and_keys(start):
    module = scrambled(Heads(8, heads=2, rotary=Rotary(4)))
    x, memory = normal(2, 3, 8), normal(2, 6, 8)
    expected = by_loop(module, x, memory, heads=2, turn=start)
    actual = module(x, module.prepare(memory), start=start)
    agree(actual, expected.context, [x, memory, *module.parameters()])


def test_rotary_in_self_attention_starts_queries_and_keys_alike():
    module, x = scrambled(Heads(8, heads=2, rotary=Rotary(4))), normal(2, 5, 8)
    expected = by_loop(module, x, heads=2, turn=0).context
    agree(module(x), expected, [x, *module.parameters()])
    agree(module(x, start=7), expected, [x], rtol=1e-8, atol=1e-10)


def test_it_is_torchs_own_multi_head_attention():
    module, peer, x = (
        scrambled(Heads(6, heads=2)),
        nn.MultiheadAttention(6, 2, batch_first=True).double(),
        normal(2, 5, 6),
    )
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([matrix(p, 6)[0] for p in (module.query, module.key, module.value)]))
        peer.in_proj_bias.copy_(torch.cat([matrix(p, 6)[1] for p in (module.query, module.key, module.value)]))
        peer.out_proj.load_state_dict(module.output.state_dict())
    agree(module(x), peer(x, x, x, need_weights=False)[0], [x])


# --- properties -----------------------------------------------------------------------------------------------------


def test_without_positions_heads_follow_the_order_of_their_input():
    module, x, order = scrambled(Heads(6, heads=2)), normal(2, 7, 6), torch.randperm(7)
    agree(module(x[:, order]), module(x)[:, order], [x])


@pytest.mark.parametrize("what", ["causal", "monotonic", "alibi", "rotary"])
def test_positions_break_it(what):
    spans = {"causal": Causal(), "monotonic": Monotonic(1), "alibi": Alibi(2)}
    module = scrambled(Heads(8, heads=2, rotary=Rotary(4) if what == "rotary" else None))
    x, order = normal(1, 7, 8), torch.arange(7).roll(3)
    assert not torch.allclose(module(x[:, order], span=spans.get(what)), module(x, span=spans.get(what))[:, order])


def test_a_causal_result_does_not_hang_on_what_comes_later():
    module, x = scrambled(Heads(6, heads=2)), normal(7, 6)
    for i in range(7):
        (gradient,) = torch.autograd.grad(module(x, span=Causal())[i].sum(), x)
        assert not gradient[i + 1 :].any()
        assert gradient[: i + 1].any()


@pytest.mark.parametrize("inside", [None, Causal(), Monotonic(1)])
def test_padding_never_changes_a_result_and_gets_no_gradient(inside):
    module, length, m = scrambled(Heads(6, heads=2)), 4, 9
    x, garbage = normal(length, 6), torch.full((m - length, 6), 1e4, dtype=torch.float64, requires_grad=True)
    span = Lengths(torch.tensor(length)) if inside is None else Lengths(torch.tensor(length)) & inside
    alone = module(x, span=inside)
    for _, actual in each_backend(module, torch.cat([x, garbage]), span=span):
        agree(actual[:length], alone, [x, *module.parameters()])
        gradients = oracles.gradients(actual[:length], [garbage], torch.randn_like(alone))
        assert not gradients[0].any()


@pytest.mark.parametrize("inside", [None, Causal(), Monotonic(1), Alibi(2)])
@pytest.mark.parametrize("rotary", [False, True])
def test_packed_equals_padded(inside, rotary):
    module = scrambled(Heads(8, heads=2, rotary=Rotary(4) if rotary else None))
    sequences = [normal(length, 8) for length in (3, 1, 5)]
    expected = torch.cat([module(x, span=inside) for x in sequences])
    packed = Packed(torch.tensor([0, 3, 4, 9]))
    for _, actual in each_backend(module, torch.cat(sequences), span=packed if inside is None else packed & inside):
        agree(actual, expected, [*sequences, *module.parameters()])


def test_packed_equals_padded_with_a_predicted_centre():
    module, span = scrambled(Heads(6, heads=2)), scrambled(Predictive(6, 1))
    sequences = [normal(length, 6) for length in (3, 1, 5)]
    expected = torch.cat([module(x, span=span) for x in sequences])
    actual = module(torch.cat(sequences), span=Packed([0, 3, 4, 9]) & span)
    agree(actual, expected, [*sequences, *module.parameters(), *span.parameters()])


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("heads", [1, 2])
def test_rows_with_nothing_to_look_at_give_the_output_of_zero_and_finite_gradients(name, heads):
    module = scrambled(Heads(6, heads=heads, weighting=WEIGHTINGS[name][0]()))
    x, memory = normal(2, 3, 6), normal(2, 5, 6)
    for _, actual in each_backend(module, x, memory, span=Lengths([0, 5])):
        agree(actual[0], module.output.bias.expand(3, 6))
        gradients = oracles.gradients(actual, [x, memory, *module.parameters()], torch.randn_like(actual))
        assert all(torch.isfinite(one).all() for one in gradients)
        assert not gradients[0][0].any()
        assert not gradients[1][0].any()


@pytest.mark.parametrize("options", [{}, {"split": "input"}, {"query_size": 12}, {"score": lambda d: General(d, d)}])
@pytest.mark.parametrize("span_name", ["none", "lengths", "causal-starts", "mask"])
def test_prepared_equals_unprepared(options, span_name):
    module, lead = scrambled(Heads(6, heads=2, **options)), leading(2)
    x, memory, span = normal(*lead, 3, 6), normal(*lead, 5, 6), SPANS[span_name](lead, 3, 5, 6)
    expected = module(x, memory, span=span.span)
    for _, actual in each_backend(module, x, module.prepare(memory), span=span.span):
        agree(actual, expected, [x, memory, *module.parameters()])
    agree(module.look(x, module.prepare(memory), span=span.span).context, expected)


@pytest.mark.parametrize("part", ["query", "key", "value", "output"])
@pytest.mark.parametrize("cross", [False, True])
def test_projections_can_be_hooked(part, cross):
    """Ablation hooks a projection to remove a head, also in self-attention, where q, k and v are one projection."""
    module, x = scrambled(Heads(6, heads=2)), normal(2, 5, 6)
    memory = normal(2, 4, 6) if cross else x
    seen = []

    def halve(_, inputs, result):
        seen.append(result.shape)
        return result * torch.tensor([0.0] * 3 + [1.0] * 3, dtype=torch.float64)

    free = module(x, memory) if cross else module(x)
    handle = getattr(module, part).register_forward_hook(halve)
    hooked = module(x, memory) if cross else module(x)
    assert [shape[-1] for shape in seen] == [6]
    agree(hooked, by_loop(module, x, memory, heads=2).context, [x, memory, *module.parameters()])
    assert not torch.allclose(hooked, free)
    handle.remove()
    agree(module(x, memory) if cross else module(x), free)


def test_dropout_is_on_the_weights():
    """With one value, dropout keeps or zeroes the whole weight of each head and query."""
    module = scrambled(Heads(6, heads=2, dropout=0.5, bias=False)).train()
    x, memory = normal(200, 3, 6), normal(200, 1, 6)
    with torch.no_grad():
        module.output.weight.copy_(torch.eye(6))
    values = module.value(memory).unflatten(-1, (2, 3))
    contexts = module(x, memory).unflatten(-1, (2, 3))
    kept = contexts.abs().sum(-1) > 0
    agree(contexts, torch.where(kept[..., None], 2 * values, 0.0))
    share, error = kept.double().mean().item(), 0.5 / kept.numel() ** 0.5
    assert abs(share - 0.5) < 5 * error
    assert (kept[..., 0] != kept[..., 1]).any()


def test_each_head_makes_its_own_hard_choice():
    module, x = scrambled(Heads(6, heads=2, weighting=Hard())).train(), normal(100, 1, 6)
    look = module.look(x, normal(100, 7, 6))
    assert look.picked.shape == look.log_prob.shape == (100, 2, 1)
    assert (look.picked[:, 0] != look.picked[:, 1]).any()


MODULES = {
    "plain": lambda: Heads(6, heads=2),
    "sizes": lambda: Heads(6, heads=2, query_size=8, value_size=4, memory_size=6),
    "input": lambda: Heads(6, heads=2, split="input"),
    "scores": lambda: Heads(6, heads=2, score=lambda d: Additive(d, d, hidden=5)),
    "rotary": lambda: Heads(8, heads=2, rotary=Rotary(4)),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle"])
def test_kept_and_loaded_it_is_the_same(name, way):
    one, x = scrambled(MODULES[name]()), normal(2, 5, 8 if name == "rotary" else 6)
    if way == "state_dict":
        other = MODULES[name]().double()
        other.load_state_dict(one.state_dict(), strict=True)
    else:
        other = copy.deepcopy(one) if way == "deepcopy" else pickle.loads(pickle.dumps(one))
    agree(other(x), one(x))
    agree(other(x, span=Causal()), one(x, span=Causal()))


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


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_two_alibis_in_heads(batch):
    heads, x = Heads(8, heads=2).double(), torch.randn(batch, 5, 8, dtype=torch.float64)
    weights = heads.look(x, span=Alibi(2) & Alibi(2, start=1)).weights
    scores = heads.look(x).scores
    i, j, slopes = torch.arange(5)[:, None], torch.arange(5), torch.tensor([2.0**-4, 2.0**-8])[:, None, None]
    bias = -slopes * ((i - j).abs() + (i + 1 - j).abs())
    torch.testing.assert_close(weights, torch.softmax(scores + bias, -1))
