"""Make a process behave as on Windows, as far as Linux allows.

Call `become()` in a process of its own, once third-party packages are loaded: those have their own code for Windows.
From then on Regard's modules find no `fcntl`, no `os.fork`, no SIGHUP; `os.name` is "nt" and `sys.platform` "win32".
For all code, the file system behaves as on Windows:

- links need a privilege, which the process lacks;
- no folder can be opened, and only a file that is open for writing can be synced;
- a file that this process has open or mapped cannot be renamed, replaced or removed, nor can a folder that contains one
  be renamed;
- `os.rename` replaces nothing, `os.replace` no folder;
- directory listings do not identify a file on the disk (`st_ino` and `st_dev` are 0);
- some names are invalid.

Text that Regard opens without an encoding is an error, as Windows would read it in a code page.
"""

import builtins
import contextlib
import errno
import fcntl
import os
import re
import select
import shutil
import signal
import sys
import types
import warnings
from pathlib import Path
from typing import Any

MODULES = "crypt curses fcntl grp nis posix pty pwd readline resource spwd syslog termios tty _posixsubprocess"
CALLS = """chown chroot confstr copy_file_range ctermid eventfd fchdir fchmod fchown fdatasync fork forkpty fpathconf
fstatvfs fwalk get_blocking getegid geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp getpriority
getresgid getresuid getsid getuid getxattr initgroups killpg lchown listxattr lockf major makedev memfd_create minor
mkfifo mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn pread preadv pwrite
pwritev register_at_fork removexattr sched_getaffinity sched_setaffinity sched_yield sendfile set_blocking setegid
seteuid setgid setgroups setpgid setpgrp setpriority setsid setuid setxattr splice statvfs sync sysconf tcgetpgrp
tcsetpgrp ttyname uname wait wait3 wait4 waitid O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NDELAY O_NOATIME
O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC O_SYNC O_TMPFILE WNOHANG"""
SIGNALS = "SIGABRT SIGFPE SIGILL SIGINT SIGSEGV SIGTERM"  # all that exist
WAITING = "alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait"
MISSING = {
    "os": CALLS.split(),
    "signal": [*WAITING.split(), *(name for name in dir(signal) if re.match("SIG[A-Z]", name) and name not in SIGNALS)],
    "select": ["poll", "epoll"],
}
NO_NAME = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)


class Lacking(types.ModuleType):
    """A module without some of its names, and with replacements for others."""

    def __init__(self, module: types.ModuleType, missing: list[str], **instead: Any):
        super().__init__(module.__name__)
        self.__dict__.update(instead, lacking=missing, whole=module)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["whole"], name, value)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__["lacking"]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self.__dict__["whole"], name)


class Entry:
    """An entry of `os.scandir`."""

    def __init__(self, entry: Any):
        self.entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self.entry, name)

    def __fspath__(self) -> str:
        return os.fspath(self.entry)

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        found = self.entry.stat(follow_symlinks=follow_symlinks)
        known = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return types.SimpleNamespace(**{**known, "st_ino": 0, "st_dev": 0, "st_nlink": 0})


class Listing:
    """The iterator of `os.scandir`."""

    def __init__(self, entries: Any):
        self.entries = entries

    def __iter__(self) -> Any:
        return map(Entry, self.entries)

    def __next__(self) -> Entry:
        return Entry(next(self.entries))

    def __enter__(self) -> "Listing":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.entries.close()


def become() -> None:
    """Behave like Windows from now on."""
    seen_by_regard(
        {
            "os": Lacking(os, MISSING["os"], name="nt", linesep="\r\n"),
            "sys": Lacking(sys, [], platform="win32"),
            "signal": Lacking(signal, MISSING["signal"]),
            "select": Lacking(select, MISSING["select"], select=only_sockets),
        }
    )
    real_rename, real_replace, real_sync, real_scan = os.rename, os.replace, os.fsync, os.scandir

    def rename(source: Any, target: Any, **places: Any) -> None:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "Cannot create a file when that file already exists", str(target))
        real_rename(source, target, **places)

    def replace(source: Any, target: Any, **places: Any) -> None:
        if os.path.isdir(target):
            raise PermissionError(errno.EACCES, "Access is denied", str(target))
        real_replace(source, target, **places)

    def fsync(file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real_sync(file)

    os.rename, os.replace, os.fsync = rename, replace, fsync  # type: ignore[assignment]
    os.scandir = lambda path=".": Listing(real_scan(path))  # type: ignore[assignment, misc]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    sys.addaudithook(watch)
    warnings.filterwarnings("error", category=EncodingWarning, module="regard")


def seen_by_regard(modules: dict[str, types.ModuleType]) -> None:
    """Replace the modules that `import` returns to Regard's modules."""
    real = builtins.__import__

    def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0 and str((globals or {}).get("__name__", "")).partition(".")[0] == "regard":
            first = name.partition(".")[0]
            if first in MODULES.split():
                raise ModuleNotFoundError(f"No module named {first!r}", name=first)
            if name in modules or (first in modules and not fromlist):
                return modules[first]
        return real(name, globals, locals, fromlist, level)

    builtins.__import__ = import_


def only_sockets(*_: Any) -> Any:
    raise OSError(10038, "An operation was attempted on something that is not a socket")


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse the operations that Windows refuses, before they run."""
    if event == "os.symlink":
        raise OSError(errno.EINVAL, "A required privilege is not held by the client", str(arguments[0]))
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.fsdecode(arguments[0])
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        check_name(path)
    elif event == "os.mkdir":
        check_name(os.fsdecode(arguments[0]))
    elif event == "os.rename":
        check_name(os.fsdecode(arguments[1]))
        check_unused(*arguments[:2])
    elif event == "os.remove":
        check_unused(arguments[0])


def check_name(path: str) -> None:
    name = os.path.basename(path)
    if NO_NAME.search(name) and not path.startswith(("/dev/", "/proc/", "<")):
        raise OSError(errno.EINVAL, "The filename, directory name, or volume label syntax is incorrect", path)


def check_unused(*paths: Any) -> None:
    used = in_use()
    for path in map(os.fsdecode, paths):
        real = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
        if any(each == real or each.startswith(real + os.sep) for each in used):
            raise PermissionError(errno.EACCES, "The process cannot access the file because it is being used", path)


def in_use() -> set[str]:
    """Return the files that this process has open or mapped."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    return found | {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count(" ") >= 5 and "/" in line}
