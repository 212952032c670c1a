"""Destinations and formats of results: standard output, or a file that is either complete or absent.

Formats: outputs, scores and labels, one per line; n-best lists in Moses format; JSON; word alignments in Pharaoh
format, one line per sentence, with links source-target, counted from 0, as in `0-0 1-2`. Human annotators mark links
that are merely possible as `3?4` or `3p4`. This module also reports progress: a progress bar, and the source words that
outputs leave untranslated.
"""

import contextlib
import errno
import gzip
import json
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import CommandError, DataError
from regard.io.disk import replacing
from regard.io.lines import GivenText, Say
from regard.messages import visible

LISTED = 6  # maximum lines that a message names
QUOTED_CHARACTERS = 80  # maximum characters of a quotation of words
BREAKS = re.compile(r"[\t\r\n]+")  # models with byte pieces can produce these, but an output has to stay on one line
Link = tuple[int, int]  # a source word and a target word
LINK = re.compile(r"([0-9]{1,9})([-?p])([0-9]{1,9})")  # nine digits are enough for any sentence
SLIPS = 50  # one line in this many may have unusable links
SHOWN = 30  # maximum characters of an invalid link in a message


TextOutput = Any  # a decoder's output (`regard.decoding`, a layer above)
LabelOutput = Any  # a label with its probabilities (`regard.tasks`)


@dataclass(frozen=True)
class OutputFormat:
    """The format of an output line.

    A line holds the text; with `scores`, a tab and the score; with `alignment`, a tab and the links in Pharaoh format.
    With `nbest`, there is one line per output, `i ||| text ||| score`, where i is the source's line from 0. With
    `as_json`, there is one JSON object per source.
    """

    scores: bool = False
    alignment: bool = False
    nbest: bool = False
    as_json: bool = False

    def lines(self, i: int, source: str, outputs: Sequence[TextOutput]) -> str:
        """Format the outputs for source number i (from 0), including the newlines."""
        if self.as_json:
            return json_line({"source": source, "translations": [*map(as_json_object, outputs)]})
        if not self.nbest:
            return self.line(outputs[0], "\t") + "\n"
        return "".join(f"{i} ||| {self.line(output, ' ||| ')}\n" for output in outputs)

    def line(self, output: TextOutput, between: str) -> str:
        """Format one output, with the separator `between` its cells."""
        cells = [BREAKS.sub(" ", output.text)]
        cells += [f"{output.score:.4f}"] if self.scores or self.nbest else []
        cells += [format_pharaoh(output.alignment or ())] if self.alignment else []
        return between.join(cells)


def as_json_object(output: TextOutput, *left_out: str) -> dict[str, Any]:
    """Return an output as a JSON object, without the keys in `left_out`."""
    row: dict[str, Any] = {
        "text": output.text,
        "score": json_number(output.score),
        "log_prob": json_number(output.log_prob),
        "tokens": list(output.tokens),
        "finished": output.finished,
        "alignment": None if output.alignment is None else [list(link) for link in output.alignment],
    }
    if output.untranslated is not None:
        row["untranslated"] = [list(span) for span in output.untranslated]
    return {name: value for name, value in row.items() if name not in left_out}


def sample_line(output: TextOutput, scores: bool = False, as_json: bool = False) -> str:
    """Format a language model's output as a line; its score is its log-probability."""
    if as_json:
        return json_line(as_json_object(output, "score", "alignment"))
    return BREAKS.sub(" ", output.text) + (f"\t{output.log_prob:.4f}" if scores else "") + "\n"


def caption_lines(picture: str, outputs: Sequence[TextOutput], scores: bool = False, as_json: bool = False) -> str:
    """Format the captions of a picture: one line each, after its path if it has one, or one JSON object."""
    if as_json:
        rows = [as_json_object(output, "alignment") for output in outputs]
        return json_line({"picture": picture, "captions": rows})
    form, before = OutputFormat(scores), f"{BREAKS.sub(' ', picture)}\t" if picture else ""
    return "".join(f"{before}{form.line(output, chr(9))}\n" for output in outputs)


def json_number(value: float) -> float | None:
    """Round a number to six places for JSON; return None if it is not finite."""
    return round(value, 6) if math.isfinite(value) else None


