"""The pictures of the pages in `attention/`, drawn by `regard.inspection.heatmap`, and the graphs of models.

`python docs/pictures.py` writes them all, `python docs/pictures.py dot soft` these two. Words stand for vectors that
are made by hand, one number a feature, and parameters are set, not trained: a picture shows what a mechanism does when
it has what it needs. Random numbers come from Python's own generator, whose numbers stay the same everywhere.

One picture is of a trained model: `verb-object`, whose weights stand in images/verb-object.json, from the run that the
page of self-attention trains. `python docs/pictures.py --run runs/phrasebook` takes them from a run again.

n queries · m keys · d features
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Block,
    Causal,
    Cosine,
    Decoder,
    Dot,
    Embedded,
    Encoder,
    General,
    GridAttention,
    GridSelfAttention,
    Gumbel,
    Hard,
    Heads,
    Learned,
    Lengths,
    Location,
    Mask,
    Monotonic,
    Packed,
    Plain,
    Predictive,
    Rotary,
    Score,
    Sinusoidal,
    Sinusoidal2D,
    Softmax,
    Span,
    Sparsemax,
    use_backend,
    watch,
)
from regard.errors import RegardError
from regard.inspection import ModelGraph, dependency_trees, exhibit_of, heatmap, model_graph, save
from regard.inspection.collect.exhibit import merge
from regard.inspection.draw.picture import draw_dependencies
from regard.models import build, read_model_config
from regard.run import load

IMAGES = Path(__file__).parent / "attention" / "images"
GRAPH_IMAGES = Path(__file__).parent / "guide" / "images"
GRAPHS = {"rnnsearch": "small", "transformer": "base"}  # of models.md: the kind, and its preset

FEATURES = ("person", "eating", "past", "food", "day", "pointing", "being", "negation", "degree", "quality")
WORDS = {
    "I": "person",
    "ate": "eating past",
    "pizza": "food",
    "yesterday": "day",
    "ich": "person",
    "habe": "past",
    "gestern": "day",
    "Pizza": "food",
    "gegessen": "eating",
    "this": "pointing",
    "is": "being",
    "not": "negation",
    "too": "degree",
    "bad": "quality",
    "·": "",
}
ATE = ["I", "ate", "pizza", "yesterday"]
GEGESSEN = ["ich", "habe", "gestern", "Pizza", "gegessen"]
PIZZA = "She ate the pizza."
BAD = ["this", "pizza", "is", "not", "too", "bad"]


class Picture(NamedTuple):
    """What is drawn: weights [n, m] or [panels, n, m], and the words beside them."""

    weights: Tensor
    source: Sequence[str] | None = None
    target: Sequence[str] | None = None
    title: str | Sequence[str] | None = None
    drawn: bool = False  # whether keys were drawn at random, so that another machine may draw others
    tree: dependency_trees.ParsedTree | None = None  # of the words, which look at one another


PICTURES: dict[str, Callable[[], Picture]] = {}


def picture(make: Callable[[], Picture]) -> Callable[[], Picture]:
    """Enters a function into the table of pictures, under its own name."""
    PICTURES[make.__name__.replace("_", "-")] = make
    return make


def embed(words: Sequence[str], strength: float = 1.0) -> Tensor:
    """One row a word, one number a feature: `strength` where the word has it."""
    return strength * torch.tensor([[float(name in WORDS[word].split()) for name in FEATURES] for word in words])


def link(*pairs: tuple[str, str], strength: float = 1.0, same: float = 0.0) -> Tensor:
    """A matrix W for which q W k is high where the query has the first feature of a pair and the key the second."""
    matrix = same * torch.eye(len(FEATURES))
    for query, key in pairs:
        matrix[FEATURES.index(query), FEATURES.index(key)] += strength
    return matrix


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Unit-normal numbers."""
    source = random.Random(seed)
    return torch.tensor([source.gauss(0, 1) for _ in range(torch.Size(shape).numel())]).reshape(shape)


def untrained(module: nn.Module, seed: int = 0, size: float = 1.0) -> nn.Module:
    """The module with unit-normal numbers over the root of their width, and no biases."""
    for number, (name, parameter) in enumerate(module.named_parameters()):
        if name.endswith("bias"):
            parameter.data.zero_()
        elif "norm" not in name:
            parameter.data = size * normal(*parameter.shape, seed=seed + number) / parameter.shape[-1] ** 0.5
    return module


