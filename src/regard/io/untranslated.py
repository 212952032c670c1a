"""Source words that outputs leave out, named line by line as they are translated."""

from collections.abc import Sequence
from typing import Protocol

from regard.io.lines import Say
from regard.messages import visible

LISTED = 6  # lines that a message names
LONGEST = 80  # characters of words in a row that are shown


class Covered(Protocol):
    """An output, as far as it says which source words it leaves out."""

    @property
    def untranslated(self) -> tuple[tuple[int, int], ...] | None: ...


class UntranslatedReport:
    """A report of the lines whose best output leaves source words out; `say` is told of the new ones by `tell`.

    Of `total` lines, a single one is not numbered.
    """

    def __init__(self, say: Say, total: int | None):
        self.say, self.total = say, total
        self.lines: list[str] = []  # what is said of each line, as far as it may be listed
        self.count = 0

    def look(self, number: int, line: str, outputs: Sequence[Covered]) -> None:
        """Note what the best output of a line, which has this number, leaves out."""
        spans = outputs[0].untranslated or ()
        if not spans:
            return
        self.count += 1
        if self.count <= LISTED:
            words = line.split()
            place = "" if self.total == 1 else f" (line {number:,})"
            self.lines.append(", ".join(quote(words[start:end]) for start, end in spans) + place)

    def tell(self) -> None:
        """Report the lines that were not reported yet, in one sentence."""
        if not self.count:
            return
        rest = self.count - len(self.lines)
        more = f" and in {rest:,} more line{'s' * (rest != 1)}" if rest else ""
        self.say(f"perhaps not translated: {'; '.join(self.lines)}{more}")
        self.lines, self.count = [], 0


def quote(words: Sequence[str]) -> str:
    """Quote words in a row; of very many the first and the last."""
    text = " ".join(words)
    if len(text) > LONGEST:
        half = LONGEST // 2
        text = f"{text[:half].rstrip()} … {text[-half:].lstrip()}"
    return f"“{visible(text)}”"
