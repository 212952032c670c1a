"""Encoded corpora on disk: written once, checked when opened, and mapped into memory.

A cache is a folder named by a hash of everything that its contents depend on:

    <key>/manifest.json                         sizes and SHA-256 of the files below, counts, start of each corpus
          tokenizer.json  valid.jsonl
          train/{tokens,lengths,offsets}.bin    16 bytes of heading, then int32, int32 [n, 2], int64 [n + 1]
          valid/{tokens,lengths,offsets}.bin
          train/{links,linked}.bin              only with word links: int32 [l, 2], and int64 [n + 1]
          valid/{links,linked}.bin

A process writes a cache to a temporary folder, syncs it and renames it, so that a folder with the final name is
complete. If two processes write the same cache, the first to rename wins and the other uses its result.
"""

import contextlib
import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64

from regard.errors import DataError
from regard.io import disk

FORMAT = 1
TYPES = {"tokens": np.int32, "lengths": np.int32, "offsets": np.int64}
LINKS = {"links": np.int32, "linked": np.int64}
KINDS = {**TYPES, **LINKS, "pixels": np.uint8}
HEADINGS = {name: f"regard{FORMAT} {name}".ljust(15).encode() + b"\n" for name in KINDS}
CHECKED_IN_FULL = 4 << 30  # bytes of a cache up to which checksums are verified; above, only sizes and headings


class Encoded:
    """Encoded pairs, mapped into memory: len(), `lengths`, and `pair(i)`."""

    def __init__(self, folder: str | Path, starts: Sequence[int] = ()):
        """Open encoded pairs; `starts` are the first indices of the corpora, by default only one."""
        self.folder, self.starts = Path(folder), tuple(starts) or (0,)
        self.offsets: Int64[np.ndarray, " n1"] = map_numbers(self.folder, "offsets")
        self.tokens: Int32[np.ndarray, " t"] = map_numbers(self.folder, "tokens")
        self.lengths: Int32[np.ndarray, "n 2"] = map_numbers(self.folder, "lengths").reshape(-1, 2)
        # Links between words, (source, target), and the offset of each pair's links; None if the corpus has none.
        self.links: Int32[np.ndarray, "l 2"] | None = None
        if (self.folder / "links.bin").exists():
            self.links = map_numbers(self.folder, "links").reshape(-1, 2)
            self.linked: Int64[np.ndarray, " n1"] = map_numbers(self.folder, "linked")

    def __len__(self) -> int:
        return len(self.lengths)

    def pair(self, i: int) -> tuple[Int32[np.ndarray, " m"], Int32[np.ndarray, " n"]]:
        """Return the ids of source and target, without start and end, as views of the memory map."""
        start = int(self.offsets[i])
        middle = start + int(self.lengths[i, 0])
        return self.tokens[start:middle], self.tokens[middle : int(self.offsets[i + 1])]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the path and starts, so that another process maps the same files."""
        return Encoded, (self.folder, self.starts)


def map_numbers(folder: Path, name: str) -> np.ndarray:
    """Map the numbers of one file into memory."""
    path, kind = folder / f"{name}.bin", np.dtype(KINDS[name])
    count = (path.stat().st_size - 16) // kind.itemsize
    if count == 0:  # nothing to map
        return np.zeros(0, kind)
    # Return a plain array view, because slicing np.memmap itself is slow.
    return np.memmap(path, kind, "r", offset=16, shape=(count,)).view(np.ndarray)


class Writer:
    """A writer of encoded pairs to a cache folder, chunk by chunk."""

    def __init__(self, folder: Path, *, links: bool = False):
        """Open the files for writing; `links`: the pairs have links between their words."""
        folder.mkdir(parents=True)
        self.count = self.end = self.last = 0
        names = [*TYPES, *(LINKS if links else ())]
        self.files = {name: open(folder / f"{name}.bin", "wb") for name in names}  # noqa: SIM115
        for name, file in self.files.items():
            file.write(HEADINGS[name])
            if name in ("offsets", "linked"):
                file.write(np.zeros(1, np.int64).tobytes())

    def write(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        links: Sequence[Sequence[tuple[int, int]]] = (),
    ) -> None:
        """Append pairs, with their links if the files have links."""
        if not sources:
            return
        if "links" in self.files:
            ends = self.last + np.cumsum([len(each) for each in links], dtype=np.int64)
            pairs = np.array([pair for each in links for pair in each], np.int32)
            self.files["links"].write(pairs.tobytes())
            self.files["linked"].write(ends.tobytes())
            self.last = int(ends[-1])
        lengths = np.array([[len(s), len(t)] for s, t in zip(sources, targets, strict=True)], np.int32)
        flat = [i for s, t in zip(sources, targets, strict=True) for side in (s, t) for i in side]
        offsets = self.end + np.cumsum(lengths.sum(1, dtype=np.int64))
        for name, array in (("tokens", np.array(flat, np.int32)), ("lengths", lengths), ("offsets", offsets)):
            self.files[name].write(array.tobytes())
        self.count, self.end = self.count + len(lengths), int(offsets[-1])

    def close(self) -> None:
        """Close the files."""
        for file in self.files.values():
            file.close()


def find_or_fill(
    entry: Path, fill: Callable[[Path], Path], say: Callable[[str], None], again: str = "it is built again"
) -> tuple[Path, bool]:
    """Return the cache that a name refers to, and whether it existed already.

    If it is missing or damaged, `fill` writes and seals a new one in the folder passed to it, and returns its final
    path. `say` reports damage.
    """
    if (there := resolve_alias(entry)).exists():
        problem = damage(there)
        if problem is None:
            return there, True
        say(f"The cache {entry} is damaged ({problem}); {again}.")
    with workplace(entry.parent) as folder:
        final = fill(folder)
        publish(folder, final)
    if entry != final:
        if entry.is_dir() and not entry.is_symlink():  # a damaged cache under this very name
            shutil.rmtree(entry, ignore_errors=True)
        disk.write_whole(entry, final.name + "\n")  # a small file in place of a link, which not every system has
    return final, False


@contextlib.contextmanager
def workplace(cache: Path) -> Iterator[Path]:
    """Make a temporary folder in the cache; remove it afterwards unless it was published. A lock marks it as in use."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for left in cache.glob(".damaged-*"):  # left by a process that was killed in `publish`
            shutil.rmtree(left, ignore_errors=True)
        with disk.temporary_folder(cache, ".partial-") as folder:
            yield folder
    except OSError as error:
        raise DataError(
            f"{cache}: encoded corpora cannot be written here: {error.strerror or error}; choose another folder with "
            "data.cache"
        ) from None


