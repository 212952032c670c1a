"""Checkpoints: folders that are complete or absent, and that Regard refuses to load if a byte of them has changed.

    checkpoints/step-000500/{model.safetensors, trainer.safetensors, manifest.json}      average/{…}
                best.json (the best one's name, hash)  best → step-…   last → step-… (conveniences)
    base.safetensors (only with adapters: the frozen weights that they update, which checkpoints do not hold)

A checkpoint folder is written under a temporary name, synced, and renamed. Its manifest holds the size and the SHA-256
of every file, in one canonical form. `best.json` holds the name of the best checkpoint and the SHA-256 of its manifest.
The links are for people; they exist if the file system supports them. Code follows them only if there is no best.json,
so that a copy of a run loads the same model, whatever tool made it. Loading never runs code: tensors are in
safetensors files, everything else in JSON.

A checksum shows that a file is unchanged, not who wrote it. A manifest may come from a stranger, so every value is
checked before use. Only functions that read or write tensors import torch; reading a manifest does not.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.config import show_value
from regard.errors import CheckpointError, TrainingError
from regard.io import disk, packs, reading

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
FILES = ("model.safetensors", "trainer.safetensors")
BASE = "base.safetensors"  # in the run folder: the weights that adapters change
COUNT = 2**63  # every count is below this
NAME = re.compile(r"step-(?P<step>[0-9]{6}|[1-9][0-9]{6,17})|average")  # of a checkpoint's folder


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint folder."""

    folder: Path
    manifest: dict[str, Any]
    model: "dict[str, Tensor]"
    trainer: "dict[str, Tensor]"

    @property
    def step(self) -> int:
        """Return the number of updates before the checkpoint."""
        return int(self.manifest["step"])


class Score(NamedTuple):
    """The best score of a run up to a checkpoint, its step, and its loss, which breaks ties."""

    value: float
    step: int
    loss: float | None


@dataclass(frozen=True)
class BestRecord:
    """The contents of best.json: which checkpoint is the best, and the SHA-256 of its manifest."""

    name: str
    manifest: str
    score: Score | None  # the score to beat, even if the folder is gone


