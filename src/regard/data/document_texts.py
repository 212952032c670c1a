"""The texts in a table of labelled documents, line by line: what `classify` and `look` read where training also reads
the label.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard.data.corpus import field, parse_line
from regard.data.settings import TABLES, CorpusSettings, DataSettings
from regard.errors import DataError
from regard.io.lines import GivenText, Say

__all__ = ["DocumentTexts"]


class DocumentTexts:
    """A function from the lines of a table to the texts in them; a line without labels is a text as it stands.

    In TSV the text is in the column that the run was trained on (the second by default), in JSON lines under its key.
    A line that cannot be read is an empty text, and `say` is told of the first.
    """

    def __init__(self, path: str, corpus: CorpusSettings, say: Say):
        self.path, self.corpus, self.say = path, corpus, say
        self.count, self.unreadable = 0, False

    @classmethod
    def of(cls, path: str, data: DataSettings, say: Say) -> "DocumentTexts | None":
        """Return the reader of a file that is a table by its name, and report it; None for every other one."""
        if isinstance(path, GivenText) or ending(path) not in TABLES:
            return None
        if (ending(path) == ".tsv") != (
            ending(data.documents or "") == ".tsv"
        ):  # columns have numbers, keys have names
            data = replace(data, text_column=None, label_column=None)
        corpus = data.labelled(path)
        place = f"column {corpus.source_column}" if corpus.form == ".tsv" else f"the key {corpus.source_column!r}"
        say(f"{path}: reading the documents in {place}; labels are ignored")
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


def ending(path: str) -> str:
    """Return the ending of a file's name, without that of gzip."""
    return Path(path.removesuffix(".gz")).suffix.lower()
