"""Import: a run folder made from a folder of another toolkit. Nothing is downloaded.

    from regard import import_model
    import_model("opus-mt-en-de", "runs/en-de")

The run is like one that was trained with Regard, at step 0: every command takes it, and `train --from` can start from
it. The checkpoint's manifest names the format and the folder, has the hash of every file that was read, and stores the
configuration's other values, so that an export can write them, too. The folder's path is in the run's imported.json,
which packs leave out. An export is compared with that folder while it exists and holds the same files.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config import show_value
from regard.data import data_settings, run_languages
from regard.errors import ArgumentError, DataError, RegardError, VerificationError
from regard.interop.formats import (
    FORMATS,
    Imported,
    check_model_folder,
    check_new,
    find_format,
    hash_file,
    read_table,
    recognise,
    whole_folder,
)
from regard.interop.numbering import export_rows, m2m100_rows, marian_files, marian_rows
from regard.interop.stacks import read_tensors, write_json
from regard.io import packs, reading
from regard.run import Run
from regard.tasks import build_model, read_settings, record_command, write_config
from regard.training import Checkpoints, Counters, Prediction, checkpoint_files, read_manifest, weight_files


@dataclass(frozen=True)
class ImportReport:
    """The result of an import: the run folder, and its contents."""

    folder: Path
    format: str
    kind: str
    parameters: int
    pieces: int  # of the target vocabulary
    notes: tuple[str, ...]


def import_model(
    folder: str | Path,
    out: str | Path,
    *,
    format: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    command: str | None = None,
) -> ImportReport:
    """Make the run folder `out` from a folder of another toolkit; `format` names its format if it is not recognised.

    The languages are those that a multilingual run translates between. `command` is the typed command, for the run's
    record.
    """
    folder, out = Path(folder), Path(out)
    check_new(out)
    check_model_folder(folder)
    row = recognise(folder) if format is None else find_format(format, "--format")
    imported = row.read(folder)
    table = dict(imported.table)
    if source_language is not None or target_language is not None:
        around = {key: table["tokenizer"].get(key, ()) for key in data_settings.AROUND}
        tokenizers = imported.tokenizers.surround(**around)
        table["tokenizer"] = {
            **table["tokenizer"],
            **run_languages.choose_languages(tokenizers, source_language, target_language),
        }
        pair = f"{source_language}-{target_language}"
        if source_language is not None and target_language is not None and data_settings.LANGUAGES.fullmatch(pair):
            table["data"] = {**table.get("data", {}), "languages": pair}
    settings = read_settings(table)
    model = build_model(settings, imported.tokenizers)
    weights = {f"model.{name}": tensor for name, tensor in imported.weights.items()}
    objective = Prediction(model)
    weight_files.load_weights(objective, weights, str(folder))
    facts = {"task": settings.task, "model": settings.model_table(), "tokenizer": imported.tokenizers.hash}
    manifest = {"step": 0, "counters": Counters(0).table(), "task": facts}
    files = {path.relative_to(folder).as_posix(): hash_file(path) for path in imported.files}
    origin = {"format": row.name, "folder": folder.resolve().name, "files": files}
    manifest["imported"] = {**origin, **read_values(folder), **imported.values}
    with whole_folder(out) as temporary:
        write_config(temporary / "config.toml", settings)
        imported.tokenizers.save(temporary / "tokenizer.json")
        if command is not None:
            record_command(temporary, command)
        write_json(temporary / FILE, {"folder": os.path.abspath(folder)})
        Checkpoints(temporary).write(checkpoint_files.step_name(0), weight_files.weights_of(objective), {}, manifest)
    count = sum(parameter.numel() for parameter in model.parameters())
    return ImportReport(out, row.name, settings.kind, count, imported.tokenizers.target.size, imported.notes)


# ---- the folder that a run was imported from


FILE = "imported.json"
VALUES = {"config": "config.json", "generation": "generation_config.json"}
UNSAID = ("architectures", "transformers_version", "torch_dtype", "dtype")  # properties of the file, not of the model
MAX_CHARACTERS = 2**16  # maximum length of a stored configuration


def read_values(folder: Path) -> dict[str, Any]:
    """Return the values of a folder's configurations, without paths; skip an unusually large one."""
    values = dict[str, Any]()
    for key, name in VALUES.items():
        table = read_table(folder / name, optional=True)
        table = {each: value for each, value in table.items() if not each.startswith("_") and each not in UNSAID}
        values |= {key: table} if len(json.dumps(table)) <= MAX_CHARACTERS else {}
    return values


