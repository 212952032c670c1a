"""The table of formats from which models are read and to which they are written. Imports no torch.

    regard.register(format=Format("mine", "what it is", reader="my_package.read", recognise=is_mine))    # in a plugin

A reader turns a folder into an `Imported`; a writer fills an empty folder from an opened run. Both are given by dotted
names, as a kind gives its model, and imported on first use.

A folder is written under a temporary name, synced, and renamed. The manifest of an exported folder names the run, the
format and the verification, and has a hash of every file.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import __version__
from regard.config import show_value
from regard.errors import CommandError, DataError, RegardError
from regard.io import disk, packs, reading
from regard.messages import no_such
from regard.plugins import register, resolve, table

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data import Tokenizers

MAX_BYTES = 64 * 2**20  # of a JSON file that is read whole
MANIFEST = "manifest.json"
KEYS = {"format": str, "regard": str, "run": dict, "facts": dict, "files": dict}
DOWNLOAD = "hf download {} --local-dir {}"
HUB = re.compile(r"[\w.-]+/[\w.-]+")  # a model's name on a download hub


@dataclass(frozen=True)
class Imported:
    """The result of a reader: a model in Regard's own terms."""

    table: Mapping[str, Any]  # the configuration, as in a TOML file
    tokenizers: "Tokenizers"
    weights: Mapping[str, "Tensor"]  # by name in the model's state dict
    files: tuple[Path, ...]  # that were read
    notes: tuple[str, ...] = ()  # sentences for the user
    values: Mapping[str, Any] = field(default_factory=dict)  # for the manifest, needed by a later export


@dataclass(frozen=True)
class Format:
    """A row of the table: the dotted names of `reader(folder)` and of `writer(run, folder, **options)`."""

    name: str
    what: str  # one line of description
    reader: str | None = None
    writer: str | None = None
    recognise: Callable[[Path], bool] = field(default=lambda folder: False)  # quick, without torch
    options: tuple[str, ...] = ()  # of its writer
    opener: str | None = None  # `open(folder, run)`: the export's engine for verification

    def read(self, folder: Path) -> Imported:
        """Read a folder of this format."""
        if self.reader is None:
            raise CommandError(f"--format: {self.name} given, which is only written; expected {names('reader')}")
        imported: Imported = resolve(self.reader)(folder)
        return imported

    def write(self, run: Any, folder: Path, **options: Any) -> dict[str, Any]:
        """Write an opened run into an empty folder; return its facts for the manifest."""
        if self.writer is None:
            raise CommandError(f"--to: {self.name} given, which is only read; expected {names('writer')}")
        for name in options:
            if name not in self.options:
                raise CommandError(f"--{name.replace('_', '-')}: given, but {self.name} has no such option")
        facts: dict[str, Any] | None = resolve(self.writer)(run, folder, **options)
        return facts or {}


def names(side: str) -> str:
    """List the formats that have a reader, or a writer."""
    return ", ".join(row.name for row in FORMATS.values() if getattr(row, side) is not None)


def find_format(name: str, flag: str) -> Format:
    """Return the format of a name that was given with a flag."""
    if name not in FORMATS:
        raise CommandError(f"{flag}: {no_such('format', name, FORMATS)}")
    return FORMATS[name]


def recognise(folder: Path) -> Format:
    """Return the only format that recognises a folder."""
    rows = [row for row in FORMATS.values() if row.reader is not None and row.recognise(folder)]
    if not rows:
        raise DataError(f"{folder}: {describe_folder(folder)}; expected {EXPECTED}, of {names('reader')}")
    if len(rows) > 1:
        both = " and ".join(row.name for row in rows)
        raise DataError(f"{folder}: recognised as {both}; say which with --format")
    return rows[0]


def describe_folder(folder: Path) -> str:
    """Describe a folder that no format recognises, as far as its files tell."""
    files = sorted(path.name for path in folder.iterdir())
    if not files:
        return "an empty folder"
    name = model_type(folder)
    if name is not None:
        return f"its config.json has the model_type {show_value(name)}, which is not read"
    if "config.toml" in files:
        return "a run of Regard already, which every command takes as it is"
    if "config.json" in files:
        return "its config.json names no model_type"
    for end, what in OTHERS.items():
        if any(file.endswith(end) for file in files):
            return what
    return f"no config.json and no model.bin in it, but {', '.join(files[:3])}{' …' if len(files) > 3 else ''}"


def model_type(folder: Path) -> str | None:
    """Return the model_type in the config.json of a folder made by Transformers; None without one."""
    if not (folder / "config.json").is_file():
        return None
    name = read_table(folder / "config.json").get("model_type")
    return name if isinstance(name, str) else None


