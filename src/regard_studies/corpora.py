"""The corpora of studies: built in, or real ones in a folder that `--data` names.

The folder holds a folder a corpus: `multi30k/{train,val,test_2016_flickr}.{en,de}.gz`, raw text;
`europarl/{train,dev,test,test.para}.{de,en}.gz`, raw text; `alignment/de-en/test.{de,en}` and `de-en.wa`, sentences of
Europarl that people have aligned, tokenised and in lower case; `flickr8k/`, `imdb/` and others as their studies say.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data import generate
from regard.errors import CommandError
from regard.evaluation import Gold, read_links, read_texts, text_scores
from regard.io import open_destination, read_chunks
from regard_studies.setting import Setting

__all__ = [
    "AlignedPairs",
    "Pairs",
    "english_german",
    "europarl",
    "find_file",
    "multi30k",
    "phrasebook",
    "read_aligned",
    "tokenise",
]

JOINED = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|\S")  # words, with hyphens and apostrophes inside; all else by itself


@dataclass(frozen=True)
class Pairs:
    """A parallel corpus: its [data] and [tokenizer] settings, and its test set."""

    name: str  # as a page names it
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
        "tokenizer": {"kind": "bpe", "joint": True, "size": 8000},
    }
    sources, references = (
        read_texts(find_file(folder, f"multi30k/test_2016_flickr.{side}.gz")) for side in ("en", "de")
    )
    return Pairs("Multi30k, English to German, test 2016", tables, sources, references, lowercase=True)


def english_german(setting: Setting, tests: int) -> Pairs:
    """Open Multi30k, or the phrasebook, with `tests` test sentences in a first look."""
    if setting.corpora is not None:
        return multi30k(setting.corpora)
    return phrasebook(30_000, tests) if setting.quick else phrasebook(200_000, 1000)


def europarl(setting: Setting, source: str = "de", target: str = "en", *, pieces: int = 8000) -> Pairs:
    """Open Europarl, tokenised and in lower case like the aligned sentences; written once into the studies' folder."""
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
        "tokenizer": {"kind": "bpe", "joint": True, "size": pieces},
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
    """Open whole paragraphs of Europarl, as `europarl` has written them."""
    folder = setting.out / "data" / "europarl"
    return read_texts(folder / f"test.para.{source}"), read_texts(folder / f"test.para.{target}")


def read_aligned(folder: Path, source: str = "de", target: str = "en") -> AlignedPairs:
    """Read sentences of Europarl that people have aligned, German to English or the other way round."""
    texts = {side: read_texts(find_file(folder, f"alignment/de-en/test.{side}")) for side in ("de", "en")}
    gold = read_links(find_file(folder, "alignment/de-en/de-en.wa"))
    if (source, target) == ("en", "de"):
        gold = [Gold(swap_sides(each.sure), swap_sides(each.possible)) for each in gold]
    return AlignedPairs([text.lstrip("\ufeff") for text in texts[source]], texts[target], gold)


def swap_sides(links: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return the links as seen from the other side."""
    return frozenset((j, i) for i, j in links)


def tokenise(text: str) -> str:
    """Return the text in lower case, with punctuation apart from its words."""
    return " ".join(JOINED.findall(text.lower()))


def write_tokenised(source: Path, target: Path) -> None:
    """Write a tokenised copy of a file, unless there is one."""
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
