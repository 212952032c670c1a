"""The gain of each position encoding: in translation, and on sequences longer than those of training.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.5 and table 3, row E: learned positions give nearly the same results
as sinusoidal ones, which were chosen because they "may allow the model to extrapolate to sequence lengths longer than
the ones encountered during training". Press et al. 2022 (arXiv:2108.12409): they do not, but linear biases do.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data import Example, generate
from regard.inspection import Cell, plot
from regard_studies import Setting
from regard_studies.corpora import Pairs, english_german
from regard_studies.page import Part, Plot, Table, Verdict, show, signed_training
from regard_studies.seed_statistics import FLOOR, SeedStatistics, margin
from regard_studies.systems import (
    COLUMNS,
    FORMATS,
    TrainedSystem,
    TranslationFigures,
    group_by_name,
    log_probs,
    measure_translations,
    train_all,
    translator_training,
)

LABELS = {
    "none": "none",
    "sinusoidal": "sinusoidal, added",
    "sinusoidal-joined": "sinusoidal, concatenated",
    "learned": "learned, added",
    "learned-joined": "learned, concatenated",
    "rotary": "rotary",
    "alibi": "ALiBi",
}
STYLES: dict[str, tuple[str, str]] = {
    "none": (plot.GREY, "o"),
    "sinusoidal": (plot.BLUE, "s"),
    "sinusoidal-joined": (plot.SKY, "s"),
    "learned": (plot.ORANGE, "^"),
    "learned-joined": (plot.RED, "^"),
    "rotary": (plot.PINK, "v"),
    "alibi": (plot.GREEN, "D"),
}
ENCODINGS: dict[str, dict[str, Any]] = {
    "none": {"positions": "none"},
    "sinusoidal": {"positions": "sinusoidal"},
    "sinusoidal-joined": {"positions": "sinusoidal", "join": "concatenate"},
    "learned": {"positions": "learned"},
    "learned-joined": {"positions": "learned", "join": "concatenate"},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
}
FURTHER = ("sinusoidal", "learned", "rotary", "alibi")  # encodings tested on longer sequences in a quick run
TIMES = (1.0, 1.5, 2.0)  # tested lengths, as multiples of the longest training sequence
MUCH = 2.0  # BLEU; larger losses are called much worse
HALF = 50.0  # percent of the symbols: those at trained positions, at twice the length


@dataclass(frozen=True)
class LengthFigures:
    """The figures of a system on sequences of one length, with a value per seed."""

    prefix: SeedStatistics  # percent of the symbols that come before the first mistake
    exact: SeedStatistics  # percent of the sequences
    perplexity: SeedStatistics  # per symbol of the true output


def measure_length(systems: Sequence[TrainedSystem], tests: Sequence[Example]) -> LengthFigures:
    """Measure systems that differ in their seed on sequences of one length."""
    sources, targets = [each.source for each in tests], [each.target for each in tests]
    figures = []
    for each in systems:
        pairs = list(zip(each.run.translate(sources, beam=1), targets, strict=True))
        totals, tokens = log_probs(each.run, sources, targets)
        right = statistics.fmean(correct_prefix(output.split(), target.split()) for output, target in pairs)
        exact = statistics.fmean(output == target for output, target in pairs)
        figures.append((100 * right, 100 * exact, math.exp(-sum(totals) / sum(tokens))))
    return LengthFigures(*(SeedStatistics(values) for values in zip(*figures, strict=True)))


def correct_prefix(output: Sequence[str], target: Sequence[str]) -> float:
    """Return the share of the target that precedes the output's first mistake."""
    wrong = (i for i, word in enumerate(target) if i >= len(output) or output[i] != word)
    return next(wrong, len(target)) / len(target)


def positions_table(figures: Mapping[str, TranslationFigures]) -> Table:
    """Tabulate the translators' figures."""
    return Table(
        caption="Trained: translation by how positions are told",
        columns=["positions", *COLUMNS],
        rows=[[LABELS[name], *each.cells] for name, each in figures.items()],
        formats=["", *FORMATS],
    )


def further_table(copied: Mapping[str, Mapping[float, LengthFigures]], most: int) -> Table:
    """Tabulate the copying systems' figures by length."""
    times = list(next(iter(copied.values())))
    sizes = [round(most * each) for each in times]
    rows: list[list[Cell]] = [
        [
            LABELS[name],
            *(each[time].prefix.as_text(".0f") for time in times),
            *(each[time].exact.as_text(".0f") for time in times),
            *(each[time].perplexity.as_text(".3g") for time in times),
        ]
        for name, each in copied.items()
    ]
    return Table(
        caption=f"Trained: copying, after sequences of at most {most} symbols",
        columns=[
            "positions",
            *(f"{size}: right, %" for size in sizes),
            *(f"{size}: exact, %" for size in sizes),
            *(f"{size}: perplexity" for size in sizes),
        ],
        rows=rows,
        note="Right: symbols before the first mistake.",
    )


