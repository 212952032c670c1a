"""Extraction of word alignments from cross-attention, and of source words that an output seems to leave out.

A teacher-forced pass gives the weights, so that they are exact after any search. RUN/alignment.json says which
attention and head to read, and how; `selection` chooses them on a development set.

A source word seems untranslated if it received hardly any attention. The attention that it received is summed over its
pieces and over the output's pieces, except punctuation and END, which attend broadly and often to untranslated words.
It comes from the same layer as the links (`AlignmentSettings`): from the chosen head, or else as the median over the
heads. Unlike a mean, the median ignores a single head that attends to everything.
"""

# b pairs · h heads · n target pieces, r = n + 1 rows · m source pieces, k ≥ m columns · i target words · j source words
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.alignment.symmetrisation import Link, symmetrise
from regard.attention import call_records
from regard.config import read, show_value
from regard.data import Tokenizer, Tokenizers, collate
from regard.decoding import check_finite
from regard.errors import ArgumentError, DataError
from regard.io import disk, packs, reading
from regard.models import Model
from regard.training import inputs

BUDGET = 4096  # pieces per batch and side
BUDGET_CUDA = 32_768
Pair = tuple[Sequence[int], Sequence[int]]
Links = list[Link]
LEAST = 0.2  # a word that received at least this much attention counts as translated
ROW = 3  # report at least so many words in a row: neighbours often translate one or two words
SPELLED = 1.2  # up to so many letters per word on average, a text is spelled letter by letter
LETTER = re.compile(r"\w")
Spans = tuple[tuple[int, int], ...]  # of words: the first, and the one after the last
ALIGNMENT_FILE = "alignment.json"
GUIDED = 0.2  # the threshold for guided runs: a word's links share its weight, so that each of four has a quarter
JOINS = ("intersection", "union", "grow-diag")
LAYER = re.compile(r"(?:^|\.)(?:blocks|layers)\.(\d+)\.")
ROUNDS = 1000  # the most rounds of balancing, which converges after a few


@dataclass(frozen=True)
class AlignmentSettings:
    """The attention that is read as an alignment, and how links are read from its weights.

    `offset` 0: a step's row belongs to the word that it writes; 1: to the word that it reads, which the step before
    wrote. `threshold`: link a target word with every source word that has at least this share of its weight; None: with
    the source word of the largest weight. `join`: also link each source word with the target word that attends to it
    most, and join both sets of links as `symmetrise` does; None: link target words only. `balance`: first normalise the
    weights so many times, by source word and then by target word (Sinkhorn 1967). If a target article attends more to
    the noun than to "the", the noun receives more than its share, and balancing corrects this.
    """

    view: str  # the name that `watch` uses, such as decoder.blocks.3.cross
    head: int | None = None  # from 0 (shown from 1); None: the mean of all heads
    offset: Literal[0, 1] = 0
    aer: float | None = None  # the error rate with which it was chosen
    by: str = ""  # how the settings were chosen
    threshold: float | None = None
    join: Literal["intersection", "union", "grow-diag"] | None = None
    balance: int = 0

    @classmethod
    def of(cls, folder: str | Path, model: Model) -> "AlignmentSettings":
        """Return a run's settings, from its alignment.json if there is one.

        Otherwise they are the attention that guided training used, or the model's `alignment_attention`.
        """
        path, cross_attentions = Path(folder) / ALIGNMENT_FILE, model.cross_attentions
        if not cross_attentions:
            raise ArgumentError(f"{folder}: the model has no attention to its source")
        if packs.is_file(path):
            return cls.read(path, cross_attentions)
        config = Path(folder) / "config.toml"
        training = read(config).get("training", {}) if packs.is_file(config) else {}
        if training.get("guided", 0) > 0:
            layer = training.get("guided_layer")
            view = (
                model.alignment_attention if layer is None else cross_attentions[min(layer, len(cross_attentions) - 1)]
            )
            return cls(view, training.get("guided_head", 0), threshold=GUIDED, by="guided in training")
        return cls(model.alignment_attention)

    @classmethod
    def read(cls, path: str | Path, views: list[str] | None = None) -> "AlignmentSettings":
        """Read settings from a file; with `views` it must name one of these."""
        table = reading.read_json(path, DataError)
        if not isinstance(table, dict) or not isinstance(table.get("view"), str):
            raise DataError(f"{path}: no view in it, expected the name of an attention")
        if views is not None and table["view"] not in views:
            raise DataError(f"{path}: view {show_value(table['view'])}, expected one of {', '.join(views)}")
        given: dict[str, Any] = {each.name: table[each.name] for each in fields(cls) if each.name in table}
        checks: dict[str, tuple[Callable[[Any], bool], str]] = {
            "head": (lambda x: x is None or (type(x) is int and x >= 0), "a head from 0, or null: the mean"),
            "offset": (lambda x: type(x) is int and x in (0, 1), "0 or 1"),
            "threshold": (lambda x: x is None or (type(x) in (int, float) and 0 < x <= 1), "a share up to 1, or null"),
            "aer": (lambda x: x is None or type(x) in (int, float), "a number or null"),
            "by": (lambda x: isinstance(x, str), "words"),
            "balance": (lambda x: type(x) is int and 0 <= x <= ROUNDS, f"a number of rounds, 0 to {ROUNDS}"),
            "join": (lambda x: x is None or x in JOINS, f"{', '.join(JOINS)} or null"),
        }
        for key, (right, expected) in checks.items():
            if key in given and not right(given[key]):
                raise DataError(f"{path}: {key} {show_value(given[key])}, expected {expected}")
        return cls(**given)

    def write(self, folder: str | Path) -> Path:
        """Write the settings into the run's folder, atomically."""
        if packs.is_pack(folder):
            raise DataError(f"{folder}: a pack is not changed; make a folder of it first: unzip {folder} -d NEW")
        return disk.write_whole(Path(folder) / ALIGNMENT_FILE, json.dumps(asdict(self), indent=2) + "\n")

    def __str__(self) -> str:
        head = "mean of the heads" if self.head is None else f"head {self.head + 1}"
        place = f"{name_view(self.view)}, {head}"
        row = "the word that is written" if self.offset == 0 else "the word that is read"
        linked = "the largest weight" if self.threshold is None else f"weights from {self.threshold:g}"
        both = "" if self.join is None else f", joined with those of source words by {self.join}"
        evened = f", balanced in {self.balance} rounds" if self.balance else ""
        return f"{place}, of {row} (offset {self.offset}){evened}, {linked}{both}"


