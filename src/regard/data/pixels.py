"""Pixels: one picture of any common form, or all of a corpus in the cache, decoded once. Imports no torch.

A picture is turned upright as its EXIF says, made RGB (grey, palettes, CMYK, 16 bits; what is transparent is white),
scaled until its short side fits, and cut in the middle. One that is too large is refused by its heading, before it is
unpacked.

All pictures of a corpus are one array of bytes, decoded by several processes and mapped afterwards. It has a folder of
its own, so that another tokenizer or another choice of captions decodes nothing again:

    pictures-<key>/pixels.bin     16 bytes of heading, then uint8 [count 3 side side]
                   pictures.json  {"side", "names": of those that could be read, "lost": [why] of those that could not}
                   manifest.json

Which one is asked for depends on the names, sizes and times of the files; which one it is, on the pixels themselves. So
nothing is read to find it again, and the same pictures copied elsewhere are still the same to a run that goes on.
"""

# b pictures · s side of a picture
import contextlib
import functools
import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from regard.data import cache
from regard.data.settings import DataSettings
from regard.errors import DataError
from regard.io import Say

if TYPE_CHECKING:
    from PIL.Image import Image

CHUNK = 64  # pictures that a process decodes at a time
WORTH = 3.0  # seconds of decoding for which other processes are started; they need about one to be there
SAID = 10.0  # seconds between two words about progress

MAX_PIXELS = 1 << 27  # pixels; one of this size takes 400 MB when it is unpacked
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")  # no form that calls other programs
ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
WHITE = (255, 255, 255)


def read_picture(path: str | Path, side: int) -> UInt8[np.ndarray, "3 s s"]:
    """Read the pixels of a picture file; a DataError names one that cannot be read, and says why."""
    if not os.path.exists(path):
        raise DataError(f"{path}: no such file")
    if os.path.isdir(path):
        raise DataError(f"{path}: a folder given, expected a picture")
    if not os.path.isfile(path):
        raise DataError(f"{path}: a pipe or a device given, expected a picture file")
    if not os.path.getsize(path):
        raise DataError(f"{path}: an empty file, expected a picture")
    return decode_picture(path, side, str(path))


