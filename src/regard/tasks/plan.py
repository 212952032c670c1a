"""All decisions before the first step of a run: data, pieces, model, schedule, and checks that may refuse a run.

If a command names only the data, defaults are chosen from the corpus, and printed before training starts: first data
and pieces (how much is held out, which kind of pieces), then the model from the number of tokens, then the length of
training. Options that the user set are never changed. The task chooses the metric that selects the best checkpoint.

With rehearsal, fine-tuning trains again on a share of the earlier corpora, so that the model forgets less of them.
Robins 1995, "Catastrophic forgetting, rehearsal and pseudorehearsal"; in translation it is called mixed fine-tuning
(Chu et al. 2017, arXiv:1701.03214).

When a run extends the vocabulary of the run from which it starts, the weights with a row per piece are those whose
shapes change with the sizes of the vocabularies. Names do not matter, so this works for every kind of model with such
tables, including those of plugins.
"""

# v pieces before · w pieces after

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard import training
from regard.config import parse, read, show_value, visible
from regard.data import (
    PAD,
    DataSettings,
    Prepared,
    Tokenizers,
    cache,
    tokenizer_checks,
    training_texts,
    unknown_words,
    vocabulary_extension,
)
from regard.errors import ArgumentError, CheckpointError, ConfigError
from regard.io import reading
from regard.machine import MPS
from regard.models import KINDS, build
from regard.tasks.memory import check_batches, check_run_sizes, check_weights, token_budget
from regard.tasks.settings import Settings, check_extension, complete_run_table, leave_open
from regard.tasks.task import PICTURES, RunTask, prepare_data, vocabulary_sizes

HELD_OUT = 0.05  # of built-in documents and pictures: a label carries less information than a text
LONGEST_TOKENS = 1000  # tokens of a sentence: enough for lines of a few hundred words
LONG = 60  # average tokens of a target above which targets are long
SMALL_TOKENS = {"cuda": 50_000, "cpu": 150_000}  # target tokens from which the model is small instead of tiny
BASE_TOKENS = 4_000_000  # target tokens from which, on a GPU, the model is base
SIDES = re.compile(r"\b(left|right|link[es]n?|rechts|rechten?|gauche|droite|izquierda|derecha|sinistra|destra)\b", re.I)
NAMED = 0.02  # share of captions that may name a side if pictures are mirrored
WIDTHS = ("size", "heads", "hidden", "layers", "embedding", "depth")  # options that must fit each other
LONG_SIDE = 128  # tokens of a side above which attention dropout is slow on a GPU
LONG_SHARE = 0.01  # share of the training pairs that may have a longer side
SOURCES = "sources.json"  # in a run folder: the hashes of the files that it was trained on
# Keys of [data] that name a file, or a folder.
PATHS = ["source", "target", "alignment", "valid_source", "valid_target"]
PATHS += ["documents", "valid_documents", "images", "captions", "valid_captions", "labels", "train_list", "valid_list"]
LARGEST_RECORD = 2**20  # bytes of sources.json, at most
REHEARSAL = "data.rehearsal"
SHOWN = 10  # new pieces to name
STEP = 8  # extra pieces with which a model is built to find the weights that grow with the vocabulary
NEVER = -1e4  # output bias of a piece that must never be written; finite in half precision


@dataclass(frozen=True)
class PlannedRun:
    """A run before its first step, with complete settings and prepared data."""

    settings: Settings
    task: RunTask
    facts: list[tuple[str, str]]