def name_view(view: str) -> str:
    """Return a readable name of a cross-attention: its layer, counted from 1, if it has one."""
    layer = LAYER.search(view)
    if layer is None:
        return "the attention to the source" if view == "attention" else view
    return f"layer {int(layer[1]) + 1}"


@dataclass(frozen=True, eq=False)
class WatchedBatch:
    """A batch of pairs with the attention weights that `watch` recorded, and the word of each piece (-1: none)."""

    pairs: list[int]  # the indices of the batch's pairs
    looks: call_records.Looks
    source: Int[Tensor, "b m"]
    target: Int[Tensor, "b n"]
    source_words: int  # the largest number of any pair
    target_words: int

    def rows(self, offset: int) -> Int[Tensor, "b r"]:
        """Return the word of each row of a cross-attention: the word written (offset 0) or the word read (offset 1).

        The first row reads START and the last writes END, so that there is one more row than pieces.
        """
        nothing = self.target.new_full((len(self.target), 1), -1)
        return torch.cat([nothing, self.target] if offset else [self.target, nothing], 1)

    def weights(self, name: str) -> Float[Tensor, "b h n m"]:
        """Return the weights of an attention, with a head axis even for a single head."""
        weights = self.looks[name].weights.float()
        return weights if weights.ndim == 4 else weights[:, None]

    def words(self, weights: Float[Tensor, "b h r k"], offset: int) -> Float[Tensor, "b h i j"]:
        """Merge weights between pieces into weights between words."""
        return merge_batch(weights, self.rows(offset), self.source, (self.target_words, self.source_words))

    def size(self, side: str) -> int:
        """Return the largest number of words of any pair, on the encoder's or the decoder's side."""
        return self.target_words if side == "decoder" else self.source_words

    def own_links(self, name: str, side: str) -> Bool[Tensor, "b h i j"]:
        """Link each word with the word of its own side that it attends to most; decoder rows are the words read."""
        weights = self.weights(name)
        rows = (self.rows(1) if side == "decoder" else self.source)[:, : weights.shape[2]]
        sizes = self.size(side), self.size(side)
        return pick_links(merge_batch(weights, rows, rows[:, : weights.shape[3]], sizes))

    def mark(self, links: Sequence[Iterable[tuple[int, int]]], rows: int, columns: int) -> Bool[Tensor, "b 1 i j"]:
        """Return a mask of each pair's links, (row, column), without links beyond `rows` and `columns`."""
        mask = torch.zeros(len(links), 1, rows, columns, dtype=torch.bool)
        for number, each in enumerate(links):
            for i, j in each:
                if i < rows and j < columns:
                    mask[number, 0, i, j] = True
        return mask.to(self.source.device)

    def crossing(self, name: str, head: int | None) -> Float[Tensor, "b 1 r k"]:
        """Return the weights of one head of a cross-attention, or the mean of all heads."""
        weights = self.weights(name)
        if head is None:
            return weights.mean(1, keepdim=True)
        if head >= weights.shape[1]:
            count = weights.shape[1]
            heads = "one head, which is number 1" if count == 1 else f"{count} heads, numbered 1 to {count}"
            raise ArgumentError(f"head {head + 1}: {name_view(name)} has {heads}")
        return weights[:, head : head + 1]


