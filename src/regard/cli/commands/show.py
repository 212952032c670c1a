"""`regard show`: everything about one run."""

import itertools
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from regard.cli.messages import print_table
from regard.cli.options import JsonOption, RunArgument
from regard.io import packs

EXAMPLES = ("regard show runs/en-de", "regard show runs/en-de --json")


def show(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show a run: data, model, scores, and the command that trained it."""
    from regard.tasks import baseline, summarise
    from regard.training import metrics

    summary = summarise(Path(run))
    if as_json:
        print(json.dumps(summary.table(), ensure_ascii=False, allow_nan=False))
        return
    weights = "" if summary.parameters is None else f", {summary.parameters:,} parameters"
    time = "" if summary.minutes is None else f" in {metrics.format_duration(60 * summary.minutes)}"
    of_steps = "" if summary.steps is None else f" of {summary.steps:,}"
    rows = [
        ("run", summary.folder),
        ("task", summary.task),
        ("data", summary.data),
        ("model", f"{summary.kind}{weights}"),
        *([("adapter", summary.adapter_text)] if summary.adapter else []),
        ("steps", f"{summary.step:,}{of_steps}{time}"),
        ("date", summary.date.replace("T", " ")[:16]),  # local time
        ("size", summary.size_text),
    ]
    if summary.best_step is not None:
        rows.append(("best", f"step {summary.best_step:,}, by {metrics.metric_name(summary.metric or 'loss')}"))
    rows += [
        ("", f"{metrics.metric_name(key)} {metrics.format_value(key, value)}") for key, value in summary.scores.items()
    ]
    baselines = None if packs.is_pack(run) else baseline.read_baselines(Path(run))
    if baselines is not None:
        listed = [
            f"{name}: {metrics.format_value(baselines.metric, value)}" for name, value in baselines.scores.items()
        ]
        head = f"{metrics.metric_name(baselines.metric)} of"
        rows += [("baselines" if number == 0 else "", f"{head} {each}") for number, each in enumerate(listed)]
    rows += [("command" if number == 0 else "", each) for number, each in enumerate(summary.commands)]
    if packs.is_pack(run):
        rows.append(("licence", summary.licence or "none stated"))
    elif summary.step:
        config = shlex.quote(str(Path(run) / "config.toml"))
        rows.append(("again", f"regard train {config}{start_of(summary.commands)} --out NEW"))
    print_table(None, rows, numbers_right=False)


def start_of(commands: Sequence[str]) -> str:
    """Return the --from option of the first training command, or an empty text."""
    try:
        words = shlex.split(commands[0]) if commands else []
    except ValueError:
        return ""
    return next((f" --from {shlex.quote(run)}" for flag, run in itertools.pairwise(words) if flag == "--from"), "")
