"""Train a run and report the result: print the last lines of `regard train`, and write the run's report.html."""

import contextlib
import os
import platform
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
import torch

import regard
from regard import plugins
from regard.config import read
from regard.errors import ArgumentError, CheckpointError, RegardError
from regard.inspection import LookPicture, write
from regard.io import disk
from regard.machine import peak_memory
from regard.run import Run, load
from regard.tasks import (
    RunTask,
    Settings,
    Started,
    baseline,
    complete_run_table,
    record_command,
    set_by_hand,
    start,
    summarise,
)
from regard.training import Display, Progress, Result, metrics, open_progress, run_folder

__all__ = ["exit_status", "train", "train_and_report"]

ITEMS = {"text": '"A SENTENCE"', "documents": '"A TEXT"', "pictures": "PICTURE"}
OTHER = {"text": "--source A --target B", "documents": "--documents A.tsv", "pictures": "--images A --captions B"}
TESTS = {"translate": "--source A --reference B", "language-model": "--reference A", "caption": OTHER["pictures"]}
LISTS = "data"  # subfolder of a run for lists of texts that it was trained on, so that it can be resumed
Texts = str | Path | Sequence[str]  # a file, or a list of texts


def train(
    config: Mapping[str, Any] | str | Path | None = None,
    out: str | Path | None = None,
    *,
    source: Texts | None = None,
    target: Texts | None = None,
    valid_source: Texts | None = None,
    valid_target: Texts | None = None,
    model: str | None = None,
    preset: str | None = None,
    resume: bool = False,
    base: str | Path | None = None,
    choose: bool | None = None,
    anyway: bool = False,
    **training: Any,
) -> Run:
    """Train a model into the folder `out`, and open the run: `train(source=texts, target=translations, out="runs/x")`.

    `source` and `target` are two lists of texts or two text files; lists are written into the run folder. Instead,
    `config` may be a TOML file or its tables. `model`, `preset` and keys of [training], such as steps=2000 or
    device="cpu", override it. `resume` continues the run in `out`; `base` is a run that provides the initial weights
    and the tokenizer. `choose` chooses open settings from the corpus; it is the default without `config`. `anyway`
    trains even on data from which a model cannot learn, which are refused otherwise.
    """
    if out is None:
        raise ArgumentError('out: missing, expected the run folder to write, such as out="runs/en-de"')
    folder = Path(out)
    texts = {"source": source, "target": target, "valid_source": valid_source, "valid_target": valid_target}
    lists = {name: each for name, each in texts.items() if each is not None}
    if config is None and not lists and not resume:
        raise ArgumentError("source: missing, expected source=… and target=…, two lists or two files, or config=…")
    if resume and config is None:
        config = complete_run_table(read(folder / "config.toml"))
    table = dict(config if isinstance(config, Mapping) else {} if config is None else read(Path(config)))
    parts = {"model": {"kind": model, "preset": preset}, "training": training}
    if resume:
        table = set_by_hand(table, training)
    for name, part in parts.items():
        given = {key: value for key, value in part.items() if value is not None}
        table |= {name: {**table.get(name, {}), **given}} if given else {}
    chosen = (not resume and not isinstance(config, Mapping | str | Path)) if choose is None else choose
    with written_lists(folder, lists, resume) as files:
        table |= {"data": {**table.get("data", {}), **files}} if files else {}
        start_from = None if base is None else Path(base)
        how: dict[str, Any] = {"resume": resume, "base": start_from, "choose": chosen, "anyway": anyway}
        train_and_report(table, folder, **how, command="regard.train(…)")
    return load(folder)


