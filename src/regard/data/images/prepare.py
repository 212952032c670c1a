"""Preparation of pictures: from folders, or drawn scenes, to decoded pixels and encoded captions or labels, once; then
the cache.

In the encoded corpus a picture's source is one number, its place in the array of pixels. Its target is all its captions
one after the other with END between them, or, for a classifier, the index of its label.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers as library

from regard.data import builtin_files, cache
from regard.data.cache import Encoded, Writer
from regard.data.images.batching import stored_side
from regard.data.images.caption_files import list_names
from regard.data.images.corpus import Row, Rows, because, check_scenes, generate_pictures, generate_rows, hold_out, read
from regard.data.images.pixels import Pixels, decode, keep
from regard.data.preparation import Prepared, Say, load_tokenizers
from regard.data.rows import SAMPLE
from regard.data.settings import DataSettings, TokenizerSettings, cache_folder
from regard.data.tokenizer import END, Tokenizers
from regard.data.vocabulary import train
from regard.errors import DataError


def prepare_images(
    data: DataSettings,
    tokenizer: TokenizerSettings | None = None,
    task: str = "",
    *,
    labelled: bool = False,
    say: Say = lambda line: None,
    tokenizers: Tokenizers | None = None,
    labels: Sequence[str] | None = None,
) -> Prepared:
    """Decode pictures and encode their captions or labels, or find both in the cache; `say` reports what was left out.

    What belongs to them are captions, or a label each (`labelled`); `task` is the name of what is learned, which the
    cache is known by, too. `tokenizers` and `labels`, those of an earlier run for instance, take the place of the
    settings and of the labels found.
    """
    settings = tokenizer or TokenizerSettings()
    data.require()
    home, side = cache_folder(data.cache), stored_side(data)
    if tokenizers is None and not labelled and settings.has_file:
        tokenizers = load_tokenizers(settings)
    if data.builtin:
        check_scenes(data, task, labelled)
        source: object = [*builtin_files.fingerprint(data), data.held_out, data.held_out_most]
        pixels = keep(home, source, side, lambda: generate_pictures(data, side), say)
    else:
        corpus = read(data, task, labelled)
        used = [row.picture for row in (*corpus.train, *corpus.valid)]
        source = [corpus.train, corpus.valid]
        known_by = [[name, *corpus.files[name]] for name in used]
        pixels = keep(home, known_by, side, lambda: decode(str(data.images), used, side, data.workers), say)
    facts = {
        "format": cache.FORMAT,
        "task": task,
        "pictures": pixels.folder.name,
        "rows": hashlib.sha256(json.dumps(source).encode()).hexdigest(),
        "held_out": [data.held_out, data.held_out_most],
        "longest": data.longest,
        "labels": labels and list(labels),
    }

    def fill(folder: Path) -> Path:
        rows = generate_rows(data) if data.builtin else readable(corpus, pixels)
        if rows.hold_out:  # of those that can be read
            hold_out(rows, data)
        built = build(folder, rows, pixels, data, settings, labelled, tokenizers, labels)
        cache.seal(folder, **built)
        # Named after the tokenizer and the labels themselves, so that a run that goes on with them finds the same.
        loaded_tokenizers = Tokenizers.load(folder / "tokenizer.json") if not labelled else None
        return home / key_of({**facts, "labels": built["labels"] or None}, data, settings, loaded_tokenizers, labelled)

    key = key_of(facts, data, settings, tokenizers, labelled)
    folder, was_there = cache.find_or_fill(home / key, fill, say)
    return open_prepared(folder, pixels, say, ", from the cache" * was_there)


def key_of(
    facts: Mapping[str, Any],
    data: DataSettings,
    settings: TokenizerSettings,
    tokenizers: Tokenizers | None,
    labelled: bool,
) -> str:
    """Hash all that the encoded captions or labels depend on."""
    to_train: object = [settings.kind, settings.size, data.lowercase, library.__version__]
    if labelled:
        to_train = None
    text = json.dumps({**facts, "tokenizer": tokenizers.hash if tokenizers else to_train}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def open_prepared(folder: Path, pixels: Pixels, say: Say, note: str = "") -> Prepared:
    """Open a cache that is complete."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    valid = [json.loads(line) for line in (folder / "valid.jsonl").read_bytes().splitlines()]
    for line in manifest["notes"]:
        say(line)
    say(manifest["summary"] + note)
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


