"""The sentences of studies of language models: built in, or real ones in a folder that `--data` names."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data import generate
from regard.evaluation import read_texts
from regard_studies.corpora.pairs import find_file, tokenise, write_tokenised
from regard_studies.setting import Setting

__all__ = ["Sentences", "europarl", "german", "multi30k"]

WORDS = 30  # of a sentence of Europarl at most; in training 40 pieces


@dataclass(frozen=True)
class Sentences:
    """A corpus of one language: its [data] and [tokenizer] settings, and its test set."""

    name: str  # as a page names it
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


def tokenizer(pieces: int, joint: bool = True) -> dict[str, Any]:
    return {"kind": "bpe", "joint": joint, "size": pieces}


def german(count: int, tests: int, longest: int) -> Sentences:
    """Open the German side of the phrasebook: verbs come late, and articles depend on the noun that follows."""
    texts = [each.target for each in generate("phrasebook", tests, split="test", seed=0, edition=1, longest=longest)]
    options = [f"longest={longest}"]
    data = {"builtin": "phrasebook", "pair": "en-de", "count": count, "builtin_edition": 1, "builtin_options": options}
    return Sentences(
        "the built-in phrasebook, German", {"data": data, "tokenizer": tokenizer(1000, joint=False)}, texts, real=False
    )


def multi30k(folder: Path) -> Sentences:
    """Open the English side of Multi30k, in lower case, with its test set of 2016."""
    texts = read_texts(find_file(folder, "multi30k/test_2016_flickr.en.gz"))
    train, valid = (find_file(folder, f"multi30k/{part}.en.gz") for part in ("train", "val"))
    tables = {"data": {**sides(train, valid), "lowercase": True}, "tokenizer": tokenizer(6000)}
    return Sentences("Multi30k, English, test 2016", tables, texts)


def europarl(setting: Setting, tests: int = 2000) -> Sentences:
    """Open the English side of Europarl, tokenised and in lower case; it is written once into the studies' folder.

    Sentences of at most 40 pieces are trained on, and those of at most 30 words are for the test.
    """
    assert setting.data is not None
    train, valid, test = (setting.out / "data" / "europarl" / f"{part}.en" for part in ("train", "dev", "test"))
    for path in (train, valid, test):
        write_tokenised(find_file(setting.data, f"europarl/{path.name}.gz"), path)
    texts = [text for text in read_texts(test) if 1 <= len(text.split()) <= WORDS][:tests]
    tables = {"data": {**sides(train, valid), "longest": 40}, "tokenizer": tokenizer(8000)}
    return Sentences("Europarl, English, up to 30 words", tables, texts)


def sides(train: Path, valid: Path) -> dict[str, Any]:
    """Return one language for both sides: a language model does not read its source."""
    return {
        f"{key}{side}": str(path) for key, path in (("", train), ("valid_", valid)) for side in ("source", "target")
    }
