"""Folders that are read, and folders that are written whole or not at all: under another name, synced, and renamed."""

import contextlib
import glob
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from regard.errors import CommandError, RegardError
from regard.io import disk

DOWNLOAD = "hf download {} --local-dir {}"
HUB = re.compile(r"[\w.-]+/[\w.-]+")  # what a model is called where people download it

WRITING = "writing"  # the name of a folder that is not complete, between the final name and a number


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
    temporary = out.with_name(f".{out.name}.{WRITING}-{uuid.uuid4().hex}")
    made: list[Path] = []
    try:
        made = disk.make_folder(out.parent)
        remove_left(out)
        with disk.lock(temporary.with_suffix(".lock")):
            temporary.mkdir()
            yield temporary
            sync_all(temporary)
            check_new(out)
            temporary.rename(out)
            disk.sync(out.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError) and not isinstance(error, RegardError):
            raise CommandError(f"--out: {out} cannot be written, {disk.reason(error)}") from error
        raise


def remove_left(out: Path) -> None:
    """Remove what killed processes left of a folder."""
    for path in out.parent.glob(f".{glob.escape(out.name)}.{WRITING}-*.lock"):
        with contextlib.suppress(OSError), disk.lock(path):  # BlockingIOError: its process lives
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)


def sync_all(folder: Path) -> None:
    """Sync all files and folders to disk."""
    for path, _, files in os.walk(folder):
        for name in files:
            with open(Path(path) / name, "rb+") as file:
                os.fsync(file.fileno())
        disk.sync(Path(path))
