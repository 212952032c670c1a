"""Reading pictures for a run: files or their pixels, and those of a test set."""

# h w height and width
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from regard.data import DataSettings, caption_files, find_spelling, picture_batches
from regard.errors import ArgumentError, DataError
from regard.inspection import teacher_forcing


def read_pictures(data: DataSettings, pictures: Iterable[teacher_forcing.Item]) -> Iterator[np.ndarray | Tensor]:
    """Yield the pixels of each picture as the model reads them, [3 h w]."""
    if isinstance(pictures, str | Path):
        raise ArgumentError("pictures: one path given, expected a list")
    for each in pictures:
        yield picture_batches.read_for(data, each) if isinstance(each, str | Path) else each


def read_test_pictures(
    data: DataSettings, images: str | Path, names: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read the pixels of pictures in a folder by name, and what is wrong with those that cannot be read."""
    pictures, unread = {}, list[str]()
    files = caption_files.list_pictures(images, unread.append)
    for each in names:
        file = find_spelling(each, files)
        try:
            if file is None:
                raise DataError(f"{each}: no such picture in {images}")
            pictures[each] = picture_batches.read_for(data, Path(images) / file)
        except DataError as error:
            unread.append(str(error))
    return pictures, unread
