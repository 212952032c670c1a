"""Where results go: to standard output as they come, or into a file that is whole or not there."""

import contextlib
import errno
import gzip
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from regard.disk import replacing
from regard.errors import CommandError

__all__ = ["check_link", "check_out", "writing"]


def check_out(out: Path | None, *read: str | Path | None, flag: str = "--out") -> None:
    """Refuse a place where nothing can be written, and the files that are read, before any work is done."""
    if out is None:
        return
    check_link(out, flag)
    for path in read:
        if path is not None and out.is_file() and Path(path).is_file() and out.samefile(path):
            raise CommandError(f"{flag}: {out} is a file that is read, expected another")
    if out.is_dir():
        raise CommandError(f"{flag}: {out} is a folder, expected a file to write")
    if not out.absolute().parent.is_dir():
        raise CommandError(f"{flag}: {out}: no folder {out.parent} to write it into")


def check_link(out: Path, flag: str) -> None:
    """Refuse a name that leads round in a circle: nothing is there, and nothing can be put there."""
    try:
        out.stat()
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR):
            raise CommandError(f"{flag}: {out}: {error.strerror}; expected another name") from None
    except ValueError:
        raise CommandError(f"{flag}: {str(out)!r} given, which is no name of a file") from None


@contextlib.contextmanager
def writing(out: Path | None, real: bool = True) -> Iterator[Callable[[str], None]]:
    """Write text, in UTF-8, to standard output as it comes, or to a file that is there when it is whole.

    A name that ends in .gz is packed. What is no file, such as a named pipe, is written as it comes too. What is not
    `real` goes nowhere: another process writes it. SIGTERM leaves nothing half written.
    """
    with ending_on_request(), destination(out, real) as write:
        yield write


@contextlib.contextmanager
def ending_on_request() -> Iterator[None]:
    """SIGTERM, as torchrun sends it when another process failed, ends the work in order."""

    def end(number: int, frame: Any) -> None:
        print("regard: stopped by SIGTERM", file=sys.stderr)
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # where no signal can be waited for
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def destination(out: Path | None, real: bool) -> Iterator[Callable[[str], None]]:
    """Where `writing` writes to."""
    if not real:
        yield lambda text: None
        return
    if out is None:
        yield lambda text: stream(sys.stdout.buffer, text)
        return
    if out.exists() and not out.is_file():
        try:
            with open(out, "wb") as file:
                yield lambda text: stream(file, text)
        except OSError as error:
            error.filename = error.filename or str(out)
            raise
        return
    whole = out.resolve()  # the file, not a link to it
    try:
        with replacing(whole) as file:
            if out.suffix == ".gz":
                with gzip.GzipFile(out.stem, "wb", fileobj=file) as packed:
                    yield lambda text: stream(packed, text)
            else:
                yield lambda text: stream(file, text)
    except OSError as error:
        if error.filename == str(whole):
            error.filename = str(out)
        raise


def stream(file: Any, text: str) -> None:
    """Write and flush; the name of a file that is not UTF-8 is written as the bytes that it has."""
    file.write(text.encode(errors="surrogateescape"))
    file.flush()