def origin_values(run: Run, key: str) -> Mapping[str, Any]:
    """Return the imported folder's `config` or `generation` values."""
    values = read_origin(run).get(key)
    return values if isinstance(values, dict) else {}


def read_origin(run: Run) -> Mapping[str, Any]:
    """Return a run's record of its import; empty if the run was trained with Regard, even after an import."""
    path = Checkpoints(run.folder).folder / checkpoint_files.step_name(0)
    if run.step or not packs.is_file(path / "manifest.json"):
        return {}
    imported = read_manifest(path).get("imported")
    return imported if isinstance(imported, dict) else {}


def find_place(run: Run) -> Path | None:
    """Return the folder that a run was imported from; None if it no longer exists."""
    if not (run.folder / FILE).is_file():  # nor does a pack have it
        return None
    content = reading.read_json(run.folder / FILE, DataError)
    path = content.get("folder") if isinstance(content, dict) else None
    return Path(path) if isinstance(path, str) and os.path.isdir(path) else None


def compare_with_origin(run: Run, folder: Path, format: str) -> str | None:
    """Compare a run, and the folder that was exported from it, with the folder that the run was imported from.

    Return the result as the end of a sentence; None for a run that was not imported. Raise a VerificationError that
    names the first difference.
    """
    imported = read_origin(run)
    if not imported:
        return None
    name, place = imported.get("folder"), find_place(run)
    files = imported.get("files")
    if place is None or not isinstance(files, dict):
        return f"not compared with {name}, which it was imported from: it is not there any more"
    if any(not (place / each).is_file() or hash_file(place / each) != facts for each, facts in files.items()):
        return f"not compared with {name}, which it was imported from: it has changed since"
    row = FORMATS.get(str(imported.get("format")))
    if row is None or row.reader is None:
        return None
    try:
        check_import(run, row.read(place), place)
        if format == row.name and format in ("marian", "m2m100"):
            count = compare_folders(place, folder, format)
            return f"the same as {name}, which it was imported from: {count:,} tensors"
    except (RegardError, ArgumentError) as error:
        if isinstance(error, VerificationError):
            raise
        raise VerificationError(f"{place}: the run was imported from it, but it cannot be compared: {error}") from error
    return f"the run is as {name}, which it was imported from"


def check_import(run: Run, imported: Imported, place: Path) -> None:
    """Refuse a run that differs from what the folder is read as today."""
    again = "; import it again"
    if read_settings(imported.table).model != run.settings.model:
        raise VerificationError(f"{run.folder}: its model is not configured as {place} says{again}")
    if imported.tokenizers.dumps() != run.tokenizers.dumps():
        raise VerificationError(f"{run.folder}: its tokenizer is not the one of {place}{again}")
    own = run.model.state_dict()
    for name, tensor in imported.weights.items():
        if name not in own or not equal(own[name].cpu(), tensor):
            raise VerificationError(f"{run.folder}: its weight {name} is not that of {place}{again}")


def compare_folders(place: Path, folder: Path, format: str) -> int:
    """Refuse a folder whose configurations, rows or weights differ from those of the original folder.

    Return the number of compared tensors.
    """
    origin = "which the run was imported from"
    for name in VALUES.values():
        wanted, written = read_table(place / name, optional=True), read_table(folder / name, optional=True)
        for key, value in wanted.items():
            if not key.startswith("_") and key not in UNSAID and written.get(key) != value:
                values = f"{show_value(written.get(key))}, but {show_value(value)} in {place / name}"
                raise VerificationError(f"{folder / name}: {key} is {values}, {origin}")
    pairs = [(m2m100_rows(place), export_rows(folder))] if format == "m2m100" else []
    if format == "marian":
        names = [name for name in marian_files(place) if (place / name).is_file()]
        pairs = [(marian_rows(place, name), marian_rows(folder, name)) for name in names]
    for rows, own in pairs:
        for piece, row in rows.items():
            if own.get(piece) != row:
                problem = f"the row of {show_value(piece)} is {show_value(own.get(piece))}, but {row} in {place}"
                raise VerificationError(f"{folder}: {problem}, {origin}")
    theirs, ours = read_tensors(place)[0], read_tensors(folder)[0]
    shared = ours.keys() & theirs.keys()
    for name in sorted(shared):
        if not equal(ours[name], theirs[name]):
            raise VerificationError(f"{folder}: the tensor {name} is not that of {place}, {origin}")
    return len(shared)


def equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same shape and the same numbers."""
    return one.shape == other.shape and torch.equal(one.float(), other.float())
