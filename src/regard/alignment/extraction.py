"""Extraction of alignments: where a model looks for each word of a translation; teacher forced, so exact after any
search. And coverage: source words that an output seems to leave out, as hardly any of its attention went to them.

Which attention and head are read, and how, is kept in RUN/alignment.json; `selection` chooses it on a development set.
A word's attention is what fell on its pieces, summed over the pieces of the output. Of an output's marks and of its end
nothing is counted: they look about, and often at words that nobody translated. It is read where links are read
(`AlignmentSettings`): of one head where one was chosen, else it is the median over the heads of that layer, which one
head that looks at everything does not move, as it moves their mean.
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

BUDGET = 4096  # pieces of a batch a side
BUDGET_CUDA = 32_768
Pair = tuple[Sequence[int], Sequence[int]]
Links = list[Link]
LEAST = 0.2  # attention, summed over an output, of a word that was translated
ROW = 3  # words in a row that are reported: one or two are often said by the words around them
SPELLED = 1.2  # letters of a word at most, in the mean, where words are single letters
LETTER = re.compile(r"\w")
Spans = tuple[tuple[int, int], ...]  # of words: the first, and the one behind the last
ALIGNMENT_FILE = "alignment.json"
GUIDED = 0.2  # the threshold of a run that was guided: links of a word share its weight, with four each has a quarter
JOINS = ("intersection", "union", "grow-diag")
LAYER = re.compile(r"(?:^|\.)(?:blocks|layers)\.(\d+)\.")
ROUNDS = 1000  # of balancing, at most: it is done after a few


@dataclass(frozen=True)
class AlignmentSettings:
    """The attention that is read as an alignment.

    `offset` 0: a step's row belongs to the word that is written; 1: to the word that is read, which the step before
    wrote. `threshold`: a target word is linked with every source word that has at least this share of its weight; None:
    with the one that has the most. `join`: each source word is linked as well, with the target word that looked at it
    most, and both are made one, as in `symmetrise`; None: the target's words alone. `balance`: so many times before,
    what each source word got, and then what each target word gave, is brought to one in all (Sinkhorn 1967). A noun
    that its article looks at more than at "the" gets more than its share, and balanced weights show it.
    """

    view: str  # as `watch` knows it: decoder.blocks.3.cross
    head: int | None = None  # from 0, and from 1 where people read it; None: the mean of all
    offset: Literal[0, 1] = 0
    aer: float | None = None  # what it reached where it was chosen
    by: str = ""  # how it was chosen
    threshold: float | None = None
    join: Literal["intersection", "union", "grow-diag"] | None = None
    balance: int = 0

    @classmethod
    def of(cls, folder: str | Path, model: Model) -> "AlignmentSettings":
        """Return a run's settings: from its alignment.json, else what it was guided in, else the one nearest to an
        alignment.
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
        """Read settings from a file; of `views` it must name one."""
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
        """Keep it with the run, whole or not at all."""
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
    """Name an attention to the source as people do: by its layer, counted from 1, where it has one."""
    layer = LAYER.search(view)
    if layer is None:
        return "the attention to the source" if view == "attention" else view
    return f"layer {int(layer[1]) + 1}"


@dataclass(frozen=True, eq=False)
class WatchedBatch:
    """Some of many pairs, as a model read them under `watch`, and the word of each piece (-1: none)."""

    pairs: list[int]  # which of them
    looks: call_records.Looks
    source: Int[Tensor, "b m"]
    target: Int[Tensor, "b n"]
    source_words: int  # of the pair that has the most
    target_words: int

    def rows(self, offset: int) -> Int[Tensor, "b r"]:
        """Return the word that each row of a crossing belongs to: the one written (offset 0), or the one read (1).

        START is read first and END written last, so that there is a row more than there are pieces.
        """
        nothing = self.target.new_full((len(self.target), 1), -1)
        return torch.cat([nothing, self.target] if offset else [self.target, nothing], 1)

    def weights(self, name: str) -> Float[Tensor, "b h n m"]:
        """Return the weights of an attention, with a head axis also where it has one head."""
        weights = self.looks[name].weights.float()
        return weights if weights.ndim == 4 else weights[:, None]

    def words(self, weights: Float[Tensor, "b h r k"], offset: int) -> Float[Tensor, "b h i j"]:
        """Merge weights between pieces into weights between words."""
        return merge_batch(weights, self.rows(offset), self.source, (self.target_words, self.source_words))

    def size(self, side: str) -> int:
        """Return how many words the encoder's or the decoder's side has, of the pair that has the most."""
        return self.target_words if side == "decoder" else self.source_words

    def own_links(self, name: str, side: str) -> Bool[Tensor, "b h i j"]:
        """Link each word to the one of its own side that it looked at most; of the decoder, words are those it read."""
        weights = self.weights(name)
        rows = (self.rows(1) if side == "decoder" else self.source)[:, : weights.shape[2]]
        sizes = self.size(side), self.size(side)
        return pick_links(merge_batch(weights, rows, rows[:, : weights.shape[3]], sizes))

    def mark(self, links: Sequence[Iterable[tuple[int, int]]], rows: int, columns: int) -> Bool[Tensor, "b 1 i j"]:
        """Mark where the links of each pair are, (row, column); those of words that no pair has are left out."""
        mask = torch.zeros(len(links), 1, rows, columns, dtype=torch.bool)
        for number, each in enumerate(links):
            for i, j in each:
                if i < rows and j < columns:
                    mask[number, 0, i, j] = True
        return mask.to(self.source.device)

    def crossing(self, name: str, head: int | None) -> Float[Tensor, "b 1 r k"]:
        """Return one head of a crossing, or their mean."""
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
    """Read all pairs of token sequences once under `watch`, of `only` these, those of like length together."""
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
    """Return the word of each piece as a padded batch, -1 for none, and how many words there are at most."""
    width = max(1, max(map(len, rows)))
    ids = torch.tensor([[*(-1 if word is None else word for word in row), *[-1] * (width - len(row))] for row in rows])
    return ids.to(device), int(ids.max()) + 1