def plan_run(
    settings: Settings,
    group: training.Group,
    progress: training.Progress,
    *,
    resumed: Path | None = None,
    base: Path | None = None,
    choose: bool = False,
) -> PlannedRun:
    """Prepare the data, decide all open settings and build the task; write nothing but the cache.

    `resumed` is the folder of the run to resume, `base` that of the run to start from. With `choose`, settings that
    the user left open are chosen from the corpus.
    """
    if group.automatic and group.device.type == "mps":
        progress.say(MPS)
    settings = choose_earlier(settings, base)
    if resumed is None:
        settings = leave_open(settings)
    check_adapter(settings, base is not None or resumed is not None)
    if choose:
        settings = data_defaults(settings)
    last = None if resumed is None else training.Checkpoints(resumed).find("last")
    run, begin = base or resumed, last
    if base is not None:
        begin = training.Checkpoints(base).best()
        if begin is None:
            raise CheckpointError(f"{base}: not a run folder with a checkpoint in it")
    manifest = {} if begin is None else training.read_manifest(begin)
    tokenizers = None if run is None else tokenizers_of(run, manifest)
    extension = None
    if settings.tokenizer.extend or settings.tokenizer.extend_words:
        extension = extend_run(settings, tokenizers, based=base is not None)
        progress.say(describe_extension(extension))
        tokenizers = extension.after
        # The pieces are now in the vocabulary: a run that resumes this one, or starts from it, must not add them again.
        settings = settings.decide(tokenizer={"extend": (), "extend_words": 0})
    check_weights(settings, group.device, processes=group.world)  # before reading the corpus, with the least vocabulary
    how: dict[str, Any] = {"tokenizers": tokenizers, "labels": labels_of(manifest)}
    # The first process encodes the data; the others read them from the cache.
    encoded = group.in_first(partial(prepare_data, settings, say=progress.say, **how))
    prepared = encoded or prepare_data(settings, **how)
    if base is not None and not (base / unknown_words.FILE).is_file():
        prepared = replace(prepared, words=None, target_words=None)  # the base run has seen more words than these data
    settings = decide_pieces(settings, prepared)
    if choose:
        settings = picture_defaults(settings, prepared.references)
    if choose and base is None:  # otherwise the model is that of the base run
        settings, line = drop_attention_dropout(settings, group.device.type, prepared.train.lengths)
        if line is not None:
            progress.say(line)
        settings = model_defaults(settings, Corpus.of(prepared), group.device.type)
    check_lengths(settings, prepared)
    if run is not None and begin is not None:
        theirs = prepared if extension is None else replace(prepared, tokenizers=extension.before)
        check_run_sizes(settings, theirs, run, last or begin, resumed=last is not None)
    sizes = vocabulary_sizes(settings, prepared.tokenizers, prepared.labels)
    weight_bytes = check_weights(settings, group.device, *sizes, processes=group.world)
    budget = token_budget(settings, prepared, group)
    check_batches(settings, group.device, prepared, budget, weight_bytes)
    if choose:
        lengths, device = prepared.train.lengths, group.device.type
        settings = training_defaults(settings, lengths, budget, group.world, device, base is not None)
        progress.say(describe_choice(settings))
    settings = replace(settings, data=absolute(settings.data)).decide(training={"batch_tokens": budget})
    task = settings.row.load()(settings, prepared, budget)
    settings = settings.decide(training={"metric": task.metric})
    if base is None and resumed is None:
        task.model.load_pretrained()
    if base is not None and begin is not None:
        checkpoint = training.read_checkpoint(begin, trainer=False)
        weights = checkpoint.model
        if extension is not None:
            weights = extend_rows(weights, find_tables(settings, extension, prepared.labels))
        training.weight_files.load_weights(task.objective, weights, str(checkpoint.folder))
    elif last is not None and "base" in manifest:
        training.weight_files.load_weights(
            task.objective,
            training.checkpoint_files.read_base(last, manifest),
            str(training.plain_weights_file(last, manifest)),
        )
    frozen = training.adapters.freeze_parts(task.model, settings.training.freeze)
    if rank := settings.model.adapter_rank():
        training.adapters.add_adapters(task.model, rank, settings.training.seed)
    if resumed is not None and last is not None:  # before the run's configuration is overwritten
        trained_on = manifest.get("task", {}).get("data")
        check_unchanged(resumed, settings.data, trained_on, prepared.hash)
        training.trainer_state.check_fits(task, manifest, last)
        check_best(resumed, progress)
    bf16 = training.uses_bf16(settings.training, group.device)
    device_fact = ("device", training.describe_device(group.device, group.world, bf16))
    frozen_fact = [("frozen", f"{frozen:,} weights ({', '.join(settings.training.freeze)})")] if frozen else []
    facts = [*task.facts(), *frozen_fact, *training.adapters.describe_adapters(task.model), device_fact]
    return PlannedRun(settings, task, facts)


