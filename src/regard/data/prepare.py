"""From settings to encoded training and validation pairs, once; afterwards from the cache.

Files are read twice: a survey counts pairs, chooses those held out, and draws the sample that the tokenizer is trained
on; then everything is encoded, chunk by chunk. No more than the sample (20 million characters) is held at a time.

What is held out is chosen by a hash of the pair's text: the k smallest. So a repetition of a held-out pair is never
trained on, the choice does not hang on the order of the lines, and a pair stays held out when others are added, mostly.
"""

import hashlib
import heapq
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tokenizers as library

from regard.data import cache
from regard.data.cache import Encoded, Writer
from regard.data.corpus import pairs
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings, cache_folder
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train_both
from regard.errors import ArgumentError, ConfigError, DataError

__all__ = ["Prepared", "prepare"]

SAMPLE = 20_000_000  # characters that a tokenizer is trained on, both sides together
CHUNK = 5_000  # pairs encoded at a time
TEXTS = 5_000  # validation pairs whose text is kept


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


@dataclass
class Survey:
    """What one pass over the training pairs finds."""

    pairs: int = 0
    blank: int = 0
    cutoff: int = -1  # pairs whose hash is at most this are held out
    sample: list[tuple[int, str, str]] = field(default_factory=list)


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
    facts = facts_of(data)
    home = cache_folder(data.cache)
    final = home / key_of(facts, settings, tokenizers)
    if final.exists():
        problem = cache.damage(final)
        if problem is None:
            return opened(final, data, facts, say, ", from the cache")
        say(f"The cache {final} is damaged ({problem}); it is built again.")
    with cache.workplace(home) as folder:
        cache.seal(folder, **build(folder, data, settings, tokenizers))
        cache.publish(folder, final)
    return opened(final, data, facts, say)