# ---- scores


@picture
def dot() -> Picture:
    look = Attention(Dot()).look(embed(GEGESSEN, 2), embed(ATE, 2))
    return Picture(look.weights, ATE, GEGESSEN)


@picture
def scaled_dot() -> Picture:
    q, k = normal(5, 512, seed=1), normal(6, 512, seed=2)
    looks = [Attention(Dot(scaled=scaled)).look(q, k).weights for scaled in (False, True)]
    return Picture(torch.stack(looks), title=["q · k,  d = 512", "q · k / √512"])


@picture
def general() -> Picture:
    s = embed(BAD, 2.4)
    score = General(10, 10)
    score.weight.data = link(("negation", "quality"), ("quality", "negation"), strength=2, same=1)
    return Picture(
        torch.stack([Attention(Dot()).look(s, s).weights, Attention(score).look(s, s).weights]),
        BAD,
        BAD,
        ["q · k", "q W k"],
    )


def conjunction() -> Additive:
    """An additive score whose hidden units are on where query and key both have a feature."""
    score = Additive(10, 10, hidden=10)
    score.query.weight.data = score.key.weight.data = 4 * torch.eye(10)
    score.key.bias.data.fill_(-6)
    score.v.data.fill_(2)
    return score


@picture
def additive() -> Picture:
    return Picture(Attention(conjunction()).look(embed(GEGESSEN), embed(ATE)).weights, ATE, GEGESSEN)


@picture
def cosine() -> Picture:
    q, k = embed(GEGESSEN, 0.1), embed(ATE) * torch.tensor([[1.0], [3.0], [5.0], [9.0]])
    sharpness = (1.0, 4.0, 16.0)
    looks = [Attention(Cosine(beta)).look(q, k).weights for beta in sharpness]
    return Picture(torch.stack(looks), ATE, GEGESSEN, [f"β = {beta:g}" for beta in sharpness])


@picture
def location() -> Picture:
    score = Location(5, length=8)
    near = -0.5 * (torch.arange(8)[:, None] - torch.arange(5)).square()
    score.weight.data = near.float()
    look = Attention(score).look(torch.eye(5), normal(6, 10))
    return Picture(look.weights, [f"key {j}" for j in range(6)], [f"step {i}" for i in range(5)])


# ---- weightings


@picture
def soft() -> Picture:
    s = embed(GEGESSEN, 1.5), embed(ATE, 1.5)
    temperatures = (0.25, 1.0, 4.0)
    looks = [Attention(Dot(), weighting=Softmax(temperature)).look(*s).weights for temperature in temperatures]
    return Picture(torch.stack(looks), ATE, GEGESSEN, [f"T = {temperature:g}" for temperature in temperatures])


@picture
def hard() -> Picture:
    torch.manual_seed(7)
    attention = Attention(Dot(), weighting=Hard())
    q, k = embed(GEGESSEN, 1.3), embed(ATE, 1.3)
    once = attention.look(q, k)
    often = attention.look(q.expand(1000, -1, -1), k).weights.mean(0)
    assert once.probabilities is not None
    panels = torch.stack([once.probabilities, once.weights, often])
    return Picture(panels, ATE, GEGESSEN, ["probabilities", "one draw", "mean of 1,000 draws"], drawn=True)


@picture
def gumbel() -> Picture:
    q, k = embed(GEGESSEN, 1.3), embed(ATE, 1.3)
    panels, names = [], []
    for tau in (0.5, 2.0):
        scores = Dot()(q, k).requires_grad_()
        weights = Gumbel(tau).eval()(scores)
        weights.gather(-1, weights.argmax(-1, keepdim=True)).sum().backward()
        assert scores.grad is not None
        panels, names = [*panels, scores.grad], [*names, f"gradient, τ = {tau:g}"]
    return Picture(torch.stack([weights.detach(), *panels]), ATE, GEGESSEN, ["weights", *names])


@picture
def sparsemax() -> Picture:
    q, k = embed(GEGESSEN, 0.8), embed(ATE, 0.8) + 0.3 * normal(4, 10, seed=3)
    looks = [Attention(Dot(), weighting=weighting).look(q, k).weights for weighting in (Softmax(), Sparsemax())]
    return Picture(torch.stack(looks), ATE, GEGESSEN, ["softmax", "sparsemax"])


