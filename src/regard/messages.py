"""Values and names in messages: on one line, in printable characters, with the word that was probably meant."""

import datetime
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["likely_meaning", "show_name", "show_value", "suggestion", "visible"]

CUT = 80  # characters of a value in a message
DEEP = 3  # tables and lists within each other that a message shows


def suggestion(name: str, names: Iterable[str]) -> str:
    """Suggest a correction of a wrong word, to append to a message; otherwise list all words, if they are few."""
    names = list(names)
    if guess := likely_meaning(name, names):
        return guess
    return f"; expected one of {', '.join(names)}" if 0 < len(names) <= 30 else ""


def likely_meaning(name: str, names: Sequence[str]) -> str:
    """Suggest a correction of a wrong word, to append to a message; an empty text if there is none."""
    close = difflib.get_close_matches(
        name[:CUT], names, n=1, cutoff=0.65
    )  # a page of text is no word that was misspelt
    return f"; did you mean {close[0]!r}?" if close else ""


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
