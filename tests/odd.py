"""Invalid values of keys, and everything that has keys."""

import dataclasses
import datetime
from typing import Any

from regard.data import CorpusSettings, DataSettings, TokenizerSettings
from regard.models import KINDS
from regard.training import TrainingSettings

NEST: Any = []
for _ in range(500):
    NEST = [NEST]

VALUES: dict[str, Any] = {
    "400 digits": 10**399 + 7,
    "5,000 digits": 10**4999 + 7,
    "minus 5,000 digits": -(10**4999),
    "2**63": 2**63,
    "2**64": 2**64,
    "-2**63": -(2**63),
    "10**12": 10**12,
    "2**31": 2**31,
    "0": 0,
    "-1": -1,
    "0.0": 0.0,
    "-0.0": -0.0,
    "1.0": 1.0,
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "1e308": 1e308,
    "-1e308": -1e308,
    "1e-308": 1e-308,
    "5e-324": 5e-324,
    "true": True,
    "false": False,
    "nothing": "",
    "a space": " ",
    "lines": "first\nsecond\r\nthird",
    "NUL": "a\0b",
    "ESC": "\x1b[2J\x1b[31mred",
    "surrogate": "a\ud800b",
    "separators": "a\u2028b\u202ec\x85d",
    "long text": "x" * 10_000,
    "long digits": "9" * 5_000,
    "format": "%s {0} {key!r} %n",
    "path": "/dev/null/../" + "a/" * 600,
    "list": [],
    "list of lists": [[]],
    "deep list": NEST,
    "mixed list": [1, "a", None, 10**5000],
    "table": {},
    "table of tables": {"a": {"b": {"c": 10**5000}}},
    "odd keys": {"a\nb": 1, "": 2},
    "date": datetime.date(1979, 5, 27),
    "time": datetime.time(7, 32),
    "moment": datetime.datetime(1979, 5, 27, 7, 32, tzinfo=datetime.UTC),
}
NO_TOML = {"mixed list"}  # only Python can give them

SECTIONS: dict[str, type] = {
    "data": DataSettings,
    "data.corpora[0]": CorpusSettings,
    "data.valid[0]": CorpusSettings,
    "tokenizer": TokenizerSettings,
    **{f"model ({name})": kind.config for name, kind in KINDS.items()},
    "training": TrainingSettings,
}


def base(section: str) -> dict[str, Any]:
    """Return a valid configuration with this section."""
    if section.startswith("model ("):
        kind = KINDS[section[7:-1]]
        return {"task": kind.tasks[0], "model": {"kind": kind.name}}
    corpus = {"source": "a.txt", "target": "b.txt"}
    if section == "data.corpora[0]":
        return {"data": {"corpora": [corpus]}}
    if section == "data.valid[0]":
        return {"data": {**corpus, "valid": [dict(corpus)]}}
    return {}


def with_value(section: str, key: str, value: Any) -> tuple[dict[str, Any], str]:
    """Return that configuration with one key set, and the key's path as messages write it."""
    table = base(section)
    name = section.partition(" ")[0]
    inside: Any = table
    for part in name.removesuffix("[0]").split("."):
        inside = inside.setdefault(part, {})
    if name.endswith("[0]"):
        inside = inside[0]
    inside[key] = value
    return table, f"{name}.{key}"


def all_keys() -> list[tuple[str, dataclasses.Field]]:
    """Return every key of every section."""
    return [(section, field) for section, cls in SECTIONS.items() for field in dataclasses.fields(cls)]
