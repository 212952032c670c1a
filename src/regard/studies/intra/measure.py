"""How language models are measured: how likely they think each word of a test, by its place in the sentence."""

# p groups of places · s seeds · n sentences of the test
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from regard.inspection.draw.table import show
from regard.models.kinds import build, read_model_config
from regard.studies.corpora.sentences import Sentences
from regard.studies.difference import Apart, apart
from regard.studies.seed_statistics import Spread, spread
from regard.studies.systems import Trained
from regard.training.metrics import read

__all__ = ["PLACES", "Likelihood", "course", "likelihood", "parameters", "placed", "wider"]

PLACES = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 200))  # of a token in its sentence
EARLY = 2  # the first so many groups are early


@dataclass(frozen=True, eq=False)
class Likelihood:
    """What a system, of all its seeds, thinks of the test: −log p of each sentence, by place, in nats."""

    nll: Float[np.ndarray, "p s n"]
    tokens: Float[np.ndarray, "p n"]
    words: Float[np.ndarray, " n"]
    seconds: Spread
    parameters: int

    def perplexity(self, unit: Float[np.ndarray, " n"] | None = None) -> Spread:
        """Of a token, or of a word, if there are so many."""
        unit = self.tokens.sum(0) if unit is None else unit
        return Spread(tuple(np.exp(self.nll.sum((0, 2)) / unit.sum())))

    def gain(self, other: "Likelihood", groups: slice | int = slice(None)) -> Apart:
        """How much less of a nat a token costs than with the other system, at some of the places."""
        mine, theirs = (each.nll[groups] for each in (self, other))
        tokens = self.tokens[groups]
        if isinstance(groups, slice):
            mine, theirs, tokens = mine.sum(0), theirs.sum(0), tokens.sum(0)
        return apart(theirs, mine, tokens)

    @property
    def known(self) -> list[int]:
        """The groups of places with enough tokens to speak of."""
        return [group for group, tokens in enumerate(self.tokens) if tokens.sum() >= 200]


def percent(gain: Apart) -> str:
    """A gain in nats as what it does to the perplexity, with two standard errors."""
    change = 100 * (1 - float(np.exp(-gain.mean)))
    return f"{show(abs(change), '.1f')} ± {show(200 * gain.error, '.1f')} % {'lower' if change > 0 else 'higher'}"


def likelihood(systems: Sequence[Trained], corpus: Sentences) -> Likelihood:
    """What the seeds of a system make of the test."""
    scored = [[row.tokens for row in each.run.score(corpus.texts)] for each in systems]
    found = [placed(rows) for rows in scored]
    return Likelihood(
        np.stack([nll for nll, _ in found], 1),
        found[0][1],
        np.array(corpus.words, float),
        spread(systems, lambda each: each.seconds),
        systems[0].parameters,
    )


def course(systems: Sequence[Trained]) -> dict[int, float]:
    """The perplexity of held-out text by the number of updates, as training has noted it; of the seeds' mean loss."""
    losses: dict[int, list[float]] = {}
    for each in systems:
        rows = read(each.run.folder / "metrics.jsonl")
        for step, loss in {row["step"]: row["loss"] for row in rows if row["kind"] == "valid"}.items():
            losses.setdefault(step, []).append(loss)
    return {step: float(np.exp(np.mean(values))) for step, values in sorted(losses.items())}


def placed(rows: Sequence[Sequence[float]]) -> tuple[Float[np.ndarray, "p n"], Float[np.ndarray, "p n"]]:
    """−log p summed over the places of each group, and how many tokens there are; END stands last."""
    nll, tokens = np.zeros((len(PLACES), len(rows))), np.zeros((len(PLACES), len(rows)))
    for number, row in enumerate(rows):
        for group, (first, last) in enumerate(PLACES):
            own = row[first - 1 : last]
            nll[group, number], tokens[group, number] = -sum(own), len(own)
    return nll, tokens


def parameters(model: dict[str, Any], job: str, pieces: int, labels: int) -> int:
    """How many a model has; nothing is drawn for it."""
    target = labels if job == "classify" else pieces
    with torch.device("meta"):
        made = build("lstmn", read_model_config({**model, "job": job}), pieces, target)
    return sum(parameter.numel() for parameter in made.parameters())


def wider(model: dict[str, Any], job: str, pieces: int, labels: int = 2) -> dict[str, Any]:
    """An LSTM with no fewer parameters than the model has with intra-attention."""
    wanted = parameters({**model, "intra": True}, job, pieces, labels)
    size = model["size"]
    while parameters({**model, "intra": False, "size": size}, job, pieces, labels) < wanted:
        size += 1
    return {**model, "intra": False, "size": size}
