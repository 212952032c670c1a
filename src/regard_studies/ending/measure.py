"""Measurements of endings: how likely a language model finds the end of a text, after each of its words.

t places: words written before the end is asked for, from 0
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from regard.data import END, START
from regard.models import Tokens
from regard.run import Run
from regard_studies.systems import TrainedSystem

__all__ = ["Endings", "end_probabilities", "hazard", "measure_endings", "wasted"]


@dataclass(frozen=True, eq=False)
class Endings:
    """The probability of the end by place, for texts that continue and texts that end there; means over all seeds."""

    anywhere: Float[np.ndarray, " t"]  # after t words, whether the text ends there or not; NaN where no text is so long
    here: Float[np.ndarray, " t"]  # of texts that do end there
    perplexity: float  # of a word, the end among them
    parameters: int


def hazard(lengths: Iterable[int], size: int) -> Float[np.ndarray, " t"]:
    """Compute the share of the texts with at least t words that end there: all that the place alone tells a model."""
    ends, reach = np.zeros(size), np.zeros(size)
    for length in lengths:
        reach[: length + 1] += 1
        if length < size:
            ends[length] += 1
    return np.divide(ends, reach, out=np.full(size, np.nan), where=reach > 0)


@torch.no_grad()
def end_probabilities(run: Run, texts: Sequence[str], stop: str | None = None) -> list[Float[np.ndarray, " _"]]:
    """Return the probability of each text's end before its first word, after it, and so on to the last.

    With `stop`, a word, it is asked for in place of the end, of texts that are given without it.
    """
    rows, stop_token = [], END if stop is None else run.tokenizers.target.encode(stop)[0]
    for ids in run.tokenizers.target.encode_batch(list(texts)):
        read = Tokens.of(*(torch.tensor(each, device=run.device) for each in ([[START, *ids]], [len(ids) + 1])))
        states, _ = run.model.decode(run.model.encode(read), read)
        logits = run.model.output(states).float()[0]
        rows.append(logits.softmax(-1)[:, stop_token].cpu().numpy())
    return rows


def measure_endings(
    systems: Sequence[TrainedSystem], texts: Sequence[str], size: int, stop: str | None = None
) -> Endings:
    """Ask every seed of a system about the texts; a place is a word, as the tokenizer has one piece a word.

    The texts come without their `stop`, where they have one.
    """
    anywhere, here, nll, tokens = (np.zeros(size) for _ in range(4))
    counts, ends = np.zeros(size), np.zeros(size)
    for system in systems:
        for row in end_probabilities(system.run, texts, stop):
            row = row[:size]
            anywhere[: len(row)] += row
            counts[: len(row)] += 1
            here[len(row) - 1] += row[-1]
            ends[len(row) - 1] += 1
        whole = [text if stop is None else f"{text} {stop}" for text in texts]
        for scored in system.run.score(whole):
            nll[0] -= sum(scored.tokens)
            tokens[0] += len(scored.tokens)
    nothing = np.full(size, np.nan)
    return Endings(
        np.divide(anywhere, counts, out=nothing.copy(), where=counts > 0),
        np.divide(here, ends, out=nothing.copy(), where=ends > 0),
        float(np.exp(nll[0] / tokens[0])),
        systems[0].parameters,
    )


def wasted(predicted: Float[np.ndarray, " t"], truth: Float[np.ndarray, " t"]) -> float:
    """The mean of |P(end) − truth| over the places that are known, in points."""
    defined = ~(np.isnan(predicted) | np.isnan(truth))
    return 100 * float(np.abs(predicted[defined] - truth[defined]).mean())