@contextlib.contextmanager
def written_lists(folder: Path, texts: Mapping[str, Texts], resume: bool) -> Iterator[dict[str, str]]:
    """Write lists of texts into a run folder, and yield the path of each file; remove them if training never begins."""
    files = {name: str(each) for name, each in texts.items() if isinstance(each, str | Path)}
    lists = {name: list(each) for name, each in texts.items() if not isinstance(each, str | Path)}
    for name, lines in lists.items():
        for number, line in enumerate(lines):
            if not isinstance(line, str) or "\n" in line:
                expected = "has a line break in it; replace it by a space" if isinstance(line, str) else "is not a text"
                raise ArgumentError(f"{name}: item {number:,}, counted from 0, {expected}")
    for one, other in (("source", "target"), ("valid_source", "valid_target")):
        if one in lists and other in lists and len(lists[one]) != len(lists[other]):
            raise ArgumentError(f"{one}: {len(lists[one]):,} texts given, but {other} has {len(lists[other]):,}")
    if not lists:
        yield files
        return
    run_folder.check_content(folder, resume)
    made = disk.make_folder(folder / LISTS)
    try:
        for name, lines in lists.items():
            path = folder / LISTS / f"{name}.txt"
            disk.write_whole(path, "".join(f"{line}\n" for line in lines))
            files[name] = str(path)
        yield files
    except BaseException:
        if not run_folder.has_begun(folder):
            shutil.rmtree(folder / LISTS, ignore_errors=True)
            run_folder.remove_empty(made, folder)
        raise


def train_and_report(
    config: Mapping[str, Any] | Settings,
    out: Path,
    *,
    resume: bool = False,
    base: Path | None = None,
    choose: bool = False,
    anyway: bool = False,
    command: str | None = None,
    display: Display = "usual",
    advise: bool = True,
) -> Result:
    """Train into `out`, write the run's report.html, and print how it ended and, with `advise`, what to do next.

    `command` is the command as typed, which is recorded in the run folder; `display` selects the display of progress.
    `anyway` trains even on data that would be refused.
    """
    began, first = time.monotonic(), os.environ.get("RANK", "0") == "0"
    with contextlib.ExitStack() as stack:
        if first:
            stack.enter_context(run_folder.claim(out, resume))
        else:  # check here too: if the first process refused the folder, the others would wait for it for long
            run_folder.check_content(out, resume)
        progress = stack.enter_context(open_progress(out, display=display) if first else Progress())
        if first and command is not None:
            record_command(out, command)
        how: dict[str, Any] = {"resume": resume, "base": base, "choose": choose, "anyway": anyway, "claimed": True}
        started = start(config, out, progress=progress, began=began, **how)
        if first:
            end = describe_end(started.result, started.settings.training.minutes)
            lines = [*compare_with_baselines(out, started), end]
            try:
                lines.append(f"report: {report(out, started)}")
            finally:  # print below the display, after its last update
                commands = next_commands(out, started)[:3] if advise else []
                width = max((len(each) for each, _ in commands), default=0)
                lines += ["what next:"] * advise + [f"  {each:<{width}}  {about}" for each, about in commands]
                progress.end("\n".join(lines))
    return started.result


def exit_status(result: Result) -> int:
    """Return a command's exit status: 128 + the number of the signal that stopped it, as in a shell, or 0.

    Under torchrun it is always 0, because torchrun restarts workers with any other status.
    """
    return 0 if result.signal is None or "TORCHELASTIC_RUN_ID" in os.environ else 128 + result.signal


def compare_with_baselines(out: Path, started: Started) -> list[str]:
    """Measure trivial baselines, save them in the run folder, and compare them with the run's score in one line."""
    if started.result.stop_reason == "signal":
        return []
    baselines = baseline.measure_baselines(started.task)
    baseline.save_baselines(out, baselines)
    if baselines is None:
        return []
    what = {"text": "validation pairs", "documents": "documents held out", "pictures": "pictures held out"}
    score = None
    with contextlib.suppress(RegardError):
        score = summarise(out).scores.get(baselines.metric)
    return [baselines.as_text(what[started.settings.data.reads or "text"], score)]