def json_line(row: dict[str, Any]) -> str:
    """Format a JSON object as a line; escape the bytes of a file name that are not UTF-8."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace").decode() + "\n"


class ScoredTarget(NamedTuple):
    """A target with its log-probability under a model; its last piece is the end of the sentence."""

    source: str | None
    target: str
    log_prob: float
    pieces: list[str]
    log_probs: list[float]

    def line(self, *, tokens: bool = False, normalise: bool = False, as_json: bool = False) -> str:
        """Format the log-probability; with `tokens`, add the pieces and their log-probabilities, after tabs."""
        mean = self.log_prob / len(self.pieces)
        if as_json:
            row: dict[str, Any] = {} if self.source is None else {"source": self.source}
            row |= {"target": self.target, "log_prob": json_number(self.log_prob), "normalised": json_number(mean)}
            if tokens:
                row |= {"tokens": self.pieces, "log_probs": [json_number(each) for each in self.log_probs]}
            return json_line(row)
        cells = [f"{mean if normalise else self.log_prob:.4f}"]
        if tokens:
            cells += [" ".join(self.pieces), " ".join(f"{each:.4f}" for each in self.log_probs)]
        return "\t".join(cells) + "\n"


def label_line(item: dict[str, str], output: LabelOutput | None, scores: bool, as_json: bool, place: str = "") -> str:
    """Format a label, with `scores` also its probability; JSON starts with the keys of `item`, a line with `place`."""
    if as_json:
        row: dict[str, Any] = {**item, "label": None, "probability": None, "probabilities": None}
        if output is not None:
            each = {label: json_number(value) for label, value in output.probabilities.items()}
            row |= {"label": output.label, "probability": json_number(output.probability), "probabilities": each}
        return json_line(row)
    cells = [BREAKS.sub(" ", place)] if place else []
    if output is not None:
        cells += [BREAKS.sub(" ", output.label), *([f"{output.probability:.4f}"] if scores else [])]
    return "\t".join(cells) + "\n"


def format_pharaoh(links: Iterable[Link]) -> str:
    """Format links in Pharaoh format."""
    return " ".join([f"{source}-{target}" for source, target in links])


def parse_pharaoh(text: str) -> list[Link]:
    """Parse the links of a line, sure and possible ones, in order."""
    return [link for link, _, _ in parse_marked_links(text)]


def parse_marked_links(text: str) -> list[tuple[Link, bool, str]]:
    """Parse the links of a line; return for each link the link, whether it is sure, and its text."""
    links = []
    for piece in text.split():
        match = LINK.fullmatch(piece)
        if not match:
            excerpt = piece if len(piece) <= SHOWN else f"{piece[:SHOWN]}…"
            raise DataError(f"{excerpt!r} given, expected source-target, such as 3-4, or 3?4 for a possible link")
        links.append(((int(match[1]), int(match[3])), match[2] == "-", piece))
    return links


class Slips:
    """A count of the lines whose links cannot be used, which are annotators' slips as long as there are few.

    One such line, or one in SLIPS lines, counts as a slip. If there are more, or all lines are such, the links belong
    to another text, have their sides swapped, do not count from 0, or are not links at all.
    """

    def __init__(self, path: str | Path):
        self.path, self.lines, self.count, self.first = path, 0, 0, ""

    def add(self, number: int, problem: str | None) -> None:
        """Count one more line of links; `problem` describes what is wrong with it, if anything."""
        self.lines += 1
        if problem is not None:
            self.count += 1
            self.first = self.first or f"{self.path}, line {number:,}: {problem}"

    def end(self, say: Say, what: str) -> None:
        """Report the number of slips and `what` happens to them; raise a DataError if there are too many."""
        if self.count > max(1, self.lines / SLIPS) or (self.count and self.count == self.lines):
            raise DataError(self.first)
        if self.count:
            say(f"{self.first}; {what}{f' ({self.count:,} such lines)' * (self.count > 1)}")


# ---- destinations


def check_output(out: Path | None, *read: str | Path | None, flag: str = "--out") -> None:
    """Refuse an output path that is an input file or cannot be written, before any work is done."""
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
    """Refuse a path that the system cannot resolve: a loop of links, a name too long, a file used as a folder."""
    try:
        out.stat()
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR):
            raise CommandError(f"{flag}: {out}: {error.strerror}; expected another name") from None
    except ValueError:
        raise CommandError(f"{flag}: {str(out)!r} given, which is not a valid file name") from None


@contextlib.contextmanager
def open_output(out: Path | None, real: bool = True) -> Iterator[Callable[[str], None]]:
    """Write UTF-8 text to standard output as it comes, or to a file that appears once it is complete.

    A file whose name ends in .gz is compressed. A named pipe or a device gets text as it comes, too. If `real` is
    false, the text is discarded, as another process writes it. SIGTERM leaves no half-written file.
    """
    with stop_on_sigterm(), open_destination(out, real) as write:
        yield write


@contextlib.contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Exit cleanly on SIGTERM, which torchrun sends when another process fails."""

    def end(number: int, frame: Any) -> None:
        print("regard: stopped by SIGTERM", file=sys.stderr)
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def open_destination(out: Path | None, real: bool) -> Iterator[Callable[[str], None]]:
    """Open the destination that `open_output` writes to."""
    if not real:
        yield lambda text: None
        return
    if out is None:
        yield lambda text: write_encoded(sys.stdout.buffer, text)
        return
    whole = out.resolve()  # replace the file, not a link to it
    is_stream = out.exists() and not out.is_file()
    try:
        with contextlib.ExitStack() as stack:
            file: Any = stack.enter_context(open(out, "wb") if is_stream else replacing(whole))  # noqa: SIM115
            if out.suffix == ".gz" and not is_stream:
                file = stack.enter_context(gzip.GzipFile(out.stem, "wb", fileobj=file))
            yield lambda text: write_encoded(file, text)
    except OSError as error:
        if error.filename in (None, str(whole)):
            error.filename = str(out)
        raise


