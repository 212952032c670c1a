"""The corpora of studies: built-in ones, or real ones in the folder `--data`.

The folder contains a subfolder per corpus: `multi30k/{train,val,test_2016_flickr}.{en,de}.gz`, raw text;
`europarl/{train,dev,test,test.para}.{de,en}.gz`, raw text; `alignment/de-en/test.{de,en}` and `de-en.wa`, manually
aligned sentences of Europarl, tokenised and in lower case; `flickr8k/`, `imdb/` and others as described by studies.
"""

import re
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from regard.data import DataSettings, caption_files, generate, pairs, picture_pixels
from regard.errors import CommandError
from regard.evaluation import Gold, read_links, read_texts, text_scores
from regard.io import open_destination, read_chunks
from regard_corpora import Pictured
from regard_studies import Setting

ALIGNED_WORDS = 40  # maximum length of both sides of a test sentence; longer ones are rare in training
ALIGNED_TESTS = 1500
MODELLED_WORDS = 30  # maximum length of Europarl's test sentences for language models; in training 40 pieces
FLICKR_LISTS = {"train_list": "trainImages", "valid_list": "devImages"}
JOINED = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|\S")  # words with inner hyphens and apostrophes, or single characters


@dataclass(frozen=True)
class Pairs:
    """A parallel corpus: its [data] and [tokenizer] settings, and its test set."""

    name: str  # as shown on pages
    tables: dict[str, dict[str, Any]]  # data, tokenizer
    sources: list[str]
    references: list[str]
    lowercase: bool = False

    def bleu(self, outputs: list[str]) -> float:
        """Compute the BLEU of the test set's translations."""
        references = [(text,) for text in self.references]
        return text_scores.measure_bleu(outputs, references, lowercase=self.lowercase).score().value


@dataclass(frozen=True)
class AlignedPairs:
    """Pairs with word links, made by people or by a grammar."""

    sources: list[str]
    targets: list[str]
    gold: list[Gold]


def tokenizer(pieces: int, joint: bool = True) -> dict[str, Any]:
    """Return the [tokenizer] settings of a vocabulary of `pieces` pieces."""
    return {"kind": "bpe", "joint": joint, "size": pieces}


def phrasebook(count: int, tests: int, pair: str = "en-de", **options: Any) -> Pairs:
    """Open the built-in phrasebook."""
    examples = list(generate("phrasebook", tests, split="test", pair=pair, seed=0, edition=1, **options))
    data = {"builtin": "phrasebook", "pair": pair, "count": count, "builtin_edition": 1}
    if options:
        data["builtin_options"] = [f"{key}={value}" for key, value in options.items()]
    sources, references = [each.source for each in examples], [each.target for each in examples]
    return Pairs("the built-in phrasebook, English to German", {"data": data}, sources, references)


def multi30k(folder: Path) -> Pairs:
    """Open Multi30k, English to German, in lower case, with its test set of 2016."""
    files = {
        key: str(find_file(folder, f"multi30k/{part}.{side}.gz"))
        for key, part, side in (
            ("source", "train", "en"),
            ("target", "train", "de"),
            ("valid_source", "val", "en"),
            ("valid_target", "val", "de"),
        )
    }
    tables: dict[str, dict[str, Any]] = {
        "data": {**files, "lowercase": True},
        "tokenizer": tokenizer(8000),
    }
    sources, references = (
        read_texts(find_file(folder, f"multi30k/test_2016_flickr.{side}.gz")) for side in ("en", "de")
    )
    return Pairs("Multi30k, English to German, test 2016", tables, sources, references, lowercase=True)


def english_german(setting: Setting, tests: int) -> Pairs:
    """Open Multi30k if there are real corpora, otherwise the phrasebook, in a quick run with `tests` test sentences."""
    if setting.corpora is not None:
        return multi30k(setting.corpora)
    return phrasebook(30_000, tests) if setting.quick else phrasebook(200_000, 1000)


def europarl(setting: Setting, source: str = "de", target: str = "en") -> Pairs:
    """Open Europarl, tokenised and in lower case like the aligned sentences; cache the files in the output folder."""
    assert setting.data is not None
    folder = setting.out / "data" / "europarl"
    for part in ("train", "dev", "test", "test.para"):
        for side in (source, target):
            write_tokenised(find_file(setting.data, f"europarl/{part}.{side}.gz"), folder / f"{part}.{side}")
    tables: dict[str, dict[str, Any]] = {
        "data": {
            "source": str(folder / f"train.{source}"),
            "target": str(folder / f"train.{target}"),
            "valid_source": str(folder / f"dev.{source}"),
            "valid_target": str(folder / f"dev.{target}"),
        },
        "tokenizer": tokenizer(8000),
    }
    names = {"de": "German", "en": "English"}
    return Pairs(
        f"Europarl, {names[source]} to {names[target]}, tokenised, in lower case",
        tables,
        read_texts(folder / f"test.{source}"),
        read_texts(folder / f"test.{target}"),
        lowercase=True,
    )


