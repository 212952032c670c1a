"""Safe writing of files: a file is complete or unchanged, synced to disk, and never outside its folder.

A file is written under a name of its own, synced and renamed; while it is written it is locked, so that the next
process can tell what a killed one left from what a living one is writing. Everything here works on every system: where
one has no locks, or does not sync folders, the function says what is lost.
"""

import contextlib
import errno
import glob
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

try:
    import portalocker
except ImportError:  # a system without fcntl and without msvcrt
    LOCKS = False
else:
    LOCKS = True

STALE = 24 * 3600  # seconds after which a temporary file that cannot be locked is nobody's
FULL = (errno.ENOSPC, errno.EDQUOT)
UNSYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EISDIR)  # of systems that do not sync folders
NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # elsewhere `outward_link`, asked before, is all there is


def reason(error: OSError) -> str:
    """Describe in plain words why something could not be written."""
    return "the disk is full" if error.errno in FULL else error.strerror or str(error)


# ---- whole files


def write_whole(path: str | Path, content: str | bytes) -> Path:
    """Write a file and sync it to disk; it is complete, or as it was before."""
    with replacing(path) as file:
        file.write(content.encode(errors="replace") if isinstance(content, str) else content)
    return Path(path)


@contextlib.contextmanager
def replacing(path: str | Path, *, many: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that gets the name `path` when it is complete and synced, and is removed if writing fails.

    A link at `path` is replaced, not followed. What killed processes left of it is removed. Of `many` files, which can
    all be made again, none is synced, and the caller looks for what was left, once.
    """
    path = Path(path)
    if not many:
        remove_leftovers(path.parent, [path.name])
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:  # never one that is there: it may be a link to elsewhere
            try_lock(file)
            yield file
            file.flush()
            if not many:
                os.fsync(file.fileno())
            if os.name != "nt":  # Windows renames no open file
                os.replace(temporary, path)
        if os.name == "nt":
            os.replace(temporary, path)
        if not many:
            sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):  # a full disk gives no name
            error.filename, error.filename2 = str(path), None
        raise


def remove_leftovers(folder: Path, names: Iterable[str] | None = None) -> None:
    """Remove temporary files, of these names or any, that killed processes left; spare those of running processes."""
    name_set = None if names is None else set(names)
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    for each in entries:
        match = re.fullmatch(r"\.(.+)\.[0-9]+(-[0-9a-f]{8})?", each)
        if not match or (name_set is not None and match[1] not in name_set):
            continue
        path, is_held = folder / each, False
        with contextlib.suppress(OSError):  # another process may have removed it
            if not path.is_symlink():  # which is none of ours
                with open(path, "r+b") as file:
                    locked = try_lock(file)
                    is_held = locked is False or (locked is None and time.time() - path.stat().st_mtime < STALE)
                    if not is_held and os.name != "nt":  # Windows removes no open file
                        path.unlink()
            if not is_held:
                path.unlink(missing_ok=True)


def no_link(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=no_link)` without following a link of its name."""
    return os.open(path, flags | NO_LINK, 0o666)


# ---- folders


def sync(folder: Path) -> None:
    """Sync the names in a folder to disk, if the system can sync folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folder
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSYNCED:
            error.filename = str(folder)
            raise
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Sync a folder to disk, with everything in it."""
    for path, _, files in os.walk(folder):
        for name in files:
            with open(Path(path) / name, "r+b") as file:  # Windows syncs only what can be written
                os.fsync(file)
        sync(Path(path))


@contextlib.contextmanager
def temporary_folder(parent: Path, beginning: str) -> Iterator[Path]:
    """Make a folder whose name begins so, which is removed behind the block unless it has another name by then.

    What killed processes left of such folders is removed; the lock beside each spares what a living one writes.
    """
    for left in parent.glob(f"{glob.escape(beginning)}*.lock"):
        with contextlib.suppress(OSError), lock(left):  # BlockingIOError: its process lives
            shutil.rmtree(left.with_name(left.name.removesuffix(".lock")), ignore_errors=True)
    folder = parent / f"{beginning}{secrets.token_hex(16)}"
    try:
        with lock(parent / f"{folder.name}.lock"):
            folder.mkdir()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and its parents, synced; return the new ones, the uppermost first.

    FileNotFoundError: another process removed one of them meanwhile.
    """
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    folders = []
    for each in reversed(missing):
        try:
            each.mkdir()
        except FileExistsError:  # another process was faster
            continue
        folders.append(each)
        sync(each.parent)
    if missing and not stat.S_ISDIR(os.stat(missing[0]).st_mode):  # FileNotFoundError: it was removed at once
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(missing[0]))
    return folders


def outward_link(folder: Path, paths: Iterable[Path]) -> Path | None:
    """Return the first of these paths that is a link out of the folder, or a link in a circle."""
    home = folder.resolve()
    for path in paths:
        if path.is_symlink():
            try:
                target = path.resolve()
            except (OSError, RuntimeError):  # in a circle, up to Python 3.12
                return path
            if target.is_symlink() or not target.is_relative_to(home):  # still a link: in a circle, from 3.13 on
                return path
    return None


# ---- one process at a time


def try_lock(file: IO[Any]) -> bool | None:
    """Lock an open file until it is closed and return whether that worked; None if files cannot be locked."""
    if not LOCKS:
        return None
    try:
        portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        return False
    except (portalocker.LockException, OSError):  # a file system without locks
        return None
    return True


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path` inside the block, then remove it; BlockingIOError if another process holds it.

    Where files cannot be locked, that the file is there is the lock (errno EEXIST); one that a killed process left has
    to be removed by hand.
    """
    while True:
        file, new = open_lock(path)
        locked = try_lock(file)
        if locked is False or (locked is None and not new):
            file.close()
            number = errno.EWOULDBLOCK if locked is False else errno.EEXIST
            raise BlockingIOError(number, os.strerror(number), str(path))
        # Whoever held it before may have removed it since it was opened: then another process has another one.
        with contextlib.suppress(FileNotFoundError):
            if locked is None or os.path.samestat(os.fstat(file.fileno()), os.stat(path, follow_symlinks=False)):
                break
        file.close()
    try:
        yield
    finally:
        if os.name == "nt":
            file.close()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        file.close()


def open_lock(path: Path) -> tuple[BinaryIO, bool]:
    """Open a lock file and return whether it is new; an existing one keeps its contents, as it may not be a lock."""
    flags = os.O_RDWR | NO_LINK | getattr(os, "O_BINARY", 0)
    while True:
        with contextlib.suppress(FileExistsError):
            return os.fdopen(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), "r+b"), True
        with contextlib.suppress(FileNotFoundError):  # whoever held it has just removed it
            return os.fdopen(os.open(path, flags), "r+b"), False
