"""Attention as a word alignment: by mechanism, by layer and head, and in the course of training.

Bahdanau et al. 2015 (arXiv:1409.0473), section 5.2.1, and Luong et al. 2015 (arXiv:1508.04025), section 5.4: a
recurrent decoder attends to the words that it translates. Garg et al. 2019 (arXiv:1909.02074): in a Transformer, the
mean over heads of the last but one layer aligns best. Links follow the largest weights while the model is forced to
produce the reference. The alignment error rate (AER) compares them with links by people or by the phrasebook's grammar.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.alignment import selection
from regard.evaluation import measure_links
from regard.inspection import Cell, plot
from regard.run import load
from regard.training import metrics
from regard_studies import Setting
from regard_studies.corpora import AlignedPairs, Pairs, aligned_texts
from regard_studies.page import Page, Plot, Table, Verdict, show, signed_training
from regard_studies.seed_statistics import SeedStatistics, is_lower, over_seeds
from regard_studies.systems import (
    TrainedSystem,
    error_rates,
    group_by_name,
    perplexity,
    score_heads,
    train_all,
    training_settings,
)

Curve = Sequence[tuple[int, float, float]]  # step, BLEU, AER in percent
COLOURS = {
    "rnnsearch": plot.ORANGE,
    "luong-global": plot.BLUE,
    "luong-local": plot.GREEN,
    "transformer": plot.PINK,
}
WORDS = {0: "the word written", 1: "the word read"}
CHECKPOINTS = 6
LABELS = {
    "rnnsearch": "Bahdanau's, additive",
    "luong-global": "Luong's, global (general)",
    "luong-local": "Luong's, local-p (general)",
    "transformer": "Transformer",
}
LUONGS = 39.0  # the highest AER of Luong's table 6
ERRORS = 1.0  # smaller differences of AER, in percentage points, are ignored


@dataclass(frozen=True)
class SystemFigures:
    """Figures of a system, with rates in percent; `selected_aer` is of the reading that is best on other pairs."""

    bleu: SeedStatistics
    perplexity: SeedStatistics
    written_aer: SeedStatistics
    read_aer: SeedStatistics
    selected_aer: SeedStatistics
    seconds: SeedStatistics
    readings: Sequence[selection.Reading]
    curve: Curve

    @property
    def plain(self) -> SeedStatistics:
        """Return the AER for the word written or for the word read, whichever is lower."""
        return min(self.written_aer, self.read_aer, key=lambda each: each.mean)


def measure_systems(systems: Sequence[TrainedSystem], corpus: Pairs, aligned: AlignedPairs) -> SystemFigures:
    """Measure all seeds of a system."""
    rates: list[tuple[float, float, float]] = []
    readings: list[list[selection.Reading]] = []
    grown: list[Curve] = []
    for each in systems:
        by_head = score_heads(each.run, aligned)
        halves = (score_heads(each.run, aligned, slice(first, None, 2)) for first in (0, 1))
        rates.append((*error_rates(each.run, by_head), 100 * held_out_error(*halves)))
        readings.append(by_head)
        grown.append(curve(each, aligned))
    written_aer, read_aer, selected_aer = (SeedStatistics(values) for values in zip(*rates, strict=True))
    return SystemFigures(
        bleu=over_seeds(systems, lambda each: corpus.bleu(each.run.translate(corpus.sources, beam=1))),
        perplexity=over_seeds(systems, lambda each: perplexity(each.run, corpus)),
        written_aer=written_aer,
        read_aer=read_aer,
        selected_aer=selected_aer,
        seconds=over_seeds(systems, lambda each: each.seconds),
        readings=readings[0],
        curve=average_curves(grown),
    )


def held_out_error(one: Sequence[selection.Reading], other: Sequence[selection.Reading]) -> float:
    """Compute the AER on each half of the reading that is best on the other half, and average the two."""
    rates = []
    for chooses, judges in ((one, other), (other, one)):
        best = min(chooses, key=lambda each: each.aer)
        same = (best.view, best.head, best.offset)
        rates.append(next(each.aer for each in judges if (each.view, each.head, each.offset) == same))
    return sum(rates) / len(rates)


def curve(system: TrainedSystem, aligned: AlignedPairs) -> Curve:
    """Return a system's BLEU (from validation) and AER (the lower one of both words) at each checkpoint."""
    run, points = system.run, []
    for record in metrics.read_records(run.folder / "metrics.jsonl"):
        step = int(record["step"])
        name = f"step-{step:06d}"
        if record["kind"] == "valid" and (run.folder / "checkpoints" / name).is_dir():
            then = load(run.folder, checkpoint=name, device=run.device.type)
            points.append((step, float(record["bleu"]), min(error_rates(then, score_heads(then, aligned)))))
    return points


