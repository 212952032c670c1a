"""Corpora of pictures with captions or labels, from files or generated scenes, and the pictures that a run reads.

A corpus is split into training and validation, decoded and encoded once, and then read from the cache. In the encoded
corpus, a picture's source is one number, its index in the array of pixels. Its target is the concatenation of its
captions with END between them or, for a classifier, the index of its label.
"""

# h w height and width
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import tokenizers as library
from torch import Tensor

from regard.data import cache
from regard.data.builtin import PicturedExample, Split
from regard.data.cache import Encoded, Writer
from regard.data.caption_files import (
    Captions,
    PictureFile,
    list_names,
    list_pictures,
    read_captions,
    read_labels,
    read_list,
)
from regard.data.pixels import Picture, Pixels, cache_pixels, decode, read_for, stored_side
from regard.data.preparation import SAMPLE, Prepared, draw, identify_builtin, load_tokenizers
from regard.data.settings import DataSettings, TokenizerSettings, cache_folder
from regard.data.tokenizer import END, Tokenizers
from regard.data.vocabulary import train
from regard.errors import ArgumentError, ConfigError, DataError
from regard.io import Say, ignore


class Row(NamedTuple):
    """A picture's name with its captions, or its label."""

    picture: str
    texts: list[str]


@dataclass
class Album:
    """The training and validation pictures, with counts and messages about them."""

    train: list[Row] = field(default_factory=list)
    valid: list[Row] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    files: dict[str, PictureFile] = field(default_factory=dict)
    hold_out: bool = False  # whether training pictures have yet to be held out for validation

    def leave_out(self, name: str, pictures: Iterable[str], what: str) -> None:
        """Count pictures that cannot be used, and note the names of the first few."""
        if missing := sorted(pictures):
            self.counts[name] += len(missing)
            self.notes.append(f"pictures {what}: {len(missing):,} ({list_names(missing)})")


def read_album(data: DataSettings, task: str, labelled: bool = False) -> Album:
    """Match the pictures in a folder with captions or labels, and split them; count and name those left out."""
    rows = Album()
    say = rows.notes.append
    rows.files = list_pictures(str(data.images), say)
    captions, also, unnamed = Captions(), Captions(), "without a caption"
    if labelled:
        if data.captions:
            raise ConfigError("data.captions", f'given for task = "{task}", expected data.labels, or folders')
        labels = read_labels(data.encoded(data.labels), say) if data.labels else folders(rows.files)
        captions.captions = {picture: [label] for picture, label in labels.items()}
        unnamed = "without a label" if data.labels else "in no subfolder that could be the label"
    elif data.captions:
        captions = read_captions(data.encoded(data.captions), say)
        also = read_captions(data.encoded(data.valid_captions), say) if data.valid_captions else also
    else:
        raise ConfigError("data.captions", "missing; give the file with the captions of data.images")
    rows.counts["blank"] = captions.blank + also.blank
    every, missing = match_files(captions.captions, rows.files)
    others, also_missing = match_files(also.captions, rows.files)
    rows.leave_out("missing", missing | also_missing, "that do not exist, skipped")
    rows.leave_out("unused", rows.files.keys() - every.keys() - others.keys(), f"{unnamed}, skipped")
    if data.valid_captions:
        rows.leave_out("repeated", every.keys() & others.keys(), "with captions in both files, not trained on")
        rows.train = [row for name, row in every.items() if name not in others]
        rows.valid = list(others.values())
    else:
        split_pictures(rows, every, data, captions.splits)
    if not rows.train:
        what = "" if data.captions or data.labels else "; give --captions or --labels, or a subfolder for each label"
        raise DataError(f"{data.captions or data.labels or data.images}: no picture to train on{because(rows)}{what}")
    if (data.valid_captions or data.valid_list) and not rows.valid:
        raise DataError(f"{data.valid_captions or data.valid_list}: no picture to validate on{because(rows)}")
    return rows


def because(rows: Album) -> str:
    """Explain which pictures were left out, after a colon."""
    return f": {'; '.join(rows.notes)}" if rows.notes else ""


def match_files(texts: Mapping[str, list[str]], files: Mapping[str, PictureFile]) -> tuple[dict[str, Row], set[str]]:
    """Return a row for each picture file that has captions or a label, and the names without a file."""
    rows, missing = dict[str, Row](), set[str]()
    for name, each in texts.items():
        file = find_spelling(name, files)
        if file is None:
            missing.add(name)
        else:
            rows.setdefault(file, Row(file, [])).texts.extend(each)
    return rows, missing


