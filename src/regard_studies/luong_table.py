"""Luong's table: where attention looks (everywhere, or within a window), and how it compares, side by side.

Luong, Pham and Manning 2015 (arXiv:1508.04025), table 4: global attention with the scores location, dot and general,
local-m and local-p with dot and general; table 1: what input feeding is worth; a footnote of section 5.3 on concat;
section 5.4 and table 6: alignment error rates. As there, LSTMs read the source backwards, drop out a fifth, and feed
the attentional state on; annotations stand in the order of the source all the same, so that local-m moves on from its
beginning. `window_cost` measures what a window saves.
"""

from typing import Any

from regard.data import generate
from regard.decoding import first_model
from regard.evaluation import Gold
from regard.inspection import selection
from regard_studies.corpora import pairs
from regard_studies.corpora.pairs import AlignedPairs, Pairs
from regard_studies.luong_table.draw import Figures, paper_table, quality_plot, system_table
from regard_studies.luong_table.verdicts import ERRORS, POINTS, SHARE, verdicts
from regard_studies.luong_table.window_cost import cost_plot, cost_table, cost_verdicts, measure_cost
from regard_studies.page import Page, signed_training
from regard_studies.seed_statistics import SeedStatistics, over_seeds
from regard_studies.setting import Setting
from regard_studies.systems import TrainedSystem, group_by_name, train_all
from regard_studies.translation import perplexity

__all__ = ["SYSTEMS", "error_rates", "generate_aligned", "limit_length", "run", "tables"]

SYSTEMS: dict[str, dict[str, Any]] = {
    "global-location": {"span": "global", "score": "location"},
    "global-dot": {"span": "global", "score": "dot"},
    "global-general": {"span": "global", "score": "general"},
    "global-concat": {"span": "global", "score": "concat"},
    "local-m-dot": {"span": "local-m", "score": "dot"},
    "local-m-general": {"span": "local-m", "score": "general"},
    "local-p-dot": {"span": "local-p", "score": "dot"},
    "local-p-general": {"span": "local-p", "score": "general"},
    "unfed-global-dot": {"span": "global", "score": "dot", "input_feeding": False},
    "unfed-global-general": {"span": "global", "score": "general", "input_feeding": False},
    "unfed-local-p-general": {"span": "local-p", "score": "general", "input_feeding": False},
}
WORDS = 40  # of a test sentence's longer side: what is longer has hardly been seen in training
TESTS = 1500


