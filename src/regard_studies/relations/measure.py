"""Measurements of how often a model's attention heads look most from a word at its grammatical head, by relation.

As Clark et al. 2019 (arXiv:1906.04341, section 4.2) asked BERT. In the decoder only words count whose head was read
before them. Which head, and which fixed distance, is the best is chosen on some sentences, and counted on others.
"""

# b pairs · h heads · i words of one side · l groups of words
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data import Example, Tokenizers
from regard.inspection import dependency_links, extraction
from regard.models import Model
from regard.run import Run
from regard.tasks import build_model
from regard.training import Checkpoints, Prediction, read_checkpoint, weight_files
from regard_corpora import RELATIONS, name_relations
from regard_studies.seed_statistics import SeedStatistics
from regard_studies.systems import TrainedSystem

__all__ = [
    "ALL",
    "FAR",
    "FEWEST",
    "GROUPS",
    "Best",
    "Counted",
    "Counts",
    "Halves",
    "RelationFigures",
    "best_distance",
    "best_head",
    "count",
    "count_halves",
    "course",
    "exact_share",
    "judge_heads",
    "single_head",
]

FEWEST = 40  # words of a relation that a share is told of
Halves = tuple[Sequence[Example], Sequence[Example]]

ALL, FAR = "all words", "head 3 or more away"
DISTANT = 3
GROUPS = (ALL, FAR, *RELATIONS)


@dataclass(frozen=True)
class Counts:
    """Counts of one side and some sentences: words of each group, and how many of them each head, or distance, is right
    of.
    """

    words: Mapping[str, int]
    heads: Mapping[tuple[str, int], Mapping[str, int]]  # by attention and head
    distances: Mapping[int, Mapping[str, int]]

    def share(self, right: Mapping[str, int], group: str) -> float:
        """Return the share that a head, or a distance, gets right, in percent."""
        return 100 * right[group] / max(1, self.words[group])


@dataclass(frozen=True)
class Best:
    """The best of several, chosen on some sentences, and its share on others, in percent."""

    which: str
    share: float


def group_words(side: str, example: Example) -> list[tuple[int, int, list[str]]]:
    """List the words that have a grammatical head to look at, that head, and the groups that the word is in."""
    names = name_relations(example)[side == "decoder"]
    groups = []
    for word, head in dependency_links.head_links(side, example):
        more = [ALL, *([FAR] if abs(word - head) >= DISTANT else [])]
        relation = names[word]
        groups.append((word, head, more if relation is None else [*more, relation]))
    return groups


def count(model: Model, tokenizers: Tokenizers, examples: Sequence[Example]) -> dict[str, Counts]:
    """Count, for each side, how many words every self-attention head, and every fixed distance, gets right."""
    groups = {side: [group_words(side, example) for example in examples] for side in dependency_links.SIDES}
    heads: dict[str, dict[tuple[str, int], Tensor]] = {side: {} for side in dependency_links.SIDES}
    pairs = [(tokenizers.source.encode(each.source), tokenizers.target.encode(each.target)) for each in examples]
    for part in extraction.watch_batches(model, tokenizers, pairs):
        tables = {
            side: arrays([groups[side][number] for number in part.pairs], size_of(part, side))
            for side in dependency_links.SIDES
        }
        for view in part.looks:
            side = view.split(".")[0]
            if side not in dependency_links.SIDES or view in model.cross_attentions:
                continue
            for number, right in enumerate(right_of(part, view, side, *tables[side])):
                key = view, number
                heads[side][key] = heads[side].get(key, torch.zeros(len(GROUPS))) + right
    return {side: count_right(groups[side], heads[side]) for side in dependency_links.SIDES}


def size_of(part: extraction.WatchedBatch, side: str) -> int:
    return part.target_words if side == "decoder" else part.source_words


def arrays(
    relations: Sequence[list[tuple[int, int, list[str]]]], size: int
) -> tuple[Int[Tensor, "b i"], Float[Tensor, "b i l"]]:
    """Return the grammatical head of each word, and whether it is in each group; a word without one is in none."""
    at, inside = torch.zeros(len(relations), size, dtype=torch.long), torch.zeros(len(relations), size, len(GROUPS))
    for row, words in enumerate(relations):
        for word, head, groups in words:
            at[row, word] = head
            for group in groups:
                inside[row, word, GROUPS.index(group)] = 1
    return at, inside


def right_of(
    part: extraction.WatchedBatch, view: str, side: str, at: Int[Tensor, "b i"], inside: Float[Tensor, "b i l"]
) -> Float[Tensor, "h l"]:
    """Count the words of each group that each head of an attention gets right."""
    weights = part.weights(view)
    rows = (part.rows(1) if side == "decoder" else part.source)[:, : weights.shape[2]]
    size = size_of(part, side)
    links = extraction.pick_links(extraction.merge_batch(weights, rows, rows[:, : weights.shape[3]], (size, size)))
    index = at.to(links.device)[:, None, :, None].expand(*links.shape[:3], 1)
    right = links.gather(-1, index)[..., 0].float()
    return torch.einsum("bhi,bil->hl", right, inside.to(right.device)).cpu()


