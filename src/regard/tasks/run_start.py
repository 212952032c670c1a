"""Starting a run: from settings to prepared data, a task, a run folder and the loop.

The files that it was trained on are recorded by their hashes, so that one which has changed is named when the run is
resumed. With rehearsal, fine-tuning sees a share of the earlier corpora again, so that it forgets less of them. Robins
1995, "Catastrophic forgetting, rehearsal and pseudorehearsal"; in translation it is called mixed fine-tuning (Chu et
al. 2017, arXiv:1701.03214).
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w
import torch

from regard import training
from regard.config import parse, read
from regard.data import (
    DataSettings,
    Prepared,
    Tokenizers,
    cache,
    run_languages,
    sentence_split,
    tokenizer_checks,
    unknown_words,
)
from regard.errors import CheckpointError, ConfigError, TrainingError
from regard.io import disk, reading
from regard.machine import MPS, most_threads
from regard.tasks import defaults
from regard.tasks.data_check import check_data
from regard.tasks.extension import describe_extension, extend_rows, extend_run, find_tables
from regard.tasks.settings import Settings, complete_run_table, leave_open, read_settings
from regard.tasks.sizes import check_batches, check_run_sizes, check_weights, token_budget
from regard.tasks.task import RunTask, prepare_data, vocabulary_sizes

SOURCES = "sources.json"  # in a run folder: the hashes of the files that it was trained on
# Keys of [data] that name a file, or a folder.
PATHS = ["source", "target", "alignment", "valid_source", "valid_target"]
PATHS += ["documents", "valid_documents", "images", "captions", "valid_captions", "labels", "train_list", "valid_list"]
LARGEST = 2**20  # bytes of the record that is read
REHEARSAL = "data.rehearsal"


@dataclass(frozen=True)
class Started:
    """A run that was trained."""

    result: training.Result
    task: RunTask
    settings: Settings
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class PlannedRun:
    """A run before its first step: everything is decided, and the data are prepared."""

    settings: Settings
    prepared: Prepared
    task: RunTask
    facts: list[tuple[str, str]]


def start(
    config: Mapping[str, Any] | Settings,
    out: Path,
    *,
    resume: bool = False,
    base: Path | None = None,
    progress: training.Progress | None = None,
    choose: bool = False,
    claimed: bool = False,
    anyway: bool = False,
    began: float | None = None,
) -> Started:
    """Train what a configuration describes into the folder `out`.

    `resume` continues where the run in `out` stopped. `base` is a run whose weights and tokenizer are the beginning.
    With `choose`, what the configuration leaves open about model and training is chosen from the corpus. `claimed` says
    that the caller holds the folder already (`regard.training.folder.claim`). `anyway` trains on data that are refused.
    `began` is the `time.monotonic()` from which the run's seconds count, and training.minutes with them; by default it
    is now.
    """
    began = time.monotonic() if began is None else began
    settings = config if isinstance(config, Settings) else read_settings(config)
    if resume:
        settings = take_edition(settings, out / "config.toml")
    with open_group(settings.training) as group:
        quiet = training.Progress() if progress is None or not group.first else progress
        with contextlib.nullcontext() if claimed else training.run_folder.claim(out, resume, group):
            remarks = None
            if not resume:  # what cannot teach stops all processes
                remarks = group.in_first(lambda: check_data(settings, based=base is not None, anyway=anyway))
            planned = plan_run(settings, group, quiet, resumed=out if resume else None, base=base, choose=choose)
            for remark in remarks or ():
                quiet.say(remark)
            return train_planned(planned, out, group, quiet, resume=resume, began=began)


@contextlib.contextmanager
def open_group(given: training.TrainingSettings) -> Iterator[training.Group]:
    """Group the processes that train together, inside the block, with the settings' threads and device."""
    if given.threads:
        if given.threads > most_threads():
            raise ConfigError(
                "training.threads",
                f"{given.threads} given, expected at most {most_threads()} on this machine, which has "
                f"{os.cpu_count()} cores",
            )
        torch.set_num_threads(given.threads)
    group = training.Group(given.device, given.shard)
    try:
        training.uses_bf16(given, group.device)  # refused before anything is made
        training.check_trackers(given.track)
        yield group
    finally:
        group.leave()


