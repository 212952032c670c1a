"""The names of models that a person serves, and the run folders of each. Imports no torch."""

import os
from collections.abc import Sequence
from pathlib import Path

from regard.errors import CommandError
from regard.interop import is_export
from regard.io import packs
from regard.tasks import require_run


def parse_runs(arguments: Sequence[str], engine: str = "regard") -> dict[str, list[str]]:
    """Read RUN, NAME=RUN and NAME=RUN+RUN: the folders of each model by its name, for the engine that searches."""
    models: dict[str, list[str]] = {}
    for argument in arguments:
        name, equals, folders = argument.partition("=")
        if not equals or packs.is_folder(argument):
            path = Path(os.path.abspath(argument))  # a link's own name
            name, folders = path.stem if packs.is_pack(path) else path.name, argument
        each = [folders] if packs.is_folder(folders) else folders.split("+")
        if not name or not all(each):
            raise CommandError(f"{argument}: expected RUN, NAME=RUN, or NAME=RUN+RUN for an ensemble")
        if name in models:
            raise CommandError(
                f"{argument}: {name} is the name of another model; give it one of its own: NAME={folders}"
            )
        for folder in each:
            if not is_export(folder):
                require_run(folder)
            elif engine == "regard":
                raise CommandError(
                    f"{folder}: an exported folder, which another engine opens; add --engine ctranslate2"
                )
        models[name] = each
    return models
