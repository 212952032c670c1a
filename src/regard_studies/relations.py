"""Does self-attention learn syntactic dependencies without supervision?

Clark et al. 2019 (arXiv:1906.04341, section 4.2) found heads of BERT that attend from a word to its syntactic head,
each for certain relations and far more often than a fixed distance, while no head does well at all relations. Vaswani
et al. 2017 (arXiv:1706.03762, appendix) show heads of a translation model that attend to distant words. Here a
Transformer learns to translate the phrasebook, whose grammar knows every word's head. The study measures each attention
head before the training and at every quarter of it. It selects the best attention head and the best fixed distance on
some sentences and counts on others. In the decoder, only words whose grammatical head precedes them count.
"""

# b pairs · h heads · i words of one side · l groups of words

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.alignment import dependencies as dependency_links
from regard.alignment import extraction
from regard.data import Example, Tokenizers, generate
from regard.inspection import plot
from regard.models import Model
from regard.run import Run
from regard.tasks import build_model
from regard.training import Checkpoints, Prediction, read_checkpoint, weight_files
from regard_corpora import RELATIONS, name_relations
from regard_studies import Setting
from regard_studies.page import Page, Plot, Table, Verdict, show, signed_training
from regard_studies.seed_statistics import SeedStatistics, margin, over_seeds
from regard_studies.systems import TrainedSystem, train_all, training_settings

FEWEST = 40  # relations with fewer words are left out
Halves = tuple[Sequence[Example], Sequence[Example]]
ALL, FAR = "all words", "head 3 or more away"
DISTANT = 3
GROUPS = (ALL, FAR, *RELATIONS)
QUARTERS = 4
CLEARLY = 10.0  # points; more than chance and than the gain of choosing among a dozen heads
ONE_SEED = 2.0  # points; with one seed, smaller differences of means may be chance


@dataclass(frozen=True)
class Counts:
    """Counts on one side of some sentences: words of each group, and those that each head or distance gets right."""

    words: Mapping[str, int]
    heads: Mapping[tuple[str, int], Mapping[str, int]]  # by attention and head
    distances: Mapping[int, Mapping[str, int]]

    def share(self, right: Mapping[str, int], group: str) -> float:
        """Return the share of a group that a head or a distance gets right, in percent."""
        return 100 * right[group] / max(1, self.words[group])


@dataclass(frozen=True)
class Best:
    """The best head or distance, chosen on some sentences, and its share on others, in percent."""

    which: str
    share: float


def group_words(side: str, example: Example) -> list[tuple[int, int, list[str]]]:
    """List the words that can attend to their grammatical head, with that head and the groups of the word."""
    names = name_relations(example)[side == "decoder"]
    groups = []
    for word, head in dependency_links.head_links(side, example):
        more = [ALL, *([FAR] if abs(word - head) >= DISTANT else [])]
        relation = names[word]
        groups.append((word, head, more if relation is None else [*more, relation]))
    return groups


