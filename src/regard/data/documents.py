"""Encoding of labelled documents: a sequence of sentences, and the label as a number.

A document's tokens are those of its sentences, with an END after each: "w w w END w w END". Its target is the index of
its label among the sorted labels of training. The rules of `regard.data.sentence_split`, the mark
`data.sentence_mark`, or the user's own function split a document into sentences; an HTML line break, `<br />`, always
ends a sentence.

    prepared = prepare_documents(DataSettings(documents="train.tsv"))
    prepared = prepare_documents(data, splitter=lambda text: text.split(" ||| "))
"""

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.data import sentence_split
from regard.data.builtin import generate
from regard.data.preparation import CorpusReader, FirstPass, Pair, Prepared, Rows, names, prepare_rows
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings
from regard.data.tokenizer import END, Tokenizer, Tokenizers
from regard.data.vocabulary import train
from regard.errors import ArgumentError, DataError
from regard.io import Say, ignore

Splitter = Callable[[str], Sequence[str]]  # maps a text to its sentences

BREAK = re.compile(r"(?:<br\s*/?>\s*)+", re.IGNORECASE)
PROBE = 1_000  # documents whose sentences identify the user's own splitter
NAMED = 5  # maximum labels that a message names


def prepare_documents(
    data: DataSettings,
    tokenizer: TokenizerSettings | None = None,
    *,
    say: Say = ignore,
    tokenizers: Tokenizers | None = None,
    labels: Sequence[str] | None = None,
    splitter: Splitter | None = None,
) -> Prepared:
    """Encode labelled documents, or find them in the cache; `say` reports in one line what was kept and dropped.

    `tokenizers` and `labels`, for instance of an earlier run, replace those that would be learned here; a document with
    another label is dropped and counted. `splitter` replaces the rules that find sentences.
    """
    return prepare_rows(DocumentReader(data, tokenizer or TokenizerSettings(), labels, splitter), say, tokenizers)


class DocumentReader(CorpusReader):
    """A reader of rows with a text and a label."""

    what, labelled = "documents", True
    files = "--valid-documents"

    def __init__(
        self,
        data: DataSettings,
        settings: TokenizerSettings,
        labels: Sequence[str] | None = None,
        splitter: Splitter | None = None,
    ):
        super().__init__(data, settings)
        self.training = (data.labelled(data.documents),) if data.documents else ()
        self.validation = (data.labelled(data.valid_documents),) if data.valid_documents else ()
        self.own, self.split = splitter, splitter_of(data, splitter)
        self.labels = None if labels is None else tuple(labels)
        self.strange: Counter[str] = Counter()  # labels that do not occur in training

    @property
    def reasons(self) -> dict[str, str]:
        """Return the reasons for which documents are dropped, by the names of their counts."""
        return {"blank": "without words", "unlabelled": "without a label", "unknown": "with a label not in training"}

    def facts(self) -> dict[str, object]:
        """Return the labels, and how documents are split and truncated, for the cache key."""
        sentences = self.data.sentence_mark
        if self.own is not None:  # identified by its results on the first documents, as code cannot be compared
            if self.data.builtin:
                texts = [each.source for each in generate(str(self.data.builtin), PROBE, **self.data.drawing())]
            else:
                texts = [text for text, _ in itertools.islice(self.rows(self.training[0]), PROBE)]
            sentences = hashlib.sha256(json.dumps([list(self.split(text)) for text in texts]).encode()).hexdigest()
        facts = {"documents": self.data.document_tokens, "labels": self.labels}
        return {**facts, "sentences": sentences, "rules": sentence_split.EDITION}

    def survey(self, training: Sequence[CorpusSettings], *, hold_out: bool, tokenizer: bool) -> FirstPass:
        """Run the first pass, and collect the labels."""
        if self.labels is not None and not hold_out and not tokenizer:
            return FirstPass()
        survey = super().survey(training, hold_out=hold_out, tokenizer=tokenizer)
        if self.labels is None:
            self.labels = survey.labels
            if len(self.labels) < 2:
                what = f"only the label {self.labels[0]!r}" if self.labels else "no label"
                raise DataError(f"{names(training)}: {what} to train on, expected at least two")
        return survey

    def train_tokenizers(self, training: Sequence[CorpusSettings], survey: FirstPass) -> Tokenizers:
        """Train a tokenizer on the texts, not on the labels."""
        texts = [" ".join(self.split(text)) for text in survey.training_texts()[0]]
        kind = "bpe" if self.settings.kind == "auto" else self.settings.kind  # new documents have new words
        return Tokenizers(train(texts, kind, self.settings.size, lowercase=self.data.lowercase))

    def encode(self, rows: list[Pair], tag: str | None, tokenizers: Tokenizers, counts: Counter[str]) -> Rows:
        """Encode the documents that have words and a label known from training; count the others."""
        numbers = {label: number for number, label in enumerate(self.labels or ())}
        labelled: list[Pair] = [(text, label) for text, label in rows if label in numbers]
        counts["unlabelled"] += sum(not label for _, label in rows)
        strange = Counter(label for _, label in rows if label and label not in numbers)
        counts["unknown"] += strange.total()
        self.strange += strange
        token_rows, cut = encode_documents([text for text, _ in labelled], tokenizers.source, self.data, self.split)
        real = [bool(row) for row in token_rows]
        counts["blank"] += len(real) - sum(real)
        counts["cut"] += sum(cut)
        return Rows(labelled, token_rows, [[numbers[label]] for _, label in labelled]).only(real)

    def manifest(self) -> dict[str, Any]:
        """Return the labels of training, and the most frequent labels that do not occur in training."""
        return {"labels": self.labels, "strange": [label for label, _ in self.strange.most_common(NAMED)]}

    def describe_more(self, counts: Mapping[str, int], manifest: Mapping[str, Any]) -> str:
        """Describe the labels, and how many documents are truncated."""
        labels = manifest["labels"]
        listed = ", ".join(labels[:NAMED]) + (", …" if len(labels) > NAMED else "")
        cut = counts.get("cut", 0) + counts.get("valid_cut", 0)
        shortened = f"; {cut:,} truncated to {self.data.document_tokens:,} tokens" if cut else ""
        strange = f"; not in training: {', '.join(manifest['strange'])}" if manifest["strange"] else ""
        return f", {len(labels)} labels ({listed}{strange}){shortened}"


