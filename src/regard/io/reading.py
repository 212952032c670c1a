"""Small files, read within limits: of size before reading, of depth and values before parsing.

What is wrong with a file is one sentence, whatever it is: too large, nested too deep, numbers of thousands of digits,
bytes that are no text, a pipe or a device where a file was expected. The scans are linear, so that a file from somebody
else costs no more than its size.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.io.packs import find_pack

SMALL = 8 * 2**20  # bytes of a manifest, and of what else a run says in JSON
CONFIG = 2**20  # bytes of a configuration
DEPTH = 64  # of brackets in brackets
VALUES = 4_000_000  # of one JSON file
PARTS = 8  # of a dotted key
TABLES = 16  # of brackets in brackets of a configuration
WORD = 1_000  # characters of a number, or of a bare key
DIGITS = 40  # of a whole number in JSON
# What a text may hold any sign in: it is left out before brackets and dots are counted. Nothing here goes back.
TOML_TEXTS = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\Z)|'
    r"'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)|"
    r'"(?:[^"\\\n]|\\.)*+(?:"|$)|'
    r"'[^'\n]*+(?:'|$)|#[^\n]*+",
    re.DOTALL | re.MULTILINE,
)
KEYS = re.compile(r"[\n=,\[\]{}]")  # what a key stands between


class Unreadable(ValueError):
    """A problem with a file, to append to its name in a message."""


Refusal = Callable[[str], RegardError]  # an error class, or what makes one of a sentence


def read_bytes(path: str | Path, most: int = SMALL, *, pipe: bool = False) -> bytes:
    """Read a file of at most `most` bytes; refuse other things, which may have no end, unless `pipe` is set.

    A path may lead into a pack. What the system refuses (OSError) is the caller's to name.
    """
    # A pipe that nobody writes into would be waited for.
    flags = os.O_RDONLY | (0 if pipe else getattr(os, "O_NONBLOCK", 0)) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except PermissionError:
        if os.path.isdir(path):  # which Windows does not open
            raise IsADirectoryError(21, "Is a directory", str(path)) from None
        raise
    except NotADirectoryError:
        place = find_pack(path)
        if place is None:
            raise
        pack, name = place
        if pack.size(name) > most:
            raise Unreadable(f"{pack.size(name):,} bytes given, expected at most {most:,}") from None
        return pack.read(name)
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(21, "Is a directory", str(path))
        if not pipe and not stat.S_ISREG(facts.st_mode):
            raise Unreadable("not a file, but a pipe or a device")
        if facts.st_size > most:
            raise Unreadable(f"{facts.st_size:,} bytes given, expected at most {most:,}")
        content = file.read(most + 1)
    if len(content) > most:
        raise Unreadable(f"more than {most:,} bytes given, which is the limit")
    return content


def parse_json(content: bytes | str) -> Any:
    """Parse JSON whose depth, number of values and numbers are within limits; raise Unreadable otherwise."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    check_depth(b"".join(plain.split(b'"')[::2]).translate(None, delete=NOT_COUNTED))  # of what is outside strings
    try:
        return json.loads(raw.decode("utf-8"), parse_int=whole_number if LONG_NUMBER.search(raw) else None)
    except UnicodeDecodeError as error:
        raise Unreadable(f"not JSON: byte {error.start:,} is not UTF-8") from None
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not JSON: {error}") from None


LONG_NUMBER = re.compile(rb"[0-9]{%d}" % DIGITS)
NOT_COUNTED = bytes(set(range(256)) - set(b"[]{},"))


def check_depth(signs: bytes, deepest: int = DEPTH) -> None:
    """Refuse brackets nested too deep, and too many values."""
    if signs.count(b",") > VALUES:
        raise Unreadable(f"more than {VALUES:,} values given, which is the limit")
    brackets = signs.replace(b",", b"").replace(b"{", b"[").replace(b"}", b"]")
    if len(brackets) > 2 * VALUES:
        raise Unreadable(f"more than {VALUES:,} lists and tables given, which is the limit")
    for _ in range(deepest):  # each round takes the innermost pairs away: no sign is looked at in Python
        rest = brackets.replace(b"[]", b"")
        if not rest:
            return
        if len(rest) == len(brackets) and rest.count(b"[") <= deepest:
            return  # the brackets do not pair: the parser says where, and goes no deeper than that
        brackets = rest
    raise Unreadable(f"brackets nested deeper than {deepest} given, which is the limit")


def whole_number(text: str) -> int:
    """Parse a whole number of at most DIGITS digits."""
    if len(text) > DIGITS:
        raise Unreadable(f"a whole number of {len(text.lstrip('-')):,} digits given, expected at most {DIGITS}")
    return int(text)


def read_json(path: str | Path, refuse: Refusal, most: int = SMALL, *, damaged: str = "") -> Any:
    """Read somebody else's JSON file, or raise the error that `refuse` makes from one sentence with its name.

    `damaged` stands before what is wrong with the content.
    """
    try:
        return parse_json(read_bytes(path, most))
    except OSError as error:
        raise refuse(f"{path}: cannot be read: {error.strerror}") from None
    except Unreadable as error:
        raise refuse(f"{path}: {damaged}{error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML whose depth, keys and numbers are within limits; raise Unreadable otherwise."""
    signs = TOML_TEXTS.sub("", text)
    check_depth(re.sub(r"[^\[\]{}]+", "", signs).encode(), TABLES)
    if max(key.count(".") for key in KEYS.split(signs)) >= PARTS:
        raise Unreadable(f"a key of more than {PARTS} parts given, which is the limit")
    longest = max(map(len, re.findall(r"[\w+\-]+", signs)), default=0)
    if longest > WORD:
        raise Unreadable(f"a number or a key of {longest:,} characters given, expected at most {WORD:,}")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not valid TOML: {error}") from None


def read_facts(package: str, name: str) -> dict[str, Any]:
    """Read a TOML file of facts that stands beside the modules of a package of Regard's own."""
    return tomllib.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def read_toml(path: str | Path, *, pipe: bool = False) -> dict[str, Any]:
    """Read a TOML file; raise Unreadable if it is not valid, OSError if the system cannot read it."""
    try:
        text = read_bytes(path, CONFIG, pipe=pipe).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not valid TOML: byte {error.start} is not UTF-8") from None
    return parse_toml(text)
