"""An exhibit: everything that a page or a picture shows of one input, collected from a model once.

`exhibit_of` makes it from a run, `page` and `picture` draw it; nobody who draws asks the model anything. So it is with
the computational graph of a model, boxes in order and edges between them: `graph_of` makes it, `draw_graph` draws it.

Of a look by itself, without a model or a run, it holds only the words and the weights between them. Sides are drawn
with marks and special tokens as words.
"""

# b batch · h heads · n rows: who looks · m columns: what is looked at · i j words of rows and of columns
# y x rows and columns of a grid
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from regard.alignment import extraction
from regard.attention import Look
from regard.data import BYTE_MARK, MARK
from regard.errors import ArgumentError, ShapeError
from regard.tasks import Side, Tree

NodeKind = Literal["input", "learned", "module", "operation", "stage", "previous"]
Role = Literal["cross", "encoder", "decoder", "words", "sentences", "places", "memory"]


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers that the weights of a view are computed from: e = s q·k + b, a = softmax(e/T) g, c = Σ a v.

    A table of one head is the same for all of them: `#h` is h or 1.
    """

    score: Literal["dot", "additive", "stored"]  # how e is made: s q·k, w·tanh(q + k), or as `scores` has it
    scale: float = 1.0  # s
    temperature: float = 1.0  # T
    query: Float[Tensor, "h n d"] | None = None  # as the score projects it; None where the scores are stored
    keys: Float[Tensor, "h m d"] | None = None
    values: Float[Tensor, "h m c"] | None = None  # None where each step has others
    vector: Float[Tensor, "#h d"] | None = None  # w
    scores: Float[Tensor, "#h n m"] | None = None
    bias: Float[Tensor, "#h n m"] | None = None  # b
    gate: Float[Tensor, "#h n m"] | None = None  # g, a Gaussian around the centre of a window
    mask: Bool[Tensor, "#h n m"] | None = None  # whether a row may look at a column
    weights: Float[Tensor, "#h n m"] | None = None  # where they are no softmax
    groups: tuple[int, ...] | None = None  # of each column its sentence, within which weights sum to one
    formulas: dict[str, str] = field(default_factory=dict)  # of the model's paper, by symbol


@dataclass(frozen=True, eq=False)
class Addressing:
    """How heads of a memory find their slots, stage by stage (Graves et al. 2014, section 3.3): each row is a step."""

    key: Float[Tensor, "h n d"]  # k
    strength: Float[Tensor, "h n 1"]  # β
    cosine: Float[Tensor, "h n m"]  # cos(k, M), M the memory as the step before left it
    content: Float[Tensor, "h n m"]  # w^c = softmax(β cos(k, M))
    gate: Float[Tensor, "h n 1"]  # g
    gated: Float[Tensor, "h n m"]  # w^g = g w^c + (1 - g) w of the step before
    shifts: Float[Tensor, "h n s"]  # s, from the furthest step forwards to the furthest back
    shifted: Float[Tensor, "h n m"]  # w̃, moved round the circle
    power: Float[Tensor, "h n 1"]  # γ
    weights: Float[Tensor, "h n m"]  # w = w̃^γ / Σ w̃^γ


@dataclass(frozen=True, eq=False)
class View:
    """One attention of the model, all its heads."""

    name: str  # as `watch` knows it: decoder.blocks.3.cross
    title: str  # for people: "decoder, layer 4, to the source"
    role: Role
    layer: int  # from 0, among those of its role
    rows: str  # the side that looks, a key of `Exhibit.sides`
    columns: str  # the side that is looked at
    weights: Float[Tensor, "h n m"]
    entropy: Float[Tensor, "h n"] | None = None  # in nats; None where the weights are no distribution
    centre: Float[Tensor, "h n"] | None = (
        None  # local attention: where the window stood, in pieces of the columns' side
    )
    radius: float | None = None  # of that window, D
    picked: Int[Tensor, "h n"] | None = None  # hard attention: what was taken, -1 for nothing
    how: str = ""  # score, span and weighting in words
    numbers: Numbers | Addressing | None = None  # what the weights are computed from


@dataclass(frozen=True, eq=False)
class Stage:
    """Rows of numbers on the way from an input to a word, with the formula that gave them."""

    symbol: str  # x, q, k, e, e/√d, a, Σ a v
    words: str  # "the query of this word"
    values: Float[Tensor, "r c"]  # r rows, named by `names`; -∞ for the score of what may not be looked at
    names: tuple[str, ...]  # of the rows: the keys that are looked at, or one name
    formula: str = ""  # as the model's paper writes it; the symbol, where that is all there is to write
    part: str = ""  # the part of the way that it belongs to: the stages of one follow one another
    main: bool = True  # whether it is shown at once; others are unfolded


@dataclass(frozen=True, eq=False)
class State:
    """The state of a recurrent network after a word, drawn as states arrive one by one."""

    piece: str
    values: Float[Tensor, " d"]
    side: Literal["source", "target"]


@dataclass(frozen=True, eq=False)
class Gates:
    """The gates of a recurrent layer, word by word, with the state after each word."""

    title: str  # "encoder, layer 1, from the end"
    cell: Literal["lstm", "gru", "rnn", "lstmn"]
    side: str  # the side whose pieces were read, a key of `Exhibit.sides`
    pieces: tuple[str, ...]
    values: dict[str, Float[Tensor, "n d"]]  # by symbol, as i, f, o, c: a row per piece, in the order of the text
    backwards: bool = False  # whether the layer reads from the end


@dataclass(frozen=True, eq=False)
class Walk:
    """One word from x to the likeliest words, in numbers; for a recurrent network, its states and gates too."""

    view: str  # the name of the view
    head: int
    row: int  # of the view's rows
    stages: tuple[Stage, ...]
    states: tuple[State, ...] = ()
    gates: tuple[Gates, ...] = ()


@dataclass(frozen=True)
class HeadHits:
    """How often a head's strongest weight leads from a word to its head in the dependency tree, or back."""

    view: str
    head: int
    hits: dict[str, int]  # by relation, "" for all of them together: words that look at their head
    back: dict[str, int]  # the same from the head: those that their head looks at


