"""`regard demo`: the smallest Transformer learns the phrasebook, English to German, in minutes on two CPU cores.

`regard demo --lineage` compares three models on the same sentences: one with a fixed context, one with attention, and
one with attention only. Cho et al. 2014 (arXiv:1409.1259) and Bahdanau et al. 2015 (figure 2) found that translations
from a fixed context get worse for longer sentences, and that attention avoids this. Here the measure is the share of
phrasebook sentences that are translated exactly.
"""

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data import Example, generate
from regard.errors import CommandError, StoppedError
from regard.evaluation import text_scores
from regard.inspection import heatmap, save
from regard.report import exit_status, train_and_report
from regard.run import Aligned, Run, load
from regard.training import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = 1440
PAIRS = 40_000
MARK = ".demonstration"
TEST = 1000  # test sentences, which are not in the training data
DRAWN = 10
# For --lineage.
MODELS = {
    "rnn": "a fixed context (Cho 2014)",
    "rnnsearch": "attention (Bahdanau 2015)",
    "transformer": "attention alone (Vaswani 2017)",
}
BINS = ((1, 5), (6, 8), (9, 11), (12, 14), (15, 99))  # numbers of source words
LINEAGE_TEST = 1500
LINEAGE_STEPS = {"rnn": 1600, "rnnsearch": 1200, "transformer": 1100}  # each takes about the same time
MAX_WORDS = 18  # maximum words of a sentence
COLOURS = ("#a63c00", "#0b5fa5", "#0b6b4f")
MARKS = ("s", "o", "^")


@dataclass(frozen=True)
class Demonstration:
    """The results of the demonstration."""

    run: Run
    exact: float  # share of the test sentences that are translated exactly
    tests: int
    alignments: list[tuple[Example, str, Aligned]]  # sentences, their translations and attention weights
    picture: Path
    report: Path


def settings(steps: int, seed: int) -> dict[str, Any]:
    """Return the configuration of the demonstration, as in a TOML file."""
    return {
        "data": {"builtin": "phrasebook", "pair": "en-de", "count": PAIRS},
        "model": {"kind": "transformer", "preset": "tiny", "dropout": 0.0, "tied": "all", "positions": "rotary"},
        "training": {
            "steps": steps,
            "batch_tokens": 640,
            "rate": 3e-3,
            "schedule": "cosine",
            "warmup": max(1, steps // 10),
            "smoothing": 0.05,
            "validate_every": max(1, steps // 4),
            "validate_rows": 100,
            "metric": "exact",
            "seed": seed + 1,
        },
    }


def demonstrate(out: Path, *, steps: int, seed: int = 0) -> Demonstration:
    """Train a model in `out`, translate test sentences, and draw the attention weights of one."""
    train_marked(settings(steps, seed), out)
    run = load(out)
    tests = list(generate("phrasebook", TEST, split="test", pair="en-de", seed=seed))
    outputs = run.translate([example.source for example in tests])
    alignments = [
        (example, output, run.align(example.source, output or example.target))
        for example, output in list(zip(tests, outputs, strict=True))[:DRAWN]
    ]
    picture = out / "alignment.png"
    longest = max(alignments, key=lambda each: len(each[2].source))[2]
    heatmap(longest.weights, longest.source, longest.target, path=picture)
    return Demonstration(
        run,
        text_scores.exact(outputs, [example.target for example in tests]),
        len(tests),
        alignments,
        picture,
        out / "report.html",
    )


def train_marked(table: dict[str, Any], out: Path) -> Result:
    """Train a run and mark its folder as a demonstration's, so that the next demonstration may replace it."""
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()
    result = train_and_report(table, out, advise=False)
    if result.stop_reason == "signal":
        raise StoppedError(
            "stopped; another regard demo starts from the beginning; resume this one with: "
            f"{shlex.join(['regard', 'train', '--resume', str(out)])}",
            exit_status(result),
        )
    return result


def remove_earlier(out: Path) -> None:
    """Remove the folder of an earlier demonstration; raise a CommandError if it holds anything else."""
    if not out.exists():
        return
    if (out / MARK).is_file():
        shutil.rmtree(out)
    elif any(out.iterdir()):
        raise CommandError(f"{out}: holds something other than an earlier demonstration; give another --out")


@dataclass(frozen=True)
class Lineage:
    """The results of the three models: how many sentences of each length they translate exactly."""

    counts: list[int]
    right: dict[str, list[int]]
    seconds: dict[str, float]
    picture: Path

    def table(self) -> str:
        """Format the results with a row per model and a column per length."""
        names = [f"{low}–{high}" if high < 99 else f"{low}+" for low, high in BINS]
        head = f"{'source words':<36}" + "".join(f"{name:>8}" for name in names) + f"{'all':>8}{'seconds':>9}"
        lines = [head, f"{'sentences':<36}" + "".join(f"{n:>8}" for n in [*self.counts, sum(self.counts)])]
        for name, right in self.right.items():
            shares = [share(r, n) for r, n in zip([*right, sum(right)], [*self.counts, sum(self.counts)], strict=True)]
            row = f"{name:<13}{MODELS[name].split(' (')[0]:<23}"
            lines.append(row + "".join(f"{each:>8}" for each in shares) + f"{self.seconds[name]:>9.0f}")
        return "\n".join(lines)


def lineage_settings(kind: str, steps: int, seed: int) -> dict[str, Any]:
    """Return the configuration of one of the three models: the demonstration's, with longer sentences."""
    table = settings(steps, seed)
    table["data"] |= {"builtin_edition": 1, "builtin_options": [f"longest={MAX_WORDS}"]}
    table["model"] = {"kind": kind, "preset": "tiny", "dropout": 0.0}
    table["training"] |= {"batch_tokens": 1024, "validate_every": max(1, steps // 2), "validate_rows": 50}
    return table


def compare(out: Path, *, seed: int = 0, steps: int | None = None) -> Lineage:
    """Train the three models in subfolders of `out`, and count the sentences that each translates exactly."""
    tests = list(
        generate("phrasebook", LINEAGE_TEST, split="test", pair="en-de", seed=seed, edition=1, longest=MAX_WORDS)
    )
    right, seconds = {}, {}
    for kind in MODELS:
        result = train_marked(lineage_settings(kind, steps or LINEAGE_STEPS[kind], seed), out / kind)
        outputs = load(out / kind).translate([example.source for example in tests])
        right[kind] = [sum(o == e.target for e, o in within(tests, outputs, *limits)) for limits in BINS]
        seconds[kind] = result.seconds
    counts = [len(within(tests, ["" for _ in tests], *limits)) for limits in BINS]
    compared = Lineage(counts, right, seconds, out / "lineage.png")
    save(draw(compared), compared.picture)
    return compared


def within(tests: list[Example], outputs: list[str], low: int, high: int) -> list[tuple[Example, str]]:
    """Return the sentences of `low` to `high` words, with their translations."""
    pairs = zip(tests, outputs, strict=True)
    return [(example, output) for example, output in pairs if low <= len(example.source.split()) <= high]


def share(right: int, count: int) -> str:
    return f"{100 * right / count:.0f} %" if count else "–"


def draw(compared: Lineage) -> "Figure":
    """Plot one line per model, each with its own marker."""
    from matplotlib.figure import Figure

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
