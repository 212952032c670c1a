"""Pack a run into one file to share: `regard.io.packs` describes how it is read.

It holds one checkpoint without the optimiser, the tokenizer, the configuration, the alignment settings, and a card. The
card has the names, sizes and checksums of the training files, but no paths. Equal runs give equal packs.
"""

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO

import tomli_w

import regard
from regard.alignment import extraction
from regard.config import read
from regard.data import run_languages, sentence_split, unknown_words
from regard.errors import CommandError, DataError, RegardError
from regard.evaluation import METRICS, measure
from regard.interop.formats import hash_file
from regard.io import disk, packs, reading
from regard.tasks import CARD, ON_CARD, require_run, summarise
from regard.training import BASE, Checkpoints, checkpoint_files, read_checkpoint, read_manifest

FILES = (unknown_words.FILE, run_languages.FILE, sentence_split.FILE)
ALONGSIDE = ("tokenizer.json", *FILES, extraction.ALIGNMENT_FILE)
DATE = (1980, 1, 1, 0, 0, 0)  # of every member: the earliest date that a zip file can store


def pack(
    run: str | Path,
    out: str | Path,
    *,
    checkpoint: str = "best",
    licence: str | None = None,
    scores: str | Path | None = None,
) -> Path:
    """Write a run folder to one file, completely or not at all; `scores` is a file that `regard eval --json` wrote."""
    folder, out = Path(run), Path(out)
    require_run(folder)
    if packs.is_pack(folder):
        raise CommandError(f"{folder}: a pack already, expected a run folder; copy it")
    if os.path.lexists(out):
        raise CommandError(f"--out: {out} exists already; give another name, or remove it")
    evaluation = None if scores is None else reading.read_json(scores, CommandError)
    path = Checkpoints(folder).find(checkpoint)
    parameters = sum(tensor.numel() for tensor in read_checkpoint(path, trainer=False).model.values())
    config, summary = read(folder / "config.toml"), summarise(folder).table()
    # For the pack's readers: what the run is, its training data, its scores, and its licence.
    card: dict[str, Any] = {"format": 1, "regard": regard.__version__, "task": summary["task"], "kind": summary["kind"]}
    card |= {"parameters": parameters, "checkpoint": path.name}
    card |= {key: summary[key] for key in ("step", *ON_CARD)} | {"licence": licence}
    card["signatures"] = {key: measure(key, ["a"], ["a"]).signature for key in summary["scores"] if key in METRICS}
    card["data"] = [describe_file(Path(each)) for each in sorted(set(paths_in(config.get("data", {}))))]
    if evaluation is not None:
        card["evaluation"] = without_folders(evaluation)
    inside = f"checkpoints/{path.name}"
    members: dict[str, bytes | Path] = {
        CARD: (json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode(),
        "config.toml": tomli_w.dumps(without_folders(config)).encode(),
        **{name: folder / name for name in ALONGSIDE if packs.is_file(folder / name)},
        "checkpoints/best.json": checkpoint_files.best_json(path),
        **({BASE: folder / BASE} if "base" in read_manifest(path) else {}),  # the base weights that its adapters change
        f"{inside}/manifest.json": path / "manifest.json",
        f"{inside}/model.safetensors": path / "model.safetensors",
    }
    try:
        with disk.replacing(out) as file:
            write_members(file, members)
    except OSError as error:
        raise RegardError(f"{out}: not written, {disk.reason(error)}") from error
    return out


def write_members(file: BinaryIO, members: Mapping[str, bytes | Path]) -> None:
    """Write a zip file of uncompressed members, ending with a checksum."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, whatever the system, so that packs are equal
            archive.writestr(entry, content if isinstance(content, bytes) else content.read_bytes())
        archive.comment = packs.MARK + b"0" * packs.DIGITS
    file.flush()
    with open(file.name, "r+b") as written:
        size = written.seek(0, os.SEEK_END) - packs.DIGITS
        written.seek(0)
        digest = packs.hash_start(written, size)
        written.seek(size)
        written.write(digest.encode())


def describe_file(path: Path) -> dict[str, Any]:
    """Describe a data file by its name, size and checksum; by its name alone if it is missing or a folder."""
    try:
        return {"file": path.name, **hash_file(path)}
    except DataError:
        return {"file": path.name}


# ---- paths


def paths_in(value: Any) -> list[str]:
    """List the absolute paths among the values of a table."""
    if isinstance(value, str):
        return [value] if is_path(value) else []
    values = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [path for each in values for path in paths_in(each)]


def without_folders(value: Any) -> Any:
    """Return a table with every absolute path reduced to the file's name."""
    if isinstance(value, str):
        return (PureWindowsPath(value) if "\\" in value else PurePosixPath(value)).name if is_path(value) else value
    if isinstance(value, Mapping):
        return {key: without_folders(each) for key, each in value.items()}
    return [without_folders(each) for each in value] if isinstance(value, list) else value


def is_path(text: str) -> bool:
    """Return whether a text is an absolute path on any operating system."""
    return PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute()