def merge_batch(
    weights: Float[Tensor, "b h n k"], rows: Int[Tensor, "b n"], columns: Int[Tensor, "b m"], counts: tuple[int, int]
) -> Float[Tensor, "b h i j"]:
    """Merge weights between pieces to weights between words: averaged over a row's pieces, summed over a column's.

    Rows that sum to one still do, less what was dropped: -1 is a piece of no word (END, a tag), and dropped. So Clark
    et al. 2019 (arXiv:1906.04341) read BERT's attention.

    Columns of the weights beyond those given are of no word either. `counts`: how many words the sides have at most.
    """
    b, h, n, _ = weights.shape
    i, j = counts
    weights = weights[..., : columns.shape[1]]
    # What is of no word goes to a place behind the last, by index and not by a product: a NaN in it stays out.
    to = torch.where(columns < 0, j, columns)[:, None, None].expand(b, h, n, -1)
    narrow = weights.new_zeros(b, h, n, j + 1).scatter_add(-1, to, weights)[..., :j]
    at = torch.where(rows < 0, i, rows)
    tall = weights.new_zeros(b, h, i + 1, j).scatter_add(-2, at[:, None, :, None].expand(b, h, n, j), narrow)[
        ..., :i, :
    ]
    pieces = weights.new_zeros(b, i + 1).scatter_add(-1, at, torch.ones_like(at, dtype=weights.dtype))[:, :i]
    return tall / pieces.clamp(min=1)[:, None, :, None]


def pick_links(weights: Float[Tensor, "*b i j"], threshold: float | None = None) -> Bool[Tensor, "*b i j"]:
    """Pick the links: the largest weight of each row, or all from the threshold on.

    Of equal weights the first is taken; where a row has no weight, or one that is no number, there is no link.
    """
    if 0 in weights.shape:
        return weights > 0
    best, at = weights.max(-1, keepdim=True)
    sound = best > 0  # not of NaN
    if threshold is not None:
        return (weights >= threshold) & sound
    return torch.zeros_like(sound).expand(weights.shape).scatter(-1, at, True) & sound


def extract_links(weights: Float[Tensor, "b i j"], settings: AlignmentSettings) -> list[Links]:
    """Extract the links (source word, target word) of each pair from its weights, in the target's order."""
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
    """List the links of a mask; only they leave the device."""
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
    """Read how much the target words of a batch looked at their source words."""
    words = part.words(part.crossing(settings.view, settings.head), settings.offset)[:, 0]
    check_finite(model, words, impossible=False)
    return words


def count_words(words: Callable[[Sequence[int]], list[int | None]], ids: Sequence[int]) -> int:
    """Count the words of token numbers."""
    return max((word for word in words(ids) if word is not None), default=-1) + 1


@dataclass(frozen=True, eq=False)
class WordAttention:
    """How much each target word of a pair looked at each source word, and how much each source word received."""

    weights: Float[Tensor, "i j"]
    received: Float[Tensor, " j"]


def untranslated_spans(words: Sequence[str], received: Sequence[float], tags: Sequence[str] = ()) -> Spans:
    """Return where three or more words in a row received too little; marks alone and tags count for nothing.

    A text that is spelled, letter by letter, has no words: of "t h r o u g h" hardly anything is heard.
    """
    letters = {number: len(LETTER.findall(word)) for number, word in enumerate(words) if word not in tags}
    counted = [number for number, count in letters.items() if count]
    if sum(letters.values()) <= SPELLED * len(counted):
        return ()
    heard = groupby(counted, key=lambda number: number < len(received) and received[number] >= LEAST)
    rows = [list(row) for enough, row in heard if not enough]
    return tuple((row[0], row[-1] + 1) for row in rows if len(row) >= ROW)


def content_rows(tokenizer: Tokenizer, ids: Sequence[int], width: int, offset: int) -> list[bool]:
    """Tell which of `width` rows of a crossing belong to pieces with a letter or a number, by the offset of rows."""
    flags = [bool(LETTER.search(piece)) for piece in tokenizer.pieces(list(ids))]
    flags = [False, *flags] if offset else flags
    return [*flags, *[False] * (width - len(flags))][:width]


def sum_received(
    weights: Float[Tensor, "b h r k"], rows: Bool[Tensor, "b r"], columns: Int[Tensor, "b m"], words: int
) -> Float[Tensor, "b j"]:
    """Sum what `rows` gave to the pieces of each source word, as the median over the heads; -1 is of no word."""
    b, h, _, _ = weights.shape
    # By index and not by a product: a NaN in a row that does not count stays out.
    summed = torch.where(rows[:, None, :, None], weights, 0.0).sum(2)[..., : columns.shape[1]]
    at = torch.where(columns < 0, words, columns)[:, None].expand(b, h, -1)
    received = weights.new_zeros(b, h, words + 1).scatter_add(-1, at, summed)[..., :words].sort(1).values
    return (received[:, (h - 1) // 2] + received[:, h // 2]) / 2


def word_attention(
    model: Model, tokenizers: Tokenizers, pairs: Sequence[Pair], settings: AlignmentSettings
) -> list[WordAttention]:
    """Return the attention between the words of pairs of token sequences, read in one teacher-forced pass."""
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