def paragraphs(setting: Setting, source: str = "de", target: str = "en") -> tuple[list[str], list[str]]:
    """Open whole paragraphs of Europarl from the files that `europarl` has written."""
    folder = setting.out / "data" / "europarl"
    return read_texts(folder / f"test.para.{source}"), read_texts(folder / f"test.para.{target}")


def read_aligned(folder: Path, source: str = "de", target: str = "en") -> AlignedPairs:
    """Read manually aligned sentences of Europarl, German to English or English to German."""
    texts = {side: read_texts(find_file(folder, f"alignment/de-en/test.{side}")) for side in ("de", "en")}
    gold = read_links(find_file(folder, "alignment/de-en/de-en.wa"))
    if (source, target) == ("en", "de"):
        gold = [Gold(*(frozenset((j, i) for i, j in links) for links in (each.sure, each.possible))) for each in gold]
    return AlignedPairs([text.lstrip("\ufeff") for text in texts[source]], texts[target], gold)


def aligned_texts(setting: Setting) -> tuple[Pairs, AlignedPairs]:
    """Return the corpus, without long test sentences, and aligned pairs."""
    if setting.corpora is not None:
        return limit_length(europarl(setting), ALIGNED_WORDS, ALIGNED_TESTS), read_aligned(setting.corpora)
    count, tests, longest = (20_000, 300, 12) if setting.quick else (200_000, ALIGNED_TESTS, 18)
    return phrasebook(count, tests, longest=longest), generate_aligned(tests, longest=longest)


def limit_length(corpus: Pairs, words: int, count: int) -> Pairs:
    """Return the corpus with only the first `count` test pairs in which neither side has more than `words` words."""
    both = zip(corpus.sources, corpus.references, strict=True)
    pairs = [pair for pair in both if max(len(text.split()) for text in pair) <= words][:count]
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Pairs(corpus.name, corpus.tables, sources, references, corpus.lowercase)


def generate_aligned(count: int, **options: Any) -> AlignedPairs:
    """Generate test sentences of the phrasebook with the word links of its grammar."""
    examples = list(generate("phrasebook", count, split="test", pair="en-de", seed=0, edition=1, **options))
    gold = [Gold(frozenset(each.alignment), frozenset()) for each in examples]
    return AlignedPairs([each.source for each in examples], [each.target for each in examples], gold)


def tokenise(text: str) -> str:
    """Return the text in lower case, with spaces between words and punctuation."""
    return " ".join(JOINED.findall(text.lower()))