def count_right(
    relations: Sequence[list[tuple[int, int, list[str]]]], heads: Mapping[tuple[str, int], Tensor]
) -> Counts:
    """Sum up counts as plain numbers, with the fixed distances beside the heads."""
    words = dict.fromkeys(GROUPS, 0)
    distances: dict[int, dict[str, int]] = {}
    for example in relations:
        for word, head, groups in example:
            for group in groups:
                words[group] += 1
                distances.setdefault(head - word, dict.fromkeys(GROUPS, 0))[group] += 1
    right = {key: dict(zip(GROUPS, map(int, each.tolist()), strict=True)) for key, each in heads.items()}
    return Counts(words, right, distances)


def best_head(selection: Counts, tested: Counts, group: str) -> Best:
    """Find the head that is right most often for a group, chosen on one half and counted on the other."""
    view, head = max(selection.heads, key=lambda key: selection.heads[key][group])
    layer = int(view.split(".")[2]) + 1
    return Best(f"{layer}.{head + 1}", tested.share(tested.heads[view, head], group))


def best_distance(selection: Counts, tested: Counts, group: str) -> Best:
    """Find the best fixed distance; of equals, the nearest."""
    best = max(sorted(selection.distances, key=abs), key=lambda distance: selection.distances[distance][group])
    right = tested.distances.get(best, dict.fromkeys(GROUPS, 0))
    return Best(f"{best:+d}", tested.share(right, group))


def single_head(selection: Counts, tested: Counts, groups: Sequence[str]) -> Best:
    """Find the one head with the highest mean share over all groups, and that mean."""

    def mean(counts: Counts, key: tuple[str, int]) -> float:
        return sum(counts.share(counts.heads[key], group) for group in groups) / len(groups)

    view, head = max(selection.heads, key=lambda key: mean(selection, key))
    return Best(f"{int(view.split('.')[2]) + 1}.{head + 1}", mean(tested, (view, head)))


@dataclass(frozen=True)
class RelationFigures:
    """The figures of one side, in percent: a spread has a value per seed; `groups` are those that have enough words."""

    groups: Sequence[str]
    words: Mapping[str, int]
    distance: Mapping[str, Best]
    trained: Mapping[str, SeedStatistics]
    untrained: Mapping[str, SeedStatistics]
    which: Mapping[str, str]  # the best head, of the first seed
    course: Sequence[
        SeedStatistics
    ]  # the mean over relations of their best heads: before training, and at every quarter
    single: SeedStatistics  # the same of the one head that is best at all

    @property
    def relations(self) -> list[str]:
        """Return the groups that are relations."""
        return [group for group in self.groups if group not in (ALL, FAR)]


Counted = dict[str, tuple[Counts, Counts]]  # by side: of the half that is chosen on, and of the other


def course(system: TrainedSystem, halves: Halves) -> list[Counted]:
    """Count what the heads get right before the training, and at every checkpoint."""
    run, counts = system.run, []
    trainer = run.settings.training
    torch.manual_seed(trainer.seed)
    counts.append(count_halves(build_model(run.settings, run.tokenizers).to(run.device).eval(), run, halves))
    for folder in Checkpoints(run.folder).steps():
        weight_files.load_weights(Prediction(run.model), read_checkpoint(folder, trainer=False).model, str(folder))
        counts.append(count_halves(run.model, run, halves))
    return counts


def count_halves(model: Any, run: Run, halves: Halves) -> Counted:
    first, second = (count(model, run.tokenizers, half) for half in halves)
    return {side: (first[side], second[side]) for side in dependency_links.SIDES}


def exact_share(run: Run, examples: Sequence[Example]) -> float:
    """Compute the share of the first sentences that are translated exactly, in percent."""
    some = examples[:500]
    outputs = run.translate([each.source for each in some], beam=1)
    return 100 * sum(a == b.target for a, b in zip(outputs, some, strict=True)) / len(some)


def judge_heads(seeds: Sequence[Sequence[tuple[Counts, Counts]]]) -> RelationFigures:
    """Find the best heads of one side; a list per seed, with an entry before the training and one per checkpoint."""
    selection, tested = seeds[0][-1]
    groups = [group for group in GROUPS if tested.words[group] >= FEWEST]
    relations = [group for group in groups if group not in (ALL, FAR)]

    def of(number: int, group: str) -> SeedStatistics:
        return SeedStatistics(tuple(best_head(*seed[number], group).share for seed in seeds))

    def mean(number: int) -> SeedStatistics:
        return SeedStatistics(
            tuple(sum(best_head(*seed[number], group).share for group in relations) / len(relations) for seed in seeds)
        )

    return RelationFigures(
        groups,
        tested.words,
        {group: best_distance(selection, tested, group) for group in groups},
        {group: of(-1, group) for group in groups},
        {group: of(0, group) for group in groups},
        {group: best_head(selection, tested, group).which for group in groups},
        [mean(number) for number in range(len(seeds[0]))],
        SeedStatistics(tuple(single_head(*seed[-1], relations).share for seed in seeds)),
    )