def further_plot(
    figures: Mapping[str, TranslationFigures], copied: Mapping[str, Mapping[float, LengthFigures]], most: int
) -> Plot:
    """Draw the BLEU of each system, and the share that each copies correctly by length."""
    titles = ["Translation", f"Copying, trained up to {most}"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.3)
    for row, (name, each) in enumerate(figures.items()):
        colour, mark = STYLES[name]
        left.plot(each.bleu.values, [row] * len(each.bleu.values), mark, color=colour, ms=5)
    left.set_yticks(range(len(figures)), labels=[LABELS[name] for name in figures])
    left.invert_yaxis()
    left.set_xlabel("BLEU")
    for name, by_length in copied.items():
        colour, mark = STYLES[name]
        sizes = [round(most * time) for time in by_length]
        means = [each.prefix.mean for each in by_length.values()]
        right.plot(sizes, means, f"{mark}-", color=colour, ms=5, lw=1.4)
        right.set_xticks(sizes)
    right.set(xlabel="symbols", ylabel="% right before the first mistake", ylim=(0, 103))
    return Plot(
        "trained",
        figure,
        "Left: BLEU by how positions are told, a point a seed. Right: how much of a sequence is copied before the "
        "first mistake, by its length, in the same colours and marks.",
        "Left, a dot plot of BLEU for each kind of positions; right, lines that fall with the length of the sequence, "
        "from the longest that was trained on to twice as long.",
    )


def longest(setting: Setting) -> int:
    """Return the length of the longest training sequence."""
    return 8 if setting.quick else 20


def symbols(setting: Setting) -> int:
    """Return the number of different symbols, large enough that few occur twice in a sequence."""
    return 50 if setting.quick else 200


