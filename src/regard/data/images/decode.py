"""Reading one picture: any common form to red, green and blue bytes of one size. Imports no torch.

A picture is turned upright as its EXIF says, made RGB (grey, palettes, CMYK, 16 bits; what is transparent is white),
scaled until its short side fits, and cut in the middle. One that is too large is refused by its heading, before it is
unpacked.
"""

# s side of the square
import functools
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from jaxtyping import UInt8

from regard.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = 1 << 27  # pixels; one of this size takes 400 MB when it is unpacked
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
    """Decode a picture from a file, or from one that is open; `name` is what errors call it."""
    from PIL import Image, UnidentifiedImageError

    try:
        # The decoders warn of much that does not matter to a person, and PIL of sizes that are checked below.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(file, formats=formats()) as image:
                if image.width * image.height > LARGEST:
                    raise Image.DecompressionBombError
                return pixels_of(image, side)
    except Image.DecompressionBombError:
        raise DataError(f"{name}: more than {LARGEST:,} pixels, too large to be decompressed") from None
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


@functools.cache
def formats() -> tuple[str, ...]:
    """List those of FORMATS that this build of Pillow reads."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def pixels_of(image: "Image", side: int) -> UInt8[np.ndarray, "3 s s"]:
    """Return the pixels of an opened picture, upright, in colour, scaled and cropped."""
    from PIL import Image, ImageOps

    # A JPEG can be unpacked at a half, a quarter or an eighth; twice the side is enough to be scaled down well.
    image.draft("RGB", (2 * side, 2 * side))
    upright = to_rgb(ImageOps.exif_transpose(image))
    if upright.size != (side, side):
        upright = ImageOps.fit(upright, (side, side), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(upright).transpose(2, 0, 1))


def to_rgb(image: "Image") -> "Image":
    """Convert a picture to RGB."""
    from PIL import Image

    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):  # 16 bits and more, which PIL would cut off at 255 and not scale
        numbers = np.clip(np.asarray(image).astype(np.int64), 0, 65535) >> 8
        return Image.fromarray(numbers.astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        numbers = np.nan_to_num(np.asarray(image))
        scale = 255.0 if numbers.max() <= 1 else 1.0
        return Image.fromarray(np.clip(numbers * scale, 0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        ground = Image.new("RGB", image.size, WHITE)
        ground.paste(clear, mask=clear.getchannel("A"))
        return ground
    return image.convert("RGB")
