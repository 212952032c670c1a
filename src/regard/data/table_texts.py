"""The texts in a table, line by line: what `classify`, `translate` and `look` read where training also reads a label or
a translation.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard.data.corpus import field, parse_line
from regard.data.settings import TABLES, CorpusSettings, DataSettings
from regard.errors import DataError
from regard.io.lines import GivenText, Say

__all__ = ["TableTexts"]


class TableTexts:
    """A function from the lines of a table to the texts in them; a line without a tab is a text as it stands.

    The text is in the column, or under the key, that the run was trained on. By default that is, of documents, the
    second column of a TSV or the key "text" of JSON lines, and of pairs the first column or the key "source". A line
    that cannot be read is an empty text, and `say` is told of the first.
    """

    def __init__(self, path: str, corpus: CorpusSettings, say: Say):
        self.path, self.corpus, self.say = path, corpus, say
        self.count, self.unreadable = 0, False

    @classmethod
    def of(cls, path: str, data: DataSettings, say: Say) -> "TableTexts | None":
        """Return the reader of a file that is a table by its name, and report it; None for every other one."""
        if isinstance(path, GivenText) or ending(path) not in TABLES:
            return None
        labelled = data.reads == "documents"
        corpus = document_columns(path, data) if labelled else source_columns(path, data)
        column = corpus.column if corpus.form == ".tsv" else corpus.key
        kind = "column {}" if corpus.form == ".tsv" else "the key {!r}"
        what, rest = ("documents", "labels") if labelled else ("sources", "translations")
        say(f"{path}: reading the {what} in {kind.format(column('source_column'))}; {rest} are ignored")
        return cls(path, corpus, say)

    def __call__(self, lines: Sequence[str]) -> list[str]:
        """Return the text of each line."""
        return [self.read(line) for line in lines]

    def read(self, line: str) -> str:
        """Return the text of the next line."""
        self.count += 1
        if not line.strip():
            return ""
        try:
            if self.corpus.form != ".tsv":
                return field(parse_line(line), self.corpus.key("source_column"))
            cells, column = line.split("\t"), self.corpus.column("source_column")
            if len(cells) > 1 and len(cells) < column:
                raise DataError(f"{len(cells)} columns, expected at least {column}")
            return cells[column - 1] if len(cells) > 1 else line
        except DataError as error:
            if not self.unreadable:
                self.say(f"{self.path}, line {self.count:,}: {error}")
            self.unreadable = True
            return ""


def document_columns(path: str, data: DataSettings) -> CorpusSettings:
    """Return where the texts of labelled documents stand, as in the file that was trained on."""
    if (ending(path) == ".tsv") != (ending(data.documents or "") == ".tsv"):  # columns have numbers, keys have names
        data = replace(data, text_column=None, label_column=None)
    return data.labelled(path)


def source_columns(path: str, data: DataSettings) -> CorpusSettings:
    """Return where the sources of pairs stand, as in the first file of this form that was trained on."""
    for corpus in data.corpora:
        if corpus.form is not None and (corpus.form == ".tsv") == (ending(path) == ".tsv"):
            return CorpusSettings(file=path, source_column=corpus.source_column)
    return CorpusSettings(file=path)


def ending(path: str) -> str:
    """Return the ending of a file's name, without that of gzip."""
    return Path(path.removesuffix(".gz")).suffix.lower()
