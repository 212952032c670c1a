"""Bad input: a regard error that names the argument, the value given and the value expected."""

from dataclasses import dataclass

import pytest
import torch
from attention.cases import normal

from regard.attention import Attention, Block, Decoder, Encoder, Heads, Learned, use_backend
from regard.attention.grid import GridSelfAttention
from regard.attention.positions import Embedded, Rotary, Sinusoidal, Sinusoidal2D
from regard.attention.score import Additive, Cosine, Dot, General, Location
from regard.attention.span import Alibi, Causal, Lengths, Mask, Monotonic, Packed, Predictive
from regard.attention.weighting import Gumbel, Softmax, Sparsemax
from regard.errors import ArgumentError, BackendError, DeviceError, DtypeError, RegardError, ShapeError

pytestmark = pytest.mark.unchecked  # the shape-checking hook would raise before the library does


def x(*shape, **options):
    return torch.randn(*shape, **options)


@dataclass
class Bad:
    """A call that must fail: the error it raises and the fragments that its message must contain."""

    call: object
    error: type[RegardError]
    says: tuple[str, ...]


def lengths(values, m=6, rows=2):
    return lambda: Attention(Dot())(x(rows, 3, 5), x(rows, m, 5), span=Lengths(values))


def masked(mask):
    return lambda: Attention(Dot())(x(2, 3, 5), x(2, 6, 5), span=Mask(mask))


def packed(offsets, key_offsets=None, n=6):
    return lambda: Attention(Dot())(x(n, 5), x(n, 5), span=Packed(offsets, key_offsets))


def foreign_prepared():
    one, other = Attention(General(5, 5)), Attention(General(5, 5))
    other(x(3, 5), one.prepare(x(6, 5)))


def foreign_heads():
    one, other = Heads(6, heads=2), Heads(6, heads=2)
    other(x(3, 6), one.prepare(x(5, 6)))


def overflow():
    heads = Heads(6, heads=2)
    cache = heads.cache(2, 3)
    for _ in range(4):
        cache.extend(heads.prepare(x(2, 1, 6)))


def foreign_extension():
    cache = Heads(6, heads=2).cache(2, 3)
    cache.extend(Heads(6, heads=2).prepare(x(2, 1, 6)))


