"""Does self-attention learn what depends on what, without being told?

Clark et al. 2019 (arXiv:1906.04341, section 4.2) found heads of BERT that look from a word at its syntactic head, each
for certain relations, far above what a fixed distance reaches, while no head does well at all of them; Vaswani et al.
2017 (arXiv:1706.03762, appendix) show heads of a translator that look at distant words. Here a Transformer learns to
translate the phrasebook, whose grammar knows every word's head, and is asked the same, head by head: before its
training, at every quarter of it and after it.
"""

from typing import Any

from regard.data import generate
from regard.inspection import dependency_links
from regard_studies.page import Page, Verdict, show, signed_training
from regard_studies.relations.draw import relation_plot, relation_table, training_table
from regard_studies.relations.measure import (
    ALL,
    FAR,
    RelationFigures,
    course,
    exact_share,
    judge_heads,
)
from regard_studies.seed_statistics import SeedStatistics, margin
from regard_studies.setting import Setting
from regard_studies.systems import train_all

__all__ = ["run", "tables", "verdicts"]

QUARTERS = 4
CLEARLY = 10.0  # points that are more than chance, and than a choice among a dozen heads
ONE_SEED = 2.0  # points between two means that one seed alone cannot tell from chance


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
            "training": {
                "steps": steps,
                "batch_tokens": 1024 if quick else 4096,
                "rate": 3e-3 if quick else 1.5e-3,
                "schedule": "cosine",
                "warmup": steps // 10,
                "smoothing": 0.05,
                "validate_every": steps // QUARTERS,
                "validate_rows": 0,
                "metric": "loss",
                "keep": QUARTERS,
            },
        }
    }


def run(setting: Setting) -> Page:
    """Train the system, ask every head about every word, and judge the claims."""
    table = tables(setting.quick)
    longest = int(table["transformer"]["data"]["builtin_options"][0].split("=")[1])
    tests = 800 if setting.quick else 3000
    examples = list(generate("phrasebook", tests, split="test", pair="en-de", seed=0, edition=1, longest=longest))
    with signed_training(setting) as clock:
        systems = train_all("relations", table, setting)
        halves = examples[: len(examples) // 2], examples[len(examples) // 2 :]
        courses = [course(each, halves) for each in systems]
        exact = SeedStatistics(tuple(exact_share(each.run, halves[1]) for each in systems))
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
            training_table(figures, systems[0].step, QUARTERS),
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
