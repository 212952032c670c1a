"""A checkpoint's manifest: what a checkpoint says of itself, in one canonical form, with its own checksum and a schema.

A checksum shows that a file is as it was written, not who wrote it: a manifest may come from somebody else, and every
value is checked before it is used.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.config import shown
from regard.errors import CheckpointError
from regard.reading import Unreadable, parse_json, read_bytes

__all__ = ["FILES", "FORMAT", "canonical", "check_key", "count", "number", "read_manifest"]

FORMAT = 1
FILES = ("model.safetensors", "trainer.safetensors")
COUNT = 2**63  # more than anything is counted to


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a checkpoint says of itself, checked."""
    path = folder / "manifest.json"
    try:
        raw = read_bytes(path)
        manifest = parse_json(raw)
        if not isinstance(manifest, dict) or canonical({k: v for k, v in manifest.items() if k != "sha256"}) != raw:
            raise ValueError
        manifest_format = manifest["format"]
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}, expected a checkpoint's manifest") from None
    except Unreadable as error:
        raise CheckpointError(f"{path}: damaged, {error}") from None
    except (ValueError, KeyError, RecursionError):
        raise CheckpointError(f"{path}: damaged, its contents do not match its own checksum") from None
    if manifest_format != FORMAT or not count(manifest_format):
        raise CheckpointError(f"{path}: format {shown(manifest_format)} given, this version of regard reads {FORMAT}")
    check_manifest(manifest, str(path))
    return manifest


def canonical(manifest: Mapping[str, Any]) -> bytes:
    """The one form in which a manifest is written: sorted, with its own checksum."""
    body = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=True)
    checksum = hashlib.sha256(body.encode()).hexdigest()
    return (json.dumps({**manifest, "sha256": checksum}, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def check_manifest(manifest: Mapping[str, Any], where: str) -> None:
    """Refuse a manifest whose values are not what is read from it."""
    check_key(manifest, "step", count, "a number of steps", where)
    check_key(manifest, "files", is_table, "a table of files", where)
    for name in FILES:
        check_key(manifest["files"], name, is_table, "a table with bytes and sha256", where, "files.")
        check_key(manifest["files"][name], "bytes", count, "a number of bytes", where, f"files.{name}.")
        check_key(manifest["files"][name], "sha256", is_text, "a checksum", where, f"files.{name}.")
    if "counters" in manifest:
        check_key(manifest, "counters", is_table, "a table", where)
    if "task" not in manifest:
        return
    check_key(manifest, "task", is_table, "a table", where)
    for key, right, expected in (
        ("model", is_table, "a table of options"),
        ("tokenizer", lambda value: value is None or is_text(value), "a checksum, or null"),
        ("labels", is_labels, "a list of different texts"),
    ):
        if key in manifest["task"]:
            check_key(manifest["task"], key, right, expected, where, "task.")


def check_key(
    table: Mapping[str, Any], key: str, right: Callable[[Any], bool], expected: str, where: str, path: str = ""
) -> Any:
    """The value of a key, or a CheckpointError that says what was expected of it."""
    if key not in table:
        raise CheckpointError(f"{where}: {path}{key} is missing, expected {expected}")
    if not right(table[key]):
        raise CheckpointError(f"{where}: {path}{key} is {shown(table[key])}, expected {expected}")
    return table[key]


def count(value: object) -> bool:
    """Whether it is a whole number that something can be counted to."""
    return type(value) is int and 0 <= value < COUNT


def number(value: object) -> bool:
    """Whether it is a number."""
    return type(value) is float or (type(value) is int and abs(value) < COUNT)


def is_table(value: object) -> bool:
    return isinstance(value, dict)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_labels(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value)) and len(set(value)) == len(value)
