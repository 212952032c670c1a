"""Safe writing of files: a file is complete or unchanged, synced to disk, and never outside its folder.

Regard writes a file under a temporary name, syncs it and renames it. It locks the file while writing, so that another
process can tell the leftovers of a killed process from a file still being written. Everything here works on every
system; where a system has no locks or cannot sync folders, the docstring says what is lost.
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

STALE = 24 * 3600  # seconds after which a temporary file counts as abandoned if files cannot be locked
FULL = (errno.ENOSPC, errno.EDQUOT)
UNSYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EISDIR)  # errors of systems that cannot sync folders
NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # systems without it rely on an earlier check with `outward_link`


def reason(error: OSError) -> str:
    """Describe in plain words why a write failed."""
    return "the disk is full" if error.errno in FULL else error.strerror or str(error)


# ---- whole files


def write_whole(path: str | Path, content: str | bytes) -> Path:
    """Write a file atomically and sync it to disk: it is complete, or as it was before."""
    with replacing(path) as file:
        file.write(content.encode(errors="replace") if isinstance(content, str) else content)
    return Path(path)


@contextlib.contextmanager
def replacing(path: str | Path, *, many: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file; rename it to `path` once it is complete and synced, or remove it if writing fails.

    A link at `path` is replaced, not followed. Temporary files that killed processes left for `path` are removed. With
    `many`, for many files that can be regenerated, nothing is synced, and the caller removes leftovers once.
    """
    path = Path(path)
    if not many:
        remove_leftovers(path.parent, [path.name])
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:  # never an existing file: it may be a link
            try_lock(file)
            yield file
            file.flush()
            if not many:
                os.fsync(file.fileno())
            if os.name != "nt":  # Windows cannot rename an open file
                os.replace(temporary, path)
        if os.name == "nt":
            os.replace(temporary, path)
        if not many:
            sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):  # None if the disk is full
            error.filename, error.filename2 = str(path), None
        raise


def remove_leftovers(folder: Path, names: Iterable[str] | None = None) -> None:
    """Remove temporary files that killed processes left, for these names or all; keep those of running processes."""
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
            if not path.is_symlink():  # `replacing` never creates links
                with open(path, "r+b") as file:
                    locked = try_lock(file)
                    is_held = locked is False or (locked is None and time.time() - path.stat().st_mtime < STALE)
                    if not is_held and os.name != "nt":  # Windows cannot remove an open file
                        path.unlink()
            if not is_held:
                path.unlink(missing_ok=True)


def no_link(path: str, flags: int) -> int:
    """Open a file without following a symbolic link, as the `opener` of `open`."""
    return os.open(path, flags | NO_LINK, 0o666)


# ---- folders


def sync(folder: Path) -> None:
    """Sync a folder's entries to disk, if the system can sync folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows cannot open folders
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
    """Sync a folder and everything in it to disk."""
    for path, _, files in os.walk(folder):
        for name in files:
            with open(Path(path) / name, "r+b") as file:  # Windows only syncs files open for writing
                os.fsync(file)
        sync(Path(path))


@contextlib.contextmanager
def temporary_folder(parent: Path, beginning: str) -> Iterator[Path]:
    """Make a folder whose name starts with `beginning`; remove it after the block unless it was renamed.

    Folders that killed processes left are removed; a lock file beside each folder protects those still in use.
    """
    for left in parent.glob(f"{glob.escape(beginning)}*.lock"):
        with contextlib.suppress(OSError), lock(left):  # BlockingIOError: its process is still running
            shutil.rmtree(left.with_name(left.name.removesuffix(".lock")), ignore_errors=True)
    folder = parent / f"{beginning}{secrets.token_hex(16)}"
    try:
        with lock(parent / f"{folder.name}.lock"):
            folder.mkdir()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and its parents and sync them; return the new folders, outermost first.

    Raise FileNotFoundError if another process removes one of them in the meantime.
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
    if missing and not stat.S_ISDIR(os.stat(missing[0]).st_mode):  # FileNotFoundError: already removed
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(missing[0]))
    return folders


def outward_link(folder: Path, paths: Iterable[Path]) -> Path | None:
    """Return the first of these paths that is a symbolic link out of the folder or part of a loop of links."""
    home = folder.resolve()
    for path in paths:
        if path.is_symlink():
            try:
                target = path.resolve()
            except (OSError, RuntimeError):  # a loop of links, up to Python 3.12
                return path
            if target.is_symlink() or not target.is_relative_to(home):  # still a link: a loop, from Python 3.13 on
                return path
    return None


# ---- one process at a time


def try_lock(file: IO[Any]) -> bool | None:
    """Lock an open file until it is closed; return whether that succeeded, or None if files cannot be locked."""
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
    """Hold the lock file `path` inside the block, then remove it; raise BlockingIOError if another process holds it.

    On file systems without locks, the existence of the file is the lock (errno EEXIST); the user then has to remove a
    lock file that a killed process left.
    """
    while True:
        file, new = open_lock(path)
        locked = try_lock(file)
        if locked is False or (locked is None and not new):
            file.close()
            number = errno.EWOULDBLOCK if locked is False else errno.EEXIST
            raise BlockingIOError(number, os.strerror(number), str(path))
        # The previous holder may have removed the file after it was opened here; another process may lock a new one.
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
    """Open a lock file and return whether it is new; an existing file keeps its contents, as it may not be a lock."""
    flags = os.O_RDWR | NO_LINK | getattr(os, "O_BINARY", 0)
    while True:
        with contextlib.suppress(FileExistsError):
            return os.fdopen(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), "r+b"), True
        with contextlib.suppress(FileNotFoundError):  # its holder has just removed it
            return os.fdopen(os.open(path, flags), "r+b"), False
