"""The table of scores: what each is called, and who counts it."""

from collections.abc import Sequence

from regard.config import suggestion
from regard.errors import ArgumentError
from regard.evaluation.edits import measure_errors
from regard.evaluation.metric import Measured, Reference
from regard.evaluation.text import measure_bleu, measure_chrf, measure_exact, measure_ter

__all__ = ["METRICS", "OF_TEXT", "chosen", "measure", "too_long"]

OF_TEXT = ("bleu", "chrf", "ter", "exact", "character_errors", "token_errors")  # from outputs and references alone
METRICS = (*OF_TEXT, "perplexity", "lengths")
# TER looks for shifts in time that grows with the cube of a text's words: a minute, measured, for so many of these.
PATIENCE = 200_000_000


def chosen(given: str, known: Sequence[str]) -> list[str]:
    """The keys in a list with commas between them, or a ArgumentError with what was meant."""
    keys = [key.strip().lower().replace("-", "_") for key in given.split(",")]
    for key in keys:
        if key not in known:
            raise ArgumentError(f"metrics: {key!r} given, no such metric{suggestion(key, known)}")
    return list(dict.fromkeys(keys))


def measure(
    key: str,
    outputs: Sequence[str],
    references: Sequence[Reference],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Measured:
    """What outputs count for by one of OF_TEXT."""
    if key == "bleu":
        return measure_bleu(outputs, references, lowercase=lowercase, tokenize=tokenize)
    if key == "ter":
        return measure_ter(outputs, references)
    if key == "chrf":
        return measure_chrf(outputs, references, lowercase=lowercase)
    if key == "exact":
        return measure_exact(outputs, references, lowercase=lowercase)
    return measure_errors(
        outputs, references, "character" if key == "character_errors" else "token", lowercase=lowercase
    )


def too_long(references: Sequence[Reference]) -> bool:
    """Whether TER of these would take more than about a minute."""
    texts = (text for each in references for text in ([each] if isinstance(each, str) else each))
    return sum(len(text.split()) ** 3 for text in texts) > PATIENCE