def tables(setting: Setting, corpus: Pairs) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system and task (translate, copy); systems of a task differ only in positions."""
    real, quick = setting.corpora is not None, setting.quick
    steps = 1000 if real else 300 if quick else 2500
    model: dict[str, Any] = {"kind": "transformer", "preset": "tiny", "dropout": 0.0, "tied": "all"}
    if quick:
        model |= {"size": 64, "hidden": 256}
    whole = model if quick else model | {"preset": "small", "dropout": 0.3 if real else 0.1}
    training = translator_training(setting, steps, warmup=steps // 5)
    configs: dict[str, dict[str, Any]] = {}
    for name, options in ENCODINGS.items():
        configs[name] = {**corpus.tables, "model": whole | options, "training": training}
    copying = {
        "builtin": "copy",
        "count": 30_000 if quick else 100_000,
        "builtin_options": ["shortest=3", f"longest={longest(setting)}", f"symbols={symbols(setting)}"],
    }
    steps = 500 if quick else 1500
    learning = translator_training(
        setting,
        steps,
        warmup=steps // 5,
        metric="exact",
        smoothing=0.0,
        rate=2e-3,
        batch_tokens=1024 if quick else 8192,
    )
    for name in FURTHER if quick else ENCODINGS:
        configs[f"copy-{name}"] = {"data": copying, "model": model | ENCODINGS[name], "training": learning}
    return configs


def run(setting: Setting) -> Part:
    """Train the systems, translate, copy longer sequences, and judge the claims."""
    corpus = english_german(setting, 200)
    tests = {times: sequences(setting, times) for times in TIMES}
    with signed_training(setting, corpus.name) as clock:
        systems = group_by_name(train_all("positions", tables(setting, corpus), setting))
        figures, copied = {}, {}
        for name, each in systems.items():
            if name.startswith("copy-"):
                copied[name.removeprefix("copy-")] = {
                    times: measure_length(each, examples) for times, examples in tests.items()
                }
            else:
                figures[name] = measure_translations(each, corpus)
                setting.say(f"{name}: BLEU {figures[name].bleu.as_text()}")
        signature = clock.signature()
    most, count = longest(setting), len(tests[1.0])
    return Part(
        measured=[
            f"{corpus.name}: Transformers that differ in how positions are told, trained with the same data, rates and "
            f"number of updates ({next(iter(systems.values()))[0].step:,}); BLEU with a beam of 5, perplexity per "
            "token.",
            f"Then Transformers of two layers that copy sequences of {symbols(setting)} symbols, trained on 3 to "
            f"{most} of them and tested on {count} sequences each of {', '.join(str(round(most * t)) for t in TIMES)}: "
            "the share of symbols that are right before the first mistake, written greedily; the share of sequences "
            "that are right as a whole; and the perplexity a symbol of the true output.",
        ],
        tables=[positions_table(figures), further_table(copied, most)],
        plots=[further_plot(figures, copied, most)],
        verdicts=[*verdicts(figures), *further_verdicts(copied)],
        caveats=[
            "The decoder's causal mask tells it where it is in part, even without positions: what comes first has "
            "fewer to look at.",
            "ALiBi and rotary positions are in self-attention only; from decoder to encoder there are none, and words "
            "are found by what they have become.",
            "ALiBi was made for language models, which see one side only. Its biases are the same to both sides: an "
            "encoder that has nothing else cannot tell a sentence from its mirror image, and a copier does not know at "
            "which end to begin. Once it has begun it goes on well, as its perplexity shows.",
            "Learned vectors start fifty times smaller than the embeddings that they are added to, and after so few "
            "updates may not have caught up; concatenated, a matrix can make them larger at once.",
            "Concatenated positions are projected back to the width of the model by a matrix of their own.",
        ],
        signature=signature,
    )


def sequences(setting: Setting, times: float) -> list[Example]:
    """Generate test sequences of one length."""
    size = round(longest(setting) * times)
    options: dict[str, Any] = {"shortest": size, "longest": size, "symbols": symbols(setting)}
    return list(generate("copy", 100 if setting.quick else 200, split="test", seed=0, **options))


def verdicts(figures: Mapping[str, TranslationFigures]) -> list[Verdict]:
    """Judge by BLEU; only differences beyond chance count."""
    least = margin([each.bleu for each in figures.values()])
    bleu = {name: each.bleu for name, each in figures.items()}
    told_least = f"beyond chance from {show(least, '.2f')}"

    def evidence(*names: str) -> str:
        return f"BLEU: {'; '.join(f'{LABELS[name]} {bleu[name].as_text()}' for name in names)}; {told_least}"

    def difference(name: str, other: str) -> float:
        return abs(bleu[name].mean - bleu[other].mean)

    worst = min((name for name in bleu if name != "none"), key=lambda name: bleu[name].mean)
    joins = [(name, f"{name}-joined") for name in ("sinusoidal", "learned")]
    return [
        Verdict(
            "without positions translation is much worse",
            bleu["none"].mean < bleu[worst].mean - max(least, MUCH),
            evidence("none", worst),
        ),
        Verdict(
            "learned and sinusoidal positions do nearly the same",
            difference("learned", "sinusoidal") <= max(least, FLOOR),
            evidence("learned", "sinusoidal"),
        ),
        Verdict(
            "added and concatenated positions do nearly the same",
            all(difference(*each) <= max(least, FLOOR) for each in joins),
            evidence(*(name for each in joins for name in each)),
        ),
    ]


def further_verdicts(copied: Mapping[str, Mapping[float, LengthFigures]]) -> list[Verdict]:
    """Judge the copies of sequences that are longer than those of training."""
    least = max(5.0, margin([each[TIMES[-1]].prefix for each in copied.values()], floor=5.0))

    def evidence(names: Sequence[str], times: float = TIMES[-1]) -> str:
        return "; ".join(f"{LABELS[name]} {copied[name][times].prefix.as_text('.0f')} %" for name in names)

    def far(name: str) -> float:
        return copied[name][TIMES[-1]].prefix.mean

    with_order = [name for name in copied if name != "none"]
    absolute = [name for name in with_order if name not in ("rotary", "alibi")]
    return [
        Verdict(
            "all that tell positions copy sequences of the lengths that they were trained on",
            all(copied[name][1.0].prefix.mean > 95 for name in with_order),
            f"right before the first mistake at the longest length of training: {evidence(with_order, 1.0)}",
        ),
        Verdict(
            "learned positions do not go beyond the lengths of training",
            far("learned") < HALF + least,
            f"at twice the length, where half are symbols of trained places: {evidence(['learned'])}",
        ),
        Verdict(
            "sinusoidal positions do not go beyond them either",
            far("sinusoidal") < HALF + least,
            f"at twice the length: {evidence(['sinusoidal'])}",
        ),
        Verdict(
            "ALiBi goes further beyond them than sinusoidal and learned positions",
            far("alibi") > max(map(far, absolute)) + least,
            f"at twice the length: {evidence(['alibi', *absolute])}; by more than {show(least, '.0f')} points",
        ),
        Verdict(
            "beyond them, ALiBi's perplexity is the lowest",
            min(copied, key=lambda name: copied[name][TIMES[-1]].perplexity.mean) == "alibi",
            "a symbol at twice the length: "
            + "; ".join(f"{LABELS[name]} {each[TIMES[-1]].perplexity.as_text('.3g')}" for name, each in copied.items()),
        ),
    ]
