"""The exhibit: everything that a page or a picture shows of one input, collected from a model once.

`exhibit_of` builds it from a run; `page` and `picture` draw it without running the model. A model's computational graph
is handled in the same way: `graph_of` builds the boxes, in order, and the edges between them; `draw_graph` draws them.

An exhibit of a single `Look`, without a model or a run, contains only the words and the weights between them. Drawings
treat punctuation marks and special tokens as words.
"""

# b batch · h heads · n rows, the queries · m columns, the keys · i j words of rows and of columns
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

    `#h` is h, or 1 if all heads share one table.
    """

    score: Literal["dot", "additive", "stored"]  # how e is computed: s q·k, w·tanh(q + k), or stored in `scores`
    scale: float = 1.0  # s
    temperature: float = 1.0  # T
    query: Float[Tensor, "h n d"] | None = None  # as projected by the score; None if the scores are stored
    keys: Float[Tensor, "h m d"] | None = None
    values: Float[Tensor, "h m c"] | None = None  # None if they differ between steps
    vector: Float[Tensor, "#h d"] | None = None  # w
    scores: Float[Tensor, "#h n m"] | None = None
    bias: Float[Tensor, "#h n m"] | None = None  # b
    gate: Float[Tensor, "#h n m"] | None = None  # g, a Gaussian around the centre of a window
    mask: Bool[Tensor, "#h n m"] | None = None  # whether a row may attend to a column
    weights: Float[Tensor, "#h n m"] | None = None  # stored only if they are not a softmax
    groups: tuple[int, ...] | None = None  # the sentence of each column; weights sum to one in each sentence
    formulas: dict[str, str] = field(default_factory=dict)  # formulas of the model's paper, by symbol


@dataclass(frozen=True, eq=False)
class Addressing:
    """The stages of memory heads' addressing (Graves et al. 2014, section 3.3); each row is a step."""

    key: Float[Tensor, "h n d"]  # k
    strength: Float[Tensor, "h n 1"]  # β
    cosine: Float[Tensor, "h n m"]  # cos(k, M); M is the memory after the previous step
    content: Float[Tensor, "h n m"]  # w^c = softmax(β cos(k, M))
    gate: Float[Tensor, "h n 1"]  # g
    gated: Float[Tensor, "h n m"]  # w^g = g w^c + (1 - g) w; w is of the previous step
    shifts: Float[Tensor, "h n s"]  # s, from the furthest step forwards to the furthest back
    shifted: Float[Tensor, "h n m"]  # w̃, rotated
    power: Float[Tensor, "h n 1"]  # γ
    weights: Float[Tensor, "h n m"]  # w = w̃^γ / Σ w̃^γ


@dataclass(frozen=True, eq=False)
class View:
    """One attention of the model, with all its heads."""

    name: str  # as in `watch`: decoder.blocks.3.cross
    title: str  # as displayed: "decoder, layer 4, to the source"
    role: Role
    layer: int  # from 0, among the views with its role
    rows: str  # the side of the queries, a key of `Exhibit.sides`
    columns: str  # the side of the keys
    weights: Float[Tensor, "h n m"]
    entropy: Float[Tensor, "h n"] | None = None  # in nats; None if the weights are no distribution
    centre: Float[Tensor, "h n"] | None = None  # local attention: the window's centre, in pieces of the columns' side
    radius: float | None = None  # local attention: the window's radius D
    picked: Int[Tensor, "h n"] | None = None  # hard attention: the chosen column, -1 for none
    how: str = ""  # score, span and weighting in words
    numbers: Numbers | Addressing | None = None  # the numbers from which the weights are computed


@dataclass(frozen=True, eq=False)
class Stage:
    """Intermediate numbers between an input and an output word, with their formula."""

    symbol: str  # x, q, k, e, e/√d, a, Σ a v
    words: str  # "the query of this word"
    values: Float[Tensor, "r c"]  # r rows, named by `names`; the score of a masked key is -∞
    names: tuple[str, ...]  # names of the rows: the keys, or a single name
    formula: str = ""  # as in the model's paper; pages show the symbol if it is empty
    part: str = ""  # the heading under which consecutive stages are grouped
    main: bool = True  # whether it is visible at first; others must be expanded


@dataclass(frozen=True, eq=False)
class State:
    """The state of a recurrent network after one word."""

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
    values: dict[str, Float[Tensor, "n d"]]  # by symbol, such as i, f, o, c: a row per piece, in text order
    backwards: bool = False  # whether the layer reads from the end


@dataclass(frozen=True, eq=False)
class Walk:
    """The numbers of one word from x to the likeliest words; for a recurrent network, also its states and gates."""

    view: str  # the name of the view
    head: int
    row: int  # index of the view's row
    stages: tuple[Stage, ...]
    states: tuple[State, ...] = ()
    gates: tuple[Gates, ...] = ()


@dataclass(frozen=True)
class HeadHits:
    """How often an attention head's strongest weights link words to their heads in the dependency tree, or back."""

    view: str
    head: int
    hits: dict[str, int]  # by relation, "" for all: words whose strongest weight is on their head
    back: dict[str, int]  # by relation, "" for all: words on which their head's strongest weight is


