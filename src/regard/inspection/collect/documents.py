"""Documents as a classifier weighed them: sentences, their words, and how much each counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.data import DataSettings, Splitter, Tokenizer, document_texts
from regard.decoding import documents_of
from regard.models import Model


@dataclass(frozen=True)
class WeighedSentence:
    """A sentence, its weight in the document, and the weights of its words; both sum to one."""

    words: list[str]
    weights: list[float]
    weight: float

    @property
    def counts(self) -> list[float]:
        """Return the share of each word in the document; over all sentences they sum to one."""
        return [self.weight * weight for weight in self.weights]


def weigh(
    model: Model,
    tokenizer: Tokenizer,
    data: DataSettings,
    texts: Sequence[str],
    splitter: Splitter | None = None,
) -> list[list[WeighedSentence]]:
    """Return the sentences of each text with the weights of a `han` model; a text without words has none.

    A word's weight is that of its pieces together. Texts are read one by one, as they may be of any length.
    """
    rows, _ = document_texts.encode_documents(texts, tokenizer, data, document_texts.splitter_of(data, splitter))
    device = next(model.parameters()).device
    result = []
    for row in rows:
        documents = documents_of([row], device)
        words, sentences = model.weigh_documents(documents) if row else (torch.zeros(0, 0), torch.zeros(1, 0))
        lengths = documents.words.lengths.tolist()
        result.append(
            [
                sentence(tokenizer, documents.words.ids[i, :length].tolist(), words[i].tolist(), float(sentences[0, i]))
                for i, length in enumerate(lengths)
            ]
        )
    return result


def sentence(tokenizer: Tokenizer, ids: list[int], weights: list[float], weight: float) -> WeighedSentence:
    """Merge pieces and their weights into words."""
    words = tokenizer.decode(ids).split()
    summed = [0.0] * len(words)
    for place, each in zip(tokenizer.words(ids), weights, strict=False):
        if place is not None and place < len(words):
            summed[place] += each
    return WeighedSentence(words, summed, weight)