@picture
def plain() -> Picture:
    s = embed(BAD, 2) + 0.5 * normal(6, 10, seed=4)
    return Picture(Attention(Dot(), weighting=Plain()).look(s, s).weights, BAD, BAD)


# ---- spans


@picture
def lengths() -> Picture:
    words = [*ATE[:3], "·", "·"]
    s = embed(words, 1.2)
    attention = Attention(Dot())
    looks = [attention.look(s, s, span=span).weights for span in (None, Lengths(3))]
    return Picture(torch.stack(looks), words, words, ["without a span", "Lengths(3)"])


@picture
def causal() -> Picture:
    s = embed(BAD)
    return Picture(Attention(Dot()).look(s, s, span=Causal()).weights, BAD, BAD)


@picture
def monotonic() -> Picture:
    look = Attention(Dot(scaled=True), span=Monotonic(radius=2)).look(normal(8, 16, seed=5), normal(10, 16, seed=6))
    return Picture(look.weights)


@picture
def predictive() -> Picture:
    span = Predictive(1, radius=3)
    span.hidden.weight.data.fill_(1.0)
    span.v.data.fill_(3.0)
    query = torch.linspace(-1, 1, 7)[:, None]
    look = Attention(Additive(1, 4, hidden=4), span=span)
    untrained(look.score, seed=7)
    seen = look.look(query, normal(12, 4, seed=8))
    assert seen.centre is not None
    return Picture(seen.weights, target=[f"p = {float(p):.1f}" for p in seen.centre.detach()])


@picture
def mask() -> Picture:
    phrase = torch.tensor([0, 0, 1, 2, 2, 2])
    s = embed(BAD)
    return Picture(Attention(Dot()).look(s, s, span=Mask(phrase[:, None] == phrase)).weights, BAD, BAD)


@picture
def alibi() -> Picture:
    q = torch.zeros(8, 5, 16)
    look = Attention(Dot(), span=Alibi(8) & Causal()).look(q, q)
    return Picture(look.weights[[0, 2, 4]], title=["slope 1/2", "slope 1/8", "slope 1/32"])


@picture
def packed() -> Picture:
    words = [*ATE, *BAD]
    s = embed(words)
    return Picture(Attention(Dot()).look(s, s, span=Packed([0, 4, 10])).weights, words, words)


# ---- several queries, several heads


@picture
def heads() -> Picture:
    module = Heads(10, heads=2, query_size=20, bias=False)
    same, partner = 1.5 * torch.eye(10), link(("negation", "quality"), ("quality", "negation"), strength=4, same=0.5)
    assert module.projection is not None
    module.projection.weight.data[:40] = torch.cat([same, partner, 2 * torch.eye(10), 2 * torch.eye(10)])
    look = module.look(embed(BAD, 2.6))
    return Picture(look.weights, BAD, BAD, ["head 1: like words", "head 2: not and bad"])


@picture
def learned() -> Picture:
    pooling = Attention(Dot(), query=Learned(2, 10))
    assert pooling.query is not None
    pooling.query.vectors.data = embed(["not", "pizza"], 4) + embed(["bad", "this"], 4)
    h = embed(BAD)
    return Picture(pooling.look(None, h.tanh(), h).weights, BAD, ["judgement", "topic"])


@picture
def self_attention() -> Picture:
    s = embed(ATE)
    score = General(10, 10)
    score.weight.data = link(("eating", "food"), ("food", "eating"), ("eating", "person"), ("day", "past"), strength=2)
    score.weight.data += 0.5 * torch.eye(10)
    return Picture(Attention(score).look(s, s).weights, ATE, ATE)


@picture
def verb_object() -> Picture:
    kept = json.loads((IMAGES / "verb-object.json").read_text(encoding="utf-8"))
    words, tree = kept["text"].split(), dependency_trees.ParsedTree(tuple(kept["heads"]), tuple(kept["relations"]))
    return Picture(torch.tensor(kept["weights"]), words, words, kept["title"], tree=tree)


