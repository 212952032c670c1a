"""Packs: a run in a single file, which Regard reads like a run folder.

A pack is a zip file with uncompressed members, which `unzip` turns into a run folder. Every function that reads a run
accepts a path into a pack, such as model.regard/config.toml, where model.regard is the pack file. Regard recognises a
pack by its content, not by its name. A pack ends with the SHA-256 of all bytes before it, which Regard checks when it
first opens the file. Member names that leave the run folder and compressed members are refused. No code in a pack runs.
"""

import contextlib
import hashlib
import os
import re
import stat
import struct
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader
from pathlib import Path

from regard.errors import CheckpointError

BEGINNING = b"PK\x03\x04"  # the first bytes of a zip file
MARK = b"regard pack 1 sha256 "  # stands before the checksum at the end of the file
DIGITS = 64  # hexadecimal digits of the checksum
MAX_MEMBERS = 1000
NAME = re.compile(r"(?!\.)[\w.-]{1,100}(?:/(?!\.)[\w.-]{1,100}){0,3}", re.ASCII)
LOCAL = struct.Struct("<4s2H3HLLL2H")  # a member's header; its last two fields are the lengths of name and extra data


@dataclass(frozen=True)
class Pack:
    """The members of a pack, each with its offset in the file and its size in bytes."""

    path: Path
    members: dict[str, tuple[int, int]]

    def size(self, name: str) -> int:
        """Return the size of a member in bytes; raise FileNotFoundError if the pack has no such member."""
        return self._place(name)[1]

    def read(self, name: str) -> bytes:
        """Return the content of a member."""
        start, size = self._place(name)
        with open(self.path, "rb") as file:
            file.seek(start)
            return file.read(size)

    def _place(self, name: str) -> tuple[int, int]:
        if name not in self.members:
            problem = (21, "Is a directory") if self.names(name) else (2, "No such file or directory")
            raise OSError(*problem, str(self.path / name))  # OSError picks the subclass by errno
        return self.members[name]

    def names(self, folder: str = "") -> list[str]:
        """List the names in a folder of the pack; return an empty list if there is no such folder."""
        start = f"{folder}/" if folder else ""
        inside = (name[len(start) :].partition("/")[0] for name in self.members if name.startswith(start))
        return list(dict.fromkeys(inside))


# ---- paths that may lead into a pack


def is_file(path: str | Path) -> bool:
    """Return whether a path leads to a file, in a folder or in a pack."""
    place = find_pack(path)
    return os.path.isfile(path) if place is None else place[1] in place[0].members


def is_folder(path: str | Path) -> bool:
    """Return whether a path leads to a folder, to a pack, or to a folder in a pack."""
    place = find_pack(path)
    return os.path.isdir(path) if place is None else not place[1] or bool(place[0].names(place[1]))


def list_names(path: str | Path) -> list[str]:
    """List the names in a folder or a pack; return an empty list if there is no such folder."""
    place = find_pack(path)
    if place is not None:
        return place[0].names(place[1])
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def find_pack(path: str | Path) -> tuple[Pack, str] | None:
    """Return the pack that a path is or leads into, and the member's name there; None if the path involves no pack."""
    path = Path(path)
    try:
        facts = os.stat(path)
        return (open_pack(path), "") if stat.S_ISREG(facts.st_mode) and is_pack(path) else None
    except NotADirectoryError:
        pass
    except (OSError, ValueError):  # nothing exists there, or the text is not a valid file name
        return None
    for parent in path.parents:
        if parent.is_file():
            return (open_pack(parent), path.relative_to(parent).as_posix()) if is_pack(parent) else None
    return None


@contextlib.contextmanager
def open_binary(path: str | Path) -> Iterator[tuple[BufferedReader, int]]:
    """Open a file, in a folder or in a pack; yield it, positioned at its first byte, with its size in bytes."""
    place = find_pack(path)
    with open(path if place is None else place[0].path, "rb") as file:
        start, size = (0, os.fstat(file.fileno()).st_size) if place is None else place[0].members[place[1]]
        file.seek(start)
        yield file, size


# ---- the file


def is_pack(path: str | Path) -> bool:
    """Return whether a file begins and ends like a pack."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            if file.read(len(BEGINNING)) != BEGINNING:
                return False
            file.seek(-len(MARK) - DIGITS, os.SEEK_END)
            return file.read(len(MARK)) == MARK
    except (OSError, ValueError):
        return False


OPENED: dict[Path, tuple[tuple[int, int, int], Pack]] = {}  # checked packs, each with inode, size and time of its file
LOCK = threading.Lock()


def open_pack(path: str | Path) -> Pack:
    """Open a pack; check its checksum unless this version of the file was checked before."""
    path = Path(path)
    with LOCK:
        facts = os.stat(path)
        version = facts.st_ino, facts.st_size, facts.st_mtime_ns
        known = OPENED.get(path.absolute())
        if known is None or known[0] != version:
            OPENED[path.absolute()] = known = version, Pack(path, read_members(path))
        return known[1]


def read_members(path: Path) -> dict[str, tuple[int, int]]:
    """Check a pack and return the offset and size of each member."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(-DIGITS, os.SEEK_END)
        expected = file.read(DIGITS)
        file.seek(0)
        if hash_start(file, size - DIGITS).encode() != expected:
            raise CheckpointError(f"{path}: damaged, its contents do not match its own checksum; copy it again")
        try:
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error) as error:
            raise CheckpointError(f"{path}: not a pack of a run: {error}") from None
        if len(entries) > MAX_MEMBERS:
            raise CheckpointError(f"{path}: {len(entries):,} members given, expected at most {MAX_MEMBERS:,}")
        members: dict[str, tuple[int, int]] = {}
        for entry in entries:
            name = entry.filename
            if not NAME.fullmatch(name) or name in members:
                raise CheckpointError(f"{path}: a member is called {name[:100]!r}, expected the files of a run folder")
            # The file type that `unzip` would create; 0 if the archive names none, as on systems without file types.
            if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
                raise CheckpointError(f"{path}: {name} is a link or a device, expected the files of a run folder")
            if (
                entry.compress_type != zipfile.ZIP_STORED
                or entry.flag_bits & 1
                or entry.file_size != entry.compress_size
            ):
                raise CheckpointError(f"{path}: {name} is compressed or encrypted, expected members that are stored")
            file.seek(max(0, entry.header_offset))
            heading = file.read(LOCAL.size)
            if entry.header_offset < 0 or len(heading) < LOCAL.size or not heading.startswith(BEGINNING):
                raise CheckpointError(f"{path}: not a pack of a run: {name} has no heading")
            *_, name_bytes, extra_bytes = LOCAL.unpack(heading)
            start = entry.header_offset + LOCAL.size + name_bytes + extra_bytes
            if start + entry.file_size > size:
                raise CheckpointError(f"{path}: not a pack of a run: {name} would end outside of it")
            members[name] = start, entry.file_size
    return members


def hash_start(file: BufferedReader | BufferedRandom, size: int) -> str:
    """Compute the SHA-256 of the next `size` bytes of an open file."""
    checksum, buffer = hashlib.sha256(), memoryview(bytearray(min(size, 2**20) or 1))
    while size > 0:
        count = file.readinto(buffer[: min(size, len(buffer))])
        if not count:
            break
        checksum.update(buffer[:count])
        size -= count
    return checksum.hexdigest()
