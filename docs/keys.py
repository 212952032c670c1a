"""The tables of docs/guide/configuration.md, made from the dataclasses that read a configuration and serve.toml.

`python docs/keys.py` writes them anew between their marks; a test says when that is due.
"""

import dataclasses
import re
import typing
from pathlib import Path
from typing import Any

from regard.config import describe_type, show_value
from regard.data import CorpusSettings, DataSettings, TokenizerSettings
from regard.models import KINDS, Kind
from regard.serving import ServeSettings
from regard.training import TrainingSettings

PAGE = Path(__file__).parent / "guide" / "configuration.md"
TABLES: dict[str, Any] = {
    "data": DataSettings,
    "data.corpora": CorpusSettings,
    "tokenizer": TokenizerSettings,
    **{f"model.{name}": kind for name, kind in KINDS.items()},
    "training": TrainingSettings,
    "serve": ServeSettings,
}
MARKED = re.compile(r"(<!-- keys: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
LIMITS = {"least": "at least", "most": "at most", "above": "more than", "below": "less than"}


def literal(text: str) -> str:
    """Text that Markdown leaves alone; what TOML quotes is code, and what is code stays so."""
    text = re.sub(r'("[^"]*")', r"`\1`", text)
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([_$<>|*\[\]])", r"\\\1", part) for part in parts)


def values(hint: Any, limits: typing.Mapping[str, Any]) -> str:
    """What a key takes."""
    said = [f"{words} {limits[name]:,}" for name, words in LIMITS.items() if name in limits and limits[name] < 2**32]
    words = describe_type(hint)
    if said and " or " in words:  # the limits are the number's
        return re.sub("number", f"number ({', '.join(said)})", words)
    return ", ".join([words, *said])


def default(field: dataclasses.Field) -> str:
    """Its default as TOML would write it; empty where nothing is set."""
    if field.default is None or field.default is dataclasses.MISSING:
        return ""
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{show_value(value)}`"


def rows(cls: type) -> list[list[str]]:
    """Key, values, default and meaning of every field."""
    hints = typing.get_type_hints(cls)
    return [
        [f"`{f.name}`", literal(values(hints[f.name], f.metadata)), default(f), literal(f.metadata["help"])]
        for f in dataclasses.fields(cls)
    ]


def markdown(head: list[str], body: list[list[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def presets(kind: Kind) -> str:
    """What each preset sets."""
    keys = list(dict.fromkeys(key for preset in kind.presets.values() for key in preset))
    body = [
        [f"`{name}`", *(f"`{show_value(preset[key])}`" if key in preset else "" for key in keys)]
        for name, preset in kind.presets.items()
    ]
    return markdown(["preset", *(f"`{key}`" for key in keys)], body)


def table(name: str) -> str:
    """The table of that name."""
    made = TABLES[name]
    head = ["key", "takes", "default", "what it is"]
    if isinstance(made, Kind):
        return f"{markdown(head, rows(made.config))}\n{presets(made)}"
    return markdown(head, rows(made))


def written(text: str) -> str:
    """The page with every table as it is today."""
    return MARKED.sub(lambda found: f"{found[1]}\n{table(found[2])}\n{found[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
