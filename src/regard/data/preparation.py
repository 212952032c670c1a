"""Preparation of texts: encoding training and validation pairs from the settings, once; afterwards from the cache.

Files are read twice: a survey counts pairs, chooses those held out, and draws the sample that the tokenizer is trained
on; then everything is encoded, chunk by chunk. No more than the sample (20 million characters) is held at a time.

A `Reading` (`regard.data.rows`) says what becomes of a row.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library

from regard.data import builtin_files, cache, unknown_words
from regard.data.alignments import LinkedReader
from regard.data.cache import Encoded, Writer
from regard.data.images.pixels import Pixels
from regard.data.rows import Pair, Reading, content, hash_of, names
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings, cache_folder
from regard.data.tokenizer import Tokenizers
from regard.data.unknown_words import WordCollector, format_words, read_words
from regard.errors import DataError, RegardError
from regard.io import encoding_of

CHUNK = 5_000  # pairs encoded at a time
CHARACTERS = 4_000_000  # of such pairs at most
TEXTS = 5_000  # validation pairs whose text is kept
TARGET_WORDS = "target-words.txt"  # in the cache, beside those of the sources

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """The encoded corpus that a model is trained on."""

    tokenizers: Tokenizers | Any  # None for pictures with labels, which have no texts
    train: Encoded
    valid: Encoded
    valid_pairs: list[tuple[str, str]]  # the texts of the first pairs of `valid`, at most 5,000
    weights: tuple[float, ...]  # one for each corpus of `train`; they begin at train.starts
    hash: str  # of the sources, the tokenizer and the settings that matter
    counts: Mapping[str, int]
    labels: tuple[str, ...] = ()  # of a classifier: a target is an index of one
    pictures: Pixels | None = None  # of a corpus of pictures: a source is an index of one
    references: list[list[str]] = field(default_factory=list)  # of pictures: all captions of each in `valid`
    words: frozenset[str] | None = None  # of the sources that are trained on, where they are not too many
    target_words: frozenset[str] | None = None  # and of the targets


def prepare(
    data: DataSettings,
    tokenizer: TokenizerSettings | None = None,
    *,
    say: Say = lambda line: None,
    tokenizers: Tokenizers | None = None,
) -> Prepared:
    """Encode the corpora, or find them in the cache; `say` reports in one line what was kept and dropped.

    `tokenizers`, those of an earlier run for instance, take the place of the settings.
    """
    kind = LinkedReader if data.linked else Reading
    return prepare_rows(kind(data, tokenizer or TokenizerSettings()), say, tokenizers)


def prepare_rows(reading: Reading, say: Say, tokenizers: Tokenizers | None) -> Prepared:
    """Prepare the corpus of any `Reading`, from the cache where it is there."""
    data, settings = reading.data, reading.settings
    data.require()
    if tokenizers is None and settings.has_file:
        tokenizers = load_tokenizers(settings)
    if tokenizers is not None:
        tokenizers = tokenizers.surround(**settings.around)
    home, sources = cache_folder(data.cache), fingerprints(reading)

    def fill(folder: Path) -> Path:
        links = contents_of_links(reading)
        facts = build(folder, reading, tokenizers)
        # What was encoded would be found under another file's name.
        if (fingerprints(reading), contents_of_links(reading)) != (sources, links):
            raise DataError(f"{names(all_corpora(reading))}: changed while they were read")
        cache.seal(folder, **facts)
        # Named after the tokenizer itself, so that a run that goes on with it finds the same; the key of what was asked
        # for leads there.
        return home / cache_key(reading, Tokenizers.load(folder / "tokenizer.json"), sources)

    folder, was_there = cache.find_or_fill(home / cache_key(reading, tokenizers, sources), fill, say)
    return open_cache(folder, reading, say, ", from the cache" * was_there)


def open_cache(folder: Path, reading: Reading, say: Say, note: str = "") -> Prepared:
    """Open a cache that is complete."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    texts = [json.loads(line) for line in (folder / "valid.jsonl").read_bytes().splitlines()]
    for remark in manifest.get("remarks", ()):
        say(remark)
    say(reading.summary(manifest["counts"], manifest) + note)
    return Prepared(
        tokenizers=Tokenizers.load(folder / "tokenizer.json").surround(**reading.settings.around),
        train=Encoded(folder / "train", manifest["starts"]),
        valid=Encoded(folder / "valid"),
        valid_pairs=[(source, target) for source, target in texts],
        weights=weigh_corpora(reading, manifest["starts"], manifest["counts"]["pairs"]),
        hash=folder.name,
        counts=manifest["counts"],
        labels=tuple(manifest.get("labels", ())),
        words=read_words(folder),
        target_words=read_words(folder, TARGET_WORDS),
    )