def plan_run(
    settings: Settings,
    group: training.Group,
    progress: training.Progress,
    *,
    resumed: Path | None = None,
    base: Path | None = None,
    choose: bool = False,
) -> PlannedRun:
    """Prepare the data and decide everything that is left open, up to the first step; only the cache is written.

    `resumed` is the folder of a run that is continued.
    """
    if group.automatic and group.device.type == "mps":
        progress.say(MPS)
    settings = choose_earlier(settings, base)
    if resumed is None:
        settings = leave_open(settings)
    check_adapter(settings, base is not None or resumed is not None)
    if choose:
        settings = defaults.data_defaults(settings)
    last = None if resumed is None else training.Checkpoints(resumed).find("last")
    run, begin = base or resumed, last if base is None else best_of(base)
    manifest = {} if begin is None else training.read_manifest(begin)
    tokenizers = None if run is None else tokenizers_of(run, manifest)
    extension = None
    if settings.tokenizer.extend or settings.tokenizer.extend_words:
        extension = extend_run(settings, tokenizers, based=base is not None)
        progress.say(describe_extension(extension))
        tokenizers = extension.after
        # From now on it is in the vocabulary, and not added again by a run that resumes this one, or begins with it.
        settings = settings.decide(tokenizer={"extend": (), "extend_words": 0})
    check_weights(settings, group.device, processes=group.world)  # before the corpus is read, as small as it can be
    prepared = prepare_shared(settings, tokenizers, labels_of(manifest), group, progress)
    if base is not None and not (base / unknown_words.FILE).is_file():
        prepared = replace(prepared, words=None, target_words=None)  # the run knows more than it is trained on now
    settings = decide_pieces(settings, prepared)
    if choose:
        settings = defaults.picture_defaults(settings, prepared.references)
    if choose and base is None:  # whose model it is otherwise
        settings, line = defaults.drop_attention_dropout(settings, group.device.type, prepared.train.lengths)
        if line is not None:
            progress.say(line)
        settings = defaults.model_defaults(settings, defaults.Corpus.of(prepared), group.device.type)
    check_lengths(settings, prepared)
    if run is not None:
        theirs = prepared if extension is None else replace(prepared, tokenizers=extension.before)
        check_run_sizes(settings, theirs, run, last or best_of(run), resumed=last is not None)
    sizes = vocabulary_sizes(settings, prepared.tokenizers, prepared.labels)
    weight_bytes = check_weights(settings, group.device, *sizes, processes=group.world)
    budget = token_budget(settings, prepared, group)
    check_batches(settings, group.device, prepared, budget, weight_bytes)
    if choose:
        lengths, device = prepared.train.lengths, group.device.type
        settings = defaults.training_defaults(settings, lengths, budget, group.world, device, base is not None)
        progress.say(defaults.chosen_words(settings))
    settings = replace(settings, data=absolute(settings.data)).decide(training={"batch_tokens": budget})
    task = settings.row.load()(settings, prepared, budget)
    settings = settings.decide(training={"metric": task.metric})
    if base is None and resumed is None:
        task.model.load_pretrained()
    if base is not None:
        checkpoint = training.read_checkpoint(best_of(base), trainer=False)
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
    if resumed is not None and last is not None:  # before the run's own configuration is written over
        trained_on = manifest.get("task", {}).get("data")
        check_unchanged(resumed, settings.data, trained_on, prepared.hash, last)
        training.trainer_state.check_fits(task, manifest, last)
        check_best(resumed, progress)
    bf16 = training.uses_bf16(settings.training, group.device)
    device_fact = ("device", training.describe_device(group.device, group.world, bf16))
    frozen_fact = [("frozen", f"{frozen:,} weights ({', '.join(settings.training.freeze)})")] if frozen else []
    facts = [*task.facts(), *frozen_fact, *training.adapters.describe_adapters(task.model), device_fact]
    return PlannedRun(settings, prepared, task, facts)