def decode_picture(file: str | Path | BinaryIO, side: int, name: str) -> UInt8[np.ndarray, "3 s s"]:
    """Decode a picture, upright, in colour, scaled and cropped, from a file, or from one that is open.

    `name` is what errors call it.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        # The decoders warn of much that does not matter to a person, and PIL of sizes that are checked below.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(file, formats=formats()) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise Image.DecompressionBombError
                # A JPEG can be unpacked at a half, a quarter or an eighth; twice the side is enough to be scaled down.
                image.draft("RGB", (2 * side, 2 * side))
                upright = to_rgb(ImageOps.exif_transpose(image))
                if upright.size != (side, side):
                    upright = ImageOps.fit(upright, (side, side), Image.Resampling.BILINEAR)
                return np.ascontiguousarray(np.asarray(upright).transpose(2, 0, 1))
    except Image.DecompressionBombError:
        raise DataError(f"{name}: more than {MAX_PIXELS:,} pixels, too large to be decompressed") from None
    except UnidentifiedImageError:
        raise DataError(f"{name}: not a picture ({', '.join(FORMATS)} are supported)") from None
    except MemoryError:
        raise DataError(f"{name}: too large to be decompressed in memory") from None
    except Exception as error:  # what a decoder raises at damaged bytes has no narrower name
        if isinstance(error, OSError) and error.strerror:  # the system's, and no decoder's
            raise DataError(f"{name}: cannot be read: {error.strerror}") from None
        raise DataError(
            f"{name}: damaged, or not a picture: {str(error).rstrip('.') or type(error).__name__}"
        ) from None


def stored_side(data: DataSettings) -> int:
    """Return the side of cached pictures in pixels: `image_size`, and what `crop` may cut off."""
    return math.ceil(data.image_size / (1 - data.crop))


def read_for(data: DataSettings, path: str | Path) -> UInt8[np.ndarray, "3 h w"]:
    """Read a picture file as a model trained with these settings sees it."""
    return crop_middle(read_picture(path, stored_side(data))[None], data.image_size)[0]


def decode_for(data: DataSettings, file: BinaryIO, name: str) -> UInt8[np.ndarray, "3 h w"]:
    """Decode an open picture file as a model trained with these settings sees it; `name` is what errors call it."""
    return crop_middle(decode_picture(file, stored_side(data), name)[None], data.image_size)[0]


def crop_middle(pixels: UInt8[np.ndarray, "b 3 s s"], size: int) -> UInt8[np.ndarray, "b 3 h w"]:
    """Crop every picture to its middle."""
    edge = (pixels.shape[-1] - size) // 2
    return np.ascontiguousarray(pixels[..., edge : edge + size, edge : edge + size])


@functools.cache
def formats() -> tuple[str, ...]:
    """List those of FORMATS that this build of Pillow reads."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def to_rgb(image: "Image") -> "Image":
    """Convert a picture to RGB."""
    from PIL import Image

    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):  # 16 bits and more, which PIL would cut off at 255 and not scale
        numbers = np.clip(np.asarray(image).astype(np.int64), 0, 65535) >> 8
        return Image.fromarray(numbers.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        ground = Image.new("RGB", image.size, WHITE)
        ground.paste(clear, mask=clear.getchannel("A"))
        return ground
    return image.convert("RGB")


class Pixels:
    """Pictures of one size, mapped into memory: len(), `names`, and `pixels[indices]` as [b 3 s s]."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        facts = json.loads((self.folder / "pictures.json").read_text(encoding="utf-8"))
        self.side: int = facts["side"]
        self.names: list[str] = facts["names"]
        self.problems: list[str] = facts["lost"]
        shape = (len(self.names), 3, self.side, self.side)
        self.array: np.ndarray = cache.map_numbers(self.folder, "pixels").reshape(shape)

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


def cache_pixels(home: Path, request: object, side: int, pictures: Callable[[], Iterable[Picture]], say: Say) -> Pixels:
    """Open the pictures in the cache, or put them into it; `asked` is all that they depend on."""
    key = hashlib.sha256(json.dumps([cache.FORMAT, side, request]).encode()).hexdigest()[:32]

    def fill(folder: Path) -> Path:
        write(folder, side, pictures(), say)
        cache.seal(folder)
        files = cache.read_manifest(folder)["files"]
        return home / f"pictures-{hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:32]}"

    folder, _ = cache.find_or_fill(home / f"pictures-{key}", fill, say, "its pictures are decoded again")
    return Pixels(folder)


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
    (folder / "pictures.json").write_bytes(json.dumps(facts).encode())


def decode(folder: str, names: Sequence[str], side: int, workers: int | None = None) -> Iterator[Picture]:
    """Decode the pictures of a folder in the order of their names, by several processes where that pays."""
    workers = workers or cores()
    pieces = [(folder, list(names[start : start + CHUNK]), side) for start in range(0, len(names), CHUNK)]
    count, started = 0, time.monotonic()
    while count < len(pieces) and (workers == 1 or not count):
        yield from decode_piece(*pieces[count])
        count += 1
    rest = (time.monotonic() - started) * (len(pieces) - count)
    if workers > 1 and rest > WORTH:
        import multiprocessing
        from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

        # Not forked: a process with torch's threads in it cannot be.
        pool = ProcessPoolExecutor(min(workers, len(pieces) - count), multiprocessing.get_context("spawn"))
        # One may be killed for its memory, or run a script that cannot be imported by another process.
        with contextlib.suppress(BrokenProcessPool), pool:
            ahead = 2 * workers  # a few, so that what is decoded does not fill the memory
            waiting = [pool.submit(decode_piece, *piece) for piece in pieces[count : count + ahead]]
            while waiting:
                decoded = waiting.pop(0).result()
                waiting += [pool.submit(decode_piece, *piece) for piece in pieces[count + ahead : count + ahead + 1]]
                yield from decoded
                count += 1
    for piece in pieces[count:]:
        yield from decode_piece(*piece)


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
