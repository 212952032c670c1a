"""The display of training: live on a terminal, plain lines elsewhere, and always log.txt.

On a terminal a thread of rich redraws it in place, even during a long step or a validation.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from rich import live
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from regard.io import disk
from regard.training.metrics import format_clock
from regard.training.progress import (
    MISSING,
    CurrentFigures,
    JsonProgress,
    PlainProgress,
    Progress,
    ProgressGroup,
    SafeStream,
    Sample,
    format_scores,
    legible,
)

Display = Literal["usual", "quiet", "json"]
DRAWINGS = 2.5  # per second
WIDTH = 100  # columns at most: longer lines are hard to read, and wrap when the window is made narrower
MARGIN = len("validation ")
NARROW = 40  # below this there is no room for a margin


def open_progress(run: str | Path | None, terminal: bool | None = None, display: Display = "usual") -> Progress:
    """Open the progress display of a training run: on standard error, and in log.txt in the folder `run`.

    `terminal` says whether standard error is a terminal that can be redrawn; by default this is detected. The display
    `quiet` shows nothing; `json` writes one JSON object per record to standard output.
    """
    if terminal is None:
        # Ask the stream, not rich: with FORCE_COLOR rich takes a log file for a terminal.
        terminal = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    displays: list[Progress] = [PlainProgress(SafeStream(sys.stderr))]
    if display != "usual":
        displays = [JsonProgress(SafeStream(sys.stdout))] if display == "json" else []
    elif terminal:
        displays = [LiveProgress(SafeStream(sys.stderr))]
    if run is not None:
        Path(run).mkdir(parents=True, exist_ok=True)
        file = open(Path(run) / "log.txt", "a", encoding="utf-8", newline="\n", opener=disk.no_link)  # noqa: SIM115
        displays.append(PlainProgress(SafeStream(file), stamp=True))
    return ProgressGroup(displays)


class LiveProgress(Progress):
    """A display that is redrawn in place on a terminal: current figures, last and best validation, samples."""

    def __init__(
        self,
        stream: SafeStream | None = None,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._console = console or Console(
            file=cast(Any, stream or SafeStream(sys.stderr)), force_terminal=True, highlight=False
        )
        self._clock, self._last_step_at = clock, 0.0
        self._course = CurrentFigures()
        self._samples: list[Sample] = []
        self._live: live.Live | None = None
        self._validating_since: float | None = None

    def begin(self, title: str, facts: Sequence[tuple[str, str]], steps: int | None) -> None:
        self.close()
        self._course, self._samples, self._last_step_at = CurrentFigures(steps), [], self._clock()
        self._console.print(Text(title, style="bold"))
        if facts:
            table = Table.grid(padding=(0, 2))
            table.add_column(no_wrap=True, style="dim")
            table.add_column(overflow="fold")
            for name, fact in facts:
                table.add_row(Text(name), Text(fact))
            self._console.print(table)
        # rich prints other output to standard error above the display. Redirect standard output only if it is a
        # terminal too: piped output must stay in the pipe.
        self._live = live.Live(
            self, console=self._console, refresh_per_second=DRAWINGS, redirect_stdout=sys.stdout.isatty()
        )
        self._live.start()

    def limit(self, seconds: float | None) -> None:
        self._course.limit = seconds

    def step(self, record: Mapping[str, Any]) -> None:
        self._course.step(record)
        self._last_step_at = self._clock()

    def tick(self, step: int, seconds: float) -> None:
        self._course.tick(step, seconds)
        self._last_step_at = self._clock()

    def begin_validation(self) -> None:
        self._validating_since = self._clock()

    def valid(self, record: Mapping[str, Any]) -> None:
        self._course.valid(record)
        self._validating_since = None

    def samples(self, samples: Sequence[Sample]) -> None:
        self._samples = [Sample._make((*map(legible, each[:3]), each.label)) for each in samples]

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def end(self, text: str) -> None:
        self.close()
        self.say(f"\n{text}")  # an empty line separates it from the samples

    def close(self) -> None:
        self._validating_since = None
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Render the display in lines that fit the window; a low window shows fewer samples, each on fewer lines."""
        width, height = min(options.max_width, WIDTH), console.size.height
        lines = self._standing(width)
        lines += self._fitted(width, height - len(lines))
        for line in lines[: max(1, height - 1)]:
            line.no_wrap, line.overflow = True, "crop"
            yield line

    def _fitted(self, width: int, room: int) -> list[Text]:
        """Return the lines of as many samples as there is room for, each text on at most two lines or one."""
        for count, depth in [(3, 2), (3, 1), (2, 2), (2, 1), (1, 2), (1, 1)]:
            lines = [line for sample in self._samples[:count] for line in self._lay_out(sample, width, depth)]
            if len(lines) < room and width >= 20:
                return lines
        return []

    def _lay_out(self, sample: Sample, width: int, depth: int) -> list[Text]:
        """Lay out a sample: an empty line, then each text on at most `depth` lines."""
        output = Text()
        for piece, differs in sample.pieces:
            output.append(piece or (MISSING if differs else ""), style="bold underline yellow" if differs else "")
        texts = {"source": Text(sample.source), "reference": Text(sample.reference, style="dim"), "output": output}
        margin = MARGIN if width >= NARROW else 3
        lines = [Text("")]
        for name, text in texts.items():
            room = max(4, width - margin)
            rows = list(text.wrap(self._console, room, overflow="fold"))
            if len(rows) > depth:
                rows = rows[:depth]
                rows[-1].rstrip()
                rows[-1].append(" …")
                rows[-1].truncate(room, overflow="ellipsis")
            for row, part in enumerate(rows):
                label = (name if margin == MARGIN else name[0]) if row == 0 else ""
                part.rstrip()
                lines.append(Text().append(label.ljust(margin), style="dim").append_text(part))
        return lines

    def _standing(self, width: int) -> list[Text]:
        course, lines = self._course, [Text("")]
        place = f"{course.place():<{len(f'step {course.steps:,}') * 2 - 4}}" if course.steps else course.place()
        head, tail = Text().append(place, style="bold"), Text()
        if course.steps:
            share = min(1.0, course.last.get("step", 0) / course.steps)
            tail.append(f"  {math.floor(share * 100)}%", style="bold")
        if "epoch" in course.last:
            tail.append(f"  epoch {course.last['epoch']:,}", style="dim")
        size = min(40, width - head.cell_len - tail.cell_len - 2)
        if course.steps and size >= 8:
            # The bar is readable without colour: its two halves use different characters.
            full, empty = ("━", "┄") if self._console.encoding.lower().startswith("utf") else ("=", ".")
            at = round(share * size)
            head.append("  ").append(full * at, style="cyan").append(empty * (size - at), style="dim")
        head.append_text(tail)
        lines.append(head)
        lines += flow_parts("", [*course.numbers(), *self._times()], width)
        since = self._validating_since
        if since is not None or course.checked is not None:
            lines.append(Text(""))
        if since is not None:
            lines += flow_parts("validating", [f"… {format_clock(self._clock() - since)}"], width)
        if course.checked is not None:
            new = course.best is course.checked
            parts = [f"step {course.checked.get('step', 0):,}", *format_scores(course.checked)]
            lines += flow_parts("validation", [*parts, "best checkpoint so far"] if new else parts, width)
            if course.best is not None and not new:
                scores = {key: value for key, value in course.best.items() if not key.startswith("patience")}
                lines += flow_parts("best", [f"step {course.best.get('step', 0):,}", *format_scores(scores)], width)
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines

    def _times(self) -> list[str]:
        """Format the time so far and the time left; both advance between steps."""
        since = self._clock() - self._last_step_at
        times = [f"{format_clock(self._course.last.get('seconds', 0.0) + since)} so far"]
        left = self._course.seconds_left(since)
        return [*times, f"{format_clock(left)} left"] if left else times


def flow_parts(label: str, parts: list[str], width: int) -> list[Text]:
    """Join parts with dots, on as many lines as they need, after a label in the margin."""
    margin = MARGIN if label and width >= NARROW else 0
    rows: list[str] = []
    for part in parts:
        if rows and cell_len(rows[-1]) + 3 + cell_len(part) <= width - margin:
            rows[-1] += " · " + part
        else:
            rows.append(part)
    if label and not margin:
        return [Text(label, style="dim"), *map(Text, rows)]
    labels = [label, *[""] * len(rows)]
    return [Text().append(labels[i].ljust(margin), style="dim").append(row) for i, row in enumerate(rows)]