def write_tokenised(source: Path, target: Path) -> None:
    """Write a tokenised copy of a file, unless it exists."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_destination(target, real=True) as write:
        for chunk in read_chunks(source):
            write("".join(f"{tokenise(line)}\n" for line in chunk))


def find_file(folder: Path, name: str) -> Path:
    """Find a file of a corpus, or raise an error that names it."""
    path = folder / name
    if not path.exists():
        raise CommandError(f"--data: {path} is missing, which this study reads; put it there, or leave out --data")
    return path


@dataclass(frozen=True)
class Sentences:
    """A corpus of one language: its [data] and [tokenizer] settings, and its test set."""

    name: str  # as shown on pages
    tables: dict[str, dict[str, Any]]  # data, tokenizer
    texts: list[str]
    real: bool = True

    @property
    def pieces(self) -> int:
        """Return the size of the vocabulary."""
        return int(self.tables["tokenizer"]["size"])

    @property
    def words(self) -> list[int]:
        """Count the words of each text, including punctuation and its end."""
        return [len(tokenise(text).split()) + 1 for text in self.texts]


def german(count: int, tests: int, longest: int) -> Sentences:
    """Open the German side of the phrasebook: verbs come late, and articles depend on the noun that follows."""
    texts = [each.target for each in generate("phrasebook", tests, split="test", seed=0, edition=1, longest=longest)]
    options = [f"longest={longest}"]
    data = {"builtin": "phrasebook", "pair": "en-de", "count": count, "builtin_edition": 1, "builtin_options": options}
    return Sentences(
        "the built-in phrasebook, German", {"data": data, "tokenizer": tokenizer(1000, joint=False)}, texts, real=False
    )


def english_multi30k(folder: Path) -> Sentences:
    """Open the English side of Multi30k, in lower case, with its test set of 2016."""
    texts = read_texts(find_file(folder, "multi30k/test_2016_flickr.en.gz"))
    train, valid = (find_file(folder, f"multi30k/{part}.en.gz") for part in ("train", "val"))
    tables = {"data": {**sides(train, valid), "lowercase": True}, "tokenizer": tokenizer(6000)}
    return Sentences("Multi30k, English, test 2016", tables, texts)


def english_europarl(setting: Setting, tests: int = 2000) -> Sentences:
    """Open the English side of Europarl, tokenised and in lower case; cache the files in the output folder.

    Training uses sentences of at most 40 pieces, the test sentences of at most 30 words.
    """
    assert setting.data is not None
    train, valid, test = (setting.out / "data" / "europarl" / f"{part}.en" for part in ("train", "dev", "test"))
    for path in (train, valid, test):
        write_tokenised(find_file(setting.data, f"europarl/{path.name}.gz"), path)
    texts = [text for text in read_texts(test) if 1 <= len(text.split()) <= MODELLED_WORDS][:tests]
    tables = {"data": {**sides(train, valid), "longest": 40}, "tokenizer": tokenizer(8000)}
    return Sentences("Europarl, English, up to 30 words", tables, texts)


def sides(train: Path, valid: Path) -> dict[str, Any]:
    """Return file settings with the same texts on both sides, as a language model does not read its source."""
    return {
        f"{key}{side}": str(path) for key, path in (("", train), ("valid_", valid)) for side in ("source", "target")
    }


@dataclass(frozen=True)
class Reviews:
    """Documents with labels: their [data] and [tokenizer] settings, and the test set."""

    name: str  # as shown on pages
    tables: dict[str, dict[str, Any]]  # data, tokenizer
    texts: list[str]
    labels: list[str]
    deciding: list[frozenset[int]] | None = None  # built-in reviews only: the words that decide each text's label

    @property
    def real(self) -> bool:
        """Return whether the reviews are real and not generated."""
        return self.deciding is None

    @property
    def words(self) -> list[int]:
        """Count the words of each text."""
        return [len(text.split()) for text in self.texts]


def built_in_reviews(count: int, tests: int, **options: Any) -> Reviews:
    """Open the built-in reviews."""
    examples = list(generate("reviews", tests, split="test", seed=0, edition=1, **options))
    tables: dict[str, dict[str, Any]] = {
        "data": {
            "builtin": "reviews",
            "builtin_edition": 1,
            "count": count,
            "builtin_options": [f"{key}={value}" for key, value in options.items()],
        },
        "tokenizer": {"kind": "word"},
    }
    return Reviews(
        "the built-in reviews",
        tables,
        [each.source for each in examples],
        [each.target for each in examples],
        [frozenset(word for word, _ in each.alignment) for each in examples],
    )


def imdb(folder: Path) -> Reviews:
    """Open the reviews of Maas et al. 2011: `imdb/{train,test}.tsv.gz` with polarity (label), stars, id and text."""
    data: dict[str, Any] = {
        "documents": str(find_file(folder, "imdb/train.tsv.gz")),
        "label_column": 1,
        "text_column": 4,
        "lowercase": True,
        "longest": 100,
        "document_tokens": 800,
        "held_out": 0.1,
        "held_out_most": 2500,
    }
    test = DataSettings(**data).labelled(str(find_file(folder, "imdb/test.tsv.gz")))
    rows = [(text, label) for text, label in pairs(test, labelled=True) if text.strip() and label]
    tables = {"data": data, "tokenizer": {"kind": "bpe", "size": 16_384}}
    return Reviews("IMDB, for or against", tables, [text for text, _ in rows], [str(label) for _, label in rows])


@dataclass(frozen=True)
class Gallery:
    """Pictures with captions: their [data] settings, and the test pictures, each with all its captions."""

    name: str  # as shown on pages
    data: dict[str, Any]
    pixels: list[np.ndarray]  # uint8 [3 h w]
    references: list[list[str]]
    scenes: list[Pictured] = field(default_factory=list)  # drawn scenes, which know the shape that a word describes


def scenes(count: int, tests: int, *, side: int, shapes: int = 3) -> Gallery:
    """Generate drawn scenes."""
    stream = generate("scenes", tests, split="test", seed=0, size=side, shapes=shapes)
    pictures = [cast(Pictured, each) for each in stream]
    data: dict[str, Any] = {"builtin": "scenes", "count": count, "image_size": side}
    if shapes != 3:
        data["builtin_options"] = [f"shapes={shapes}"]
    pixels = [np.ascontiguousarray(each.picture().transpose(2, 0, 1)) for each in pictures]
    return Gallery(
        f"drawn scenes of up to {shapes} shapes", data, pixels, [[each.target] for each in pictures], pictures
    )


def flickr8k(setting: Setting, *, side: int = 96) -> Gallery:
    """Open Flickr8k in its official split; unpack `flickr8k/images.tar` into the output folder once."""
    assert setting.data is not None
    images = setting.out / "data" / "flickr8k" / "images"
    unpack(find_file(setting.data, "flickr8k/images.tar"), images)
    captions = find_file(setting.data, "flickr8k/Flickr8k.token.txt.gz")
    lists = {key: str(find_file(setting.data, f"flickr8k/Flickr_8k.{name}.txt")) for key, name in FLICKR_LISTS.items()}
    data: dict[str, Any] = {"images": str(images), "captions": str(captions), **lists}
    data |= {"image_size": side, "lowercase": True, "flip": True, "crop": 0.15}
    names = caption_files.read_list(find_file(setting.data, "flickr8k/Flickr_8k.testImages.txt"))
    captions_of = {name: each for name, each in caption_files.read_captions(captions).captions.items() if name in names}
    pixels = [picture_pixels.read_for(DataSettings(**data), images / name) for name in captions_of]
    return Gallery("Flickr8k, official split", data, pixels, list(captions_of.values()))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive atomically, unless it is already unpacked."""
    if folder.exists():
        return
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(archive) as pictures:
        pictures.extractall(part, filter="data")
    part.rename(folder)
