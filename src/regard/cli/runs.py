"""Run folders on the command line: opened, and parted from a file to read."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.messages import print_message
from regard.errors import CommandError

if TYPE_CHECKING:
    from regard.run import Run


def open_run(*runs: str | Path, checkpoint: str, device: str) -> "Run":
    """Load a run, or several as an ensemble, onto the device that is named; torch is imported here."""
    from regard.decoding.processes import Processes
    from regard.run import load

    return load(*runs, checkpoint=checkpoint, device=Processes().device(device))


def open_beside(run: "Run", other: str | Path | None, *, checkpoint: str) -> "Run | None":
    """Load another run onto the device of the first, where one is named."""
    from regard.run import load

    return None if other is None else load(other, checkpoint=checkpoint, device=str(run.device))


def print_unknown_words(run: "Run") -> None:
    """Print which words of what a command read were never seen in training, if there are any."""
    if run.texts is not None and (message := run.unknown.message()):
        print_message(message)


def warn_of_lowercase(run: "Run", lowercase: bool) -> None:
    """Print a note where a run writes lower case and outputs are compared with case."""
    if run.settings.data.lowercase and not lowercase:
        print_message(f"{run.folder} writes lower case only (data.lowercase); --lowercase compares without case")


def split_runs_and_file(paths: Sequence[str]) -> tuple[list[str], str]:
    """Part run folders from the file to read, which stands last; it is "-", standard input, where none is given."""
    *runs, last = paths
    for path in runs:
        if path == "-" or Path(path).is_file():
            raise CommandError(f"{path}: a file given before {last}, expected run folders, and then one file at most")
    if Path(last).is_dir():
        return [*runs, last], "-"
    if not runs:
        no_run = "a file" if last == "-" or Path(last).exists() else "no such folder"
        raise CommandError(f"{last}: {no_run}, expected a run folder first, as in: regard translate runs/en-de FILE")
    if last != "-" and not Path(last).exists():
        text = "; text to translate comes from a file or through a pipe" if " " in last else ""
        raise CommandError(f"{last}: no such file, and no run folder{text}")
    return runs, last
