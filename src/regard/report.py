"""Train a run and tell how it went: the last words of `regard train`, and the run's report.html."""

import contextlib
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import regard
from regard.errors import RegardError
from regard.inspection.report import write
from regard.run import load
from regard.training.loop import Result
from regard.training.progress import Progress, progress
from regard.training.start import Started, check_folder, start

__all__ = ["train_and_report"]

OTHER = {"text": "--source A --target B", "documents": "--documents A.tsv", "pictures": "--images A --captions B"}


def train_and_report(
    table: Mapping[str, Any], out: Path, *, resume: bool = False, base: Path | None = None, choose: bool = False
) -> Result:
    """Train into `out`, say how it went and how to go on, and write the run's report.html."""
    first = os.environ.get("RANK", "0") == "0"
    check_folder(out, resume)
    with left_alone(out), progress(out) if first else Progress() as shown:
        started = start(table, out, resume=resume, base=base, progress=shown, choose=choose)
        result = started.result
        ended = {
            "finished": f"finished after {result.step:,} steps",
            "patience": f"stopped after {result.step:,} steps, as validation got no better",
            "minutes": f"stopped after {result.step:,} steps, as the time was up (training.minutes)",
            "signal": f"saved at step {result.step:,}; go on with: regard train --resume {out}",
        }[result.why]
        best = "" if result.best is None else f"; the best checkpoint is of step {result.best_step:,}"
        shown.say(ended + best)
        if first:
            shown.end(f"report: {report(out, started)}")
    return result


@contextlib.contextmanager
def left_alone(out: Path) -> Iterator[None]:
    """A run that could not begin leaves nothing but its message."""
    try:
        yield
    except RegardError:
        if not (out / "config.toml").exists():
            (out / "log.txt").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it held something before
                out.rmdir()
        raise


def report(out: Path, started: Started) -> Path:
    """The run's report.html, with a picture of what its best checkpoint looks at."""
    result, task = started.result, started.task
    run = load(out)
    aligned = None
    samples = task.samples()
    if samples and run.settings.task == "translate" and run.model.crossings:
        sample = samples[len(samples) // 2]
        with contextlib.suppress(RegardError):  # a picture is not worth a report
            aligned = run.align(sample.source, sample.reference)
    goes_on, training = result.why == "signal", started.settings.training
    if goes_on:
        commands = [(f"regard train --resume {out}", "Go on from where it stopped.")]
    else:
        more = f"--set training.steps={2 * max(result.step, training.steps)}"
        more += " --set training.patience=0" if result.why == "patience" else ""
        more += f" --set training.minutes={2 * (training.minutes or 0)}" if result.why == "minutes" else ""
        commands = [(f"regard train --resume {out} {more}", "Train it longer.")]
    commands.append(
        (f"regard train --from {out} {OTHER[run.settings.data.reads or 'text']} --out RUN", "Go on with other data.")
    )
    return write(
        out,
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        data=dict(task.facts())["data"],
        seconds=result.seconds,
        finished=not goes_on,
        alignment=aligned,
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
