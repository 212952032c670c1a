"""From settings to encoded training and validation pairs, once; afterwards from the cache.

Files are read twice: a survey counts pairs, chooses those held out, and draws the sample that the tokenizer is trained
on; then everything is encoded, chunk by chunk. No more than the sample (20 million characters) is held at a time.
"""

import hashlib
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tokenizers as library


from regard.data import cache, drawn
from regard.data.cache import Encoded, Writer
from regard.data.corpus import pairs
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings, cache_folder
from regard.data.survey import Survey, hash_of, look_over, names
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train_both
from regard.errors import DataError

__all__ = ["Prepared", "prepare"]

CHUNK = 5_000  # pairs encoded at a time
TEXTS = 5_000  # validation pairs whose text is kept

Pair = tuple[str, str]


@dataclass(frozen=True)
class Prepared:
    """What a model is trained on."""

    tokenizers: Tokenizers
    train: Encoded
    valid: Encoded
    valid_pairs: list[tuple[str, str]]  # the texts of the first pairs of `valid`, at most 5,000
    weights: tuple[float, ...]  # one for each corpus of `train`; they begin at train.starts
    hash: str  # of the sources, the tokenizer and the settings that matter
    counts: Mapping[str, int]
    labels: tuple[str, ...] = ()  # of a classifier: a target is an index of one
    pictures: "Pixels | None" = None  # of a corpus of pictures: a source is an index of one


def prepare(
    data: DataSettings,
    tokenizer: TokenizerSettings | None = None,
    *,
    say: Callable[[str], None] = lambda line: None,
    tokenizers: Tokenizers | None = None,
) -> Prepared:
    """Encode the corpora, or find them in the cache; `say` is told in one line what was kept and dropped.

    `tokenizers`, those of an earlier run for instance, take the place of the settings.
    """
    settings = tokenizer or TokenizerSettings()
    data.require()
    if tokenizers is None and settings.given:
        tokenizers = given(settings)
    home = cache_folder(data.cache)
    asked = home / key_of(data, settings, tokenizers)
    if asked.exists():
        problem = cache.damage(asked)
        if problem is None:
            return opened(asked.resolve(), data, say, ", from the cache")
        say(f"The cache {asked} is damaged ({problem}); it is built again.")
    with cache.workplace(home) as folder:
        facts = build(folder, data, settings, tokenizers)
        cache.seal(folder, **facts)
        # Named after the tokenizer itself, so that a run that goes on with it finds the same; the key of what was asked
        # for leads there.
        final = home / key_of(data, settings, Tokenizers.load(folder / "tokenizer.json"))
        cache.publish(folder, final)
    if asked != final:
        cache.lead(asked, final)
    return opened(final, data, say)


def opened(folder: Path, data: DataSettings, say: Callable[[str], None], note: str = "") -> Prepared:
    """A cache that is whole."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    texts = [json.loads(line) for line in (folder / "valid.jsonl").read_bytes().splitlines()]
    say(summary(manifest["counts"], data) + note)
    return Prepared(
        tokenizers=Tokenizers.load(folder / "tokenizer.json"),
        train=Encoded(folder / "train", manifest["starts"]),
        valid=Encoded(folder / "valid"),
        valid_pairs=[(source, target) for source, target in texts],
        weights=tuple(corpus.weight for corpus in data.training) or (1.0,),
        hash=folder.name,
        counts=manifest["counts"],
    )


def given(settings: TokenizerSettings) -> Tokenizers:
    """The tokenizers of the files in the settings."""
    if settings.file is not None:
        return Tokenizers.load(settings.file)
    return Tokenizers.pair(str(settings.source_file), str(settings.target_file))


def key_of(data: DataSettings, settings: TokenizerSettings, tokenizers: Tokenizers | None) -> str:
    """A hash of all that the encoded pairs hang on: contents, not names; not weights, nor where the cache is."""
    to_train = {"kind": settings.kind, "joint": settings.joint, "size": settings.size, "lowercase": data.lowercase}
    facts = {
        "format": cache.FORMAT,
        "library": None if tokenizers else library.__version__,
        "training": [fingerprint(corpus) for corpus in data.training],
        "validation": [fingerprint(corpus) for corpus in data.validation],
        "builtin": drawn.fingerprint(data) if data.builtin else None,
        "longest": data.longest,
        "held_out": None if data.validation else [data.held_out, data.held_out_most, data.lowercase],
        "tokenizer": tokenizers.hash if tokenizers else to_train,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def fingerprint(corpus: CorpusSettings) -> list[object]:
    """The content of a corpus' files, and how they are read."""
    hashes = []
    for path in corpus.files:
        try:
            hashes.append(cache.digest(path))
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except IsADirectoryError:
            raise DataError(f"{path}: a folder given, expected a file") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    return [hashes, corpus.form, corpus.source_column, corpus.target_column, corpus.tag]


