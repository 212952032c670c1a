"""Made-up exhibits of every kind that a page or a picture draws."""

import math
from dataclasses import replace

import torch

from regard.inspection.collect.exhibit import Ablation, Exhibit, Stage, State, View, Walk
from regard.tasks import Candidate, Side, Tree


def words(text):
    return text.split()


GERMAN = words("Der alte Mann reitet am frühen Morgen auf einem braunen Pferd durch den Wald .")
ENGLISH = words("The old man rides on a brown horse through the forest in the early morning .")
LINKS = [0, 1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 4, 4, 5, 6, 14]  # for each English word its German word


def side(texts, *, cut=(), before=(), after=()):
    """Return words as pieces; words of more than seven letters, and those in `cut`, have two pieces."""
    pieces, belongs = list(before), [None] * len(before)
    for index, word in enumerate(texts):
        parts = [word[:4] + "@@", word[4:]] if len(word) > 7 or word in cut else [word]
        pieces += parts
        belongs += [index] * len(parts)
    return Side(tuple(pieces + list(after)), tuple(belongs + [None] * len(after)), tuple(texts))


def entropy(weights):
    return -torch.xlogy(weights, weights.clamp(min=1e-30)).sum(-1)


def soft(scores, causal=False):
    if causal:
        n, m = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(n, m).triu(1).bool(), -torch.inf)
    return scores.softmax(-1)


def view(name, title, role, layer, rows, columns, weights, **more):
    distribution = bool((weights >= 0).all())
    more.setdefault("entropy", entropy(weights) if distribution else None)
    more.setdefault("how", "scaled dot product, softmax")
    return View(name, title, role, layer, rows, columns, weights, **more)


def aligned_scores(written, source, links, sharp, heads, generator):
    """Return scores that are high at the words' links; later heads are less certain."""
    n, m = len(written.pieces), len(source.pieces)
    scores = torch.randn(heads, n, m, generator=generator)
    for i, word in enumerate(written.words):
        for j, other in enumerate(source.words):
            if (word is None and j == m - 1) or (word is not None and links[word] == other):
                scores[:, i, j] += sharp * torch.linspace(1.3, 0.4, heads)
    return scores


def transformer(source=GERMAN, target=ENGLISH, links=None, layers=6, heads=8, cut=("Pferd", "forest"), seed=0):
    g = torch.Generator().manual_seed(seed)
    links = links or (LINKS if target is ENGLISH else [min(i, len(source) - 1) for i in range(len(target))])
    into, read = side(source, cut=cut), side(target, cut=cut, before=("<s>",))
    written = side(target, cut=cut, after=("</s>",))
    m, n = len(into.pieces), len(written.pieces)
    views = []
    for layer in range(layers):
        near = -(torch.arange(m)[:, None] - torch.arange(m)).abs().float()
        scores = 2 * torch.randn(heads, m, m, generator=g) + torch.linspace(2, 0, heads)[:, None, None] * near
        views.append(view(f"encoder.blocks.{layer}.attention", f"encoder, layer {layer + 1}", "encoder", layer,
                          "source", "source", soft(scores)))  # fmt: skip
    for layer in range(layers):
        near = -(torch.arange(n)[:, None] - torch.arange(n)).abs().float()
        scores = 2 * torch.randn(heads, n, n, generator=g) + torch.linspace(0, 2, heads)[:, None, None] * near
        views.append(view(f"decoder.blocks.{layer}.attention", f"decoder, layer {layer + 1}, to itself", "decoder",
                          layer, "read", "read", soft(scores, causal=True)))  # fmt: skip
    for layer in range(layers):
        scores = aligned_scores(written, into, links, 1.0 + 7.0 * (layer + 1) / layers, heads, g)
        views.append(view(f"decoder.blocks.{layer}.cross", f"decoder, layer {layer + 1}, to the source", "cross",
                          layer, "written", "source", soft(scores)))  # fmt: skip
    names = [each.name for each in views]
    changes = {name: tuple((-(torch.rand(heads, generator=g) ** 4) * 3 + 0.1).tolist()) for name in names}
    return Exhibit(
        kind="transformer", task="translation", title=" ".join(source), run="demo, step 2,000",
        sides={"source": into, "read": read, "written": written}, views=tuple(views), output=" ".join(target),
        log_prob=-4.217, aligned=f"decoder.blocks.{layers - (2 if layers > 3 else 1)}.cross",
        tree=tree(written.pieces, beam=4, generator=g), ablation=Ablation(-4.217, changes),
        walk=walk(views[-1], into, g),
    )  # fmt: skip


