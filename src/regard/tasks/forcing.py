"""Teacher forcing: one forward pass over an input and a known output, found by a search or given by the user.

A task builds a `ForcedExample` from an item: its tokens, its sides in pieces and in words, and the tree of the search.
"""

# n pieces of the output, START or END among them · r rows: the same again, side by side
# v words or labels · y x height and width
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.data import END, START, UNKNOWN, DataSettings, Tokenizer, picture_pixels
from regard.decoding import Candidate as SearchCandidate
from regard.decoding import Ensemble, Options, SearchResult, tokens_of
from regard.errors import ArgumentError
from regard.models import Documents, Memory, Model, Pictures, Source, Tokens

MOST_PIECES = 1024  # pieces per side: the weights of all heads are kept, and their memory is quadratic
Item = str | Path | np.ndarray | Tensor  # a text or, for a model that reads pictures, a file or pixels [3 y x]


@dataclass(frozen=True)
class Side:
    """A sequence of queries or keys of an attention: pieces of a text, sentences of a document, cells of a grid."""

    pieces: tuple[str, ...]
    words: tuple[int | None, ...]  # the word of each piece, from 0; None for START, END and other special pieces
    texts: tuple[str, ...]  # the words
    grid: tuple[int, int] | None = None  # height and width if the pieces are cells of a picture, row by row
    sentences: tuple[int, ...] | None = None  # of a document: the sentence of each piece, from 0
    unknown: tuple[int, ...] = ()  # words with an unknown piece

    @property
    def names(self) -> tuple[str, ...]:
        """Return the pieces, but the word itself for a word that is one unknown piece, to distinguish such words."""
        return tuple(
            piece
            if word is None or word not in self.unknown or self.words.count(word) > 1
            else self.texts[word] or piece
            for piece, word in zip(self.pieces, self.words, strict=True)
        )


@dataclass(frozen=True)
class Candidate:
    """A hypothesis that a search considered: a hypothesis of the previous step, and one more piece."""

    parent: int  # the row of the previous step's hypothesis; 0 at the first step
    piece: str
    log_prob: float  # of the piece, given the pieces before it
    total: float  # log-probability of the whole hypothesis
    fate: Literal["kept", "finished", "dropped"]
    row: int | None  # its row if it is kept, to which the next step's `parent` refers
    best: bool = False  # whether it is a prefix of the output


@dataclass(frozen=True)
class Tree:
    """The hypotheses that a search considered, step by step."""

    beam: int
    steps: tuple[tuple[Candidate, ...], ...]


@dataclass(frozen=True, eq=False)
class ForcedExample:
    """The inputs of a teacher-forced pass, with their pieces and words."""

    source: Source  # of one row
    sides: dict[str, Side]
    title: str
    output: str = ""
    target: tuple[int, ...] | None = None  # the output's tokens, without START and END; None for a classifier
    label: int | None = None  # of a classifier
    labels: dict[str, float] = field(default_factory=dict)
    picture: UInt8[Tensor, "3 y x"] | None = None
    tree: Tree | None = None

    @property
    def reads(self) -> Literal["source", "picture"] | None:
        """Return the kind of input that the model reads; None for a language model."""
        return "picture" if isinstance(self.source, Pictures) else "source" if "source" in self.sides else None

    def memory(self, model: Model, rows: int = 1) -> Memory:
        """Return the encoder's memory, `rows` times."""
        source = self.source
        if isinstance(source, Pictures):
            if self.target is None:
                return model.encode(Pictures(source.pixels.expand(rows, -1, -1, -1)))
            places = torch.zeros(rows, dtype=torch.long, device=source.pixels.device)
            return model.encode(source).rows(places)  # encode once: a captioner's grid has no self-attention
        words = source.words if isinstance(source, Documents) else source
        tokens = Tokens.of(words.ids.repeat(rows, 1), words.lengths.repeat(rows))
        if isinstance(source, Documents):
            return model.encode(Documents(tokens, source.sentences.repeat(rows)))
        return model.encode(tokens)

    def logits(self, model: Model, rows: int = 1, memory: Memory | None = None) -> Float[Tensor, "r n v"]:
        """Compute the logits of the vocabulary at every piece of the output, or of the labels, in one pass."""
        memory = self.memory(model, rows) if memory is None else memory
        if self.target is None:
            return to_float32(model.classify(memory))[:, None]
        read = tokens_of([[START, *self.target]] * rows, next(model.parameters()).device)
        return to_float32(model.output(model.decode(memory, read)[0]))

    def log_probs(self, model: Model, rows: int = 1, memory: Memory | None = None) -> Float[Tensor, "r n"]:
        """Compute the log-probability of every piece of the output, with END last, or of the label, in one pass."""
        return self.pick(self.logits(model, rows, memory))

    def pick(self, logits: Float[Tensor, "r n v"]) -> Float[Tensor, "r n"]:
        """Return the log-probabilities of the output's pieces, or of the label, from the logits."""
        if self.target is None:
            assert self.label is not None
            return logits.log_softmax(-1)[..., self.label]
        tokens = torch.tensor([[*self.target, END]] * len(logits), device=logits.device)
        return -F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")

    def log_prob(self, model: Model) -> float:
        """Compute the log-probability of the whole output; an ensemble averages the probabilities of each piece."""
        if isinstance(model, Ensemble):
            each = torch.stack([self.log_probs(one) for one in model.each]).cpu().double()
            return float((each.logsumexp(0) - np.log(len(each))).sum())
        return float(self.log_probs(model).cpu().double().sum())


