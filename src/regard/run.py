"""A run folder, opened: everything that later commands need of a trained model.

from regard import load
run = load("runs/demo")
run.translate(["I ate pizza yesterday ."], beam=5)
"""

# n target words · m source words
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import parse, read
from regard.data.tokenizer import UNKNOWN, Tokenizers
from regard.decoding.batches import Scored, score_pairs, search_in_batches, search_pictures_lazily
from regard.decoding.ensemble import Ensemble
from regard.decoding.options import Options
from regard.decoding.outputs import Output
from regard.decoding.replay import Replay
from regard.errors import ArgumentError, CheckpointError, ConfigError
from regard.inspection.alignments.extraction import Links, extract_links, link_words, word_weights
from regard.inspection.alignments.settings import AlignmentSettings
from regard.io.lines import CHUNK, CHUNK_CUDA
from regard.models.contract import Model
from regard.models.kinds import KINDS
from regard.tasks.settings import Settings, read_settings, without_cache
from regard.tasks.sizes import check_sizes
from regard.tasks.start import labels_of, tokenizers_of
from regard.tasks.translate import model_of
from regard.training.checkpoint import Checkpoints, load_weights, read_checkpoint
from regard.training.objective import Prediction
from regard.training.trainer_state import filled_from

__all__ = ["Aligned", "Classified", "Run", "Translation", "load"]

PAIRS = 8192  # pairs that are aligned together
SAMPLE = 100  # tokens of a language model's text at most, unless told otherwise
Picture = str | Path | np.ndarray | Tensor  # a file, or its pixels [3 h w]
COMMANDS = {
    "translate": "regard translate",
    "language-model": "regard sample",
    "caption": "regard caption",
    "classify": "regard classify",
}


@dataclass(frozen=True)
class Aligned:
    """A pair of sentences in words, and how much each target word looked at each source word."""

    source: list[str]
    target: list[str]
    weights: Tensor  # [n m]


@dataclass(frozen=True)
class Translation:
    """One output for a text."""

    text: str
    score: float  # what outputs of a text are sorted by: the log-probability with the penalties
    log_prob: float  # what the model thinks of it: the same as `Run.score` says of the pair
    tokens: tuple[str, ...]  # its pieces
    finished: bool  # it ended by itself, and not at the limit of its length
    alignment: tuple[tuple[int, int], ...] | None = None  # links of a source word and a target word, from 0


@dataclass(frozen=True)
class Classified:
    """What a document or a picture is said to be."""

    label: str
    probability: float
    probabilities: dict[str, float]  # of every label