def tables(setting: Setting, corpus: Pairs) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system, which differ in span, score and input feeding alone."""
    real, quick = setting.corpora is not None, setting.quick
    steps, size = (1000, 512) if real else (300, 96) if quick else (3000, 256)
    longest = 60 if real else 40
    same = {
        "kind": "luong",
        "cell": "lstm",
        "size": size,
        "embedding": size,
        "layers": 1,
        "dropout": 0.2 if real else 0.0,
        "radius": 10 if real else 3 if quick else 5,
        "length": 200 if real else 60,
        "reverse": True,
    }
    training = {
        "steps": steps,
        "batch_tokens": 16_384 if real else 1024 if quick else 4096,
        "rate": 5e-3 if quick else 3e-3 if real else 2e-3,
        "schedule": "cosine",
        "warmup": max(1, steps // 10),
        "smoothing": 0.0,  # perplexities are compared
        "validate_every": steps,
        "validate_rows": 0,
        "metric": "loss",
    }
    data = {**corpus.tables["data"], "longest": longest}
    return {
        name: {**corpus.tables, "data": data, "model": {**same, **each}, "training": dict(training)}
        for name, each in SYSTEMS.items()
    }


def choose_texts(setting: Setting) -> tuple[Pairs, AlignedPairs]:
    """Choose the corpus, with test sentences that are not too long, and aligned pairs."""
    if setting.corpora is not None:
        return limit_length(pairs.europarl(setting, "de", "en"), WORDS, TESTS), pairs.read_aligned(
            setting.corpora, "de", "en"
        )
    count, tests, longest = (20_000, 300, 12) if setting.quick else (200_000, TESTS, 18)
    return pairs.phrasebook(count, tests, longest=longest), generate_aligned(tests, longest=longest)


def limit_length(corpus: Pairs, words: int, count: int) -> Pairs:
    """Return the corpus with the first test pairs in which neither side has more words."""
    both = zip(corpus.sources, corpus.references, strict=True)
    pairs = [pair for pair in both if max(len(text.split()) for text in pair) <= words][:count]
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Pairs(corpus.name, corpus.tables, sources, references, corpus.lowercase)


def generate_aligned(count: int, **options: Any) -> AlignedPairs:
    """Generate test sentences of the phrasebook with the links that its grammar gives them."""
    examples = list(generate("phrasebook", count, split="test", pair="en-de", seed=0, edition=1, **options))
    gold = [Gold(frozenset(each.alignment), frozenset()) for each in examples]
    return AlignedPairs([each.source for each in examples], [each.target for each in examples], gold)


def run(setting: Setting) -> Page:
    """Train all systems, measure and judge."""
    corpus, aligned = choose_texts(setting)
    with signed_training(setting, corpus.name) as clock:
        configs = tables(setting, corpus)
        systems = group_by_name(train_all("luong-table", configs, setting))
        figures = {name: measure_systems(each, corpus, aligned) for name, each in systems.items()}
        device = next(iter(systems.values()))[0].run.device
        cost = measure_cost(device, quick=setting.quick)
        signature = clock.signature()
    first = next(iter(configs.values()))
    steps, model = first["training"]["steps"], first["model"]
    return Page(
        name="luong-table",
        title="Global and local attention, with every score",
        claim="Dot is the best score of global attention and general of local attention; local attention whose window "
        "is predicted is best of all; feeding the attentional state on helps; and windows align words better.",
        source="Luong, Pham and Manning 2015, tables 1, 4 and 6, sections 3 and 5 (arXiv:1508.04025)",
        measured=[
            f"{corpus.name}: {len(corpus.sources):,} test sentences, translated greedily, and {len(aligned.sources):,} "
            f"pairs with gold links. {len(figures)} systems of one LSTM layer, {model['size']} wide, the source read "
            f"backwards, windows of ±{model['radius']} pieces; {steps:,} updates of "
            f"{first['training']['batch_tokens']:,} tokens each, the same rates.",
            "Perplexity is that of a piece of a word. AER is of the links of the largest weights, the translation "
            "given: of the word that a step writes, and of the word that it reads, as the paper reads dot and general "
            "(a footnote of section 5.3); systems are judged by the lower of the two. A difference counts from "
            f"{POINTS} BLEU, {100 * SHARE:g} % of a perplexity and {ERRORS:g} point of AER on, and beyond the "
            "deviations of the seeds where there are several.",
        ],
        tables=[system_table(figures), paper_table(), cost_table(cost)],
        plots=[quality_plot(figures), cost_plot(cost)],
        verdicts=[*verdicts(figures), *cost_verdicts(cost)],
        caveats=caveats(corpus, setting),
        signature=signature,
    )


def caveats(corpus: Pairs, setting: Setting) -> list[str]:
    """List the differences from the paper."""
    words = sum(len(text.split()) for text in corpus.sources) / max(1, len(corpus.sources))
    jobs = setting.jobs
    remarks = [
        "The paper has four layers of 1,000, and twelve passes over 4.5 million pairs with SGD; here it is one layer, "
        "fewer and shorter sentences, and a short training with Adam.",
        f"The test's sentences have {words:.0f} words on average, hardly more than a window holds: what windows are "
        "worth on long ones, but for their cost, is not asked here.",
        "Words are cut into pieces, so that there are no unknown ones to be replaced: figures stand beside the paper's "
        "before replacement, and windows count pieces.",
        "The time of training is that of this implementation: with windows and concat every step is a call of its own"
        + (f"; {jobs} systems at a time shared the machine, with each other and with other work." if jobs > 1 else "."),
    ]
    if len(setting.seeds) == 1:
        remarks.append("One seed: what another would change is not known.")
    if setting.corpora is not None:
        return [*remarks, f"German to English, the paper's other direction; sentences of up to {WORDS} words."]
    return [*remarks, "The phrasebook's sentences are made by a grammar: short, regular, and easy to align."]


def measure_systems(systems: list[TrainedSystem], corpus: Pairs, aligned: AlignedPairs) -> Figures:
    """Measure the seeds of a system."""
    errors, read = zip(*(error_rates(each, aligned) for each in systems), strict=True)
    rates = {"written": SeedStatistics(errors), "read": SeedStatistics(read)}
    return {
        "perplexity": over_seeds(systems, lambda each: perplexity(each.run, corpus)),
        "bleu": over_seeds(systems, lambda each: corpus.bleu(each.run.translate(corpus.sources, beam=1))),
        **rates,
        "aer": min(rates.values(), key=lambda each: each.mean),
        "seconds": over_seeds(systems, lambda each: each.seconds),
    }


def error_rates(system: TrainedSystem, aligned: AlignedPairs) -> tuple[float, float]:
    """Compute the AER, in percent, of the word that is written, and of the word that is read."""
    run = system.run
    sides = run.tokenizers.source.encode_batch(aligned.sources), run.tokenizers.target.encode_batch(aligned.targets)
    readings = selection.score_heads(
        first_model(run.model), run.tokenizers, list(zip(*sides, strict=True)), aligned.gold
    )
    rates = {
        each.offset: 100 * each.aer
        for each in readings
        if each.head is None and each.view == first_model(run.model).alignment_attention
    }
    return rates[0], rates[1]
