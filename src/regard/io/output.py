"""The destination of results: standard output, or a file that is complete or absent; and what is said meanwhile: a
progress bar, and the source words that outputs leave out, line by line.
"""

import contextlib
import errno
import gzip
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.errors import CommandError
from regard.io.disk import replacing
from regard.io.formats import TextOutput
from regard.io.lines import GivenText, Say
from regard.messages import visible

LISTED = 6  # lines that a message names
LONGEST = 80  # characters of words in a row that are shown


def check_output(out: Path | None, *read: str | Path | None, flag: str = "--out") -> None:
    """Refuse a place where nothing can be written, and the files that are read, before any work is done."""
    if out is None:
        return
    check_link(out, flag)
    for path in read:
        if path is None or isinstance(path, GivenText):
            continue
        if out.is_file() and Path(path).is_file() and out.samefile(path):
            raise CommandError(f"{flag}: {out} is an input file, expected another")
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
        raise CommandError(f"{flag}: {str(out)!r} given, which is not a valid file name") from None


@contextlib.contextmanager
def open_output(out: Path | None, real: bool = True) -> Iterator[Callable[[str], None]]:
    """Write text, in UTF-8, to standard output as it comes, or to a file that is there when it is whole.

    A name that ends in .gz is packed. What is no file, such as a named pipe, is written as it comes too. What is not
    `real` goes nowhere: another process writes it. SIGTERM leaves nothing half written.
    """
    with stop_on_sigterm(), open_destination(out, real) as write:
        yield write


@contextlib.contextmanager
def stop_on_sigterm() -> Iterator[None]:
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
def open_destination(out: Path | None, real: bool) -> Iterator[Callable[[str], None]]:
    """Open the place that `open_output` writes to."""
    if not real:
        yield lambda text: None
        return
    if out is None:
        yield lambda text: write_encoded(sys.stdout.buffer, text)
        return
    if out.exists() and not out.is_file():
        try:
            with open(out, "wb") as file:
                yield lambda text: write_encoded(file, text)
        except OSError as error:
            error.filename = error.filename or str(out)
            raise
        return
    whole = out.resolve()  # the file, not a link to it
    try:
        with replacing(whole) as file:
            if out.suffix == ".gz":
                with gzip.GzipFile(out.stem, "wb", fileobj=file) as packed:
                    yield lambda text: write_encoded(packed, text)
            else:
                yield lambda text: write_encoded(file, text)
    except OSError as error:
        if error.filename == str(whole):
            error.filename = str(out)
        raise


def write_encoded(file: Any, text: str) -> None:
    """Write and flush; the name of a file that is not UTF-8 is written as the bytes that it has."""
    file.write(text.encode(errors="surrogateescape"))
    file.flush()


@contextlib.contextmanager
def progress_bar(total: int | None, out: bool, first: bool = True) -> Iterator[Callable[[int], None]]:
    """Call what this gives with the number of lines that were done.

    Drawn only where the number of all is known and standard error is a terminal that the results do not go to as well
    (`out`: they go to a file), by the first of several processes.
    """
    terminal = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    if total is None or not first or not terminal or (sys.stdout.isatty() and not out):
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Pace(ProgressColumn):
        """Lines per second."""

        def render(self, task: Task) -> Text:
            speed = task.completed / task.elapsed if task.elapsed else 0
            return Text(f"{speed:,.{0 if speed >= 10 else 1}f} lines/s" if speed else "")

    columns = BarColumn(), MofNCompleteColumn(), Pace(), TimeRemainingColumn()
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, redirect_stdout=False, speed_estimate_period=120) as progress:
        task = progress.add_task("", total=total)
        yield lambda lines: progress.advance(task, lines)


class UntranslatedReport:
    """A report of the lines whose best output leaves source words out; `say` is told of the new ones by `tell`.

    Of `total` lines, a single one is not numbered.
    """

    def __init__(self, say: Say, total: int | None):
        self.say, self.total = say, total
        self.lines: list[str] = []  # what is said of each line, as far as it may be listed
        self.count = 0

    def look(self, number: int, line: str, outputs: Sequence[TextOutput]) -> None:
        """Note what the best output of a line, which has this number, leaves out."""
        spans = outputs[0].untranslated or ()
        if not spans:
            return
        self.count += 1
        if self.count <= LISTED:
            words = line.split()
            place = "" if self.total == 1 else f" (line {number:,})"
            self.lines.append(", ".join(quote(words[start:end]) for start, end in spans) + place)

    def tell(self) -> None:
        """Report the lines that were not reported yet, in one sentence."""
        if not self.count:
            return
        rest = self.count - len(self.lines)
        more = f" and in {rest:,} more line{'s' * (rest != 1)}" if rest else ""
        self.say(f"perhaps not translated: {'; '.join(self.lines)}{more}")
        self.lines, self.count = [], 0


def quote(words: Sequence[str]) -> str:
    """Quote words in a row; of very many the first and the last."""
    text = " ".join(words)
    if len(text) > LONGEST:
        half = LONGEST // 2
        text = f"{text[:half].rstrip()} … {text[-half:].lstrip()}"
    return f"“{visible(text)}”"