class Run:
    """A trained model, or an ensemble of them, with its tokenizers, settings and labels."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        tokenizers: Tokenizers | None,
        model: Model,
        step: int,
        labels: Sequence[str] = (),
    ):
        self.folder, self.settings, self.model, self.step = folder, settings, model, step
        self.labels = tuple(labels)  # of a classifier
        self.texts = tokenizers  # None where there are no texts: pictures with labels

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of source and target."""
        if self.texts is None:
            raise ArgumentError(f"{self.folder}: a classifier of pictures has no tokenizer")
        return self.texts

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def translate(self, texts: Iterable[str], **options: Any) -> list[str]:
        """The best translation of each text, in the order given; `options` are those of `Options`, such as beam=5."""
        return [found[0].text for found in self.stream(texts, **options)]

    def stream(
        self,
        texts: Iterable[str],
        *,
        prefixes: Iterable[str] | None = None,
        alignment: bool = False,
        replace_unknown: bool = False,
        chunk: int | None = None,
        batch_tokens: int | None = None,
        **options: Any,
    ) -> Iterator[list[Translation]]:
        """The translations of each text, best first, as they are asked for: of an iterable of any size.

        `chunk` texts are read at a time, by default 1,024 and on a GPU 16,384, and searched together, in batches of
        `batch_tokens` source tokens for each hypothesis (8,192, and on a GPU as many as fit). Each output begins with
        the text's prefix where there are `prefixes`, one a text. `replace_unknown` puts the source word that was looked
        at most in the place of each unknown word. A text without words has one empty translation.
        """
        check_texts(texts=texts, prefixes=prefixes)
        if chunk is None:
            chunk = CHUNK_CUDA if self.device.type == "cuda" else CHUNK
        if chunk < 1:
            raise ArgumentError(f"chunk: {chunk} given, expected at least 1")
        self.check_task("translate")
        parsed = parse(Options, options)
        if (alignment or replace_unknown) and not self.aligning.crossings:
            raise ArgumentError(f"{self.folder}: a model of kind {self.settings.kind} has no attention to its source")
        return self.streamed(texts, prefixes, alignment, replace_unknown, chunk, batch_tokens, parsed)

    def streamed(
        self,
        texts: Iterable[str],
        prefixes: Iterable[str] | None,
        alignment: bool,
        replace_unknown: bool,
        chunk: int,
        budget: int | None,
        options: Options,
    ) -> Iterator[list[Translation]]:
        """Chunk by chunk."""
        texts, given, done = iter(texts), None if prefixes is None else iter(prefixes), 0
        while rows := list(itertools.islice(texts, chunk)):
            begun = None
            if given is not None:
                begun = self.tokenizers.target.encode_batch(list(itertools.islice(given, len(rows))))
                if len(begun) < len(rows):
                    raise ArgumentError("prefixes: fewer than texts given, expected one for each")
                longest = sys.maxsize if options.longest is None else options.longest
                for number, prefix in enumerate(begun, done + 1):
                    if len(prefix) > longest:
                        raise ArgumentError(
                            f"prefix {number:,}: {len(prefix)} tokens given, expected at most {longest} (longest)"
                        )
            done += len(rows)
            sources = self.tokenizers.source.encode_batch(rows)
            found = search_in_batches(
                self.model,
                sources,
                options,
                prefixes=begun,
                device=self.device,
                budget=budget,
                replay=self.replay if self.device.type == "cuda" else None,
            )
            outputs = [each.outputs for each in found]
            if alignment or replace_unknown:
                yield from self.aligned(rows, sources, outputs, alignment, replace_unknown)
            else:
                yield from ([self.written(output) for output in each] for each in outputs)
        if given is not None and next(given, None) is not None:
            raise ArgumentError(f"prefixes: more than the {done:,} texts given, expected one for each")

    def written(self, output: Output) -> Translation:
        """An output as text."""
        target = self.tokenizers.target
        return Translation(
            target.decode(output.tokens),
            output.score,
            output.log_prob,
            tuple(target.pieces(output.tokens)),
            output.finished,
        )

    def aligned(
        self,
        texts: Sequence[str],
        sources: Sequence[list[int]],
        outputs: Sequence[list[Output]],
        alignment: bool,
        replace_unknown: bool,
    ) -> Iterator[list[Translation]]:
        """Outputs as text, with what the model looked at."""
        needed = [
            (i, j)
            for i, each in enumerate(outputs)
            for j, output in enumerate(each)
            if sources[i] and output.tokens and (alignment or UNKNOWN in output.tokens)
        ]
        pairs = [(sources[i], outputs[i][j].tokens) for i, j in needed]
        chosen = self.chosen
        weights = dict(zip(needed, word_weights(self.aligning, self.tokenizers, pairs, chosen), strict=True))
        for i, each in enumerate(outputs):
            words = self.tokenizers.source.normalise(texts[i]).split()
            found = []
            for j, output in enumerate(each):
                made, seen = self.written(output), weights.get((i, j))
                if replace_unknown and seen is not None and UNKNOWN in output.tokens:
                    made = replace(made, text=self.known(output, words, seen))
                if alignment:
                    links = [] if seen is None else extract_links(seen[None], chosen)[0]
                    made = replace(made, alignment=tuple(links))
                found.append(made)
            yield found

    def known(self, output: Output, words: Sequence[str], weights: Tensor) -> str:
        """The text with the source words that unknown ones looked at most."""
        target = self.tokenizers.target
        said, belongs = target.decode(output.tokens).split(), target.words(output.tokens)
        for token, word in zip(output.tokens, belongs, strict=True):
            if token == UNKNOWN and word is not None and word < len(weights):
                said[word] = words[int(weights[word].argmax())]
        return " ".join(said)

    def score(self, sources: Iterable[str], targets: Iterable[str] | None = None) -> list[Scored]:
        """What the model thinks of each target given its source; of a language model, of each text."""
        check_texts(sources=sources, targets=targets)
        first = list(sources)
        if self.settings.task == "language-model":
            if targets is not None:
                raise ArgumentError("targets: given to a language model, expected texts alone")
            encoded = self.tokenizers.target.encode_batch(first)
            return score_pairs(
                self.model, [[UNKNOWN]] * len(first), encoded, device=self.device
            )  # no source is looked at
        if targets is None:
            raise ArgumentError("targets: missing, expected the translation of each source")
        second = self.tokenizers.target.encode_batch(list(targets))
        return score_pairs(self.model, self.tokenizers.source.encode_batch(first), second, device=self.device)

    def sample(self, count: int = 1, *, prefix: str = "", **options: Any) -> list[Translation]:
        """Texts that a language model writes, drawn at random; each goes on from the prefix."""
        self.check_task("language-model")
        most = SAMPLE if self.model.limit is None else min(SAMPLE, self.model.limit - 1)
        parsed = parse(Options, {"longest": most, **options, "sample": True, "nbest": 1})
        # A source is not looked at; the number in it gives each text random numbers of its own.
        sources, begun = [[number] for number in range(count)], self.tokenizers.target.encode(prefix)
        found = search_in_batches(self.model, sources, parsed, prefixes=[begun] * count, device=self.device)
        return [self.written(each.outputs[0]) for each in found]

    def caption(self, pictures: Iterable[Picture], **options: Any) -> list[str]:
        """What each picture, a file or its pixels, shows; `options` are those of `Options`, such as beam=5."""
        return [found[0].text for found in self.captions(pictures, **options)]

    def captions(self, pictures: Iterable[Picture], **options: Any) -> Iterator[list[Translation]]:
        """The captions of each picture, best first, as they are asked for."""
        self.check_task("caption")
        found = search_pictures_lazily(self.model, self.read(pictures), parse(Options, options), device=self.device)
        return ([self.written(output) for output in each.outputs] for each in found)

    def classify(
        self, items: Iterable[Picture], *, splitter: Callable[[str], Sequence[str]] | None = None
    ) -> list[Classified | None]:
        """The label of each document, given as its text, or of each picture, a file or its pixels.

        A document without words has none. `splitter` cuts a text into its sentences in place of the run's own way.
        """
        from regard.data.documents import encode_documents, splitter_of
        from regard.decoding.batches import label_in_batches, label_pictures

        self.check_task("classify")
        if isinstance(items, str):
            raise ArgumentError("items: one text given, expected a list of them")
        if self.settings.data.reads == "pictures":
            found = label_pictures(self.model, self.read(items), device=self.device)
            return [self.labelled(row) for row in found]
        reads = KINDS[self.settings.kind].reads
        texts = [str(item) for item in items]
        data = self.settings.data
        rows, _ = encode_documents(texts, self.tokenizers.source, data, splitter_of(data, splitter))
        found = label_in_batches(self.model, rows, reads, self.device)
        return [self.labelled(each) if row else None for row, each in zip(rows, found, strict=True)]

    def labelled(self, log_probs: Tensor) -> Classified:
        """The likeliest label, and how likely each is."""
        each = dict(zip(self.labels, log_probs.exp().tolist(), strict=True))
        label = max(each, key=lambda name: each[name])
        return Classified(label, each[label], each)

    def read(self, pictures: Iterable[Picture]) -> Iterator[np.ndarray | Tensor]:
        """The pixels of each picture as the model wants them, [3 h w]."""
        from regard.data.images.batching import read_for

        if isinstance(pictures, str | Path):
            raise ArgumentError("pictures: one path given, expected a list of them")
        for each in pictures:
            yield read_for(self.settings.data, each) if isinstance(each, str | Path) else each

    def align(self, source: str, target: str) -> Aligned:
        """Where the model looks for each word of a translation."""
        self.check_task("translate")
        if not self.aligning.crossings:
            raise ArgumentError(f"{self.folder}: a model of kind {self.settings.kind} has no attention to its source")
        ids = self.tokenizers.source.encode(source), self.tokenizers.target.encode(target)
        if not ids[0] or not ids[1]:
            raise ArgumentError("source and target: an empty text given, expected words to align")
        words = self.tokenizers.source.decode(ids[0]).split(), self.tokenizers.target.decode(ids[1]).split()
        return Aligned(*words, word_weights(self.aligning, self.tokenizers, [ids], self.chosen)[0])

    def links(self, pairs: Iterable[tuple[str, str]], *, chunk: int = PAIRS) -> Iterator[Links]:
        """The links (source word, target word) of each pair of texts, as they are asked for.

        The iterable may be of any size: `chunk` pairs are read at a time. Where a side has no words there are no links.
        """
        self.check_task("translate")
        if not self.aligning.crossings:
            raise ArgumentError(f"{self.folder}: a model of kind {self.settings.kind} has no attention to its source")
        rows = iter(pairs)
        while some := list(itertools.islice(rows, chunk)):
            sides = [
                tokenizer.encode_batch([pair[side] for pair in some])
                for side, tokenizer in enumerate((self.tokenizers.source, self.tokenizers.target))
            ]
            full = [number for number, (source, target) in enumerate(zip(*sides, strict=True)) if source and target]
            ids = [(sides[0][number], sides[1][number]) for number in full]
            found = dict(zip(full, link_words(self.aligning, self.tokenizers, ids, self.chosen), strict=True))
            yield from (found.get(number, []) for number in range(len(some)))

    @functools.cached_property
    def replay(self) -> Replay:
        """Searches on a GPU whose graphs are kept for the next texts."""
        return Replay(self.model)

    @functools.cached_property
    def chosen(self) -> AlignmentSettings:
        """What is read as an alignment: from the run's alignment.json where there is one; another may be put here."""
        return AlignmentSettings.of(self.folder, self.aligning)

    @property
    def aligning(self) -> Model:
        """The model that says what was looked at: of an ensemble the first."""
        return self.model.each[0] if isinstance(self.model, Ensemble) else self.model

    def check_task(self, expected: str) -> None:
        """Refuse what a run of another task cannot do."""
        if self.settings.task != expected:
            task = self.settings.task
            raise ArgumentError(f"{self.folder}: its task is {task}, expected {expected}; use {COMMANDS[task]}")