@dataclass(frozen=True)
class Dependencies:
    """The dependency tree of a side's words, and how often each head of self-attention follows it."""

    side: str  # a key of `Exhibit.sides`
    heads: tuple[int, ...]  # the head of each word, from 0; -1 for the root
    relations: tuple[str, ...]  # the relation of each word to its head; "" if unnamed
    words: dict[str, int]  # by relation, "" for all: the number of words that can attend to their head
    back: dict[str, int]  # by relation, "" for all: the number of words to which their head can attend
    distances: dict[str, dict[int, int]]  # by relation: the count of each distance, head minus word
    follows: tuple[HeadHits, ...] = ()


@dataclass(frozen=True)
class Ablation:
    """The change in the output's log-probability when one head is silenced."""

    log_prob: float  # log-probability of the output with all heads
    changes: dict[str, tuple[float, ...]]  # by view, for each head: log-probability without the head minus `log_prob`


@dataclass(frozen=True)
class GraphNode:
    """A box of the graph."""

    name: str  # unique: a module's dotted name, or the name of the module that it belongs to and a word
    kind: NodeKind
    label: str  # such as "layer norm"
    symbol: str  # the paper's symbol of its output, such as "h_j"
    shape: tuple[int, ...]  # of the output in its first call
    side: Literal["encoder", "decoder"]
    module: str  # the module that it is or belongs to
    modules: tuple[str, ...] = ()  # modules whose parameters it uses, without those of earlier nodes
    note: str = ""
    calls: int = 1
    loops: bool = False  # it reads its own output of the previous step
    shares: str | None = None  # the earlier node that owns its parameters
    count: int = 1  # number of identical nodes that are folded into it, including itself
    folded: tuple[str, ...] = ()  # modules of the other nodes that are folded into it
    parameters: int = 0  # number of parameters in `modules`
    layer_symbol: str = ""  # its symbol with ℓ for the number of its layer
    pairs: bool = False  # its last axis counts keys and is not a width
    last_shape: tuple[int, ...] = ()  # of the output in its last call, if it differs


@dataclass(frozen=True)
class GraphEdge:
    """An edge: the target reads the output of the source."""

    source: str
    target: str


@dataclass(frozen=True)
class GraphGroup:
    """A group of boxes that belong together: a layer, an attention."""

    name: str
    label: str
    nodes: tuple[str, ...]
    parent: str | None = None
    count: int = 1  # number of identical layers that are folded into it, including itself
    members: tuple[str, ...] = ()  # their names, its own first


@dataclass(frozen=True)
class Graph:
    """The graph of one pass through a model; nodes are sorted so that every edge goes forward."""

    kind: str  # of the model
    paper: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    groups: tuple[GraphGroup, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)  # sizes in shapes, by letter

    def alone(self, node: GraphNode) -> int:
        """Count the identical nodes that a node stands for, not counting repetitions of the frames around it."""
        framed = 1
        for group in self.groups:
            framed *= group.count if node.name in group.nodes else 1
        return node.count // framed

    def node(self, name: str) -> GraphNode:
        """Find a node by its name."""
        return next(each for each in self.nodes if each.name == name)


@dataclass(frozen=True, eq=False)
class Exhibit:
    """All data that a page or a picture shows of one input."""

    kind: str  # of the model
    task: str
    title: str  # the input, or the name of its file
    run: str  # the folder's name and the step
    sides: dict[str, Side]  # "source", "written" (with END), "read" (with START); "sentences", "places"
    views: tuple[View, ...]
    output: str = ""  # the text written, or the label
    log_prob: float | None = None  # of the output
    labels: dict[str, float] = field(default_factory=dict)  # a classifier's labels with their probabilities
    aligned: str | None = None  # the view nearest to an alignment; a page opens with it
    head: int | None = None  # the head of that view; None: the mean of its heads
    offset: Literal[0, 1] = 0  # 1: a row aligns the word that is read, not the one that is written
    picture: UInt8[Tensor, "3 y x"] | None = None
    tree: Tree | None = None
    walk: Walk | None = None
    ablation: Ablation | None = None
    graph: Graph | None = None
    dependencies: Dependencies | None = None


def find_view(views: Sequence[View], name: str | None) -> View:
    """Find a view by name or title; by default the last attention to the source or to a memory, else the first view."""
    if name is None:
        return next((each for each in reversed(views) if each.role in ("cross", "memory")), views[0])
    for each in views:
        if name == each.name or name.lower() == each.title.lower():
            return each
    raise ArgumentError(f"view: {name!r} given, expected one of: {'; '.join(each.title for each in views)}")


def as_exhibit(what: Any, source: Sequence[str] | None, target: Sequence[str] | None) -> Exhibit:
    """Return an exhibit unchanged, or make one of a `Look` and its words."""
    if isinstance(what, Look):
        return exhibit_of_look(what, source, target)
    if not isinstance(what, Exhibit):
        raise ArgumentError(f"{type(what).__name__} given, expected an Exhibit or a Look")
    if source is not None or target is not None:
        raise ArgumentError("source, target: given with an exhibit, which has its own words; leave them out")
    return what


