"""Translated files that wait to be downloaded: in memory, under secret names, not too many and not for long."""

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

FILES = 100  # that are held, at most
BYTES = 64 * 2**20  # of all of them
SECONDS = 600.0  # for which one is held
NAME = re.compile(r"[^A-Za-z0-9._-]+")


class FileStore:
    """Files by their names; the oldest goes when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock, self.size = clock, 0
        self.files: OrderedDict[str, tuple[float, str, bytes]] = OrderedDict()

    def add(self, name: str, content: bytes) -> str:
        """Hold a file, and return the name that it is fetched by."""
        key = f"{secrets.token_urlsafe(24)}.{clean_name(name)}"
        self.files[key] = self.clock() + SECONDS, clean_name(name), content
        self.size += len(content)
        self.sweep()
        return key

    def get(self, key: str) -> tuple[str, bytes] | None:
        """The name and the content of a file, if it is still here."""
        self.sweep()
        found = self.files.get(key)
        return None if found is None else found[1:]

    def sweep(self) -> None:
        """Let files go that are too old, and the oldest of too many."""
        while self.files:
            end, _, content = next(iter(self.files.values()))
            if end > self.clock() and len(self.files) <= FILES and self.size <= BYTES:
                return
            self.files.popitem(last=False)
            self.size -= len(content)


def clean_name(name: str) -> str:
    """A file's name in letters that no header and no address has trouble with."""
    cleaned = NAME.sub("_", name.replace("\\", "/").rpartition("/")[2]).lstrip(".")
    return cleaned[-100:] or "file"
