"""Progress: the receiver of the loop's reports, its plain and JSON forms, and samples of the model's outputs.

The loop knows only `Progress`; `regard.training.display` chooses the display. A display that fails (a closed pipe, a
character that the encoding lacks) never stops training.
"""

import contextlib
import difflib
import json
import math
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, TextIO

from rich.cells import cell_len, set_cell_size

from regard.training.metrics import format_duration, format_value, metric_name, plain_number

WIDTH = 120  # columns of a sample's line in a log
MISSING = "‸"
ALIKE = 0.6  # similarity of two texts without spaces above which they are compared by letters; labels never are
# Control characters of bidirectional text. Unbalanced, they reverse the rest of a line; they are never text themselves.
TURNS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


# ---- a sample: an output beside its reference, and where the two differ


class Sample(NamedTuple):
    """One held-out example: the source, the reference, and the model's output."""

    source: str
    reference: str
    output: str
    label: bool = False  # the output is one of a few labels: right or wrong as a whole

    def record(self) -> dict[str, Any]:
        """Return the sample as a record holds it."""
        texts = {"source": self.source, "reference": self.reference, "output": self.output}
        return {**texts, "label": True} if self.label else texts

    @property
    def pieces(self) -> list[tuple[str, bool]]:
        """Split the output into pieces, each with whether the reference differs there.

        An empty piece that differs marks missing words of the reference. The comparison is by words or, if neither
        text has a space and most of their letters agree, as in Chinese or in dates, by letters. Any run of white space
        counts as one space.
        """
        if self.label:
            return [(self.output, self.output != self.reference)]
        ours, theirs = self.output.split(), self.reference.split()
        gap = " "
        if len(ours) <= 1 and len(theirs) <= 1:
            each = letters("".join(ours)), letters("".join(theirs))
            if difflib.SequenceMatcher(None, *each, autojunk=False).ratio() > ALIKE:
                ours, theirs, gap = *each, ""
        pieces: list[tuple[str, bool]] = []
        for kind, i, j, _, _ in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
            if pieces and gap:
                pieces.append((gap, False))
            pieces.append((gap.join(ours[i:j]), kind != "equal"))
        return pieces


def bracketed(output: str, reference: str, label: bool = False) -> str:
    """Format the output as plain text, with differences in [brackets] and gaps as ‸."""
    pieces = Sample("", reference, output, label).pieces
    return "".join(f"[{text}]" if differs and text else text or MISSING for text, differs in pieces)


def nearest(output: str, references: Sequence[str]) -> str:
    """Return the reference that shares most words with an output; of equally similar ones, the first."""
    matcher = partial(difflib.SequenceMatcher, None, output.split(), autojunk=False)
    return max(references, key=lambda reference: matcher(reference.split()).ratio())


