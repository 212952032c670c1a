"""A system's outputs for a test set, measured."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.errors import ArgumentError
from regard.evaluation.items import Items
from regard.evaluation.kinds import OF_TEXT, measure
from regard.evaluation.length import Lengths, by_length
from regard.evaluation.likelihood import perplexity
from regard.evaluation.metric import Score, finite

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """Scores by their keys, BLEU by source length where it was asked for, and how much was measured."""

    scores: dict[str, Score]
    lengths: Lengths | None
    sentences: int
    lines: int
    empty: int

    def counted(self) -> str:
        """How much was measured, in words."""
        said = f"{self.sentences:,} sentence{'s' * (self.sentences != 1)}"
        said += f" from {self.lines:,} lines" if self.lines != self.sentences else ""
        return said + (f", {self.empty:,} of them with an empty source" if self.empty else "")

    def table(self) -> dict[str, Any]:
        """The same in types that JSON has."""
        return {
            "sentences": self.sentences,
            "lines": self.lines,
            "empty": self.empty,
            "scores": {key: {**asdict(score), "value": finite(score.value)} for key, score in self.scores.items()},
            "lengths": None if self.lengths is None else asdict(self.lengths),
        }


def evaluate(
    items: Items,
    outputs: Sequence[str] | None,
    keys: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    tokens: Iterable[Sequence[float]] = (),
    tokenizer: str = "",
) -> Evaluation:
    """Measure outputs by the scores that `keys` name (see kinds.py).

    For "perplexity", `tokens` has the log-probabilities of each reference's tokens, and outputs are not looked at.
    """
    if outputs is not None and len(outputs) != len(items):
        raise ArgumentError(f"outputs: {len(outputs)} given, expected one for each of {len(items)} items")
    of_text = dict.fromkeys("bleu" if key == "lengths" else key for key in keys if key != "perplexity")
    if of_text and outputs is None:
        raise ArgumentError(f"outputs: none given, expected them for {', '.join(of_text)}")
    measured = {
        key: measure(key, outputs or [], items.references, lowercase=lowercase, tokenize=tokenize) for key in of_text
    }
    scores = {}
    for key in keys:
        if key in OF_TEXT:
            scores[key] = measured[key].score()
        elif key == "perplexity":
            scores[key] = perplexity(tokens, tokenizer)
    if "lengths" in keys and items.sources is None:
        raise ArgumentError("lengths: no sources given, expected them to know how long they are")
    lengths = by_length(measured["bleu"], items.sources) if "lengths" in keys and items.sources is not None else None
    return Evaluation(scores, lengths, len(items), len(items.line_items), items.empty)
