"""Syntax in attention heads: the share of words that attend most to their head in the dependency tree.

Clark et al. 2019 (arXiv:1906.04341, section 4.2) measured this for BERT; here it is for the self-attention of encoder
and decoder. In the decoder only words whose head precedes them count, since a word cannot attend to later ones. The
baseline is the best fixed distance, such as always the word before.
"""

# b pairs · h heads · i j words of one side
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from regard.alignment.extraction import watch_batches
from regard.data import DataSettings, Example, Tokenizers, generate
from regard.errors import ArgumentError
from regard.models import Model

SIDES = ("encoder", "decoder")
# The table of one side: a title, the columns, a row per layer, and the share that the best fixed distance reaches.
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]], str]
EXAMPLES = 500  # the number of examples from the phrasebook's test split


@dataclass(frozen=True)
class DependencyShare:
    """The share of dependencies that an attention head of a self-attention follows."""

    side: str
    view: str
    head: int
    share: float  # of the words, those that attend most to their head
    words: int  # the number of words with a head that they can attend to


def dependency_tables(model: Model, tokenizers: Tokenizers, data: DataSettings) -> Iterator[Table]:
    """Yield a table for each side with the shares of words that attend most to their head, on the phrasebook."""
    pair = data.pair if data.builtin == "phrasebook" else "en-de"  # the run's languages if it was trained on it
    examples = list(generate("phrasebook", EXAMPLES, split="test", pair=pair, edition=data.builtin_edition))
    shares_by_head = measure_dependencies(model, tokenizers, examples)
    for side in dict.fromkeys(each.side for each in shares_by_head):
        own = [each for each in shares_by_head if each.side == side]
        views, heads = list(dict.fromkeys(each.view for each in own)), max(each.head for each in own) + 1
        shares = {(each.view, each.head): f"{each.share:.1%}" for each in own}
        distance, reached = best_distance(side, examples)
        where = "before" if distance < 0 else "after"
        yield (
            f"{side}: words that attend most to their head, of {own[0].words:,}",
            ("layer", *(f"head {head + 1}" for head in range(heads))),
            [
                (str(layer), *(shares.get((view, head), "–") for head in range(heads)))
                for layer, view in enumerate(views, 1)
            ],
            f"always the word {abs(distance)} {where}: {reached:.1%}",
        )


def measure_dependencies(model: Model, tokenizers: Tokenizers, examples: Sequence[Example]) -> list[DependencyShare]:
    """Measure the share for each layer and head, in the model's order."""
    pairs = [(tokenizers.source.encode(each.source), tokenizers.target.encode(each.target)) for each in examples]
    hits: dict[str, Tensor] = {}
    words = dict.fromkeys(SIDES, 0)
    for part in watch_batches(model, tokenizers, pairs):
        some = [examples[number] for number in part.pairs]
        trees = dict[str, Tensor]()
        for side in SIDES:
            links = [head_links(side, example) for example in some]
            trees[side] = part.mark(links, part.size(side), part.size(side))
            words[side] += int(trees[side].sum())
        for view in part.looks:
            side = view.split(".")[0]
            if side not in SIDES or view in model.cross_attentions:
                continue
            right = part.own_links(view, side) & trees[side]
            hits[view] = hits.get(view, 0) + right.sum((0, 2, 3)).cpu()
    if not hits:
        raise ArgumentError("model: no self-attention in it, expected a model with self-attention")
    return [
        DependencyShare(side, view, head, count / max(1, words[side]), words[side])
        for side, view, counts in ((view.split(".")[0], view, counts) for view, counts in hits.items())
        for head, count in enumerate(counts.tolist())
    ]


def head_links(side: str, example: Example) -> list[tuple[int, int]]:
    """List each word with its head, if the word can attend to it."""
    heads = enumerate(example.target_heads if side == "decoder" else example.source_heads)
    return [(word, head) for word, head in heads if head >= 0 and (side == "encoder" or head < word)]


def best_distance(side: str, examples: Sequence[Example]) -> tuple[int, float]:
    """Return the distance from word to head that occurs most often, and its share."""
    distances = [head - word for example in examples for word, head in head_links(side, example)]
    if not distances:
        raise ArgumentError("examples: no heads given, expected those of the phrasebook")
    best = max(sorted(set(distances), key=abs), key=distances.count)
    return best, distances.count(best) / len(distances)