def clip(text: str, width: int = WIDTH) -> str:
    """Cut a line to this width; Chinese, Japanese and Korean characters take two columns."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 2).rstrip()} …"


def letters(word: str) -> list[str]:
    """Split a word into letters, each with its combining marks."""
    clusters: list[str] = []
    for letter in word:
        if clusters and (unicodedata.combining(letter) or letter in "\u200d\ufe0f" or clusters[-1].endswith("\u200d")):
            clusters[-1] += letter
        else:
            clusters.append(letter)
    return clusters


def legible(text: str) -> str:
    """Put text on one line, and replace or remove characters that could control a terminal."""
    text = " ".join(text.split())
    return "".join(
        "�" if unicodedata.category(letter) == "Cc" else letter for letter in text if ord(letter) not in TURNS
    )


# ---- reports


class Progress:
    """The base class of receivers of the loop's reports, which ignores them; a context manager that closes itself."""

    live = False  # whether the loop calls `tick` after every step: true for a class that overrides `tick`

    def __init_subclass__(cls) -> None:
        cls.live = cls.live or "tick" in vars(cls)

    def begin(self, title: str, facts: Sequence[tuple[str, str]], steps: int | None) -> None:
        """Report that training starts, with its name, facts about it, and the number of steps, if known."""

    def limit(self, seconds: float | None) -> None:
        """Report the seconds after which the run ends at the latest, counted as in `tick`; None means no limit."""

    def step(self, record: Mapping[str, Any]) -> None:
        """Report a step's record: step, epoch, loss, rate, tokens_per_second, seconds, skipped, steps; all optional."""

    def tick(self, step: int, seconds: float) -> None:
        """Report that a step was taken, with its number and the run's seconds so far, before its figures are known.

        The loop also calls this once before the first step, with the step from which training starts. After that it
        calls this only if the display is `live`.
        """

    def begin_validation(self) -> None:
        """Report that a validation starts; `valid` follows when it is done."""

    def valid(self, record: Mapping[str, Any]) -> None:
        """Report a validation's record: step, loss, and scores by name; `best` says whether it is the best so far."""

    def samples(self, samples: Sequence[Sample]) -> None:
        """Report some of the model's current outputs for held-out examples."""

    def say(self, text: str) -> None:
        """Print one plain line."""

    def end(self, text: str) -> None:
        """Report that training ended, with this last line."""

    def close(self) -> None:
        """Restore the terminal; called even if training fails."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class CurrentFigures:
    """Current figures from the records so far: the smoothed loss, the time left, the best validation."""

    def __init__(self, steps: int | None = None):
        self.steps = steps
        self.limit: float | None = None  # in seconds
        self.first: dict[str, Any] | None = None
        self.last: dict[str, Any] = {}
        self.checked: dict[str, Any] | None = None
        self.best: dict[str, Any] | None = None
        self._sum = self._weight = 0.0
        self._recorded = 0  # the step of the last record

    def tick(self, step: int, seconds: float) -> None:
        """Note that a step was taken, or that training starts from it."""
        start = not self.last
        self.last = {**self.last, "step": step, "seconds": seconds}
        if not start:  # do not time the first step, which may compile and fill caches
            self.first = self.first or self.last

    def step(self, record: Mapping[str, Any]) -> None:
        """Note the record of one step."""
        passed = max(1, record.get("step", 0) - self._recorded) if self._recorded else 1
        self._recorded = record.get("step", 0)
        self.last = dict(record)
        self.first = self.first or self.last
        self.steps = record.get("steps") or self.steps
        loss = record.get("loss")
        if loss is not None and math.isfinite(loss):
            # The mean over about the last fifty steps, however many steps lie between two records.
            keep = 0.98**passed
            self._sum, self._weight = keep * self._sum + (1 - keep) * loss, keep * self._weight + 1 - keep

    def valid(self, record: Mapping[str, Any]) -> None:
        """Note a validation."""
        self.checked = dict(record)
        if record.get("best"):
            self.best = self.checked

    @property
    def loss(self) -> float | None:
        """Return the smoothed loss, or None if no loss was finite so far."""
        return self._sum / self._weight if self._weight else None

    def seconds_left(self, since: float = 0.0) -> float | None:
        """Return the seconds left, `since` seconds after the last step; None if unknown.

        With a time limit, return the seconds until then. Otherwise estimate from the pace since the first record, and
        count at most one step as under way.
        """
        if self.limit is not None and "seconds" in self.last:
            return float(max(0.0, self.limit - self.last["seconds"] - since))
        if self.steps is None or self.first is None or not {"step", "seconds"} <= self.last.keys() & self.first.keys():
            return None
        steps, seconds = self.last["step"] - self.first["step"], self.last["seconds"] - self.first["seconds"]
        if steps <= 0 or seconds <= 0:  # only one record so far
            return None
        pace = seconds / steps
        left = max(0, self.steps - self.last["step"]) * pace
        return max(left - since, left - pace, 0.0)

    def place(self) -> str:
        """Return the step as `step 500/8,000`."""
        of = f"/{self.steps:,}" if self.steps else ""
        return f"step {self.last.get('step', 0):,}{of}"

    def numbers(self) -> list[str]:
        """Format the loss, the learning rate and the pace of the last record."""
        record, parts = self.last, []
        if "loss" in record:
            now, smooth = record["loss"], format_value("loss", self.loss)
            if now is not None and math.isfinite(now):
                parts.append(f"loss {smooth}")
            else:
                parts.append("loss not finite" + (f" (was {smooth})" if self.loss is not None else ""))
        if "rate" in record:
            parts.append(f"rate {format_value('rate', float(record['rate']))}")
        pace = record.get("tokens_per_second")
        if pace is not None and math.isfinite(pace) and pace > 0:
            parts.append(f"{format_value('tokens_per_second', float(pace))} {record.get('unit', 'tokens')}/s")
        if record.get("skipped"):
            parts.append(f"{record['skipped']:,} skipped")
        return parts

    def times(self) -> list[str]:
        """Format the time left or, if it and the number of steps are unknown, the time so far."""
        if left := self.seconds_left():
            return [f"{format_duration(left)} left"]
        if self.steps is None and "seconds" in self.last:
            return [f"{format_duration(self.last['seconds'])} so far"]
        return []


def format_scores(record: Mapping[str, Any]) -> list[str]:
    """Format a validation's figures, the loss first."""
    keys = [key for key in record if key not in ("step", "best", "kind", "epoch", "seconds")]
    keys.sort(key=lambda key: (key != "loss", key.startswith("patience")))
    return [f"{metric_name(key)} {format_value(key, record[key])}" for key in keys]