def find_spelling(name: str, files: Mapping[str, object]) -> str | None:
    """Return the file for a name: as it is, normalised, or without the folder that Karpathy's JSON adds; else None."""
    return next((each for each in (name, os.path.normpath(name), os.path.basename(name)) if each in files), None)


def folders(files: Iterable[str]) -> dict[str, str]:
    r"""Label each picture with its top folder; escape bytes of the folder's name that are not UTF-8, as in \xe9."""
    labels = ((name, os.fsencode(name.split("/")[0])) for name in files if "/" in name)
    return {name: label.decode(errors="backslashreplace") for name, label in labels}


def split_pictures(rows: Album, every: Mapping[str, Row], data: DataSettings, splits: Mapping[str, str]) -> None:
    """Divide pictures into training and validation by lists or the file's splits, or mark them for `hold_out`."""
    trained, valid = set(every), set[str]()
    if data.train_list or data.valid_list:
        unlisted = set[str]()

        def listed(path: str) -> set[str]:
            names = {name: find_spelling(name, rows.files) or name for name in read_list(path, rows.notes.append)}
            unlisted.update(name for name, file in names.items() if file not in every)
            return set(names.values()) & every.keys()

        trained = listed(data.train_list) if data.train_list else trained
        valid = listed(data.valid_list) if data.valid_list else valid
        rows.leave_out("unlisted", unlisted, "that are listed but have no text or no file, skipped")
        if data.train_list:
            rows.leave_out("repeated", trained & valid, "in both lists, not trained on")
        trained -= valid
    elif splits:
        split = {find_spelling(name, rows.files): split for name, split in splits.items()}
        valid = {name for name in every if split.get(name) == "valid"}
        trained = {name for name in every if split.get(name, "train") == "train"}
    rows.train = [row for name, row in every.items() if name in trained]
    rows.valid = [row for name, row in every.items() if name in valid]
    rows.hold_out = not rows.valid and data.valid_list is None and bool(data.held_out)


