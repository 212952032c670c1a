"""Read small files within limits: check the size before reading, and nesting depth and value count before parsing.

Each problem becomes a one-sentence error: a file too large or nested too deep, a number with thousands of digits, bytes
that are not text, a pipe or a device in place of a file. The scans take linear time, so an untrusted file costs no more
than its size.
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

SMALL = 8 * 2**20  # maximum bytes of a manifest or another JSON file of a run
CONFIG = 2**20  # maximum bytes of a configuration
DEPTH = 64  # maximum nesting depth of brackets in JSON
VALUES = 4_000_000  # maximum number of values in a JSON file
PARTS = 8  # maximum number of parts of a dotted key
TABLES = 16  # maximum nesting depth of brackets in a configuration
WORD = 1_000  # maximum number of characters of a number or a bare key
DIGITS = 40  # maximum number of digits of an integer in JSON
# Match TOML strings and comments, which are removed before brackets and dots are counted. The pattern never backtracks.
TOML_TEXTS = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\Z)|'
    r"'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)|"
    r'"(?:[^"\\\n]|\\.)*+(?:"|$)|'
    r"'[^'\n]*+(?:'|$)|#[^\n]*+",
    re.DOTALL | re.MULTILINE,
)
KEYS = re.compile(r"[\n=,\[\]{}]")  # the characters that delimit keys


class Unreadable(ValueError):
    """A problem with a file; its text follows the file's name in a message."""


Refusal = Callable[[str], RegardError]  # an error class, or a function that makes an error from a sentence


def read_bytes(path: str | Path, most: int = SMALL, *, pipe: bool = False) -> bytes:
    """Read a file of at most `most` bytes; refuse pipes and devices, which may never end, unless `pipe` is set.

    A path may lead into a pack. The caller handles OSErrors.
    """
    # Without O_NONBLOCK, opening a pipe without a writer blocks.
    flags = os.O_RDONLY | (0 if pipe else getattr(os, "O_NONBLOCK", 0)) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except PermissionError:
        if os.path.isdir(path):  # Windows cannot open folders
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
    """Parse JSON; raise Unreadable if it is invalid, nested too deep, or has too many values or too long integers."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    check_depth(b"".join(plain.split(b'"')[::2]).translate(None, delete=NOT_COUNTED))  # only outside strings
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
    """Raise Unreadable if brackets are nested deeper than `deepest`, or if there are too many values."""
    if signs.count(b",") > VALUES:
        raise Unreadable(f"more than {VALUES:,} values given, which is the limit")
    brackets = signs.replace(b",", b"").replace(b"{", b"[").replace(b"}", b"]")
    if len(brackets) > 2 * VALUES:
        raise Unreadable(f"more than {VALUES:,} lists and tables given, which is the limit")
    for _ in range(deepest):  # each round removes the innermost pairs, without a Python loop over the bytes
        rest = brackets.replace(b"[]", b"")
        if not rest:
            return
        if len(rest) == len(brackets) and rest.count(b"[") <= deepest:
            return  # the brackets are unbalanced: the parser reports where, and recurses no deeper than `deepest`
        brackets = rest
    raise Unreadable(f"brackets nested deeper than {deepest} given, which is the limit")


def whole_number(text: str) -> int:
    """Parse an integer of at most DIGITS digits."""
    if len(text) > DIGITS:
        raise Unreadable(f"a whole number of {len(text.lstrip('-')):,} digits given, expected at most {DIGITS}")
    return int(text)


def read_json(path: str | Path, refuse: Refusal, most: int = SMALL, *, damaged: str = "") -> Any:
    """Read an untrusted JSON file; on failure raise `refuse(message)`, whose message names the file.

    `damaged` precedes the description of a problem with the content.
    """
    try:
        return parse_json(read_bytes(path, most))
    except OSError as error:
        raise refuse(f"{path}: cannot be read: {error.strerror}") from None
    except Unreadable as error:
        raise refuse(f"{path}: {damaged}{error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise Unreadable if it is invalid, nested too deep, or has too long keys or numbers."""
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
    """Read a TOML data file that ships with one of Regard's own packages."""
    return tomllib.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def read_toml(path: str | Path, *, pipe: bool = False) -> dict[str, Any]:
    """Read a TOML file; raise Unreadable if it is invalid, OSError if the system cannot read it."""
    try:
        text = read_bytes(path, CONFIG, pipe=pipe).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not valid TOML: byte {error.start} is not UTF-8") from None
    return parse_toml(text)
