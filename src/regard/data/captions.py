"""Which captions, or which label, belong to which picture: the forms that people keep them in. Imports no torch.

- lines of picture, tab, caption; a picture with several captions has several lines
- Flickr8k's and Flickr30k's token files: the same, with #0, #1 … after the picture's name
- Karpathy's JSON: pictures with sentences, and the split each is of
- lines of picture, tab, label; or folders whose names are the labels

Gzip or not, as everywhere.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.corpus import columns, lines
from regard.data.picture import ENDINGS
from regard.errors import DataError

__all__ = ["Captions", "Found", "named", "pictures_in", "read_captions", "read_labels", "read_list", "survey"]

NUMBERED = re.compile(r"#\d+$")
SPLITS = {"train": "train", "restval": "train", "val": "valid", "test": "test"}


@dataclass
class Captions:
    """The captions of a file, by picture, in its order."""

    captions: dict[str, list[str]] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)  # Karpathy's: train, valid or test
    blank: int = 0

    def add(self, picture: str, caption: str) -> None:
        """One more caption."""
        if caption := " ".join(caption.split()):
            self.captions.setdefault(picture, []).append(caption)
        else:
            self.blank += 1


def read_captions(path: str | Path) -> Captions:
    """A file of captions, in any of the three forms."""
    first = next((line for line in lines(path) if line.strip()), "")
    if first.lstrip().startswith(("{", "[")):
        return karpathy(path)
    found = Captions()
    for picture, caption in columns(path, 1, 2):
        if picture.strip():
            found.add(NUMBERED.sub("", picture.strip()), caption)
    return found


def karpathy(path: str | Path) -> Captions:
    """Karpathy's JSON: {"images": [{"filename", "filepath", "split", "sentences": [{"raw"}]}]}."""
    try:
        content = json.loads("\n".join(lines(path)))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from None
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list):
        raise DataError(f'{path}: no list under "images", expected Karpathy\'s JSON')
    found = Captions()
    for i, image in enumerate(images):
        place = f"{path}, images[{i}]"
        name = text(image, "filename", place)
        folder = image.get("filepath")
        if folder is not None and folder != "":
            name = f"{text(image, 'filepath', place)}/{name}"
        if "split" in image:
            split = text(image, "split", place)
            if split not in SPLITS:
                raise DataError(f'{place}: "{split}" given under "split", expected one of {", ".join(SPLITS)}')
            found.splits[name] = SPLITS[split]
        sentences = image.get("sentences")
        if not isinstance(sentences, list):
            raise DataError(f'{place}: no list under "sentences"')
        for sentence in sentences:
            found.add(name, text(sentence, "raw", f"{place}, sentences"))
    return found


def text(row: Any, key: str, place: str) -> str:
    """The text under a key."""
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, str):
        raise DataError(f'{place}: no text under "{key}"')
    return value


def read_labels(path: str | Path) -> dict[str, str]:
    """A file of picture, tab, label."""
    found: dict[str, str] = {}
    for number, (picture, label) in enumerate(columns(path, 1, 2), 1):
        picture, label = picture.strip(), label.strip()
        if picture and found.setdefault(picture, label) != label:
            raise DataError(f'{path}, line {number:,}: {picture} is "{label}", and "{found[picture]}" further up')
        if picture and not label:
            raise DataError(f"{path}, line {number:,}: {picture} has no label")
    return found


def read_list(path: str | Path) -> set[str]:
    """A file of names, one a line."""
    return {line.strip() for line in lines(path)} - {""}


class Found(NamedTuple):
    """What is known of a picture file without reading it."""

    bytes: int
    changed: int  # nanoseconds


def survey(folder: str | Path) -> dict[str, Found]:
    """The picture files in a folder and in the folders within, by their path from there, sorted."""
    if not os.path.isdir(folder):
        what = "not a folder" if os.path.exists(folder) else "no such folder"
        raise DataError(f"{folder}: {what}, expected a folder of pictures")
    try:
        root = os.stat(folder)
        found = dict(walk(str(folder), "", frozenset({(root.st_dev, root.st_ino)})))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from None
    return {name: found[name] for name in sorted(found)}


def walk(folder: str, within: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[str, Found]]:
    with os.scandir(os.path.join(folder, within)) as entries:
        for entry in entries:
            name = f"{within}/{entry.name}" if within else entry.name
            if entry.is_dir():
                known = entry.stat()
                here = (known.st_dev, known.st_ino)
                if here not in above:  # a link may lead back to where it is
                    yield from walk(folder, name, above | {here})
            elif entry.name.lower().endswith(ENDINGS) and entry.is_file():
                known = entry.stat()
                yield name, Found(known.st_size, known.st_mtime_ns)


def pictures_in(paths: Iterable[str]) -> list[str]:
    """Picture files as they are named, and in the place of a folder all that are in it, sorted."""
    found = list[str]()
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        inside = [os.path.join(path, name) for name in survey(path)]
        if not inside:
            raise DataError(f"{path}: no pictures in it ({', '.join(ENDINGS)})")
        found += inside
    return found


def named(names: Iterable[str], most: int = 3, joined: str = ", ") -> str:
    """The first few names, for a message; bytes that are no characters in them are shown as question marks."""
    first = sorted(names)
    text = joined.join(first[:most]) + (f"{joined}…" if len(first) > most else "")
    return text.encode(errors="replace").decode()
