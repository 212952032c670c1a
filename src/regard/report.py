"""Train a run and tell how it went: the last words of `regard train`, and the run's report.html."""

import contextlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import regard
from regard.config import read
from regard.errors import CheckpointError, RegardError
from regard.inspection.draw.report_page import LookPicture, write
from regard.run import Run, load
from regard.tasks.settings import Settings
from regard.tasks.start import Started, start
from regard.tasks.task import RunTask
from regard.training.display import open_progress
from regard.training.folder import check_content, claim
from regard.training.loop import Result
from regard.training.progress import Progress

__all__ = ["train", "train_and_report"]

LOOKED = {"text": '"A SENTENCE"', "documents": '"A TEXT"', "pictures": "PICTURE"}
OTHER = {"text": "--source A --target B", "documents": "--documents A.tsv", "pictures": "--images A --captions B"}


def train(
    config: Mapping[str, Any] | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    base: str | Path | None = None,
    choose: bool = False,
) -> Run:
    """Train what a configuration says, a TOML file or its tables, into the folder `out`, and open the run.

    `resume` continues the run that is there; `base` is a run whose weights and tokenizer are the beginning; `choose`
    lets the corpus decide what the configuration leaves open, as `regard train --source … --target …` does.
    """
    table = config if isinstance(config, Mapping) else read(Path(config))
    train_and_report(table, Path(out), resume=resume, base=None if base is None else Path(base), choose=choose)
    return load(out)


def train_and_report(
    config: Mapping[str, Any] | Settings,
    out: Path,
    *,
    resume: bool = False,
    base: Path | None = None,
    choose: bool = False,
) -> Result:
    """Train into `out`, say how it went and how to resume it, and write the run's report.html."""
    first = os.environ.get("RANK", "0") == "0"
    with contextlib.ExitStack() as stack:
        if first:
            stack.enter_context(claim(out, resume))
        else:  # those that wait for the first would wait for long where it is refused
            check_content(out, resume)
        progress = stack.enter_context(open_progress(out) if first else Progress())
        started = start(config, out, resume=resume, base=base, progress=progress, choose=choose, claimed=True)
        result = started.result
        ended = {
            "finished": f"finished after {result.step:,} steps",
            "patience": f"stopped after {result.step:,} steps, as validation got no better",
            "minutes": f"stopped after {result.step:,} steps, as the time was up (training.minutes)",
            "signal": f"saved at step {result.step:,}; resume with: regard train --resume {out}",
        }[result.why]
        best = "" if result.best is None else f"; the best checkpoint is of step {result.best_step:,}"
        progress.say(ended + best)
        if first:
            progress.end(f"report: {report(out, started)}")
    return result


def report(out: Path, started: Started) -> Path:
    """The run's report.html, with a picture of what its best checkpoint looks at."""
    result, task = started.result, started.task
    try:
        run = load(out)
    except CheckpointError:  # the best one is missing, as was said at the beginning
        run = load(out, checkpoint="last")
    look = None
    with contextlib.suppress(RegardError):  # a picture is not worth a report
        look = picture_of(run, task)
    interrupted, training = result.why == "signal", started.settings.training
    if interrupted:
        commands = [(f"regard train --resume {out}", "Resume it where it stopped.")]
    else:
        more = f"--set training.steps={2 * max(result.step, training.steps)}"
        more += " --set training.patience=0" if result.why == "patience" else ""
        more += f" --set training.minutes={2 * (training.minutes or 0)}" if result.why == "minutes" else ""
        commands = [(f"regard train --resume {out} {more}", "Train it longer.")]
    commands.append((f"regard look {out} {LOOKED[run.settings.data.reads or 'text']}", "See what it looks at."))
    commands.append(
        (
            f"regard train --from {out} {OTHER[run.settings.data.reads or 'text']} --out RUN",
            "Fine-tune it on other data.",
        )
    )
    return write(
        out,
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        data=dict(task.facts())["data"],
        seconds=result.seconds,
        finished=not interrupted,
        look=look,
        signature=[
            ("regard", regard.__version__),
            ("torch", torch.__version__),
            ("python", platform.python_version()),
            ("device", dict(started.facts)["device"]),
            ("seed", str(started.settings.training.seed)),
            ("data", task.prepared.hash),
            *([("tokenizer", task.prepared.tokenizers.hash)] if task.prepared.tokenizers is not None else []),
        ],
        commands=commands,
    )


def picture_of(run: Run, task: RunTask) -> LookPicture | None:
    """Draw what the best checkpoint looks at in an example of the validation; None where it looks at nothing."""
    from regard.inspection.collect.from_run import exhibit_of
    from regard.inspection.draw.picture import picture

    example = task.example()
    if example is None:
        return None
    item, target = example
    exhibit = exhibit_of(run, item, target=target, tree=False)
    if not exhibit.views:
        return None
    caption = run.settings.row.picture.format(output=exhibit.output)
    return LookPicture(picture(exhibit), caption, f"What it looked at: {exhibit.title} → {exhibit.output}")