def text_side(
    tokenizer: Tokenizer, ids: Sequence[int], text: str | None = None, *, start: bool = False, end: bool = False
) -> Side:
    """Build the side of a text's pieces, optionally with START before or END after them.

    If `text`, the original, is known, the side shows its words even where their pieces are unknown.
    """
    words, texts = split_words(tokenizer, ids, text)
    whole = [START] * start + list(ids) + [END] * end
    numbered, unknown = (None,) * start + words + (None,) * end, unknown_of(ids, words)
    return Side(tuple(tokenizer.pieces(whole)), numbered, texts, unknown=unknown)


def unknown_of(ids: Sequence[int], words: Sequence[int | None]) -> tuple[int, ...]:
    """Return the numbers of the words that have an unknown piece."""
    pairs = zip(ids, words, strict=True)
    return tuple(sorted({word for token, word in pairs if token == UNKNOWN and word is not None}))


def split_words(
    tokenizer: Tokenizer, ids: Sequence[int], text: str | None = None
) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """Return the word number of each piece, and the words."""
    words, texts = tuple(tokenizer.words(ids)), tokenizer.decode(ids).split()
    typed = [] if text is None else tokenizer.normalise(text).split()
    texts = typed if len(typed) == len(texts) else texts
    count = max((word for word in words if word is not None), default=-1) + 1
    return words, tuple(texts[:count]) + ("",) * (count - len(texts))


def document_sides(
    tokenizer: Tokenizer, row: Sequence[int], typed: Sequence[str] = (), *, ends: bool
) -> dict[str, Side]:
    """Build the sides of an encoded document: its pieces, with or without END; its sentences; the document.

    `typed` are its original sentences, from which the sides show unknown words.
    """
    pieces, words, texts, belongs, unknown = list[str](), list[int | None](), list[str](), list[int](), list[int]()
    lengths = list[int]()  # of the sentences, in words
    ended = itertools.accumulate((token == END for token in row), initial=0)  # a sentence ends with its END
    numbered = zip(ended, row, strict=False)
    for number, (_, group) in enumerate(itertools.groupby(numbered, key=lambda pair: pair[0])):
        ids = [token for _, token in group]
        own, sentence = split_words(tokenizer, ids[:-1])
        visible = ids if ends else ids[:-1]
        pieces += tokenizer.pieces(visible)
        words += [None if word is None else word + len(texts) for word in own] + [None] * ends
        unknown += [word + len(texts) for word in unknown_of(ids[:-1], own)]
        texts += sentence
        belongs += [number] * len(visible)
        lengths.append(len(sentence))
    # Show unknown words as typed, if all other words agree. The encoded document may be a truncated one.
    given, strange = [word for text in typed for word in tokenizer.normalise(text).split()], set(unknown)
    known = [place for place in range(len(texts)) if place not in strange]
    if len(texts) <= len(given) and all(texts[place] == given[place] for place in known):
        texts = given[: len(texts)]
    starts = itertools.accumulate(lengths, initial=0)
    sentences = [" ".join(texts[start : start + length]) for start, length in zip(starts, lengths, strict=False)]
    numbers = tuple(range(len(sentences)))
    return {
        "source": Side(tuple(pieces), tuple(words), tuple(texts), sentences=tuple(belongs), unknown=tuple(unknown)),
        "sentences": Side(tuple(sentences), numbers, tuple(sentences), sentences=numbers),
        "document": Side(("document",), (0,), ("document",)),
    }


