"""Parallel corpora with word links beside their pairs, as alignments are kept: `0-0 1-2`, source first, from 0.

Words are what stands between white space in a line of a file. Links are checked as they are read, and kept between the
words that the tokenizer tells apart: mostly the same, and a tag before the source is one more. Where they are not as
many, the pair goes on without its links, and is counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from regard.data.alignments.links import Words
from regard.data.corpus import read_linked
from regard.data.rows import Pair, Reading, Rows, content
from regard.data.settings import CorpusSettings
from regard.data.tokenizer import Tokenizer, Tokenizers
from regard.errors import DataError
from regard.io import Slips, parse_marked_links, parse_pharaoh


class LinkedReader(Reading):
    """A reader of rows of two texts and the links of their words."""

    linked = True

    def rows(self, corpus: CorpusSettings) -> Iterator[Pair]:
        """Yield every row of a corpus; its links are still text, but checked, and left out where they are wrong."""
        slips = Slips(str(corpus.alignment or corpus.file))
        for number, (source, target, text) in enumerate(read_linked(corpus, self.remarks.append), 1):
            problem = None
            if text.strip():
                problem = find_problem(text, len(source.split()), len(target.split()))
                slips.add(number, problem)
            yield source, target, "" if problem else text
        slips.end(self.remarks.append, "the pair is trained on without its links")

    def facts(self) -> dict[str, object]:
        """Add the links' files to the facts of the others."""
        if self.data.builtin:
            return {"alignment": self.data.alignment}
        corpora = [*self.training, *self.earlier, *self.validation]
        hashes = [content(corpus.alignment) if corpus.alignment else None for corpus in corpora]
        return {"alignment": hashes, "columns": [corpus.alignment_column for corpus in corpora]}

    def encode(self, rows: list[Pair], tag: str | None, tokenizers: Tokenizers, counts: Counter[str]) -> Rows:
        """Encode the rows that are kept, with their links."""
        encoded = super().encode(rows, tag, tokenizers, counts)
        before = int(tag is not None)
        sources, targets = (
            count_words(tokenizers.source, encoded.sources),
            count_words(tokenizers.target, encoded.targets),
        )
        links = list[list[tuple[int, int]]]()
        for (source_text, target_text, text), words in zip(
            encoded.texts, zip(sources, targets, strict=True), strict=True
        ):
            right = words == (len(source_text.split()), len(target_text.split()))
            pairs = [(source + before, target) for source, target in sorted(set(parse_pharaoh(text)))]
            counts["linked"] += bool(pairs and right)
            counts["unlinked"] += bool(pairs and not right)
            links.append(pairs if right else [])
        return Rows(encoded.texts, encoded.sources, encoded.targets, links)

    def beside(self, counts: Mapping[str, int], manifest: Mapping[str, Any]) -> str:
        """Describe how many pairs have links, and how many lost theirs."""
        unlinked = counts.get("unlinked", 0)
        other = (
            f" ({unlinked:,} lost theirs, because the tokenizer separates words differently from white space)"
            if unlinked
            else ""
        )
        return f", {counts.get('linked', 0):,} of them with word links{other}"


def find_problem(text: str, sources: int, targets: int) -> str | None:
    """Describe what is wrong with a line of links: it cannot be read, or they lead to words that are not there."""
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