def hold_out(rows: Album, data: DataSettings) -> None:
    """Move training pictures to validation: those whose names have the smallest hashes."""
    if not rows.train:
        return
    count = min(data.held_out_count(len(rows.train)), len(rows.train) // 2)
    if not count:
        raise DataError(
            f"{data.images}: one picture is too few to train on and to hold out for validation; "
            "give data.valid_list or set data.held_out = 0"
        )
    hashes = {row.picture: hashlib.blake2b(os.fsencode(row.picture), digest_size=8).digest() for row in rows.train}
    held_out = set(sorted(hashes, key=lambda name: (hashes[name], name))[:count])
    rows.valid = [row for row in rows.train if row.picture in held_out]
    rows.train = [row for row in rows.train if row.picture not in held_out]


def check_scenes(data: DataSettings, task: str, labelled: bool) -> None:
    """Raise a ConfigError if the options of generated scenes do not fit the task."""
    options = data.options()
    if data.reads != "pictures":
        raise ConfigError("data.builtin", f'"{data.builtin}" given, which has no pictures; expected "scenes"')
    if "size" in options:
        raise ConfigError("data.builtin_options", "size given; set data.image_size instead")
    if data.image_size < 32:
        raise ConfigError("data.image_size", f"{data.image_size} given, expected at least 32 for scenes")
    if (options.get("question", "none") != "none") != labelled:
        expected = '"question=which-size"' if labelled else "no question"
        raise ConfigError("data.builtin_options", f'{expected} expected for task = "{task}"')


def generate_examples(data: DataSettings, size: int) -> Iterator[tuple[str, PicturedExample]]:
    """Yield named scenes, for training, then for validation."""
    counts: dict[Split, int] = {"train": data.count, "valid": data.held_out_count(data.count)}
    for split, count in counts.items():
        for i, example in enumerate(draw(data, split, count, size=size)):
            yield f"{split}-{i:06d}", cast(PicturedExample, example)


# ---- pictures for a trained run


def read_pictures(
    data: DataSettings, pictures: Iterable[str | Path | np.ndarray | Tensor]
) -> Iterator[np.ndarray | Tensor]:
    """Yield each picture's pixels, [3 h w]; read and crop files as the model needs them, pass arrays through."""
    if isinstance(pictures, str | Path):
        raise ArgumentError("pictures: one path given, expected a list")
    for each in pictures:
        yield read_for(data, each) if isinstance(each, str | Path) else each


def read_test_pictures(
    data: DataSettings, images: str | Path, names: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the pixels of pictures in a folder by name, and a message for each one that cannot be read."""
    pictures, unread = {}, list[str]()
    files = list_pictures(images, unread.append)
    for each in names:
        file = find_spelling(each, files)
        try:
            if file is None:
                raise DataError(f"{each}: no such picture in {images}")
            pictures[each] = read_for(data, Path(images) / file)
        except DataError as error:
            unread.append(str(error))
    return pictures, unread


# ---- decoding and encoding


def prepare_images(
    data: DataSettings,
    tokenizer: TokenizerSettings | None = None,
    task: str = "",
    *,
    labelled: bool = False,
    say: Say = ignore,
    tokenizers: Tokenizers | None = None,
    labels: Sequence[str] | None = None,
) -> Prepared:
    """Decode pictures and encode their captions or labels, or find both in the cache; `say` reports what was left out.

    With `labelled`, each picture has a label in place of captions. `task` is the name of the task, which is part of the
    cache key. `tokenizers` and `labels`, for instance of an earlier run, replace those of the settings and the corpus.
    """
    settings = tokenizer or TokenizerSettings()
    data.require()
    home, side = cache_folder(data.cache), stored_side(data)
    if tokenizers is None and not labelled and settings.has_file:
        tokenizers = load_tokenizers(settings)
    if data.builtin:
        check_scenes(data, task, labelled)
        source: object = [*identify_builtin(data), data.held_out, data.held_out_most]
        drawn = (
            Picture(name, np.ascontiguousarray(example.picture().transpose(2, 0, 1)))
            for name, example in generate_examples(data, side)
        )
        pixels = cache_pixels(home, source, side, lambda: drawn, say)
    else:
        corpus = read_album(data, task, labelled)
        used = [row.picture for row in (*corpus.train, *corpus.valid)]
        source = [corpus.train, corpus.valid]
        known_by = [[name, *corpus.files[name]] for name in used]
        pixels = cache_pixels(home, known_by, side, lambda: decode(str(data.images), used, side, data.workers), say)
    facts = {
        "format": cache.FORMAT,
        "task": task,
        "pictures": pixels.folder.name,
        "rows": hashlib.sha256(json.dumps(source).encode()).hexdigest(),
        "held_out": [data.held_out, data.held_out_most],
        "longest": data.longest,
    }
    to_train = None if labelled else [settings.kind, settings.size, data.lowercase, library.__version__]

    def find_place(tokenizers: Tokenizers | None, labels: object) -> Path:
        """Return the cache path for a hash of everything that the encoded captions or labels depend on."""
        known = {**facts, "labels": labels, "tokenizer": tokenizers.hash if tokenizers else to_train}
        return home / hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:32]

    def fill(folder: Path) -> Path:
        rows = Album() if data.builtin else corpus
        for name, example in generate_examples(data, data.image_size) if data.builtin else ():
            (rows.train if name.startswith("train") else rows.valid).append(Row(name, [example.target]))
        built = encode_album(folder, rows, pixels, data, settings, labelled, tokenizers, labels)
        cache.seal(folder, **built)
        # Name the cache after the resulting tokenizer and labels, so that a run that continues with them finds it.
        loaded_tokenizers = Tokenizers.load(folder / "tokenizer.json") if not labelled else None
        return find_place(loaded_tokenizers, built["labels"] or None)

    folder, was_there = cache.find_or_fill(find_place(tokenizers, labels and list(labels)), fill, say)
    manifest, valid = cache.read_manifest(folder), cache.read_texts(folder)
    for line in manifest["notes"]:
        say(line)
    say(manifest["summary"] + ", from the cache" * was_there)
    path = folder / "tokenizer.json"
    return Prepared(
        tokenizers=Tokenizers.load(path) if path.exists() else None,
        train=Encoded(folder / "train"),
        valid=Encoded(folder / "valid"),
        valid_pairs=[(name, texts[0]) for name, texts in valid],
        weights=(1.0,),
        hash=folder.name,
        counts=manifest["counts"],
        labels=tuple(manifest["labels"]),
        pictures=pixels,
        references=[texts for _, texts in valid],
    )


def encode_album(
    folder: Path,
    rows: Album,
    pixels: Pixels,
    data: DataSettings,
    settings: TokenizerSettings,
    labelled: bool,
    tokenizers: Tokenizers | None,
    labels: Sequence[str] | None,
) -> dict[str, object]:
    """Encode the texts or labels of all decoded pictures into a folder, and return the facts for its manifest."""
    place, counts, class_names = {name: i for i, name in enumerate(pixels.names)}, rows.counts, list[str]()
    if pixels.problems:
        counts["unreadable"] = len(pixels.problems)
        names = list_names(pixels.problems, joined="; ")
        rows.notes.append(f"pictures that cannot be read, skipped: {len(pixels.problems):,} ({names})")
    rows.train = [row for row in rows.train if row.picture in place]
    rows.valid = [row for row in rows.valid if row.picture in place]
    if rows.hold_out:
        hold_out(rows, data)
    if labelled:
        class_names = list(labels or sorted({row.texts[0] for row in rows.train}))
    elif tokenizers is None:
        texts = [text for row in rows.train for text in row.texts]
        texts = texts[:: max(1, math.ceil(sum(map(len, texts)) / SAMPLE))]  # at even intervals
        tokenizers = Tokenizers(train(texts, settings.kind, settings.size, lowercase=data.lowercase))
    if not labelled and tokenizers is not None:
        tokenizers.save(folder / "tokenizer.json")
    for which, part in (("train", rows.train), ("valid", rows.valid)):
        if labelled or tokenizers is None:
            encoded, targets = encode_labels(part, class_names, rows, which)
        else:
            encoded, targets = encode_captions(part, tokenizers, data.longest, rows, which)
        writer = Writer(folder / which)
        writer.write([[place[row.picture]] for row in encoded], targets)
        writer.close()
        counts["pairs" if which == "train" else "valid"] = len(encoded)
        counts[f"{which}_texts"] = sum(len(row.texts) for row in encoded)
        if which == "valid":
            cache.write_texts(folder, encoded)
        if not encoded and (part or which == "train"):
            purpose = "train" if which == "train" else "validate"
            raise DataError(f"{data.images or data.builtin}: no picture is left to {purpose} on{because(rows)}")
    return {
        "counts": dict(counts),
        "labels": class_names,
        "notes": rows.notes,
        "summary": summarise(rows, counts, data, len(class_names)),
    }


def encode_captions(
    part: list[Row], tokenizers: Tokenizers, longest: int, rows: Album, which: str
) -> tuple[list[Row], list[list[int]]]:
    """Encode the captions of each picture, with END between them; drop and count blank and too long ones."""
    before = "" if which == "train" else "valid_"
    flat = iter(tokenizers.target.encode_batch([text for row in part for text in row.texts]))
    used, targets = list[Row](), list[list[int]]()
    for row in part:
        encoded = [(text, next(flat)) for text in row.texts]
        fits = [(text, ids) for text, ids in encoded if 0 < len(ids) <= longest]
        rows.counts[f"{before}long"] += sum(len(ids) > longest for _, ids in encoded)
        rows.counts[f"{before}blank"] += sum(not ids for _, ids in encoded)
        if not fits:
            rows.counts[f"{before}wordless"] += 1
            continue
        used.append(Row(row.picture, [text for text, _ in fits]))
        targets.append([i for _, ids in fits for i in (END, *ids)][1:])
    return used, targets


def encode_labels(part: list[Row], labels: Sequence[str], rows: Album, which: str) -> tuple[list[Row], list[list[int]]]:
    """Encode each picture's label as a number; drop pictures with unknown labels, and count and name these."""
    index = {label: i for i, label in enumerate(labels)}
    strange = {row.texts[0] for row in part} - index.keys()
    used = [row for row in part if row.texts[0] in index]
    if strange:
        unknown = len(part) - len(used)
        rows.counts["unknown" if which == "train" else "valid_unknown"] = unknown
        where = "is unknown" if which == "train" else "no training picture has"
        rows.notes.append(f"pictures with a label that {where}, skipped: {unknown:,} ({list_names(strange)})")
    return used, [[index[row.texts[0]]] for row in used]


def summarise(rows: Album, counts: Mapping[str, int], data: DataSettings, labels: int) -> str:
    """Summarise in one line how many pictures and texts were kept and dropped."""
    text = f"{counts['pairs']:,} pictures"
    text += f" with {labels:,} labels" if labels else f" with {counts['train_texts']:,} captions"
    reasons = {"blank": "blank", "long": f"longer than {data.longest} tokens"}
    totals = {name: counts.get(name, 0) + counts.get(f"valid_{name}", 0) for name in reasons}
    if any(totals.values()):
        dropped = (f"{total:,} {reasons[name]}" for name, total in totals.items() if total)
        text += f"; dropped {', '.join(dropped)}"
    if not counts["valid"]:
        return f"{text}; none for validation"
    if rows.hold_out:
        which = "data.valid_list" if labels else "--valid-captions"
        return f"{text}; {counts['valid']:,} held out for validation (by hash; give {which} to choose them)"
    return f"{text}; {counts['valid']:,} for validation"