def train_planned(
    planned: PlannedRun,
    out: Path,
    group: training.Group,
    progress: training.Progress,
    *,
    resume: bool = False,
    began: float | None = None,
) -> Started:
    """Train a planned run into a claimed folder."""
    settings, prepared = planned.settings, planned.prepared

    def ready() -> None:
        write_config(out / "config.toml", settings)
        if prepared.tokenizers is not None:
            save_whole(out / "tokenizer.json", prepared.tokenizers.dumps())
        words = prepared.target_words if settings.row.alone else prepared.words
        save_whole(out / unknown_words.FILE, None if words is None else unknown_words.format_words(words))
        record_sources(out, settings.data)
        if "translate" in planned.task.actions:
            data = settings.data
            tags = [*([corpus.tag for corpus in data.training] or [None]), *(corpus.tag for corpus in data.rehearsed)]
            languages = run_languages.profile_corpus(prepared.train, prepared.tokenizers, tags)
            has_letters = languages.source is not None or languages.targets
            save_whole(out / run_languages.FILE, languages.dumps() if has_letters else None)
            share = sentence_split.count_sentences(prepared.train, prepared.tokenizers.source, tags)
            save_whole(out / sentence_split.FILE, share.dumps())

    how: dict[str, Any] = {"progress": progress, "resume": resume, "group": group, "claimed": True, "ready": ready}
    result = training.train(planned.task, settings.training, out, **how, began=began)
    training.adapters.fold_adapters(planned.task.model)
    return Started(result, planned.task, settings, planned.facts)


def check_adapter(settings: Settings, has_base: bool) -> None:
    """Refuse adapters without weights that they change, or with weights that are in parts."""
    rank = settings.model.adapter_rank()
    if rank and not has_base:
        raise ConfigError("model.adapter", f"{rank} given without a run whose weights it adapts; give one with --from")
    if rank and settings.training.shard:
        raise ConfigError(
            "training.shard", f"true given with model.adapter = {rank}, expected false: it cannot be sharded"
        )


def take_edition(settings: Settings, path: Path) -> Settings:
    """Return the settings with the edition of the resumed run, where none was given."""
    if "builtin_edition" in settings.overrides.get("data", {}) or not path.is_file():
        return settings
    edition = complete_run_table(read(path))["data"]["builtin_edition"]
    return settings.decide(data={"builtin_edition": edition})


def check_best(out: Path, progress: training.Progress) -> None:
    """Refuse a damaged record of the best checkpoint; report where the best one is missing."""
    training.Checkpoints(out).best_record()
    try:
        training.Checkpoints(out).best()
    except CheckpointError as error:
        progress.say(f"{error}. Training resumes from the last checkpoint; a better one takes its place")


def prepare_shared(
    settings: Settings,
    tokenizers: Tokenizers | None,
    labels: Sequence[str],
    group: training.Group,
    progress: training.Progress,
) -> Prepared:
    """Prepare the data: the first process encodes them, the others find them in the cache."""
    how: dict[str, Any] = {"tokenizers": tokenizers, "labels": labels}
    prepared = group.in_first(lambda: prepare_data(settings, say=progress.say, **how))
    return prepared or prepare_data(settings, **how)


def decide_pieces(settings: Settings, prepared: Prepared) -> Settings:
    """Return the settings with the kind and number of pieces that the corpus decided."""
    tokenizers = prepared.tokenizers
    if tokenizers is None or settings.tokenizer.has_file:
        return settings
    kinds = {tokenizers.source.kind, tokenizers.target.kind}
    decided = {"kind": kinds.pop() if len(kinds) == 1 else "auto", "joint": tokenizers.joint}
    left_open = {key: value for key, value in decided.items() if getattr(settings.tokenizer, key) == "auto"}
    return settings.decide(tokenizer=left_open)


def check_lengths(settings: Settings, prepared: Prepared) -> None:
    """Refuse a model that knows fewer positions than a sentence may have."""
    model, longest = settings.model, int(prepared.train.lengths.max(initial=0)) + 1
    if settings.tokenizer.dropout:  # pieces that are cut anew are more
        longest = settings.data.longest + 1
    positions = model.known_positions()
    if positions is not None and positions < longest:
        raise ConfigError(
            "model.length", f"{positions} given, expected at least {longest}, the tokens of the longest sentence"
        )


def absolute(data: DataSettings) -> DataSettings:
    """Make paths absolute, so that a later command finds the files wherever it is run."""

    def whole(path: str | None) -> str | None:
        return None if path is None else os.path.abspath(path)

    def corpora(entries: Any) -> Any:
        names = ("source", "target", "file", "alignment")
        return tuple(replace(each, **{name: whole(getattr(each, name)) for name in names}) for each in entries)

    files: dict[str, Any] = {name: whole(getattr(data, name)) for name in PATHS}
    if data.builtin:
        files["alignment"] = data.alignment  # of the corpus itself
    lists = {name: corpora(getattr(data, name)) for name in ("corpora", "earlier", "valid")}
    return replace(data, **lists, **files)