def check_texts(**given: Iterable[str] | None) -> None:
    """Refuse one text where several are expected: its letters would be taken for them."""
    for name, texts in given.items():
        if isinstance(texts, str):
            raise ArgumentError(f"{name}: one text given, expected a list of them")


def load(run: str | Path, *others: str | Path, checkpoint: str = "best", device: str = "cpu") -> Run:
    """Open a run folder, or several as one ensemble; `checkpoint` is best, last, or a name such as step-000500."""
    first = load_one(run, checkpoint, device)
    if not others:
        return first
    runs = [first, *(load_one(other, checkpoint, device) for other in others)]
    for other in runs[1:]:
        if other.settings.task != first.settings.task:
            raise CheckpointError(
                f"{other.folder}: its task is {other.settings.task}, and that of {first.folder} {first.settings.task}"
            )
        if first.settings.task == "classify":
            raise CheckpointError(f"{other.folder}: a classifier, and only runs that write make an ensemble")
        if other.tokenizers.hash != first.tokenizers.hash:
            raise CheckpointError(
                f"{other.folder}: its tokenizer is not that of {first.folder}; an ensemble shares one (tokenizer.file)"
            )
    return Run(
        first.folder, first.settings, first.tokenizers, Ensemble([each.model for each in runs]).eval(), first.step
    )


