"""Encodings of text files other than UTF-8: decoded as they come, and guessed where nobody said which.

A guess looks at byte-order marks, at zero bytes, at which encodings the bytes are valid in, and at whether what they
spell are letters that are common in a language that is written so. It is told to a person, and never acted upon.
"""

import codecs
import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from regard.errors import DataError
from regard.io.reading import read_facts
from regard.messages import suggestion

# Codecs of Python that are no encodings of files.
ODD = {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem", "palmos"}
# Names of encodings, and the frequent letters that a single-byte encoding is chosen by, of the languages written in it.
TABLES = read_facts("regard.io", "encodings.toml")
HIGH = 0.4  # share of bytes above ASCII from which letters are those of another script
LIKELY = 0.8  # share of them that have to be frequent letters
MARKS = {
    "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}


class EncodedFile(str):
    """The name of a file with the encoding of its text."""

    __slots__ = ("encoding",)
    encoding: str

    def __new__(cls, path: str, encoding: str) -> "EncodedFile":
        """Attach the encoding to the name."""
        file = super().__new__(cls, path)
        file.encoding = encoding
        return file


class Guess(NamedTuple):
    """An encoding that a text is likely in: its name for `--encoding`, and the one that people know."""

    encoding: str
    name: str


def encoding_of(path: object) -> str | None:
    """Return the encoding that came with the name of a file; None for UTF-8."""
    return path.encoding if isinstance(path, EncodedFile) else None


def check_encoding(name: str) -> str:
    """Return what is wrong with the name of an encoding; nothing where it is one."""
    try:
        found = codecs.lookup(name)
        known = found._is_text_encoding and found.name.replace("-", "_") not in ODD
    except (LookupError, ValueError):
        known = False
    return "" if known else f"no such encoding{suggestion(name, TABLES['names'].split())}"


def transcode(blocks: Iterable[bytes], name: str, encoding: str | None) -> Iterator[bytes]:
    """Yield the same text in UTF-8; a DataError names the line with a byte that is not of the encoding."""
    if encoding is None or codecs.lookup(encoding).name == "utf-8":
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    try:
        for block in blocks:
            text = decoder.decode(block)
            line += text.count("\n")
            yield text.encode("utf-8", "surrogatepass")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        before = error.object[:start] if isinstance(error, UnicodeDecodeError) else b""
        line += before.decode(encoding, "ignore").count("\n")
        byte = f"byte 0x{error.object[start]:02x}" if isinstance(error, UnicodeDecodeError) and error.object else "text"
        raise DataError(f"{name}, line {line:,}: {byte} is not valid in {encoding}; give another --encoding") from None


def hint(raw: bytes) -> str:
    """Return what to type to read such bytes; empty where no encoding is likely."""
    guess = guess_encoding(raw)
    return "" if guess is None else f", or add --encoding {guess.encoding} (it looks like {guess.name})"


def guess_encoding(raw: bytes) -> Guess | None:
    """Guess the encoding of a text that is not UTF-8; None where nothing is likely."""
    for name, marks in MARKS.items():
        if raw.startswith(marks):
            return Guess(name.lower(), name)
    if b"\0" in raw:  # in UTF-16 those of Latin letters and spaces are every second one
        even, odd = raw[::2].count(0), raw[1::2].count(0)
        if max(even, odd) < max(2, 0.02 * len(raw)) or min(even, odd) > 0.05 * max(even, odd):
            return None
        guess = Guess("utf-16-le" if odd > even else "utf-16-be", "UTF-16 without a mark")
        text = raw[: len(raw) // 2 * 2].decode(guess.encoding, "replace")
        return guess if all(each.isprintable() or each in "\t\r\n\ufffd" for each in text) else None
    high = sum(byte > 127 for byte in raw)
    if not high:
        return None
    return guess_east_asian(raw) or guess_single(raw, high)


def guess_east_asian(raw: bytes) -> Guess | None:
    """Guess an encoding of two bytes and more: valid, and its characters are those that texts have."""
    shares = {}
    for encoding in TABLES["east_asian"]:
        with contextlib.suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder(encoding)().decode(raw)  # it may end within a character
            # Two bytes of a Western text that make one character stand between Latin letters.
            inside = sum(a.isascii() and a.isalpha() for a, b in itertools.pairwise(text) if ord(b) > 127)
            letters = [each for each in text if ord(each) > 127]
            shares[encoding] = share_of(letters, encoding) if inside <= 0.3 * len(letters) else 0.0
    best = max(shares, key=shares.__getitem__, default="")
    return Guess(best, TABLES["east_asian"][best]) if shares.get(best, 0.0) >= LIKELY else None


def share_of(letters: list[str], encoding: str) -> float:
    """Return the share of characters that are frequent in the language of an encoding."""
    kana = sum("\u3041" <= each <= "\u30ff" for each in letters)
    frequent = sum(each in "、。「」！？，：；（）・ー…“”《》" for each in letters)
    if encoding != "euc_kr" and (kana >= 0.2 * len(letters)) != (encoding in ("shift_jis", "euc_jp")):
        return 0.0
    if encoding in ("shift_jis", "euc_jp"):
        frequent += kana + sum("\u4e00" <= each <= "\u9fff" for each in letters)
    elif encoding == "euc_kr":
        frequent += sum("\uac00" <= each <= "\ud7a3" for each in letters)
    else:  # the first plane of GB 2312 and of Big5 has the frequent characters
        code, low, high = ("gb2312", b"\xb0", b"\xd7") if encoding == "gb18030" else ("big5", b"\xa4", b"\xc6")
        frequent += sum(low <= each.encode(code, "ignore")[:1] <= high for each in letters)
    return frequent / max(1, len(letters))


def guess_single(raw: bytes, high: int) -> Guess | None:
    """Guess an encoding of one byte per character by its frequent letters, in lower case where there is a case."""
    letters = high + sum(chr(byte).isalpha() for byte in raw if byte < 128)
    if high >= HIGH * letters and high >= 4:
        scores = {encoding: share_in(raw, encoding, often) for encoding, (_, often) in TABLES["single"].items()}
        # Of two that are equal Hebrew, unless there are bytes that are no letters of it.
        strange = any(byte > 0xFA or 0xC0 <= byte <= 0xDF for byte in raw)
        scores["cp1255"] = 0.0 if strange else scores["cp1255"] + 0.01
        best = max(scores, key=scores.__getitem__)
        if scores[best] >= LIKELY:
            return Guess(best, TABLES["single"][best][0])
    western = share_in(raw, "cp1252", TABLES["western"])
    central = share_in(raw, "cp1250", TABLES["central"])
    if max(western, central) < LIKELY:
        return None
    return Guess("cp1250", "Windows-1250") if central > western else Guess("cp1252", "Windows-1252 (Latin-1)")


def share_in(raw: bytes, encoding: str, frequent: str) -> float:
    """Return the share of the characters above ASCII that are frequent in an encoding."""
    others = [each for each in raw.decode(encoding, "replace") if ord(each) > 127]
    return sum(each in frequent for each in others) / len(others)
