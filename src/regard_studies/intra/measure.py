"""Measurements of language models: how likely each test word is, by its place, and how far they look back.

p groups of places or distances · s seeds · n sentences of the test · m states before a step
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from regard.attention import watch
from regard.data import START
from regard.inspection import show
from regard.models import Tokens, build, read_model_config
from regard.training import metrics
from regard_studies.corpora.sentences import Sentences
from regard_studies.seed_statistics import MeanDifference, SeedStatistics, mean_difference, over_seeds
from regard_studies.systems import TrainedSystem

__all__ = [
    "DISTANCES",
    "LATE",
    "PLACES",
    "TEXTS",
    "Likelihood",
    "attention_distances",
    "even_distances",
    "measure_likelihood",
    "parameters",
    "perplexity_course",
    "shares",
    "sum_by_place",
    "weights_of",
    "widen",
    "within",
]

DISTANCES = ((1, 1), (2, 2), (3, 5), (6, 10), (11, 200))  # steps back; 1 is all that an LSTM has
LATE = 10  # steps after which there is something to choose from
TEXTS = 100

PLACES = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 200))  # of a token in its sentence
EARLY = 2  # the first so many groups are early


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The likelihood that a system gives the test set, over all seeds: −log p of each sentence, by place, in nats."""

    nll: Float[np.ndarray, "p s n"]
    tokens: Float[np.ndarray, "p n"]
    words: Float[np.ndarray, " n"]
    seconds: SeedStatistics
    parameters: int

    def perplexity(self, unit: Float[np.ndarray, " n"] | None = None) -> SeedStatistics:
        """Return the perplexity per token, or per word if `unit` counts words."""
        unit = self.tokens.sum(0) if unit is None else unit
        return SeedStatistics(tuple(np.exp(self.nll.sum((0, 2)) / unit.sum())))

    def gain(self, other: "Likelihood", groups: slice | int = slice(None)) -> MeanDifference:
        """Return how many nats fewer a token costs than with the other system, at some of the places."""
        mine, theirs = (each.nll[groups] for each in (self, other))
        tokens = self.tokens[groups]
        if isinstance(groups, slice):
            mine, theirs, tokens = mine.sum(0), theirs.sum(0), tokens.sum(0)
        return mean_difference(theirs, mine, tokens)

    @property
    def filled(self) -> list[int]:
        """Return the groups of places that have enough tokens to judge."""
        return [group for group, tokens in enumerate(self.tokens) if tokens.sum() >= 200]


def percent(gain: MeanDifference) -> str:
    """Express a gain in nats as a change of perplexity, with two standard errors."""
    change = 100 * (1 - float(np.exp(-gain.mean)))
    return f"{show(abs(change), '.1f')} ± {show(200 * gain.error, '.1f')} % {'lower' if change > 0 else 'higher'}"


def measure_likelihood(systems: Sequence[TrainedSystem], corpus: Sentences) -> Likelihood:
    """Measure the likelihood that the seeds of a system give the test."""
    scored = [[row.tokens for row in each.run.score(corpus.texts)] for each in systems]
    sums = [sum_by_place(rows) for rows in scored]
    return Likelihood(
        np.stack([nll for nll, _ in sums], 1),
        sums[0][1],
        np.array(corpus.words, float),
        over_seeds(systems, lambda each: each.seconds),
        systems[0].parameters,
    )


def perplexity_course(systems: Sequence[TrainedSystem]) -> dict[int, float]:
    """Read the perplexity of held-out text by the number of updates from the training records, at the mean loss."""
    losses: dict[int, list[float]] = {}
    for each in systems:
        rows = metrics.read_records(each.run.folder / "metrics.jsonl")
        for step, loss in {row["step"]: row["loss"] for row in rows if row["kind"] == "valid"}.items():
            losses.setdefault(step, []).append(loss)
    return {step: float(np.exp(np.mean(values))) for step, values in sorted(losses.items())}


def sum_by_place(rows: Sequence[Sequence[float]]) -> tuple[Float[np.ndarray, "p n"], Float[np.ndarray, "p n"]]:
    """Sum −log p over the places of each group, and count their tokens; END comes last."""
    nll, tokens = np.zeros((len(PLACES), len(rows))), np.zeros((len(PLACES), len(rows)))
    for number, row in enumerate(rows):
        for group, (first, last) in enumerate(PLACES):
            own = row[first - 1 : last]
            nll[group, number], tokens[group, number] = -sum(own), len(own)
    return nll, tokens


def parameters(model: dict[str, Any], job: str, pieces: int, labels: int) -> int:
    """Count a model's parameters, without drawing random numbers."""
    target = labels if job == "classify" else pieces
    with torch.device("meta"):
        network = build("lstmn", read_model_config({**model, "job": job}), pieces, target)
    return sum(parameter.numel() for parameter in network.parameters())


def widen(model: dict[str, Any], job: str, pieces: int, labels: int = 2) -> dict[str, Any]:
    """Widen an LSTM until it has no fewer parameters than the model with intra-attention."""
    target = parameters({**model, "intra": True}, job, pieces, labels)
    size = model["size"]
    while parameters({**model, "intra": False, "size": size}, job, pieces, labels) < target:
        size += 1
    return {**model, "intra": False, "size": size}


def attention_distances(systems: Sequence[TrainedSystem], corpus: Sentences) -> list[float]:
    """Compute the share of the weight, in percent, at each distance, after the tenth token; the mean over seeds."""
    return [float(mean) for mean in np.mean([shares(weights_of(each, corpus)) for each in systems], 0)]


@torch.no_grad()
def weights_of(system: TrainedSystem, corpus: Sentences) -> list[Float[np.ndarray, "_ _"]]:
    """Return the weights of the first long texts: a row per step, a column per state, in the order of writing."""
    run, weights = system.run, list[np.ndarray]()
    for ids in run.tokenizers.target.encode_batch(corpus.texts):
        if len(ids) > LATE and len(weights) < TEXTS:
            read = Tokens.of(*(torch.tensor(each, device=run.device) for each in ([[START, *ids]], [len(ids) + 1])))
            with watch(run.model) as looks:
                run.model.decode(run.model.encode(read), read)
                (look,) = (looks[name] for name in looks)
                weights.append(look.weights[0].float().cpu().numpy())
    return weights


def shares(weights: Iterable[Float[np.ndarray, "_ _"]]) -> Float[np.ndarray, " p"]:
    """Compute the weight at each distance, in percent, over all late steps."""
    rows = [
        [100 * each[step, :step][within(step, *limits)].sum() for limits in DISTANCES]
        for each in weights
        for step in range(LATE, len(each))
    ]
    return np.mean(rows, 0) if rows else np.zeros(len(DISTANCES))


def within(step: int, first: int, last: int) -> Int[np.ndarray, " m"]:
    """Return the states that lie so many steps back."""
    back = step - np.arange(step)
    return np.flatnonzero((first <= back) & (back <= last))


def even_distances(corpus: Sentences, system: TrainedSystem) -> list[float]:
    """Compute how far back a system would look if it weighed all states alike."""
    lengths = [len(ids) + 1 for ids in system.run.tokenizers.target.encode_batch(corpus.texts) if len(ids) > LATE]
    flat = [np.tril(np.ones((n, n - 1)), -1) / np.maximum(np.arange(n), 1)[:, None] for n in lengths[:TEXTS]]
    return [float(share) for share in shares(flat)]