def opened(
    folder: Path, data: DataSettings, facts: Mapping[str, object], say: Callable[[str], None], note: str = ""
) -> Prepared:
    """A cache that is whole."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    texts = [tuple(json.loads(line)) for line in (folder / "valid.jsonl").read_bytes().splitlines()]
    weights = (1.0,) if data.builtin else tuple(corpus.weight for corpus in data.training)
    say(summary(manifest["counts"], data) + note)
    tokenizers = Tokenizers.load(folder / "tokenizer.json")
    return Prepared(
        tokenizers=tokenizers,
        train=Encoded(folder / "train", manifest["starts"]),
        valid=Encoded(folder / "valid"),
        valid_pairs=texts,
        weights=weights,
        # Not the folder's name: a tokenizer is the same, whether it was trained just now or given by a run resumed.
        hash=key_of(facts, TokenizerSettings(), tokenizers),
        counts=manifest["counts"],
    )


def given(settings: TokenizerSettings) -> Tokenizers:
    """The tokenizers of the files in the settings."""
    if settings.file is not None:
        return Tokenizers.load(settings.file)
    return Tokenizers.pair(str(settings.source_file), str(settings.target_file))


def facts_of(data: DataSettings) -> dict[str, object]:
    """All that the encoded pairs hang on, but for the tokenizer: contents, not names; not weights, nor the cache."""
    return {
        "format": cache.FORMAT,
        "library": library.__version__,
        "training": [fingerprint(corpus) for corpus in data.training],
        "validation": [fingerprint(corpus) for corpus in data.validation],
        "builtin": builtin_fingerprint(data) if data.builtin else None,
        "longest": data.longest,
        "held_out": None if data.validation else [data.held_out, data.held_out_most],
        "lowercase": data.lowercase,
    }


def key_of(facts: Mapping[str, object], settings: TokenizerSettings, tokenizers: Tokenizers | None) -> str:
    """A hash of the facts, and of the tokenizer that is given or to be trained."""
    one = {"kind": settings.kind, "joint": settings.joint, "size": settings.size}
    whole = {**facts, "tokenizer": tokenizers.hash if tokenizers else one}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]


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


def builtin_fingerprint(data: DataSettings) -> list[object]:
    """What is drawn from a built-in corpus, and by which code."""
    from regard.data import builtin

    code = hashlib.sha256()
    for path in sorted(Path(builtin.__file__).parent.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            code.update(path.read_bytes())
    return [data.builtin, data.pair, data.count, data.builtin_seed, data.options(), code.hexdigest()]


def build(
    folder: Path, data: DataSettings, settings: TokenizerSettings, tokenizers: Tokenizers | None
) -> dict[str, object]:
    """Encode everything into a folder; what the manifest should say of it."""
    training, validation = draw(folder, data) if data.builtin else (data.training, data.validation)
    hold_out = not validation and data.held_out > 0
    survey = Survey()
    if tokenizers is None or hold_out:
        survey = look_over(training, data, hold_out=hold_out, sample=tokenizers is None)
    if tokenizers is None:
        kept = [(source, target) for h, source, target in survey.sample if h > survey.cutoff]
        survey.sample.clear()
        tags = [corpus.tag for corpus in training if corpus.tag]
        tokenizers = train_both(
            [source for source, _ in kept],
            [target for _, target in kept],
            settings,
            lowercase=data.lowercase,
            tags=tags,
        )
        del kept
    counts: Counter[str] = Counter()
    texts: list[tuple[str, str]] = []
    train, valid = Writer(folder / "train"), Writer(folder / "valid")
    starts, seen = [], set[int]()
    for corpus in training:
        starts.append(train.count)
        for chunk in chunks(tagged(corpus), CHUNK):
            encode(chunk, tokenizers, data, survey.cutoff, counts, train, valid, texts, seen)
    counts["pairs"] = train.count
    if not train.count:
        raise DataError(f"{names(training)}: no pair is left to train on: {summary(counts, data)}")
    refused: Counter[str] = Counter()
    for corpus in validation:
        for chunk in chunks(tagged(corpus), CHUNK):
            encode(chunk, tokenizers, data, None, refused, valid, valid, texts, seen)
    if validation and not valid.count:
        raise DataError(f"{names(validation)}: no pair is left to validate on: {summary(refused, data)}")
    counts.update(valid=valid.count, valid_blank=refused["blank"], valid_long=refused["long"])
    train.close()
    valid.close()
    for spool in folder.glob("drawn.*"):
        spool.unlink()
    tokenizers.save(folder / "tokenizer.json")
    rows = "".join(json.dumps(pair) + "\n" for pair in texts)
    (folder / "valid.jsonl").write_text(rows, encoding="utf-8")
    return {"starts": starts, "counts": dict(counts)}


def look_over(training: Iterable[CorpusSettings], data: DataSettings, *, hold_out: bool, sample: bool) -> Survey:
    """Count the pairs, choose the hash below which they are held out, and draw a sample."""
    survey, characters, mask = Survey(), 0, 0
    smallest, among = list[int](), set[int]()  # the smallest hashes, negative as heapq keeps the least first
    for corpus in training:
        for source, target in pairs(corpus):
            survey.pairs += 1
            if not source or not target:
                survey.blank += 1
                continue
            h = hash_of(source, target, data.lowercase)
            if hold_out and h not in among and (len(smallest) <= data.held_out_most or h < -smallest[0]):
                among.add(h)
                heapq.heappush(smallest, -h)
                if len(smallest) > data.held_out_most + 1:
                    among.remove(-heapq.heappop(smallest))
            if sample and not h & mask:
                survey.sample.append((h, source, target))
                characters += len(source) + len(target)
                while characters > SAMPLE:  # keep half, by another bit of the hash
                    mask = mask << 1 | 1
                    survey.sample = [row for row in survey.sample if not row[0] & mask]
                    characters = sum(len(s) + len(t) for _, s, t in survey.sample)
    real = survey.pairs - survey.blank
    if not real:
        blank = f": all {survey.pairs:,} are blank" if survey.pairs else ""
        raise DataError(f"{names(training)}: no pairs to train on{blank}")
    if hold_out:
        # Never more than half of the different pairs, where those are few.
        wanted = min(data.held_out_most, max(1, math.floor(data.held_out * real)), len(smallest) // 2)
        if not wanted:
            raise DataError(
                f"{names(training)}: one pair cannot be trained on and held out for validation; "
                "give data.valid_source and data.valid_target"
            )
        survey.cutoff = sorted(-h for h in smallest)[wanted - 1]
    return survey


def hash_of(source: str, target: str, lowercase: bool = False) -> int:
    """64 bits of a pair's text, the same on every machine; runs of white space are alike."""
    text = f"{' '.join(source.split())}\n{' '.join(target.split())}"
    return int.from_bytes(
        hashlib.blake2b((text.lower() if lowercase else text).encode(), digest_size=8).digest(), "big"
    )