class Checkpoints:
    """The checkpoints of a run folder."""

    def __init__(self, run: Path, keep: int = 2):
        self.folder = run / "checkpoints"
        self.keep = keep

    # ---- reading

    def find(self, which: str) -> Path:
        """Find the checkpoint `best`, `last` or one by name, such as step-000500, or raise a CheckpointError."""
        folder = {"best": self.best, "last": self.last}.get(which, lambda: self.folder / which)()
        if folder is None or not packs.is_folder(folder):
            raise CheckpointError(f"{self.folder}: no checkpoint {which} in it")
        return folder

    def steps(self) -> list[Path]:
        """List all checkpoints step-…, oldest first."""
        names = (name for name in packs.list_names(self.folder) if name.startswith("step-") and NAME.fullmatch(name))
        folders = [self.folder / name for name in names if packs.is_folder(self.folder / name)]
        return sorted(folders, key=lambda each: int(each.name[5:]))

    def last(self) -> Path | None:
        """Return the newest complete checkpoint."""
        steps = self.steps()
        return steps[-1] if steps else None

    def best(self) -> Path | None:
        """Return the checkpoint with the best score, or the newest one if none has a score."""
        record = self.best_record()
        if record is None:
            return self.best_unrecorded()
        for each in (self.last(), self.folder / "average"):
            # The process was killed after writing this checkpoint and before naming it in best.json.
            if each is not None and packs.is_folder(each):
                with contextlib.suppress(CheckpointError):  # damaged: reading it later raises the error
                    if read_manifest(each).get("better_than") == record.manifest:
                        return each
        for each in (self.folder / record.name, self.folder / f".old-{record.name}"):
            if digest(each / "manifest.json") == record.manifest:
                return each
        path = self.folder / record.name
        if not packs.is_folder(path):
            raise missing_error(path, "best.json says that it is the best checkpoint")
        raise CheckpointError(
            f"{path / 'manifest.json'}: not the one that best.json names as the best checkpoint; put that one back, or "
            "choose another one (--checkpoint last)"
        )

    def best_record(self) -> BestRecord | None:
        """Read best.json; return None if it does not exist."""
        path = self.folder / "best.json"
        if not os.path.lexists(path) and not packs.is_file(path):
            return None
        try:
            table = read_canonical(path, "the record of the best checkpoint")
        except CheckpointError as error:
            raise CheckpointError(f"{error}; remove it, and the best checkpoint is found from the manifests") from None
        where = str(path)
        name = check_key(
            table,
            "checkpoint",
            lambda name: isinstance(name, str) and bool(NAME.fullmatch(name)),
            "a name such as step-000500, or average",
            where,
        )
        manifest = check_key(table, "manifest", str, "a checksum", where)
        return BestRecord(name, manifest, parse_score(check_key(table, "counters", dict, "a table", where), where))

    def best_average(self) -> Score | None:
        """Return the score of the checkpoint `average` if it is the best one, even if its folder is missing."""
        record = self.best_record()
        with contextlib.suppress(CheckpointError):
            best = self.best()
            if best is not None and best.name.removeprefix(".old-") == "average":
                return read_score(best)
        return record.score if record is not None and record.name == "average" else None

    def best_unrecorded(self) -> Path | None:
        """Find the best checkpoint of a run without best.json: from the link, or from the manifests' counters."""
        last = self.last()
        if last is None:
            return None
        best = read_score(last)
        if (name := self.linked("best")) and NAME.fullmatch(name):
            newer = self.folder / step_name(best.step if best else 0)
            if name != "average" and int(newer.name[5:]) > int(name[5:]) and newer.is_dir():
                return newer  # the process was killed before it updated the link
            for each in (self.folder / name, self.folder / f".old-{name}"):
                if each.is_dir():
                    return each
            raise missing_error(self.folder / name, "the link best leads to it")
        average = self.folder / "average"
        if average.is_dir():  # the mean of checkpoints, in a run that has lost its links
            own, step = read_score(average), read_manifest(average)["step"]
            same = last.with_name(step_name(step))
            beaten = step < int(last.name[5:]) and best != own  # a later checkpoint was better
            if own and own.step == step and not beaten and not (same.is_dir() and read_score(same) == own):
                return average
        if best is None:
            return last
        folder = self.folder / step_name(best.step)
        if not folder.is_dir():
            raise missing_error(folder, f"{last.name} says that it is the best checkpoint")
        return folder

    def linked(self, link: str) -> str | None:
        """Return the name that the link `best` or `last` points to, or None if there is no such link."""
        path = self.folder / link
        return os.readlink(path) if path.is_symlink() else None

    # ---- writing

    def clean(self) -> None:
        """Remove partly written files of a killed process, and restore the checkpoint that it was replacing."""
        for old in self.folder.glob(".old-*"):
            name = self.folder / old.name.removeprefix(".old-")
            if not name.exists():
                old.rename(name)
        for leftover in (each for kind in ("writing", "old", "gone") for each in self.folder.glob(f".{kind}-*")):
            shutil.rmtree(leftover, ignore_errors=True)
        for link in self.folder.glob(".new-*"):
            link.unlink(missing_ok=True)
        disk.remove_leftovers(self.folder, ["best.json"])

    def write(
        self, name: str, model: "Mapping[str, Tensor]", trainer: "Mapping[str, Tensor]", manifest: Mapping[str, Any]
    ) -> Path:
        """Write a new checkpoint folder atomically."""
        from safetensors.torch import save

        target, writing, old = (self.folder / f"{prefix}{name}" for prefix in ("", ".writing-", ".old-"))
        try:
            disk.make_folder(self.folder)
            shutil.rmtree(writing, ignore_errors=True)
            writing.mkdir()
            files = {}
            for file, tensors in zip(FILES, (model, trainer), strict=True):
                content = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
                write_synced(writing / file, content)
                files[file] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            write_synced(writing / "manifest.json", canonical({"format": FORMAT, **manifest, "files": files}))
            disk.sync(writing)
            if target.exists():  # keep the old folder of this name until the new one is complete
                shutil.rmtree(old, ignore_errors=True)
                target.rename(old)
            writing.rename(target)
            disk.sync(self.folder)
            shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            shutil.rmtree(writing, ignore_errors=True)
            if old.exists() and not target.exists():
                with contextlib.suppress(OSError):
                    old.rename(target)
            raise self.write_error(target, error) from error
        return target

    def write_error(self, target: Path, error: OSError) -> TrainingError:
        """Build the error for a checkpoint that could not be written."""
        last = self.last()
        safe = f"the last complete checkpoint is {last}" if last else "no checkpoint was written before"
        again = "resume with --resume" if last else "start again"
        return TrainingError(f"{target}: not written, {disk.reason(error)}; {safe}. Make room, then {again}")

    def mark_best(self, name: str) -> None:
        """Record a checkpoint as the best one."""
        path = self.folder / "best.json"
        try:
            disk.write_whole(path, best_json(self.folder / name))
        except OSError as error:
            raise self.write_error(path, error) from error
        self.point("best", name)

    def point(self, link: str, name: str) -> None:
        """Point the link `best` or `last` at a checkpoint, atomically, if the file system supports links."""
        new, path = self.folder / f".new-{link}", self.folder / link
        if path.is_dir() and not path.is_symlink():  # a tool copied the run and replaced the link by a folder
            if not (path / "manifest.json").is_file():
                return  # not a checkpoint
            self.remove(path)
        try:
            new.unlink(missing_ok=True)
            new.symlink_to(name)
            os.replace(new, path)
            disk.sync(self.folder)
        except (OSError, NotImplementedError):
            for each in (new, path):  # no link is better than one that points to the wrong checkpoint
                with contextlib.suppress(OSError):
                    each.unlink(missing_ok=True)

    def repair(self, last: str) -> None:
        """Repair best.json and the links if the process was killed after it wrote a checkpoint and before these."""
        if self.linked("last") != last:
            self.point("last", last)
        record = self.best_record()
        try:
            best = self.best()
        except CheckpointError:
            return  # the best checkpoint is missing; best.json still names it until a better one is saved
        assert best is not None
        if record is None and read_score(best) is None:
            return
        if record is None or digest(best / "manifest.json") != record.manifest:
            self.mark_best(best.name)
        elif self.linked("best") != best.name:
            self.point("best", best.name)

    def prune(self, every: int = 1) -> None:
        """Remove all checkpoints but the newest `keep` and the best one.

        Before the last checkpoint, keep only steps that are multiples of `every`: a run that was stopped in between and
        resumed then keeps, and averages, the same checkpoints as an uninterrupted run.
        """
        steps, best = self.steps(), self.best_record()
        regular = [each for each in steps[:-1] if int(each.name[5:]) % every == 0]
        names = {best and best.name, *(each.name for each in steps[-1:])}
        names |= {each.name for each in regular[max(0, len(regular) - self.keep + 1) :]}
        for old in steps:
            if old.name not in names:
                self.remove(old)

    def remove(self, folder: Path) -> None:
        """Remove a checkpoint; rename it first, so that a partly removed folder is not taken for a checkpoint."""
        trash = self.folder / f".gone-{folder.name}"
        shutil.rmtree(trash, ignore_errors=True)
        with contextlib.suppress(OSError):  # a checkpoint that cannot be removed must not stop training
            folder.rename(trash)
            disk.sync(self.folder)
            shutil.rmtree(trash, ignore_errors=True)