class PlainProgress(Progress):
    """Progress as plain lines, for logs and pipes.

    It writes the first and the last recorded step, and another step once ten seconds have passed since the previous
    line, or a hundred steps and one second. It writes every validation, sample and message. `stamp` prefixes each line
    with the time.
    """

    def __init__(
        self, stream: "TextIO | SafeStream", *, stamp: bool = False, clock: Callable[[], float] = time.monotonic
    ):
        self._stream, self._stamp, self._clock = stream, stamp, clock
        self._course = CurrentFigures()
        self._last_line: tuple[float, int] | None = None

    def begin(self, title: str, facts: Sequence[tuple[str, str]], steps: int | None) -> None:
        self._course, self._last_line = CurrentFigures(steps), None
        self._line(title)
        for name, fact in facts:
            self._line(f"{name}: {fact}")

    def limit(self, seconds: float | None) -> None:
        self._course.limit = seconds

    def step(self, record: Mapping[str, Any]) -> None:
        self._course.step(record)
        now, step = self._clock(), record.get("step", 0)
        if self._last_line is not None and step != self._course.steps:
            seconds, steps = now - self._last_line[0], step - self._last_line[1]
            if seconds < 10 and not (steps >= 100 and seconds >= 1):
                return
        self._last_line = now, step
        self._line(" · ".join([self._course.place(), *self._course.numbers(), *self._course.times()]))

    def valid(self, record: Mapping[str, Any]) -> None:
        self._course.valid(record)
        best = ["best checkpoint so far"] if record.get("best") else []
        self._line(" · ".join([f"validation at step {record.get('step', 0):,}", *format_scores(record), *best]))

    def samples(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            source, reference, output = map(legible, sample[:3])
            self._line(clip(f"  source     {source}"))
            self._line(clip(f"  reference  {reference}"))
            self._line(clip(f"  output     {bracketed(output, reference, sample.label)}"))

    def say(self, text: str) -> None:
        self._line(text)

    def end(self, text: str) -> None:
        self._line(text)
        self.close()

    def close(self) -> None:
        if self._stamp:  # the stream is log.txt, not standard error
            self._stream.close()

    def _line(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S  ") if self._stamp else ""
        self._stream.write("".join(f"{stamp}{line}\n" for line in text.splitlines() or [""]))
        self._stream.flush()


class JsonProgress(Progress):
    """Progress as one JSON object per line, for programs: the start, each record, each message, and the end."""

    def __init__(self, stream: "TextIO | SafeStream"):
        self._stream = stream

    def begin(self, title: str, facts: Sequence[tuple[str, str]], steps: int | None) -> None:
        self._write("begin", {"run": title, "steps": steps, **dict(facts)})

    def step(self, record: Mapping[str, Any]) -> None:
        self._write("step", record)

    def valid(self, record: Mapping[str, Any]) -> None:
        self._write("valid", record)

    def samples(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            self._write("sample", sample.record())

    def say(self, text: str) -> None:
        self._write("message", {"text": text})

    def end(self, text: str) -> None:
        self._write("end", {"text": text})

    def _write(self, kind: str, record: Mapping[str, Any]) -> None:
        finite = {key: plain_number(each) for key, each in record.items()}
        self._stream.write(json.dumps({"kind": kind, **finite}, ensure_ascii=False, allow_nan=False) + "\n")
        self._stream.flush()


class SafeStream:
    """A text stream that never stops a run: it replaces characters that it cannot encode, and ignores write errors."""

    PLAINER = str.maketrans({"·": "-", "−": "-", "…": "~", "‸": "^", "–": "-", "→": ">", "∞": "inf", "�": "?"})

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, replacing characters that the encoding lacks."""
        code = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            text.encode(code)
        except UnicodeEncodeError:
            text = text.translate(self.PLAINER).encode(code, "replace").decode(code)
        # A closed pipe, a full disk, a closed file, or a signal handler that writes during another write.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, ignoring errors."""
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._stream.flush()

    def close(self) -> None:
        """Close the stream, ignoring errors."""
        with contextlib.suppress(OSError):
            self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class ProgressGroup(Progress):
    """Several displays that receive the same reports."""

    def __init__(self, members: Sequence[Progress]):
        self.members = list(members)
        self.live = any(member.live for member in members)


def forward(report: str) -> Callable[..., None]:
    """Create a method that forwards a report to every display of a group."""

    def pass_on(group: ProgressGroup, *arguments: Any) -> None:
        for member in group.members:
            getattr(member, report)(*arguments)

    return pass_on


for each in ("begin", "limit", "step", "tick", "begin_validation", "valid", "samples", "say", "end", "close"):
    setattr(ProgressGroup, each, forward(each))
