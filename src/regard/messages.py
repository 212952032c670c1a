"""Values and names in messages: on one line, in printable characters, with suggestions for misspelt words."""

import datetime
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["did_you_mean", "nearest_word", "no_such", "show_name", "show_value", "suggestion", "visible"]

CUT = 80  # characters of a value in a message
DEEP = 3  # levels of nested tables and lists in a message


def nearest_word(name: object, names: Iterable[str]) -> str | None:
    """Find the name closest to a misspelt one; return None if none is close, or if `name` is not a string."""
    if not isinstance(name, str):
        return None
    close = difflib.get_close_matches(name[:CUT], list(names), n=1, cutoff=0.65)  # a long text is not a misspelt word
    return close[0] if close else None


def did_you_mean(name: object, names: Iterable[str], *, quoted: bool = True) -> str:
    """Format a suggestion for a misspelt name, to append to a message; empty if there is none."""
    near = nearest_word(name, names)
    return "" if near is None else f"; did you mean {repr(near) if quoted else near}?"


def suggestion(name: object, names: Iterable[str]) -> str:
    """Format a suggestion for a misspelt name, to append to a message, or a list of all names if they are few."""
    names = list(names)
    listed = f"; expected one of {', '.join(names)}" if 0 < len(names) <= 30 else ""
    return did_you_mean(name, names) or listed


def no_such(what: str, name: object, names: Iterable[str]) -> str:
    """Format the message that a table has no row of this name, with a suggestion."""
    return f"{show_value(name)} given, no such {what}{suggestion(name, names)}"


def show_value(value: Any) -> str:
    """Format a value roughly as TOML: on one line, in printable characters, truncated if it is long."""
    text = as_toml(value, DEEP)
    return text if len(text) <= CUT else text[: CUT - 3] + "…"


def as_toml(value: Any, deep: int) -> str:
    """Format a value as shortened TOML: only the beginning of a long value, and `deep` levels of a nested one."""
    if value is None:
        return "null"  # as in JSON; TOML has no null
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{visible(value[:CUT])}"'
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to format more than 4,300 digits
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
    """Format a key on one line, truncated if it is long."""
    return visible(name if len(name) <= CUT else f"{name[: CUT - 3]}…")