@dataclass(frozen=True)
class Dependencies:
    """The dependency tree of a side's words, and which heads of self-attention follow it."""

    side: str  # a key of `Exhibit.sides`
    heads: tuple[int, ...]  # of each word, from 0; -1 for the root
    relations: tuple[str, ...]  # of each word to its head; "" where they have no names
    words: dict[str, int]  # by relation, "" for all: how many words have a head that can be looked at
    back: dict[str, int]  # the same from the head: how many words can be looked at by theirs
    distances: dict[str, dict[int, int]]  # by relation: how often a head is so far behind its word
    follows: tuple[HeadHits, ...] = ()


@dataclass(frozen=True)
class Ablation:
    """The change in the output's log-probability when one head gives nothing."""

    log_prob: float  # of the output with every head
    changes: dict[str, tuple[float, ...]]  # by view, head by head: with the head silenced, less that with every head


@dataclass(frozen=True)
class GraphNode:
    """A box of the graph."""

    name: str  # of its own in the graph: a module's dotted name, or that of the module it belongs to and a word
    kind: NodeKind
    label: str  # what it is: "layer norm"
    symbol: str  # as the paper writes its result: "h_j"
    shape: tuple[int, ...]  # of its output, in its first call
    side: Literal["encoder", "decoder"]
    module: str  # that it is, or belongs to
    modules: tuple[str, ...] = ()  # with the parameters that it uses; one that came before is not named again
    note: str = ""
    calls: int = 1
    loops: bool = False  # it reads what it gave in the step before
    shares: str | None = None  # the node that has its parameters
    count: int = 1  # alike ones that are folded into it, itself among them
    folded: tuple[str, ...] = ()  # the modules of the others
    parameters: int = 0  # numbers in them, of those named in `modules`
    layer_symbol: str = ""  # its symbol with ℓ for the number of its layer
    pairs: bool = False  # its last axis counts keys, and is no width
    last_shape: tuple[int, ...] = ()  # in its last call, where that is another


@dataclass(frozen=True)
class GraphEdge:
    """An edge: numbers that go from one box to another."""

    source: str
    target: str


@dataclass(frozen=True)
class GraphGroup:
    """A group of boxes that belong together: a layer, an attention."""

    name: str
    label: str
    nodes: tuple[str, ...]
    parent: str | None = None
    count: int = 1  # layers like it that are folded into it
    members: tuple[str, ...] = ()  # their names, its own first


@dataclass(frozen=True)
class Graph:
    """The graph of a model as it ran: nodes in an order in which every edge goes forward."""

    kind: str  # of the model
    paper: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    groups: tuple[GraphGroup, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)  # letters of shapes

    def alone(self, node: GraphNode) -> int:
        """Count the identical nodes that a node stands for, apart from those that the frames around it count."""
        framed = 1
        for group in self.groups:
            framed *= group.count if node.name in group.nodes else 1
        return node.count // framed

    def node(self, name: str) -> GraphNode:
        """Find a node by its name."""
        return next(each for each in self.nodes if each.name == name)