def exhibit_of_look(look: Look, source: Sequence[str] | None = None, target: Sequence[str] | None = None) -> Exhibit:
    """Make an exhibit of a `Look` at one example, with weights [n, m] or [h, n, m]; leading axes of one are dropped.

    `source` names the m columns and `target` the n rows; by default they are numbered from 1. Places of a grid need no
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
    numbers: dict[str, Any] = {
        name: reshape_rows(getattr(look, name), heads, n) for name in ("entropy", "centre", "picked")
    }
    rows = columns if itself else "written"
    view = View("look", "what was looked at", role, 0, rows, columns, weights, **numbers, how=look.how)
    title, output = (" ".join(words or ()) for words in (source, None if itself else target))
    return Exhibit("", "", title, "", sides, (view,), output)


def as_stack(weights: Tensor, expected: str) -> Float[Tensor, "h n m"]:
    """Return weights as a stack of matrices; leading axes of size one are dropped."""
    shape = list(weights.shape)
    while weights.dim() > 3 and weights.shape[0] == 1:
        weights = weights[0]
    if weights.dim() == 2:
        weights = weights[None]
    if weights.dim() != 3 or 0 in shape:
        raise ShapeError(f"{expected} {shape}")
    return weights


def check_words(name: str, words: Sequence[str] | None, count: int) -> list[str]:
    """Return one word for each position, after a check of their number; without words return numbers from 1."""
    if words is None:
        return [str(index + 1) for index in range(count)]
    if isinstance(words, str):
        raise ArgumentError(f"{name}: a sequence of words was expected, got one string; split it first")
    if len(words) != count:
        raise ShapeError(f"{name}: {count} words were expected, one for each {name} position, got {len(words)}")
    return [str(word) for word in words]


def reshape_rows(values: Tensor | None, heads: int, n: int) -> Tensor | None:
    """Reshape values to [h n]; return None if there is not one number for each row."""
    if values is None or values.numel() != heads * n:
        return None
    values = values.detach().reshape(heads, n).cpu()
    return values.float() if values.is_floating_point() else values.to(torch.int64)


# ---- sides as they are drawn


def separate_marks(side: Side) -> Side:
    """Split punctuation at the beginning and the end of words into words of its own.

    Drawings use the result, so that the weight of a full stop does not count for the word before it. Pieces inside a
    word, such as the apostrophe of "don't", remain part of it. Links and trees use the words of the original `side`.
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
        bare = (piece.removesuffix("@@").removesuffix("</w>") for piece in bare)  # tokenizers' marks of word boundaries
        for part, own in split_marks(text, list(zip(pieces, bare, strict=True))):
            for piece in own:
                words[piece] = len(texts)
            # If a word has an unknown piece, its part with letters is unknown.
            if word in side.unknown and (len(own) == len(pieces) or not is_mark(part)):
                unknown.append(len(texts))
            texts.append(part)
    return replace(side, words=tuple(words), texts=tuple(texts), unknown=tuple(unknown))


def count_specials(side: Side) -> Side:
    """Make special tokens such as START and END words of their own, in place."""
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
    while first and not pieces[first - 1][1]:  # a piece that only marks the word's start belongs to the next piece
        first -= 1
    before, after = ("".join(bare for _, bare in some) for some in (pieces[:first], pieces[end:]))
    middle = text[len(before) : len(text) - len(after)]
    if not middle or text != before + middle + after:
        return whole
    parts = [(before, pieces[:first]), (middle, pieces[first:end]), (after, pieces[end:])]
    return [(part, [piece for piece, _ in own]) for part, own in parts if part]


def is_mark(text: str) -> bool:
    """Return whether a text consists of punctuation only."""
    return all(unicodedata.category(letter).startswith("P") for letter in text)


def name_places(names: Sequence[str], grid: tuple[int, int] | None = None) -> Side:
    """Make a side whose pieces are named places: of a grid, row by row, or of a memory."""
    return Side(tuple(names), tuple(range(len(names))), tuple(names), grid)


def merge(
    weights: Float[Tensor, "*h n m"],
    rows: Sequence[int | None],
    columns: Sequence[int | None],
) -> Float[Tensor, "*h i j"]:
    """Merge weights between pieces into weights between words, as `extraction.merge_batch` does.

    `rows` contains the word of each target piece and `columns` that of each source piece, from 0, as returned by
    tokenizers' `word_ids`; None means that a piece belongs to no word. The highest number determines the number of
    words; a word without pieces gets zeros.
    """
    if (len(rows), len(columns)) != weights.shape[-2:]:
        given = f"{len(rows)} rows and {len(columns)} columns"
        raise ShapeError(f"weights: {given} of pieces given, got weights of {list(weights.shape)}")
    (down, i), (across, j) = (extraction.word_ids([words], weights.device) for words in (rows, columns))
    stack = weights.reshape(1, math.prod(weights.shape[:-2]), *weights.shape[-2:])
    return extraction.merge_batch(stack, down, across, (i, j)).reshape(*weights.shape[:-2], i, j)
