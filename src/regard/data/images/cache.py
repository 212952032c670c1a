"""All pictures of a corpus as one array of bytes in the cache: decoded once, by several processes, mapped afterwards.

A folder of its own, so that another tokenizer or another choice of captions decodes nothing again:

    pictures-<key>/pixels.bin     16 bytes of heading, then uint8 [count 3 side side]
                   pictures.json  {"side", "names": of those that could be read, "lost": [why] of those that could not}
                   manifest.json

Which one is asked for depends on the names, sizes and times of the files; which one it is, on the pixels themselves. So
nothing is read to find it again, and the same pictures copied elsewhere are still the same to a run that goes on.
"""

# b pictures · s side of a picture
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from regard.data import cache
from regard.data.images.decode import read_picture
from regard.errors import DataError

CHUNK = 64  # pictures that a process decodes at a time
WORTH = 3.0  # seconds of decoding for which other processes are started; they need about one to be there
SAID = 10.0  # seconds between two words about progress

Say = Callable[[str], None]


class Pixels:
    """Pictures of one size, mapped into memory: len(), `names`, and `pixels[indices]` as [b 3 s s]."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        facts = json.loads((self.folder / "pictures.json").read_text(encoding="utf-8"))
        self.side: int = facts["side"]
        self.names: list[str] = facts["names"]
        self.problems: list[str] = facts["lost"]
        shape = (len(self.names), 3, self.side, self.side)
        path = self.folder / "pixels.bin"
        # A plain view: slices of np.memmap itself are slow to make.
        self.array: np.ndarray = (
            np.memmap(path, np.uint8, "r", offset=16, shape=shape).view(np.ndarray)
            if self.names
            else np.zeros(shape, np.uint8)
        )

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, indices: Int[np.ndarray, " b"] | Sequence[int]) -> UInt8[np.ndarray, "b 3 s s"]:
        """Return some of the pictures, copied."""
        pixels: np.ndarray = self.array[np.asarray(indices, np.int64)]
        return pixels

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path alone, so that another process maps the same file."""
        return Pixels, (self.folder,)


class Picture(NamedTuple):
    """A picture's name, and its pixels or the reason why there are none."""

    name: str
    pixels: UInt8[np.ndarray, "3 s s"] | None
    problem: str = ""


def keep(home: Path, request: object, side: int, pictures: Callable[[], Iterable[Picture]], say: Say) -> Pixels:
    """Open the pictures in the cache, or put them into it; `asked` is all that they depend on."""
    key = hashlib.sha256(json.dumps([cache.FORMAT, side, request]).encode()).hexdigest()[:32]
    link = home / f"pictures-{key}"
    if (there := cache.follow(link)).exists():
        problem = cache.damage(there)
        if problem is None:
            return Pixels(there)
        say(f"The cache {link} is damaged ({problem}); its pictures are decoded again.")
    with cache.workplace(home) as folder:
        write(folder, side, pictures(), say)
        cache.seal(folder)
        files = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
        final = home / f"pictures-{hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:32]}"
        cache.publish(folder, final)
    cache.lead(link, final)
    return Pixels(final)


def write(folder: Path, side: int, pictures: Iterable[Picture], say: Say) -> None:
    """Write one file of all pictures that can be read, and one of their names."""
    names, problems, spoken = list[str](), list[str](), time.monotonic()
    with open(folder / "pixels.bin", "wb") as file:
        file.write(cache.HEADINGS["pixels"])
        for picture in pictures:
            if picture.pixels is None:
                problems.append(picture.problem)
                continue
            file.write(picture.pixels.tobytes())
            names.append(picture.name)
            if time.monotonic() - spoken > SAID:
                spoken = time.monotonic()
                say(f"{len(names):,} pictures so far")
    facts = {"side": side, "names": names, "lost": problems}
    (folder / "pictures.json").write_text(json.dumps(facts), encoding="utf-8", newline="\n")


def decode(folder: str, names: Sequence[str], side: int, workers: int | None = None) -> Iterator[Picture]:
    """Decode the pictures of a folder in the order of their names, by several processes where that pays."""
    workers = workers or cores()
    pieces = [(folder, list(part), side) for part in split_names(names, CHUNK)]
    count, started = 0, time.monotonic()
    while count < len(pieces) and (workers == 1 or not count):
        yield from decode_piece(*pieces[count])
        count += 1
    rest = (time.monotonic() - started) * (len(pieces) - count)
    if workers > 1 and rest > WORTH:
        for decoded in elsewhere(pieces[count:], workers):
            yield from decoded
            count += 1
    for piece in pieces[count:]:
        yield from decode_piece(*piece)


def elsewhere(pieces: Sequence[tuple[str, list[str], int]], workers: int) -> Iterator[list[Picture]]:
    """Decode pieces in other processes, as many as they could."""
    import multiprocessing
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    try:
        # Not forked: a process with torch's threads in it cannot be.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(workers, len(pieces)), context) as pool:
            waiting = [pool.submit(decode_piece, *piece) for piece in pieces[: 2 * workers]]
            for i in range(len(pieces)):  # a few ahead, so that what is decoded does not fill the memory
                result = waiting.pop(0).result()
                if i + 2 * workers < len(pieces):
                    waiting.append(pool.submit(decode_piece, *pieces[i + 2 * workers]))
                yield result
    except BrokenProcessPool:  # killed for its memory, or a script that cannot be imported by another process
        return


def decode_piece(folder: str, names: Sequence[str], side: int) -> list[Picture]:
    """Decode some pictures, one after the other."""
    rows = []
    for name in names:
        try:
            rows.append(Picture(name, read_picture(os.path.join(folder, name), side)))
        except DataError as error:
            # Without the folder: the same pictures elsewhere are the same corpus.
            rows.append(Picture(name, None, str(error).removeprefix(os.path.join(folder, ""))))
    return rows


def cores() -> int:
    """Count the processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_names(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """Split names into lists of a given size."""
    rest = iter(names)
    while part := list(itertools.islice(rest, size)):
        yield part
