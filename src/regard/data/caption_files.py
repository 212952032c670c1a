"""Readers of picture captions and labels in common formats. Imports no torch.

- lines of picture, tab, caption; a picture with several captions has several lines
- token files of Flickr8k and Flickr30k: such lines, with #0, #1 … after the picture's name
- Karpathy's JSON: pictures with their sentences and split
- lines of picture, tab, label; or folders whose names are the labels

All files may be gzip.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from regard.data.corpus import BadRows, lines, named_columns
from regard.data.pixels import ENDINGS, read_for
from regard.data.settings import DataSettings
from regard.errors import DataError
from regard.io import Say, ignore, read_whole

NAMED = 10  # unreadable pictures that a command names; further ones are only counted
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NUMBERED = re.compile(r"#\d+$")
SPLITS = {"train": "train", "restval": "train", "val": "valid", "test": "test"}


@dataclass
class Captions:
    """The captions of a file by picture, in the order of the file."""

    captions: dict[str, list[str]] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)  # from Karpathy's JSON: train, valid or test
    blank: int = 0

    def add(self, picture: str, caption: str) -> None:
        """Add a caption of a picture; count a blank one."""
        if caption := " ".join(caption.split()):
            self.captions.setdefault(picture, []).append(caption)
        else:
            self.blank += 1


def read_captions(path: str | Path, say: Say = ignore) -> Captions:
    """Read a caption file in any of the three formats; `say` reports unreadable rows, which are skipped."""
    first = next((line for line in lines(path) if line.strip()), "")
    if first.lstrip().startswith(("{", "[")):
        return read_karpathy(path, say)
    captions = Captions()
    for picture, caption in named_columns(path, "picture", "caption", say=say):
        if picture.strip():
            captions.add(NUMBERED.sub("", picture.strip()), caption)
    return captions


def read_karpathy(path: str | Path, say: Say = ignore) -> Captions:
    """Read Karpathy's JSON: {"images": [{"filename", "filepath", "split", "sentences": [{"raw"}]}]}."""
    try:
        content = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from None
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list):
        raise DataError(f'{path}: no list under "images", expected Karpathy\'s JSON')
    collection, bad = Captions(), BadRows(path)
    for i, image in enumerate(images):
        try:
            name = text(image, "filename")
            if image.get("filepath") not in (None, ""):
                name = f"{text(image, 'filepath')}/{name}"
            split = text(image, "split") if "split" in image else None
            if split is not None and split not in SPLITS:
                raise DataError(f'"{split}" given under "split", expected one of {", ".join(SPLITS)}')
            sentences = image.get("sentences")
            if not isinstance(sentences, list):
                raise DataError('no list under "sentences"')
            captions = [text(sentence, "raw", "sentences: ") for sentence in sentences]
        except DataError as error:
            bad.add(f"images[{i}]: {error}")
            continue
        bad.good += 1
        if split is not None:
            collection.splits[name] = SPLITS[split]
        for caption in captions:
            collection.add(name, caption)
    bad.end(say, f"of {len(images):,} pictures cannot be read and are skipped")
    return collection


def text(row: Any, key: str, place: str = "") -> str:
    """Return the text under a key; raise a DataError if there is none."""
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, str):
        raise DataError(f'{place}no text under "{key}"')
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", " ")


def read_labels(path: str | Path, say: Say = ignore) -> dict[str, str]:
    """Read lines of picture, tab, label; skip pictures with no label or two labels, and report them with `say`."""
    labels, bad, wrong = dict[str, str](), BadRows(path), set[str]()
    for number, (picture, label) in enumerate(named_columns(path, "picture", "picture label", say=say), 1):
        picture, label = picture.strip(), label.strip()
        if not picture:
            continue
        problem = "" if label else f"{picture} has no label"
        if label and labels.setdefault(picture, label) != label:
            problem = f'{picture} is "{label}", but "{labels[picture]}" on an earlier line'
        if problem and picture not in wrong:
            wrong.add(picture)
            bad.add(f"line {number:,}: {problem}")
    bad.good = len(labels.keys() - wrong)
    bad.end(say, "pictures without exactly one label are skipped")
    return {picture: label for picture, label in labels.items() if picture not in wrong}


