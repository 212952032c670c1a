"""Without attention, translations become worse as sentences become longer; with attention, hardly.

Cho et al. 2014 (arXiv:1409.1259), figure 4, and Bahdanau et al. 2015 (arXiv:1409.0473), figure 2: the encoder's last
state must represent the whole sentence, and fails to. The study trains three cells (Elman's, GRU, LSTM), each with a
fixed context and with additive attention, with the same number of batches. They translate unseen sentences of every
length, from the phrasebook or from Europarl; the latter include whole paragraphs, longer than all training sentences.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from regard.evaluation import text_scores
from regard.inspection import Cell, plot
from regard_corpora import BINS, MAX_WORDS
from regard_studies import Setting
from regard_studies.corpora import Pairs, europarl, paragraphs, phrasebook
from regard_studies.page import Page, Plot, Table, Verdict, show, signed_training
from regard_studies.seed_statistics import SeedStatistics, over_seeds
from regard_studies.systems import group_by_name, train_all, training_settings

Figures = Mapping[str, list[float]]  # exact and bleu: a value per bin, then for all; seconds: one value
CELLS = {"rnn": "tanh RNN", "gru": "GRU", "lstm": "LSTM"}
KINDS = {"rnn": "fixed context", "rnnsearch": "attention"}
COLOURS = {"rnn": plot.ORANGE, "gru": plot.BLUE, "lstm": plot.GREEN}
EUROPARL = ((1, 10), (11, 20), (21, 30), (31, 40), (41, 60), (61, 100), (101, 400))
PIECES = 80  # maximum length of a training sentence, about sixty words of Europarl
NOTHING = 3.0  # a system with a lower BLEU on short sentences has learnt next to nothing


class Lengths(NamedTuple):
    """Groups of sentences by their number of words; the first `trained` groups have lengths seen in training."""

    limits: Sequence[tuple[int, int]]
    trained: int


def within(sources: Sequence[str], low: int, high: int) -> list[int]:
    """Return the indices of the sentences with `low` to `high` words."""
    return [i for i, source in enumerate(sources) if low <= len(source.split()) <= high]


def bins(pairs: Pairs, outputs: Sequence[str], lengths: Lengths) -> dict[str, list[float]]:
    """Compute the share of exact translations and BLEU, for each group of lengths and for all."""
    groups = [within(pairs.sources, *limits) for limits in lengths.limits] + [list(range(len(outputs)))]
    right = [output == reference for output, reference in zip(outputs, pairs.references, strict=True)]
    return {
        "exact": [100 * (sum(right[i] for i in each) / max(1, len(each))) for each in groups],
        "bleu": [
            text_scores.bleu([outputs[i] for i in each], [pairs.references[i] for i in each]) if each else 0.0
            for each in groups
        ],
    }


def mean(figures: Sequence[Figures], key: str) -> list[float]:
    """Average over seeds."""
    return [statistics.fmean(values) for values in zip(*(each[key] for each in figures), strict=True)]


def label_of(name: str) -> str:
    kind, cell = name.split("-")
    return f"{CELLS[cell]}, {KINDS[kind]}"


def score_tables(figures: Mapping[str, Sequence[Figures]], counted: Sequence[int], lengths: Lengths) -> list[Table]:
    columns, groups = ["system", *map(span, lengths.limits), "all"], len(lengths.limits) + 1
    bleu: list[list[Cell]] = [
        [label_of(name), *mean(each, "bleu"), mean(each, "seconds")[0]] for name, each in figures.items()
    ]
    exact: list[list[Cell]] = [[label_of(name), *mean(each, "exact")] for name, each in figures.items()]
    rows: list[list[Cell]] = [["sentences", *counted, sum(counted)], *exact]
    return [
        Table("BLEU, by source words", [*columns, "seconds of training"], bleu, ["", *[".1f"] * groups, ".0f"]),
        Table("Translated exactly, %, by source words", columns, rows, ["", *[",.0f"] * groups]),
    ]


def span(limits: tuple[int, int]) -> str:
    low, high = limits
    return f"{low}–{MAX_WORDS if limits == BINS[-1] else high}"


def length_plot(figures: Mapping[str, Sequence[Figures]], counted: Sequence[int], lengths: Lengths) -> Plot:
    figure, axes = plot.panels(2, titles=["With a fixed context", "With attention"], height=3.2)
    filled = [i for i, count in enumerate(counted) if count]
    top = max(value for each in figures.values() for value in mean(each, "bleu"))
    for panel, kind in zip(axes, KINDS, strict=True):
        for cell in CELLS:
            values = mean(figures[f"{kind}-{cell}"], "bleu")
            panel.plot(
                filled, [values[i] for i in filled], color=COLOURS[cell], marker="o", markersize=4, label=CELLS[cell]
            )
        panel.set_xticks(filled, [span(lengths.limits[i]) for i in filled], rotation=30 * (len(filled) > 5))
        panel.set_ylim(0, 1.06 * top)
        panel.set_xlabel("source words")
    axes[0].set_ylabel("BLEU")
    plot.legend(axes[0], loc="upper right")
    return Plot(
        "length",
        figure,
        "BLEU by the length of the sentence.",
        "Two panels of three lines: BLEU against the number of words, with a fixed context and with attention.",
    )


def tables(pairs: Pairs, quick: bool) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system; they differ only in cell and kind."""
    real = "source" in pairs.tables["data"]
    steps, size, tokens = (900, 128, 1024) if quick else (1800, 512, 16_384) if real else (5000, 256, 4096)
    rate = 3e-3 if quick else 1e-3 if real else 2e-3
    configs = {}
    for cell in CELLS:
        for kind in KINDS:
            configs[f"{kind}-{cell}"] = {
                **pairs.tables,
                "model": {"kind": kind, "cell": cell, "size": size, "embedding": size, "dropout": 0.1 * real}
                | ({"hidden": size, "maxout": size // 2} if kind == "rnnsearch" else {}),
                "training": training_settings(steps, batch_tokens=tokens, rate=rate, smoothing=0.05, validate_rows=50),
            }
    return configs


def corpus(setting: Setting) -> tuple[Pairs, Lengths]:
    """Return the corpus to train on and translate, and the groups of lengths."""
    if setting.corpora is None:
        counts = (30_000, 400) if setting.quick else (200_000, 2000)
        return phrasebook(*counts, longest=MAX_WORDS), Lengths(BINS, len(BINS))
    pairs = europarl(setting)
    sources, references = paragraphs(setting)
    tables = {**pairs.tables, "data": {**pairs.tables["data"], "longest": PIECES}}
    whole = Pairs(pairs.name, tables, pairs.sources + sources, pairs.references + references, pairs.lowercase)
    return whole, Lengths(EUROPARL, 5)


def run(setting: Setting) -> Page:
    """Train six systems, translate the test set, and judge the claims."""
    pairs, lengths = corpus(setting)
    real = setting.corpora is not None
    with signed_training(setting, pairs.name) as clock:
        systems = group_by_name(train_all("fixed-context", tables(pairs, setting.quick), setting))
        figures = {
            name: [
                {**bins(pairs, each.run.translate(pairs.sources, beam=1), lengths), "seconds": [each.seconds]}
                for each in some
            ]
            for name, some in systems.items()
        }
        signature = clock.signature()
    updates = next(iter(systems.values()))[0].step
    counted = [len(within(pairs.sources, *limits)) for limits in lengths.limits]
    return Page(
        name="fixed-context",
        title="Claim: a fixed context forgets long sentences",
        claim="Translation by a fixed context gets worse as sentences grow longer, and with attention it does not.",
        source="Cho et al. 2014, section 5 (arXiv:1409.1259); Bahdanau et al. 2015, figure 2 (arXiv:1409.0473)",
        measured=[
            f"{pairs.name}: {len(pairs.sources):,} unseen texts of up to "
            f"{lengths.limits[-1][1] if real else MAX_WORDS} words, translated greedily: BLEU by the number of their "
            "words, and how many are exactly right. Six "
            f"systems with the same number of batches ({updates:,}), the same widths and rates."
            + f" Trained on sentences of at most {PIECES} pieces, about sixty words; longer ones are whole paragraphs."
            * real,
        ],
        tables=score_tables(figures, counted, lengths),
        plots=[length_plot(figures, counted, lengths)],
        verdicts=verdicts(figures, lengths),
        caveats=[
            *(
                ["200,000 pairs and minutes of training: the papers had 12 million sentences and days."]
                if real
                else [
                    "The phrasebook's sentences are made by a grammar: they are regular, and easier than the papers'."
                ]
            ),
            "Equal updates are not equal time: a system with attention takes longer for each.",
            *untrained_systems(figures),
        ],
        signature=signature,
    )


def verdicts(figures: Mapping[str, Sequence[Figures]], lengths: Lengths) -> list[Verdict]:
    """Judge by BLEU, as the papers do: the share lost from the shortest to the longest sentences of training."""
    last = lengths.trained - 1
    scores = {name: [seed["bleu"] for seed in seeds] for name, seeds in figures.items()}
    ends = {name: over_seeds(each, lambda bleu: bleu[last]) for name, each in scores.items()}
    losses = {
        name: over_seeds(each, lambda bleu: 100 * (1 - bleu[last] / max(bleu[0], 1e-9)))
        for name, each in scores.items()
    }

    def evidence(values: Mapping[str, SeedStatistics], kind: str, unit: str = "") -> str:
        return ", ".join(f"{CELLS[cell]} {values[f'{kind}-{cell}'].as_text()}{unit}" for cell in CELLS)

    plain, attentive = ([f"{kind}-{cell}" for cell in CELLS] for kind in KINDS)
    best, worst = max(ends[name].mean for name in plain), min(ends[name].mean for name in attentive)
    judgements = [
        Verdict(
            "with a fixed context, long sentences are translated far worse than short ones",
            all(losses[name].mean > 50 for name in plain),
            f"of the shortest sentences' BLEU those of {span(lengths.limits[last])} words have lost: "
            f"{evidence(losses, 'rnn', ' %')}",
        ),
        Verdict(
            "with attention, less than half as much is lost",
            all(losses[f"rnnsearch-{cell}"].mean < losses[f"rnn-{cell}"].mean / 2 for cell in CELLS),
            f"lost: {evidence(losses, 'rnnsearch', ' %')}",
        ),
        Verdict(
            "long sentences are translated better with attention, whatever the cell",
            all(ends[f"rnnsearch-{cell}"].mean > ends[f"rnn-{cell}"].mean for cell in CELLS),
            f"BLEU with attention: {evidence(ends, 'rnnsearch')}; without: {evidence(ends, 'rnn')}",
        ),
        Verdict(
            "a better cell does not take the place of attention",
            best < worst,
            f"of long sentences the best fixed context has BLEU {show(best, '.1f')}, the plainest cell with attention "
            f"{show(worst, '.1f')}",
        ),
    ]
    if len(lengths.limits) > lengths.trained:
        longest = {name: over_seeds(each, lambda bleu: bleu[len(lengths.limits) - 1]) for name, each in scores.items()}
        judgements.append(
            Verdict(
                "paragraphs, longer than anything that was trained on, are translated better with attention, too",
                all(longest[f"rnnsearch-{cell}"].mean > longest[f"rnn-{cell}"].mean for cell in CELLS),
                f"BLEU of {span(lengths.limits[-1])} words with attention: {evidence(longest, 'rnnsearch')}; without: "
                f"{evidence(longest, 'rnn')}",
            )
        )
    return judgements


def untrained_systems(figures: Mapping[str, Sequence[Figures]]) -> list[str]:
    """List systems that cannot be judged, because even their translations of short sentences are bad."""
    few = {name: mean(each, "bleu")[0] for name, each in figures.items()}
    evidence = [f"{label_of(name)} (BLEU {score:.1f})" for name, score in few.items() if score < NOTHING]
    return [
        f"Has hardly learned to translate short sentences, so that it has little to lose: {', '.join(evidence)}."
    ] * (len(evidence) > 0)