WIDTHS = {
    "one query alone": Bad(lambda: Attention(Dot())(x(5), x(6, 5)), ShapeError, ("query", "[5]", "query[None]")),
    "one key alone": Bad(lambda: Attention(Dot())(x(3, 5), x(5)), ShapeError, ("keys", "[5]", "keys[None]")),
    "one query alone beside prepared keys": Bad(
        lambda: (lambda attention: attention(x(5), attention.prepare(x(6, 5))))(Attention(Dot())),
        ShapeError,
        ("query", "[5]", "query[None]"),
    ),
    "one query alone in heads": Bad(lambda: Heads(6, heads=2)(x(6), x(4, 6)), ShapeError, ("x", "[6]", "x[None]")),
    "dot": Bad(lambda: Attention(Dot())(x(3, 5), x(6, 4)), ShapeError, ("query", "keys", "5", "4")),
    "general query": Bad(lambda: Attention(General(5, 3))(x(3, 4), x(6, 3)), ShapeError, ("query", "4", "5")),
    "general keys": Bad(lambda: Attention(General(5, 3))(x(3, 5), x(6, 7)), ShapeError, ("keys", "7", "3")),
    "additive query": Bad(
        lambda: Attention(Additive(5, 3, hidden=4))(x(3, 7), x(6, 3)), ShapeError, ("query", "7", "5")
    ),
    "additive keys": Bad(lambda: Attention(Additive(5, 3, hidden=4))(x(3, 5), x(6, 7)), ShapeError, ("keys", "7", "3")),
    "cosine query": Bad(lambda: Attention(Cosine("query"))(x(3, 5), x(6, 5)), ShapeError, ("query", "5", "keys")),
    "location query": Bad(lambda: Attention(Location(5, length=9))(x(3, 4), x(6, 5)), ShapeError, ("query", "4", "5")),
    "predictive query": Bad(
        lambda: Attention(Dot(), span=Predictive(4, 2))(x(3, 5), x(6, 5)), ShapeError, ("query", "5", "4")
    ),
    "values": Bad(lambda: Attention(Dot())(x(3, 5), x(6, 5), x(7, 5)), ShapeError, ("values", "7", "6")),
    "leading": Bad(lambda: Attention(Dot())(x(2, 3, 5), x(4, 6, 5)), ShapeError, ("keys", "2", "4")),
    "heads": Bad(lambda: Heads(6, heads=2)(x(3, 5)), ShapeError, ("5", "6")),
    "memory": Bad(lambda: Heads(6, heads=2, memory_size=4)(x(3, 6), x(5, 6)), ShapeError, ("memory", "6", "4")),
    "learned": Bad(lambda: Attention(Dot(), query=Learned(2, 4))(None, x(6, 5)), ShapeError, ("4", "5")),
    "one dimension": Bad(lambda: Attention(Dot())(x(5), x(6, 5)), ShapeError, ("query",)),
    "sinusoids": Bad(lambda: Sinusoidal(6)(x(3, 5)), ShapeError, ("5", "6")),
    "rotary": Bad(lambda: Rotary(6)(x(3, 4)), ShapeError, ("4", "6")),
    "grid": Bad(lambda: GridSelfAttention(8)(x(2, 7, 3, 3)), ShapeError, ("7", "8")),
}
SPANS = {
    "length too long": Bad(lengths([3, 7]), ArgumentError, ("lengths", "7", "6")),
    "length too long tensor": Bad(lengths(torch.tensor([3, 7])), ArgumentError, ("lengths", "7", "6")),
    "length negative": Bad(lengths([3, -1]), ArgumentError, ("lengths", "-1", "0")),
    "length negative tensor": Bad(lengths(torch.tensor([3, -1])), ArgumentError, ("lengths", "-1", "0")),
    "length float": Bad(lengths(torch.tensor([3.0, 2.0])), ArgumentError, ("lengths", "float", "whole")),
    "length float list": Bad(lengths([3.0, 2.5]), ArgumentError, ("lengths", "float", "whole")),
    "length bool": Bad(lengths(torch.tensor([True, False])), ArgumentError, ("lengths", "bool", "whole")),
    "lengths too many": Bad(lengths([3, 3, 3]), ShapeError, ("lengths", "3", "2")),
    "mask float": Bad(masked(torch.ones(3, 6)), ArgumentError, ("mask", "float", "bool")),
    "mask int": Bad(masked(torch.ones(3, 6, dtype=torch.long)), ArgumentError, ("mask", "int64", "bool")),
    "mask shape": Bad(masked(torch.ones(3, 5, dtype=torch.bool)), ShapeError, ("mask", "5", "6")),
    "mask rows": Bad(masked(torch.ones(4, 3, 6, dtype=torch.bool)), ShapeError, ("mask", "4", "2")),
    "radius negative": Bad(lambda: Monotonic(-1), ArgumentError, ("radius", "-1")),
    "radius negative predictive": Bad(lambda: Predictive(5, -2), ArgumentError, ("radius", "-2")),
    "radius nought predictive": Bad(lambda: Predictive(5, 0), ArgumentError, ("radius", "0")),
    "start float": Bad(
        lambda: Attention(Dot())(x(2, 3, 5), x(2, 6, 5), span=Causal(torch.tensor([0.5, 1.0]))),
        ArgumentError,
        ("start", "float", "whole"),
    ),
    "alibi heads": Bad(lambda: Heads(6, heads=2)(x(3, 6), span=Alibi(3)), ShapeError, ("heads", "3", "2")),
    "alibi axis": Bad(lambda: Attention(Dot())(x(2, 3, 5), x(2, 6, 5), span=Alibi(3)), ShapeError, ("heads", "3", "2")),
    "alibi none": Bad(lambda: Attention(Dot())(x(3, 5), x(6, 5), span=Alibi(3)), ShapeError, ("heads", "3")),
    "offsets falling": Bad(packed([0, 4, 3, 6]), ArgumentError, ("offsets", "4", "3")),
    "offsets short": Bad(packed([0, 2, 5]), ArgumentError, ("offsets", "5", "6")),
    "offsets long": Bad(packed(torch.tensor([0, 2, 7])), ArgumentError, ("offsets", "7", "6")),
    "offsets start": Bad(packed([1, 2, 6]), ArgumentError, ("offsets", "1", "0")),
    "offsets float": Bad(packed(torch.tensor([0.0, 6.0])), ArgumentError, ("offsets", "float", "whole")),
    "key offsets": Bad(packed([0, 2, 6], [0, 2, 5]), ArgumentError, ("keys", "offsets", "5", "6")),
    "packed mask": Bad(
        lambda: Attention(Dot())(x(6, 5), x(6, 5), span=Packed([0, 2, 6]) & Mask(torch.ones(5, 6, dtype=torch.bool))),
        ShapeError,
        ("mask", "5", "6"),
    ),
    "key offsets count": Bad(packed([0, 2, 6], [0, 2, 4, 6]), ArgumentError, ("key_offsets", "3", "4")),
    "location too long": Bad(
        lambda: Attention(Location(5, length=4))(x(3, 5), x(6, 5)), ArgumentError, ("length", "4", "6")
    ),
    "no keys": Bad(lambda: Attention(Dot())(x(3, 5), x(0, 5)), ShapeError, ("keys", "0")),
    "no keys heads": Bad(lambda: Heads(6, heads=2)(x(3, 6), x(0, 6)), ShapeError, ("0",)),
    "no blocks": Bad(lambda: Attention(Dot()).fold(x(3, 5), []), ArgumentError, ("blocks",)),
}
BUILT = {
    "heads and size": Bad(lambda: Heads(6, heads=4), ArgumentError, ("heads", "6", "4")),
    "heads and query_size": Bad(lambda: Heads(6, heads=2, query_size=5), ArgumentError, ("query_size", "5", "2")),
    "heads and value_size": Bad(lambda: Heads(6, heads=2, value_size=5), ArgumentError, ("value_size", "5", "2")),
    "heads and memory_size": Bad(
        lambda: Heads(6, heads=2, memory_size=5, split="input"), ArgumentError, ("memory_size", "5", "2")
    ),
    "no heads": Bad(lambda: Heads(6, heads=0), ArgumentError, ("heads", "0")),
    "split": Bad(lambda: Heads(6, heads=2, split="both"), ArgumentError, ("split", "both", "projection", "input")),
    "join": Bad(lambda: Sinusoidal(6, join="plus"), ArgumentError, ("join", "plus", "add", "concatenate")),
    "join embedded": Bad(lambda: Embedded(6, length=9, join="plus"), ArgumentError, ("join", "plus", "add")),
    "join grid": Bad(lambda: Sinusoidal2D(8, join="plus"), ArgumentError, ("join", "plus", "add")),
    "norm": Bad(lambda: Block(6, 2, norm="both"), ArgumentError, ("norm", "both", "pre", "post")),
    "norm encoder": Bad(lambda: Encoder(6, 2, 2, norm="both"), ArgumentError, ("norm", "both", "pre", "post")),
    "norm decoder": Bad(lambda: Decoder(6, 2, 2, norm="both"), ArgumentError, ("norm", "both", "pre", "post")),
    "dropout above": Bad(lambda: Attention(Dot(), dropout=1.5), ArgumentError, ("dropout", "1.5", "1")),
    "dropout below": Bad(lambda: Attention(Dot(), dropout=-0.1), ArgumentError, ("dropout", "-0.1", "0")),
    "dropout heads": Bad(lambda: Heads(6, heads=2, dropout=1.5), ArgumentError, ("dropout", "1.5")),
    "dropout block": Bad(lambda: Block(6, 2, dropout=1.5), ArgumentError, ("dropout", "1.5")),
    "temperature": Bad(lambda: Softmax(temperature=0.0), ArgumentError, ("temperature", "0")),
    "tau": Bad(lambda: Gumbel(tau=-1.0), ArgumentError, ("tau", "-1")),
    "sharpness": Bad(lambda: Cosine("sharp"), ArgumentError, ("sharpness", "sharp", "learned", "query")),
    "score for weighting": Bad(
        lambda: Attention(Dot(), weighting=Dot()), ArgumentError, ("weighting", "Dot", "Weighting")
    ),
    "weighting for score": Bad(lambda: Attention(Softmax()), ArgumentError, ("score", "Softmax", "Score")),
    "span for weighting": Bad(
        lambda: Attention(Dot(), weighting=Causal()), ArgumentError, ("weighting", "Causal", "Weighting")
    ),
    "weighting for span": Bad(lambda: Attention(Dot(), span=Softmax()), ArgumentError, ("span", "Softmax", "Span")),
    "tensor for span": Bad(
        lambda: Attention(Dot())(x(2, 3, 5), x(2, 6, 5), span=torch.ones(3, 6)),
        ArgumentError,
        ("span", "Tensor", "Span"),
    ),
    "query module": Bad(lambda: Attention(Dot(), query=Dot()), ArgumentError, ("query", "Dot", "Learned")),
    "rotary odd": Bad(lambda: Rotary(5), ArgumentError, ("size", "5")),
    "reduction": Bad(lambda: GridSelfAttention(6), ArgumentError, ("channels", "6", "8")),
    "embedded past its end": Bad(lambda: Embedded(6, length=4)(x(5, 6)), ArgumentError, ("position", "4", "3")),
    "embedded start": Bad(lambda: Embedded(6, length=4)(x(2, 6), start=3), ArgumentError, ("position", "4", "3")),
}
CALLED = {
    "prepared elsewhere": Bad(foreign_prepared, ArgumentError, ("keys", "Prepared", "another")),
    "heads prepared elsewhere": Bad(foreign_heads, ArgumentError, ("memory", "Prepared", "another")),
    "cache of another": Bad(foreign_extension, ArgumentError, ("Prepared", "another")),
    "cache full": Bad(overflow, ArgumentError, ("cache", "3", "size")),
    "no query": Bad(lambda: Attention(Dot())(None, x(6, 5)), ArgumentError, ("query", "None", "Learned")),
    "a query too many": Bad(
        lambda: Attention(Dot(), query=Learned(2, 5))(x(3, 5), x(6, 5)), ArgumentError, ("query", "None", "Learned")
    ),
    "devices": Bad(lambda: Attention(Dot())(x(3, 5), x(6, 5, device="meta")), DeviceError, ("keys", "meta", "cpu")),
    "devices values": Bad(
        lambda: Attention(Dot())(x(3, 5), x(6, 5), x(6, 5, device="meta")), DeviceError, ("values", "meta", "cpu")
    ),
    "devices parameters": Bad(
        lambda: Attention(General(5, 5).to("meta"))(x(3, 5), x(6, 5)), DeviceError, ("meta", "cpu")
    ),
    "devices heads": Bad(
        lambda: Heads(6, heads=2)(x(3, 6), x(5, 6, device="meta")), DeviceError, ("memory", "meta", "cpu")
    ),
    "devices mask": Bad(
        lambda: Attention(Dot())(x(3, 5), x(6, 5), span=Mask(torch.ones(3, 6, dtype=torch.bool, device="meta"))),
        DeviceError,
        ("mask", "meta", "cpu"),
    ),
    "dtypes": Bad(
        lambda: Attention(Dot())(x(3, 5), x(6, 5, dtype=torch.float64)), DtypeError, ("keys", "float64", "float32")
    ),
    "dtypes values": Bad(
        lambda: Attention(Dot())(x(3, 5), x(6, 5), x(6, 5).bfloat16()), DtypeError, ("values", "bfloat16", "float32")
    ),
    "dtypes parameters": Bad(
        lambda: Attention(General(5, 5))(x(3, 5).double(), x(6, 5).double()), DtypeError, ("float64", "float32")
    ),
    "dtypes heads": Bad(lambda: Heads(6, heads=2)(x(3, 6).double()), DtypeError, ("float64", "float32")),
    "dtypes integers": Bad(
        lambda: Attention(Dot())(torch.ones(3, 5).long(), torch.ones(6, 5).long()), DtypeError, ("query", "int64")
    ),
    "unknown backend": Bad(lambda: use_backend("fast").__enter__(), RegardError, ("fast", "dense", "sdpa")),
    "backend that cannot": Bad(
        lambda: forced("sdpa", Attention(Dot(), weighting=Sparsemax())), BackendError, ("sdpa",)
    ),
    "backend that cannot additive": Bad(
        lambda: forced("window", Attention(Additive(5, 5, hidden=4))), BackendError, ("window",)
    ),
    "backend for no packing": Bad(lambda: forced("varlen", Attention(Dot())), BackendError, ("varlen",)),
}


