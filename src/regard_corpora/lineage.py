"""`regard demo --lineage`: a fixed context, attention, and attention only, compared on the same sentences.

Cho et al. 2014 (arXiv:1409.1259) and Bahdanau et al. 2015 (figure 2) saw translations of a fixed context get worse as
sentences grow, and Bahdanau's not: here on the phrasebook, as the share of sentences that are translated exactly.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.data import Example, generate
from regard.inspection import save
from regard.run import load
from regard_corpora import demo as phrasebook

MODELS = {
    "rnn": "a fixed context (Cho 2014)",
    "rnnsearch": "attention (Bahdanau 2015)",
    "transformer": "attention alone (Vaswani 2017)",
}
BINS = ((1, 5), (6, 8), (9, 11), (12, 14), (15, 99))  # source words
TESTS = 1500
STEPS = {"rnn": 1600, "rnnsearch": 1200, "transformer": 1100}  # about the same time each
LONGEST = 18
PAIRS = 40_000
COLOURS = ("#a63c00", "#0b5fa5", "#0b6b4f")
MARKS = ("s", "o", "^")


@dataclass(frozen=True)
class Lineage:
    """Three models, and how many sentences of each length they translate exactly."""

    counts: list[int]
    right: dict[str, list[int]]
    seconds: dict[str, float]
    picture: Path

    def table(self) -> str:
        """A row per model, a column per length."""
        names = [f"{low}–{high}" if high < 99 else f"{low}+" for low, high in BINS]
        head = f"{'source words':<36}" + "".join(f"{name:>8}" for name in names) + f"{'all':>8}{'seconds':>9}"
        lines = [head, f"{'sentences':<36}" + "".join(f"{n:>8}" for n in [*self.counts, sum(self.counts)])]
        for name, right in self.right.items():
            shares = [share(r, n) for r, n in zip([*right, sum(right)], [*self.counts, sum(self.counts)], strict=True)]
            row = f"{name:<13}{MODELS[name].split(' (')[0]:<23}"
            lines.append(row + "".join(f"{each:>8}" for each in shares) + f"{self.seconds[name]:>9.0f}")
        return "\n".join(lines)


def settings(kind: str, steps: int, seed: int) -> dict[str, Any]:
    """The configuration of one of them: the demonstration's, with longer sentences."""
    table = phrasebook.settings(steps, seed)
    table["data"] |= {"count": PAIRS, "builtin_edition": 1, "builtin_options": [f"longest={LONGEST}"]}
    table["model"] = {"kind": kind, "preset": "tiny", "dropout": 0.0}
    table["training"] |= {"batch_tokens": 1024, "validate_every": max(1, steps // 2), "validate_rows": 50}
    return table


def compare(out: Path, *, seed: int = 0, steps: int | None = None) -> Lineage:
    """Train the three, and count."""
    tests = list(generate("phrasebook", TESTS, split="test", pair="en-de", seed=seed, edition=1, longest=LONGEST))
    right, seconds = {}, {}
    for kind in MODELS:
        result = phrasebook.train_marked(settings(kind, steps or STEPS[kind], seed), out / kind)
        outputs = load(out / kind).translate([example.source for example in tests])
        right[kind] = [sum(o == e.target for e, o in within(tests, outputs, *limits)) for limits in BINS]
        seconds[kind] = result.seconds
    counts = [len(within(tests, ["" for _ in tests], *limits)) for limits in BINS]
    compared = Lineage(counts, right, seconds, out / "lineage.png")
    save(draw(compared), compared.picture)
    return compared


def within(tests: list[Example], outputs: list[str], low: int, high: int) -> list[tuple[Example, str]]:
    """The sentences of a length."""
    pairs = zip(tests, outputs, strict=True)
    return [(example, output) for example, output in pairs if low <= len(example.source.split()) <= high]


def share(right: int, count: int) -> str:
    return f"{100 * right / count:.0f} %" if count else "–"


def draw(compared: Lineage) -> Figure:
    """One line a model, told apart by its mark too."""
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    filled = [i for i, count in enumerate(compared.counts) if count]
    for (name, right), colour, mark in zip(compared.right.items(), COLOURS, MARKS, strict=True):
        shares = [100 * right[i] / compared.counts[i] for i in filled]
        axes.plot(filled, shares, color=colour, marker=mark, label=f"{name}: {MODELS[name]}")
    axes.set_xticks(filled, [f"{BINS[i][0]}–{BINS[i][1]}" if BINS[i][1] < 99 else f"{BINS[i][0]}+" for i in filled])
    axes.set(ylim=(0, 103), xlabel="source words", ylabel="translated exactly, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#d5d9e0", linewidth=0.6)
    axes.legend(frameon=False, loc="lower left")
    return figure