def keep_verb_object(folder: str) -> None:
    """Take the weights of `verb-object` from a run: of the head that looks most from ate at pizza."""
    run = load(folder, device="cpu")
    exhibit = exhibit_of(run, PIZZA, tree=False, dependencies=dependency_trees.phrasebook_tree(run, PIZZA))
    tree, side = exhibit.dependencies, exhibit.sides["source"]
    assert tree is not None
    (place,) = [place for place, relation in enumerate(tree.relations) if relation == "obj"]
    heads = [
        (float(weights[tree.heads[place], place]), f"{view.title}, head {number + 1}", weights)
        for view in exhibit.views
        if view.rows == view.columns == "source"
        for number, weights in enumerate(merge(view.weights, side.words, side.words))
    ]
    _, title, weights = max(heads, key=lambda head: head[0])
    shown = [[round(weight, 4) for weight in row] for row in weights.tolist()]
    kept = {"text": PIZZA, "heads": tree.heads, "relations": tree.relations, "title": title, "weights": shown}
    (IMAGES / "verb-object.json").write_text(json.dumps(kept) + "\n", encoding="utf-8", newline="\n")


@picture
def cross() -> Picture:
    module = Heads(10, heads=1, bias=False)
    assert module.projection is not None
    module.projection.weight.data[:20] = 2 * torch.eye(10).repeat(2, 1)
    look = module.look(embed(GEGESSEN), embed(ATE, 2))
    return Picture(look.weights, ATE, GEGESSEN)


# ---- positions


@picture
def positions() -> Picture:
    times = [0, 1, 2, 4, 8, 16, 32, 64]
    table = Sinusoidal(8)(torch.zeros(65, 8))[times]
    names = [f"{wave} {pair}" for pair in range(4) for wave in ("sin", "cos")]
    return Picture(table, names, [f"t = {t}" for t in times])


@picture
def embedded() -> Picture:
    words = ["bad", "pizza", "bad", "pizza", "bad"]
    x = embed(words)
    places = Embedded(10, length=5)
    places.vectors.data = normal(5, 10, seed=9)
    attention = Attention(Dot())
    looks = [attention.look(s, s).weights for s in (x, places(x))]
    return Picture(torch.stack(looks), words, words, ["words alone", "with positions"])


@picture
def rotary() -> Picture:
    x = torch.ones(8, 8)
    turned = Rotary(8)(x)
    return Picture(Attention(Dot(scaled=True)).look(turned, turned).scores)


@picture
def positions_2d() -> Picture:
    table = Sinusoidal2D(16)(torch.zeros(16, 6, 8)).flatten(1).mT
    return Picture(Attention(Dot(scaled=True)).look(table[20:21], table).scores.unflatten(-1, (6, 8))[0])


# ---- grids


def scene() -> Tensor:
    """Features [3, 6, 8]: red in one corner, blue in the other, and background."""
    features = torch.zeros(3, 6, 8)
    features[2] = 1
    features[:, 1:3, 1:3] = torch.tensor([2.0, 0.0, 0.0])[:, None, None]
    features[:, 3:5, 5:7] = torch.tensor([0.0, 2.0, 0.0])[:, None, None]
    return features


@picture
def grid() -> Picture:
    look = GridAttention(Attention(Dot())).look(2 * torch.eye(3)[:2], scene())
    return Picture(look.weights, title=["“red”", "“blue”"])


@picture
def grid_self() -> Picture:
    layer = GridSelfAttention(3, reduction=1)
    for conv in (layer.query, layer.key):
        conv.weight.data = torch.eye(3)[:, :, None, None]
        conv.bias.data.zero_()
    look = layer.look(scene())
    return Picture(look.weights[(1, 4), (1, 6)], title=["from (1, 1)", "from (4, 6)"])


# ---- blocks


@picture
def block() -> Picture:
    module = untrained(Block(10, heads=2), seed=10, size=1.6)
    with watch(module) as looks:
        module(Sinusoidal(10)(embed(ATE)))
    return Picture(looks["attention"].weights, ATE, ATE)


@picture
def encoder() -> Picture:
    module = untrained(Encoder(10, heads=1, layers=2), seed=20, size=1.6)
    with watch(module) as looks:
        module(Sinusoidal(10)(embed(ATE)))
    weights = torch.cat([looks[f"blocks.{layer}.attention"].weights for layer in range(2)])
    return Picture(weights, ATE, ATE, ["block 0", "block 1"])


