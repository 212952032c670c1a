"""Tiny trained runs that many tests read: the first process to need one makes it, and all tests get copies.

The fixture `furnish(run="transformer", other="rnn")` returns a new folder with such runs under these names, and their
training data in its folder `data`. The folder belongs to the tests that requested it.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import portalocker
import pytest
import torch
from tiny import caption_table, document_table, question_table, table

from regard.data import generate
from regard.tasks import start

ENCODER = {"kind": "encoder", "size": 16, "heads": 2, "layers": 1, "hidden": 16}


def phrasebook_table(home: Path) -> dict[str, Any]:
    """English and German sentences, and words of them that a tiny model knows."""
    folder = home / "phrasebook"
    given = table(folder, training__steps=60, training__batch_tokens=512, training__rate=0.02)  # outputs reach END
    return {**given, "data": {"builtin": "phrasebook", "count": 400, "cache": str(home / "cache")}}


def tagged_table(home: Path) -> dict[str, Any]:
    """English sentences in German and in French, with a tag for each."""
    folder = home / "tagged"
    given = table(folder, training__steps=2)
    corpora = []
    for language in ("de", "fr"):
        rows = list(generate("phrasebook", 300, pair=f"en-{language}"))
        paths = folder / f"{language}.en", folder / f"x.{language}"
        paths[0].write_text("".join(f"{each.source}\n" for each in rows), encoding="utf-8")
        paths[1].write_text("".join(f"{each.target}\n" for each in rows), encoding="utf-8")
        corpora.append({"source": str(paths[0]), "target": str(paths[1]), "tag": f"<2{language}>"})
    return {**given, "data": {"corpora": corpora, "held_out": 0.05, "cache": str(home / "cache")}}


# A run's name: its configuration as a function of the data folder, and the folder of data that it is trained on.
RECIPES: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "transformer": (lambda home: table(home, training__steps=2), "pairs"),
    "rnnsearch": (lambda home: table(home, "rnnsearch", training__steps=2), "pairs"),
    "rnn": (lambda home: table(home, "rnn", training__steps=2), "pairs"),
    "luong": (lambda home: table(home, "luong", training__steps=2), "pairs"),
    "language-model": (lambda home: table(home, task="language-model", model=ENCODER, training__steps=2), "pairs"),
    "phrasebook": (phrasebook_table, "phrasebook"),
    "tagged": (tagged_table, "tagged"),
    "captioner": (caption_table, "captioned"),
    "convnet": (question_table, "questions"),
    "han": (lambda home: document_table(home, "han"), "documents"),
    "encoder": (lambda home: document_table(home, "encoder"), "documents"),
    "lstmn": (lambda home: document_table(home, "lstmn"), "documents"),
}


def shared_root(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that every process of this test run knows."""
    base = factory.getbasetemp()
    root = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "furnished"
    root.mkdir(exist_ok=True)
    return root


def trained(root: Path, name: str) -> Path:
    """Return a run that the first process to request it has trained; read or copy it, and do not write into it."""
    with portalocker.Lock(root / f"{name}.lock", timeout=240):
        if not (root / f"{name}.ready").exists():
            threads = torch.get_num_threads()
            start(RECIPES[name][0](root / "data" / name), root / name)
            torch.set_num_threads(threads)
            (root / f"{name}.ready").touch()
    return root / name


def furnish_in(root: Path, folder: Path, **runs: str) -> Path:
    """Copy runs into a folder under the given names, and their training data into its `data`."""
    for name, recipe in runs.items():
        shutil.copytree(trained(root, recipe), folder / name, symlinks=True)
        data = RECIPES[recipe][1]
        if not (folder / "data" / data).exists():
            shutil.copytree(root / "data" / recipe / data, folder / "data" / data)
    return folder