def check_adapter(settings: Settings, has_base: bool) -> None:
    """Refuse adapters without a base run, or with sharded weights."""
    rank = settings.model.adapter_rank()
    if rank and not has_base:
        raise ConfigError("model.adapter", f"{rank} given without a run whose weights it adapts; give one with --from")
    if rank and settings.training.shard:
        raise ConfigError(
            "training.shard", f"true given with model.adapter = {rank}, expected false: it cannot be sharded"
        )


def take_edition(settings: Settings, path: Path) -> Settings:
    """Return the settings with the built-in corpus's edition of the resumed run, unless the user set one."""
    if "builtin_edition" in settings.overrides.get("data", {}) or not path.is_file():
        return settings
    edition = complete_run_table(read(path))["data"]["builtin_edition"]
    return settings.decide(data={"builtin_edition": edition})


def check_best(out: Path, progress: training.Progress) -> None:
    """Raise an error if best.json is damaged; report a missing best checkpoint."""
    training.Checkpoints(out).best_record()
    try:
        training.Checkpoints(out).best()
    except CheckpointError as error:
        progress.say(f"{error}. Training resumes from the last checkpoint; a better one takes its place")


def decide_pieces(settings: Settings, prepared: Prepared) -> Settings:
    """Return the settings with the kind of pieces, and whether they are joint, as chosen from the corpus."""
    tokenizers = prepared.tokenizers
    if tokenizers is None or settings.tokenizer.has_file:
        return settings
    kinds = {tokenizers.source.kind, tokenizers.target.kind}
    decided = {"kind": kinds.pop() if len(kinds) == 1 else "auto", "joint": tokenizers.joint}
    left_open = {key: value for key, value in decided.items() if getattr(settings.tokenizer, key) == "auto"}
    return settings.decide(tokenizer=left_open)


def check_lengths(settings: Settings, prepared: Prepared) -> None:
    """Refuse a model that has fewer positions than the longest sentence has tokens."""
    model, longest = settings.model, int(prepared.train.lengths.max(initial=0)) + 1
    if settings.tokenizer.dropout:  # BPE dropout splits words into more pieces
        longest = settings.data.longest + 1
    positions = model.known_positions()
    if positions is not None and positions < longest:
        raise ConfigError(
            "model.length", f"{positions} given, expected at least {longest}, the tokens of the longest sentence"
        )


def absolute(data: DataSettings) -> DataSettings:
    """Make paths absolute, so that later commands find the files from any working directory."""

    def whole(path: str | None) -> str | None:
        return None if path is None else os.path.abspath(path)

    def corpora(entries: Any) -> Any:
        names = ("source", "target", "file", "alignment")
        return tuple(replace(each, **{name: whole(getattr(each, name)) for name in names}) for each in entries)

    files: dict[str, Any] = {name: whole(getattr(data, name)) for name in PATHS}
    if data.builtin:
        files["alignment"] = data.alignment  # not a path: the corpus generates its links
    lists = {name: corpora(getattr(data, name)) for name in ("corpora", "earlier", "valid")}
    return replace(data, **lists, **files)


def labels_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the labels of a run's classifier, in the order of its outputs."""
    return tuple(manifest.get("task", {}).get("labels", ()))


