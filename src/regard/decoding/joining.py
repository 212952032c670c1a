"""Searches that run are joined: sentences that come later are searched together with those that are on their way.

Both searches have taken at least a step, and differ only in what is a sentence's own: the length penalty, the limits of
an output, the number of outputs. The later one's sentences then begin at a later time of the common clock: tokens,
limits and prefixes are moved to the right by as many steps as the other is ahead, and what is computed from the length
of an output takes the clock less the beginning. The answers are those of either search alone.

This is for searches on the host. On a GPU sentences join by taking the slots of others (`regard.decoding.replay`).
"""

# s sentences · r rows of each · t steps
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.attention import Cache
from regard.data import PAD
from regard.decoding.options import Options
from regard.decoding.sentence_search import StepSearch

# The options that sentences of one search may differ in.
OWN = ("length_penalty", "shortest", "longest", "seed", "precision")


def shared_options(options: Options) -> Options:
    """What the sentences of one search have in common: the options without those that may be each sentence's own."""
    own = OWN if options.sample else (*OWN, "nbest")
    return replace(options, **{name: getattr(Options, name) for name in own})


def can_join(search: StepSearch, other: StepSearch) -> bool:
    """Return whether two searches may be joined now: every sentence has all its rows, and states are of like kinds."""
    if search.model is not other.model or shared_options(search.options) != shared_options(other.options):
        return False
    if any(each.trace or each.step == 0 or each.history.shape[1] != each.rows for each in (search, other)):
        return False
    pairs = [(part, other.state.row[name]) for name, part in search.state.row.items() if isinstance(part, Cache)]
    return all(type(one) is type(two) for one, two in pairs)


def join_searches(search: StepSearch, other: StepSearch) -> None:
    """Take the sentences of another search, which is over with that, into the first."""
    ahead = search.step - other.step
    shift(search, max(0, -ahead))
    shift(other, max(0, ahead))
    first = min(each.begin for each in (*search.sentences, *other.sentences))
    for one in (search, other):
        shift(one, -first)  # what was before that nobody asks for any more
    search.size = max(search.size, other.size)
    search.state = search.state.join(other.state, search.size - search.step)
    search.history = torch.cat(
        [F.pad(one.history, (0, search.size - one.history.shape[-1]), value=PAD) for one in (search, other)]
    )
    search.total = torch.cat([search.total, other.total])
    search.lengths = torch.cat([search.lengths, other.lengths])
    search.alpha = torch.cat([penalties(search), penalties(other)])
    search.constraints.join(other.constraints)
    search.sentences, search.ended = search.sentences + other.sentences, search.ended or other.ended
    search.begin = torch.tensor([each.begin for each in search.sentences], device=search.total.device)
    if search.numbers is not None and other.numbers is not None:
        steps = max(search.numbers.shape[1], other.numbers.shape[1])
        both = (F.pad(one, (0, 0, 0, steps - one.shape[1])) for one in (search.numbers, other.numbers))
        search.numbers = torch.cat(list(both))


def shift(search: StepSearch, steps: int) -> None:
    """Set the clock of a search forward, or back, with everything that is told by it."""
    search.step, search.size = search.step + steps, search.size + steps
    search.history = F.pad(search.history, (steps, 0), value=PAD)
    search.constraints.shift(steps)
    for sentence in search.sentences:
        sentence.begin += steps


def penalties(search: StepSearch) -> Float[Tensor, "s 1"]:
    """The length penalty of each sentence."""
    if isinstance(search.alpha, Tensor):
        return search.alpha
    return torch.full((len(search.sentences), 1), search.alpha, dtype=torch.float64, device=search.total.device)
