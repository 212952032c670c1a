"""The manifest of an exported folder: what was exported from which run, how it was verified, and a hash of every file.

Imports no torch.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard import __version__
from regard.errors import DataError
from regard.io import disk, packs, reading

FILE = "manifest.json"
PART = 2**24  # bytes that are hashed at a time
KEYS = {"format": str, "regard": str, "run": dict, "facts": dict, "files": dict}


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
    digest = hashlib.sha256()
    try:
        with packs.open_binary(path) as (file, size):
            left = size
            while left and (part := file.read(min(left, PART))):
                digest.update(part)
                left -= len(part)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    return {"bytes": size, "sha256": digest.hexdigest()}