def count(model: Model, tokenizers: Tokenizers, examples: Sequence[Example]) -> dict[str, Counts]:
    """Count for each side the words that every self-attention head and every fixed distance gets right."""
    groups = {side: [group_words(side, example) for example in examples] for side in dependency_links.SIDES}
    heads: dict[str, dict[tuple[str, int], Tensor]] = {side: {} for side in dependency_links.SIDES}
    pairs = [(tokenizers.source.encode(each.source), tokenizers.target.encode(each.target)) for each in examples]
    for part in extraction.watch_batches(model, tokenizers, pairs):
        tables = {
            side: arrays([groups[side][number] for number in part.pairs], part.size(side))
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


def arrays(
    relations: Sequence[list[tuple[int, int, list[str]]]], size: int
) -> tuple[Int[Tensor, "b i"], Float[Tensor, "b i l"]]:
    """Return each word's grammatical head and its membership in each group; words without a head are in no group."""
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
    """Count the words of each group that each attention head gets right."""
    links = part.own_links(view, side)
    index = at.to(links.device)[:, None, :, None].expand(*links.shape[:3], 1)
    right = links.gather(-1, index)[..., 0].float()
    return torch.einsum("bhi,bil->hl", right, inside.to(right.device)).cpu()


def count_right(
    relations: Sequence[list[tuple[int, int, list[str]]]], heads: Mapping[tuple[str, int], Tensor]
) -> Counts:
    """Build `Counts` from the heads' counts, and count the words that each fixed distance gets right."""
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
    """Find the head that is right most often for a group: choose it on one half, and count on the other."""
    view, head = max(selection.heads, key=lambda key: selection.heads[key][group])
    layer = int(view.split(".")[2]) + 1
    return Best(f"{layer}.{head + 1}", tested.share(tested.heads[view, head], group))


def best_distance(selection: Counts, tested: Counts, group: str) -> Best:
    """Find the best fixed distance for a group; among equals, the shortest."""
    best = max(sorted(selection.distances, key=abs), key=lambda distance: selection.distances[distance][group])
    right = tested.distances.get(best, dict.fromkeys(GROUPS, 0))
    return Best(f"{best:+d}", tested.share(right, group))


def single_head(selection: Counts, tested: Counts, groups: Sequence[str]) -> Best:
    """Find the single head with the highest mean share over all groups, and that mean."""

    def mean(counts: Counts, key: tuple[str, int]) -> float:
        return sum(counts.share(counts.heads[key], group) for group in groups) / len(groups)

    view, head = max(selection.heads, key=lambda key: mean(selection, key))
    return Best(f"{int(view.split('.')[2]) + 1}.{head + 1}", mean(tested, (view, head)))


@dataclass(frozen=True)
class RelationFigures:
    """The figures of one side, in percent; `groups` contains only groups with enough words."""

    groups: Sequence[str]
    words: Mapping[str, int]
    distance: Mapping[str, Best]
    trained: Mapping[str, SeedStatistics]
    untrained: Mapping[str, SeedStatistics]
    which: Mapping[str, str]  # the best head of the first seed
    # The mean over relations of their best heads' shares, before training and at every quarter.
    course: Sequence[SeedStatistics]
    single: SeedStatistics  # the mean over relations of the single best head's shares

    @property
    def relations(self) -> list[str]:
        """Return the groups that are relations."""
        return [group for group in self.groups if group not in (ALL, FAR)]


Counted = dict[str, tuple[Counts, Counts]]  # by side: on the half for choosing heads, and on the other half


def course(system: TrainedSystem, halves: Halves) -> list[Counted]:
    """Count the words that heads get right before the training and at every checkpoint."""
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
    """Compute the share of the first 500 sentences that are translated exactly, in percent."""
    some = examples[:500]
    outputs = run.translate([each.source for each in some], beam=1)
    return 100 * sum(a == b.target for a, b in zip(outputs, some, strict=True)) / len(some)


def judge_heads(seeds: Sequence[Sequence[tuple[Counts, Counts]]]) -> RelationFigures:
    """Find the best heads of one side; each seed has counts before the training and at every checkpoint."""
    selection, tested = seeds[0][-1]
    groups = [group for group in GROUPS if tested.words[group] >= FEWEST]
    relations = [group for group in groups if group not in (ALL, FAR)]

    def of(number: int, group: str) -> SeedStatistics:
        return over_seeds(seeds, lambda seed: best_head(*seed[number], group).share)

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
        over_seeds(seeds, lambda seed: single_head(*seed[-1], relations).share),
    )


def relation_table(where: str, figures: RelationFigures) -> Table:
    """Tabulate the best head, the best fixed distance, and the best head before training, by relation."""
    return Table(
        caption=f"Words whose most attended word is their grammatical head, %: {where}",
        columns=[
            "words that are",
            "words",
            "best distance",
            "its share",
            "best head",
            "its share, trained",
            "untrained",
        ],
        rows=[
            [
                group,
                figures.words[group],
                int(figures.distance[group].which),
                figures.distance[group].share,
                figures.which[group],
                figures.trained[group].as_text(".1f"),
                figures.untrained[group].as_text(".1f"),
            ]
            for group in figures.groups
        ],
        formats=["", ",d", "+d", ".1f", "", "", ""],
        note="A head is told as layer.head, both from 1, of the first seed; untrained has a best head of its own.",
    )