def all_corpora(reading: Reading) -> tuple[CorpusSettings, ...]:
    """Return every corpus of files that a reading reads."""
    return (*reading.training, *reading.earlier, *reading.validation)


def weigh_corpora(reading: Reading, starts: Sequence[int], pairs: int) -> tuple[float, ...]:
    """Return how often the pairs of each corpus occur in an epoch; earlier ones fill their share of it."""
    new = [corpus.weight for corpus in reading.training] or [1.0]
    earlier = [corpus.weight for corpus in reading.earlier]
    sizes = np.diff([*starts, pairs])
    share = reading.data.rehearsal / (1 - reading.data.rehearsal)
    total = float(np.dot(new, sizes[: len(new)]))
    scale = share * total / max(1.0, float(np.dot(earlier, sizes[len(new) :])))
    return (*new, *(scale * weight for weight in earlier))


def cached_valid_pairs(
    data: DataSettings, settings: TokenizerSettings, tokenizers: Tokenizers, folder: str | None = None
) -> list[tuple[str, str]]:
    """Return the validation pairs that a run's data have in the cache; none where they, or their files, are gone."""
    reading = (LinkedReader if data.linked else Reading)(data, settings)
    try:
        data.require()
        entry = cache.follow(cache_folder(folder) / cache_key(reading, tokenizers, fingerprints(reading)))
    except (RegardError, OSError):
        return []
    if not entry.exists() or cache.damage(entry) is not None:
        return []
    texts = [json.loads(line) for line in (entry / "valid.jsonl").read_bytes().splitlines()]
    return [(source, target) for source, target in texts]


def load_tokenizers(settings: TokenizerSettings) -> Tokenizers:
    """Load the tokenizers from the files in the settings."""
    if settings.file is not None:
        return Tokenizers.load(settings.file)
    return Tokenizers.pair(str(settings.source_file), str(settings.target_file))


def cache_key(reading: Reading, tokenizers: Tokenizers | None, sources: Mapping[str, object]) -> str:
    """Hash all that the encoded pairs depend on: contents, not names; not weights, nor where the cache is."""
    data, settings = reading.data, reading.settings
    to_train = {"kind": settings.kind, "joint": settings.joint, "size": settings.size, "lowercase": data.lowercase}
    facts: dict[str, object] = {
        "format": cache.FORMAT,
        "library": None if tokenizers else library.__version__,
        "longest": data.longest,
        "held_out": None if reading.validation else [data.held_out, data.held_out_most, data.lowercase],
        "tokenizer": tokenizers.hash if tokenizers else to_train,
        **sources,
        **reading.facts(),
    }
    if any(settings.around.values()):  # as they are, so that earlier caches keep their names
        facts["around"] = settings.around
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def fingerprints(reading: Reading) -> dict[str, object]:
    """Identify the files that a reading reads, or the corpus that is drawn."""
    earlier = [fingerprint(corpus) for corpus in reading.earlier]
    return {
        "training": [fingerprint(corpus) for corpus in reading.training],
        "validation": [fingerprint(corpus) for corpus in reading.validation],
        "builtin": builtin_files.fingerprint(reading.data) if reading.data.builtin else None,
        **({"earlier": earlier} if earlier else {}),  # caches without keep their names
    }


def contents_of_links(reading: Reading) -> list[str]:
    """Hash the files of word links."""
    return [content(corpus.alignment) for corpus in all_corpora(reading) if corpus.alignment]


def fingerprint(corpus: CorpusSettings) -> list[object]:
    """Return the hashes of a corpus' files, and how they are read."""
    hashes = [content(path) for path in corpus.files]
    encodings = {encoding_of(path) for path in corpus.files} - {None}  # caches of UTF-8 keep their names
    return [hashes, corpus.form, corpus.source_column, corpus.target_column, corpus.tag, *sorted(map(str, encodings))]


