"""Built-in corpora as text files, drawn once: everything that is encoded is read twice."""

import contextlib
from pathlib import Path
from typing import Literal

from regard.data.builtin import edition_of, generate
from regard.data.settings import GOLD, CorpusSettings, DataSettings
from regard.errors import ArgumentError, ConfigError
from regard.io import format_pharaoh


def write_builtin(folder: Path, data: DataSettings) -> tuple[tuple[CorpusSettings, ...], tuple[CorpusSettings, ...]]:
    """Write training and validation corpora as text files into a folder; validation is the corpus' own split."""
    folder.mkdir()
    training = write_split(folder, data, "train", data.count)
    if data.validation or not data.held_out:
        return (training,), data.validation
    return (training,), (write_split(folder, data, "valid", data.held_out_count(data.count)),)


def write_split(folder: Path, data: DataSettings, split: Literal["train", "valid"], count: int) -> CorpusSettings:
    """Write two text files of one split, with gold links beside them if wanted.

    A small corpus may have fewer pairs for validation, but not for training.
    """
    names = [str(folder / f"{split}.{end}") for end in ("source", "target", "align")]
    corpus = CorpusSettings(names[0], names[1], alignment=names[2] if data.alignment == GOLD else None)
    drawing = data.drawing()
    with contextlib.ExitStack() as stack:
        sources, targets, links = (
            stack.enter_context(open(name, "w", encoding="utf-8", newline="\n")) for name in names
        )
        try:
            for example in generate(str(data.builtin), count, split=split, pair=data.pair, **drawing):
                sources.write(f"{example.source}\n")
                targets.write(f"{example.target}\n")
                links.write(f"{format_pharaoh(example.alignment)}\n")
        except ArgumentError as error:
            if split == "train":
                raise ConfigError("data.count", str(error)) from None
    return corpus


def fingerprint(data: DataSettings) -> list[object]:
    """Identify the generated corpus and its edition."""
    edition = edition_of(str(data.builtin), data.builtin_edition)
    return [data.builtin, data.pair, data.count, data.builtin_seed, data.options(), edition]