def course_table(figures: Mapping[str, RelationFigures], steps: int, quarters: int) -> Table:
    """Tabulate the shares in the course of the training."""
    at = [steps * number // quarters for number in range(quarters + 1)]
    return Table(
        caption="Mean over the relations of their best heads, %, by the number of updates",
        columns=["side", *(f"{step:,}" for step in at), "one head for all"],
        rows=[[side, *(each.as_text() for each in one.course), one.single.as_text()] for side, one in figures.items()],
        formats=[""] * (quarters + 3),
    )


def relation_plot(encoder: RelationFigures, decoder: RelationFigures, steps: int, quarters: int) -> Plot:
    """Draw the relations of the encoder, and the course of the training."""
    titles = ["Words that look at their head, encoder, %", "Mean of the best heads, %"]
    figure, (bars, course) = plot.panels(2, titles=titles, height=4.0)
    groups = list(reversed(encoder.groups))
    for number, group in enumerate(groups):
        bars.plot(
            [encoder.distance[group].share, encoder.trained[group].mean], [number] * 2, color=plot.GREY, linewidth=0.8
        )
    positions = range(len(groups))
    marks = {
        "best fixed distance": ([encoder.distance[group].share for group in groups], plot.GREY, "|"),
        "best head, untrained": ([encoder.untrained[group].mean for group in groups], plot.ORANGE, "x"),
        "best head, trained": ([encoder.trained[group].mean for group in groups], plot.BLUE, "o"),
    }
    for label, (values, colour, mark) in marks.items():
        size = 9 if mark == "|" else 5
        bars.plot(values, positions, color=colour, marker=mark, markersize=size, linestyle="", label=label)
    bars.set_yticks(list(positions), groups)
    bars.set_xlim(0, 103)
    plot.legend(bars, loc="upper center", bbox_to_anchor=(0.3, -0.08))
    at = [steps * number // quarters for number in range(quarters + 1)]
    for label, one, colour in (("encoder", encoder, plot.BLUE), ("decoder", decoder, plot.GREEN)):
        course.plot(at, [each.mean for each in one.course], color=colour, marker="o", markersize=3.5, label=label)
    course.set_ylim(0, 103)
    course.set_xlabel("updates")
    plot.legend(course, loc="lower right")
    return Plot(
        "relations",
        figure,
        "Left: by what a word is to its head. Right: a head for each relation, as the training goes on.",
        "Left, a row a relation with three marks: best fixed distance, best untrained head, best trained head. Right, "
        "two lines: the mean of the best heads of encoder and decoder against the updates.",
    )


def tables(quick: bool) -> dict[str, dict[str, Any]]:
    """Return the configuration of the study's one system."""
    steps = 720 if quick else 2500
    longest = 14 if quick else 18
    return {
        "transformer": {
            "data": {
                "builtin": "phrasebook",
                "builtin_edition": 1,
                "pair": "en-de",
                "count": 40_000 if quick else 200_000,
                "builtin_options": [f"longest={longest}"],
            },
            "model": {"kind": "transformer", "preset": "tiny" if quick else "small", "dropout": 0.0, "tied": "all"},
            "training": training_settings(
                steps,
                batch_tokens=1024 if quick else 4096,
                rate=3e-3 if quick else 1.5e-3,
                smoothing=0.05,
                validate_every=steps // QUARTERS,
                validate_rows=0,
                keep=QUARTERS,
            ),
        }
    }


def run(setting: Setting) -> Page:
    """Train the system, compare every head with every word's grammatical head, and judge the claims."""
    table = tables(setting.quick)
    longest = int(table["transformer"]["data"]["builtin_options"][0].split("=")[1])
    tests = 800 if setting.quick else 3000
    examples = list(generate("phrasebook", tests, split="test", pair="en-de", seed=0, edition=1, longest=longest))
    with signed_training(setting) as clock:
        systems = train_all("relations", table, setting)
        halves = examples[: len(examples) // 2], examples[len(examples) // 2 :]
        courses = [course(each, halves) for each in systems]
        exact = over_seeds(systems, lambda each: exact_share(each.run, halves[1]))
        signature = clock.signature()
    figures = {
        side: judge_heads([[each[side] for each in seed] for seed in courses]) for side in dependency_links.SIDES
    }
    encoder = figures["encoder"]
    return Page(
        name="relations",
        title="Claim: self-attention finds what a word depends on",
        claim="Nobody tells a Transformer what a subject or an article is, and yet some of its attention heads look "
        "from a word at the word that it depends on: different ones for different relations, nearer and farther.",
        source="Clark et al. 2019, section 4.2 (arXiv:1906.04341); Vaswani et al. 2017, appendix (arXiv:1706.03762)",
        measured=[
            f"English to German, the built-in phrasebook, {systems[0].step:,} updates; of unseen sentences "
            f"{exact.as_text()} % are then translated exactly. Of every word of unseen sentences the grammatical "
            "head is "
            "set beside the word that an attention head looks at most, by what the word is to its grammatical head. "
            "The best attention head of each relation, and the best fixed distance, is chosen on "
            f"{len(halves[0]):,} sentences and counted on {len(halves[1]):,} others. In the decoder those words count "
            "whose grammatical head was read before. Untrained is the same model before its first update.",
        ],
        tables=[
            relation_table("encoder, English", encoder),
            relation_table("decoder, German", figures["decoder"]),
            course_table(figures, systems[0].step, QUARTERS),
        ],
        plots=[relation_plot(encoder, figures["decoder"], systems[0].step, QUARTERS)],
        verdicts=verdicts(encoder),
        caveats=[
            "A grammar made the sentences: their relations are more regular than those of a treebank, and many stand "
            "at a distance that hardly changes.",
            "That an attention head looks at a word's grammatical head does not say that the translation needs it. "
            "Of the words whose head is three or more away, three in ten are full stops and commas, from which a "
            "translator need not look anywhere.",
            "A relation's name comes from a few rules over the phrasebook's lexicon; words that none of them names "
            "count only among all words.",
        ],
        signature=signature,
    )


def verdicts(figures: RelationFigures) -> list[Verdict]:
    """Judge the claims by the encoder, which sees all words."""
    gains = {group: figures.trained[group].mean - figures.distance[group].share for group in figures.relations}
    ahead = sorted((group for group, gain in gains.items() if gain > CLEARLY), key=lambda group: -gains[group])
    by_relation, single = figures.course[-1], figures.single
    untrained, first = figures.course[0], figures.course[1]
    difference = margin(figures.course, floor=ONE_SEED)

    def evidence(group: str) -> str:
        best = figures.distance[group]
        return f"{group} {figures.trained[group].as_text('.0f')} % ({best.which}: {show(best.share, '.0f')} %)"

    far = figures.trained.get(FAR)
    return [
        Verdict(
            "certain heads find a relation clearly better than any fixed distance does",
            bool(ahead),
            f"of {len(gains)} relations {len(ahead)} by more than {show(CLEARLY, '.0f')} points"
            + (f": {'; '.join(map(evidence, ahead[:4]))}" if ahead else ""),
        ),
        Verdict(
            "no single head does well overall: the best is not much better than a fixed distance",
            figures.trained[ALL].mean - figures.distance[ALL].share < CLEARLY,
            f"{evidence(ALL)}; mean over the relations: the one best head {single.as_text('.0f')} %, a head for each "
            f"{by_relation.as_text('.0f')} %",
        ),
        Verdict(
            "training makes heads find what they did not find before",
            by_relation.mean - untrained.mean > CLEARLY,
            f"mean over the relations, a head for each: trained {by_relation.as_text('.0f')} %, untrained "
            f"{untrained.as_text('.0f')} %",
        ),
        Verdict(
            "the share grows with the training",
            by_relation.mean - first.mean > difference and first.mean - untrained.mean > difference,
            "before it and at every quarter: " + ", ".join(f"{each.as_text('.0f')} %" for each in figures.course),
        ),
        Verdict(
            "heads look at distant words, too: those whose head is three or more away",
            far is not None and far.mean - figures.distance[FAR].share > CLEARLY,
            "there are too few" if far is None else evidence(FAR),
        ),
    ]
