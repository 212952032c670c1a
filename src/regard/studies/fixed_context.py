"""Without attention a translation gets worse as its sentence grows; with it, hardly.

Cho et al. 2014 (arXiv:1409.1259), figure 4, and Bahdanau et al. 2015 (arXiv:1409.0473), figure 2: the encoder's last
state has to hold the whole sentence, and does not. Three cells (Elman's, GRU, LSTM), each with a fixed context and
with additive attention, are trained on the phrasebook with the same number of batches, and translate unseen sentences
of every length.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from regard.data.builtin import Example, generate
from regard.demo.lineage import BINS, LONGEST
from regard.evaluation.text import bleu
from regard.inspection import plot
from regard.inspection.table import Cell
from regard.studies.page import Page, Plot, Table, Verdict, show, signed
from regard.studies.setting import Setting
from regard.studies.trained import Trained, taught_all

__all__ = ["CELLS", "bins", "run", "tables"]

CELLS = {"rnn": "tanh RNN", "gru": "GRU", "lstm": "LSTM"}
KINDS = {"rnn": "fixed context", "rnnsearch": "attention"}
COLOURS = {"rnn": plot.ORANGE, "gru": plot.BLUE, "lstm": plot.GREEN}


def tables(quick: bool) -> dict[str, dict[str, Any]]:
    """A configuration a system: all the same but for cell and kind."""
    steps, pairs, size = (900, 30_000, 128) if quick else (5000, 200_000, 256)
    found = {}
    for cell in CELLS:
        for kind in KINDS:
            found[f"{kind}-{cell}"] = {
                "data": {
                    "builtin": "phrasebook",
                    "pair": "en-de",
                    "count": pairs,
                    "builtin_options": [f"longest={LONGEST}"],
                },
                "model": {"kind": kind, "cell": cell, "size": size, "embedding": size, "dropout": 0.0}
                | ({"hidden": size, "maxout": size // 2} if kind == "rnnsearch" else {}),
                "training": {
                    "steps": steps,
                    "batch_tokens": 1024 if quick else 4096,
                    "rate": 3e-3 if quick else 2e-3,
                    "schedule": "cosine",
                    "warmup": max(1, steps // 10),
                    "smoothing": 0.05,
                    "validate_every": steps,
                    "validate_rows": 50,
                    "metric": "exact",
                },
            }
    return found


def run(setting: Setting) -> Page:
    """Train six systems, translate, and judge."""
    tests = list(
        generate("phrasebook", 400 if setting.quick else 2000, split="test", pair="en-de", seed=0, longest=LONGEST)
    )
    with signed(seed=setting.seeds[0], quick=setting.quick, dtype="float32", setting=setting) as clock:
        systems = taught_all("fixed-context", tables(setting.quick), setting)
        found = {
            name: averaged([translated(each, tests) for each in systems if each.name == name])
            for name in names(systems)
        }
        signature = clock.signature()
    counts = [len(within(tests, *limits)) for limits in BINS]
    return Page(
        name="fixed-context",
        title="A fixed context forgets long sentences",
        claim="Translation by a fixed context gets worse as sentences grow longer, and with attention it does not.",
        source="Cho et al. 2014, section 5 (arXiv:1409.1259); Bahdanau et al. 2015, figure 2 (arXiv:1409.0473)",
        measured=[
            f"English to German, {len(tests):,} unseen sentences of the built-in phrasebook, {BINS[0][0]} to {LONGEST} "
            "words, translated greedily: BLEU by the number of their words, and how many are exactly right. Six "
            f"systems with the same number of batches ({systems[0].step:,}), the same widths and rates.",
        ],
        tables=[bleu_table(found), exact_table(found, counts)],
        plots=[drawn(found, counts)],
        verdicts=verdicts(found),
        caveats=[
            "The phrasebook's sentences are made by a grammar: they are regular, and much easier than the papers'.",
            "Equal updates are not equal time: a system with attention takes longer for each.",
        ],
        signature=signature,
    )


Figures = Mapping[str, list[float]]  # exact and bleu: one a bin, then all; seconds: one


def names(systems: Sequence[Trained]) -> list[str]:
    """Each system once, in order."""
    return list(dict.fromkeys(each.name for each in systems))


def bins(tests: Sequence[Example], outputs: Sequence[str]) -> Figures:
    """The share that is exact, and BLEU, of each length and of all."""
    chosen = [within(tests, *limits) for limits in BINS] + [list(range(len(tests)))]
    exact = [100 * share([outputs[i] == tests[i].target for i in each]) for each in chosen]
    scores = [bleu([outputs[i] for i in each], [tests[i].target for i in each]) if each else 0.0 for each in chosen]
    return {"exact": exact, "bleu": scores}


def translated(system: Trained, tests: Sequence[Example]) -> Figures:
    """What a system makes of the tests, greedily, and how long its training took."""
    outputs = system.run.translate([example.source for example in tests], beam=1)
    return {**bins(tests, outputs), "seconds": [system.seconds]}


def averaged(found: Sequence[Figures]) -> Figures:
    """The mean over seeds."""
    return {
        key: [statistics.fmean(values) for values in zip(*(each[key] for each in found), strict=True)]
        for key in found[0]
    }


def within(tests: Sequence[Example], low: int, high: int) -> list[int]:
    """The numbers of the sentences of a length."""
    return [i for i, example in enumerate(tests) if low <= len(example.source.split()) <= high]


def share(right: Sequence[bool]) -> float:
    return sum(right) / len(right) if right else 0.0


def verdicts(found: Mapping[str, Figures]) -> list[Verdict]:
    """By BLEU, as the papers: what share of it is lost from the shortest sentences to the longest."""
    ends = {name: figures["bleu"][len(BINS) - 1] for name, figures in found.items()}
    lost = {name: 100 * (1 - ends[name] / max(figures["bleu"][0], 1e-9)) for name, figures in found.items()}

    def told(values: Mapping[str, float], kind: str, unit: str = "") -> str:
        return ", ".join(f"{CELLS[cell]} {show(values[f'{kind}-{cell}'], '.0f')}{unit}" for cell in CELLS)

    return [
        Verdict(
            "with a fixed context, long sentences are translated far worse than short ones",
            all(lost[f"rnn-{cell}"] > 50 for cell in CELLS),
            f"of the shortest sentences' BLEU the longest have lost: {told(lost, 'rnn', ' %')}",
        ),
        Verdict(
            "with attention, less than half as much is lost",
            all(lost[f"rnnsearch-{cell}"] < lost[f"rnn-{cell}"] / 2 for cell in CELLS),
            f"lost: {told(lost, 'rnnsearch', ' %')}",
        ),
        Verdict(
            "the longest sentences are translated better with attention, whatever the cell",
            all(ends[f"rnnsearch-{cell}"] > ends[f"rnn-{cell}"] + 10 for cell in CELLS),
            f"BLEU with attention: {told(ends, 'rnnsearch')}; without: {told(ends, 'rnn')}",
        ),
        Verdict(
            "a better cell does not take the place of attention",
            max(ends[f"rnn-{cell}"] for cell in CELLS) < min(ends[f"rnnsearch-{cell}"] for cell in CELLS),
            f"of the longest sentences the best fixed context has BLEU "
            f"{show(max(ends[f'rnn-{cell}'] for cell in CELLS), '.0f')}, the plainest cell with attention "
            f"{show(min(ends[f'rnnsearch-{cell}'] for cell in CELLS), '.0f')}",
        ),
    ]


def labelled(name: str) -> str:
    kind, cell = name.split("-")
    return f"{CELLS[cell]}, {KINDS[kind]}"


def rows_of(found: Mapping[str, Figures], key: str) -> list[list[Cell]]:
    return [[labelled(name), *each[key]] for name, each in found.items()]


def exact_table(found: Mapping[str, Figures], counts: Sequence[int]) -> Table:
    return Table(
        caption="Translated exactly, %, by source words",
        columns=["system", *map(span, BINS), "all"],
        rows=[["sentences", *counts, sum(counts)], *rows_of(found, "exact")],
        formats=["", *[".0f"] * (len(BINS) + 1)],
    )


def bleu_table(found: Mapping[str, Figures]) -> Table:
    return Table(
        caption="BLEU, by source words",
        columns=["system", *map(span, BINS), "all", "seconds of training"],
        rows=[[*row, found[name]["seconds"][0]] for name, row in zip(found, rows_of(found, "bleu"), strict=True)],
        formats=["", *[".1f"] * (len(BINS) + 1), ".0f"],
    )


def span(limits: tuple[int, int]) -> str:
    low, high = limits
    return f"{low}–{high}" if high < 99 else f"{low}–{LONGEST}"


def drawn(found: Mapping[str, Figures], counts: Sequence[int]) -> Plot:
    figure, axes = plot.panels(2, titles=["With a fixed context", "With attention"], height=3.2)
    known = [i for i, count in enumerate(counts) if count]
    for panel, kind in zip(axes, KINDS, strict=True):
        for cell in CELLS:
            values = [found[f"{kind}-{cell}"]["bleu"][i] for i in known]
            panel.plot(known, values, color=COLOURS[cell], marker="o", markersize=4, label=CELLS[cell])
        panel.set_xticks(known, [span(BINS[i]) for i in known])
        panel.set_ylim(0, 103)
        panel.set_xlabel("source words")
    axes[0].set_ylabel("BLEU")
    plot.legend(axes[0], loc="upper right")
    return Plot(
        "length",
        figure,
        "BLEU by the length of the sentence.",
        "Two panels of three lines: with a fixed context they fall with the number of words, with attention less.",
    )