def load_one(run: str | Path, checkpoint: str, device: str) -> Run:
    """One run folder."""
    folder = Path(run)
    if not (folder / "config.toml").is_file():
        raise CheckpointError(f"{folder}: not a run folder, it has no config.toml")
    path = Checkpoints(folder).find(checkpoint)
    found = read_checkpoint(path, trainer=False)
    table = without_cache(read(folder / "config.toml"))
    try:
        settings = read_settings(table)
    except ConfigError as error:
        raise ConfigError(f"{folder / 'config.toml'}: {error.key}", error.problem) from None
    tokenizers = tokenizers_of(folder, found.manifest)
    if filled_from(found.manifest.get("task", {}).get("model", {}), path) != settings.table()["model"]:
        raise CheckpointError(f"{folder / 'config.toml'}: its [model] is not the one that {path.name} was trained with")
    labels = labels_of(found.manifest)
    if settings.task == "classify" and not labels:
        raise CheckpointError(f"{path / 'manifest.json'}: task.labels is missing, expected what the classifier says")
    if tokenizers is None and (settings.task != "classify" or KINDS[settings.kind].reads != "pictures"):
        raise CheckpointError(f"{path / 'manifest.json'}: task.tokenizer is null, expected that of tokenizer.json")
    # An objective may have parameters of its own, which only training needs.
    weights = {name: tensor for name, tensor in found.model.items() if name.startswith("model.")}

    def build() -> Model:
        return model_of(settings, tokenizers, labels)

    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    weights_path, config_path = str(path / "model.safetensors"), str(folder / "config.toml")
    check_sizes(lambda: Prediction(build()), settings.model, shapes, config_path=config_path, weights_path=weights_path)
    model = build()
    load_weights(Prediction(model), weights, weights_path)
    model.origin = str(folder)
    return Run(folder, settings, tokenizers, model.to(device).eval(), found.step, labels)
