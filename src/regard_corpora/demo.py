"""`regard demo`: the smallest Transformer learns the phrasebook, English to German, in minutes on two CPU cores."""

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data import Example, generate
from regard.errors import CommandError, StoppedError
from regard.evaluation import text_scores
from regard.inspection import heatmap
from regard.report import exit_status, train_and_report
from regard.run import Aligned, Run, load
from regard.training import Result

STEPS = 1440
PAIRS = 40_000
MARK = ".demonstration"
TEST = 1000  # sentences that were never trained on
DRAWN = 10


@dataclass(frozen=True)
class Demonstration:
    """The results of the demonstration."""

    run: Run
    exact: float  # the share of the test sentences
    tests: int
    alignments: list[tuple[Example, str, Aligned]]  # a sentence, its translation, and what was looked at
    picture: Path
    report: Path


def settings(steps: int, seed: int) -> dict[str, Any]:
    """The configuration, as a file would hold it."""
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
    """Train into `out`, translate sentences that were never trained on, and draw what was looked at."""
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
    """A run that is marked as a demonstration's, so that the next one may replace it."""
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()
    result = train_and_report(table, out, advise=False)
    if result.why == "signal":
        raise StoppedError(
            "stopped; another regard demo starts from the beginning; resume this one with: "
            f"{shlex.join(['regard', 'train', '--resume', str(out)])}",
            exit_status(result),
        )
    return result


def remove_earlier(out: Path) -> None:
    """Make room for a demonstration where an earlier one was; anything else stays, and is spoken of."""
    if not out.exists():
        return
    if (out / MARK).is_file():
        shutil.rmtree(out)
    elif any(out.iterdir()):
        raise CommandError(f"{out}: holds something other than an earlier demonstration; give another --out")
