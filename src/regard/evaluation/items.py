"""Test sets: sources with their references, and a system's outputs for them, from text files.

A line is an item. Where alternatives are asked for, lines with the same source are one item with several references, of
which any is right: words with several pronunciations, sentences with several translations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.data import Side, TableTexts
from regard.errors import DataError
from regard.evaluation.text import normalise_text
from regard.io import Say, display_name, ignore, read_chunks, unequal_lines


@dataclass(frozen=True)
class Items:
    """The items to be translated and their references; `line_items` says which item each line belongs to."""

    reference: Path
    sources: list[str] | None
    references: list[tuple[str, ...]]
    line_items: list[int]

    def __len__(self) -> int:
        return len(self.references)

    @property
    def empty(self) -> int:
        """The number of sources without words; their outputs are empty, and count like others."""
        return sum(not text.strip() for text in self.sources or [])

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each source ("" where there are none) with each of its references; not those without words."""
        for i, texts in enumerate(self.references):
            source = "" if self.sources is None else self.sources[i]
            if self.sources is None or source.strip():
                yield from ((source, reference) for reference in texts if reference.strip())

    def by_line(self, outputs: Sequence[str]) -> list[str]:
        """Outputs of items as lines that stand beside those of the files."""
        return [outputs[item] for item in self.line_items]

    def read_outputs(self, path: str | Path, say: Say = ignore) -> list[str]:
        """A system's outputs from a file with a line for each line of the test set, or for each item.

        Where several lines are one item, the first of their outputs counts.
        """
        texts = read_texts(path, say)
        if len(texts) == len(self.line_items):
            outputs: dict[int, str] = {}
            for item, text in zip(self.line_items, texts, strict=True):
                outputs.setdefault(item, text)
            return [outputs[item] for item in range(len(self))]
        if len(texts) == len(self):
            return texts
        count, expected = len(texts), f"the same number{', or one per item' * (len(self) < len(self.line_items))}"
        raise DataError(
            f"{path} has {count:,} line{'s' * (count != 1)} and {self.reference} has {len(self.line_items):,}; "
            f"expected {expected}"
        )


def read_items(
    source: str | Path | None, reference: str | Path, *, alternatives: bool = False, say: Say = ignore
) -> Items:
    """A test set from its files, plain text, tables of pairs, or gzip; without a source there are only references.

    `say` is told of lines that were cut.
    """
    references = read_texts(reference, say, "target")
    if source is None:
        return Items(Path(reference), None, [(text,) for text in references], list(range(len(references))))
    sources = read_texts(source, say, "source")
    if len(sources) != len(references):
        raise unequal_lines(source, len(sources), reference, len(references))
    if not alternatives:
        return Items(Path(reference), sources, [(text,) for text in references], list(range(len(references))))
    numbers: dict[str, int] = {}
    line_items = [numbers.setdefault(normalise_text(text), len(numbers)) for text in sources]
    if len(numbers) == len(sources):
        raise DataError(f"{source}: none of its {len(sources):,} lines occurs twice, so there are no alternatives")
    grouped: list[dict[str, None]] = [{} for _ in numbers]  # a reference that comes twice is one
    for item, text in zip(line_items, references, strict=True):
        grouped[item][text] = None
    return Items(Path(reference), list(numbers), [tuple(each) for each in grouped], line_items)


def read_texts(path: str | Path, say: Say = ignore, side: Side | None = None) -> list[str]:
    """The lines of a text file or a pipe; a DataError where there are none, or where it is no text.

    Of a table of pairs, it is the texts of one side: of a TSV column 1 or 2, of JSON lines `source` or `target`.
    """
    texts = None if side is None else TableTexts.of(path if isinstance(path, str) else str(path), None, say, side)
    lines = [line for chunk in read_chunks(path, say=say) for line in (chunk if texts is None else texts(chunk))]
    if not lines:
        raise DataError(f"{display_name(path)}: empty, expected one sentence per line")
    return lines
