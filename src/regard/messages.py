"""Values and names in messages: on one line, in printable characters, with the word that was probably meant."""

import datetime
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["did_you_mean", "nearest_word", "no_such", "show_name", "show_value", "suggestion", "visible"]

CUT = 80  # characters of a value in a message
DEEP = 3  # tables and lists within each other that a message shows


def nearest_word(name: object, names: Iterable[str]) -> str | None:
    """Find the word that was meant by a wrong one; None where none is near, or what is given is no word."""
    if not isinstance(name, str):
        return None
    close = difflib.get_close_matches(name[:CUT], list(names), n=1, cutoff=0.65)  # a page of text is no misspelt word
    return close[0] if close else None


def did_you_mean(name: object, names: Iterable[str], *, quoted: bool = True) -> str:
    """Suggest a correction of a wrong word, to append to a message; an empty text if there is none."""
    near = nearest_word(name, names)
    return "" if near is None else f"; did you mean {repr(near) if quoted else near}?"


def suggestion(name: object, names: Iterable[str]) -> str:
    """Suggest a correction of a wrong word, to append to a message; otherwise list all words, if they are few."""
    names = list(names)
    listed = f"; expected one of {', '.join(names)}" if 0 < len(names) <= 30 else ""
    return did_you_mean(name, names) or listed


def no_such(what: str, name: object, names: Iterable[str]) -> str:
    """Say that there is no row of this name in a table, and suggest one."""
    return f"{show_value(name)} given, no such {what}{suggestion(name, names)}"


def show_value(value: Any) -> str:
    """Show a value roughly as TOML writes it: on one line, in printable characters, truncated if it is long."""
    text = as_toml(value, DEEP)
    return text if len(text) <= CUT else text[: CUT - 3] + "…"


def as_toml(value: Any, deep: int) -> str:
    """Write a value as TOML in short: only the beginning of a long value, only the outer level of a nested one."""
    if value is None:
        return "null"  # as JSON has it; TOML has none
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{visible(value[:CUT])}"'
    if isinstance(value, int) and value.bit_length() > 256:  # Python itself writes none of more than 4,300 digits
        return f"a number of {int(value.bit_length() * math.log10(2)) + 1:,} digits"
    if isinstance(value, list | tuple):
        return f"[{', '.join(as_toml(each, deep - 1) for each in value[:CUT])}]" if deep or not value else "[…]"
    if isinstance(value, Mapping):
        pairs = [(str(key)[:CUT], each) for key, each in list(value.items())[:CUT]]
        inside = ", ".join(f"{visible(key)} = {as_toml(each, deep - 1)}" for key, each in pairs) if deep else "…"
        return f"{{{inside if value else ''}}}"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return visible(repr(value))


def visible(text: str) -> str:
    """Put a text on one line and escape unprintable characters: a message must not move a terminal's cursor."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def show_name(name: str) -> str:
    """Show a key on one line, truncated if it is long."""
    return visible(name if len(name) <= CUT else f"{name[: CUT - 3]}…")