def tree(pieces, beam=4, generator=None, offer=6):
    """Return a search tree whose first row is always the best."""
    g = generator or torch.Generator().manual_seed(0)
    others = words("der die ein Haus geht und mit von rot klein im dann wo so")
    steps, totals = [], [0.0]
    for t, piece in enumerate(pieces):
        last, found = t == len(pieces) - 1, []
        for parent, total in enumerate(totals):
            probabilities = torch.rand(offer, generator=g).mul(2.5).softmax(-1).sort(descending=True).values.tolist()
            if parent == 0:
                probabilities[0] = 0.55 + 0.4 * float(torch.rand((), generator=g))
            for k in range(max(2, offer // len(totals))):
                text = piece if (parent, k) == (0, 0) else others[(3 * t + 5 * parent + 7 * k) % len(others)]
                log_prob = math.log(probabilities[k])
                found.append((total + log_prob, parent, text, log_prob, (parent, k) == (0, 0)))
        found.sort(key=lambda each: (not each[4], -each[0]))
        step, totals = [], []
        for rank, (total, parent, text, log_prob, best) in enumerate(found):
            ends = best and last
            early = t > 4 and t % 5 == 0 and rank == 2
            fate = "finished" if ends or early else "kept" if len(totals) < beam and not last else "dropped"
            row = None
            if fate == "kept":
                row = len(totals)
                totals.append(total)
            step.append(Candidate(parent, "</s>" if early else text, log_prob, total, fate, row, best))
        steps.append(tuple(step))
        if last:
            break
    return Tree(beam, tuple(steps))


def walk(shown, columns, g, width=16, row=4, head=0):
    m = len(columns.pieces)
    q, k, v = (torch.randn(size, width, generator=g) for size in (1, m, m))
    e = shown.weights[head, row].clamp(min=1e-9).log()[:, None] * 2
    a = shown.weights[head, row][:, None]
    names = columns.pieces
    return Walk(shown.name, head, row, (
        Stage("q", "the query of this word", q, ("horse",)),
        Stage("k", "the keys of the source", k, names),
        Stage("e", "how well query and key fit: q · k", e * 4, names),
        Stage("e/√d", "scaled by the root of the width", e, names),
        Stage("a", "the weights: softmax of the scaled scores", a, names),
        Stage("Σ a v", "the context: values, weighed and added up", (a * v).sum(0, keepdim=True), ("context",)),
    ))  # fmt: skip


def luong(seed=1):
    """Return an exhibit with one head over pieces, and a window predicted by local-p."""
    g = torch.Generator().manual_seed(seed)
    into, written = side(GERMAN, cut=("Pferd",)), side(ENGLISH, cut=("forest",), after=("</s>",))
    scores = aligned_scores(written, into, LINKS, 5.0, 1, g)
    centre = scores.softmax(-1).matmul(torch.arange(len(into.pieces)).float()) + 0.3
    places = torch.arange(len(into.pieces)).float()
    apart = places - centre[..., None]
    weights = scores.masked_fill(apart.abs() > 3, -1e9).softmax(-1) * torch.exp(-(apart**2) / (2 * 1.5**2))
    shown = view("decoder.attention", "decoder, to the source", "cross", 0, "written", "source", weights,
                 centre=centre, radius=3.0, how="general score, local-p window of 3, softmax")  # fmt: skip
    states = [State(piece, torch.tanh(torch.randn(48, generator=g)), "source") for piece in into.pieces]
    states += [State(piece, torch.tanh(torch.randn(48, generator=g)), "target") for piece in written.pieces]
    first = walk(shown, into, g)
    return Exhibit(
        kind="luong", task="translation", title=" ".join(GERMAN), run="luong-local, step 8,000",
        sides={"source": into, "written": written}, views=(shown,), output=" ".join(ENGLISH), log_prob=-6.02,
        aligned=shown.name, tree=tree(written.pieces, beam=1, generator=g),
        walk=Walk(first.view, first.head, first.row, first.stages, tuple(states)),
    )  # fmt: skip


def painted(size=96):
    """Return a picture of a red disc, a blue square and a green bar on grey."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    picture = torch.full((3, size, size), 226, dtype=torch.uint8)
    for where, colour in (
        ((x - size * 0.28) ** 2 + (y - size * 0.3) ** 2 < (size * 0.16) ** 2, (204, 62, 58)),
        (((x - size * 0.72).abs() < size * 0.15) & ((y - size * 0.64).abs() < size * 0.15), (46, 92, 178)),
        (((x - size * 0.3).abs() < size * 0.2) & ((y - size * 0.8).abs() < size * 0.05), (58, 142, 84)),
    ):
        for channel, value in enumerate(colour):
            picture[channel][where] = value
    return picture


def captioner(hard=False, heads=1, layers=1, grid=8, size=96):
    texts = words("a red disc above left of a blue square and a green bar")
    aims = [(0.28, 0.3)] * 3 + [(0.5, 0.45)] * 3 + [(0.72, 0.64)] * 3 + [(0.4, 0.7)] + [(0.3, 0.8)] * 3 + [(0.5, 0.5)]
    y, x = torch.meshgrid((torch.arange(grid) + 0.5) / grid, (torch.arange(grid) + 0.5) / grid, indexing="ij")
    rows = [-((x - a) ** 2 + (y - b) ** 2) / 0.012 for a, b in aims]
    scores = torch.stack(rows).flatten(1)[None] * torch.linspace(1, 0.2, heads)[:, None, None]
    weights = scores.softmax(-1)
    picked = weights.argmax(-1) if hard else None
    if hard:
        weights = torch.nn.functional.one_hot(picked, grid * grid).float()
    numbers = tuple(f"{i // grid + 1}, {i % grid + 1}" for i in range(grid * grid))
    written = side(texts, after=("</s>",))
    views = tuple(
        view(f"decoder.{layer}.cross", f"decoder, layer {layer + 1}, to the picture", "cross", layer, "written",
             "places",              weights if layer == 0 else weights.roll(layer * 3, -1), picked=picked,
             how="additive score, softmax")
        for layer in range(layers)
    )  # fmt: skip
    return Exhibit(
        kind="captioner", task="captions", title="scene-0012.png", run="scenes, step 4,000",
        sides={"places": Side(numbers, tuple(range(grid * grid)), numbers, (grid, grid)), "written": written,
               "read": side(texts, before=("<s>",))},
        views=views, output=" ".join(texts), log_prob=-1.734, aligned=views[0].name, picture=painted(size),
        tree=tree(written.pieces, beam=3),
    )  # fmt: skip


def han(sentences=6, length=11, seed=3):
    g = torch.Generator().manual_seed(seed)
    stock = words("the plot is thin but a wonderful cast keeps this slow and moody film alive until its quiet ending "
             "while nobody in the audience wanted to leave before music faded")  # fmt: skip
    lines = [
        [stock[int(i)] for i in torch.randint(len(stock), (length - k % 4,), generator=g)] + ["."]
        for k in range(sentences)
    ]
    strong = {"wonderful": 3.0, "thin": 2.0, "alive": 2.2, "slow": 1.2, "nobody": 1.5}
    shares = torch.cat(
        [torch.tensor([strong.get(word, 0.0) for word in line]).softmax(-1) for line in lines]
    )[None, None]  # fmt: skip
    weights = torch.randn(1, 1, sentences, generator=g).mul(1.5).softmax(-1)
    flat = [word for line in lines for word in line]
    texts = tuple(" ".join(line) for line in lines)
    belongs = tuple(number for number, line in enumerate(lines) for _ in line)
    return Exhibit(
        kind="han", task="labels", title=" ".join(texts), run="reviews, step 1,200",
        sides={"source": Side(tuple(flat), tuple(range(len(flat))), tuple(flat), sentences=belongs),
               "sentences": Side(texts, tuple(range(sentences)), texts)},
        views=(view("words", "words of their sentences", "words", 0, "document", "source", shares, entropy=None),
               view("sentences", "sentences of the document", "sentences", 0, "document", "sentences", weights)),
        output="positive", log_prob=math.log(0.83), labels={"positive": 0.83, "neutral": 0.12, "negative": 0.05},
    )  # fmt: skip


def convnet(grid=8):
    y, x = torch.meshgrid(torch.arange(grid).float(), torch.arange(grid).float(), indexing="ij")
    at = torch.stack([y.flatten(), x.flatten()], -1)
    small = torch.nn.functional.adaptive_avg_pool2d(painted().float()[None], grid)[0].flatten(1).mT / 30
    weights = (-torch.cdist(small, small) * 1.2 - torch.cdist(at, at) * 0.1).softmax(-1)[None]
    numbers = tuple(f"{i // grid + 1}, {i % grid + 1}" for i in range(grid * grid))
    shown = view("layers.2", "after stage 3, every place to every place", "places", 0, "places", "places", weights,
                 how="dot product, softmax")  # fmt: skip
    return Exhibit(
        kind="convnet", task="labels", title="scene-0012.png", run="shapes, step 900",
        sides={"places": Side(numbers, tuple(range(grid * grid)), numbers, (grid, grid))}, views=(shown,),
        output="disc", log_prob=math.log(0.91), labels={"disc": 0.91, "square": 0.06, "bar": 0.03}, picture=painted(),
    )  # fmt: skip


def without():
    """Return an exhibit of an encoder-decoder without attention, whose whole source is one vector."""
    g = torch.Generator().manual_seed(5)
    into, written = side(GERMAN), side(ENGLISH, after=("</s>",))
    states = [State(piece, torch.tanh(torch.randn(48, generator=g)), "source") for piece in into.pieces]
    return Exhibit(
        kind="rnn", task="translation", title=" ".join(GERMAN), run="fixed, step 3,000",
        sides={"source": into, "written": written}, views=(), output=" ".join(ENGLISH), log_prob=-31.4,
        tree=tree(written.pieces, beam=2, generator=g), walk=Walk("", 0, 0, (), tuple(states)),
    )  # fmt: skip


def long(count=400, layers=1, heads=2):
    """Return an exhibit of a document that a stack of encoder blocks classifies."""
    g = torch.Generator().manual_seed(9)
    stock = words("a long report that goes on about rain and sun over hills and towns near the sea")
    flat = [stock[int(i)] for i in torch.randint(len(stock), (count,), generator=g)]
    into = Side(tuple(flat), tuple(range(count)), tuple(flat))
    near = -(torch.arange(count)[:, None] - torch.arange(count)).abs().float()
    views = tuple(
        view(f"blocks.{layer}", f"layer {layer + 1}", "encoder", layer, "source", "source",
             soft(torch.randn(heads, count, count, generator=g) * 2 + near * 0.3)) for layer in range(layers)
    )  # fmt: skip
    return Exhibit(
        kind="encoder", task="labels", title=" ".join(flat), run="long, step 100", sides={"source": into}, views=views,
        output="weather", log_prob=-0.1, labels={"weather": 0.9, "sport": 0.1},
    )  # fmt: skip


def odd():
    """Return an exhibit of difficult texts: markup, quotes, right-to-left letters, emoji, half a surrogate pair."""
    source = ["<script>alert('x')</script>", '"quoted"', "שלום", "עולם", "👩‍🚀", "&amp;", "</style>", "<!--", "\ud800"]
    target = ["مرحبا", "أيها", "العالم", "👩‍🚀", "<b>", "'", "\\u003c", "</script>"]
    return transformer(source, target, layers=2, heads=2, cut=())


def encoder(texts, layers=2, heads=3, seed=0):
    """Return an exhibit of a classifier; all words attend to "not", if present, in head 2 of layer 1."""
    g = torch.Generator().manual_seed(seed)
    into, n = side(texts), len(texts)
    views = []
    for layer in range(layers):
        scores = torch.randn(heads, n, n, generator=g)
        if "not" in texts and layer == 0:
            scores[1, :, texts.index("not")] += 6
        views.append(view(f"encoder.blocks.{layer}.attention", f"encoder, layer {layer + 1}", "encoder", layer,
                          "source", "source", soft(scores)))  # fmt: skip
    good = 0.9 if "not" in texts else 0.2
    output, labels = "positive" if good > 0.5 else "negative", {"negative": 1 - good, "positive": good}
    return Exhibit(
        kind="encoder", task="classify", title=" ".join(texts), run="reviews, step 800", sides={"source": into},
        views=tuple(views), output=output, log_prob=math.log(max(good, 1 - good)), labels=labels,
    )  # fmt: skip


def replace_view(exhibit, weights):
    """Return the exhibit with other weights in its only view."""
    (shown,) = exhibit.views
    return replace(exhibit, views=(replace(shown, weights=weights),))
