"""Rows of a table: a row refuses every feature that it does not list, in a message that names it."""

import pytest
import torch

from regard.errors import BackendError
from regard.kernels import planning, triton
from regard.kernels.planning import (
    COMPILING,
    HALF,
    NEEDS_TRITON,
    Condition,
    Request,
    Row,
    Table,
    compiling,
    has_kernel,
    listing,
)

EVEN = Condition(lambda request: request.sizes["width"] % 2 == 0, "it serves even widths")
FAST = Row(
    name="fast",
    devices=("cuda", "mps"),
    dtypes=HALF,
    features=frozenset({"dropout", "a mask"}),
    most={"width": 64},
    conditions=(EVEN,),
)
PLAIN = Row(name="plain", features=None)
WORK = Table("work of a test", FAST, PLAIN, steps={"width": (64,)}, exact=frozenset({"a mask"}))
del planning.TABLES[WORK.work]
REQUEST = Request("cuda", (torch.float16,), ("dropout",), {"width": 64})
REFUSED = {
    "device": ({"device": "cpu"}, "it runs on cuda and mps, not on cpu"),
    "dtype": ({"dtypes": (torch.float16, torch.float64)}, "it takes float16 and bfloat16, not float64"),
    "feature": ({"features": ("a mask", "a bias")}, "it does not serve a bias"),
    "features": ({"features": ("x", "dropout", "y", "z")}, "it does not serve x, y or z"),
    "size": ({"sizes": {"width": 66}}, "width: 66 given, expected at most 64"),
    "condition": ({"sizes": {"width": 7}}, "it serves even widths"),
    "all": (
        {"device": "cpu", "dtypes": (torch.float32,), "features": ("x",), "sizes": {"width": 65}},
        "it runs on cuda and mps, not on cpu; it takes float16 and bfloat16, not float32; it does not serve x; "
        "width: 65 given, expected at most 64; it serves even widths",
    ),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_listed_is_refused(change, words):
    request = REQUEST._replace(**change)
    assert FAST.refusal(request) == words
    assert not FAST.serves(request)
    assert WORK.ask(request) is WORK.choose(request) is PLAIN


def test_what_is_listed_is_served():
    for features in ((), ("a mask",), ("dropout", "a mask")):
        request = REQUEST._replace(features=features)
        assert FAST.serves(request)
        assert FAST.refusal(request) is None
        assert WORK.ask(request) is WORK.choose(request) is FAST


def test_the_plain_expression_serves_all():
    request = Request("xpu", (torch.float64,), ("whatever there may be",), {"width": 1 << 40})
    assert PLAIN.serves(request)
    assert PLAIN.refusal(request) is None


def test_triton_is_looked_for(monkeypatch):
    row = Row(name="kernel", features=frozenset(), conditions=(NEEDS_TRITON,))
    request = Request("cuda", (torch.float32,))
    monkeypatch.setattr(triton, "INSTALLED", False)
    assert row.refusal(request) == "Triton is not installed"
    monkeypatch.setattr(triton, "INSTALLED", True)
    assert row.serves(request)


def test_a_compiler_is_a_feature(monkeypatch):
    assert compiling() == ()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert compiling() == (COMPILING,)


def test_listing():
    assert [listing("a"), listing("ab"), listing("abc", "or")] == ["a", "a and b", "a, b or c"]


# ---- backends chosen, cached, forced and planned


def test_a_row_is_taken_where_it_wins():
    slow = Row(name="slow", features=frozenset({"dropout"}), wins=lambda request: request.sizes["width"] < 8)
    work = Table("work of a test", slow, PLAIN)
    del planning.TABLES[work.work]
    assert work.choose(REQUEST) is PLAIN
    assert work.choose(REQUEST._replace(sizes={"width": 7})) is slow
    assert work.plan(REQUEST).reasons == {"slow": "plain is faster here"}


def test_sizes_between_two_steps_are_one_kind():
    WORK.known.clear()
    for width in range(0, 200, 2):
        assert WORK.choose(REQUEST._replace(sizes={"width": width})) is (FAST if width <= 64 else PLAIN)
    assert len(WORK.known) == 2
    for width in range(0, 20, 2):
        assert WORK.choose(REQUEST._replace(features=("a mask",), sizes={"width": width})) is FAST
    assert len(WORK.known) == 12


def test_other_rows_are_asked_anew(monkeypatch):
    assert WORK.choose(REQUEST) is FAST
    monkeypatch.setattr(WORK, "rows", (PLAIN,))
    assert WORK.choose(REQUEST) is PLAIN


def test_a_forced_row_serves_or_says_why_not(monkeypatch):
    monkeypatch.setattr(WORK.forced, "name", "plain")
    assert WORK.choose(REQUEST) is PLAIN
    monkeypatch.setattr(WORK.forced, "name", "fast")
    assert WORK.choose(REQUEST) is FAST
    with pytest.raises(BackendError, match="'fast' cannot serve this call: it does not serve x"):
        WORK.choose(REQUEST._replace(features=("x",)))


def test_of_two_rows_of_a_name_the_first_that_serves_is_forced(monkeypatch):
    odd = Condition(lambda request: request.sizes["width"] % 2 == 1, "it serves odd widths")
    one, two = Row(name="twins", conditions=(odd,)), Row(name="twins", conditions=(EVEN,))
    work = Table("work of a test", one, two, PLAIN)
    del planning.TABLES[work.work]
    monkeypatch.setattr(work.forced, "name", "twins")
    plain = REQUEST._replace(features=())
    assert work.choose(plain) is two
    assert work.choose(plain._replace(sizes={"width": 7})) is one


def test_a_plan_says_who_serves_and_why_not_those_before():
    plan = WORK.plan(REQUEST._replace(device="cpu"))
    assert str(plan) == "plain: dropout\n  not fast: it runs on cuda and mps"
    assert WORK.plan(REQUEST._replace(features=("dropout", "x"))).reasons == {"fast": "it does not serve x"}
    assert str(WORK.plan(REQUEST._replace(features=()))) == "fast: nothing beside"


@pytest.mark.parametrize("installed", [True, False])
def test_who_has_a_kernel(installed, monkeypatch):
    monkeypatch.setattr(triton, "INSTALLED", installed)
    for dtype in (torch.float32, *HALF):
        assert has_kernel("cuda", dtype, torch.bfloat16) == installed
        assert not has_kernel("cpu", dtype)
        assert not has_kernel("mps", dtype)
        assert not has_kernel("cuda", dtype, torch.float64)


def test_the_tables_of_all_works():
    """Every table's last row serves everything, and a table's rows have distinct names but for one pair of twins."""
    import regard.decoding.replay
    import regard.models.lstmn
    import regard.models.rnnsearch  # noqa: F401

    assert {"attention", "stack", "search"} <= {*planning.TABLES}
    for work in planning.TABLES.values():
        assert work.rows[-1].features is None
        assert all(row.features is not None for row in work.rows[:-1])
        strange = Request("xpu", (torch.int8,), ("something new",), dict.fromkeys(work.steps, 1 << 40))
        assert work.ask(strange) is work.rows[-1]
