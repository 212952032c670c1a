"""Checkpoints: folders that are whole or not there, and refused by name when a byte of them has changed.

    checkpoints/step-000500/{model.safetensors, trainer.safetensors, manifest.json}      best → step-…   last → step-…

A folder is written under another name, synced, and renamed; the manifest holds the size and the SHA-256 of every file
and is itself written in one canonical form. Nothing that is loaded runs code: tensors are safetensors, the rest JSON.
"""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from regard.errors import TrainingError
from regard.training.manifest import FILES, FORMAT, canonical, read_manifest
from regard.training.weights import load_weights, read_tensors, weights_of

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "canonical",
    "load_weights",
    "read_checkpoint",
    "read_manifest",
    "weights_of",
]


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds."""

    folder: Path
    manifest: dict[str, Any]
    model: dict[str, Tensor]
    trainer: dict[str, Tensor]

    @property
    def step(self) -> int:
        """Updates that made it."""
        return int(self.manifest["step"])


class Checkpoints:
    """The checkpoints of a run folder."""

    def __init__(self, run: Path, keep: int = 2):
        self.folder = run / "checkpoints"
        self.keep = keep

    def clean(self) -> None:
        """Remove what a killed process left half written, and put back what it was about to replace."""
        for old in self.folder.glob(".old-*"):
            name = self.folder / old.name.removeprefix(".old-")
            if not name.exists():
                old.rename(name)
        for left in (each for kind in ("writing", "old", "gone") for each in self.folder.glob(f".{kind}-*")):
            shutil.rmtree(left, ignore_errors=True)

    def write(
        self, name: str, model: Mapping[str, Tensor], trainer: Mapping[str, Tensor], manifest: Mapping[str, Any]
    ) -> Path:
        """A new checkpoint folder, whole or not at all."""
        target, writing = self.folder / name, self.folder / f".writing-{name}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(writing, ignore_errors=True)
            writing.mkdir()
            files = {}
            for file, tensors in zip(FILES, (model, trainer), strict=True):
                content = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
                write_synced(writing / file, content)
                files[file] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            write_synced(writing / "manifest.json", canonical({"format": FORMAT, **manifest, "files": files}))
            sync(writing)
            if target.exists():  # the same step again, after a resume: the old one stays until the new one is whole
                old = self.folder / f".old-{name}"
                shutil.rmtree(old, ignore_errors=True)
                target.rename(old)
                writing.rename(target)
                shutil.rmtree(old, ignore_errors=True)
            else:
                writing.rename(target)
            sync(self.folder)
        except OSError as error:
            shutil.rmtree(writing, ignore_errors=True)
            raise self.lost(target, error) from error
        return target

    def lost(self, target: Path, error: OSError) -> TrainingError:
        """What to say when a checkpoint could not be written."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        last = self.last()
        safe = f"the last whole checkpoint is {last}" if last else "no checkpoint was written before"
        why = "the disk is full" if full else error.strerror or str(error)
        return TrainingError(f"{target}: not written, {why}; {safe}. Make room and go on with --resume")

    def point(self, link: str, name: str) -> None:
        """Let `best` or `last` point at a checkpoint, from one moment to the next."""
        new = self.folder / f".new-{link}"
        try:
            new.unlink(missing_ok=True)
            new.symlink_to(name)
            os.replace(new, self.folder / link)
            sync(self.folder)
        except OSError as error:
            raise self.lost(self.folder / link, error) from error

    def mend(self, last: str, best_step: int) -> None:
        """Let the links point where they would, had a kill not come between a checkpoint and its links."""
        best = f"step-{best_step:06d}"
        if self.linked("last") != last:
            self.point("last", last)
        if self.linked("best") not in (best, "average") and (self.folder / best).is_dir():
            self.point("best", best)

    def prune(self, every: int = 1) -> None:
        """Remove all but the newest ones, and what a link points at.

        Of those before the last only multiples of `every` count: a run that was stopped in between and resumed keeps,
        and averages, what one that was not would.
        """
        steps = self.steps()
        regular = [each for each in steps[:-1] if int(each.name[5:]) % every == 0]
        kept = {self.linked("best"), self.linked("last"), *(each.name for each in steps[-1:])}
        kept |= {each.name for each in regular[max(0, len(regular) - self.keep + 1) :]}
        for old in steps:
            if old.name not in kept:
                # Renamed first, so that a kill in between leaves nothing that looks like a checkpoint.
                gone = self.folder / f".gone-{old.name}"
                shutil.rmtree(gone, ignore_errors=True)
                with contextlib.suppress(OSError):  # what cannot be removed now is no reason to stop
                    old.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)

    def steps(self) -> list[Path]:
        """All checkpoints of steps, oldest first."""
        found = [each for each in self.folder.glob("step-*") if each.name[5:].isdecimal()]
        return sorted(found, key=lambda each: int(each.name[5:]))

    def linked(self, link: str) -> str | None:
        """The name that `best` or `last` points at."""
        path = self.folder / link
        return os.readlink(path) if path.is_symlink() else None

    def last(self) -> Path | None:
        """The newest whole checkpoint: where `last` points, or a newer one that was renamed just before a kill."""
        steps = self.steps()
        return steps[-1] if steps else None

    def best(self) -> Path | None:
        """Where `best` points; the newest one where there is no best yet."""
        name = self.linked("best")
        return self.folder / name if name and (self.folder / name).is_dir() else self.last()


def read_checkpoint(folder: Path, trainer: bool = True) -> Checkpoint:
    """A checkpoint, every byte of it checked; without `trainer` only what a model needs is read."""
    manifest = read_manifest(folder)
    model = read_tensors(folder / FILES[0], manifest["files"])
    return Checkpoint(folder, manifest, model, read_tensors(folder / FILES[1], manifest["files"]) if trainer else {})


def write_synced(path: Path, content: bytes) -> None:
    """A file that is on the disk when this returns."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(folder: Path) -> None:
    """A folder's names, on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
