"""Built-in corpora as files: for people, the way they keep parallel corpora, and for training, which reads twice.

DIR/train.en  DIR/train.de            one sentence per line (.source and .target where there are no languages)
DIR/train.align                       gold links in Pharaoh format, "0-0 1-2", source first
DIR/train.en.heads  DIR/train.de.heads            the index of each word's head, -1 for the root
DIR/train.en.relations  DIR/train.de.relations    what each word is to its head: nsubj root det obj

Documents (reviews) are one file, DIR/train.tsv, of label and text; a link leads from an informative word to the label.

Pictures (scenes) are PNG files with a table beside them:

DIR/images/train-000000.png …
DIR/train.captions.tsv                picture and caption (train.labels.tsv: picture and answer to the question)
DIR/train.gold.jsonl                  each shape with its box, and of which shape each word speaks
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from regard.data.builtin import CORPORA, EDITION, Example, PicturedExample, Split, edition_of, generate, has_pair
from regard.data.settings import GOLD, CorpusSettings, DataSettings
from regard.errors import ArgumentError, ConfigError
from regard.io import disk, format_pharaoh

Written = Callable[[str, Example], tuple[str, ...]]  # from an example and its number to its line in each file


def write(
    name: str,
    folder: Path,
    counts: Mapping[Split, int],
    *,
    seed: int = 0,
    pair: str = "en-de",
    edition: int = EDITION,
    force: bool = False,
    **options: Any,
) -> Iterator[tuple[Path, int]]:
    """Write a corpus, split by split; yield each file and its number of lines when it is done.

    A file gets its name when it is complete, and none is overwritten without `force`. Splits without examples
    are left out.
    """
    streams = {
        split: generate(name, n, seed=seed, split=split, pair=pair, edition=edition, **options)
        for split, n in counts.items()
        if n
    }
    sides = tuple(pair.split("-")) if has_pair(name) else ("source", "target")
    ends = [*sides, "align"]
    if has_pair(name):
        ends += [f"{side}.{what}" for what in ("heads", "relations") for side in sides]
    as_lines: Written = lines
    if CORPORA[name].form == "documents":
        ends, as_lines = ["tsv", "align"], document_line
    if CORPORA[name].form == "pictures":
        with_question = options.get("question", "none") != "none"
        ends, as_lines = ["labels.tsv" if with_question else "captions.tsv", "gold.jsonl"], album(folder / "images")
    if not force:
        for split, end in itertools.product(streams, ends):
            if (path := folder / f"{split}.{end}").exists():
                raise ArgumentError(f"{path} already exists; --force overwrites it")
    folder.mkdir(parents=True, exist_ok=True)
    return _write(folder, streams, ends, as_lines)


def _write(
    folder: Path, streams: Mapping[Split, Iterator[Example]], ends: list[str], as_lines: Written
) -> Iterator[tuple[Path, int]]:
    for split, examples in streams.items():
        paths = [folder / f"{split}.{end}" for end in ends]
        count = 0
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(disk.replacing(path)) for path in paths]
            for example in examples:
                for file, line in zip(files, as_lines(f"{split}-{count:06d}", example), strict=False):
                    file.write(f"{line}\n".encode())
                count += 1
        for path in paths:
            yield path, count


def lines(number: str, example: Example) -> tuple[str, ...]:
    """Return an example's line in each file."""
    heads = (" ".join(map(str, side)) for side in (example.source_heads, example.target_heads))
    relations = map(" ".join, (example.source_relations, example.target_relations))
    return example.source, example.target, format_pharaoh(example.alignment), *heads, *relations


def document_line(number: str, example: Example) -> tuple[str, str]:
    """Return a document's line in each file."""
    return f"{example.target}\t{example.source}", format_pharaoh(example.alignment)


def album(folder: Path) -> Written:
    """Save an example's picture, and return its lines in the two files."""
    from PIL import Image

    disk.remove_leftovers(folder)

    def saved(number: str, example: Example) -> tuple[str, str]:
        pictured, name = cast(PicturedExample, example), f"{number}.png"
        folder.mkdir(parents=True, exist_ok=True)
        with disk.replacing(folder / name, many=True) as file:
            Image.fromarray(pictured.picture()).save(file, "PNG")
        shapes = [
            {"size": shape.size, "colour": shape.colour, "kind": shape.kind, "ringed": shape.ringed, "box": box}
            for shape, box in zip(pictured.scene.shapes, pictured.boxes, strict=True)
        ]
        gold = {"picture": name, "scene": pictured.source, "shapes": shapes, "speaks_of": pictured.speaks_of}
        return f"{name}\t{pictured.target}", json.dumps(gold)

    return saved


def write_builtin(folder: Path, data: DataSettings) -> tuple[tuple[CorpusSettings, ...], tuple[CorpusSettings, ...]]:
    """Write training and validation corpora as text files into a folder; validation is the corpus' own split."""
    folder.mkdir()
    training = write_split(folder, data, "train", data.count)
    if data.validation or not data.held_out:
        return (training,), data.validation
    return (training,), (write_split(folder, data, "valid", data.held_out_count(data.count)),)


def write_split(folder: Path, data: DataSettings, split: Split, count: int) -> CorpusSettings:
    """Write two text files of one split, with gold links beside them if wanted."""
    names = [str(folder / f"{split}.{end}") for end in ("source", "target", "align")]
    corpus = CorpusSettings(names[0], names[1], alignment=names[2] if data.alignment == GOLD else None)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(name, "w", encoding="utf-8", newline="\n")) for name in names]
        for example in draw(data, split, count, pair=data.pair):
            for file, line in zip(files, lines("", example), strict=False):
                file.write(f"{line}\n")
    return corpus


def draw(data: DataSettings, split: Split, count: int, **more: Any) -> Iterator[Example]:
    """Draw the examples of a split; a small corpus may have fewer for validation, but not for training."""
    try:
        yield from generate(str(data.builtin), count, split=split, **more, **data.drawing())
    except ArgumentError as error:
        if split == "train":
            raise ConfigError("data.count", str(error)) from None


def fingerprint(data: DataSettings) -> list[object]:
    """Identify the generated corpus and its edition."""
    edition = edition_of(str(data.builtin), data.builtin_edition)
    return [data.builtin, data.pair, data.count, data.builtin_seed, data.options(), edition]
