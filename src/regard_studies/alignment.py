"""Attention as a word alignment: by mechanism, by layer and head, and as training goes on.

Bahdanau et al. 2015 (arXiv:1409.0473), section 5.2.1, and Luong et al. 2015 (arXiv:1508.04025), section 5.4: what a
recurrent decoder looks at are the words it translates. Garg et al. 2019 (arXiv:1909.02074): of a Transformer's layers
the last but one does so most, on average of its heads. Links are those of the largest weights, the translation given;
the alignment error rate (AER) is against what people, or the phrasebook's grammar, linked.
"""

from typing import Any

from regard_studies.alignment.draw import by_layer, curves, heat_map, mechanism_table, step_table
from regard_studies.alignment.measure import best_single_links, diagonal_error, measure_systems
from regard_studies.alignment.verdicts import Findings, verdicts
from regard_studies.corpora import pairs
from regard_studies.corpora.pairs import AlignedPairs, Pairs
from regard_studies.luong_table.claim import TESTS, WORDS, generate_aligned, limit_length
from regard_studies.page import Page, signed_training
from regard_studies.setting import Setting
from regard_studies.systems import group_by_name, train_all

__all__ = ["SYSTEMS", "run", "tables"]

SYSTEMS = ("rnnsearch", "luong-global", "luong-local", "transformer")
CHECKPOINTS = 6