def read_list(path: str | Path, say: Say = ignore) -> set[str]:
    """Read a file of names, one per line."""
    return {line.strip() for line in lines(path, say)} - {""}


PictureFile = tuple[int, int]  # size in bytes and modification time in nanoseconds, known without reading the file


def list_pictures(folder: str | Path, say: Say = ignore) -> dict[str, PictureFile]:
    """List the picture files in a folder and its subfolders, sorted by their path relative to the folder.

    Inaccessible folders, and pipes or broken links with a picture's name, are skipped and reported with `say`.
    """
    if not os.path.isdir(folder):
        what = "not a folder" if os.path.lexists(folder) else "no such folder"
        raise DataError(f"{folder}: {what}, expected a folder of pictures")
    problems: list[str] = []
    files = dict(walk(str(folder), problems))
    if problems:
        say(f"skipped in {folder}: {len(problems):,} ({list_names(problems, joined='; ')})")
    return {name: files[name] for name in sorted(files)}


def walk(folder: str, problems: list[str]) -> Iterator[tuple[str, PictureFile]]:
    """Yield all picture files; append descriptions of unusable entries to `problems`."""
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]  # folders, each with its ancestors
    while waiting:
        within, above = waiting.pop()
        try:
            status = os.stat(os.path.join(folder, within))
            here = (status.st_dev, status.st_ino)
            if here in above:  # a link to one of its own ancestors
                continue
            with os.scandir(os.path.join(folder, within)) as listed:
                entries = list(listed)
        except OSError as error:
            if not within:
                raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from None
            problems.append(f"{within}: {error.strerror or error}")
            continue
        for entry in entries:
            name = f"{within}/{entry.name}" if within else entry.name
            pictured = entry.name.lower().endswith(ENDINGS)
            try:
                if entry.is_dir():
                    waiting.append((name, above | {here}))
                elif pictured and entry.is_file():
                    status = entry.stat()
                    yield name, (status.st_size, status.st_mtime_ns)
                elif pictured:
                    there = os.path.exists(os.path.join(folder, name))
                    problems.append(f"{name}: {'a pipe or a device' if there else 'a link that leads nowhere'}")
            except OSError as error:  # a loop of links, for instance
                problems.append(f"{name}: {error.strerror or error}")


def pictures_in(paths: Iterable[str], say: Say = ignore) -> list[str]:
    """List picture files: file paths unchanged, and for a folder all pictures in it, sorted."""
    names = list[str]()
    for path in paths:
        if not os.path.isdir(path):
            names.append(path)
            continue
        inside = [os.path.join(path, name) for name in list_pictures(path, say)]
        if not inside:
            raise DataError(f"{path}: contains no pictures ({', '.join(ENDINGS)})")
        names += inside
    return names


class PictureFiles:
    """Picture files to read one by one; unreadable ones among several are named, counted and skipped."""

    def __init__(self, names: Sequence[str], say: Say = ignore):
        """List the picture files of `names`, which are paths of files or folders."""
        self.paths, self.say, self.unreadable = pictures_in(names, say), say, 0
        self.single = len(self.paths) == 1 and list(names) == self.paths  # whether `names` is a single file

    def read(self, data: DataSettings) -> Iterator[tuple[str, UInt8[np.ndarray, "3 h w"]]]:
        """Yield each path and its pixels, as a model trained with these settings sees them."""
        for path in self.paths:
            try:
                pixels = read_for(data, path)
            except DataError as error:
                if len(self.paths) == 1:
                    raise
                self.unreadable += 1
                if self.unreadable <= NAMED:
                    self.say(list_names([str(error)]))
                continue
            yield path, pixels

    def end(self) -> None:
        """Report how many pictures could not be read; raise a DataError if none could."""
        if self.unreadable == len(self.paths):
            raise DataError(f"none of {self.unreadable:,} pictures can be read")
        if self.unreadable:
            self.say(f"{self.unreadable:,} of {len(self.paths):,} pictures cannot be read and are skipped")


def list_names(names: Iterable[str], joined: str = ", ") -> str:
    """List the first three names for a message; control characters and undecodable bytes become question marks."""
    first = sorted(names)
    text = joined.join(first[:3]) + (f"{joined}…" if len(first) > 3 else "")
    return CONTROL.sub("?", text).encode(errors="replace").decode()