@dataclass(frozen=True, eq=False)
class Exhibit:
    """Everything that is shown of one input."""

    kind: str  # of the model
    task: str
    title: str  # what was put in, or the name of the file
    run: str  # the folder's name, and its step
    sides: dict[str, Side]  # "source", "written" (with END), "read" (with START); "sentences", "places"
    views: tuple[View, ...]
    output: str = ""  # what was written or named
    log_prob: float | None = None  # of the output
    labels: dict[str, float] = field(default_factory=dict)  # of a classifier: how likely each is
    aligned: str | None = None  # the view that is nearest to an alignment: lines are drawn from it first
    head: int | None = None  # of that view; None: the mean of its heads
    offset: Literal[0, 1] = 0  # 1: a row shows what is aligned with the word read, not with the one written
    picture: UInt8[Tensor, "3 y x"] | None = None
    tree: Tree | None = None
    walk: Walk | None = None
    ablation: Ablation | None = None
    graph: Graph | None = None  # of what ran in the model
    dependencies: Dependencies | None = None


def find_view(views: Sequence[View], name: str | None) -> View:
    """Find a view by its name or title; by default the last one to the source, or to a memory."""
    if name is None:
        return next((each for each in reversed(views) if each.role in ("cross", "memory")), views[0])
    for each in views:
        if name == each.name or name.lower() == each.title.lower():
            return each
    raise ArgumentError(f"view: {name!r} given, expected one of: {'; '.join(each.title for each in views)}")


def as_exhibit(what: Any, source: Sequence[str] | None, target: Sequence[str] | None) -> Exhibit:
    """Return an exhibit as it is, or make one of a look and its words."""
    if isinstance(what, Look):
        return exhibit_of_look(what, source, target)
    if not isinstance(what, Exhibit):
        raise ArgumentError(f"{type(what).__name__} given, expected an Exhibit or a Look")
    if source is not None or target is not None:
        raise ArgumentError("source, target: given with an exhibit, which has its own words; leave them out")
    return what


def exhibit_of_look(look: Look, source: Sequence[str] | None = None, target: Sequence[str] | None = None) -> Exhibit:
    """Make an exhibit of a look at one example: weights [n, m] or heads of such; leading dimensions of one are dropped.

    `source` names the m columns and `target` the n rows; without them they are counted from 1. Places of a grid need no
    names.
    """
    weights, grid = look.weights.detach().float().cpu(), None
    if look.grid:
        grid = (int(weights.shape[-2]), int(weights.shape[-1]))
        weights = weights.flatten(-2)
    if look.grid == "both":
        weights = weights.flatten(-3, -2)
    weights = as_stack(weights, "look: one example [n, m] or [heads, n, m] can be shown, got weights of")
    heads, n, m = weights.shape
    itself = look.grid == "both" or (target is None and source is not None and n == m)
    role: Role = "places" if look.grid == "both" else "encoder" if itself else "cross"
    columns = "places" if grid else "source"
    sides = {columns: name_places(check_words("source", source, m), grid)}
    if not itself:
        sides["written"] = name_places(check_words("target", target, n))
    numbers: dict[str, Any] = {name: _rows(getattr(look, name), heads, n) for name in ("entropy", "centre", "picked")}
    rows = columns if itself else "written"
    view = View("look", "what was looked at", role, 0, rows, columns, weights, **numbers, how=look.how)
    title, output = (" ".join(words or ()) for words in (source, None if itself else target))
    return Exhibit("", "", title, "", sides, (view,), output)


def as_stack(weights: Tensor, expected: str) -> Float[Tensor, "h n m"]:
    """Return weights as a stack of matrices; leading dimensions of one are dropped."""
    shape = list(weights.shape)
    while weights.dim() > 3 and weights.shape[0] == 1:
        weights = weights[0]
    if weights.dim() == 2:
        weights = weights[None]
    if weights.dim() != 3 or 0 in shape:
        raise ShapeError(f"{expected} {shape}")
    return weights


def check_words(name: str, words: Sequence[str] | None, count: int) -> list[str]:
    """Return the words that name positions, one for each; without words their numbers, from 1."""
    if words is None:
        return [str(index + 1) for index in range(count)]
    if isinstance(words, str):
        raise ArgumentError(f"{name}: a sequence of words was expected, got one string; split it first")
    if len(words) != count:
        raise ShapeError(f"{name}: {count} words were expected, one for each {name} position, got {len(words)}")
    return [str(word) for word in words]


def _rows(values: Tensor | None, heads: int, n: int) -> Tensor | None:
    """Return [h n], where there is a number for each row."""
    if values is None or values.numel() != heads * n:
        return None
    values = values.detach().reshape(heads, n).cpu()
    return values.float() if values.is_floating_point() else values.to(torch.int64)