def read_table(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """Read a JSON object from a file, or raise a DataError that names it; an optional file may be missing."""
    if optional and not path.exists():
        return {}
    content = reading.read_json(path, DataError, MAX_BYTES, damaged="cannot be read: ")
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a JSON object")
    return content


OTHERS = {  # descriptions of files by the ends of their names, without a config.json
    ".npz": "a model as Marian itself stores it (.npz); convert it with Transformers or CTranslate2 first",
    ".onnx": "a model in ONNX, which is not read",
    ".gguf": "a model in GGUF, which is not read",
    ".h5": "a model of TensorFlow, which is not read",
    ".tflite": "a model of TensorFlow, which is not read",
    ".pt": "weights of PyTorch without a config.json, which do not say what model they are of",
    ".bin": "weights without a config.json, which do not say what model they are of",
    ".safetensors": "weights without a config.json, which do not say what model they are of",
}
EXPECTED = "a folder with the weights, the vocabulary and the config.json of a model"
FORMATS: MutableMapping[str, Format] = table("format")
for row in (
    Format(
        "marian",
        "OPUS-MT models, and others of Marian, as Transformers stores them",
        reader="regard.interop.marian.read_marian",
        writer="regard.interop.marian.write_marian",
        opener="regard.interop.marian.open_marian",
        recognise=lambda folder: model_type(folder) == "marian",
    ),
    Format(
        "m2m100",
        "M2M-100 and NLLB, as Transformers stores them",
        reader="regard.interop.m2m100.read_m2m100",
        writer="regard.interop.m2m100.write_m2m100",
        opener="regard.interop.m2m100.open_m2m100",
        recognise=lambda folder: model_type(folder) == "m2m_100",
    ),
    Format(
        "ctranslate2",
        "CTranslate2, which runs Transformers fast on CPUs and GPUs",
        reader="regard.interop.ctranslate2_import.read_ctranslate2",
        writer="regard.interop.ctranslate2.write_ctranslate2",
        options=("quantize",),
        opener="regard.interop.exported.open_ctranslate2",
        recognise=lambda folder: (folder / "model.bin").is_file() and model_type(folder) is None,
    ),
):
    register(format=row)


# ---- folders


def is_export(folder: str | Path) -> bool:
    """Return whether a folder looks like an exported one: it has a manifest, and is no run."""
    return (Path(folder) / MANIFEST).is_file() and not (Path(folder) / "config.toml").is_file()


def describe_run(run: Path, checkpoint: Path, step: int, out: Path) -> dict[str, Any]:
    """Describe the run of an export: its checkpoint's name and hash, and its path relative to the export's parent."""
    try:
        way = Path(os.path.relpath(run, Path(os.path.abspath(out)).parent)).as_posix()
    except ValueError:  # on another drive
        way = run.name
    return {"folder": way, "checkpoint": checkpoint.name, "step": step, **hash_file(checkpoint / "manifest.json")}


def write_manifest(
    folder: Path, *, format: str, run: Mapping[str, Any], facts: Mapping[str, Any], verification: Any
) -> None:
    """Write the manifest of a complete folder; `facts` are those of its format."""
    files = {
        path.relative_to(folder).as_posix(): hash_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / MANIFEST
    }
    content = {
        "format": format,
        "regard": __version__,
        "run": dict(run),
        "facts": dict(facts),
        "verification": verification,
        "files": files,
    }
    disk.write_whole(folder / MANIFEST, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_manifest(folder: str | Path, format: str | None = None) -> dict[str, Any]:
    """Read the manifest of an exported folder and check all its files; raise a DataError for a wrong one."""
    folder = Path(folder)
    if not is_export(folder):
        raise DataError(f"{folder}: not an exported folder, it has no {MANIFEST}; regard export makes one")
    content = reading.read_json(folder / MANIFEST, DataError)
    for key, kind in KEYS.items():
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise DataError(f"{folder / MANIFEST}: no {key} in it; not the manifest of an exported folder")
    if format is not None and content["format"] != format:
        raise DataError(f"{folder}: exported to {content['format']}, expected {format}")
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
    for name in sorted(names | content["files"].keys()):
        if name not in names:
            raise DataError(f"{folder / name}: missing; export the run again")
        if content["files"].get(name) != hash_file(folder / name):
            raise DataError(f"{folder / name}: changed since it was exported; export the run again")
    return content


def hash_file(path: Path) -> dict[str, Any]:
    """Return the size and the SHA-256 of a file, in a folder or in a pack."""
    try:
        with packs.open_binary(path) as (file, size):
            return {"bytes": size, "sha256": packs.hash_start(file, size)}
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None


def check_model_folder(folder: Path) -> None:
    """Refuse a path that is no folder; for a name on a hub, show the command that downloads it."""
    if folder.is_dir():
        return
    if os.path.lexists(folder):
        raise CommandError(f"{folder}: a file, expected a folder with a model in it")
    name = folder.as_posix()
    if HUB.fullmatch(name):
        command = DOWNLOAD.format(name, folder.name)
        raise CommandError(f"{name}: no such folder, and nothing is downloaded; run {command} and import that folder")
    raise CommandError(f"{folder}: no such folder, expected one with a model in it")


def check_new(out: Path) -> None:
    """Refuse a path that already exists."""
    if os.path.lexists(out):
        raise CommandError(f"--out: {out} already exists; give another name, or remove it")


@contextlib.contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `out`; rename it to `out` at the end of the block, or remove it on an error.

    Remove what killed processes left behind; a lock protects the folders of running ones.
    """
    check_new(out)
    out = Path(os.path.abspath(out))  # a path such as `runs/..` must be resolved
    made: list[Path] = []
    try:
        made = disk.make_folder(out.parent)
        with disk.temporary_folder(out.parent, f".{out.name}.writing-") as temporary:
            yield temporary
            disk.sync_all(temporary)
            check_new(out)
            temporary.rename(out)
            disk.sync(out.parent)
    except BaseException as error:
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError) and not isinstance(error, RegardError):
            raise CommandError(f"--out: {out} cannot be written, {disk.reason(error)}") from error
        raise