def best_json(folder: Path) -> bytes:
    """Return the best.json that names a checkpoint."""
    manifest = read_manifest(folder)
    counters = {key: manifest.get("counters", {}).get(key) for key in ("best", "best_step", "best_loss")}
    record = {"checkpoint": folder.name, "counters": counters, "step": manifest["step"]}
    return canonical({"format": FORMAT, **record, "manifest": digest(folder / "manifest.json")})


def step_name(step: int) -> str:
    """Name the checkpoint of a step."""
    return f"step-{step:06d}"


def missing_error(path: Path, why: str) -> CheckpointError:
    """Build the error for a best checkpoint that is missing."""
    return CheckpointError(f"{path}: missing, but {why}; put it back, or choose another one (--checkpoint last)")


def read_score(folder: Path) -> Score | None:
    """Read the best score so far from a checkpoint's manifest; return None if there is none."""
    return parse_score(read_manifest(folder).get("counters", {}), str(folder / "manifest.json"))


def parse_score(counters: Mapping[str, Any], where: str) -> Score | None:
    """Read and check the score that counters hold."""
    if counters.get("best") is None:
        return None
    value = check_key(counters, "best", is_number, "a number", where, "counters.")
    step = check_key(counters, "best_step", is_count, "a number of steps", where, "counters.")
    loss = counters.get("best_loss")
    if loss is not None:
        check_key(counters, "best_loss", is_number, "a number or null", where, "counters.")
    return Score(value, step, loss)


def read_checkpoint(folder: Path, trainer: bool = True, merge: bool = True) -> Checkpoint:
    """Read a checkpoint and check its checksums; without `trainer`, skip the optimiser's state.

    With `merge`, merge adapters into the weights, which are then those of a plain model.
    """
    from regard.training.adapters import merge_weights
    from regard.training.weights import read_tensors

    manifest = read_manifest(folder)
    model = read_tensors(folder / FILES[0], manifest["files"])
    if merge and "base" in manifest:
        model = merge_weights(read_base(folder, manifest), model, str(folder / FILES[0]))
    return Checkpoint(folder, manifest, model, read_tensors(folder / FILES[1], manifest["files"]) if trainer else {})