def write_encoded(file: Any, text: str) -> None:
    """Write and flush text; bytes of file names that are not UTF-8 are written unchanged."""
    file.write(text.encode(errors="surrogateescape"))
    file.flush()


@contextlib.contextmanager
def progress_bar(total: int | None, out: bool, first: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; yield a function to call with the number of further lines done.

    Only the first of several processes draws it, and only if `total` is known and standard error is a terminal that
    does not also show the results (with `out`, they go to a file).
    """
    terminal = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    if total is None or not first or not terminal or (sys.stdout.isatty() and not out):
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Pace(ProgressColumn):
        """A column that shows lines per second."""

        def render(self, task: Task) -> Text:
            speed = task.completed / task.elapsed if task.elapsed else 0
            return Text(f"{speed:,.{0 if speed >= 10 else 1}f} lines/s" if speed else "")

    columns = BarColumn(), MofNCompleteColumn(), Pace(), TimeRemainingColumn()
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, redirect_stdout=False, speed_estimate_period=120) as progress:
        task = progress.add_task("", total=total)
        yield lambda lines: progress.advance(task, lines)


class UntranslatedReport:
    """A report of the lines whose best output leaves source words untranslated; `tell` passes new ones to `say`.

    If `total` is 1, the report omits the line number.
    """

    def __init__(self, say: Say, total: int | None):
        self.say, self.total = say, total
        self.lines: list[str] = []  # the message for each line, for at most LISTED lines
        self.count = 0

    def look(self, number: int, line: str, outputs: Sequence[TextOutput]) -> None:
        """Note which words the best output of line `number` leaves untranslated."""
        spans = outputs[0].untranslated or ()
        if not spans:
            return
        self.count += 1
        if self.count <= LISTED:
            words = line.split()
            place = "" if self.total == 1 else f" (line {number:,})"
            self.lines.append(", ".join(quote(words[start:end]) for start, end in spans) + place)

    def tell(self) -> None:
        """Report the lines that have not been reported yet, in one sentence."""
        if not self.count:
            return
        rest = self.count - len(self.lines)
        more = f" and in {rest:,} more line{'s' * (rest != 1)}" if rest else ""
        self.say(f"perhaps not translated: {'; '.join(self.lines)}{more}")
        self.lines, self.count = [], 0


def quote(words: Sequence[str]) -> str:
    """Quote consecutive words; shorten a long quotation in the middle."""
    text = " ".join(words)
    if len(text) > QUOTED_CHARACTERS:
        half = QUOTED_CHARACTERS // 2
        text = f"{text[:half].rstrip()} … {text[-half:].lstrip()}"
    return f"“{visible(text)}”"
