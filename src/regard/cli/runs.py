"""Run folders on the command line: opened, and parted from a file or text to read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard import packs
from regard.cli.messages import print_message
from regard.errors import CommandError

if TYPE_CHECKING:
    from regard.run import Run


def open_run(
    *runs: str | Path, checkpoint: str, device: str, languages: Mapping[str, str | None] | None = None
) -> "Run":
    """Load a run, or several as an ensemble, onto the device that is named; torch is imported here.

    `languages` are those of source and target, of a run that knows several.
    """
    check_folders(*runs)

    from regard.decoding.processes import Processes
    from regard.run import load

    run = load(*runs, checkpoint=checkpoint, device=Processes().device(device))
    run.set_languages(**(languages or {}))
    return run


def check_folders(*runs: str | Path) -> None:
    """Refuse folders that are no runs, before torch is imported, which takes seconds."""
    from regard.tasks.summary import require_run

    for run in runs:
        require_run(run)


def open_beside(run: "Run", other: str | Path | None, *, checkpoint: str) -> "Run | None":
    """Load another run onto the device of the first, where one is named."""
    from regard.run import load

    return None if other is None else load(other, checkpoint=checkpoint, device=str(run.device))


def print_unknown_words(run: "Run") -> None:
    """Print which words of what a command read were never seen in training, if there are any."""
    from regard.models.kinds import KINDS

    if KINDS[run.settings.kind].reads != "pictures" and (message := run.unknown.message()):
        print_message(message)


def warn_of_lowercase(run: "Run", lowercase: bool) -> None:
    """Print a note where a run writes lower case and outputs are compared with case."""
    if run.settings.data.lowercase and not lowercase:
        print_message(f"{run.folder} writes only lower case (data.lowercase); --lowercase compares without case")


def split_runs_and_input(paths: Sequence[str], as_text: bool = False) -> tuple[list[str], str]:
    """Part run folders from the file or text to read, which stands last; "-", standard input, where none is given."""
    from regard.io.inputs import text_or_file

    *runs, last = paths
    for path in runs:
        if path == "-" or is_file(path):
            raise CommandError(f"{path}: a file before {last}; give run folders first, then at most one file")
    if is_folder(last) and not (as_text and runs):
        if as_text:
            raise CommandError("--text: missing a text; give one after the run folder")
        return [*runs, last], "-"
    if not runs:
        no_run = "a file" if last == "-" or is_file(last) else "no such folder"
        raise CommandError(f"{last}: {no_run}, expected a run folder first, as in: regard translate runs/en-de FILE")
    for path in runs:
        if not is_folder(path):
            raise CommandError(f"{path}: no such run folder; give run folders first, and then one text or one file")
    return runs, text_or_file(last, as_text)


def is_file(path: str) -> bool:
    """Return whether there is a file of this name; a text may be too long for one."""
    try:
        return Path(path).exists() and not packs.is_folder(path)
    except (OSError, ValueError):
        return False


def is_folder(path: str) -> bool:
    """Return whether there is a folder of this name, or a pack."""
    try:
        return packs.is_folder(path)
    except (OSError, ValueError):
        return False
