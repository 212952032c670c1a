"""How far back an LSTM looks that may look at all its states."""

# m states before a step · p groups of distances
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

from regard.attention import watch
from regard.data.tokenizer import START
from regard.models.contract import Tokens
from regard.studies.corpora.sentences import Sentences
from regard.studies.systems import TrainedSystem

__all__ = ["DISTANCES", "attention_distances", "even_distances", "shares"]

DISTANCES = ((1, 1), (2, 2), (3, 5), (6, 10), (11, 200))  # steps back; 1 is all that an LSTM has
LATE = 10  # steps after which there is something to choose from
TEXTS = 100


def attention_distances(systems: Sequence[TrainedSystem], corpus: Sentences) -> list[float]:
    """The share of the weight, in percent, at each distance, after the tenth token; the mean of the seeds."""
    return [float(mean) for mean in np.mean([shares(weights_of(each, corpus)) for each in systems], 0)]


@torch.no_grad()
def weights_of(system: TrainedSystem, corpus: Sentences) -> list[Float[np.ndarray, "_ _"]]:
    """The weights of the first long texts: a row a step, a column a state, in the order in which they were written."""
    run, found = system.run, list[np.ndarray]()
    for ids in run.tokenizers.target.encode_batch(corpus.texts):
        if len(ids) > LATE and len(found) < TEXTS:
            read = Tokens.of(*(torch.tensor(each, device=run.device) for each in ([[START, *ids]], [len(ids) + 1])))
            with watch(run.model) as looks:
                run.model.decode(run.model.encode(read), read)
                (look,) = (looks[name] for name in looks)
                found.append(look.weights[0].float().cpu().numpy())
    return found


def shares(weights: Iterable[Float[np.ndarray, "_ _"]]) -> Float[np.ndarray, " p"]:
    """The weight at each distance, in percent, of all late steps."""
    rows = [
        [100 * each[step, :step][within(step, *limits)].sum() for limits in DISTANCES]
        for each in weights
        for step in range(LATE, len(each))
    ]
    return np.mean(rows, 0) if rows else np.zeros(len(DISTANCES))


def within(step: int, first: int, last: int) -> Int[np.ndarray, " m"]:
    """The states that are so many steps back from a step."""
    back = step - np.arange(step)
    return np.flatnonzero((first <= back) & (back <= last))


def even_distances(corpus: Sentences, system: TrainedSystem) -> list[float]:
    """The same for whoever weighs all states alike."""
    lengths = [len(ids) + 1 for ids in system.run.tokenizers.target.encode_batch(corpus.texts) if len(ids) > LATE]
    flat = [np.tril(np.ones((n, n - 1)), -1) / np.maximum(np.arange(n), 1)[:, None] for n in lengths[:TEXTS]]
    return [float(share) for share in shares(flat)]
