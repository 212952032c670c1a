"""Decoding of pictures in common formats, and the cache of a corpus's decoded pictures. Imports no torch.

A picture is rotated as its EXIF data say, converted to RGB (from grey, palettes, CMYK or 16 bits; transparent pixels
become white), scaled until its short side fits, and cropped to the middle. A picture that is too large is refused by
its header, before it is decompressed.

The pictures of a corpus form one array of bytes, which several processes decode, and which is then mapped into memory.
It has its own folder, so that another tokenizer or choice of captions does not decode them again:

    pictures-<key>/pixels.bin     16 bytes of heading, then uint8 [count 3 side side]
                   pictures.json  {"side", "names": of readable pictures, "lost": messages about unreadable ones}
                   manifest.json

An alias finds the folder by the names, sizes and times of the files, so no picture has to be read for it. The folder
itself is named after the pixels, so copies of the same pictures are still the same corpus to a run that continues.
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
WORTH = 3.0  # estimated seconds of decoding above which worker processes start; starting takes about one second
SAID = 10.0  # seconds between progress messages

MAX_PIXELS = 1 << 27  # a picture of this size takes 400 MB when decompressed
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")  # no formats for which Pillow calls other programs
ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
WHITE = (255, 255, 255)


def read_picture(path: str | Path, side: int) -> UInt8[np.ndarray, "3 s s"]:
    """Read the pixels of a picture file; raise a DataError if it cannot be read."""
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
    """Decode a picture from a path or an open file: upright, in RGB, scaled and cropped.

    Error messages call it `name`.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        # Ignore the decoders' warnings, most of which do not matter to users; sizes are checked below.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(file, formats=formats()) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise Image.DecompressionBombError
                # A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size; twice the side is enough for scaling down.
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
    except Exception as error:  # decoders raise all kinds of exceptions on damaged data
        if isinstance(error, OSError) and error.strerror:  # an error of the system, not of a decoder
            raise DataError(f"{name}: cannot be read: {error.strerror}") from None
        raise DataError(
            f"{name}: damaged, or not a picture: {str(error).rstrip('.') or type(error).__name__}"
        ) from None


def stored_side(data: DataSettings) -> int:
    """Return the side of cached pictures in pixels: `image_size` plus the part that `crop` may remove."""
    return math.ceil(data.image_size / (1 - data.crop))


def read_for(data: DataSettings, path: str | Path) -> UInt8[np.ndarray, "3 h w"]:
    """Read a picture file in the size that a model trained with these settings reads."""
    return crop_middle(read_picture(path, stored_side(data))[None], data.image_size)[0]


def decode_for(data: DataSettings, file: BinaryIO, name: str) -> UInt8[np.ndarray, "3 h w"]:
    """Decode an open picture file in the size that a model trained with these settings reads; errors call it `name`."""
    return crop_middle(decode_picture(file, stored_side(data), name)[None], data.image_size)[0]


def crop_middle(pixels: UInt8[np.ndarray, "b 3 s s"], size: int) -> UInt8[np.ndarray, "b 3 h w"]:
    """Crop every picture to its middle."""
    edge = (pixels.shape[-1] - size) // 2
    return np.ascontiguousarray(pixels[..., edge : edge + size, edge : edge + size])


@functools.cache
def formats() -> tuple[str, ...]:
    """List the FORMATS that this build of Pillow supports."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def to_rgb(image: "Image") -> "Image":
    """Convert a picture to RGB."""
    from PIL import Image

    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):  # 16 bits or more, which PIL would clip at 255 instead of scaling
        numbers = np.clip(np.asarray(image).astype(np.int64), 0, 65535) >> 8
        return Image.fromarray(numbers.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        ground = Image.new("RGB", image.size, WHITE)
        ground.paste(clear, mask=clear.getchannel("A"))
        return ground
    return image.convert("RGB")


class Pixels:
    """Pictures of one size, mapped into memory: len(), `names`, and `pixels[indices]` with shape [b 3 s s]."""

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
        """Return copies of some of the pictures."""
        pixels: np.ndarray = self.array[np.asarray(indices, np.int64)]
        return pixels

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the path, so that another process maps the same file."""
        return Pixels, (self.folder,)


class Picture(NamedTuple):
    """A picture's name with its pixels, or with the reason why it has none."""

    name: str
    pixels: UInt8[np.ndarray, "3 s s"] | None
    problem: str = ""


def cache_pixels(home: Path, request: object, side: int, pictures: Callable[[], Iterable[Picture]], say: Say) -> Pixels:
    """Open the decoded pictures in the cache, or write them there; `request` is everything that they depend on."""
    key = hashlib.sha256(json.dumps([cache.FORMAT, side, request]).encode()).hexdigest()[:32]

    def fill(folder: Path) -> Path:
        write(folder, side, pictures(), say)
        cache.seal(folder)
        files = cache.read_manifest(folder)["files"]
        return home / f"pictures-{hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:32]}"

    folder, _ = cache.find_or_fill(home / f"pictures-{key}", fill, say, "its pictures are decoded again")
    return Pixels(folder)


def write(folder: Path, side: int, pictures: Iterable[Picture], say: Say) -> None:
    """Write the pixels of all readable pictures to one file, and their names to another."""
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
    """Decode the pictures of a folder in the order of `names`, with several processes if that saves time."""
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

        # Spawn, as a process with torch's threads cannot be forked.
        pool = ProcessPoolExecutor(min(workers, len(pieces) - count), multiprocessing.get_context("spawn"))
        # A worker may be killed for using too much memory, or fail to import the main script.
        with contextlib.suppress(BrokenProcessPool), pool:
            ahead = 2 * workers  # few, so that decoded pictures do not fill the memory
            waiting = [pool.submit(decode_piece, *piece) for piece in pieces[count : count + ahead]]
            while waiting:
                decoded = waiting.pop(0).result()
                waiting += [pool.submit(decode_piece, *piece) for piece in pieces[count + ahead : count + ahead + 1]]
                yield from decoded
                count += 1
    for piece in pieces[count:]:
        yield from decode_piece(*piece)


def decode_piece(folder: str, names: Sequence[str], side: int) -> list[Picture]:
    """Decode some pictures in this process."""
    rows = []
    for name in names:
        try:
            rows.append(Picture(name, read_picture(os.path.join(folder, name), side)))
        except DataError as error:
            # Remove the folder from the message: the same pictures in another folder are the same corpus.
            rows.append(Picture(name, None, str(error).removeprefix(os.path.join(folder, ""))))
    return rows


def cores() -> int:
    """Count the processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
