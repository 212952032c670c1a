"""Positions against their papers' formulas, with a start, added or concatenated, and in packed sequences."""

import oracles
import pytest
import torch
from attention.cases import leading, normal, number
from oracles import agree

from regard.attention import Heads
from regard.attention.positions import Embedded, Rotary, Sinusoidal, Sinusoidal2D
from regard.attention.span import Packed
from regard.errors import ArgumentError

STARTS = [0, 3, "rows"]


def places(lead, n, start):
    """Return the position of every query [*lead n], from an int or one start per row."""
    return (torch.as_tensor(start)[..., None] + torch.arange(n)).expand(*lead, n)


def draw_start(start, lead):
    return torch.randint(0, 9, lead) if start == "rows" else start


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("size", [1, 6, 7])
def test_sinusoids_equal_the_formula(size, start):
    lead, n = leading(), number(1, 7)
    x, start = normal(*lead, n, size), draw_start(start, lead)
    table = torch.stack([oracles.sinusoid(int(p), size) for p in places(lead, n, start).flatten()])
    agree(Sinusoidal(size)(x, start=start), x + table.reshape(x.shape), [x])


FORMS = {"interleaved": oracles.sinusoid, "halves": oracles.sinusoid_halves, "fairseq": oracles.sinusoid_fairseq}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("size", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("sines", ["halves", "fairseq"])
def test_sinusoids_of_other_toolkits_equal_their_formulas(sines, size, start):
    lead, n = leading(), number(1, 7)
    x, start = normal(*lead, n, size), draw_start(start, lead)
    table = torch.stack([FORMS[sines](int(p), size) for p in places(lead, n, start).flatten()])
    agree(Sinusoidal(size, sines=sines)(x, start=start), x + table.reshape(x.shape), [x])


@pytest.mark.parametrize("size", [4, 7, 64, 65])
def test_halves_are_those_of_transformers_marian(size):
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    theirs = marian.MarianSinusoidalPositionalEmbedding(100, size)
    if hasattr(theirs, "create_weight"):  # newer versions fill the table when they initialise weights
        theirs.weight = torch.nn.Parameter(theirs.create_weight(), requires_grad=False)
    expected = theirs(torch.Size([1, 40]), past_key_values_length=50)
    found = Sinusoidal(size, sines="halves")(torch.zeros(40, size), start=50)
    torch.testing.assert_close(found, expected.reshape(40, size), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [4, 7, 64, 65])
def test_fairseqs_are_those_of_transformers_m2m100(size):
    m2m100 = pytest.importorskip("transformers.models.m2m_100.modeling_m2m_100")
    theirs = m2m100.M2M100SinusoidalPositionalEmbedding(100, size, padding_idx=1)
    ids = torch.full((1, 40), 5)
    torch.testing.assert_close(
        Sinusoidal(size, sines="fairseq")(torch.zeros(1, 40, size)), theirs(ids), rtol=1e-5, atol=1e-5
    )
    late = theirs(ids[:, :1], past_key_values_length=39)
    torch.testing.assert_close(
        Sinusoidal(size, sines="fairseq")(torch.zeros(1, 1, size), start=39), late, rtol=1e-5, atol=1e-5
    )


@pytest.mark.unchecked
def test_an_order_of_sines_that_is_none_is_refused():
    with pytest.raises(ArgumentError, match="sines: 'marian' given, expected 'interleaved', 'halves' or 'fairseq'"):
        Sinusoidal(6, sines="marian")


@pytest.mark.parametrize("start", STARTS)
def test_sinusoids_may_be_concatenated(start):
    lead, n = leading(), number(1, 7)
    x, start = normal(*lead, n, 5), draw_start(start, lead)
    table = torch.stack([oracles.sinusoid(int(p), 4) for p in places(lead, n, start).flatten()])
    expected = torch.cat([x, table.reshape(*lead, n, 4)], dim=-1)
    agree(Sinusoidal(4, join="concatenate")(x, start=start), expected, [x])


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("join", ["add", "concatenate"])
def test_embedded_positions_are_rows_of_a_table(join, start):
    lead, n = leading(), number(1, 7)
    module = Embedded(6, length=20, join=join).double()
    (table,) = module.parameters()
    assert table.shape == (20, 6)
    x, start = normal(*lead, n, 6), draw_start(start, lead)
    rows = torch.stack([table[int(p)] for p in places(lead, n, start).flatten()]).reshape(*lead, n, 6)
    agree(module(x, start=start), x + rows if join == "add" else torch.cat([x, rows], -1), [x, table])


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("size", [2, 6, 14])
def test_rotary_equals_the_formula(size, start):
    lead, n = leading(), number(1, 7)
    x, start = normal(*lead, n, size), draw_start(start, lead)
    vectors = zip(x.reshape(-1, size), places(lead, n, start).flatten(), strict=True)
    expected = torch.stack([oracles.rotary(one, int(p)) for one, p in vectors]).reshape(x.shape)
    agree(Rotary(size)(x, start=start), expected, [x])


def test_rotary_keeps_lengths_and_tells_only_distances():
    rotary, q, k = Rotary(6), normal(1, 6), normal(1, 6)
    agree(rotary(q, start=9).norm(), q.norm())
    near, far = ((rotary(q, start=a) @ rotary(k, start=b).mT) for a, b in [(2, 5), (102, 105)])
    agree(near, far, [q, k])
    assert not torch.allclose(near, rotary(q, start=2) @ rotary(k, start=6).mT)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Sinusoidal(6),
        lambda: Sinusoidal(6, sines="halves"),
        lambda: Sinusoidal(6, sines="fairseq"),
        lambda: Embedded(6, length=9),
        lambda: Sinusoidal(6, join="concatenate"),
    ],
)
def test_packed_sequences_are_counted_each_from_the_start(build):
    module, sequences = build().double(), [normal(length, 6) for length in (3, 1, 5)]
    packed = module(torch.cat(sequences), span=Packed([0, 3, 4, 9]))
    agree(packed, torch.cat([module(x) for x in sequences]), [*sequences, *module.parameters()])


