"""A run folder, opened: everything that later commands need of a trained model.

from regard import load
load("runs/demo").translate(["I ate pizza yesterday ."])
"""

# n target positions · m source positions
import contextlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from regard.attention.watch import watch
from regard.config import read
from regard.data.batching import collate
from regard.data.tokenizer import Tokenizers
from regard.decoding.search import greedy_in_batches
from regard.errors import ArgumentError, CheckpointError, ConfigError, RegardError
from regard.inspection.report import write
from regard.inspection.words import merge
from regard.models.contract import Model
from regard.training.checkpoint import Checkpoints, load_weights, read_checkpoint
from regard.training.loop import Result
from regard.training.objective import Prediction, inputs
from regard.training.predict import model_of
from regard.training.progress import Progress, progress
from regard.training.settings import Settings, read_settings
from regard.training.start import Started, check_folder, start, tokenizers_of

__all__ = ["Aligned", "Run", "load", "train_and_report"]


@dataclass(frozen=True)
class Aligned:
    """A pair of sentences in words, and how much each target word looked at each source word."""

    source: list[str]
    target: list[str]
    weights: Tensor  # [n m]


class Run:
    """A trained model with its tokenizers and settings."""

    def __init__(self, folder: Path, settings: Settings, tokenizers: Tokenizers, model: Model, step: int):
        self.folder, self.settings, self.tokenizers, self.model, self.step = folder, settings, tokenizers, model, step

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def translate(self, texts: Iterable[str]) -> list[str]:
        """Greedy translations, in the order given."""
        if isinstance(texts, str):
            raise ArgumentError("texts: one text given, expected a list of them")
        if self.settings.task != "translate":
            raise ArgumentError(f"{self.folder}: its task is {self.settings.task}, expected translate")
        sources = self.tokenizers.source.encode_batch(list(texts))
        return [self.tokenizers.target.decode(ids) for ids in greedy_in_batches(self.model, sources, self.device)]

    @torch.no_grad()
    def align(self, source: str, target: str) -> Aligned:
        """Where the model looks for each word of a translation: one teacher-forced pass, the mean over the heads.

        Of many layers the last but one is taken, which is nearest to an alignment in a deep Transformer (Garg et al.
        2019, arXiv:1909.02074), and of up to three the last.
        """
        crossings = self.model.crossings
        if not crossings:
            raise ArgumentError(f"{self.folder}: a model of kind {self.settings.kind} has no attention to its source")
        ids = self.tokenizers.source.encode(source), self.tokenizers.target.encode(target)
        if not ids[0] or not ids[1]:
            raise ArgumentError("source and target: an empty text given, expected words to align")
        batch = collate([ids]).to(self.device)
        with watch(self.model) as looks:
            read_source, read_target = inputs(batch)
            self.model.decode(self.model.encode(read_source), read_target)
        weights = looks[crossings[-2 if len(crossings) > 3 else -1]].weights[0]
        weights = weights.mean(0) if weights.ndim == 3 else weights
        rows = [*self.tokenizers.target.words(ids[1]), None]
        merged = merge(weights.float().cpu(), rows, self.tokenizers.source.words(ids[0]))
        words = self.tokenizers.source.decode(ids[0]).split(), self.tokenizers.target.decode(ids[1]).split()
        return Aligned(*words, merged)


def load(run: str | Path, *, checkpoint: str = "best", device: str = "cpu") -> Run:
    """Open a run folder; `checkpoint` is best, last, or the name of one, such as step-000500."""
    folder = Path(run)
    if not (folder / "config.toml").is_file():
        raise CheckpointError(f"{folder}: not a run folder, it has no config.toml")
    checkpoints = Checkpoints(folder)
    path = {"best": checkpoints.best, "last": checkpoints.last}.get(
        checkpoint, lambda: checkpoints.folder / checkpoint
    )()
    if path is None or not path.is_dir():
        raise CheckpointError(f"{checkpoints.folder}: no checkpoint {checkpoint} in it")
    found = read_checkpoint(path, trainer=False)
    table = read(folder / "config.toml")
    try:
        settings = read_settings(table)
    except ConfigError as error:
        raise ConfigError(f"{folder / 'config.toml'}: {error.key}", error.problem) from None
    tokenizers = tokenizers_of(folder, found.manifest)
    if found.manifest.get("task", {}).get("model") != settings.table()["model"]:
        raise CheckpointError(f"{folder / 'config.toml'}: its [model] is not the one that {path.name} was trained with")
    model = model_of(settings, tokenizers)
    load_weights(Prediction(model), found.model, str(path / "model.safetensors"))
    return Run(folder, settings, tokenizers, model.to(device).eval(), found.step)


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
    if samples and run.model.crossings:
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
    commands.append((f"regard train --from {out} --source A --target B --out RUN", "Go on with other data."))
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
            ("tokenizer", task.prepared.tokenizers.hash),
        ],
        commands=commands,
    )
