"""Opening a run folder, and using the trained model in it.

from regard import load
run = load("runs/demo")
run.translate(["I ate pizza yesterday."], beam=5)
"""

import copy
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard import plugins, tasks
from regard.alignment import AlignmentSettings, extraction
from regard.config import read
from regard.data import Tokenizer, Tokenizers, run_languages, sentence_split, unknown_words
from regard.decoding import Ensemble, Options, Replay, batches, first_model
from regard.errors import ArgumentError, CheckpointError, ConfigError
from regard.io import Say
from regard.models import KINDS, Model
from regard.tasks import Aligned, Classified, Translation
from regard.training import Checkpoints, Prediction, read_checkpoint, trainer_state, weight_files

__all__ = ["Aligned", "Classified", "Run", "Translation", "load"]

FILES = {"source", "reference", "documents", "images", "captions", "labels", "names"}  # of a test set


class Run:
    """A trained model, or an ensemble of models, with its tokenizers, settings and actions.

    `folder` is the run folder, `settings` are those that it was trained with, `model` is the model in evaluation mode,
    `step` is the step of its checkpoint, and `labels` are those of a classifier. `can` says whether the run's task has
    an action; all other actions raise an error.
    """

    def __init__(
        self,
        folder: Path,
        settings: tasks.Settings,
        tokenizers: Tokenizers | None,
        model: Model,
        step: int,
        labels: Sequence[str] = (),
        warn: Say | None = None,
    ):
        self.folder, self.settings, self.model, self.step = folder, settings, model, step
        self.labels = tuple(labels)  # of a classifier
        self._tokenizers = tokenizers  # None for a classifier of pictures
        self._warn = warn

    def __repr__(self) -> str:
        count = sum(parameter.numel() for parameter in self.model.parameters())
        names = f"{self.settings.task}, {self.settings.kind}"
        return f"Run({str(self.folder)!r}: {names}, {count:,} parameters, step {self.step:,}, {self.device})"

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of source and target."""
        if self._tokenizers is None:
            raise ArgumentError(f"{self.folder}: a classifier of pictures has no tokenizer")
        return self._tokenizers

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    def set_languages(self, source: str | None = None, target: str | None = None) -> None:
        """Set the languages, such as eng_Latn and deu_Latn, for later translations with a multilingual model.

        This sets the pieces around a text (tokenizer.before and tokenizer.first).
        """
        if source is None and target is None:
            return
        self.require("translate")
        self._surround(run_languages.choose_languages(self.tokenizers, source, target))

    @functools.cached_property
    def unknown(self) -> unknown_words.UnknownWords:
        """The words read so far that did not occur in training."""
        return unknown_words.UnknownWords(read_tokenizer(self), unknown_words.read_words(self.folder), self._warn)

    @functools.cached_property
    def task(self) -> type[tasks.RunTask]:
        """The class of the run's task, a subclass of `RunTask`."""
        return self.settings.row.load()

    def translate(self, texts: Iterable[str], **options: Any) -> list[str]:
        """Return the best translation of each text, in order; `options` are those of `Options`, such as beam=5."""
        return [translations[0].text for translations in self.stream(texts, **options)]

    def stream(
        self,
        texts: Iterable[str],
        *,
        prefixes: Iterable[str] | None = None,
        split: bool | None = None,
        alignment: bool = False,
        replace_unknown: bool = False,
        coverage: bool = False,
        chunk: int | None = None,
        batch_tokens: int | None = None,
        **options: Any,
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each text, best first; `texts` may be an iterable of any size.

        `chunk` texts are read and translated together, by default 1,024, or 16,384 on a GPU. They are searched in
        batches of `batch_tokens` source tokens, counted for each hypothesis (8,192, or on a GPU as many as fit). Each
        output begins with the text's prefix if there are `prefixes`, one per text. `replace_unknown` replaces each
        unknown word by the source word with the most attention. With `coverage`, each translation has the spans of
        three or more source words that it leaves out (`untranslated`). A text without words has one empty translation.

        With `split`, each text is translated sentence by sentence, and the outputs are joined. This is off by default;
        then one warning, on standard error or to `warn` of `load`, counts the texts with several sentences, of which a
        model trained on single sentences may omit some. `split=False` also turns the warning off.
        """
        check_texts(texts=texts, prefixes=prefixes)
        self.require("translate")
        texts = self.unknown.watch(texts)
        if split is None and self.sentence_share.single:
            texts = self._watch_sentences(texts)
        extras: dict[str, Any] = {"prefixes": prefixes, "alignment": alignment, "replace_unknown": replace_unknown}
        extras |= {"coverage": coverage, "split": bool(split)}
        return tasks.translate.translate(self, texts, **extras, chunk=chunk, batch_tokens=batch_tokens, **options)

    def score(self, sources: Iterable[str], targets: Iterable[str] | None = None) -> list[batches.Scored]:
        """Return the model's log-probability of each target given its source, or of each text for a language model."""
        check_texts(sources=sources, targets=targets)
        has_source = self.settings.row.has_source
        if not has_source and targets is not None:
            raise ArgumentError("targets: given to a language model, expected only texts")
        if has_source and targets is None:
            raise ArgumentError("targets: missing, expected the translation of each source")
        texts = list(sources)
        self.unknown.add(texts)
        if targets is None:
            return tasks.language_model.score_texts(self, texts)
        return tasks.translate.score(self, texts, list(targets))

    def sample(self, count: int = 1, *, prefix: str = "", **options: Any) -> list[Translation]:
        """Sample texts from a language model; each continues the prefix."""
        self.require("sample")
        return tasks.language_model.sample(self, count, prefix, **options)

    def caption(self, pictures: Iterable[tasks.Item], **options: Any) -> list[str]:
        """Caption each picture, a file or its pixels; `options` are those of `Options`, such as beam=5."""
        return [captions[0].text for captions in self.captions(pictures, **options)]

    def captions(self, pictures: Iterable[tasks.Item], **options: Any) -> Iterator[list[Translation]]:
        """Yield the captions of each picture, best first."""
        self.require("caption")
        return tasks.caption.caption(self, pictures, **options)

    def classify(
        self, items: Iterable[tasks.Item], *, splitter: Callable[[str], Sequence[str]] | None = None
    ) -> list[Classified | None]:
        """Return the label of each document, given as a text, or of each picture, given as a file or its pixels.

        A document without words gets None. `splitter` replaces the run's own function that splits a text into
        sentences.
        """
        self.require("classify")
        if self.settings.data.reads != "pictures" and not isinstance(items, str):
            items = list(items)
            self.unknown.add(map(str, items))
        return tasks.classify.classify(self, items, splitter)

    def align(self, source: str, target: str) -> Aligned:
        """Return the words of a pair of texts, and the attention of each target word to each source word."""
        self.require("align")
        self.unknown.add([source])
        return tasks.translate.align(self, source, target)

    def links(self, pairs: Iterable[tuple[str, str]], *, chunk: int = tasks.PAIRS) -> Iterator[extraction.Links]:
        """Yield the links (source word, target word) of each pair of texts.

        The iterable may be of any size: `chunk` pairs are read at a time. A pair with an empty side has no links.
        """
        self.require("align")
        return tasks.translate.link_pairs(self, self._watch_pairs(pairs), chunk)

    def evaluate(self, **options: Any) -> tasks.evaluation.EvaluationReport:
        """Measure the run on a test set; `options` are those of its task's `evaluate`.

        The files are `source=…, reference=…` for texts, `documents=…` for documents, and `images=…` with `captions=…`
        or `labels=…` for pictures.
        """
        files = {"reference"} if "test" in options else set(options) & FILES
        if not files <= set(self.settings.row.measured_on):
            fitting = next((row.name for row in tasks.TASKS.values() if files <= set(row.measured_on)), "another")
            raise self._wrong_task(fitting)
        return self.task.evaluate(self, **options)

    def force(self, item: tasks.Item, target: str | None, options: Options, tree: bool) -> tasks.ForcedExample:
        """Return a teacher-forced example of an item and its output: `target`, or the output of a search."""
        if isinstance(item, str) and KINDS[self.settings.kind].reads != "pictures":
            self.unknown.add([item])
        return self.task.force(self, item, target, options, tree)

    def _watch_pairs(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yield the pairs unchanged, and look for unknown words in their sources."""
        for pair in pairs:
            self.unknown.look([pair[0]])
            yield pair
        self.unknown.tell()

    def _watch_sentences(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield the texts unchanged, and report at the end how many have several sentences."""
        counter = sentence_split.SentenceCounter([corpus.tag for corpus in self.settings.data.corpora if corpus.tag])
        yield from counter.watch(texts)
        if counter.several:
            say = self._warn or (lambda message: print(f"regard: {message}", file=sys.stderr))
            hint = "split=True, or --split on the command line, translates each"
            say(sentence_split.describe_several(counter, "texts", hint))

    @property
    def engine(self) -> tasks.Engine:
        """The engine that searches, scores and aligns with the model."""
        replay = self._replay if self.device.type == "cuda" else None
        return tasks.ModelEngine(self.model, self.tokenizers, self.device, replay)

    @functools.cached_property
    def _replay(self) -> Replay:
        """The CUDA graphs of searches, kept for later texts."""
        return Replay(self.model)

    @functools.cached_property
    def alignment_settings(self) -> AlignmentSettings:
        """The settings of alignment, from the run's alignment.json if it exists; you may assign others."""
        return AlignmentSettings.of(self.folder, first_model(self.model))

    def can(self, action: str) -> bool:
        """Return whether the run's task has an action: translate, align, sample, caption or classify."""
        return action in self.task.actions

    def require(self, action: str) -> None:
        """Raise an ArgumentError unless the run's task has this action."""
        if not self.can(action):
            able = (row.name for row in tasks.TASKS.values() if action in row.load().actions)
            raise self._wrong_task(next(able, f"one that can {action}"))

    def _surround(self, around: Mapping[str, tuple[str, ...]]) -> None:
        """Set the pieces around a text: tokenizer.before, after and first."""
        self.settings = self.settings.decide(tokenizer=around)
        self._tokenizers = self.tokenizers.surround(**around)

    def _wrong_task(self, expected: str) -> ArgumentError:
        """Build the error for a run of another task than expected."""
        row = self.settings.row
        return ArgumentError(f"{self.folder}: its task is {row.name}, expected {expected}; use {row.command}")

    # ---- for other parts of Regard

    @functools.cached_property
    def sentence_share(self) -> sentence_split.SentenceShare:
        """The share of training sources with several sentences; for an ensemble, that of its first run."""
        return sentence_split.SentenceShare.read(self.folder)


def surround_run(run: Run, around: Mapping[str, tuple[str, ...]]) -> Run:
    """Return a copy of the run with other pieces around a text; the given run stays unchanged."""
    other = copy.copy(run)
    other._surround(around)
    return other


def read_tokenizer(run: Run) -> Tokenizer:
    """Return the tokenizer of a run's input: that of the source or, for a language model, of the target."""
    return run.tokenizers.source if run.settings.row.has_source else run.tokenizers.target


def check_texts(**arguments: Iterable[str] | None) -> None:
    """Refuse a single string where a list is expected, because its letters would be taken for texts."""
    for name, texts in arguments.items():
        if isinstance(texts, str):
            raise ArgumentError(f"{name}: one text given, expected a list")


def load(
    run: str | Path, *others: str | Path, checkpoint: str = "best", device: str = "cpu", warn: Say | None = None
) -> Run:
    """Open a run folder, or several as one ensemble; `checkpoint` is best, last, or a name such as step-000500.

    `warn` is called with warnings: about words that did not occur in training, and texts with several sentences.
    """
    first = load_one(run, checkpoint, device, warn)
    if not others:
        return first
    runs = [first, *(load_one(other, checkpoint, device) for other in others)]
    for other in runs[1:]:
        if other.settings.task != first.settings.task:
            raise CheckpointError(
                f"{other.folder}: its task is {other.settings.task}, but that of {first.folder} is "
                f"{first.settings.task}"
            )
        if first.settings.row.labels:
            raise CheckpointError(f"{other.folder}: a classifier; only runs that write text make an ensemble")
        if other.tokenizers.hash != first.tokenizers.hash:
            raise CheckpointError(
                f"{other.folder}: its tokenizer differs from that of {first.folder}; "
                "an ensemble shares one (tokenizer.file)"
            )
    model = Ensemble([each.model for each in runs]).eval()
    return Run(first.folder, first.settings, first.tokenizers, model, first.step, warn=warn)


def load_one(run: str | Path, checkpoint: str, device: str, warn: Say | None = None) -> Run:
    """Open the run of one folder."""
    folder = Path(run)
    plugins.load_environment()
    tasks.require_run(folder)
    path = Checkpoints(folder).find(checkpoint)
    checkpoint_data = read_checkpoint(path, trainer=False)
    plugins.check_loaded(checkpoint_data.manifest.get("task", {}).get("plugins", ()), str(folder))
    table = tasks.complete_run_table(read(folder / "config.toml"))
    try:
        settings = tasks.read_settings(table)
    except ConfigError as error:
        raise ConfigError(f"{folder / 'config.toml'}: {error.key}", error.problem) from None
    tokenizers = tasks.tokenizers_of(folder, checkpoint_data.manifest)
    if tokenizers is not None:
        tokenizers = tokenizers.surround(**settings.tokenizer.around)
    stored, own = checkpoint_data.manifest.get("task", {}).get("model", {}), settings.model_table()
    if stored != own and trainer_state.complete_model(stored, path) != own:
        raise CheckpointError(f"{folder / 'config.toml'}: its [model] is not the one that {path.name} was trained with")
    labels = tasks.labels_of(checkpoint_data.manifest)
    row = settings.row
    if row.labels and not labels:
        raise CheckpointError(
            f"{path / 'manifest.json'}: task.labels is missing, expected the labels of the classifier"
        )
    if tokenizers is None and (not row.labels or KINDS[settings.kind].reads != "pictures"):
        raise CheckpointError(f"{path / 'manifest.json'}: task.tokenizer is null, expected that of tokenizer.json")
    # Ignore parameters of the objective itself, which only training needs.
    weights = {name: tensor for name, tensor in checkpoint_data.model.items() if name.startswith("model.")}
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    weights_path, config_path = str(path / "model.safetensors"), str(folder / "config.toml")
    objective = tasks.check_sizes(
        lambda: Prediction(tasks.build_model(settings, tokenizers, labels)),
        settings.model,
        shapes,
        config_path=config_path,
        weights_path=weights_path,
    )
    weight_files.load_weights(objective, weights, weights_path)
    model = objective.model
    model.origin = str(folder)
    return Run(folder, settings, tokenizers, model.to(device).eval(), checkpoint_data.step, labels, warn)
