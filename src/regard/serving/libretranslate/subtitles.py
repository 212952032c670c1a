r"""Subtitles (SubRip): cues whose numbers and times stay, and whose texts are translated, each as a whole.

The lines of a cue are one text, and its translation has as many lines, unless they are of several speakers and begin
with dashes. Tags such as <i> are carried along as in HTML, and {\an8} stays at the beginning.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.serving.libretranslate.markup import Document, parse_html
from regard.serving.libretranslate.tag_placement import Link

TIMES = re.compile(r"^[ \t]*\d+:\d\d:\d\d[,.]\d{1,3}[ \t]*-->[ \t]*\d+:\d\d:\d\d[,.]\d{1,3}.*$")
PLACE = re.compile(r"(?:\{\\[^{}]*\})*")
WORD = re.compile(r"(?:<[^<>]*>|\S)+")  # a tag's spaces end no word


@dataclass(frozen=True)
class CueText:
    """A text of a cue, as it is translated, and the number of lines that it has."""

    before: str
    document: Document
    lines: int


@dataclass(frozen=True)
class Subtitles:
    """A file of subtitles in parts: texts of cues, and lines that stay."""

    parts: tuple[CueText | str, ...]

    @property
    def texts(self) -> list[str]:
        """The texts to translate."""
        return [text for part in self.parts if isinstance(part, CueText) for text in part.document.texts]

    def render(self, translations: Sequence[tuple[str, Sequence[Link]]]) -> str:
        """Write the file with the translation of each text."""
        rows, lines = iter(translations), []
        for part in self.parts:
            if isinstance(part, str):
                lines.append(part)
                continue
            text = html.unescape(part.document.render([next(rows) for _ in part.document.texts]))
            lines.append(part.before + wrap(text, part.lines))
        return "\n".join(lines)


def parse_srt(text: str) -> Subtitles:
    """Parse a file of subtitles; what is no cue stays as it is."""
    parts: list[CueText | str] = []
    cue: list[str] | None = None  # lines of its text

    def end_cue() -> None:
        if cue:
            separate = all(line.lstrip().startswith(("-", "–", "—")) for line in cue)
            for lines in [[line] for line in cue] if separate else [cue]:
                joined = " ".join(line.strip() for line in lines)
                before = PLACE.match(joined)[0]  # type: ignore[index]
                document = parse_html(joined[len(before) :])
                dashed = re.match(r"[-–—]\s*", joined[len(before) :])
                if dashed:
                    before += dashed[0]
                    document = parse_html(joined[len(before) :])
                parts.append(CueText(before, document, len(lines)))

    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if TIMES.match(line):
            end_cue()
            cue = []
            parts.append(line)
        elif cue is not None and line.strip():
            cue.append(line)
        else:
            end_cue()
            cue = None
            parts.append(line)
    end_cue()
    return Subtitles(tuple(parts))


def wrap(text: str, lines: int) -> str:
    """Break a text into so many lines of about the same length, at spaces."""
    words = WORD.findall(text)
    length = sum(map(len, words)) / max(1, lines)
    rows: list[list[str]] = [[]]
    for word in words:
        written = sum(len(each) for row in rows for each in row) + len(word) / 2
        if rows[-1] and len(rows) < lines and written > length * len(rows):
            rows.append([])
        rows[-1].append(word)
    return "\n".join(" ".join(row) for row in rows)
