"""Batches of pictures: pixels as bytes, cut and mirrored anew every epoch, with their captions or labels.

What is cut off and which pictures are mirrored is a function of (seed, epoch, picture), so that a run that is resumed
sees the same.
"""

# b pictures · r captions of all of them · n target tokens · k labels, one per picture or none · h w height and width
# s side of the stored pictures
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor

from regard.data.batching import TensorBatch, expand_ranges, mix_bits
from regard.data.cache import Encoded
from regard.data.images.pixels import decode_picture, read_picture
from regard.data.settings import DataSettings
from regard.data.tokenizer import END, PAD, START
from regard.errors import ArgumentError

if TYPE_CHECKING:
    from regard.data.preparation import Prepared


@dataclass(frozen=True)
class PictureBatch(TensorBatch):
    """A batch of pictures, each once, with all their captions, or with their labels."""

    one = "one picture"
    pixels: UInt8[Tensor, "b 3 h w"]
    picture: Int64[Tensor, " r"]  # which picture a caption is of, rising
    target: Int64[Tensor, "r n"]  # START … END
    target_lengths: Int64[Tensor, " r"]  # the tokens to predict: with END, without START
    labels: Int64[Tensor, " k"]
    tokens: int  # to predict: of all captions, or one label a picture

    def __len__(self) -> int:
        return len(self.pixels)

    def part(self, first: int, last: int) -> "PictureBatch":
        """Return some of the pictures, reading numbers back from the device."""
        rows = (self.picture >= first) & (self.picture < last)
        lengths, labels = self.target_lengths[rows], self.labels[first:last]
        width = int(lengths.max()) + 1 if len(lengths) else 0
        tokens = int(lengths.sum()) if len(self.picture) else len(labels)
        target = self.target[rows, :width]
        return PictureBatch(self.pixels[first:last], self.picture[rows] - first, target, lengths, labels, tokens)


def stored_side(data: DataSettings) -> int:
    """Return the side of cached pictures in pixels: `image_size`, and what `crop` may cut off."""
    return math.ceil(data.image_size / (1 - data.crop))


def read_for(data: DataSettings, path: str | Path) -> UInt8[np.ndarray, "3 h w"]:
    """Read a picture file as a model trained with these settings sees it."""
    return crop_middle(read_picture(path, stored_side(data))[None], data.image_size)[0]


def decode_for(data: DataSettings, file: BinaryIO, name: str) -> UInt8[np.ndarray, "3 h w"]:
    """Decode an open picture file as a model trained with these settings sees it; `name` is what errors call it."""
    return crop_middle(decode_picture(file, stored_side(data), name)[None], data.image_size)[0]


def load_pictures(
    prepared: "Prepared",
    encoded: Encoded,
    indices: Int[np.ndarray, " b"] | Sequence[int],
    *,
    train: bool,
    data: DataSettings,
    seed: int = 0,
    epoch: int = 0,
) -> PictureBatch:
    """Load a batch of pictures of `encoded`, prepared.train or prepared.valid; equal calls give equal batches.

    With `train`, pictures are cut and mirrored as the settings say; without, the middle of each is taken as it is.
    """
    if prepared.pictures is None:
        raise ArgumentError("prepared: a corpus without pictures given, expected one from prepare_images")
    indices = np.asarray(indices, np.int64)
    lengths = np.asarray(encoded.lengths[indices]).astype(np.int64)
    starts = np.asarray(encoded.offsets[indices])
    rows = np.asarray(encoded.tokens[starts]).astype(np.int64)
    targets = np.asarray(encoded.tokens[expand_ranges(starts + 1, lengths[:, 1])]).astype(np.int64)
    pixels = prepared.pictures[rows]
    pixels = crop_and_flip(pixels, rows, data, seed, epoch) if train else crop_middle(pixels, data.image_size)
    images = torch.from_numpy(pixels)
    none = torch.zeros(0, dtype=torch.long)
    if prepared.labels:
        empty = torch.zeros(0, 0, dtype=torch.long)
        return PictureBatch(images, none, empty, none, torch.from_numpy(targets), len(targets))
    picture, target, predicted = map(torch.from_numpy, captions(targets, lengths[:, 1]))
    return PictureBatch(images, picture, target, predicted, none, int(predicted.sum()))


def captions(
    flat: Int64[np.ndarray, " t"], lengths: Int64[np.ndarray, " b"]
) -> tuple[Int64[np.ndarray, " r"], Int64[np.ndarray, "r n"], Int64[np.ndarray, " r"]]:
    """Return the picture of each caption, the captions' tokens from START to END, padded, and how many are to be
    predicted.
    """
    # An END behind every caption: those between them are there, the last one of each picture is not.
    ends = np.cumsum(lengths)
    closed = np.insert(flat, ends, END)
    stops = np.nonzero(closed == END)[0]
    predicted = np.diff(stops, prepend=-1)
    picture = np.searchsorted(ends + np.arange(len(ends)), stops)
    target = np.full((len(stops), int(predicted.max()) + 1), PAD, np.int64)
    target[:, 0] = START
    target[:, 1:][np.arange(target.shape[1] - 1) < predicted[:, None]] = closed
    return picture, target, predicted


def crop_middle(pixels: UInt8[np.ndarray, "b 3 s s"], size: int) -> UInt8[np.ndarray, "b 3 h w"]:
    """Crop every picture to its middle."""
    edge = (pixels.shape[-1] - size) // 2
    return np.ascontiguousarray(pixels[..., edge : edge + size, edge : edge + size])


def crop_and_flip(
    pixels: UInt8[np.ndarray, "b 3 s s"], indices: Int64[np.ndarray, " b"], data: DataSettings, seed: int, epoch: int
) -> UInt8[np.ndarray, "b 3 h w"]:
    """Crop every picture at a random place, and mirror some."""
    if not data.flip and not data.crop:
        return crop_middle(pixels, data.image_size)
    size = data.image_size
    key = mix_bits(mix_bits(mix_bits(seed) + np.uint64(epoch)) + np.uint64(1))
    bits = mix_bits(indices.astype(np.uint64) + key)
    room = np.uint64(pixels.shape[-1] - size + 1)
    top, left = mix_bits(bits + np.uint64(1)) % room, mix_bits(bits + np.uint64(2)) % room
    mirrored = (bits & np.uint64(1)).astype(bool) & data.flip
    crops = np.empty((len(pixels), 3, size, size), np.uint8)
    for i, (y, x) in enumerate(zip(top.tolist(), left.tolist(), strict=True)):
        part = pixels[i, :, y : y + size, x : x + size]
        crops[i] = part[..., ::-1] if mirrored[i] else part
    return crops
