"""Folders of models: read, written whole or not at all, and the manifest of those that were exported. Imports no torch.

A folder is written under another name, synced, and renamed. The manifest says what was exported from which run, how it
was verified, and has a hash of every file.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard import __version__
from regard.errors import CommandError, DataError, RegardError
from regard.io import disk, packs, reading

FILE = "manifest.json"
KEYS = {"format": str, "regard": str, "run": dict, "facts": dict, "files": dict}
DOWNLOAD = "hf download {} --local-dir {}"
HUB = re.compile(r"[\w.-]+/[\w.-]+")  # what a model is called where people download it


def is_export(folder: str | Path) -> bool:
    """Return whether a folder looks like one that was exported: it has a manifest, and is no run."""
    return (Path(folder) / FILE).is_file() and not (Path(folder) / "config.toml").is_file()


def describe_run(run: Path, checkpoint: Path, step: int, out: Path) -> dict[str, Any]:
    """Say which run a folder comes from: its checkpoint, by name and hash, and the way there from beside the folder."""
    try:
        way = Path(os.path.relpath(run, Path(os.path.abspath(out)).parent)).as_posix()
    except ValueError:  # another drive
        way = run.name
    return {"folder": way, "checkpoint": checkpoint.name, "step": step, **hash_file(checkpoint / "manifest.json")}


def write_manifest(
    folder: Path, *, format: str, run: Mapping[str, Any], facts: Mapping[str, Any], verification: Any
) -> None:
    """Write the manifest of a folder that is complete; `facts` are those of its format."""
    files = {
        path.relative_to(folder).as_posix(): hash_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / FILE
    }
    content = {
        "format": format,
        "regard": __version__,
        "run": dict(run),
        "facts": dict(facts),
        "verification": verification,
        "files": files,
    }
    disk.write_whole(folder / FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_manifest(folder: str | Path, format: str | None = None) -> dict[str, Any]:
    """Read the manifest of an exported folder, and check every file of it; a DataError says what is wrong."""
    folder = Path(folder)
    if not is_export(folder):
        raise DataError(f"{folder}: not an exported folder, it has no {FILE}; regard export makes one")
    content = reading.read_json(folder / FILE, DataError)
    for key, kind in KEYS.items():
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise DataError(f"{folder / FILE}: no {key} in it; not the manifest of an exported folder")
    if format is not None and content["format"] != format:
        raise DataError(f"{folder}: exported to {content['format']}, expected {format}")
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {FILE}
    for name in sorted(names | content["files"].keys()):
        if name not in names:
            raise DataError(f"{folder / name}: missing; export the run again")
        if content["files"].get(name) != hash_file(folder / name):
            raise DataError(f"{folder / name}: changed since it was exported; export the run again")
    return content


def hash_file(path: Path) -> dict[str, Any]:
    """Return the size and the SHA-256 of a file, in a folder or in a pack."""
    try:
        with packs.open_binary(path) as (file, size):
            return {"bytes": size, "sha256": packs.hash_start(file, size)}
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None


def check_model_folder(folder: Path) -> None:
    """Refuse what is no folder; a name as on a hub gets the command that downloads it."""
    if folder.is_dir():
        return
    if os.path.lexists(folder):
        raise CommandError(f"{folder}: a file, expected a folder with a model in it")
    name = folder.as_posix()
    if HUB.fullmatch(name):
        command = DOWNLOAD.format(name, folder.name)
        raise CommandError(f"{name}: no such folder, and nothing is downloaded; run {command} and import that folder")
    raise CommandError(f"{folder}: no such folder, expected one with a model in it")


def check_new(out: Path) -> None:
    """Refuse a name that is taken."""
    if os.path.lexists(out):
        raise CommandError(f"--out: {out} already exists; give another name, or remove it")


@contextlib.contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Make a temporary folder beside `out`, which gets that name at the end of the block, and is removed on an error.

    What killed processes left of it is removed; a lock spares what a living one writes.
    """
    check_new(out)
    out = Path(os.path.abspath(out))  # a folder such as `runs/..` has a name of its own
    made: list[Path] = []
    try:
        made = disk.make_folder(out.parent)
        with disk.temporary_folder(out.parent, f".{out.name}.writing-") as temporary:
            yield temporary
            disk.sync_all(temporary)
            check_new(out)
            temporary.rename(out)
            disk.sync(out.parent)
    except BaseException as error:
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError) and not isinstance(error, RegardError):
            raise CommandError(f"--out: {out} cannot be written, {disk.reason(error)}") from error
        raise