def tokenizers_of(run: Path, manifest: Mapping[str, Any]) -> Tokenizers | None:
    """Load a run's tokenizers, checking that they are those of its checkpoint; return None if it has none."""
    if manifest.get("task", {}).get("tokenizer", "") is None:
        return None
    path = run / "tokenizer.json"
    try:
        content = reading.read_bytes(path, tokenizer_checks.MAX_BYTES)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except reading.Unreadable as error:
        raise CheckpointError(f"{path}: {error}") from None
    # Check the hash before parsing: a damaged file may fail to parse in any way.
    if hashlib.sha256(content).hexdigest() != manifest.get("task", {}).get("tokenizer"):
        raise CheckpointError(f"{path}: damaged, or not the tokenizer that {run} was trained with")
    return Tokenizers.load(path)


# ---- the files of the data


def data_files(data: DataSettings) -> Iterator[Path]:
    """Yield the existing files of the data, without pictures, which are many."""
    names = [getattr(data, key) for key in PATHS if key not in ("alignment", "images")]
    names += [None if data.builtin else data.alignment]
    for corpus in (*data.corpora, *data.earlier, *data.valid):
        names += [*corpus.files, corpus.alignment]
    return (path for path in dict.fromkeys(Path(name) for name in names if name) if path.is_file())


def changed_files(run: Path, data: DataSettings) -> list[str]:
    """List the files that have changed since the run was trained; empty for a run of a version without hashes."""
    try:
        hashes = reading.parse_json(reading.read_bytes(run / SOURCES, LARGEST_RECORD))
    except (OSError, reading.Unreadable):
        return []
    changed = list[str]()
    for path in data_files(data) if isinstance(hashes, dict) else ():
        before = hashes.get(str(path.absolute()))
        with contextlib.suppress(OSError):
            changed += [str(path)] * (isinstance(before, str) and before != cache.digest(path))
    return changed


def check_unchanged(run: Path, data: DataSettings, stored: object, prepared: str) -> None:
    """Refuse to resume a run if files have changed; `stored` and `prepared` are the hashes of all data."""
    if stored is None or stored == prepared:
        return
    if changed := changed_files(run, data):
        verb, old = ("has", "the old one") if len(changed) == 1 else ("have", "the old ones")
        raise CheckpointError(
            f"{', '.join(changed)}: {verb} changed since {run} was trained; put {old} back, or train another run on "
            "the new data, with --from and --out"
        )


def choose_earlier(settings: Settings, base: Path | None) -> Settings:
    """Return the settings with the corpora to rehearse: those in data.earlier, or those of the base run."""
    data = settings.data
    if not data.rehearsal:
        return settings
    given = f"{data.rehearsal:g} given"
    if data.reads != "text":
        raise ConfigError(REHEARSAL, f"{given} with data that is {data.reads}, expected pairs of texts")
    if data.earlier:
        return settings
    if base is None:
        raise ConfigError(
            REHEARSAL, f"{given}, but nothing to rehearse; start from a run with --from, or set data.earlier"
        )
    theirs = parse(DataSettings, complete_run_table(read(base / "config.toml")).get("data", {}), "data")
    if theirs.builtin:
        raise ConfigError(
            REHEARSAL,
            f"{given}, but {base} was trained on the built-in corpus {theirs.builtin}; write it into files with "
            "regard data, and name them in data.earlier",
        )
    if not theirs.training:
        raise ConfigError(REHEARSAL, f"{given}, but {base} names no training pairs; set data.earlier")
    return settings.decide(data={"earlier": (*theirs.training, *theirs.rehearsed)})


# ---- defaults from the corpus


def data_defaults(settings: Settings) -> Settings:
    """Return the settings with the held-out size and the pieces left to be chosen from the corpus."""
    data: dict[str, Any] = {}
    tokenizer: dict[str, Any] = {}
    if settings.data.builtin:  # the corpus generates as many validation examples as requested
        if settings.data.reads in ("documents", "pictures"):
            data["held_out"] = HELD_OUT
    else:
        data["held_out"] = "auto"
        if settings.data.reads == "text":
            data["longest"] = LONGEST_TOKENS
        if settings.data.reads == "pictures":
            data["crop"] = 0.1
    if not settings.tokenizer.has_file:
        tokenizer["kind"] = "auto"
        # Keep one vocabulary if the model needs it.
        if not KINDS[settings.kind].shares_vocabulary and not settings.model.ties_both_sides():
            tokenizer |= settings.row.defaults.get("tokenizer", {})
    return settings.suggest(data=data, tokenizer=tokenizer)