def models(size: int, *, real: bool, quick: bool) -> dict[str, dict[str, Any]]:
    """Return the systems: all of one width, and otherwise as in their papers."""
    dropout = 0.2 if real else 0.0
    same = {"size": size, "embedding": size, "layers": 1, "dropout": dropout}
    luong = {
        "kind": "luong",
        "cell": "lstm",
        "score": "general",
        "radius": 10 if real else 3 if quick else 5,
        "reverse": True,
        **same,
    }
    heads, layers = (8, 4) if real else (4, 3)
    return {
        "rnnsearch": {"kind": "rnnsearch", "cell": "gru", "hidden": size, "maxout": size // 2, **same},
        "luong-global": {**luong, "span": "global"},
        "luong-local": {**luong, "span": "local-p"},
        "transformer": {
            "kind": "transformer",
            "size": size,
            "hidden": 4 * size if not quick else 2 * size,
            "heads": heads,
            "layers": layers,
            "dropout": dropout / 2,
        },
    }


def tables(setting: Setting, corpus: Pairs) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system, which differ in the model alone."""
    real, quick = setting.corpora is not None, setting.quick
    steps, size = (1200, 512) if real else (480, 96) if quick else (3000, 256)
    training = {
        "steps": steps,
        "batch_tokens": 16_384 if real else 1024 if quick else 4096,
        "schedule": "cosine",
        "warmup": max(1, steps // 6),
        "smoothing": 0.1,
        "validate_every": max(1, steps // CHECKPOINTS),
        "validate_rows": 200 if real else 100,
        "metric": "loss",
        "keep": CHECKPOINTS + 1,
    }
    data = {**corpus.tables["data"], "longest": 60 if real else 40}
    return {
        name: {
            **corpus.tables,
            "data": data,
            "model": model,
            "training": {**training, "rate": learning_rate(name, quick)},
        }
        for name, model in models(size, real=real, quick=quick).items()
    }


def learning_rate(name: str, quick: bool) -> float:
    """Choose the peak learning rate: recurrent systems learn faster with one that is too high for a Transformer."""
    return (2e-3 if quick else 1e-3) if name == "transformer" else 5e-3 if quick else 3e-3


def choose_texts(setting: Setting) -> tuple[Pairs, AlignedPairs]:
    """Choose the corpus, with test sentences that are not too long, and aligned pairs."""
    if setting.corpora is not None:
        return limit_length(pairs.europarl(setting, "de", "en"), WORDS, TESTS), pairs.read_aligned(
            setting.corpora, "de", "en"
        )
    count, tests, longest = (20_000, 300, 12) if setting.quick else (200_000, TESTS, 18)
    return pairs.phrasebook(count, tests, longest=longest), generate_aligned(tests, longest=longest)


def run(setting: Setting) -> Page:
    """Train all systems, read every head of every checkpoint, and judge."""
    corpus, aligned = choose_texts(setting)
    with signed_training(setting, corpus.name) as clock:
        configs = tables(setting, corpus)
        figures = {
            name: measure_systems(systems, corpus, aligned)
            for name, systems in group_by_name(train_all("alignment", configs, setting)).items()
        }
        signature = clock.signature()
    even = diagonal_error(aligned)
    training = configs["transformer"]["training"]
    judged = Findings(figures, even)
    return Page(
        name="alignment",
        title="What attention aligns",
        claim="What a decoder looks at is what it translates: attention aligns words without having been told, of a "
        "Transformer in some heads and layers more than in others, and better as the translation gets better.",
        source="Bahdanau et al. 2015, section 5.2.1 (arXiv:1409.0473); Luong et al. 2015, sections 5.3 and 5.4 "
        "(arXiv:1508.04025); Garg et al. 2019 (arXiv:1909.02074); Zenkel et al. 2019 (arXiv:1901.11359)",
        measured=[
            f"{corpus.name}: {len(aligned.sources):,} pairs with gold links, the translation given; a target word is "
            "linked with the source word that has most of its weight. A step's weights may be of the word that it "
            "writes, or of the word that it reads, which the step before wrote: both are measured. BLEU and "
            f"perplexity of a piece are of {len(corpus.sources):,} test sentences, translated greedily.",
            f"{len(figures)} systems of the same width ({configs['transformer']['model']['size']}), "
            f"{training['steps']:,} updates of {training['batch_tokens']:,} tokens each. A Transformer "
            "is read by the mean of the heads of its last layer but one of more than three, else of its last; or by "
            "the head, or the layer's mean, that is best on one half of the pairs, measured on the other half.",
        ],
        tables=[
            mechanism_table(figures, even),
            *(by_layer(figures["transformer"].readings, offset) for offset in (0, 1)),
            step_table(figures),
        ],
        plots=[heat_map(figures["transformer"].readings), curves(figures, even)],
        verdicts=verdicts(judged),
        caveats=caveats(aligned, setting),
        signature=signature,
    )


def caveats(aligned: AlignedPairs, setting: Setting) -> list[str]:
    """List the caveats that a reader should bear in mind."""
    words, linked, least = best_single_links(aligned)
    remarks = [
        f"Every target word is linked once. People, or the grammar, linked {100 * linked / words:.0f} % of them: a "
        f"lower AER than {least:.1f} % cannot be had so.",
        "A head that is picked from the tables by the same pairs looks better than it is: what is best of all is "
        "judged on the half of the pairs that did not choose it. BLEU of checkpoints is that of the validation set's "
        "first sentences.",
    ]
    if len(setting.seeds) > 1:
        remarks.append("The heads' tables are of the first seed.")
    else:
        remarks.append("One seed: what another would change is not known.")
    if setting.jobs > 1:
        remarks.append("Systems were trained side by side: their seconds are of a machine that was shared.")
    if setting.corpora is not None:
        return [
            *remarks,
            "The systems have read 200,000 pairs a few times, and those of the papers millions of pairs: "
            "alignments that come late in training, a Transformer's most of all, are not seen here.",
            f"{len(aligned.sources)} short sentences: a point or two of AER are within chance. The published figures "
            "are of other sentences: fast_align 27.0 and Giza++ 20.6 on another German-English set, Luong's systems "
            "34 to 39 and the Berkeley aligner 32 on that of RWTH. Statistical aligners join both directions, and here "
            "is one.",
        ]
    return [*remarks, "The phrasebook's sentences are made by a grammar: short, regular, and easy to align."]
