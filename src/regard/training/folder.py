"""Claiming a run folder for one training, from before the data are prepared until the report is written.

A process checks the folder's contents while it holds the folder's lock: if two start at the same moment, one trains
and the other is refused. No file is written outside the folder, whatever links are in it. A run that fails before
training begins leaves no files.
"""

import contextlib
import errno
import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from regard.errors import CheckpointError, ConfigError, RegardError, TrainingError
from regard.io import disk, packs
from regard.training.checkpoint import Checkpoints
from regard.training.distributed import Group

FILES = ("config.toml", "base.safetensors", "tokenizer.json", "words.txt", "languages.json", "sentences.json",
         "sources.json", "alignment.json", "log.txt", "metrics.jsonl", "report.html", "baseline.json", "commands.jsonl",
         "trackers.json")  # fmt: skip
FOLDERS = ("checkpoints", "tensorboard")
OLDER = (".config.toml.new", "metrics.jsonl.part", "report.html.part")  # temporary files of earlier versions
LOCK = ".lock"
ATTEMPTS = 1000  # at creating a folder that other processes may remove


@contextlib.contextmanager
def claim(out: Path, resume: bool, group: Group | None = None) -> Iterator[None]:
    """Claim the run folder `out` inside the block, so that no other training writes to it.

    With `resume` it must hold a checkpoint; without, it must hold none. The first process of a group claims it for all.
    """
    first = group is None or group.first
    with contextlib.ExitStack() as stack:
        problem: RegardError | None = None
        if first:
            try:
                stack.enter_context(claim_alone(out, resume))
            except RegardError as error:
                problem = error
        message = str(problem) if problem else None
        if group is not None:
            message = group.same(message)
        if message is not None:
            raise problem or TrainingError(message)
        yield


@contextlib.contextmanager
def claim_alone(out: Path, resume: bool) -> Iterator[None]:
    """Lock a run folder for this process; if training fails before it begins, remove the files that it made."""
    if resume and packs.is_pack(out):
        raise CheckpointError(
            f"{out}: a pack cannot be resumed, it has no optimiser's state; fine-tune it: "
            f"--from {shlex.quote(str(out))}"
        )
    if is_no_folder(out):
        raise ConfigError("--out", f"{out} is a file, expected a folder")
    if resume and not out.exists():
        raise CheckpointError(f"{out}: no checkpoint to resume from")
    folders: list[Path] = []
    with contextlib.ExitStack() as stack:
        if not resume:
            stack.callback(remove_empty, folders, out)
        for attempt in range(ATTEMPTS):
            try:
                folders += [] if resume else disk.make_folder(out)
                check_links(out)
                stack.enter_context(disk.lock(out / LOCK))
                break
            except FileNotFoundError:  # another process failed before training and has just removed the folder
                if resume or attempt == ATTEMPTS - 1:
                    raise
            except BlockingIOError as error:
                unsure = f"; if none is, remove {out / LOCK}" if error.errno == errno.EEXIST else ""
                raise TrainingError(
                    f"{out}: another process is training into it; wait for it, or give another --out{unsure}"
                ) from None
        check_content(out, resume)
        disk.remove_leftovers(out, FILES)
        for name in OLDER:
            (out / name).unlink(missing_ok=True)
        before = set(os.listdir(out))
        try:
            yield
        except BaseException:
            if not has_begun(out):
                undo(out, before)
            raise


def is_no_folder(out: Path) -> bool:
    """Return whether the path exists and is not a folder, by one system call: other processes may change it."""
    try:
        return not stat.S_ISDIR(os.stat(out).st_mode)
    except FileNotFoundError:
        return out.is_symlink()
    except NotADirectoryError:  # a parent is a file: making the folder raises the error
        return False
    except OSError as error:
        return error.errno == errno.ELOOP


def check_content(out: Path, resume: bool) -> None:
    """Refuse to overwrite a run, or to resume a run without a checkpoint."""
    checkpoint = Checkpoints(out).last()
    if resume and checkpoint is None:
        raise CheckpointError(f"{out}: no checkpoint to resume from")
    if not resume and checkpoint is not None:
        raise TrainingError(
            f"{out}: already holds a run ({checkpoint.name}); resume it with --resume {shlex.quote(str(out))}, or give "
            "another --out"
        )


def check_links(run: Path) -> None:
    """Refuse a run folder in which a file that Regard reads or writes is a link that leads out of the folder."""
    own = [run / name for name in (LOCK, *FILES, *OLDER, *FOLDERS)]
    for name in FOLDERS:
        for folder, folders, files in os.walk(run / name):
            own += [Path(folder) / each for each in (*folders, *files)]
    conveniences = {run / "checkpoints" / name for name in ("best", "last")}
    link = disk.outward_link(run, (path for path in own if path not in conveniences))
    if link is not None:
        raise CheckpointError(
            f"{link}: a link that leads to {os.readlink(link)}, out of the run folder; remove it, or replace it with "
            "what it points to"
        )


def has_begun(out: Path) -> bool:
    """Return whether training has begun in a run folder: whether it holds a record or a checkpoint."""
    metrics = out / "metrics.jsonl"
    return (metrics.exists() and metrics.stat().st_size > 0) or Checkpoints(out).last() is not None


def undo(out: Path, before: set[str]) -> None:
    """Remove the files of a run that failed before training began, but none that were there `before`."""
    for name in {*FILES, *FOLDERS} - before:
        with contextlib.suppress(OSError):
            if (out / name).is_dir():
                shutil.rmtree(out / name)
            else:
                (out / name).unlink(missing_ok=True)


def remove_empty(folders: list[Path], out: Path) -> None:
    """Remove the folders made for a run that failed before training began, if they are empty."""
    for folder in dict.fromkeys([out, *reversed(folders)]):
        with contextlib.suppress(OSError):
            folder.rmdir()
