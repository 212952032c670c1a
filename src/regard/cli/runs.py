"""Run folders on the command line: opening them, and separating them from files or texts to read."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.messages import print_message
from regard.errors import CommandError, ConfigError
from regard.io import packs

if TYPE_CHECKING:
    from regard.decoding import Processes
    from regard.run import Run

ENGINES = ("regard", "ctranslate2")


def open_run(
    *runs: str | Path,
    checkpoint: str,
    device: str,
    languages: Mapping[str, str | None] | None = None,
    engine: str = "regard",
    quantize: str | None = None,
    processes: "Processes | None" = None,
) -> "Run":
    """Load a run, or several as an ensemble, onto a device; this imports torch.

    `languages` are the source and target languages, for a multilingual run. A command that passes `processes` shares
    the devices among them, and has checked its arguments before starting them.
    """
    from regard.decoding import Processes

    if processes is None:
        check_engine(engine, quantize)
        check_folders(*runs, engine=engine)
        processes = Processes()
    where = processes.device(device)
    if engine == "regard":
        from regard.run import load

        run = load(*runs, checkpoint=checkpoint, device=where)
    else:
        from regard.interop import open_engine

        where = "cpu" if where == "mps" else where  # CTranslate2 supports only the CPU on an Apple machine
        run = open_engine(*runs, checkpoint=checkpoint, device=where, quantize=quantize, say=print_message)
    run.set_languages(**(languages or {}))
    return run


def check_engine(engine: str, quantize: str | None) -> None:
    """Refuse an unknown engine, and a number format without an engine that supports it."""
    if engine not in ENGINES:
        raise CommandError(f"--engine: {engine} given, expected {' or '.join(ENGINES)}")
    if engine == "regard" and quantize is not None:
        raise CommandError(f"--quantize: {quantize} given without --engine ctranslate2; add it")


def check_served(run: "Run", search: Mapping[str, Any]) -> None:
    """Refuse search options that the run's engine does not support, by their flags."""
    from regard.config import parse
    from regard.decoding import Options

    try:
        run.engine.check(parse(Options, search))
    except ConfigError as error:
        raise CommandError(f"--{error.key.replace('_', '-')}: {error.problem}") from None


def check_folders(*runs: str | Path, engine: str = "regard") -> None:
    """Refuse folders that are no runs, before importing torch, which takes seconds."""
    from regard.interop import is_export
    from regard.tasks import require_run

    for run in runs:
        if not is_export(run):
            require_run(run)
        elif engine == "regard":
            raise CommandError(f"{run}: an exported folder, which another engine opens; add --engine ctranslate2")


def open_beside(run: "Run", other: str | Path | None, *, checkpoint: str) -> "Run | None":
    """Load another run onto the device of the first, if one is given."""
    from regard.run import load

    return None if other is None else load(other, checkpoint=checkpoint, device=str(run.device))


def print_unknown_words(run: "Run") -> None:
    """Print the words in a command's input that did not occur in training, if there are any."""
    from regard.models import KINDS

    if KINDS[run.settings.kind].reads != "pictures" and (message := run.unknown.message()):
        print_message(message)


def warn_of_lowercase(run: "Run", lowercase: bool) -> None:
    """Print a note if a run writes lower case only, but the comparison is case-sensitive."""
    if run.settings.data.lowercase and not lowercase:
        print_message(f"{run.folder} writes only lower case (data.lowercase); --lowercase compares without case")


def split_runs_and_inputs(paths: Sequence[str], as_text: bool = False) -> tuple[list[str], list[str]]:
    """Separate run folders from the texts or files after them; without any, the input is "-", standard input.

    With `as_text` a folder that is no run may be a text.
    """
    from regard.io import texts_or_files

    if not is_folder(paths[0]):
        no_run = "a file" if paths[0] == "-" or os.path.exists(paths[0]) else "no such folder"
        raise CommandError(
            f"{paths[0]}: {no_run}, expected a run folder first, as in: regard translate runs/en-de FILE"
        )
    belongs = is_run if as_text else is_folder
    runs = [paths[0], *itertools.takewhile(belongs, paths[1:])]
    inputs = list(paths[len(runs) :])
    if as_text and not inputs:
        raise CommandError("--text: missing a text; give one after the run folder")
    folder = None if as_text else next(filter(is_folder, inputs), None)
    if folder is not None:
        raise CommandError(f"{folder}: a folder behind {inputs[0]}; give run folders first, and then texts or files")
    return runs, texts_or_files(inputs, as_text)


def is_folder(path: str) -> bool:
    """Return whether a path is a folder or a pack."""
    return bool(path.strip()) and packs.is_folder(path)


def is_run(path: str) -> bool:
    """Return whether a path is a run, a pack or an exported folder."""
    from regard.interop import is_export

    return is_folder(path) and (packs.is_file(Path(path) / "config.toml") or is_export(path))
