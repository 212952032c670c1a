"""The display of training: live on a terminal, plain lines elsewhere, and log.txt always."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from regard.io import disk
from regard.training.progress import JsonProgress, PlainProgress, Progress, SafeStream

Display = Literal["usual", "quiet", "json"]


def open_progress(run: str | Path | None, terminal: bool | None = None, display: Display = "usual") -> Progress:
    """Open the progress display of a training run in the folder `run`: to standard error, and to `run`/log.txt.

    `terminal` says whether standard error is one that can be drawn on; by default this is found out. Of the displays
    `quiet` shows nothing, and `json` writes a JSON object a record to standard output.
    """
    if terminal is None:
        # Asked of the stream, not of rich, for which FORCE_COLOR makes a terminal of a log.
        terminal = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    displays: list[Progress] = [PlainProgress(SafeStream(sys.stderr))]
    if display != "usual":
        displays = [JsonProgress(SafeStream(sys.stdout))] if display == "json" else []
    elif terminal:
        from regard.training.live import LiveProgress

        displays = [LiveProgress(SafeStream(sys.stderr))]
    if run is not None:
        Path(run).mkdir(parents=True, exist_ok=True)
        file = open(Path(run) / "log.txt", "a", encoding="utf-8", newline="\n", opener=disk.no_link)  # noqa: SIM115
        displays.append(PlainProgress(SafeStream(file), stamp=True))
    return ProgressGroup(displays)


class ProgressGroup(Progress):
    """Several displays that receive the same reports."""

    def __init__(self, members: Sequence[Progress]):
        self.members = list(members)


def forward(report: str) -> Callable[..., None]:
    """Make a method that passes a report on to every display of a group."""

    def pass_on(group: ProgressGroup, *arguments: Any) -> None:
        for member in group.members:
            getattr(member, report)(*arguments)

    return pass_on


for each in ("begin", "limit", "step", "tick", "begin_validation", "valid", "samples", "say", "end", "close"):
    setattr(ProgressGroup, each, forward(each))
