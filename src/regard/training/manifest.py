"""A checkpoint's manifest: its description in one canonical form, with its own checksum and a schema.

A checksum shows that a file is as it was written, not who wrote it: a manifest may come from somebody else, and every
value is checked before it is used.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.config import show_value
from regard.errors import CheckpointError
from regard.io import reading

FORMAT = 1
FILES = ("model.safetensors", "trainer.safetensors")
BASE = "base.safetensors"  # in the run folder: the weights that adapters change
COUNT = 2**63  # more than anything is counted to
NAME = re.compile(r"step-(?P<step>[0-9]{6}|[1-9][0-9]{6,17})|average")  # of a checkpoint's folder


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a checkpoint's manifest, checked; a folder of a step holds that step."""
    path = folder / "manifest.json"
    manifest = read_canonical(path, "a checkpoint's manifest")
    check_manifest(manifest, str(path))
    match = NAME.fullmatch(folder.name.removeprefix(".old-"))
    if match and match["step"] and manifest["step"] != int(match["step"]):
        raise CheckpointError(
            f"{path}: from step {manifest['step']}; the folder {folder.name} was renamed or exchanged; give it its own "
            "name back"
        )
    return manifest


def plain_weights_file(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """Return the file whose tensors have the names and shapes of a plain model's, for a checkpoint of any sort."""
    return folder.parent.parent / BASE if "base" in manifest else folder / FILES[0]


def read_canonical(path: Path, what: str) -> dict[str, Any]:
    """Read and check a file in the form that `canonical` writes."""
    try:
        raw = reading.read_bytes(path)
        table = reading.parse_json(raw)
        if not isinstance(table, dict) or canonical({k: v for k, v in table.items() if k != "sha256"}) != raw:
            raise ValueError
        version = table["format"]
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}, expected {what}") from None
    except reading.Unreadable as error:
        raise CheckpointError(f"{path}: damaged, {error}") from None
    except (ValueError, KeyError, RecursionError):
        raise CheckpointError(f"{path}: damaged, its contents do not match its own checksum") from None
    if version != FORMAT or not is_count(version):
        raise CheckpointError(f"{path}: format {show_value(version)} given, this version of regard reads {FORMAT}")
    return table


def canonical(manifest: Mapping[str, Any]) -> bytes:
    """Write a manifest in its one form: sorted, with its own checksum."""
    body = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=True)
    checksum = hashlib.sha256(body.encode()).hexdigest()
    return (json.dumps({**manifest, "sha256": checksum}, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def check_manifest(manifest: Mapping[str, Any], where: str) -> None:
    """Refuse a manifest with values of the wrong type or range."""
    check_key(manifest, "step", is_count, "a number of steps", where)
    check_key(manifest, "files", is_table, "a table of files", where)
    files = [(manifest["files"], name, "files.") for name in FILES]
    for table, name, path in [*files, (manifest, "base", "")] if "base" in manifest else files:
        check_key(table, name, is_table, "a table with bytes and sha256", where, path)
        check_key(table[name], "bytes", is_count, "a number of bytes", where, f"{path}{name}.")
        check_key(table[name], "sha256", is_text, "a checksum", where, f"{path}{name}.")
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
    """Return the value of a key, or raise a CheckpointError that says what was expected."""
    if key not in table:
        raise CheckpointError(f"{where}: {path}{key} is missing, expected {expected}")
    if not right(table[key]):
        raise CheckpointError(f"{where}: {path}{key} is {show_value(table[key])}, expected {expected}")
    return table[key]


def is_count(value: object) -> bool:
    """Return whether a value is a whole number from 0 on."""
    return type(value) is int and 0 <= value < COUNT


def is_number(value: object) -> bool:
    """Return whether a value is a number."""
    return type(value) is float or (type(value) is int and abs(value) < COUNT)


def is_table(value: object) -> bool:
    return isinstance(value, dict)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_labels(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value)) and len(set(value)) == len(value) > 0