@picture
def decoder() -> Picture:
    module = untrained(Decoder(10, heads=2, layers=1), seed=30, size=1.6)
    with watch(module) as looks:
        module(Sinusoidal(10)(embed(GEGESSEN)), Sinusoidal(10)(embed([*ATE, "·"])), memory_span=Lengths(4))
    itself, memory = (looks[f"blocks.0.{name}"].weights[0] for name in ("attention", "cross"))
    return Picture(torch.stack([itself, memory]), list("01234"), GEGESSEN, ["itself, causal", "the memory, 4 long"])


# ---- keeping, folding, looking, serving


@picture
def prepare() -> Picture:
    attention = Attention(Dot(scaled=True))
    cache = attention.cache(rows=4, size=8, keys=16, values=16)
    keys = normal(4, 8, 16, seed=11)
    cache.extend(attention.prepare(keys[:, :6]))
    assert cache.length is not None
    cache.length.copy_(torch.tensor([1, 3, 4, 6]))
    look = attention.look(normal(4, 1, 16, seed=12), cache)
    return Picture(look.weights[:, 0], target=[f"row {row}" for row in range(4)])


@picture
def fold() -> Picture:
    q, k = normal(4, 16, seed=13), normal(6, 16, seed=14)
    attention = Attention(Dot(scaled=True))
    alone = torch.cat([attention.look(q, block).weights for block in k.split(2)], -1)
    return Picture(torch.stack([alone, attention.look(q, k).weights]), title=["three softmaxes", "merged"])


@picture
def look() -> Picture:
    seen = Attention(Dot(scaled=True)).look(embed(GEGESSEN, 2), embed(ATE, 2))
    return Picture(torch.stack([seen.scores, seen.weights]), ATE, GEGESSEN, ["scores e", "weights a"])


@picture
def backends() -> Picture:
    q, k = normal(6, 16), normal(12, 16, seed=1)
    rows: dict[str, tuple[Score, Span | None]] = {
        "dot": (Dot(), None),
        "dot, causal": (Dot(), Causal()),
        "dot, Lengths": (Dot(), Lengths(9)),
        "dot, Mask": (Dot(), Mask(torch.ones(6, 12, dtype=torch.bool))),
        "dot, Monotonic": (Dot(), Monotonic(2)),
        "dot, Predictive": (Dot(), Predictive(16, 2)),
        "additive": (Additive(16, 16, 8), None),
        "additive, Monotonic": (Additive(16, 16, 8), Monotonic(2)),
        "location": (Location(16, 12), None),
    }
    names = ["sdpa", "flex", "window", "chunked", "dense"]
    served = torch.zeros(len(rows), len(names))
    for i, (score, span) in enumerate(rows.values()):
        for j, name in enumerate(names):
            try:
                with use_backend(name), torch.no_grad():
                    Attention(score).backend(q, k, span=span)
                served[i, j] = 1
            except RegardError:
                pass
    return Picture(served, names, list(rows))


def draw(made: Picture, path: Path | None = None) -> Figure:
    """The figure, saved where a path is given."""
    if made.tree is not None:
        assert made.source is not None
        figure = draw_dependencies(made.weights, made.source, made.tree.heads, made.tree.relations, str(made.title))
        if path is not None:
            save(figure, path)
        return figure
    return heatmap(made.weights, made.source, made.target, title=made.title, path=path)


def draw_graph(kind: str) -> ModelGraph:
    """The graph of a model of a kind, with vocabularies of 8,000 pieces."""
    config = read_model_config({"kind": kind, "preset": GRAPHS[kind]})
    return model_graph(build(kind, config, 8000, 8000))


if __name__ == "__main__":
    torch.set_num_threads(1)
    names = sys.argv[1:]
    if names[:1] == ["--run"]:
        keep_verb_object(names[1])
        names = ["verb-object"]
    for chosen in names or [*PICTURES, *GRAPHS]:
        if chosen in GRAPHS:
            draw_graph(chosen).save(GRAPH_IMAGES / f"graph-{chosen}.svg")
        else:
            draw(PICTURES[chosen](), IMAGES / f"{chosen}.svg")
