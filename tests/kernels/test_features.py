"""A call in plain data: every field that a kernel could overlook is a feature or a size."""

from dataclasses import fields, replace

import pytest
import torch

from regard.attention import Additive, Attention, Causal, Dot, Location, Monotonic, Packed, Sparsemax
from regard.kernels import backends, describe
from regard.kernels.reference import Call, softmax
from regard.kernels.span_limits import Layout, SpanLimits, Window

CPU = torch.device("cpu")
OFFSETS, OTHERS, STARTS = torch.tensor([0, 2, 5]), torch.tensor([0, 3, 7]), torch.tensor([1, 2])
LAYOUT = Layout(OFFSETS, OFFSETS, 3, 3)
BIAS = torch.zeros(5, 7)

LIMITS = SpanLimits(5, 7, CPU, (2,))
CALL = Call(
    torch.zeros(2, 5, 4),
    torch.zeros(2, 7, 4),
    torch.zeros(2, 7, 3),
    LIMITS,
    compare=lambda query, keys: query @ keys.mT,
    weigh=softmax,
)
WINDOW = Window(2)

# New values of each field; each must change the description.
OF_CALL = {
    "query": [torch.zeros(3, 2, 5, 4), torch.zeros(2, 5, 4).double(), torch.zeros(2, 5, 4).requires_grad_()],
    "keys": [torch.zeros(2, 7, 6), torch.zeros(3, 2, 7, 4), torch.zeros(2, 7, 4).requires_grad_()],
    "values": [torch.zeros(2, 7, 9), torch.zeros(2, 7, 3).requires_grad_()],
    "limits": [replace(LIMITS, lengths=torch.tensor([7, 3]))],
    "score": ["bilinear", "additive"],
    "weighting": ["softmax", "hard", "gumbel", "sparsemax", "plain"],
    "vector": [torch.zeros(4, requires_grad=True)],
    "temperature": [0.5, 2.0],
    "dropout": [0.1],
}
OF_LIMITS = {
    "queries": [6],
    "keys": [8],
    "lengths": [torch.tensor([7, 3])],
    "causal": [0, 3, -1, STARTS],
    "window": [WINDOW],
    "windows": [(WINDOW,)],
    "masks": [(BIAS > 0,)],
    "biases": [(BIAS,), (BIAS.clone().requires_grad_(),)],
    "gates": [(BIAS,)],
    "slopes": [((STARTS, 0),), ((STARTS, 3),), ((STARTS, STARTS),), ((STARTS, 0), (STARTS, 0))],
    "layout": [LAYOUT],
}
OF_WINDOW = {"radius": [3], "centre": [torch.zeros(2, 5)], "start": [1, STARTS], "sigma": [1.5]}
OF_LAYOUT = {"key_offsets": [OTHERS], "longest": [4], "longest_key": [4]}
# Fields that no kernel can overlook: functions that `score` and `weighting` name, shapes that tensors have, and values
# that only spare a read from the device.
ELSEWHERE = {
    Call: {"compare": "score", "weigh": "weighting", "scale": "part of a bilinear score"},
    SpanLimits: {
        "device": "the query's",
        "batch": "the tensors'",
        "heads": "the tensors'",
        "min_length": "known of lengths",
        "needs_padding": "beside a layout alone",
    },
    Window: {},
    Layout: {"offsets": "whoever serves packed sequences reads them"},
}


@pytest.mark.parametrize(
    ("kind", "table"), [(Call, OF_CALL), (SpanLimits, OF_LIMITS), (Window, OF_WINDOW), (Layout, OF_LAYOUT)]
)
def test_every_field_is_described(kind, table):
    """A new field fails here until its changes are described, and until the rows that serve it list them."""
    assert {field.name for field in fields(kind)} == {*table, *ELSEWHERE[kind]}

    def described(**change):
        if kind is Call:
            return describe(replace(CALL, **change))
        if kind is SpanLimits:
            return describe(replace(CALL, limits=replace(LIMITS, **change)))
        part = {"window": replace(WINDOW, **change)} if kind is Window else {"layout": replace(LAYOUT, **change)}
        return describe(replace(CALL, limits=replace(LIMITS, **part)))

    seen = [described()]
    for name, values in table.items():
        for value in values:
            found = described(**{name: value})
            assert found != seen[0], (name, value)
            assert {*found.features} <= NAMED
            assert len({*found.features}) == len(found.features)
        changes = [described(**{name: value}) for value in values]
        if name not in ("temperature", "causal", "keys", "values", "query"):  # their values may be one feature
            assert len({(each.features, *each.sizes.values()) for each in changes}) == len(changes), name


NAMED = {value for name, value in vars(backends).items() if name.isupper() and isinstance(value, str)}
NAMED |= {*backends.WEIGHTS.values()}


def test_spans_that_a_layout_does_not_say():
    x, attention = torch.zeros(5, 4), Attention(Dot())
    packed, prepared = Packed([0, 2, 5]), attention.prepare(x)
    for rest, wanted in (
        ([], ()),
        ([Causal()], (backends.CAUSAL,)),
        ([Causal(2)], (backends.CAUSAL, backends.BESIDE_PACKED)),
        ([Monotonic(1)], (backends.BESIDE_PACKED,)),
    ):
        found = describe(attention.resolve_packed_call(x, prepared, packed, rest))
        assert {*found.features} == {backends.BILINEAR, backends.SOFTMAX, backends.PACKED, *wanted}
        assert (found.sizes["queries"], found.sizes["keys"]) == (3, 3)


def test_scores_and_weightings_by_name():
    x = torch.zeros(2, 5, 4)
    for attention, score, weights in (
        (Attention(Dot()), backends.BILINEAR, backends.SOFTMAX),
        (Attention(Additive(4, 4, hidden=3)), backends.ADDITIVE, backends.SOFTMAX),
        (Attention(Location(4, 5)), backends.OTHER_SCORES, backends.SOFTMAX),
        (Attention(Dot(), weighting=Sparsemax()), backends.BILINEAR, "sparsemax"),
    ):
        with torch.no_grad():
            found = describe(
                attention.resolve_call(attention.score.project_query(x), attention.prepare(x), x, None, False)
            )
        assert found.features == (score, weights)
        assert (found.device, found.dtypes) == ("cpu", (torch.float32,))


def test_a_gradient_of_the_vector_alone_counts():
    call = replace(CALL, score="additive", vector=torch.zeros(4, requires_grad=True))
    assert backends.GRADIENT in describe(call).features
    with torch.no_grad():
        assert backends.GRADIENT not in describe(call).features
