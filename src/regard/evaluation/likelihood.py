"""Perplexity: among how many equally likely tokens a model as good would choose."""

import math
from collections.abc import Iterable, Sequence

from regard.evaluation.metric import Score

__all__ = ["perplexity"]


def perplexity(tokens: Iterable[Sequence[float]], tokenizer: str = "") -> Score:
    """exp of the mean negative log-probability of a reference token, from those of each text; END is a token, too.

    Figures of models with different tokenizers cannot be compared, as their tokens are not the same.
    """
    total, count = 0.0, 0
    for each in tokens:
        total, count = total + math.fsum(each), count + len(each)
    mean = -total / count if count else math.nan
    value = math.inf if mean >= 700 else math.exp(mean)
    facts = {"tok": tokenizer, "tokens": str(count)} if tokenizer else {"tokens": str(count)}
    return Score("perplexity", value, "|".join(f"{key}:{fact}" for key, fact in facts.items()), "tokens")
