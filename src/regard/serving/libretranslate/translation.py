r"""Translation by a service from a language to another: texts, HTML, and files, which wait to be downloaded.

The ending of a file's name says whether it is plain text, HTML or subtitles (SubRip). The numbers and times of cues
stay, and each text is translated as a whole: the lines of a cue are one text, and its translation has as many lines,
unless they are of several speakers and begin with dashes. Tags such as <i> are carried along as in HTML, and {\an8}
stays at the beginning.
"""

import asyncio
import html
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.config import show_value
from regard.decoding import Options
from regard.serving.errors import ProtocolError
from regard.serving.libretranslate.language_pairs import LanguagePair
from regard.serving.libretranslate.markup import Document, parse_html
from regard.serving.libretranslate.tag_placement import Link
from regard.serving.requests import ActionRequest, TranslateRequest
from regard.serving.service import Service

LinkedText = tuple[str, Sequence[Link]]
TIMES = re.compile(r"^[ \t]*\d+:\d\d:\d\d[,.]\d{1,3}[ \t]*-->[ \t]*\d+:\d\d:\d\d[,.]\d{1,3}.*$")
PLACE = re.compile(r"(?:\{\\[^{}]*\})*(?:[-–—]\s*)?")  # where a cue is shown, and that another speaks
WORD = re.compile(r"(?:<[^<>]*>|\S)+")  # a tag's spaces end no word
FILES = 100  # that are held, at most
BYTES = 64 * 2**20  # of all of them
SECONDS = 600.0  # for which one is held
NAME = re.compile(r"[^A-Za-z0-9._-]+")


async def translate_linked(
    service: Service, pair: LanguagePair, texts: Sequence[str], options: Options, links: bool = True
) -> list[list[LinkedText]]:
    """Translate texts: outputs with the links of their words, where the model has attention to make them of."""
    words = [number for number, text in enumerate(texts) if text.strip()]
    outputs: list[list[LinkedText]] = [[(text, ())] for text in texts]
    if not words:
        return outputs
    tag = f"{pair.tag} " if pair.tag else ""
    aligned = links and service.models[pair.model].attends
    given = tuple(tag + texts[number].strip() for number in words)
    source, target = (pair.source, pair.target) if pair.named else (None, None)
    request = TranslateRequest(pair.model, source, target, texts=given, alignment=aligned)
    answer = await service.translate(ActionRequest(request, options))
    for number, result in zip(words, answer["results"], strict=True):
        outputs[number] = [
            (output["text"], [(source - bool(tag), target) for source, target in output.get("alignment", ())])
            for output in result["outputs"]
        ]
    return outputs


async def render_all(
    service: Service, pair: LanguagePair, documents: "Sequence[Renderable]", options: Options
) -> list[list[str]]:
    """Translate documents, outputs best first: all their texts together, and then each is written again."""
    texts = [text for document in documents for text in document.texts]
    plain = all(isinstance(document, PlainText) for document in documents)
    outputs = await translate_linked(service, pair, texts, options, links=not plain)

    def render() -> list[list[str]]:
        rest, rows = iter(outputs), []
        for document in documents:
            own = [next(rest) for _ in document.texts]
            most = max(map(len, own), default=1)
            rows.append([document.render([each[min(rank, len(each) - 1)] for each in own]) for rank in range(most)])
        return rows

    return render() if plain else await asyncio.to_thread(render)


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
                parts.append(CueText(before, parse_html(joined[len(before) :]), len(lines)))

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


@dataclass(frozen=True)
class PlainText:
    """A text that is translated whole; its lines are kept."""

    text: str

    @property
    def texts(self) -> list[str]:
        """The text."""
        return [self.text]

    def render(self, translations: Sequence[tuple[str, Sequence[Link]]]) -> str:
        """Write the translation with the white space around the text."""
        text = self.text
        if not text.strip():
            return text
        return text[: len(text) - len(text.lstrip())] + translations[0][0] + text[len(text.rstrip()) :]


Renderable = PlainText | Subtitles | Document  # what is written again with the translations of its texts
PARSERS: dict[str, Callable[[str], Renderable]] = {
    ".txt": PlainText,
    ".html": parse_html,
    ".htm": parse_html,
    ".srt": parse_srt,
}
ENDINGS = tuple(PARSERS)


def read_file(name: str, content: bytes, most: int) -> tuple[str, Renderable]:
    """Read a file of at most so many characters: its text, and what it is made of, as its name says."""
    ending = f".{name.rpartition('.')[2].lower()}" if "." in name else ""
    if not name or not content:
        raise ProtocolError(400, "Invalid request: empty file")
    if ending not in PARSERS:
        given = show_value(name[-80:])
        raise ProtocolError(400, f"Invalid request: {given} is not supported, expected {', '.join(ENDINGS)}")
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        raise ProtocolError(400, "Invalid request: the file is not text in UTF-8 or UTF-16") from None
    if len(text) > most:
        raise ProtocolError(400, f"Invalid request: file ({len(text)}) exceeds text limit ({most})")
    return text, PARSERS[ending](text)


class FileStore:
    """Files by their names; the oldest goes when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock, self.size = clock, 0
        self.files: OrderedDict[str, tuple[float, str, bytes]] = OrderedDict()

    def add(self, name: str, content: bytes) -> str:
        """Hold a file, and return the name that it is fetched by."""
        key = f"{secrets.token_urlsafe(24)}.{clean_name(name)}"
        self.files[key] = self.clock() + SECONDS, clean_name(name), content
        self.size += len(content)
        self.sweep()
        return key

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Return the name and the content of a file, if it is still here."""
        self.sweep()
        found = self.files.get(key)
        return None if found is None else found[1:]

    def sweep(self) -> None:
        """Let files go that are too old, and the oldest of too many."""
        while self.files:
            end, _, content = next(iter(self.files.values()))
            if end > self.clock() and len(self.files) <= FILES and self.size <= BYTES:
                return
            self.files.popitem(last=False)
            self.size -= len(content)


def clean_name(name: str) -> str:
    """Write a file's name in letters that no header and no address has trouble with."""
    cleaned = NAME.sub("_", name.replace("\\", "/").rpartition("/")[2]).lstrip(".")
    return cleaned[-100:] or "file"