def seal(folder: Path, **facts: Any) -> None:
    """Write the manifest, and sync everything to disk."""
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest(path)}
    (folder / "manifest.json").write_bytes(json.dumps({"format": FORMAT, "files": files, **facts}).encode())
    disk.sync_all(folder)


def publish(folder: Path, final: Path) -> None:
    """Rename a sealed folder to its final name; keep an existing cache of that name unless it is damaged."""
    for attempt in range(10):
        try:
            folder.rename(final)
        except OSError:
            if not final.exists():  # another process has just moved a damaged cache away, or the folder is read-only
                if attempt == 9:
                    raise
                continue
            if damage(final) is None:
                return
            with contextlib.suppress(OSError):  # another process may have replaced the damaged cache already
                aside = final.with_name(f".damaged-{uuid.uuid4().hex}")
                final.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
        else:
            disk.sync(final.parent)
            return
    raise DataError(f"{final}: damaged, and cannot be replaced; remove it")


def resolve_alias(name: Path) -> Path:
    """Return the cache folder that a name refers to, or the name itself if it is a folder."""
    if not name.is_file():
        return name.resolve()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        final = name.read_text(encoding="utf-8")[:100].strip()
        if re.fullmatch(r"[0-9a-z]+(-[0-9a-z]+)?", final):
            return name.with_name(final)
    return name


def damage(folder: Path) -> str | None:
    """Describe what is wrong with a cache, if anything: a size, a heading or, up to 4 GiB in total, a checksum."""
    try:
        manifest = read_manifest(folder)
        if manifest["format"] != FORMAT:
            return f"format {manifest['format']}, expected {FORMAT}"
        files: dict[str, dict[str, Any]] = manifest["files"]
        in_full = sum(each["bytes"] for each in files.values()) <= CHECKED_IN_FULL
        for name, each in files.items():
            path = folder / name
            if path.stat().st_size != each["bytes"]:
                return f"{name} has {path.stat().st_size:,} bytes, expected {each['bytes']:,}"
            if path.suffix == ".bin":
                with open(path, "rb") as file:
                    if file.read(16) != HEADINGS[path.stem]:
                        return f"{name} begins with unexpected bytes"
            if in_full and digest(path) != each["sha256"]:
                return f"{name} does not match its checksum"
    except FileNotFoundError as error:
        return f"no {Path(error.filename).name} in the folder"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"unreadable ({type(error).__name__}: {error})"
    return None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a cache."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return manifest


def write_texts(folder: Path, rows: Iterable[object]) -> None:
    """Write the validation texts to valid.jsonl, one list per line."""
    (folder / "valid.jsonl").write_bytes("".join(json.dumps(row) + "\n" for row in rows).encode())


def read_texts(folder: Path) -> list[Any]:
    """Read the validation texts."""
    return [json.loads(line) for line in (folder / "valid.jsonl").read_bytes().splitlines()]


def digest(path: str | Path) -> str:
    """Compute the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
