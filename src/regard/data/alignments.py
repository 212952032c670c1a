"""Word links of parallel corpora, and their conversion to links between pieces.

Links are written like alignments, `0-0 1-2`, source first, from 0; words in a file are separated by white space. Links
are checked when they are read, and stored with the word numbers of the tokenizer, which are mostly the same; a tag
before the source is one more word. If the tokenizer finds another number of words, the pair loses its links and is
counted.

`Linking` turns links between words into links between their pieces when a batch is made, because BPE dropout splits a
word into other pieces in every epoch. It links all pieces of both words. The weights of a target piece's links are the
rows of Chen et al. 2016 (arXiv:1607.01628), section 3: uniform, with a sum of one.

b rows · l links · p pieces of all rows · w words of all rows
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from regard.data.cache import Encoded
from regard.data.tokenizer import Tokenizer, Tokenizers
from regard.errors import DataError
from regard.io import parse_marked_links


@dataclass(frozen=True)
class Links:
    """Links between the pieces of a batch; decoder position i of a row writes target piece i."""

    row: Int64[Tensor, " l"]
    target: Int64[Tensor, " l"]
    source: Int64[Tensor, " l"]
    weight: Float[Tensor, " l"]  # uniform over the links of a target piece, with a sum of one

    def __len__(self) -> int:
        return len(self.row)

    def part(self, first: int, last: int) -> "Links":
        """Return the links of rows `first` to `last` - 1."""
        inside = (self.row >= first) & (self.row < last)
        links = self.map_tensors(lambda tensor: tensor[inside])
        return Links(links.row - first, links.target, links.source, links.weight)

    def map_tensors(self, move: Callable[[Tensor], Tensor]) -> "Links":
        """Return a copy with `move` applied to every tensor."""
        return Links(move(self.row), move(self.target), move(self.source), move(self.weight))


class Cut(NamedTuple):
    """The words of many rows, numbered consecutively: the first piece of each in its row, and its number of pieces."""

    counts: Int64[np.ndarray, " b"]  # words of each row
    starts: Int64[np.ndarray, " w"]
    sizes: Int64[np.ndarray, " w"]


class Words:
    """A finder of the words in many rows at once; `Tokenizer.words` does the same for one row."""

    def __init__(self, tokenizer: Tokenizer):
        self.begins, self.mark, self.tag, self.nothing = tokenizer.beginnings()
        self.around = len(tokenizer.before), len(tokenizer.after)

    def cut(self, ids: Int[np.ndarray, " p"], lengths: Int64[np.ndarray, " b"]) -> Cut:
        """Find the words of concatenated rows, each of which includes the pieces that surround a text."""
        ends = np.cumsum(lengths)
        before = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)
        behind = np.repeat(ends, lengths) - np.arange(len(ids))
        nothing = self.nothing[ids] | (before < self.around[0]) | (behind <= self.around[1])
        if not nothing.any():
            return self.cut_texts(ids, lengths)
        # Find the words without the surrounding pieces, then map their starts back.
        row, place = np.repeat(np.arange(len(lengths)), lengths)[~nothing], np.flatnonzero(~nothing)
        inner = np.bincount(row, minlength=len(lengths))
        cut = self.cut_texts(ids[~nothing], inner)
        at = np.repeat(np.cumsum(inner) - inner, cut.counts) + cut.starts
        return Cut(cut.counts, place[at] - np.repeat(ends - lengths, cut.counts), cut.sizes)

    def cut_texts(self, ids: Int[np.ndarray, " p"], lengths: Int64[np.ndarray, " b"]) -> Cut:
        """Find the words of concatenated texts."""
        ends = np.cumsum(lengths)
        first = np.zeros(len(ids) + 1, bool)
        first[np.concatenate([[0], ends])] = True
        first = first[:-1]
        mark, tag = self.mark[ids], self.tag[ids]
        # A mark alone is not a complete word: the next piece continues it. The piece after a tag begins a word.
        new: Bool[np.ndarray, " p"] = first.copy()
        new[1:] |= (self.begins[ids[1:]] | tag[:-1]) & ~mark[:-1]
        row = np.repeat(np.arange(len(lengths)), lengths)
        word = np.cumsum(new) - 1
        # A mark alone at the end of a row is not a word.
        real = ~np.isin(word, word[ends[lengths > 0] - 1][mark[ends[lengths > 0] - 1]]) if len(ids) else new
        begun = np.flatnonzero(new & real)
        sizes = np.bincount(word[real], minlength=0)[word[begun]] if len(begun) else np.zeros(0, np.int64)
        counts = np.bincount(row[begun], minlength=len(lengths))
        return Cut(counts, begun - (ends - lengths)[row[begun]], sizes.astype(np.int64))


class Linking:
    """A builder of the links of a batch."""

    def __init__(self, tokenizers: Tokenizers):
        self.source = Words(tokenizers.source)
        self.target = self.source if tokenizers.source is tokenizers.target else Words(tokenizers.target)

    def links(
        self,
        encoded: Encoded,
        indices: Int64[np.ndarray, " b"],
        sides: list[Int[np.ndarray, " _"]],
        lengths: Int64[np.ndarray, "b 2"],
        rows: Bool[np.ndarray, " b"] | None = None,
    ) -> Links:
        """Return the links of a cache's pairs, whose pieces are concatenated in `sides`; if given, only for `rows`."""
        assert encoded.links is not None
        starts, ends = encoded.linked[indices], encoded.linked[indices + 1]
        counts = ends - starts if rows is None else np.where(rows, ends - starts, 0)
        row = np.repeat(np.arange(len(indices)), counts)
        at = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        source, target = self.cuts(sides, lengths)
        words = [  # numbered across all rows
            np.cumsum(side.counts)[row] - side.counts[row] + encoded.links[at, i].astype(np.int64)
            for i, side in ((0, source), (1, target))
        ]
        # A link of words becomes links of every target piece with every source piece.
        wide, high = source.sizes[words[0]], target.sizes[words[1]]
        total = np.bincount(words[1], weights=wide, minlength=len(target.sizes))  # linked source pieces of a word
        count = wide * high
        each = np.repeat(np.arange(len(row)), count)
        inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        down, along = np.divmod(inside, wide[each])
        pieces = row[each], target.starts[words[1][each]] + down, source.starts[words[0][each]] + along
        index = torch.from_numpy(np.stack(pieces))
        return Links(index[0], index[1], index[2], torch.from_numpy((1 / total[words[1][each]]).astype(np.float32)))

    def cuts(self, sides: list[Int[np.ndarray, " _"]], lengths: Int64[np.ndarray, "b 2"]) -> tuple[Cut, Cut]:
        """Find the words of both sides."""
        return self.source.cut(sides[0], lengths[:, 0]), self.target.cut(sides[1], lengths[:, 1])


def find_problem(text: str, sources: int, targets: int) -> str | None:
    """Describe what is wrong with a line of links: invalid syntax, or words that do not exist; None if valid."""
    try:
        links = parse_marked_links(text)
    except DataError as error:
        return str(error)
    for link, _, piece in links:
        for side, number, words in zip(("source", "target"), link, (sources, targets), strict=True):
            if number >= words:
                return f"the link {piece} given, but the {side} has {words:,} words, counted from 0"
    return None


def count_words(tokenizer: Tokenizer, rows: list[list[int]]) -> list[int]:
    """Count the words that the tokenizer finds in each row."""
    flat = np.array([i for row in rows for i in row], np.int64)
    counts: list[int] = Words(tokenizer).cut(flat, np.array([len(row) for row in rows], np.int64)).counts.tolist()
    return counts