def forced(backend, attention):
    with use_backend(backend):
        attention(x(3, 5), x(6, 5))


@pytest.mark.parametrize(
    "bad", [pytest.param(bad, id=name) for table in (WIDTHS, SPANS, BUILT, CALLED) for name, bad in table.items()]
)
def test_bad_input_is_named(bad):
    with pytest.raises(bad.error) as error:
        bad.call()
    message = str(error.value)
    for fragment in bad.says:
        assert fragment in message, f"{fragment!r} is missing from: {message}"


def test_an_argument_error_is_a_value_error_too():
    with pytest.raises(ValueError, match="heads"):
        Heads(6, heads=4)


def test_mixed_dtypes_are_fine_under_autocast():
    attention, heads = Attention(General(5, 5)), Heads(6, heads=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.isfinite(attention(x(3, 5).bfloat16(), x(6, 5))).all()
        assert torch.isfinite(Attention(Dot())(x(3, 5), x(6, 5), x(6, 5).bfloat16())).all()
        assert torch.isfinite(Attention(Additive(5, 5, hidden=4))(x(3, 5).bfloat16(), x(6, 5))).all()
        assert torch.isfinite(heads(x(3, 6), x(5, 6).bfloat16())).all()


def test_a_prepared_of_its_own_module_is_accepted_by_a_copy_of_nothing_else():
    attention = Attention(General(5, 5)).double()
    prepared = attention.prepare(normal(6, 5))
    assert attention(normal(3, 5), prepared).shape == (3, 5)


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
