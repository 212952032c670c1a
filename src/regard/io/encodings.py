"""Text encodings other than UTF-8: decode streams, and guess the encoding of a file that is not UTF-8.

A guess uses byte-order marks, zero bytes, the encodings in which the bytes are valid, and how many of the decoded
characters are frequent letters of a language written in that encoding. Messages suggest it; no code acts on it.
"""

import codecs
import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from regard.errors import DataError
from regard.io.reading import read_facts
from regard.messages import suggestion

# Python codecs that no text file uses.
ODD = {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem", "palmos"}
# Encoding names and, for each single-byte encoding, the frequent letters of its languages, by which it is guessed.
TABLES = read_facts("regard.io", "encodings.toml")
HIGH = 0.4  # minimum share of non-ASCII bytes among letters for a non-Latin script
LIKELY = 0.8  # minimum share of frequent letters among non-ASCII characters for a guess
MARKS = {
    "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}


class EncodedFile(str):
    """A file name that carries the encoding of the file's text."""

    __slots__ = ("encoding",)
    encoding: str

    def __new__(cls, path: str, encoding: str) -> "EncodedFile":
        """Create the name and attach the encoding."""
        file = super().__new__(cls, path)
        file.encoding = encoding
        return file


class Guess(NamedTuple):
    """A likely encoding of a text: its name for `--encoding`, and its common name."""

    encoding: str
    name: str


def encoding_of(path: object) -> str | None:
    """Return the encoding attached to a file name; None for UTF-8."""
    return path.encoding if isinstance(path, EncodedFile) else None


def check_encoding(name: str) -> str:
    """Describe what is wrong with an encoding name; return an empty string if it is valid."""
    try:
        found = codecs.lookup(name)
        known = found._is_text_encoding and found.name.replace("-", "_") not in ODD
    except (LookupError, ValueError):
        known = False
    return "" if known else f"no such encoding{suggestion(name, TABLES['names'].split())}"


def transcode(blocks: Iterable[bytes], name: str, encoding: str | None) -> Iterator[bytes]:
    """Convert blocks of bytes to UTF-8; raise a DataError that names the line of an invalid byte."""
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
    """Suggest an `--encoding` for these bytes, as the end of a message; empty if no encoding is likely."""
    guess = guess_encoding(raw)
    return "" if guess is None else f", or add --encoding {guess.encoding} (it looks like {guess.name})"


def guess_encoding(raw: bytes) -> Guess | None:
    """Guess the encoding of a text that is not UTF-8; return None if no encoding is likely."""
    for name, marks in MARKS.items():
        if raw.startswith(marks):
            return Guess(name.lower(), name)
    if b"\0" in raw:  # in UTF-16 every second byte of Latin letters and spaces is zero
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
    """Guess an East Asian multi-byte encoding: the bytes are valid in it and spell frequent characters."""
    shares = {}
    for encoding in TABLES["east_asian"]:
        with contextlib.suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder(encoding)().decode(raw)  # the sample may end inside a character
            # Two bytes of a Western text may decode to one East Asian character, which then follows a Latin letter.
            inside = sum(a.isascii() and a.isalpha() for a, b in itertools.pairwise(text) if ord(b) > 127)
            letters = [each for each in text if ord(each) > 127]
            shares[encoding] = share_of(letters, encoding) if inside <= 0.3 * len(letters) else 0.0
    best = max(shares, key=shares.__getitem__, default="")
    return Guess(best, TABLES["east_asian"][best]) if shares.get(best, 0.0) >= LIKELY else None


def share_of(letters: list[str], encoding: str) -> float:
    """Return the share of characters that are frequent in the language of an East Asian encoding."""
    kana = sum("\u3041" <= each <= "\u30ff" for each in letters)
    frequent = sum(each in "、。「」！？，：；（）・ー…“”《》" for each in letters)
    if encoding != "euc_kr" and (kana >= 0.2 * len(letters)) != (encoding in ("shift_jis", "euc_jp")):
        return 0.0
    if encoding in ("shift_jis", "euc_jp"):
        frequent += kana + sum("\u4e00" <= each <= "\u9fff" for each in letters)
    elif encoding == "euc_kr":
        frequent += sum("\uac00" <= each <= "\ud7a3" for each in letters)
    else:  # the first levels of GB 2312 and Big5 hold the frequent characters
        code, low, high = ("gb2312", b"\xb0", b"\xd7") if encoding == "gb18030" else ("big5", b"\xa4", b"\xc6")
        frequent += sum(low <= each.encode(code, "ignore")[:1] <= high for each in letters)
    return frequent / max(1, len(letters))


def guess_single(raw: bytes, high: int) -> Guess | None:
    """Guess a single-byte encoding by the frequent letters of its languages (lower case if the script has case)."""
    letters = high + sum(chr(byte).isalpha() for byte in raw if byte < 128)
    if high >= HIGH * letters and high >= 4:
        scores = {encoding: share_in(raw, encoding, often) for encoding, (_, often) in TABLES["single"].items()}
        # Prefer Hebrew in a tie, unless some bytes are not Hebrew letters.
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
    """Return the share of the non-ASCII characters that are among the `frequent` letters."""
    others = [each for each in raw.decode(encoding, "replace") if ord(each) > 127]
    return sum(each in frequent for each in others) / len(others)