def labels_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the labels of a run's classifier, in the order of its scores."""
    return tuple(manifest.get("task", {}).get("labels", ()))


def tokenizers_of(run: Path, manifest: Mapping[str, Any]) -> Tokenizers | None:
    """Load a run's tokenizers, checked to be those of its checkpoint; None where it reads no text."""
    if manifest.get("task", {}).get("tokenizer", "") is None:
        return None
    path = run / "tokenizer.json"
    try:
        content = reading.read_bytes(path, tokenizer_checks.LARGEST)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except reading.Unreadable as error:
        raise CheckpointError(f"{path}: {error}") from None
    # Before it is read: a changed byte may be no tokenizer any more, in any way.
    if hashlib.sha256(content).hexdigest() != manifest.get("task", {}).get("tokenizer"):
        raise CheckpointError(f"{path}: damaged, or not the tokenizer that {run} was trained with")
    return Tokenizers.load(path)


def best_of(run: Path) -> Path:
    """Find the best checkpoint of a run folder."""
    best = training.Checkpoints(run).best()
    if best is None:
        raise CheckpointError(f"{run}: not a run folder with a checkpoint in it")
    return best


def write_config(path: Path, settings: Settings) -> None:
    """Write the settings as TOML, whole or not at all."""
    save_whole(path, tomli_w.dumps(settings.table()))


def save_whole(path: Path, content: str | None) -> None:
    """Write a file of a run folder, whole or not at all; without content, remove that of an earlier training."""
    try:
        if content is None:
            path.unlink(missing_ok=True)
        else:
            disk.write_whole(path, content)
    except OSError as error:
        raise TrainingError(f"{path}: not written, {disk.reason(error)}") from error


# ---- the files that it is trained on


def data_files(data: DataSettings) -> Iterator[Path]:
    """List the files of the data; pictures, of which there are many, are not among them."""
    names = [getattr(data, key) for key in PATHS if key not in ("alignment", "images")]
    names += [None if data.builtin else data.alignment]
    for corpus in (*data.corpora, *data.earlier, *data.valid):
        names += [*corpus.files, corpus.alignment]
    return (path for path in dict.fromkeys(Path(name) for name in names if name) if path.is_file())


def record_sources(run: Path, data: DataSettings) -> None:
    """Write the hash of every file of the data into a run folder."""
    path = run / SOURCES
    try:
        hashes = {str(each.absolute()): cache.digest(each) for each in data_files(data)}
        disk.write_whole(path, json.dumps(hashes, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise TrainingError(f"{path}: not written, {disk.reason(error)}") from error


def changed_files(run: Path, data: DataSettings, last: Path) -> list[str]:
    """List the files that have changed since a run was trained on them.

    A run of an earlier version has no hashes; there it is the files that are newer than its last checkpoint.
    """
    try:
        hashes = reading.parse_json(reading.read_bytes(run / SOURCES, LARGEST))
    except (OSError, reading.Unreadable):
        hashes = None
    changed = list[str]()
    for path in data_files(data):
        try:
            if isinstance(hashes, dict):
                before = hashes.get(str(path.absolute()))
                differs = isinstance(before, str) and before != cache.digest(path)
            else:
                differs = path.stat().st_mtime > (last / "manifest.json").stat().st_mtime
        except OSError:
            continue
        changed += [str(path)] * differs
    return changed


def check_unchanged(run: Path, data: DataSettings, stored: object, prepared: str, last: Path) -> None:
    """Refuse to resume a run on files that have changed, by their names; the hashes of all data are given."""
    if stored is None or stored == prepared:
        return
    if changed := changed_files(run, data, last):
        verb, old = ("has", "the old one") if len(changed) == 1 else ("have", "the old ones")
        raise CheckpointError(
            f"{', '.join(changed)}: {verb} changed since {run} was trained; put {old} back, or train another run on "
            "the new data, with --from and --out"
        )


def choose_earlier(settings: Settings, base: Path | None) -> Settings:
    """Return the settings with the corpora to rehearse: those that were given, or those of the base run."""
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