def splitter_of(data: DataSettings, splitter: Splitter | None = None) -> Splitter:
    """Return a function that splits a text into sentences, and at every <br />.

    It uses `splitter` if given, else `data.sentence_mark`, else the rules of `regard.data.sentence_split`.
    """
    mark = data.sentence_mark

    def parts(text: str) -> Sequence[str]:
        if splitter is not None:
            sentences = splitter(text)
            if isinstance(sentences, str) or not all(isinstance(each, str) for each in sentences):
                raise ArgumentError(f"splitter: {type(sentences).__name__} returned, expected a list of sentences")
            return sentences
        return text.split(mark) if mark else [piece.text for piece in sentence_split.sentences(text)]

    def split(text: str) -> list[str]:
        return [sentence for part in BREAK.split(text) if part for sentence in parts(part) if sentence.strip()]

    return split


def without_breaks(text: str) -> str:
    """Replace the HTML line breaks in a document with spaces."""
    return BREAK.sub(" ", text).strip()


def encode_documents(
    texts: Sequence[str], tokenizer: Tokenizer, data: DataSettings, splitter: Splitter | None = None
) -> tuple[list[list[int]], list[bool]]:
    """Encode documents with an END after each sentence, and return which were truncated.

    A document without words has no tokens. A sentence of more than `data.longest` tokens is split into several; tokens
    beyond `data.document_tokens` are dropped. `splitter` is a result of `splitter_of`.
    """
    split = splitter or splitter_of(data)
    parts = [split(text) for text in texts]
    encoded = iter(tokenizer.encode_batch([sentence for each in parts for sentence in each]))
    rows, cut = [], []
    for each in parts:
        row, room = list[int](), data.document_tokens
        for ids in itertools.islice(encoded, len(each)):
            for start in range(0, min(room, len(ids)), data.longest):
                row += [*ids[start : min(start + data.longest, room)], END]
            room -= len(ids)
        rows.append(row)
        cut.append(room < 0)
    return rows, cut
