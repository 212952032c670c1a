"""Selection of the cross-attention, head and offset that give the best word alignments on a development set.

With gold links, the lowest alignment error rate wins. Without them, two runs of opposite directions are compared: the
two readings whose links agree most win, by the error rate of one against the other, AER = 1 − 2 |A ∩ B| / (|A| + |B|).
"""

# b pairs · c candidates · h heads · i target words · j source words
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.alignment.extraction import (
    JOINS,
    AlignmentSettings,
    Links,
    Pair,
    WatchedBatch,
    extract_links,
    pick_links,
    watch_batches,
)
from regard.data import Tokenizers
from regard.errors import ArgumentError
from regard.evaluation import Gold, alignment_scores, measure_links
from regard.models import Model

OFFSETS = (0, 1)
THRESHOLDS = (None, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
ROUNDS = (0, 5)
BEST = 2  # the number of readings that are also tried with balancing, thresholds and joins


@dataclass(frozen=True)
class Reading:
    """The scores of the links from one head of a cross-attention, or from the mean of all heads (None), at an offset.

    The links are the largest weights. Against a reverse run only the error rate is known.
    """

    view: str
    head: int | None
    offset: int
    aer: float
    precision: float | None = None
    recall: float | None = None

    def settings(self, by: str) -> AlignmentSettings:
        """Return this reading as a run's alignment settings."""
        return AlignmentSettings(self.view, self.head, cast(Literal[0, 1], self.offset), self.aer, by)


def readings_table(readings: Sequence[Reading]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and rows of a table of each head's scores; layers and heads are counted from 1."""

    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.2%}"

    first = {(each.view, each.head): each for each in readings if each.offset == 0}
    second = {(each.view, each.head): each for each in readings if each.offset == 1}
    columns = ("layer", "head", "AER", "precision", "recall", "AER of the word read")
    layers = {view: str(number) for number, view in enumerate(dict.fromkeys(view for view, _ in first), 1)}
    return columns, [
        (
            layers[view],
            "mean" if head is None else str(head + 1),
            *map(share, (each.aer, each.precision, each.recall, second[view, head].aer)),
        )
        for (view, head), each in first.items()
    ]


def choose_by_gold(
    model: Model, tokenizers: Tokenizers, pairs: Sequence[Pair], gold: Sequence[Gold]
) -> tuple[AlignmentSettings, list[Reading]]:
    """Choose the best settings on pairs with gold links; also return all readings.

    The best readings are also tried with balancing, thresholds, and joins with the source words' links.
    """
    readings = score_heads(model, tokenizers, pairs, gold)
    by = f"gold links of {len(pairs):,} pair{'s' * (len(pairs) != 1)}"
    best = [reading.settings(by) for reading in sorted(readings, key=lambda each: each.aer)[:BEST]]
    ways = [
        replace(settings, threshold=threshold, join=cast(Literal["union"], join), balance=balance)
        for settings in best
        for balance in ROUNDS
        for threshold in THRESHOLDS
        for join in (None, *JOINS)
    ]
    links_by_way: list[list[Links]] = [[[] for _ in pairs] for _ in ways]
    for part in watch_batches(model, tokenizers, pairs, only=model.cross_attentions):
        for settings in best:
            weights = part.words(part.crossing(settings.view, settings.head), settings.offset)[:, 0]
            for way, links in zip(ways, links_by_way, strict=True):
                if (way.view, way.head, way.offset) == (settings.view, settings.head, settings.offset):
                    for number, each in zip(part.pairs, extract_links(weights, way), strict=True):
                        links[number] = each
    rates = [measure_links(links, gold)["aer"].score().value for links in links_by_way]
    # Of equals choose the first, which is the simplest.
    number = min(range(len(ways)), key=lambda each: round(rates[each], 6))
    return replace(ways[number], aer=rates[number]), readings


def score_heads(model: Model, tokenizers: Tokenizers, pairs: Sequence[Pair], gold: Sequence[Gold]) -> list[Reading]:
    """Score every cross-attention, head and offset against gold links, in one pass over the pairs."""
    if not pairs or len(pairs) != len(gold):
        raise ArgumentError(f"gold: links of {len(gold):,} pairs given, expected those of {len(pairs):,}, at least one")
    totals: dict[tuple[str, int], Tensor] = {}
    for part in watch_batches(model, tokenizers, pairs, only=model.cross_attentions):
        own = [gold[number] for number in part.pairs]
        sure, possible = (
            part.mark([{(i, j) for j, i in each} for each in links], part.target_words, part.source_words)
            for links in ([each.sure for each in own], [each.possible for each in own])
        )
        for view, offset, links in read_all(model, part):
            total = torch.stack([each.sum((0, 2, 3)) for each in (links, links & sure, links & possible)], -1).cpu()
            totals[view, offset] = totals.get((view, offset), torch.zeros_like(total)) + total
    readings = []
    expected = sum(len(each.sure) for each in gold)
    for (view, offset), total in totals.items():
        for head, (links, hit, allowed) in enumerate(total.tolist()):
            measures = alignment_scores.error_rate, alignment_scores.precision, alignment_scores.recall
            aer, precision, recall = (measure((links, expected, hit, allowed)) for measure in measures)
            readings.append(Reading(view, heads_and_mean(len(total))[head], offset, aer, precision, recall))
    return readings


def choose_by_agreement(
    forward: tuple[Model, Tokenizers, Sequence[Pair]], backward: tuple[Model, Tokenizers, Sequence[Pair]]
) -> tuple[tuple[AlignmentSettings, AlignmentSettings], tuple[list[Reading], list[Reading]]]:
    """Choose the settings of two runs of opposite directions by their agreement on the same pairs.

    Also return all readings, each with its error rate against the other run's reading that it agrees with most.
    """
    sides = [most_attended(*side) for side in (forward, backward)]
    names, words = zip(*sides, strict=True)
    same, totals = np.zeros((len(names[0]), len(names[1]))), np.zeros((len(names[0]), len(names[1])))
    for there, back in zip(*words, strict=True):
        # there [c i] is the source word of each target word, back [c' j] the target word of each source word; -1: none.
        padded = np.pad(back, ((0, 0), (0, 1)), constant_values=-1)  # no link at index -1 or beyond the end
        returned = padded[:, np.clip(there, -1, back.shape[1])]  # [c' c i]
        same += (returned == np.arange(there.shape[1])).sum(-1).T
        totals += (there >= 0).sum(-1)[:, None] + (back >= 0).sum(-1)[None]
    rates = 1 - 2 * same / np.maximum(totals, 1)
    best = np.unravel_index(int(rates.argmin()), rates.shape)
    count = len(forward[2])
    by = f"agreement with a reverse run on {count:,} pair{'s' * (count != 1)}"
    readings = tuple(
        [
            Reading(view, head, offset, float(rate))
            for (view, head, offset), rate in zip(names[side], rates.min(1 - side), strict=True)
        ]
        for side in (0, 1)
    )
    settings = tuple(readings[side][int(best[side])].settings(by) for side in (0, 1))
    return (settings[0], settings[1]), (readings[0], readings[1])


def most_attended(
    model: Model, tokenizers: Tokenizers, pairs: Sequence[Pair]
) -> tuple[list[tuple[str, int | None, int]], list[Int[np.ndarray, "c i"]]]:
    """Return every reading's name and, for each pair, the source word that each target word attends to most, or -1."""
    names: list[tuple[str, int | None, int]] = []
    words: list[np.ndarray] = [np.empty((0, 0), np.int64)] * len(pairs)
    for part in watch_batches(model, tokenizers, pairs, only=model.cross_attentions):
        names, rows = [], []
        for view, offset, links in read_all(model, part):
            names += [(view, head, offset) for head in heads_and_mean(links.shape[1])]
            at = links.int().argmax(-1) if links.numel() else links.new_zeros(links.shape[:-1], dtype=torch.int)
            rows.append(torch.where(links.any(-1), at, -1))
        for number, each in zip(part.pairs, torch.cat(rows, 1).cpu().numpy(), strict=True):
            words[number] = each.astype(np.int64)
    return names, words


def read_all(model: Model, part: WatchedBatch) -> Iterator[tuple[str, int, Bool[Tensor, "b c i j"]]]:
    """Yield the links of every cross-attention and offset, from each head and, last, from their mean."""
    for view in model.cross_attentions:
        weights = part.weights(view)
        weights = torch.cat([weights, weights.mean(1, keepdim=True)], 1)
        for offset in OFFSETS:
            yield view, offset, pick_links(part.words(weights, offset))


def heads_and_mean(count: int) -> list[int | None]:
    """Return the numbers of the heads, from 0, and last None for their mean."""
    return [*range(count - 1), None]
