"""Results of a trained run: translations, alignments, labels."""

# n target words · m source words
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from regard.data import Tokenizer
from regard.decoding import Output


@dataclass(frozen=True)
class Translation:
    """One output for a text."""

    text: str
    score: float  # what outputs of a text are sorted by: the log-probability with the penalties
    log_prob: float  # what the model thinks of it: the same as `Run.score` says of the pair
    tokens: tuple[str, ...]  # its pieces
    finished: bool  # it ended by itself, and not at the limit of its length
    alignment: tuple[tuple[int, int], ...] | None = None  # links of a source word and a target word, from 0
    token_log_probs: tuple[float, ...] | None = None  # of each of its tokens, without END, where they were asked for
    untranslated: tuple[tuple[int, int], ...] | None = None  # rows of source words, [from, to), that it leaves out


@dataclass(frozen=True)
class Aligned:
    """A pair of sentences in words, and how much each target word looked at each source word."""

    source: list[str]
    target: list[str]
    weights: Tensor  # [n m]


@dataclass(frozen=True)
class Classified:
    """The predicted label of a document or a picture."""

    label: str
    probability: float
    probabilities: dict[str, float]  # of every label


def to_translations(outputs: Sequence[Sequence[Output]], tokenizer: Tokenizer) -> list[list[Translation]]:
    """Turn the outputs of many searches into text, all at once."""
    texts = iter(tokenizer.decode_batch([output.tokens for each in outputs for output in each]))
    return [[to_translation(output, tokenizer, next(texts)) for output in each] for each in outputs]


def to_translation(output: Output, tokenizer: Tokenizer, text: str | None = None) -> Translation:
    """Convert an output of a search to text, unless that was done before."""
    text = tokenizer.decode(output.tokens) if text is None else text
    pieces = tokenizer.pieces(tokenizer.visible(output.tokens))
    return Translation(text, output.score, output.log_prob, tuple(pieces), output.finished)
