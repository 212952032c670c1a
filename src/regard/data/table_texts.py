"""The texts in a table, line by line: what commands read of it where training also reads a label or the other side."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from regard.data.corpus import field, find_columns, parse_line
from regard.data.settings import TABLES, CorpusSettings, DataSettings
from regard.errors import DataError
from regard.io import GivenText, LinePairs, Say, csv_lines

Side = Literal["source", "target"]
OTHER_SIDE = {"source": "translations", "target": "sources"}


class TableTexts:
    """A function from the lines of a table to the texts in them; a line without a tab is a text as it stands.

    The text is in the column, or under the key, that the run was trained on. By default that is, of documents, the
    second column of a TSV or the key "text" of JSON lines, and of pairs the first column or the key "source", for
    targets the second or the key "target". A line that cannot be read is an empty text, and `say` is told of the first.
    """

    def __init__(self, path: str, corpus: CorpusSettings, say: Say, side: Side = "source"):
        self.path, self.corpus, self.say = path, corpus, say
        which: Literal["source_column", "target_column"] = "source_column" if side == "source" else "target_column"
        if corpus.form == ".csv":  # its rows come as those of a TSV
            self.column: str | int = find_columns(path, csv_lines.name_column(getattr(corpus, which), side))[0][0]
        else:
            self.column = corpus.column(which) if corpus.form == ".tsv" else corpus.key(which)
        self.count, self.unreadable = 0, False

    @classmethod
    def of(cls, path: str, data: DataSettings | None, say: Say, side: Side = "source") -> "TableTexts | None":
        """Return the reader of a file that is a table by its name, and report it; None for every other one.

        `data` says which columns the run was trained on, and `side` which of a pair is wanted.
        """
        if isinstance(path, GivenText) or ending(path) not in TABLES:
            return None
        labelled = data is not None and data.reads == "documents"
        corpus = document_columns(path, data) if data is not None and labelled else pair_columns(path, data)
        texts = cls(path, corpus, say, side)
        place = f"column {texts.column}" if corpus.form in (".tsv", ".csv") else f"the key {texts.column!r}"
        what, rest = ("documents", "labels") if labelled else (f"{side}s", OTHER_SIDE[side])
        say(f"{path}: reading the {what} in {place}; {rest} are ignored")
        return texts

    def __call__(self, lines: Sequence[str]) -> list[str]:
        """Return the text of each line."""
        return [self.read(line) for line in lines]

    def read(self, line: str) -> str:
        """Return the text of the next line."""
        self.count += 1
        if not line.strip():
            return ""
        try:
            if not isinstance(self.column, int):
                return field(parse_line(line), self.column)
            cells = line.split("\t")
            if len(cells) > 1 and len(cells) < self.column:
                raise DataError(f"{len(cells)} columns, expected at least {self.column}")
            return cells[self.column - 1] if len(cells) > 1 else line
        except DataError as error:
            if not self.unreadable:
                self.say(f"{self.path}, line {self.count:,}: {error}")
            self.unreadable = True
            return ""


def read_tables(pairs: LinePairs, data: DataSettings | None, say: Say) -> None:
    """Have the texts of pairs read from tables, where their files are that."""
    if pairs.source is not None:
        pairs.source_texts = TableTexts.of(pairs.source, data, say) or list
    pairs.target_texts = TableTexts.of(pairs.target, data, say, "target") or list


def document_columns(path: str, data: DataSettings) -> CorpusSettings:
    """Return where the texts of labelled documents stand, as in the file that was trained on."""
    if not are_alike(path, data.documents or ""):  # columns have numbers, keys have names
        data = replace(data, text_column=None, label_column=None)
    return data.labelled(path)


def pair_columns(path: str, data: DataSettings | None) -> CorpusSettings:
    """Return where the two sides of pairs stand, as in the first file of this form that was trained on."""
    for corpus in () if data is None else data.corpora:
        if corpus.file is not None and are_alike(path, corpus.file):
            return CorpusSettings(file=path, source_column=corpus.source_column, target_column=corpus.target_column)
    return CorpusSettings(file=path)


def are_alike(path: str, other: str) -> bool:
    """Return whether two tables name their columns alike: both are TSV, or CSV, or of JSON."""
    forms = {ending(each) if ending(each) in (".tsv", ".csv") else ".json" for each in (path, other)}
    return len(forms) == 1


def ending(path: str) -> str:
    """Return the ending of a file's name, without that of gzip."""
    return Path(path.removesuffix(".gz")).suffix.lower()