def readable(rows: Rows, pixels: Pixels) -> Rows:
    """Return the rows without the pictures that could not be decoded."""
    there = set(pixels.names)
    if pixels.problems:
        rows.counts["unreadable"] = len(pixels.problems)
        names = list_names(pixels.problems, joined="; ")
        rows.notes.append(f"pictures that cannot be read, skipped: {len(pixels.problems):,} ({names})")
    rows.train = [row for row in rows.train if row.picture in there]
    rows.valid = [row for row in rows.valid if row.picture in there]
    return rows


def build(
    folder: Path,
    rows: Rows,
    pixels: Pixels,
    data: DataSettings,
    settings: TokenizerSettings,
    labelled: bool,
    tokenizers: Tokenizers | None,
    labels: Sequence[str] | None,
) -> dict[str, object]:
    """Encode everything into a folder, and return its manifest."""
    class_names: tuple[str, ...] = ()
    encode: Callable[[list[Row], str], tuple[list[Row], list[list[int]]]]
    if labelled:
        class_names = tuple(labels or sorted({row.texts[0] for row in rows.train}))
        encode = lambda part, which: encode_labels(part, class_names, rows, which)  # noqa: E731
    else:
        if tokenizers is None:
            texts = sample([text for row in rows.train for text in row.texts])
            tokenizers = Tokenizers(train(texts, settings.kind, settings.size, lowercase=data.lowercase))
        own = tokenizers
        encode = lambda part, which: encode_captions(part, own, data.longest, rows, which)  # noqa: E731
        tokenizers.save(folder / "tokenizer.json")
    place, counts = {name: i for i, name in enumerate(pixels.names)}, rows.counts
    for which, part in (("train", rows.train), ("valid", rows.valid)):
        encoded, targets = encode(part, which)
        writer = Writer(folder / which)
        writer.write([[place[row.picture]] for row in encoded], targets)
        writer.close()
        counts["pairs" if which == "train" else "valid"] = len(encoded)
        counts[f"{which}_texts"] = sum(len(row.texts) for row in encoded)
        if which == "valid":
            lines = "".join(json.dumps(row) + "\n" for row in encoded)
            (folder / "valid.jsonl").write_text(lines, encoding="utf-8", newline="\n")
        if not encoded and (part or which == "train"):
            purpose = "train" if which == "train" else "validate"
            raise DataError(f"{data.images or data.builtin}: no picture is left to {purpose} on{because(rows)}")
    return {
        "counts": dict(counts),
        "labels": list(class_names),
        "notes": rows.notes,
        "summary": summary(rows, counts, data, len(class_names)),
    }


def encode_captions(
    part: list[Row], tokenizers: Tokenizers, longest: int, rows: Rows, which: str
) -> tuple[list[Row], list[list[int]]]:
    """Encode the captions of each picture, END between them; captions that are too long are counted."""
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
        joined = fits[0][1][:]
        for _, ids in fits[1:]:
            joined += [END, *ids]
        targets.append(joined)
    return used, targets


def encode_labels(part: list[Row], labels: Sequence[str], rows: Rows, which: str) -> tuple[list[Row], list[list[int]]]:
    """Encode each picture's label as a number; unknown labels are counted and named."""
    index = {label: i for i, label in enumerate(labels)}
    strange = {row.texts[0] for row in part} - index.keys()
    used = [row for row in part if row.texts[0] in index]
    if strange:
        unknown = len(part) - len(used)
        rows.counts["unknown" if which == "train" else "valid_unknown"] = unknown
        where = "is unknown" if which == "train" else "no training picture has"
        rows.notes.append(f"pictures with a label that {where}, skipped: {unknown:,} ({list_names(strange)})")
    return used, [[index[row.texts[0]]] for row in used]


def sample(texts: list[str]) -> list[str]:
    """Sample texts at even intervals, as many as a tokenizer is trained on."""
    step = math.ceil(sum(map(len, texts)) / SAMPLE)
    return texts[:: max(1, step)]


def summary(rows: Rows, counts: Mapping[str, int], data: DataSettings, labels: int) -> str:
    """Summarise in one line what was kept and dropped."""
    text = f"{counts['pairs']:,} pictures"
    text += f" with {labels:,} labels" if labels else f" with {counts['train_texts']:,} captions"
    reasons = {"blank": "blank", "long": f"longer than {data.longest} tokens"}
    dropped = [
        f"{total:,} {words}"
        for name, words in reasons.items()
        if (total := counts.get(name, 0) + counts.get(f"valid_{name}", 0))
    ]
    if dropped:
        text += f"; dropped {', '.join(dropped)}"
    if not counts["valid"]:
        return f"{text}; none for validation"
    if rows.hold_out:
        which = "data.valid_list" if labels else "--valid-captions"
        return f"{text}; {counts['valid']:,} held out for validation (by hash; give {which} to choose them)"
    return f"{text}; {counts['valid']:,} for validation"
