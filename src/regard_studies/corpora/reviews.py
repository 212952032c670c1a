"""The reviews of studies: built-in ones with their deciding words, or IMDB's in a folder that `--data` names."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data import DataSettings, generate, pairs
from regard_studies.corpora.pairs import find_file

__all__ = ["Reviews", "built_in_reviews", "imdb"]


@dataclass(frozen=True)
class Reviews:
    """Documents with labels: their [data] and [tokenizer] settings, and the test set."""

    name: str  # as a page names it
    tables: dict[str, dict[str, Any]]  # data, tokenizer
    texts: list[str]
    labels: list[str]
    deciding: list[frozenset[int]] | None = None  # of built-in ones: the words of each text that its label depends on

    @property
    def real(self) -> bool:
        """Return whether people wrote the reviews."""
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
    """Open the reviews of Maas et al. 2011, for or against: `imdb/{train,test}.tsv.gz`, polarity, stars, id, text."""
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
