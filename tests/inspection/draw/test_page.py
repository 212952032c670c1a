"""The page of an exhibit as a file: its contents, what it must never contain, and its size."""

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from html import unescape
from importlib import resources

import numpy as np
import pytest
import torch
from inspection import exhibits
from inspection.subjects import exhibit_of_subject

from regard.attention import Attention, Dot, Hard, Plain, Predictive
from regard.errors import ArgumentError, ShapeError
from regard.inspection import Page, Which, page
from regard.inspection.collect.exhibit import Exhibit, Numbers, View
from regard.inspection.draw.page import SCRIPTS, STYLES, half_planes, to_levels
from regard.tasks import Side

ALL = [exhibits.luong, exhibits.captioner, exhibits.han, exhibits.convnet, exhibits.without, exhibits.odd]


def embedded(made):
    """Return the JSON in a page as a browser reads it: up to the first script end tag."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script', made.html, re.DOTALL)
    return json.loads(found[1])


def weights_in(data, index, exhibit=0):
    """Unpack a view's weights by the rule in the page's script."""
    levels = np.frombuffer(zlib.decompress(base64.b64decode(data["bytes"])), np.uint8)
    view = data["exhibits"][exhibit]["views"][index]
    shape = (view["heads"], view["n"], view["m"])
    own = levels[view["at"] : view["at"] + int(np.prod(shape))].reshape(shape).astype(np.float64)
    return torch.tensor(np.array(view["low"])[:, None, None] + np.array(view["step"])[:, None, None] * own)


def with_weights(weights):
    _, n, m = weights.shape
    sides = {name: Side(tuple("x" * k), tuple(range(k)), tuple("x" * k)) for name, k in (("source", m), ("written", n))}
    view = View("v", "v", "cross", 0, "written", "source", weights)
    return Exhibit("kind", "task", "title", "run", sides, (view,))


@pytest.mark.parametrize("make", ALL)
def test_a_page_is_one_file_that_loads_nothing(make):
    made = page(make())
    head = made.html[: made.html.index("<body>")]
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', head)[1])
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    # No address outside the numbers, except the namespace of SVG.
    rest = made.html.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.|\bsrc=|@import|url\(|<link|<iframe|fetch\(|XMLHttp|WebSocket", rest)
    assert len(re.findall("<script", made.html)) == 2
    assert not re.search(r"<[^>]+ (on\w+|style)=", rest)  # the content security policy would refuse them


@pytest.mark.parametrize("kind", ["script", "style"])
def test_the_policy_names_what_the_page_carries_by_its_hash(kind):
    made = page(exhibits.without())
    (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", made.html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert f"{kind}-src 'sha256-{digest}'" in made.html


def test_no_text_can_leave_its_place():
    odd = exhibits.odd()
    texts = {"kind": "</title><script>", "run": "<!--<script>", "title": "</title>" + odd.title}
    made = page(replace(odd, labels={"</script>": 1.0}, **texts))
    data = embedded(made)["exhibits"][0]
    assert data["title"] == "</title>" + odd.title
    assert data["sides"]["source"]["pieces"] == list(odd.sides["source"].pieces)
    assert data["labels"] == [["</script>", 1.0]]
    raw = re.search(r'id="data">(.*?)</script>', made.html, re.DOTALL)[1]
    assert "<" not in raw
    assert raw.isascii()
    assert re.search(r"<title>(.*?)</title>", made.html)[1].startswith("&lt;/title&gt;")
    made.html.encode("utf-8")  # half a surrogate pair among the words raises no error


def test_a_large_model_stays_small():
    """The page has forty words, six layers, eight heads and three kinds of attention, and incompressible weights."""
    source, target = (" ".join([*exhibits.GERMAN] * 3).split()[:40], " ".join([*exhibits.ENGLISH] * 3).split()[:40])
    made = page(exhibits.transformer(source, target, links=list(range(40))))
    assert len(embedded(made)["exhibits"][0]["views"]) == 18
    assert len(made.html.encode()) < 2_000_000
    noise = torch.rand(144, 50, 50)
    assert len(page(with_weights(noise)).html.encode()) < 2_000_000


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 13), (8, 1, 63)])
@pytest.mark.parametrize("signed", [False, True])
def test_weights_come_back_within_half_a_step(shape, signed):
    weights = torch.randn(shape) * torch.rand(shape[0], 1, 1) * 10 if signed else torch.randn(shape).softmax(-1)
    found = weights_in(embedded(page(with_weights(weights))), 0)
    high, low = weights.amax((1, 2)).clamp(min=0), weights.amin((1, 2)).clamp(max=0)
    step = ((high - low) / 255).double()[:, None, None]
    assert ((found - weights).abs() <= 0.501 * step + 1e-6).all()


def test_what_is_nothing_stays_nothing():
    """A masked weight is zero on the page, too, and a view of zeros causes no division by zero."""
    weights = torch.rand(2, 5, 5).tril()
    weights[1] = 0
    found = weights_in(embedded(page(with_weights(weights))), 0)
    assert (found[weights == 0] == 0).all()
    assert to_levels("v", weights)[2][1] == 0.0


def test_everything_in_an_exhibit_is_in_its_page():
    exhibit = exhibits.transformer(layers=2, heads=2)
    data = embedded(page(exhibit))["exhibits"][0]
    assert [view["name"] for view in data["views"]] == [view.name for view in exhibit.views]
    assert data["tree"]["beam"] == 4
    assert [len(step) for step in data["tree"]["steps"]] == [len(step) for step in exhibit.tree.steps]
    assert [stage["symbol"] for stage in data["walk"]["stages"]] == ["q", "k", "e", "e/√d", "a", "Σ a v"]
    assert set(data["ablation"]["changes"]) == {view.name for view in exhibit.views}
    assert data["logProb"] == pytest.approx(exhibit.log_prob, rel=1e-3)
    document = embedded(page(exhibits.han()))["exhibits"][0]
    assert document["sides"]["source"]["sentences"] == list(exhibits.han().sides["source"].sentences)
    assert embedded(page(exhibits.captioner()))["exhibits"][0]["picture"].startswith("data:image/png;base64,")


def test_a_walk_has_its_formulas_and_minus_infinity():
    data = embedded(page(exhibit_of_subject("transformer", walk=Which("decoder.blocks.0.attention", 1, 1))))
    stages = {stage["symbol"]: stage for stage in data["exhibits"][0]["walk"]["stages"]}
    values = [value for (value,) in stages["e masked"]["values"]]
    assert values[2:] == ["-inf"] * (len(values) - 2)
    assert all(isinstance(value, float) for value in values[:2])
    assert stages["q"]["formula"] == "q = x W_Q + b_Q"
    assert stages["x_j"]["main"] is False
    assert stages["p"]["part"] == "The likeliest"


def test_gates_come_back_within_half_a_step():
    exhibit = exhibit_of_subject("luong", walk=True)
    data = embedded(page(exhibit))
    levels = np.frombuffer(zlib.decompress(base64.b64decode(data["bytes"])), np.uint8)
    shown = data["exhibits"][0]["walk"]["gates"]
    assert [gates["title"] for gates in shown] == [gates.title for gates in exhibit.walk.gates]
    for gates, own in zip(shown, exhibit.walk.gates, strict=True):
        assert [part["symbol"] for part in gates["parts"]] == list(own.values)
        for part, values in zip(gates["parts"], own.values.values(), strict=True):
            count = len(gates["pieces"]) * part["width"]
            units = levels[part["at"] : part["at"] + count].reshape(len(gates["pieces"]), part["width"])
            assert np.abs(part["low"] + part["step"] * units - values.numpy()).max() <= 0.501 * part["step"] + 1e-6
            assert part["means"] == pytest.approx(values.mean(-1).tolist(), rel=1e-3, abs=1e-6)


NOT_BAD = exhibits.encoder(["This", "pizza", "is", "not", "too", "bad", "."])
BAD = exhibits.encoder(["This", "pizza", "is", "bad", "."])


@pytest.mark.parametrize("pair", [(exhibits.transformer(layers=1, heads=2), exhibits.luong()), (NOT_BAD, BAD)])
def test_two_exhibits_share_a_page(pair):
    """The exhibits may have other models or inputs, other words and another number of words."""
    data = embedded(page(pair[0], against=pair[1]))
    assert [(each["kind"], each["title"]) for each in data["exhibits"]] == [(each.kind, each.title) for each in pair]
    for number, each in enumerate(pair):
        assert (weights_in(data, 0, exhibit=number) - each.views[0].weights).abs().max() < 0.01


def test_a_look_makes_a_page():
    attention = Attention(Dot(), span=Predictive(8, radius=2))
    look = attention.look(torch.randn(1, 3, 8), torch.randn(1, 5, 8), torch.randn(1, 5, 8))
    view = embedded(page(look, list("abcde"), list("xyz")))["exhibits"][0]["views"][0]
    assert (view["heads"], view["n"], view["m"], view["role"]) == (1, 3, 5, "cross")
    assert np.array(view["centre"]).shape == (1, 3)
    hard = Attention(Dot(), weighting=Hard()).look(torch.randn(1, 3, 8), torch.randn(1, 5, 8), torch.randn(1, 5, 8))
    assert np.array(embedded(page(hard))["exhibits"][0]["views"][0]["picked"]).shape == (1, 3)
    s = torch.randn(4, 8)
    plain = embedded(page(Attention(Dot(), weighting=Plain()).look(s, s, s), list("abcd")))
    assert plain["exhibits"][0]["views"][0]["role"] == "encoder"  # self-attention over one text
    assert (weights_in(plain, 0)[0] - s @ s.mT).abs().max() < (s @ s.mT).abs().max() / 100


def test_a_page_saves_and_shows_itself(tmp_path):
    made = page(exhibits.odd())
    assert isinstance(made, Page)
    path = made.save(tmp_path / "deep" / "look.html")
    assert path.read_text(encoding="utf-8") == made.html == str(made)
    assert [each.name for each in path.parent.iterdir()] == ["look.html"]
    frame = made._repr_html_()
    assert unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == made.html
    assert "script" not in re.sub(r'(srcdoc|sandbox)="[^"]*"', "", frame)
    assert len(repr(made)) < 100


def test_the_same_exhibit_gives_the_same_bytes():
    assert page(exhibits.luong()).html == page(exhibits.luong()).html


def test_every_script_is_in_use():
    there = {each.name for each in resources.files("regard.inspection.draw").joinpath("static").iterdir()}
    own = {f"{name}.css" for name in ("document", "graph", "report")}  # style sheets of other pages, and of a picture
    assert there == {f"{name}.js" for name in SCRIPTS} | {f"{name}.css" for name in STYLES} | own


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ArgumentError, match="finite"):
        page(with_weights(torch.full((1, 2, 2), torch.nan)))
    exhibit = with_weights(torch.rand(1, 2, 3))
    with pytest.raises(ArgumentError, match="'other' is not a view"):
        page(replace(exhibit, aligned="other"))
    with pytest.raises(ShapeError, match="weights for 3 pieces of 'source' given, which has 2"):
        page(replace(exhibit, sides={"source": Side(("a", "b"), (0, 1), ("a", "b"))}))
    with pytest.raises(ArgumentError, match="its own words"):
        page(exhibit, ["a"], ["b"])
    look = Attention(Dot()).look(torch.randn(3, 8), torch.randn(5, 8), torch.randn(5, 8))
    with pytest.raises(ShapeError, match="source: 5 words were expected"):
        page(look, ["a"], list("xyz"))


@pytest.mark.parametrize("shape", [(1,), (3, 7), (2, 5, 63)])
def test_planes_hold_halves(shape):
    values = torch.randn(shape) * 10 ** torch.randint(-6, 4, shape).float()
    planes = half_planes(values)
    pairs = np.stack(np.split(planes, 2)[::-1], -1)
    assert torch.equal(torch.tensor(pairs.copy().view("<f2").reshape(shape)), values.half())
    assert half_planes(torch.full(shape, 1e5)) is None


def with_numbers(exhibit, width):
    """Add random q, k and v of this head width to every view."""

    def numbers(view):
        heads, n, m = view.weights.shape
        q, k, v = (torch.randn(heads, count, width) for count in (n, m, m))
        return Numbers("dot", width**-0.5, query=q, keys=k, values=v)

    return replace(exhibit, views=tuple(replace(view, numbers=numbers(view)) for view in exhibit.views))


def large(words):
    source, target = ([*side * 20][:words] for side in (exhibits.GERMAN, exhibits.ENGLISH))
    return with_numbers(exhibits.transformer(source, target, links=list(range(words))), 64)


def left_out(made):
    return [view["numbers"]["left"] for view in embedded(made)["exhibits"][0]["views"]]


def test_forty_words_six_layers_eight_heads_stay_under_four_megabytes():
    made = page(large(40))
    assert len(made.html.encode()) < 4_000_000
    assert left_out(made) == [""] * 18


def test_a_larger_page_leaves_values_out_first_and_says_so():
    made = page(large(60))
    assert len(made.html.encode()) < 4_000_000
    assert set(left_out(made)) == {"", "values"}
    huge = left_out(page(large(100)))
    assert "size" in huge
    assert huge[[view.name for view in large(100).views].index("decoder.blocks.4.cross")] != "size"  # the first shown


def test_numbers_too_large_for_half_precision_are_left_out():
    exhibit = exhibit_of_subject("luong")
    view = exhibit.views[0]
    hot = replace(view, numbers=replace(view.numbers, keys=view.numbers.keys * 1e6))
    assert left_out(page(replace(exhibit, views=(hot,)))) == ["range"]