@dataclass(frozen=True)
class Corpus:
    """The properties of a corpus from which a model is chosen."""

    examples: int
    tokens: int  # of all targets, including each END
    spelled: bool  # whether target tokens are characters, or symbols of a small inventory

    @classmethod
    def of(cls, prepared: Prepared) -> "Corpus":
        """Describe the prepared corpus."""
        lengths, tokenizers = prepared.train.lengths, prepared.tokenizers
        tokens = int(lengths[:, 1].sum(dtype="int64")) + len(lengths)
        return cls(len(lengths), tokens, tokenizers is not None and tokenizers.target.kind in ("word", "character"))


def model_defaults(settings: Settings, corpus: Corpus, device: str) -> Settings:
    """Choose the model's options for the corpus, except those that the user set."""
    model: dict[str, Any] = {}
    reads, few, gpu = settings.data.reads, corpus.examples < 2_000, device == "cuda"
    if reads == "pictures":
        model["preset"] = "tiny" if few else "base" if gpu else "small"
        model["dropout"] = 0.2
    elif reads == "documents":
        model |= {"preset": "tiny" if few else "small", "dropout": 0.5}
    else:
        small = corpus.tokens >= SMALL_TOKENS["cuda" if gpu else "cpu"] and not few
        model["preset"] = "base" if gpu and corpus.tokens >= BASE_TOKENS else "small" if small else "tiny"
        # Symbols and large corpora are hard to memorise, so they need less dropout.
        model["dropout"] = 0.1 if corpus.spelled or corpus.tokens >= 2 * BASE_TOKENS else 0.3
        model |= settings.model.choose(corpus.tokens > LONG * corpus.examples, bool(settings.tokenizer.joint))
    if model["preset"] not in KINDS[settings.kind].presets:  # a plugin's kind may have none
        del model["preset"]
    return choose_model(settings, {**model, **settings.row.defaults.get("model", {})})