def read_base(folder: Path, manifest: Mapping[str, Any]) -> "dict[str, Tensor]":
    """Read the base weights of a checkpoint's adapters; refuse a file other than the one they were trained with."""
    from regard.training.weights import read_tensors

    path = plain_weights_file(folder, manifest)
    if not packs.is_file(path):
        raise CheckpointError(f"{path}: missing, the weights that the adapters of {folder.name} change; put it back")
    return read_tensors(path, {BASE: manifest["base"]})


def digest(path: Path) -> str | None:
    """Compute the SHA-256 of a small file; return None if it cannot be read."""
    try:
        return hashlib.sha256(reading.read_bytes(path)).hexdigest()
    except (OSError, reading.Unreadable):
        return None


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and sync it to the disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


# ---- manifests


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check a checkpoint's manifest; its step must be the one in the folder's name."""
    path = folder / "manifest.json"
    manifest, where = read_canonical(path, "a checkpoint's manifest"), str(path)
    check_key(manifest, "step", is_count, "a number of steps", where)
    check_key(manifest, "files", dict, "a table of files", where)
    files = [(manifest["files"], name, "files.") for name in FILES]
    for table, name, part in [*files, (manifest, "base", "")] if "base" in manifest else files:
        check_key(table, name, dict, "a table with bytes and sha256", where, part)
        check_key(table[name], "bytes", is_count, "a number of bytes", where, f"{part}{name}.")
        check_key(table[name], "sha256", str, "a checksum", where, f"{part}{name}.")
    for key in ("counters", "task"):
        if key in manifest:
            check_key(manifest, key, dict, "a table", where)
    for key, right, expected in TASK_CHECKS:
        if key in manifest.get("task", {}):
            check_key(manifest["task"], key, right, expected, where, "task.")
    match = NAME.fullmatch(folder.name.removeprefix(".old-"))
    if match and match["step"] and manifest["step"] != int(match["step"]):
        raise CheckpointError(
            f"{path}: from step {manifest['step']}; the folder {folder.name} was renamed or exchanged; give it its own "
            "name back"
        )
    return manifest


def plain_weights_file(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """Return the file with the weights of a plain model: the run's base.safetensors for a checkpoint of adapters."""
    return folder.parent.parent / BASE if "base" in manifest else folder / FILES[0]


def read_canonical(path: Path, what: str) -> dict[str, Any]:
    """Read and check a file that `canonical` encoded; `what` describes it in error messages."""
    try:
        raw = reading.read_bytes(path)
        table = reading.parse_json(raw)
        if not isinstance(table, dict) or canonical({k: v for k, v in table.items() if k != "sha256"}) != raw:
            raise ValueError
        version = table["format"]
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}, expected {what}") from None
    except reading.Unreadable as error:
        raise CheckpointError(f"{path}: damaged, {error}") from None
    except (ValueError, KeyError, RecursionError):
        raise CheckpointError(f"{path}: damaged, its contents do not match its own checksum") from None
    if version != FORMAT or not is_count(version):
        raise CheckpointError(f"{path}: format {show_value(version)} given, this version of regard reads {FORMAT}")
    return table


def canonical(manifest: Mapping[str, Any]) -> bytes:
    """Encode a manifest as canonical JSON: keys sorted, with its own checksum."""
    body = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=True)
    checksum = hashlib.sha256(body.encode()).hexdigest()
    return (json.dumps({**manifest, "sha256": checksum}, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def check_key(
    table: Mapping[str, Any], key: str, right: type | Callable[[Any], bool], expected: str, where: str, path: str = ""
) -> Any:
    """Return the value of a key, or raise a CheckpointError that names the expected kind of value."""
    if key not in table:
        raise CheckpointError(f"{where}: {path}{key} is missing, expected {expected}")
    if not (isinstance(table[key], right) if isinstance(right, type) else right(table[key])):
        raise CheckpointError(f"{where}: {path}{key} is {show_value(table[key])}, expected {expected}")
    return table[key]


def is_count(value: object) -> bool:
    """Return whether a value is a non-negative integer."""
    return type(value) is int and 0 <= value < COUNT


def is_number(value: object) -> bool:
    """Return whether a value is a number."""
    return type(value) is float or (type(value) is int and abs(value) < COUNT)


def are_labels(value: object) -> bool:
    """Return whether a value is a non-empty list of different strings."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value) and len({*value}) == len(value) > 0


TASK_CHECKS: tuple[tuple[str, type | Callable[[Any], bool], str], ...] = (
    ("model", dict, "a table of options"),
    ("tokenizer", lambda value: value is None or isinstance(value, str), "a checksum, or null"),
    ("labels", are_labels, "a list of different texts"),
)
