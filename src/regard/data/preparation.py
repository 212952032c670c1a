"""Preparation of texts: encode the training and validation pairs of the settings once, then read them from the cache.

Files are read twice. The first pass counts pairs, chooses those to hold out, and draws the sample for the tokenizer's
training; the second encodes everything, chunk by chunk. Memory holds at most the sample (20 million characters). The
held-out pairs are those with the k smallest hashes of their text. So a repetition of a held-out pair is never trained
on, and the choice does not depend on the order of lines and mostly stays the same when lines are added.

A `CorpusReader` turns the rows of a corpus into encoded pairs of texts, with word links if the corpus has them.
`data.documents` has a subclass for labelled documents.
"""

import contextlib
import hashlib
import heapq
import itertools
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library

from regard.data import cache, unknown_words
from regard.data.alignments import count_words, find_problem
from regard.data.builtin import Example, Split, edition_of, example_lines, generate
from regard.data.cache import Encoded, Writer
from regard.data.corpus import pairs, read_linked
from regard.data.pixels import Pixels
from regard.data.settings import GOLD, CorpusSettings, DataSettings, TokenizerSettings, cache_folder
from regard.data.tokenizer import Tokenizers
from regard.data.unknown_words import WordCollector, format_words, read_words
from regard.data.vocabulary import train_both
from regard.errors import ArgumentError, ConfigError, DataError, RegardError
from regard.io import MAX_LINE_CHARACTERS, Say, Slips, encoding_of, ignore, open_file, parse_pharaoh

Pair = tuple[str, ...]  # source, target and a reader's further fields of a row
SAMPLE = 20_000_000  # maximum characters of both sides for training a tokenizer
MOST_LABELS = 10_000
CHUNK = 5_000  # pairs encoded together
CHARACTERS = 4_000_000  # characters after which a chunk is complete, however few its pairs
TEXTS = 5_000  # validation pairs whose texts are stored
TARGET_WORDS = "target-words.txt"  # a file in the cache, next to the words of the sources


@dataclass(frozen=True)
class Prepared:
    """An encoded corpus, ready for training."""

    tokenizers: Tokenizers | Any  # None for labelled pictures, which have no texts
    train: Encoded
    valid: Encoded
    valid_pairs: list[tuple[str, str]]  # the texts of the first pairs of `valid`, at most 5,000
    weights: tuple[float, ...]  # one for each corpus of `train`, which start at train.starts
    hash: str  # of the sources, the tokenizer and the settings that matter
    counts: Mapping[str, int]
    labels: tuple[str, ...] = ()  # for a classifier: a target is the index of a label
    pictures: Pixels | None = None  # for pictures: a source is the index of a picture
    references: list[list[str]] = field(default_factory=list)  # for pictures: all captions of each in `valid`
    words: frozenset[str] | None = None  # the words of the training sources, unless there are too many
    target_words: frozenset[str] | None = None  # the words of the training targets


def prepare(
    data: DataSettings,
    tokenizer: TokenizerSettings | None = None,
    *,
    say: Say = ignore,
    tokenizers: Tokenizers | None = None,
) -> Prepared:
    """Encode the corpora, or find them in the cache; `say` reports in one line what was kept and dropped.

    `tokenizers`, for instance those of an earlier run, replace the tokenizer settings.
    """
    return prepare_rows(CorpusReader(data, tokenizer or TokenizerSettings()), say, tokenizers)


# ---- the first pass


