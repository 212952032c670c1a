"""The pictures of studies: drawn scenes, or photographs in a folder that `--data` names."""

import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from regard.data import DataSettings, caption_files, generate, picture_batches
from regard_corpora import Pictured
from regard_studies.corpora.pairs import find_file
from regard_studies.setting import Setting

__all__ = ["Gallery", "flickr8k", "scenes"]

SPLITS = {"train_list": "trainImages", "valid_list": "devImages"}


@dataclass(frozen=True)
class Gallery:
    """Pictures with captions: their [data] settings, and the test pictures, each with all its captions."""

    name: str  # as a page names it
    data: dict[str, Any]
    pixels: list[np.ndarray]  # uint8 [3 h w]
    references: list[list[str]]
    scenes: list[Pictured] = field(default_factory=list)  # of scenes, which know what a word speaks of


def scenes(count: int, tests: int, *, side: int, shapes: int = 3) -> Gallery:
    """Generate drawn scenes."""
    stream = generate("scenes", tests, split="test", seed=0, size=side, shapes=shapes)
    pictures = [cast(Pictured, each) for each in stream]
    data: dict[str, Any] = {"builtin": "scenes", "count": count, "image_size": side}
    if shapes != 3:
        data["builtin_options"] = [f"shapes={shapes}"]
    pixels = [np.ascontiguousarray(each.picture().transpose(2, 0, 1)) for each in pictures]
    return Gallery(
        f"drawn scenes of up to {shapes} shapes", data, pixels, [[each.target] for each in pictures], pictures
    )


def flickr8k(setting: Setting, *, side: int = 96) -> Gallery:
    """Open Flickr8k in its official split; `flickr8k/images.tar` is unpacked once into the studies' folder."""
    assert setting.data is not None
    images = setting.out / "data" / "flickr8k" / "images"
    unpack(find_file(setting.data, "flickr8k/images.tar"), images)
    captions = find_file(setting.data, "flickr8k/Flickr8k.token.txt.gz")
    lists = {key: str(find_file(setting.data, f"flickr8k/Flickr_8k.{name}.txt")) for key, name in SPLITS.items()}
    data: dict[str, Any] = {"images": str(images), "captions": str(captions), **lists}
    data |= {"image_size": side, "lowercase": True, "flip": True, "crop": 0.15}
    names = caption_files.read_list(find_file(setting.data, "flickr8k/Flickr_8k.testImages.txt"))
    captions_of = {name: each for name, each in caption_files.read_captions(captions).captions.items() if name in names}
    pixels = [picture_batches.read_for(DataSettings(**data), images / name) for name in captions_of]
    return Gallery("Flickr8k, official split", data, pixels, list(captions_of.values()))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, whole or not at all, unless it is already unpacked."""
    if folder.exists():
        return
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(archive) as pictures:
        pictures.extractall(part, filter="data")
    part.rename(folder)
