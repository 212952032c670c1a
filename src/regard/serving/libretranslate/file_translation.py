"""Files that are translated as they are: plain text, HTML and subtitles, told apart by the endings of their names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.config import show_value
from regard.decoding import Options
from regard.serving.libretranslate.errors import ProtocolError
from regard.serving.libretranslate.language_pairs import LanguagePair
from regard.serving.libretranslate.markup import parse_html
from regard.serving.libretranslate.subtitles import parse_srt
from regard.serving.libretranslate.tag_placement import Link
from regard.serving.libretranslate.text_translation import Renderable, keep_space, render_all
from regard.serving.service import Service


@dataclass(frozen=True)
class PlainText:
    """A text that is translated whole; its lines are kept."""

    text: str

    @property
    def texts(self) -> list[str]:
        """The text."""
        return [self.text]

    def render(self, translations: Sequence[tuple[str, Sequence[Link]]]) -> str:
        """Write the translation with the empty lines around the text."""
        return keep_space(self.text, translations[0][0])


PARSERS: dict[str, Callable[[str], Any]] = {
    ".txt": PlainText,
    ".html": parse_html,
    ".htm": parse_html,
    ".srt": parse_srt,
}
ENDINGS = tuple(PARSERS)


@dataclass(frozen=True)
class TranslatableFile:
    """A file that was read: what it is made of, and its text."""

    original: str
    document: Renderable

    @property
    def texts(self) -> list[str]:
        """The texts to translate."""
        return self.document.texts

    async def translate(self, service: Service, pair: LanguagePair, options: Options) -> str:
        """Translate the file."""
        ((text, *_),) = await render_all(service, pair, [self.document], options)
        return text


def read_file(name: str, content: bytes, most: int) -> TranslatableFile:
    """Read a file of at most so many characters; its name says what it is."""
    ending = f".{name.rpartition('.')[2].lower()}" if "." in name else ""
    if not name or not content:
        raise ProtocolError(400, "Invalid request: empty file")
    if ending not in PARSERS:
        given = show_value(name[-80:])
        raise ProtocolError(400, f"Invalid request: {given} is not supported, expected {', '.join(ENDINGS)}")
    text = decode(content)
    if len(text) > most:
        raise ProtocolError(400, f"Invalid request: file ({len(text)}) exceeds text limit ({most})")
    return TranslatableFile(text, PARSERS[ending](text))


def decode(content: bytes) -> str:
    """Decode a file: UTF-8, or UTF-16 with a mark that says so."""
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise ProtocolError(400, "Invalid request: the file is not text in UTF-8 or UTF-16") from None