def output_sides(tokenizer: Tokenizer, output: list[int], text: str | None) -> dict[str, Side]:
    """Return the side "written", with END after the output, and the side "read", with START before it."""
    return {
        "written": text_side(tokenizer, output, text, end=True),
        "read": text_side(tokenizer, output, text, start=True),
    }


def search_tree(result: SearchResult, tokenizer: Tokenizer, options: Options) -> Tree | None:
    """Build the tree of a search from its recorded steps, and mark the path to its output; None without records."""
    if result.steps is None:
        return None
    way, totals, tree_steps = find_path(result.steps, result.outputs[0].tokens), {0: 0.0}, []
    for number, step in enumerate(result.steps):
        pieces = tokenizer.pieces([each.token for each in step])
        candidates = []
        for place, (each, piece) in enumerate(zip(step, pieces, strict=True)):
            own, best = each.log_prob - totals[each.parent], way.get(number) == place
            candidates.append(Candidate(each.parent, piece, own, each.log_prob, each.fate, each.row, best))
        tree_steps.append(tuple(candidates))
        totals = {each.row: each.log_prob for each in step if each.row is not None}
    return Tree(options.nbest if options.sample else options.beam, tuple(tree_steps))


def find_path(steps: Sequence[Sequence[SearchCandidate]], output: Sequence[int]) -> dict[int, int]:
    """Find, for each step, the index of the candidate on the path to the output; return {} if there is no path."""
    if len(output) >= len(steps):
        return {}
    rows = [{each.row: place for place, each in enumerate(step) if each.row is not None} for step in steps]
    for place, last in enumerate(steps[len(output)]):
        if last.token != END or last.fate != "finished":
            continue
        way, parent = {len(output): place}, last.parent
        for number in range(len(output) - 1, -1, -1):
            at = rows[number][parent]
            if steps[number][at].token != output[number]:
                break
            way[number], parent = at, steps[number][at].parent
        else:
            return way
    return {}


def encode_text(tokenizer: Tokenizer, text: str, name: str, limit: int | None = None) -> list[int]:
    """Encode a text; refuse one that is empty, or too long to show or for the model."""
    ids = tokenizer.encode(text)
    check_length(ids, name)
    if limit is not None and len(ids) >= limit:
        raise ArgumentError(f"{name}: {len(ids):,} tokens given, expected fewer than {limit:,}, the model's length")
    return ids


def check_length(ids: list[int], name: str) -> None:
    """Refuse an empty text, and one that is too long to show."""
    if not ids:
        raise ArgumentError(f"{name}: nothing in it, expected words to look at")
    if len(ids) > MOST_PIECES:
        raise ArgumentError(f"{name}: {len(ids):,} tokens given, expected at most {MOST_PIECES:,} to look at")


def read_pixels(data: DataSettings, item: Item) -> UInt8[Tensor, "3 y x"]:
    """Read a picture as the model reads it, or check given pixels."""
    read = picture_pixels.read_for(data, item) if isinstance(item, str | Path) else item
    pixels = torch.as_tensor(read)
    if pixels.ndim != 3 or len(pixels) != 3 or pixels.dtype != torch.uint8:
        raise ArgumentError(f"item: {pixels.dtype} of {list(pixels.shape)} given, expected bytes [3 height width]")
    return pixels.cpu()


def name_item(item: Item) -> str:
    """Return a picture's file name, or "picture" if only its pixels are given."""
    return Path(item).name if isinstance(item, str | Path) else "picture"


def to_float32(logits: Tensor) -> Tensor:
    """Convert logits to float32, unless they are float64."""
    return logits if logits.dtype == torch.float64 else logits.float()