@dataclass
class FirstPass:
    """The results of the first pass over the training pairs."""

    pairs: int = 0
    blank: int = 0
    cutoff: int = -1  # pairs whose hash is at most this are held out
    sample: list[tuple[int, str, str]] = field(default_factory=list)  # hash, source, target
    largest: dict[str, int] = field(default_factory=dict)  # for every label, the largest hash of its rows

    def training_texts(self) -> tuple[list[str], list[str]]:
        """Return both sides of the sample without held-out pairs, and free the sample."""
        pairs = [(source, target) for h, source, target in self.sample if h > self.cutoff]
        self.sample.clear()
        return [source for source, _ in pairs], [target for _, target in pairs]

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the sorted labels of the pairs that are not held out."""
        return tuple(sorted(label for label, h in self.largest.items() if h > self.cutoff))


def hash_of(source: str, target: str, lowercase: bool = False) -> int:
    """Hash a pair's text to 64 bits, the same on every machine; a run of white space counts as one space."""
    text = f"{' '.join(source.split())}\n{' '.join(target.split())}"
    digest = hashlib.blake2b((text.lower() if lowercase else text).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def names(corpora: Iterable[CorpusSettings]) -> str:
    """List the files of corpora for a message."""
    return ", ".join(path for corpus in corpora for path in corpus.files)


def training_texts(data: DataSettings, settings: TokenizerSettings) -> tuple[list[str], list[str]]:
    """Return both sides of the sample that a tokenizer would be trained on; a small corpus is returned in full."""
    data.require()
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        reader = CorpusReader(data, settings)
        training, validation = reader.draw_or_find(Path(folder) / "drawn")
        hold_out = not validation and bool(data.held_out)
        return reader.survey(training, hold_out=hold_out, tokenizer=True).training_texts()


# ---- readers


@dataclass(frozen=True)
class Rows:
    """Rows as texts and encoded."""

    texts: list[Pair]
    sources: list[list[int]]
    targets: list[list[int]]
    links: list[list[tuple[int, int]]] = field(default_factory=list)  # one list per row, if the corpus has links

    def only(self, fits: Sequence[bool]) -> "Rows":
        """Return the rows for which `fits` is true."""
        only = itertools.compress
        parts = (self.texts, self.sources, self.targets, self.links)
        return Rows(*(list(only(part, fits)) for part in parts))  # type: ignore[arg-type]


class CorpusReader:
    """A reader that turns the rows of a corpus into encoded pairs of texts, with the links of their words."""

    what = "pairs"
    labelled = False  # whether targets are labels, which the first pass collects
    files = "--valid-source and --valid-target"  # the options that replace held-out pairs

    def __init__(self, data: DataSettings, settings: TokenizerSettings):
        self.data, self.settings = data, settings
        self.linked = data.linked  # whether links between words are stored with the pairs
        self.training, self.validation, self.earlier = data.training, data.validation, data.rehearsed
        self.remarks: list[str] = []  # messages about truncated or unreadable lines

    @property
    def corpora(self) -> tuple[CorpusSettings, ...]:
        """All corpora of files that are read."""
        return (*self.training, *self.earlier, *self.validation)

    @property
    def reasons(self) -> dict[str, str]:
        """Return the reasons for which rows are dropped, by the names of their counts."""
        return {"blank": "blank", "long": f"longer than {self.data.longest} tokens"}

    def rows(self, corpus: CorpusSettings, linked: bool = True) -> Iterator[Pair]:
        """Yield every row; word links, if any, are still text, but checked, and empty if invalid."""
        if not self.linked or not linked:
            yield from pairs(corpus, labelled=self.labelled, say=self.remarks.append)
            return
        slips = Slips(str(corpus.alignment or corpus.file))
        for number, (source, target, text) in enumerate(read_linked(corpus, self.remarks.append), 1):
            problem = None
            if text.strip():
                problem = find_problem(text, len(source.split()), len(target.split()))
                slips.add(number, problem)
            yield source, target, "" if problem else text
        slips.end(self.remarks.append, "the pair is trained on without its links")

    def facts(self) -> dict[str, object]:
        """Return what the encoded rows depend on besides the files, the tokenizer and the usual settings."""
        if not self.linked:
            return {}
        if self.data.builtin:
            return {"alignment": self.data.alignment}
        hashes = [content(corpus.alignment) if corpus.alignment else None for corpus in self.corpora]
        return {"alignment": hashes, "columns": [corpus.alignment_column for corpus in self.corpora]}

    def draw_or_find(self, folder: Path) -> tuple[tuple[CorpusSettings, ...], tuple[CorpusSettings, ...]]:
        """Return the corpora for training and for validation; first write a built-in corpus to a new folder.

        Unless the settings name validation files, a built-in corpus has its own validation split.
        """
        data = self.data
        if not data.builtin:
            return self.training, self.validation
        folder.mkdir()
        training = write_split(folder, data, "train", data.count)
        if data.validation or not data.held_out:
            return (training,), data.validation
        return (training,), (write_split(folder, data, "valid", data.held_out_count(data.count)),)

    def survey(self, training: Sequence[CorpusSettings], *, hold_out: bool, tokenizer: bool) -> FirstPass:
        """Count the pairs, choose the largest hash of held-out pairs, and draw a sample for training a tokenizer."""
        if not hold_out and not tokenizer and not self.labelled:
            return FirstPass()
        data, what = self.data, self.what
        survey, characters, mask = FirstPass(), 0, 0
        # The smallest hashes, negated as heapq is a min-heap; twice as many as may be held out, as at most half are.
        smallest, among, room = list[int](), set[int](), 2 * data.held_out_most
        for source, target in itertools.chain.from_iterable(self.rows(corpus, linked=False) for corpus in training):
            survey.pairs += 1
            if not source or not target:
                survey.blank += 1
                continue
            h = hash_of(source, target, data.lowercase)
            if self.labelled and survey.largest.get(target, -1) < h:
                survey.largest[target] = h
                if len(survey.largest) > MOST_LABELS:
                    raise DataError(
                        f"{names(training)}: more than {MOST_LABELS:,} different labels, the last {target[:30]!r}; is "
                        "data.label_column right?"
                    )
            if hold_out and h not in among and (len(smallest) < room or h < -smallest[0]):
                among.add(h)
                heapq.heappush(smallest, -h)
                if len(smallest) > room:
                    among.remove(-heapq.heappop(smallest))
            if tokenizer and not h & mask:
                survey.sample.append((h, source, target))
                characters += len(source) + len(target)
                while characters > SAMPLE:  # keep about half the sample, by one more bit of the hash
                    mask = mask << 1 | 1
                    survey.sample = [row for row in survey.sample if not row[0] & mask]
                    characters = sum(len(s) + len(t) for _, s, t in survey.sample)
        if survey.pairs == survey.blank:
            why = [f"all {survey.pairs:,} are blank"] * bool(survey.pairs) + self.remarks
            raise DataError(f"{names(training)}: no {what} to train on{': ' * bool(why)}{'; '.join(why)}")
        if hold_out:
            # Hold out at most half of the different pairs, if there are few.
            count = min(data.held_out_count(survey.pairs - survey.blank), len(smallest) // 2)
            if not count:
                raise DataError(
                    f"{names(training)}: one {what.removesuffix('s')} is too few to train on and to hold out for "
                    f"validation; give {self.files}"
                )
            survey.cutoff = sorted(-h for h in smallest)[count - 1]
        return survey

    def train_tokenizers(self, training: Sequence[CorpusSettings], survey: FirstPass) -> Tokenizers:
        """Train tokenizers on the survey's sample."""
        tags = [corpus.tag for corpus in training if corpus.tag]
        return train_both(*survey.training_texts(), self.settings, lowercase=self.data.lowercase, tags=tags)

    def encode(self, rows: list[Pair], tag: str | None, tokenizers: Tokenizers, counts: Counter[str]) -> Rows:
        """Encode the rows that are neither blank nor too long; count the others."""
        before = f"{tag} " if tag else ""
        real = [(before + source, target, *more) for source, target, *more in rows if source and target]
        sources = tokenizers.source.encode_batch([row[0] for row in real])
        targets = tokenizers.target.encode_batch([row[1] for row in real])
        sizes = [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        # A truncated line is not a whole side, even if it is short in tokens, such as one unknown word.
        whole = [max(map(len, row[:2])) < MAX_LINE_CHARACTERS for row in real]
        fits = [all(n) and max(n) <= self.data.longest and uncut for n, uncut in zip(sizes, whole, strict=True)]
        empty = sum(0 in each for each in sizes)  # a tokenizer made elsewhere may encode a text as nothing
        counts["blank"] += len(rows) - len(real) + empty
        counts["long"] += len(fits) - sum(fits) - empty
        encoded = Rows(real, sources, targets).only(fits)
        if not self.linked:
            return encoded
        # A tag shifts source words by one. If the tokenizer finds other words, the pair loses its links and is counted.
        source_counts = count_words(tokenizers.source, encoded.sources)
        target_counts = count_words(tokenizers.target, encoded.targets)
        for (source_text, target_text, text), *words in zip(encoded.texts, source_counts, target_counts, strict=True):
            right = words == [len(source_text.split()), len(target_text.split())]
            links = [(source + (tag is not None), target) for source, target in sorted(set(parse_pharaoh(text)))]
            counts["linked"] += bool(links and right)
            counts["unlinked"] += bool(links and not right)
            encoded.links.append(links if right else [])
        return encoded

    def manifest(self) -> dict[str, Any]:
        """Return the entries of the cache's manifest besides the counts."""
        return {}

    def summary(self, counts: Mapping[str, int], manifest: Mapping[str, Any]) -> str:
        """Summarise in one line how many rows were kept and dropped."""
        text = f"{counts['pairs']:,} {self.what}" + self.describe_more(counts, manifest)
        if counts.get("earlier"):
            text += f", {counts['earlier']:,} of them from earlier corpora ({self.data.rehearsal:.0%} of an epoch)"
        if dropped := self.dropped(counts, ""):
            text += f"; dropped {dropped}"
        if not counts["valid"]:
            return f"{text}; none for validation"
        if self.validation or self.data.builtin:
            dropped = self.dropped(counts, "valid_")
            return f"{text}; {counts['valid']:,} for validation{f' (dropped {dropped})' if dropped else ''}"
        again = f", and {counts['repeated']:,} repetitions of them dropped" if counts["repeated"] else ""
        files = "--valid-pairs" if self.data.corpora else self.files
        return f"{text}; {counts['valid']:,} held out for validation{again} (by hash; give {files} to choose them)"

    def describe_more(self, counts: Mapping[str, int], manifest: Mapping[str, Any]) -> str:
        """Describe further facts about the pairs that were kept: here, how many have links."""
        if not self.linked:
            return ""
        text = f", {counts.get('linked', 0):,} of them with word links"
        if unlinked := counts.get("unlinked", 0):
            text += f" ({unlinked:,} lost theirs, because the tokenizer separates words differently from white space)"
        return text

    def dropped(self, counts: Mapping[str, int], which: str) -> str:
        """Describe how many rows were dropped, and why."""
        kinds = self.reasons.items()
        return ", ".join(f"{counts[which + name]:,} {words}" for name, words in kinds if counts.get(which + name))


# ---- encoding


def prepare_rows(reader: CorpusReader, say: Say, tokenizers: Tokenizers | None) -> Prepared:
    """Encode the corpus of any reader, or find it in the cache."""
    data, settings = reader.data, reader.settings
    data.require()
    if tokenizers is None and settings.has_file:
        tokenizers = load_tokenizers(settings)
    if tokenizers is not None:
        tokenizers = tokenizers.surround(**settings.around)
    home, sources = cache_folder(data.cache), fingerprints(reader)

    def fill(folder: Path) -> Path:
        links = contents_of_links(reader)
        facts = build(folder, reader, tokenizers)
        # If files changed meanwhile, the cache key does not match the contents.
        if (fingerprints(reader), contents_of_links(reader)) != (sources, links):
            raise DataError(f"{names(reader.corpora)}: changed while they were read")
        cache.seal(folder, **facts)
        # Name the cache after the tokenizer itself, so that a run that continues with it finds the cache. An alias for
        # the key of the request leads there.
        return home / cache_key(reader, Tokenizers.load(folder / "tokenizer.json"), sources)

    folder, was_there = cache.find_or_fill(home / cache_key(reader, tokenizers, sources), fill, say)
    manifest = cache.read_manifest(folder)
    for remark in manifest.get("remarks", ()):
        say(remark)
    say(reader.summary(manifest["counts"], manifest) + ", from the cache" * was_there)
    # How often the pairs of each corpus occur in an epoch; earlier corpora are scaled to their share of the epoch.
    new = [corpus.weight for corpus in reader.training] or [1.0]
    earlier = [corpus.weight for corpus in reader.earlier]
    sizes = np.diff([*manifest["starts"], manifest["counts"]["pairs"]])
    share, total = data.rehearsal / (1 - data.rehearsal), float(np.dot(new, sizes[: len(new)]))
    scale = share * total / max(1.0, float(np.dot(earlier, sizes[len(new) :])))
    return Prepared(
        tokenizers=Tokenizers.load(folder / "tokenizer.json").surround(**settings.around),
        train=Encoded(folder / "train", manifest["starts"]),
        valid=Encoded(folder / "valid"),
        valid_pairs=[(source, target) for source, target in cache.read_texts(folder)],
        weights=(*new, *(scale * weight for weight in earlier)),
        hash=folder.name,
        counts=manifest["counts"],
        labels=tuple(manifest.get("labels", ())),
        words=read_words(folder),
        target_words=read_words(folder, TARGET_WORDS),
    )


def cached_valid_pairs(
    data: DataSettings, settings: TokenizerSettings, tokenizers: Tokenizers, folder: str | None = None
) -> list[tuple[str, str]]:
    """Return the validation pairs of a run from the cache; an empty list if the cache or the files no longer exist."""
    reader = CorpusReader(data, settings)
    try:
        data.require()
        entry = cache.resolve_alias(cache_folder(folder) / cache_key(reader, tokenizers, fingerprints(reader)))
    except (RegardError, OSError):
        return []
    if not entry.exists() or cache.damage(entry) is not None:
        return []
    return [(source, target) for source, target in cache.read_texts(entry)]


def load_tokenizers(settings: TokenizerSettings) -> Tokenizers:
    """Load the tokenizers from the files named in the settings."""
    if settings.file is not None:
        return Tokenizers.load(settings.file)
    return Tokenizers.pair(str(settings.source_file), str(settings.target_file))


def cache_key(reader: CorpusReader, tokenizers: Tokenizers | None, sources: Mapping[str, object]) -> str:
    """Hash everything that the encoded pairs depend on: file contents, but not names, weights or the cache folder."""
    data, settings = reader.data, reader.settings
    to_train = {"kind": settings.kind, "joint": settings.joint, "size": settings.size, "lowercase": data.lowercase}
    facts: dict[str, object] = {
        "format": cache.FORMAT,
        "library": None if tokenizers else library.__version__,
        "longest": data.longest,
        "held_out": None if reader.validation else [data.held_out, data.held_out_most, data.lowercase],
        "tokenizer": tokenizers.hash if tokenizers else to_train,
        **sources,
        **reader.facts(),
    }
    if any(settings.around.values()):  # only if set, so that earlier caches keep their names
        facts["around"] = settings.around
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def fingerprints(reader: CorpusReader) -> dict[str, object]:
    """Return hashes of the files that a reader reads, or the identity of the built-in corpus."""
    earlier = [fingerprint(corpus) for corpus in reader.earlier]
    return {
        "training": [fingerprint(corpus) for corpus in reader.training],
        "validation": [fingerprint(corpus) for corpus in reader.validation],
        "builtin": identify_builtin(reader.data) if reader.data.builtin else None,
        **({"earlier": earlier} if earlier else {}),  # only if set, so that other caches keep their names
    }


def contents_of_links(reader: CorpusReader) -> list[str]:
    """Hash the files with word links."""
    return [content(corpus.alignment) for corpus in reader.corpora if corpus.alignment]


def fingerprint(corpus: CorpusSettings) -> list[object]:
    """Return the hashes of a corpus's files, and the settings for reading them."""
    hashes = [*map(content, corpus.files)]
    encodings = {encoding_of(path) for path in corpus.files} - {None}  # empty for UTF-8: such caches keep their names
    return [hashes, corpus.form, corpus.source_column, corpus.target_column, corpus.tag, *sorted(map(str, encodings))]


def content(path: str) -> str:
    """Hash a file's contents; raise a DataError if it cannot be read."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build(folder: Path, reader: CorpusReader, tokenizers: Tokenizers | None) -> dict[str, object]:
    """Encode everything into a folder, and return the facts for its manifest."""
    data, lowercase = reader.data, reader.data.lowercase
    training, validation = reader.draw_or_find(folder / "drawn")
    hold_out = not validation and bool(data.held_out)
    survey = reader.survey(training, hold_out=hold_out, tokenizer=tokenizers is None)
    if tokenizers is None:
        tokenizers = reader.train_tokenizers(training, survey).surround(**reader.settings.around)
    reader.remarks.clear()  # the second pass adds them again
    train, valid = (SplitWriter(folder / name, reader, tokenizers) for name in ("train", "valid"))
    with contextlib.closing(train.writer), contextlib.closing(valid.writer):
        starts, hashes = [], set[int]()
        for corpus in training:
            starts.append(train.writer.count)
            for chunk in chunks(reader.rows(corpus)):
                train_rows, held_out = list[Pair](), list[Pair]()
                for row in chunk:
                    h = hash_of(row[0], row[1], lowercase) if hold_out and row[0] and row[1] else None
                    if h is None or h > survey.cutoff:
                        train_rows.append(row)
                    elif h not in hashes:
                        hashes.add(h)
                        held_out.append(row)
                train.take(train_rows, corpus.tag)
                valid.take(held_out, corpus.tag)
                train.counts["repeated"] += len(chunk) - len(train_rows) - len(held_out)
        new = train.writer.count
        for corpus in reader.earlier:  # none of their pairs are held out, and held-out pairs are not trained on
            starts.append(train.writer.count)
            for chunk in chunks(reader.rows(corpus)):
                train.take([row for row in chunk if hash_of(row[0], row[1], lowercase) not in hashes], corpus.tag)
        earlier = train.writer.count - new
        for corpus in validation:
            for chunk in chunks(reader.rows(corpus)):
                valid.take(chunk, corpus.tag)
    counts, manifest = count_rows(train, valid, hold_out), reader.manifest()
    if reader.earlier:
        counts["earlier"] = earlier
    one = reader.what.removesuffix("s")
    sides = ((new, training, "train on"), (earlier, reader.earlier, "rehearse"))
    for count, corpora, purpose in (*sides, (valid.writer.count, validation, "validate on")):
        if corpora and not count:
            summary = "; ".join([reader.summary(counts, manifest), *reader.remarks])
            raise DataError(f"{names(corpora)}: no {one} is left to {purpose}: {summary}")
    shutil.rmtree(folder / "drawn", ignore_errors=True)
    tokenizers.save(folder / "tokenizer.json")
    cache.write_texts(folder, valid.texts)
    for collector, name in ((train.words, unknown_words.FILE), (train.target_words, TARGET_WORDS)):
        words = None if collector.words is None else format_words(collector.words)
        if words is not None:
            (folder / name).write_bytes(words.encode())
    return {"starts": starts, "counts": counts, "remarks": reader.remarks, **manifest}


class SplitWriter:
    """A writer of the training or validation rows into the cache."""

    def __init__(self, folder: Path, reader: CorpusReader, tokenizers: Tokenizers):
        self.writer, self.reader, self.tokenizers = Writer(folder, links=reader.linked), reader, tokenizers
        self.counts: Counter[str] = Counter()
        self.texts: list[Pair] = []  # the texts of the first rows
        self.words, self.target_words = WordCollector(), WordCollector()

    def take(self, rows: list[Pair], tag: str | None) -> None:
        """Encode rows, and write those that are not dropped."""
        encoded = self.reader.encode(rows, tag, self.tokenizers, self.counts)
        self.writer.write(encoded.sources, encoded.targets, encoded.links)
        self.words.add(row[0] for row in encoded.texts)
        self.target_words.add(row[1] for row in encoded.texts)
        if len(self.texts) < TEXTS:
            self.texts = [*self.texts, *(row[:2] for row in encoded.texts)][:TEXTS]


def count_rows(train: SplitWriter, valid: SplitWriter, hold_out: bool) -> dict[str, int]:
    """Count the rows kept and dropped; dropped held-out rows are counted with the rest of their corpus."""
    dropped = train.counts + valid.counts if hold_out else train.counts
    mine = valid.counts if not hold_out else Counter[str]()
    counts = {"pairs": train.writer.count, "valid": valid.writer.count, "repeated": train.counts["repeated"]}
    for name in sorted({"blank", "long"} | (dropped.keys() | mine.keys()) - {"repeated"}):
        counts |= {name: dropped[name], f"valid_{name}": mine[name]}
    if "linked" in counts:  # only training pairs, none of which were dropped
        counts["linked"] = train.counts["linked"]
    return counts


def chunks(rows: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Yield lists of CHUNK pairs, or fewer if they are long."""
    chunk, characters = list[Pair](), 0
    for row in rows:
        chunk.append(row)
        characters += len(row[0]) + len(row[1])
        if len(chunk) == CHUNK or characters >= CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


# ---- built-in corpora


def write_split(folder: Path, data: DataSettings, split: Split, count: int) -> CorpusSettings:
    """Write the two text files of a split, and the gold links if the settings ask for them."""
    paths = [str(folder / f"{split}.{end}") for end in ("source", "target", "align")]
    corpus = CorpusSettings(paths[0], paths[1], alignment=paths[2] if data.alignment == GOLD else None)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(path, "w", encoding="utf-8", newline="\n")) for path in paths]
        for example in draw(data, split, count, pair=data.pair):
            for file, line in zip(files, example_lines("", example), strict=False):
                file.write(f"{line}\n")
    return corpus


def draw(data: DataSettings, split: Split, count: int, **more: Any) -> Iterator[Example]:
    """Yield the examples of a split; a small corpus may have fewer for validation, but not for training."""
    try:
        yield from generate(str(data.builtin), count, split=split, **more, **data.drawing())
    except ArgumentError as error:
        if split == "train":
            raise ConfigError("data.count", str(error)) from None


def identify_builtin(data: DataSettings) -> list[object]:
    """Return everything that a generated corpus depends on, for hashing."""
    edition = edition_of(str(data.builtin), data.builtin_edition)
    return [data.builtin, data.pair, data.count, data.builtin_seed, data.options(), edition]