@pytest.mark.parametrize(
    "build",
    [
        lambda: Sinusoidal(6),
        lambda: Sinusoidal(6, sines="fairseq"),
        lambda: Embedded(6, length=20),
        lambda: Rotary(6),
    ],
)
def test_a_start_is_a_place_in_the_whole(build):
    """One step at a time with a start equals all positions at once."""
    module, x = build().double(), normal(2, 7, 6)
    whole = module(x)
    agree(torch.cat([module(x[:, i : i + 1], start=i) for i in range(7)], dim=1), whole, [x])
    starts = torch.tensor([4, 1])
    steps = module(torch.stack([x[0, 4:6], x[1, 1:3]]), start=starts)
    agree(steps, torch.stack([whole[0, 4:6], whole[1, 1:3]]), [x])


@pytest.mark.parametrize("join", ["add", "concatenate"])
def test_a_grid_has_half_the_channels_for_rows_and_half_for_columns(join):
    lead, height, width = leading(2), number(1, 4), number(1, 5)
    x = normal(*lead, 8, height, width)
    table = torch.stack(
        [torch.stack([oracles.sinusoid_2d(r, c, 8) for c in range(width)], dim=-1) for r in range(height)], dim=-2
    ).expand(*lead, -1, -1, -1)
    expected = x + table if join == "add" else torch.cat([x, table], dim=-3)
    agree(Sinusoidal2D(8, join=join)(x), expected, [x])


@pytest.mark.parametrize("build", [lambda: Sinusoidal(6), lambda: Embedded(6, length=9)])
def test_positions_break_permutation_equivariance(build):
    heads, positions = Heads(6, heads=2).double(), build().double()
    x, order = normal(1, 7, 6), torch.arange(7).roll(3)
    agree(heads(x[:, order]), heads(x)[:, order])
    assert not torch.allclose(heads(positions(x[:, order])), heads(positions(x))[:, order])


def test_positions_far_out_keep_their_precision():
    """The angle is computed in more than half precision: neighbours at 3,000 stay apart in bfloat16."""
    x = torch.zeros(2, 64, dtype=torch.bfloat16)
    near = Sinusoidal(64)(x, start=3000)
    expected = torch.stack([oracles.sinusoid(p, 64) for p in (3000, 3001)])
    assert near.dtype == torch.bfloat16
    assert (near.double() - expected).abs().max() < 0.01
    turned = Rotary(64)(torch.ones(2, 64, dtype=torch.bfloat16), start=3000)
    expected = torch.stack([oracles.rotary(torch.ones(64, dtype=torch.float64), p) for p in (3000, 3001)])
    assert (turned.double() - expected).abs().max() < 0.03


def test_rotary_takes_starts_from_the_host():
    rotary, x = Rotary(4), torch.randn(2, 3, 4)
    torch.testing.assert_close(rotary(x, start=torch.tensor([1, 2]))[1], rotary(x[1], start=2))