def build(folder: Path, reading: Reading, tokenizers: Tokenizers | None) -> dict[str, object]:
    """Encode everything into a folder, and return its manifest."""
    data, training, validation = reading.data, reading.training, reading.validation
    if data.builtin:
        training, validation = builtin_files.write_builtin(folder / "drawn", data)
    hold_out = not validation and bool(data.held_out)
    survey = reading.survey(training, hold_out=hold_out, tokenizer=tokenizers is None)
    if tokenizers is None:
        tokenizers = reading.train_tokenizers(training, survey).surround(**reading.settings.around)
    reading.remarks.clear()  # all is read once more
    with Side(folder / "train", reading, tokenizers) as train, Side(folder / "valid", reading, tokenizers) as valid:
        starts, hashes = [], set[int]()
        for corpus in training:
            starts.append(train.writer.count)
            for chunk in chunks(reading.rows(corpus)):
                train_rows, held_out = (
                    split_held_out(chunk, survey.cutoff, hashes, data.lowercase) if hold_out else (chunk, [])
                )
                train.take(train_rows, corpus.tag)
                valid.take(held_out, corpus.tag)
                train.counts["repeated"] += len(chunk) - len(train_rows) - len(held_out)
        new = train.writer.count
        for corpus in reading.earlier:  # nothing of them is held out, and what is held out is not trained on
            starts.append(train.writer.count)
            for chunk in chunks(reading.rows(corpus)):
                train.take([row for row in chunk if hash_of(row[0], row[1], data.lowercase) not in hashes], corpus.tag)
        earlier = train.writer.count - new
        for corpus in validation:
            for chunk in chunks(reading.rows(corpus)):
                valid.take(chunk, corpus.tag)
    counts, manifest = count_rows(train, valid, hold_out), reading.manifest()
    if reading.earlier:
        counts["earlier"] = earlier
    one = reading.what.removesuffix("s")
    sides = ((new, training, "train on"), (earlier, reading.earlier, "rehearse"))
    for count, corpora, purpose in (*sides, (valid.writer.count, validation, "validate on")):
        if corpora and not count:
            summary = "; ".join([reading.summary(counts, manifest), *reading.remarks])
            raise DataError(f"{names(corpora)}: no {one} is left to {purpose}: {summary}")
    shutil.rmtree(folder / "drawn", ignore_errors=True)
    tokenizers.save(folder / "tokenizer.json")
    rows = "".join(json.dumps(pair) + "\n" for pair in valid.texts)
    (folder / "valid.jsonl").write_text(rows, encoding="utf-8", newline="\n")
    for collector, name in ((train.words, unknown_words.FILE), (train.target_words, TARGET_WORDS)):
        words = None if collector.words is None else format_words(collector.words)
        if words is not None:
            (folder / name).write_text(words, encoding="utf-8", newline="\n")
    return {"starts": starts, "counts": counts, "remarks": reading.remarks, **manifest}


class Side:
    """Rows on their way into the cache, for training or for validation."""

    def __init__(self, folder: Path, reading: Reading, tokenizers: Tokenizers):
        self.writer, self.reading, self.tokenizers = Writer(folder, links=reading.linked), reading, tokenizers
        self.counts: Counter[str] = Counter()
        self.texts: list[Pair] = []  # of the first rows
        self.words, self.target_words = WordCollector(), WordCollector()

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.close()

    def take(self, rows: list[Pair], tag: str | None) -> None:
        """Encode rows, and write those that are kept."""
        encoded = self.reading.encode(rows, tag, self.tokenizers, self.counts)
        self.writer.write(encoded.sources, encoded.targets, encoded.links)
        self.words.add(row[0] for row in encoded.texts)
        self.target_words.add(row[1] for row in encoded.texts)
        if len(self.texts) < TEXTS:
            self.texts = [*self.texts, *(row[:2] for row in encoded.texts)][:TEXTS]


def split_held_out(rows: list[Pair], cutoff: int, hashes: set[int], lowercase: bool) -> tuple[list[Pair], list[Pair]]:
    """Split pairs into those to train on, and those held out that were not seen before."""
    training, held_out = list[Pair](), list[Pair]()
    for row in rows:
        h = hash_of(row[0], row[1], lowercase) if row[0] and row[1] else cutoff + 1
        if h > cutoff:
            training.append(row)
        elif h not in hashes:
            hashes.add(h)
            held_out.append(row)
    return training, held_out


def count_rows(train: Side, valid: Side, hold_out: bool) -> dict[str, int]:
    """Count what became of all rows; what is dropped of those held out is counted with the rest of their corpus."""
    dropped = train.counts + valid.counts if hold_out else train.counts
    mine = valid.counts if not hold_out else Counter[str]()
    counts = {"pairs": train.writer.count, "valid": valid.writer.count, "repeated": train.counts["repeated"]}
    for name in sorted({"blank", "long"} | (dropped.keys() | mine.keys()) - {"repeated"}):
        counts |= {name: dropped[name], f"valid_{name}": mine[name]}
    if "linked" in counts:  # of those that are trained on: nothing that was dropped
        counts["linked"] = train.counts["linked"]
    return counts


def chunks(rows: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Yield lists of CHUNK pairs, or of fewer long ones."""
    chunk, characters = list[Pair](), 0
    for row in rows:
        chunk.append(row)
        characters += len(row[0]) + len(row[1])
        if len(chunk) == CHUNK or characters >= CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