def average_curves(grown: Sequence[Curve]) -> Curve:
    """Average over seeds, step by step."""
    count = len(grown)
    return [
        (points[0][0], sum(each[1] for each in points) / count, sum(each[2] for each in points) / count)
        for points in zip(*grown, strict=True)
    ]


def diagonal_error(aligned: AlignedPairs) -> float:
    """Compute the AER, in percent, of links along the diagonal, which need no attention."""
    links = []
    for source, target in zip(aligned.sources, aligned.targets, strict=True):
        m, n = len(source.split()), len(target.split())
        links.append([(min(m - 1, (2 * i + 1) * m // (2 * n)), i) for i in range(n)])
    return 100 * measure_links(links, aligned.gold)["aer"].score().value


def best_single_links(aligned: AlignedPairs) -> tuple[int, int, float]:
    """Count target words and linked ones, and compute the lowest AER, in percent, with one link per target word."""
    links, words, linked = [], 0, 0
    for target, gold in zip(aligned.targets, aligned.gold, strict=True):
        best = {i: (j, i) for j, i in [*sorted(gold.possible), *sorted(gold.sure)]}  # sure links override possible ones
        count = len(target.split())
        words, linked = words + count, linked + sum(i in best for i in range(count))
        links.append([best.get(i, (-1, i)) for i in range(count)])
    return words, linked, 100 * measure_links(links, aligned.gold)["aer"].score().value


def mechanism_table(figures: Mapping[str, SystemFigures], diagonal: float) -> Table:
    """Tabulate the systems, one per row."""
    several = any(len(each.bleu.values) > 1 for each in figures.values())
    rows: list[list[Cell]] = [
        [
            LABELS[name],
            *(value.as_cell() for value in (each.written_aer, each.read_aer, each.selected_aer, each.bleu)),
            each.perplexity.as_cell(".2f"),
            each.seconds.as_cell(".0f"),
        ]
        for name, each in figures.items()
    ]
    rows.append(["along the diagonal", f"{diagonal:.1f}" if several else diagonal, *[None] * 5])
    return Table(
        caption="AER by mechanism, %, and what the systems are worth as translators",
        columns=["attention", "written", "read", "best of all, held out", "BLEU", "perplexity", "seconds of training"],
        rows=rows,
        formats=["", ".1f", ".1f", ".1f", ".1f", ".2f", ".0f"],
        note="Best of all: the head, or the mean of a layer's heads, and the word, that are best on the other half of "
        "the pairs.",
    )


def layers_of(readings: Sequence[selection.Reading], offset: int) -> list[list[float]]:
    """List the AER in percent, with a row per layer: its heads, then their mean."""
    views = list(dict.fromkeys(each.view for each in readings))
    return [[100 * each.aer for each in readings if each.view == view and each.offset == offset] for view in views]


def by_layer(readings: Sequence[selection.Reading], offset: int) -> Table:
    """Tabulate the AER by layer (rows) and head (columns)."""
    rates = layers_of(readings, offset)
    heads = len(rates[0]) - 1
    return Table(
        caption=f"The Transformer's heads, AER of {WORDS[offset]}, %",
        columns=["layer", *(f"head {head + 1}" for head in range(heads)), "mean of the heads"],
        rows=[[str(layer), *row] for layer, row in enumerate(rates, 1)],
        formats=["", *[".1f"] * (heads + 1)],
        note="The mean is of the weights, and not of the rates.",
    )


def step_table(figures: Mapping[str, SystemFigures]) -> Table:
    """Tabulate the checkpoints, one per row."""
    steps = [point[0] for point in next(iter(figures.values())).curve]
    rows: list[list[Cell]] = []
    for number, step in enumerate(steps):
        rows.append([f"{step:,}", *(value for each in figures.values() for value in each.curve[number][1:])])
    return Table(
        caption="As training goes on: BLEU, and AER of the word written or read, whichever is lower, %",
        columns=["step", *(f"{LABELS[name]}: {what}" for name in figures for what in ("BLEU", "AER"))],
        rows=rows,
        formats=["", *[".1f"] * (2 * len(figures))],
    )


def heat_map(readings: Sequence[selection.Reading]) -> Plot:
    """Draw heat maps of layers by heads, for the word written and the word read."""
    rates = {offset: layers_of(readings, offset) for offset in WORDS}
    high = max(value for each in rates.values() for row in each for value in row)
    low = min(value for each in rates.values() for row in each for value in row)
    figure, axes = plot.panels(2, titles=[f"AER of {word}, %" for word in WORDS.values()], height=2.6)
    for panel, grid in zip(axes, rates.values(), strict=True):
        panel.imshow(grid, cmap=plot.SEQUENTIAL.reversed(), vmin=low, vmax=high + 0.15 * (high - low), aspect="auto")
        panel.grid(False)
        for spine in panel.spines.values():
            spine.set_visible(False)
        for y, row in enumerate(grid):
            for x, value in enumerate(row):
                ink = "#ffffff" if value < low + 0.45 * (high - low) else plot.INK
                panel.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8, color=ink)
        panel.axvline(len(grid[0]) - 1.5, color=plot.FAINT, linewidth=0.8)
        panel.set_xticks(range(len(grid[0])), [*map(str, range(1, len(grid[0]))), "mean"])
        panel.set_yticks(range(len(grid)), [str(layer) for layer in range(1, len(grid) + 1)])
        panel.set_xlabel("head")
    axes[0].set_ylabel("layer")
    scale = plot.Scale(plot.SEQUENTIAL.reversed(), low, high + 0.15 * (high - low), "AER, %")
    plot.draw_bar(figure, scale, axes, (6.5, 1.8))
    return Plot(
        "heads",
        figure,
        "The darker, the better a head aligns.",
        "Two grids of layers by heads, with the alignment error rate of each head and of each layer's mean.",
    )


def curves(figures: Mapping[str, SystemFigures], diagonal: float) -> Plot:
    """Draw BLEU and AER by training step."""
    figure, axes = plot.panels(2, titles=["BLEU", "AER, %"], height=3.2)
    for name, each in figures.items():
        steps = [point[0] for point in each.curve]
        for panel, place in zip(axes, (1, 2), strict=True):
            values = [point[place] for point in each.curve]
            panel.plot(steps, values, "o-", color=COLOURS[name], markersize=4, label=LABELS[name])
    axes[1].axhline(diagonal, color=plot.GREY, linewidth=0.8, linestyle=":")
    for panel in axes:
        panel.set_xlabel("updates")
        panel.set_ylim(bottom=0)
    plot.legend(axes[0], loc="best")
    return Plot(
        "training",
        figure,
        "BLEU of validation sentences and AER as training goes on; the dotted line is the diagonal.",
        "Two panels against training steps: BLEU rises and alignment error falls in every system.",
    )


def models(size: int, *, real: bool, quick: bool) -> dict[str, dict[str, Any]]:
    """Return the model configurations: all of the same width, otherwise as in their papers."""
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
    """Build a configuration for each system; they differ only in the model."""
    real, quick = setting.corpora is not None, setting.quick
    steps, size = (1200, 512) if real else (480, 96) if quick else (3000, 256)
    training = {
        "batch_tokens": 16_384 if real else 1024 if quick else 4096,
        "warmup": max(1, steps // 6),
        "smoothing": 0.1,
        "validate_every": max(1, steps // CHECKPOINTS),
        "validate_rows": 200 if real else 100,
        "keep": CHECKPOINTS + 1,
    }
    data = {**corpus.tables["data"], "longest": 60 if real else 40}
    # Recurrent systems learn faster with a learning rate that is too high for a Transformer.
    low, high = (2e-3, 5e-3) if quick else (1e-3, 3e-3)
    return {
        name: {
            **corpus.tables,
            "data": data,
            "model": model,
            "training": training_settings(steps, rate=low if name == "transformer" else high, **training),
        }
        for name, model in models(size, real=real, quick=quick).items()
    }


def run(setting: Setting) -> Page:
    """Train all systems, score every head of every checkpoint, and judge the claims."""
    corpus, aligned = aligned_texts(setting)
    with signed_training(setting, corpus.name) as clock:
        configs = tables(setting, corpus)
        figures = {
            name: measure_systems(systems, corpus, aligned)
            for name, systems in group_by_name(train_all("alignment", configs, setting)).items()
        }
        signature = clock.signature()
    even = diagonal_error(aligned)
    training = configs["transformer"]["training"]
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
        verdicts=verdicts(figures, even),
        caveats=caveats(aligned, setting),
        signature=signature,
    )


def caveats(aligned: AlignedPairs, setting: Setting) -> list[str]:
    """List the caveats of the page."""
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


def layer_means(readings: Sequence[selection.Reading], offset: int) -> list[float]:
    """Return the AER, in percent, of the mean over each layer's heads, from the first layer."""
    return [100 * each.aer for each in readings if each.head is None and each.offset == offset]


def verdicts(systems: Mapping[str, SystemFigures], diagonal: float) -> list[Verdict]:
    """Judge the papers' claims; `diagonal` is the AER of the diagonal."""
    recurrent = [name for name in systems if name != "transformer"]
    transformer = systems["transformer"]
    heads = [100 * each.aer for each in transformer.readings if each.head is not None and each.offset == 0]
    means = [
        min(rates) for rates in zip(*(layer_means(transformer.readings, offset) for offset in (0, 1)), strict=True)
    ]
    luongs = [name for name in recurrent if name.startswith("luong")]
    ends = [(each.curve[0], each.curve[-1]) for each in systems.values()]  # first and last (step, BLEU, AER)
    improved = [last[1] > first[1] and first[2] - last[2] > ERRORS for first, last in ends]
    return [
        Verdict(
            "recurrent attention aligns words, with an AER of 39 % or less, as Luong's systems have",
            all(systems[name].plain.mean <= LUONGS for name in recurrent),
            f"AER: {', '.join(f'{LABELS[name]} {systems[name].plain.as_text()}' for name in recurrent)}; along the "
            f"diagonal {show(diagonal, '.1f')}",
        ),
        Verdict(
            "Bahdanau's weights are of the word that a step writes, Luong's of the word that it reads",
            is_lower(systems["rnnsearch"].written_aer, systems["rnnsearch"].read_aer, ERRORS)
            and all(is_lower(systems[name].read_aer, systems[name].written_aer, ERRORS) for name in luongs),
            "AER, written and read: "
            + ", ".join(
                f"{LABELS[name]} {systems[name].written_aer.as_text()} and {systems[name].read_aer.as_text()}"
                for name in recurrent
            ),
        ),
        Verdict(
            "a Transformer's heads differ: the best has at most half of the errors of the worst",
            min(heads) <= max(heads) / 2,
            f"AER of {len(heads)} heads, the word written: {show(min(heads), '.1f')} to {show(max(heads), '.1f')}",
        ),
        Verdict(
            "of its layers, on average of their heads, the last but one aligns best",
            len(means) > 1 and means[-2] == min(means),
            f"AER by layer, the word written or read: {', '.join(show(each, '.1f') for each in means)}",
        ),
        Verdict(
            "the head or the mean that is best on other sentences aligns better than the layer that is read",
            is_lower(transformer.selected_aer, transformer.plain, ERRORS),
            f"AER {transformer.selected_aer.as_text()} against {transformer.plain.as_text()}; the best head of all, by "
            f"the same sentences: {show(min(heads), '.1f')}",
        ),
        Verdict(
            "alignments get better with training while translations do",
            all(improved),
            "; ".join(
                f"{LABELS[name]}: BLEU {show(each.curve[0][1], '.1f')} → {show(each.curve[-1][1], '.1f')}, AER "
                f"{show(each.curve[0][2], '.1f')} → {show(each.curve[-1][2], '.1f')}"
                for name, each in systems.items()
            ),
        ),
    ]