# ---- sides as they are drawn


def separate_marks(side: Side) -> Side:
    """Make punctuation words of their own, where it stands at the beginning or the end of a word.

    So it is drawn: the weight of a full stop is not that of the word before it. Pieces inside a word stay, such as the
    apostrophe of "don't". Links and trees count the words of the text, as `side` has them.
    """
    if side.grid is not None or all(word is None for word in side.words):
        return side
    last = max(word for word in side.words if word is not None)
    owned: list[list[int]] = [[] for _ in range(last + 1)]
    for piece, word in enumerate(side.words):
        if word is not None:
            owned[word].append(piece)
    words, texts, unknown = list(side.words), list[str](), list[int]()
    for word, pieces in enumerate(owned):
        text = side.texts[word] if word < len(side.texts) else ""
        bare = (side.pieces[piece].lstrip(MARK + BYTE_MARK).removeprefix("##") for piece in pieces)
        bare = (piece.removesuffix("@@").removesuffix("</w>") for piece in bare)  # marks of where words begin and end
        for part, own in split_marks(text, list(zip(pieces, bare, strict=True))):
            for piece in own:
                words[piece] = len(texts)
            # Of a word with an unknown piece, that is the part with letters.
            if word in side.unknown and (len(own) == len(pieces) or not is_mark(part)):
                unknown.append(len(texts))
            texts.append(part)
    return replace(side, words=tuple(words), texts=tuple(texts), unknown=tuple(unknown))


def count_specials(side: Side) -> Side:
    """Make START, END and the like words of their own, where they stand."""
    if None not in side.words:
        return side
    words, texts, place = list[int | None](), list[str](), dict[int, int]()
    for piece, word in zip(side.pieces, side.words, strict=True):
        if word is None:
            words.append(len(texts))
            texts.append(piece)
            continue
        for each in range(len(place), word + 1):
            place[each] = len(texts)
            texts.append(side.texts[each] if each < len(side.texts) else "")
        words.append(place[word])
    return replace(side, words=tuple(words), texts=tuple(texts), unknown=tuple(place[word] for word in side.unknown))


def split_marks(text: str, pieces: Sequence[tuple[int, str]]) -> list[tuple[str, list[int]]]:
    """Split a word into the punctuation before it, the word and the punctuation after it, each with its pieces."""
    inside = [at for at, (_, bare) in enumerate(pieces) if bare and not is_mark(bare)]
    whole = [(text, [piece for piece, _ in pieces])]
    if not inside:
        return whole
    first, end = inside[0], inside[-1] + 1
    while first and not pieces[first - 1][1]:  # the mark of the word's start alone goes with what follows it
        first -= 1
    before, after = ("".join(bare for _, bare in some) for some in (pieces[:first], pieces[end:]))
    middle = text[len(before) : len(text) - len(after)]
    if not middle or text != before + middle + after:
        return whole
    parts = [(before, pieces[:first]), (middle, pieces[first:end]), (after, pieces[end:])]
    return [(part, [piece for piece, _ in own]) for part, own in parts if part]


def is_mark(text: str) -> bool:
    """Return whether a text is punctuation alone."""
    return all(unicodedata.category(letter).startswith("P") for letter in text)


def name_places(names: Sequence[str], grid: tuple[int, int] | None = None) -> Side:
    """Make the side of places with names: of a grid row by row, or of a memory."""
    return Side(tuple(names), tuple(range(len(names))), tuple(names), grid)


def merge(
    weights: Float[Tensor, "*h n m"],
    rows: Sequence[int | None],
    columns: Sequence[int | None],
) -> Float[Tensor, "*h i j"]:
    """Merge weights between pieces to weights between words, as `merge_batch` of alignments does.

    `rows` gives the word of each target piece and `columns` that of each source piece, counted from 0, as `word_ids` of
    tokenizers does; None is a piece of no word. There are as many words as the highest number says; one without a piece
    gets zeros.
    """
    if (len(rows), len(columns)) != weights.shape[-2:]:
        given = f"{len(rows)} rows and {len(columns)} columns"
        raise ShapeError(f"weights: {given} of pieces given, got weights of {list(weights.shape)}")
    (down, i), (across, j) = (extraction.word_ids([words], weights.device) for words in (rows, columns))
    stack = weights.reshape(1, math.prod(weights.shape[:-2]), *weights.shape[-2:])
    return extraction.merge_batch(stack, down, across, (i, j)).reshape(*weights.shape[:-2], i, j)