def describe_end(result: Result, minutes: float | None = None) -> str:
    """Describe how training ended, its best step, its time and its memory."""
    ended = {
        "finished": f"finished after {result.step:,} steps",
        "patience": f"stopped after {result.step:,} steps, because validation did not improve",
        "minutes": f"stopped after {result.step:,} steps, because the time limit was reached (training.minutes)",
        "signal": f"saved at step {result.step:,}",
    }[result.stop_reason]
    if result.stop_reason == "minutes" and result.step == result.first and minutes is not None:
        ended = (
            f"no step was taken, because the time limit of {minutes:g} minutes (training.minutes) is over; give "
            f"more: --minutes {2 * minutes:g}; the run stands at step {result.step:,}"
        )
    best = "" if result.best is None else f"; the best checkpoint is from step {result.best_step:,}"
    peak = peak_memory()
    if torch.cuda.is_available() and torch.cuda.max_memory_reserved():
        peak = torch.cuda.max_memory_reserved()
    memory = "" if peak is None else f" and {peak / 1e9:.2f} GB of memory at most"
    return f"{ended}{best}; it took {metrics.format_duration(result.seconds)}{memory}"


def next_commands(out: Path, started: Started) -> list[tuple[str, str]]:
    """List commands to run next, each with a description, the most likely first."""
    result, settings, run = started.result, started.settings, shlex.quote(str(out))
    training, row, reads = settings.training, settings.row, settings.data.reads or "text"
    if result.stop_reason == "signal":
        longer = (f"regard train --resume {run}", "Resume where it stopped.")
    else:
        more = [f"--steps {2 * max(result.step, training.steps)}"] if result.stop_reason != "minutes" else []
        more += ["--set training.patience=0"] if result.stop_reason == "patience" else []
        more += [f"--minutes {2 * training.minutes:g}"] if training.minutes else []
        longer = (f"regard train --resume {run} {' '.join(more)}", "Train it longer.")
    item = f" {ITEMS[reads]}" if row.has_source else ""
    labels = "--documents A.tsv" if reads == "documents" else "--images A"
    test = TESTS.get(row.served_as(list(TESTS)) or "", labels)
    use = (f"{row.command} {run}{item}", "Use it.")
    evaluate = (f"regard eval {run} {test}", "Measure it on a test set.")
    look = (f"regard look {run} {ITEMS[reads]}", "See what it attends to.")
    tune = (f"regard train --from {run} {OTHER[reads]} --out RUN", "Fine-tune it on other data.")
    commands = (
        [longer, use, evaluate, look, tune] if result.stop_reason == "signal" else [use, evaluate, look, longer, tune]
    )
    # Every command needs the run's plugins, under the names by which they were loaded.
    needs = [name for name, plugin in plugins.LOADED.items() if plugin in settings.plugins]
    flags = "".join(f" --plugin {shlex.quote(name)}" for name in needs)
    return [(command + flags, about) for command, about in commands]


def report(out: Path, started: Started) -> Path:
    """Write the run's report.html, with a figure of the best checkpoint's attention."""
    result, task = started.result, started.task
    try:
        run = load(out)
    except CheckpointError:  # the best checkpoint is missing, which was reported at the start
        run = load(out, checkpoint="last")
    look = None
    with contextlib.suppress(RegardError):  # write the report without a figure rather than fail
        look = picture_of(run, task)
    return write(
        out,
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        data=dict(task.facts())["data"],
        seconds=result.seconds,
        finished=result.stop_reason != "signal",
        look=look,
        shown_config=tomli_w.dumps(started.settings.own_table()),
        signature=[
            ("regard", regard.__version__),
            ("torch", torch.__version__),
            ("python", platform.python_version()),
            ("device", dict(started.facts)["device"]),
            ("seed", str(started.settings.training.seed)),
            ("data", task.prepared.hash),
            *([("tokenizer", task.prepared.tokenizers.hash)] if task.prepared.tokenizers is not None else []),
        ],
        commands=next_commands(out, started),
    )


def picture_of(run: Run, task: RunTask) -> LookPicture | None:
    """Draw the model's attention in a validation example; return None without an example or attention."""
    from regard.inspection import exhibit_of, picture

    example = task.example()
    if example is None:
        return None
    item, target = example
    exhibit = exhibit_of(run, item, target=target, tree=False)
    if not exhibit.views:
        return None
    caption = run.settings.row.picture.format(output=exhibit.output)
    return LookPicture(picture(exhibit), caption, f"What it attended to: {exhibit.title} → {exhibit.output}")