@torch.no_grad()
def watch_batches(
    model: Model,
    tokenizers: Tokenizers,
    pairs: Sequence[Pair],
    budget: int | None = None,
    *,
    only: Sequence[str] | None = None,
) -> Iterator[WatchedBatch]:
    """Run the model once on all pairs, in batches of similar length, and record weights; `only` names attentions."""
    device = next(model.parameters()).device
    budget = budget or (BUDGET_CUDA if device.type == "cuda" else BUDGET)
    order = sorted(range(len(pairs)), key=lambda i: -max(map(len, pairs[i])))
    while order:
        count = max(1, budget // (max(map(len, pairs[order[0]])) + 1))
        chunk, order = order[:count], order[count:]
        source, target = inputs(collate([pairs[i] for i in chunk]).to(device))
        with call_records.watch_call(model, only=only) as looks:
            model.decode(model.encode(source), target)
        sides = [
            word_ids([words(pairs[i][side]) for i in chunk], device)
            for side, words in enumerate((tokenizers.source.words, tokenizers.target.words))
        ]
        yield WatchedBatch(chunk, looks, sides[0][0], sides[1][0], sides[0][1], sides[1][1])


def word_ids(rows: Sequence[Sequence[int | None]], device: torch.device) -> tuple[Int[Tensor, "b n"], int]:
    """Return the word of each piece as a padded batch, -1 for none, and the largest number of words in a row."""
    width = max(1, max(map(len, rows)))
    ids = torch.tensor([[*(-1 if word is None else word for word in row), *[-1] * (width - len(row))] for row in rows])
    return ids.to(device), int(ids.max()) + 1


def merge_batch(
    weights: Float[Tensor, "b h n k"], rows: Int[Tensor, "b n"], columns: Int[Tensor, "b m"], counts: tuple[int, int]
) -> Float[Tensor, "b h i j"]:
    """Merge weights between pieces into weights between words: mean over a row's pieces, sum over a column's pieces.

    Rows still sum to one, less dropped weights: pieces of no word (-1: END, a tag), and columns beyond `columns`. Clark
    et al. 2019 (arXiv:1906.04341) merge BERT's attention in this way. `counts`: the largest numbers of words per side.
    """
    b, h, n, _ = weights.shape
    i, j = counts
    weights = weights[..., : columns.shape[1]]
    # Scatter pieces of no word to an extra place at the end, instead of multiplying them by 0, which would keep a NaN.
    to = torch.where(columns < 0, j, columns)[:, None, None].expand(b, h, n, -1)
    narrow = weights.new_zeros(b, h, n, j + 1).scatter_add(-1, to, weights)[..., :j]
    at = torch.where(rows < 0, i, rows)
    tall = weights.new_zeros(b, h, i + 1, j).scatter_add(-2, at[:, None, :, None].expand(b, h, n, j), narrow)[
        ..., :i, :
    ]
    pieces = weights.new_zeros(b, i + 1).scatter_add(-1, at, torch.ones_like(at, dtype=weights.dtype))[:, :i]
    return tall / pieces.clamp(min=1)[:, None, :, None]


def pick_links(weights: Float[Tensor, "*b i j"], threshold: float | None = None) -> Bool[Tensor, "*b i j"]:
    """Return a mask of links: the largest weight of each row, or all weights of at least `threshold`.

    Of equal weights the first wins; a row whose largest weight is 0 or NaN has no link.
    """
    if 0 in weights.shape:
        return weights > 0
    best, at = weights.max(-1, keepdim=True)
    sound = best > 0  # False for NaN
    if threshold is not None:
        return (weights >= threshold) & sound
    return torch.zeros_like(sound).expand(weights.shape).scatter(-1, at, True) & sound


def extract_links(weights: Float[Tensor, "b i j"], settings: AlignmentSettings) -> list[Links]:
    """Return the links (source word, target word) of each pair, from its weights, in the target's order."""
    weights = balance_weights(weights, settings.balance)
    forward = pick_links(weights, settings.threshold)
    if settings.join is None:
        return list_links(forward)
    backward = pick_links(weights.mT).mT
    if settings.join != "grow-diag":
        return list_links(forward & backward if settings.join == "intersection" else forward | backward)
    both = zip(list_links(forward), list_links(backward), strict=True)
    return [symmetrise(one, other, settings.join) for one, other in both]


def balance_weights(weights: Float[Tensor, "*b i j"], rounds: int) -> Float[Tensor, "*b i j"]:
    """Normalise columns, then rows, `rounds` times; zeros stay zero."""
    for _ in range(rounds):
        for side in (-2, -1):
            total = weights.sum(side, keepdim=True)
            weights = weights / torch.where(total > 0, total, 1.0)
    return weights


def list_links(mask: Bool[Tensor, "b i j"]) -> list[Links]:
    """Return the links of a mask as lists; only their indices are copied from the device."""
    links: list[Links] = [[] for _ in mask]
    for row, i, j in mask.nonzero().tolist():
        links[row].append((j, i))
    return links


def link_words(model: Model, tokenizers: Tokenizers, pairs: Sequence[Pair], settings: AlignmentSettings) -> list[Links]:
    """Link the words of each pair of token sequences: (source word, target word), in the target's order."""
    result: list[Links] = [[] for _ in pairs]
    for part in watch_batches(model, tokenizers, pairs, only=[settings.view]):
        for number, links in zip(
            part.pairs, extract_links(crossing_words(model, part, settings), settings), strict=True
        ):
            result[number] = links
    return result


def crossing_words(model: Model, part: WatchedBatch, settings: AlignmentSettings) -> Float[Tensor, "b i j"]:
    """Return the weights between the target words and source words of a batch, as the settings say."""
    words = part.words(part.crossing(settings.view, settings.head), settings.offset)[:, 0]
    check_finite(model, words, impossible=False)
    return words


def count_words(words: Callable[[Sequence[int]], list[int | None]], ids: Sequence[int]) -> int:
    """Count the words of a token sequence."""
    return max((word for word in words(ids) if word is not None), default=-1) + 1


@dataclass(frozen=True, eq=False)
class WordAttention:
    """A pair's attention weights between words, and the attention that each source word received."""

    weights: Float[Tensor, "i j"]
    received: Float[Tensor, " j"]


def untranslated_spans(words: Sequence[str], received: Sequence[float], tags: Sequence[str] = ()) -> Spans:
    """Return the spans of three or more words in a row that received little attention.

    Tags and words without letters are ignored. A text that is spelled letter by letter, such as "t h r o u g h", has no
    spans, since single letters always receive little attention.
    """
    letters = {number: len(LETTER.findall(word)) for number, word in enumerate(words) if word not in tags}
    counted = [number for number, count in letters.items() if count]
    if sum(letters.values()) <= SPELLED * len(counted):
        return ()
    heard = groupby(counted, key=lambda number: number < len(received) and received[number] >= LEAST)
    rows = [list(row) for enough, row in heard if not enough]
    return tuple((row[0], row[-1] + 1) for row in rows if len(row) >= ROW)


def content_rows(tokenizer: Tokenizer, ids: Sequence[int], width: int, offset: int) -> list[bool]:
    """Return for each of `width` rows of a cross-attention whether its piece has a letter or a digit."""
    flags = [bool(LETTER.search(piece)) for piece in tokenizer.pieces(list(ids))]
    flags = [False, *flags] if offset else flags
    return [*flags, *[False] * (width - len(flags))][:width]


def sum_received(
    weights: Float[Tensor, "b h r k"], rows: Bool[Tensor, "b r"], columns: Int[Tensor, "b m"], words: int
) -> Float[Tensor, "b j"]:
    """Sum the attention of `rows` to each source word's pieces, and return the median over heads; -1 is no word."""
    b, h, _, _ = weights.shape
    # Select rows with `where` instead of multiplying by a mask, which would keep a NaN of an ignored row.
    summed = torch.where(rows[:, None, :, None], weights, 0.0).sum(2)[..., : columns.shape[1]]
    at = torch.where(columns < 0, words, columns)[:, None].expand(b, h, -1)
    received = weights.new_zeros(b, h, words + 1).scatter_add(-1, at, summed)[..., :words].sort(1).values
    return (received[:, (h - 1) // 2] + received[:, h // 2]) / 2


def word_attention(
    model: Model, tokenizers: Tokenizers, pairs: Sequence[Pair], settings: AlignmentSettings
) -> list[WordAttention]:
    """Return the attention between the words of each pair, from one pass with teacher forcing."""
    result = [WordAttention(torch.empty(0, 0), torch.empty(0))] * len(pairs)
    for part in watch_batches(model, tokenizers, pairs, only=[settings.view]):
        weights = crossing_words(model, part, settings)
        heads = part.weights(settings.view)
        heads = heads if settings.head is None else heads[:, settings.head, None]
        targets = [pairs[number][1] for number in part.pairs]
        rows = [content_rows(tokenizers.target, ids, heads.shape[2], settings.offset) for ids in targets]
        received = sum_received(heads, torch.tensor(rows, device=heads.device), part.source, part.source_words)
        for number, one, two in zip(part.pairs, weights.cpu(), received.cpu(), strict=True):
            source, target = pairs[number]
            size = count_words(tokenizers.source.words, source)
            result[number] = WordAttention(one[: count_words(tokenizers.target.words, target), :size], two[:size])
    return result
