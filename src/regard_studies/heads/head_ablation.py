"""Ablation of heads: what a trained model loses without some of its heads, over a whole test set.

`inspection.collect.from_run` asks it of one output, a head per row of a batch; here a head is silent in every row, so
that many sentences are scored together.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from regard.attention import Heads, call_records
from regard.inspection import silence_head
from regard.models import Model
from regard.run import Run
from regard_studies.corpora.pairs import Pairs
from regard_studies.translation import log_probs

__all__ = ["KINDS", "AblationLoss", "Head", "ablate_heads", "attention_kind", "list_heads", "silence_heads"]

KINDS = {"encoder": "encoder, self", "decoder": "decoder, self", "cross": "decoder to source"}
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Head(NamedTuple):
    """A head of an attention, by the name of its module."""

    module: str
    head: int


class AblationLoss(NamedTuple):
    """The log-probability lost per token without each head, and without the least needed share of all."""

    heads: dict[Head, float]
    shares: dict[float, float]
    whole: float  # the log-probability per token of the model as it is


def list_heads(model: Model) -> list[Head]:
    """List every head of a model."""
    return [
        Head(name, head)
        for name, module in call_records.find_outermost(model).items()
        if isinstance(module, Heads)
        for head in range(module.heads)
    ]


def attention_kind(head: Head) -> str:
    """Return which of the three attentions of a Transformer a head belongs to."""
    return "cross" if head.module.endswith("cross") else head.module.split(".")[0]


@contextmanager
def silence_heads(model: Model, heads: Iterable[Head]) -> Iterator[None]:
    """Silence these heads for every sentence, inside the block."""
    modules, rows = call_records.find_outermost(model), slice(None)
    with ExitStack() as hooks:
        for name, head in heads:
            hooks.callback(silence_head(modules[name], [(rows, head)], 1).remove)
        yield


def ablate_heads(run: Run, corpus: Pairs) -> AblationLoss:
    """Silence each head by itself, then more and more of them, the least needed first.

    The order is found on the odd sentences of the corpus, and what is lost in that order measured on the even ones.
    """

    def scored(silent: Sequence[Head]) -> list[float]:
        with silence_heads(run.model, silent):
            return log_probs(run, corpus.sources, corpus.references)[0]

    before, tokens = log_probs(run, corpus.sources, corpus.references)
    every = list_heads(run.model)

    def a_token(after: Sequence[float], rows: slice) -> float:
        return (sum(before[rows]) - sum(after[rows])) / max(1, sum(tokens[rows]))

    alone = {head: scored([head]) for head in every}
    order = sorted(every, key=lambda head: a_token(alone[head], slice(1, None, 2)))
    return AblationLoss(
        {head: a_token(after, slice(None)) for head, after in alone.items()},
        {share: a_token(scored(order[: round(share * len(order))]), slice(0, None, 2)) for share in SHARES},
        sum(before) / sum(tokens),
    )