def tagged(corpus: CorpusSettings) -> Iterator[tuple[str, str, str]]:
    """Every pair, with the corpus' tag and a space, or nothing."""
    tag = f"{corpus.tag} " if corpus.tag else ""
    return ((tag, source, target) for source, target in pairs(corpus))


def encode(
    chunk: list[tuple[str, str, str]],
    tokenizers: Tokenizers,
    data: DataSettings,
    cutoff: int | None,
    counts: Counter[str],
    train: Writer,
    valid: Writer,
    texts: list[tuple[str, str]],
    seen: set[int],
) -> None:
    """Encode one chunk to where it belongs; `cutoff` None: all of it is for validation."""
    full = [row for row in chunk if row[1] and row[2]]
    counts["blank"] += len(chunk) - len(full)
    sources = tokenizers.source.encode_batch([tag + source for tag, source, _ in full])
    targets = tokenizers.target.encode_batch([target for _, _, target in full])
    lists: dict[bool, tuple[list[list[int]], list[list[int]]]] = {False: ([], []), True: ([], [])}
    for (tag, source, target), s, t in zip(full, sources, targets, strict=True):
        held = cutoff is None
        if cutoff is not None and cutoff >= 0:
            h = hash_of(source, target, data.lowercase)
            held = h <= cutoff
            if held and h in seen:
                counts["repeated"] += 1
                continue
            if held:
                seen.add(h)
        if not s or not t:
            counts["blank"] += 1
        elif len(s) > data.longest or len(t) > data.longest:
            counts["long"] += 1
        else:
            lists[held][0].append(s)
            lists[held][1].append(t)
            if held and len(texts) < TEXTS:
                texts.append((tag + source, target))
    train.write(*lists[False])
    valid.write(*lists[True])


def draw(folder: Path, data: DataSettings) -> tuple[tuple[CorpusSettings, ...], tuple[CorpusSettings, ...]]:
    """Write the pairs of a built-in corpus to text files, as they are read twice; its own validation split."""
    training = spool(folder, data, "train", data.count)
    if data.validation or not data.held_out:
        return (training,), data.validation
    few = min(data.held_out_most, max(1, math.floor(data.held_out * data.count)))
    return (training,), (spool(folder, data, "valid", few),)


def spool(folder: Path, data: DataSettings, split: Literal["train", "valid"], count: int) -> CorpusSettings:
    """Two text files of one split. A small corpus may have fewer pairs for validation, but not for training."""
    from regard.data.builtin import generate

    corpus = CorpusSettings(str(folder / f"drawn.{split}.source"), str(folder / f"drawn.{split}.target"))
    seed, options = data.builtin_seed, data.options()
    with (
        open(str(corpus.source), "w", encoding="utf-8", newline="\n") as sources,
        open(str(corpus.target), "w", encoding="utf-8", newline="\n") as targets,
    ):
        try:
            for example in generate(str(data.builtin), count, seed=seed, split=split, pair=data.pair, **options):
                sources.write(f"{example.source}\n")
                targets.write(f"{example.target}\n")
        except ArgumentError as error:
            if split == "train":
                raise ConfigError("data.builtin", str(error)) from None
    return corpus


def summary(counts: Mapping[str, int], data: DataSettings) -> str:
    """One line about what was kept and dropped."""
    get = lambda name: counts.get(name, 0)  # noqa: E731
    said = f"{get('pairs'):,} pairs"
    dropped = {"blank": "blank", "long": f"longer than {data.longest} tokens"}
    lost = [f"{get(name):,} {words}" for name, words in dropped.items() if get(name)]
    if lost:
        said += f"; dropped {', '.join(lost)}"
    if data.validation or data.builtin:
        said += f"; {get('valid'):,} for validation"
        lost = [f"{get(f'valid_{name}'):,} {words}" for name, words in dropped.items() if get(f"valid_{name}")]
        said += f" (dropped {', '.join(lost)})" if lost else ""
    elif get("valid"):
        again = f" and {get('repeated'):,} repetitions of them dropped" if get("repeated") else ""
        said += f"; {get('valid'):,} held out for validation{again} (by hash; give data.valid_source and "
        said += "data.valid_target to choose them)"
    else:
        said += "; none held out for validation"
    return said


def names(corpora: Iterable[CorpusSettings]) -> str:
    return ", ".join(path for corpus in corpora for path in corpus.files)


def chunks(rows: Iterable[tuple[str, str, str]], size: int) -> Iterator[list[tuple[str, str, str]]]:
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, size)):
        yield chunk