def build(
    folder: Path, data: DataSettings, settings: TokenizerSettings, tokenizers: Tokenizers | None
) -> dict[str, object]:
    """Encode everything into a folder; what the manifest should say of it."""
    training, validation = drawn.draw(folder / "drawn", data) if data.builtin else (data.training, data.validation)
    hold_out = not validation and data.held_out > 0
    survey = Survey()
    if tokenizers is None or hold_out:
        survey = look_over(training, data, hold_out=hold_out, sample=tokenizers is None)
    if tokenizers is None:
        tags = [corpus.tag for corpus in training if corpus.tag]
        tokenizers = train_both(*survey.seen(), settings, lowercase=data.lowercase, tags=tags)
    with (
        Side(folder / "train", tokenizers, data.longest) as train,
        Side(folder / "valid", tokenizers, data.longest) as valid,
    ):
        starts, seen = [], set[int]()
        for corpus in training:
            starts.append(train.writer.count)
            for chunk in chunks(pairs(corpus)):
                kept, held = apart(chunk, survey.cutoff, seen, data.lowercase) if hold_out else (chunk, [])
                train.take(kept, corpus.tag)
                valid.take(held, corpus.tag)
                train.counts["repeated"] += len(chunk) - len(kept) - len(held)
        for corpus in validation:
            for chunk in chunks(pairs(corpus)):
                valid.take(chunk, corpus.tag)
    counts = counted(train, valid, hold_out)
    if not train.writer.count:
        raise DataError(f"{names(training)}: no pair is left to train on: {summary(counts, data)}")
    if validation and not valid.writer.count:
        raise DataError(f"{names(validation)}: no pair is left to validate on: {summary(counts, data)}")
    shutil.rmtree(folder / "drawn", ignore_errors=True)
    tokenizers.save(folder / "tokenizer.json")
    rows = "".join(json.dumps(pair) + "\n" for pair in valid.texts)
    (folder / "valid.jsonl").write_text(rows, encoding="utf-8")
    return {"starts": starts, "counts": counts}


class Side:
    """Pairs on their way into the cache, for training or for validation."""

    def __init__(self, folder: Path, tokenizers: Tokenizers, longest: int):
        self.writer, self.tokenizers, self.longest = Writer(folder), tokenizers, longest
        self.counts: Counter[str] = Counter()
        self.texts: list[Pair] = []  # of the first pairs

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.close()

    def take(self, rows: list[Pair], tag: str | None) -> None:
        """Encode pairs, and write those that are neither blank nor too long."""
        before = f"{tag} " if tag else ""
        real = [(before + source, target) for source, target in rows if source and target]
        sources = self.tokenizers.source.encode_batch([source for source, _ in real])
        targets = self.tokenizers.target.encode_batch([target for _, target in real])
        shorter = [min(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
        longer = [max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
        fits = [low > 0 and high <= self.longest for low, high in zip(shorter, longer, strict=True)]
        empty = shorter.count(0)  # to a tokenizer made elsewhere, a text may be nothing
        self.counts["blank"] += len(rows) - len(real) + empty
        self.counts["long"] += len(fits) - sum(fits) - empty
        self.writer.write(list(itertools.compress(sources, fits)), list(itertools.compress(targets, fits)))
        if len(self.texts) < TEXTS:
            self.texts = [*self.texts, *itertools.compress(real, fits)][:TEXTS]


def apart(rows: list[Pair], cutoff: int, seen: set[int], lowercase: bool) -> tuple[list[Pair], list[Pair]]:
    """The pairs to train on, and those held out that were not seen before."""
    kept, held = list[Pair](), list[Pair]()
    for row in rows:
        h = hash_of(*row, lowercase) if row[0] and row[1] else cutoff + 1
        if h > cutoff:
            kept.append(row)
        elif h not in seen:
            seen.add(h)
            held.append(row)
    return kept, held


def counted(train: Side, valid: Side, hold_out: bool) -> dict[str, int]:
    """What became of all pairs; what is dropped of those held out is counted with the rest of their corpus."""
    dropped = train.counts + valid.counts if hold_out else train.counts
    mine = valid.counts if not hold_out else Counter[str]()
    counts = {"pairs": train.writer.count, "valid": valid.writer.count, "repeated": train.counts["repeated"]}
    for name in ("blank", "long"):
        counts |= {name: dropped[name], f"valid_{name}": mine[name]}
    return counts


def summary(counts: Mapping[str, int], data: DataSettings) -> str:
    """One line about what was kept and dropped."""
    reasons = {"blank": "blank", "long": f"longer than {data.longest} tokens"}

    def dropped(which: str) -> str:
        return ", ".join(f"{counts[which + name]:,} {words}" for name, words in reasons.items() if counts[which + name])

    said = f"{counts['pairs']:,} pairs"
    if dropped(""):
        said += f"; dropped {dropped('')}"
    if not counts["valid"]:
        return f"{said}; none for validation"
    if data.validation or data.builtin:
        lost = f" (dropped {dropped('valid_')})" if dropped("valid_") else ""
        return f"{said}; {counts['valid']:,} for validation{lost}"
    again = f", and {counts['repeated']:,} repetitions of them dropped" if counts["repeated"] else ""
    return (
        f"{said}; {counts['valid']:,} held out for validation{again} "
        "(by hash; give data.valid_source and data.valid_target to choose them)"
    )


def chunks(rows: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Lists of CHUNK pairs."""
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, CHUNK)):
        yield chunk