def training_defaults(
    settings: Settings,
    lengths: Int[np.ndarray, "n 2"],
    budget: int,
    processes: int,
    device: str = "cpu",
    base: bool = False,
) -> Settings:
    """Choose training settings that the user left open, from the lengths [n 2] of the sources and targets in tokens.

    `base` says that training starts from another run's weights, which get a lower learning rate.
    """
    examples, tokens = len(lengths), int(lengths[:, 1].sum(dtype="int64")) + len(lengths)
    training = dict(settings.overrides.get("training", {}))
    reads = settings.data.reads
    least = 1_000
    if base:  # a low rate keeps trained weights close to their values; new adapters can take a higher one
        training.setdefault("rate", 1e-3 if settings.model.adapter_rank() else 3e-4)
    if reads == "pictures":
        many = device == "cuda" and examples >= 4_000
        batches = examples / training.setdefault("batch_rows", 2 * PICTURES if many else PICTURES)
        epochs = 40 if examples < 100_000 else 20
        training.setdefault("weight_decay", 0.05)
    elif reads == "documents":  # learning a label takes fewer epochs than learning a translation
        batches = int(lengths[:, 0].sum(dtype="int64")) / budget
        epochs, least = 20 if examples < 10_000 else 8 if examples < 100_000 else 4, 300
        training.setdefault("rate", 2e-3)
    else:
        batches = tokens / budget
        # On a GPU an epoch is cheap, and a small corpus gains from twice as many.
        epochs = 60 if tokens < 100_000 else 40 if tokens < 2_000_000 else 20 if tokens < 20_000_000 else 8
        epochs *= 2 if device == "cuda" and tokens < 2_000_000 else 1
        if (rate := settings.model.suitable_rate()) is not None:
            training.setdefault("rate", rate)
    updates = epochs * batches / (processes * training.get("accumulate", 1))
    steps = training.setdefault("steps", min(100_000, max(least, math.ceil(updates / 100) * 100)))
    training.setdefault("schedule", "cosine")
    training.setdefault("warmup", max(1, min(4_000, steps // 10)))
    training.setdefault("ema", 0.999)
    training.setdefault("validate_every", max(min(50, steps), min(1_000, steps // 20)))
    training.setdefault("patience", 8)
    return settings.suggest(training=training)


def picture_defaults(settings: Settings, captions: Iterable[Sequence[str]]) -> Settings:
    """Choose whether to mirror pictures in training: only if captions rarely contain words such as left or right."""
    texts = [text for each in captions for text in each]
    sided = sum(SIDES.search(text) is not None for text in texts)
    return settings.suggest(data={"flip": sided <= NAMED * len(texts)}) if texts else settings


def describe_choice(settings: Settings) -> str:
    """Describe the chosen settings in one line."""
    training, model = settings.training, settings.model
    size = f"width {model.size}, " if hasattr(model, "size") else ""
    layers = f"{model.layers} layer{'s' * (model.layers != 1)}, " if hasattr(model, "layers") else ""
    steps = f"up to {training.steps:,} steps"
    if training.fit:
        steps = f"as many steps as fit into {training.minutes:g} minutes"
    return (
        f"chosen from the corpus: {settings.kind}, {size}{layers}dropout {model.dropout:g}; {steps}, "
        f"rate {training.rate:g}, {training.schedule} schedule (change any with --set)"
    )


def choose_model(settings: Settings, chosen: Mapping[str, Any]) -> Settings:
    """Apply the chosen model options that the user did not set.

    A chosen option that conflicts with the user's options falls back to its default. The preset's sizes do not: if the
    user's options conflict with them, raise a ConfigError.
    """
    own = {key: value for key, value in settings.overrides.get("model", {}).items() if key not in ("kind", "preset")}
    try:
        return settings.suggest(model=chosen)
    except ConfigError as error:
        first = error
    others = [key for key in chosen if key != "preset" and key not in own]
    for left_out in [*([key] for key in others), others]:
        try:
            return settings.suggest(model={key: value for key, value in chosen.items() if key not in left_out})
        except ConfigError:
            continue
    key = next((key for key in WIDTHS if key in own), next(iter(own), ""))
    if not key or first.key == f"model.{key}":
        raise first
    preset = settings.overrides["model"].get("preset", chosen.get("preset"))
    option = first.key.removeprefix("model.")
    raise ConfigError(
        f"model.{key}",
        f'{show_value(own[key])} given, which does not go with model.{option} of the preset "{preset}" '
        f"({first.problem}); set model.{option}, too, or another model.{key}",
    )


def drop_attention_dropout(
    settings: Settings, device: str, lengths: Int[np.ndarray, "n 2"]
) -> tuple[Settings, str | None]:
    """Turn attention dropout off for long pairs on a GPU, where it is many times slower; also return a message.

    `lengths` are the tokens of both sides of the training pairs. A value that the user set stays.
    """
    usual = settings.model.choose(False, False).get("attention_dropout")
    by_hand = "attention_dropout" in settings.overrides.get("model", {})
    if device != "cuda" or by_hand or not usual or settings.data.reads != "text" or not len(lengths):
        return settings, None
    share = float((lengths.max(axis=1) > LONG_SIDE).mean())
    if share <= LONG_SHARE:
        return settings, None
    return settings.suggest(model={"attention_dropout": 0.0}), (
        f"chosen for long lines: attention dropout 0 rather than {usual:g}, which is slow for them on a GPU: "
        f"{share:.1%} of the training pairs have a side of over {LONG_SIDE} tokens (change it with --set "
        f"model.attention_dropout={usual:g})"
    )


# ---- extending a vocabulary


def extend_run(settings: Settings, tokenizers: Tokenizers | None, *, based: bool) -> vocabulary_extension.Extension:
    """Add the pieces that the settings name to the tokenizers of the base run.

    `based` says whether there is a base run: only an existing vocabulary can be extended.
    """
    check_extension(settings, based=based)
    own = settings.tokenizer
    if tokenizers is None:
        raise ConfigError("tokenizer.extend", f'given with task = "{settings.task}", which has no vocabulary')
    words: tuple[list[str], list[str]] = ([], [])
    if own.extend_words:
        words = vocabulary_extension.frequent_words(tokenizers, *training_texts(settings.data, own), own.extend_words)
    tags = {corpus.tag for corpus in settings.data.training if corpus.tag}
    return vocabulary_extension.extend_tokenizers(tokenizers, own.extend, around=own.around, tags=tags, words=words)


def describe_extension(extension: vocabulary_extension.Extension) -> str:
    """Describe the added pieces in one line."""
    names = extension.names
    listed = ", ".join(visible(name) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    pieces = f"{len(names):,} {'piece' if len(names) == 1 else 'pieces'}"
    return f"Added {pieces} to the vocabulary{': ' * bool(names)}{listed}{more}"


@torch.no_grad()
def extend_rows(
    weights: Mapping[str, Tensor], tables: Mapping[str, vocabulary_extension.ExtendedSide]
) -> dict[str, Tensor]:
    """Return weights in which the named tables have a row for every piece of the extended side.

    In every table, the row of a new piece starts as the mean of the rows of the pieces into which its text was split
    before, so that the model treats it much like them. (Hewitt 2021, "Initializing new word embeddings for pretrained
    language models", starts from the mean of all rows.) All other rows stay the same bit by bit.
    """
    extended = dict(weights)
    for name in weights.keys() & tables.keys():
        table, side = weights[name], tables[name]  # a matrix [v …], or a bias
        longer = table.new_empty(side.after.size, *table.shape[1:])
        longer[: len(table)] = table
        for i, pieces in side.pieces.items():
            longer[i] = table[torch.tensor(pieces)].double().mean(0)
        if side.fillers:
            longer[torch.tensor(side.fillers)] = table[PAD] if table.ndim > 1 else NEVER
        extended[name] = longer
    return extended


def find_tables(
    settings: Settings, extension: vocabulary_extension.Extension, labels: tuple[str, ...]
) -> dict[str, vocabulary_extension.ExtendedSide]:
    """Return the names of the weights with a row per piece, each with its side of the extension."""
    before, row = extension.before, settings.row
    sizes = vocabulary_sizes(settings, before, labels)
    shapes = shapes_of(settings, *sizes)
    more = STEP if row.has_source and sizes[0] else 0, 0 if row.labels else STEP  # labels are no pieces

    def grown(source: int, target: int) -> list[str]:
        size = sizes[0] + (source if row.has_source else target), sizes[1] + target
        larger = shapes_of(settings, *size)
        names = [name for name, shape in larger.items() if shape != shapes.get(name)]
        for name in names:  # only additional rows can be initialised
            few, many = shapes.get(name, ()), larger[name]
            if len(few) != len(many) or many[1:] != few[1:] or many[0] - few[0] != STEP:
                raise ConfigError(
                    "tokenizer.extend",
                    f"given, but a model of kind {settings.kind} has weights without a row per piece, such as {name}",
                )
        return names

    if all(more) and not before.joint:
        try:
            return dict.fromkeys(grown(more[0], 0), extension.source) | dict.fromkeys(
                grown(0, more[1]), extension.target
            )
        except ArgumentError:  # the model has one table for both sides
            pass
    return dict.fromkeys(grown(*more), extension.source if more[0] else extension.target)


def shapes_of(settings: Settings, source: int, target: int) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes of a model's weights, by their names in a checkpoint, for vocabularies of these sizes."""
    with torch.random.fork_rng(devices=[]):
        model = training.Prediction(build(settings.kind, settings.model, source, target))
    return {name: tuple(tensor.shape) for name, tensor in training.weight_files.weights_of(model).items()}
