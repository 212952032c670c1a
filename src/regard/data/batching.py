"""Batches of sentences, padded or packed, and of pictures; their order is a function of (seed, epoch).

An epoch visits every pair in a pseudo-random order, window by window (about 100,000 pairs). Each window is sorted by
length and cut into batches that fill the token budget, which are then shuffled. The order comes from a Feistel network
over the indices, so it takes no memory proportional to the corpus, and from Regard's own hash function, so that a run
can be resumed exactly with any version of numpy.

A packed batch concatenates its sentences and pads the total to one of a few token counts, so that few shapes occur. A
GPU then computes nothing for the padding of a rectangle, and work per shape is done once. The padding forms extra
sentences after the real ones, which have no expected tokens.

Pictures are pixels as bytes, with their captions or labels. Cropping and mirroring are a function of (seed, epoch,
picture), so a resumed run sees the same pictures.
b rows or pictures · m source tokens · n target tokens · w pairs of a window
packed: s source tokens · t target tokens · r1 rows + 1
pictures: r captions of all of them · k labels, one per picture or none · h w height and width · s side as stored
"""

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Bool, Int, Int32, Int64, UInt8, UInt64
from torch import Tensor
from torch.nn import functional

from regard.data.alignments import Linking, Links
from regard.data.bpe_dropout import BpeDropout
from regard.data.cache import Encoded
from regard.data.pixels import crop_middle
from regard.data.settings import DataSettings
from regard.data.tokenizer import END, PAD, START
from regard.errors import ArgumentError

if TYPE_CHECKING:
    from regard.data.preparation import Prepared


WINDOW = 100_000
ROUNDS = 6


class Position(NamedTuple):
    """A position in the stream of batches."""

    epoch: int = 0
    batch: int = 0


class Order:
    """The order of pairs in training: windows of pairs, and the batches of each window."""

    def __init__(
        self,
        lengths: Int[np.ndarray, "n 2"],
        budget: int,
        *,
        seed: int = 0,
        rows: int | None = None,
        starts: Sequence[int] = (0,),
        weights: Sequence[float] = (1.0,),
        window: int = WINDOW,
    ):
        """Take `lengths`, the token counts of source and target without start and end; they may be a memory map.

        `budget`: rows × longest source and rows × (longest target + 1) stay within it; a longer pair is a batch of its
        own. `rows`: maximum pairs per batch. `starts` and `weights`: the first index of each corpus, and how often its
        pairs occur in an epoch: ⌊weight⌋ or ⌈weight⌉ times, weight on average.
        """
        if not len(lengths):
            raise ArgumentError("lengths: no pairs given, expected at least one")
        for name, value in (("budget", budget), ("rows", rows), ("window", window)):
            if value is not None and value < 1:
                raise ArgumentError(f"{name}: {value} given, expected at least 1")
        if len(starts) != len(weights) or not all(weight > 0 for weight in weights):
            raise ArgumentError(f"weights: {list(weights)} given, expected {len(starts)} numbers above 0")
        if starts[0] != 0 or list(starts) != sorted(starts) or starts[-1] > len(lengths):
            raise ArgumentError(f"starts: {list(starts)} given, expected 0 first, rising to at most {len(lengths)}")
        self.lengths, self.budget, self.seed, self.rows, self.window = lengths, budget, seed, rows, window
        # Each pair has ⌈weight⌉ slots; a hash decides which of the last slots are used.
        sizes = np.diff([*starts, len(lengths)])
        times = np.ceil(weights).astype(np.int64)
        self.starts, self.sizes = np.asarray(starts, np.int64), sizes.astype(np.int64)
        self.weights, self.times = np.asarray(weights, np.float64), times
        self.bounds = np.cumsum(self.sizes * times)
        self.slots = int(self.bounds[-1])

    def epoch(self, number: int) -> Iterator[Int64[np.ndarray, " b"]]:
        """Yield the batches of one epoch, as indices of pairs: a function of (seed, number)."""
        return itertools.chain.from_iterable(cut for _, cut in self.windows(number))

    def stream(self, position: Position = Position()) -> Iterator[tuple[Position, Int64[np.ndarray, " b"]]]:  # noqa: B008
        """Yield batches endlessly from a position on, each with its own position."""
        epoch, skipped = position
        while True:
            start = 0
            for count, batches in self.windows(epoch, before=skipped):
                for i, batch in enumerate(batches, start):
                    if i >= skipped:
                        yield Position(epoch, i), batch
                start += count
            epoch, skipped = epoch + 1, 0

    def windows(self, epoch: int, before: int = 0) -> Iterator[tuple[int, list[Int64[np.ndarray, " b"]]]]:
        """Yield each window's number of batches, and the batches; none for windows that end before batch `before`."""
        key = mix_bits(mix_bits(self.seed) + np.uint64(epoch))
        count = 0
        for start in range(0, self.slots, self.window):
            positions = np.arange(start, min(start + self.window, self.slots), dtype=np.uint64)
            indices = self.indices(permute(positions, self.slots, key), key)
            if not len(indices):
                continue
            indices, cuts = self.cut(indices)
            count += len(cuts) - 1
            if count <= before:
                yield len(cuts) - 1, []
                continue
            turns = mix_bits(np.arange(len(cuts) - 1, dtype=np.uint64) + mix_bits(key + np.uint64(start)))
            yield len(turns), [indices[cuts[i] : cuts[i + 1]] for i in np.argsort(turns, kind="stable")]

    def indices(self, positions: UInt64[np.ndarray, " w"], key: UInt64[np.ndarray, " 1"]) -> Int64[np.ndarray, " v"]:
        """Return the pairs at positions of the epoch; if a weight is not an integer, some positions have no pair."""
        at = positions.astype(np.int64)
        if (self.weights == 1).all():
            return at
        corpus = np.searchsorted(self.bounds, at, side="right")
        inside = at - np.concatenate([[0], self.bounds])[corpus]
        time, pair = inside // self.sizes[corpus], inside % self.sizes[corpus]
        index = self.starts[corpus] + pair
        part = self.weights[corpus] - (self.times[corpus] - 1)  # probability of the last slot, in (0, 1]
        uniform = mix_bits(index.astype(np.uint64) + mix_bits(key + np.uint64(1))) / np.float64(2**64)
        keep: Bool[np.ndarray, " w"] = (time < self.times[corpus] - 1) | (uniform < part) | (part == 1)
        return index[keep]

    def cut(self, indices: Int64[np.ndarray, " w"]) -> tuple[Int64[np.ndarray, " w"], list[int]]:
        """Sort a window by length and return it with the bounds of its batches.

        Sort by the longer side, which alone decides how many rows fit, then by the difference of the sides, alternately
        ascending and descending, so that neighbours stay similar where the longer side changes. (Sorting by target,
        then source, gives 50 % more padding.)
        """
        lengths = np.asarray(self.lengths[indices]).astype(np.int64)
        lengths[:, 1] += 1  # START or END
        longer, difference = lengths.max(1), lengths[:, 0] - lengths[:, 1]
        order = np.lexsort((np.where(longer % 2, -difference, difference), longer))
        longer, count, start, cuts = longer[order], len(longer), 0, [0]
        while start < count:
            most = max(1, min(self.budget // int(longer[start]), self.rows or self.budget, count - start))
            # Rows × longest grows monotonically, so the batch ends before the first row that exceeds the budget.
            needed = longer[start : start + most] * np.arange(1, most + 1)
            start += max(1, int(np.searchsorted(needed, self.budget, side="right")))
            cuts.append(start)
        return indices[order], cuts


def mix_bits(numbers: UInt64[np.ndarray, " w"] | int) -> UInt64[np.ndarray, " _"]:
    """Scramble every number with SplitMix64; numpy arrays, unlike numpy scalars, overflow without a warning."""
    x = np.array([numbers % 2**64], np.uint64) if isinstance(numbers, int) else numbers
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permute(positions: UInt64[np.ndarray, " w"], count: int, key: UInt64[np.ndarray, " 1"]) -> UInt64[np.ndarray, " w"]:
    """Map positions by a pseudo-random permutation of 0 … count - 1.

    A Feistel network over pairs (left, right) of about √count numbers each; a result beyond the range is permuted again
    until it falls inside.
    """
    wide = int(np.ceil(np.sqrt(count)))
    high = -(-count // wide)
    keys = mix_bits(key + np.arange(2, 2 + ROUNDS, dtype=np.uint64))
    result, walking = positions.copy(), np.arange(len(positions))
    while len(walking):
        left, right = np.divmod(result[walking], np.uint64(wide))
        for number, each in enumerate(keys):
            if number % 2:
                right = (right + mix_bits(left + each) % np.uint64(wide)) % np.uint64(wide)
            else:
                left = (left + mix_bits(right + each) % np.uint64(high)) % np.uint64(high)
        result[walking] = left * np.uint64(wide) + right
        walking = walking[result[walking] >= count]
    return result


@dataclass(frozen=True, eq=False)
class TensorBatch:
    """A batch of tensors that can be moved to a device together, and split by rows."""

    one: ClassVar[str] = "one row"

    def __len__(self) -> int:
        raise NotImplementedError

    def part(self, first: int, last: int) -> Any:
        """Return rows `first` to `last` - 1, without needless padding."""
        raise NotImplementedError

    def halves(self) -> tuple[Self, Self]:
        """Split the batch into two halves, each without needless padding."""
        if len(self) < 2:
            raise ArgumentError(f"a batch of {self.one} cannot be halved")
        middle = (len(self) + 1) // 2
        return self.part(0, middle), self.part(middle, len(self))

    def map_tensors(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Return a copy with `move` applied to every tensor."""
        moved = {name: move(value) for name, value in vars(self).items() if isinstance(value, Tensor)}
        linked = {name: value.map_tensors(move) for name, value in vars(self).items() if isinstance(value, Links)}
        return replace(self, **moved, **linked)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """Return a copy on a device."""
        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return a copy in pinned memory, which a GPU can read asynchronously."""
        return self.map_tensors(Tensor.pin_memory)

    def each(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Call `map_tensors`; this is its old, deprecated name."""
        if type(self).each is not TensorBatch.each:  # a plugin's override called super().each
            return TensorBatch.map_tensors(self, move)
        warnings.warn("each is now called map_tensors", DeprecationWarning, stacklevel=2)
        return self.map_tensors(move)

    def __init_subclass__(cls, **options: Any) -> None:
        """Make a plugin's own `each` its `map_tensors`."""
        super().__init_subclass__(**options)
        if "each" in vars(cls) and "map_tensors" not in vars(cls):
            warnings.warn(f"{cls.__name__}.each is now called map_tensors", DeprecationWarning, stacklevel=2)
            cls.map_tensors = cls.each  # type: ignore[method-assign]


@dataclass(frozen=True)
class Batch(TensorBatch):
    """A batch of sentence pairs, padded to the longest sentence of each side."""

    source: Int64[Tensor, "b m"]
    source_lengths: Int64[Tensor, " b"]
    target: Int64[Tensor, "b n"]  # START … END
    target_lengths: Int64[Tensor, " b"]  # tokens to predict: with END, without START
    tokens: int  # the sum of target_lengths
    links: Links | None = None  # links between pieces, if requested

    def __len__(self) -> int:
        return len(self.source)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Return the batch's shape, or None if it has links; batches of equal shape differ only in their values."""
        return None if self.links is not None else (*self.source.shape, *self.target.shape)

    def part(self, first: int, last: int) -> "Batch":
        """Return rows `first` to `last` - 1; this reads lengths back from the device."""
        rows = slice(first, last)
        source_lengths, target_lengths = self.source_lengths[rows], self.target_lengths[rows]
        source = self.source[rows, : int(source_lengths.max())]
        target = self.target[rows, : int(target_lengths.max()) + 1]
        links = None if self.links is None else self.links.part(first, last)
        return Batch(source, source_lengths, target, target_lengths, int(target_lengths.sum()), links)


Pairs = Sequence[tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]]


def collate(pairs: Pairs) -> Batch:
    """Build a batch from encoded pairs without start and end."""
    if not pairs:
        raise ArgumentError("pairs: none given, expected at least one")
    sides, lengths = flat(pairs)
    return pad_pairs(sides[0], sides[1], lengths)


def flat(pairs: Pairs) -> tuple[list[Int64[np.ndarray, " _"]], Int64[np.ndarray, "b 2"]]:
    """Concatenate the tokens of each side, and return them with all lengths."""
    lengths = np.array([[len(source), len(target)] for source, target in pairs], np.int64)
    return [np.concatenate([np.asarray(pair[side], np.int64) for pair in pairs]) for side in (0, 1)], lengths


def load(
    encoded: Encoded,
    indices: Int[np.ndarray, " b"] | Sequence[int],
    dropout: BpeDropout | None = None,
    epoch: int = 0,
    longest: int | None = None,
    linking: Linking | None = None,
) -> Batch:
    """Load a batch of pairs from a cache, re-split by `dropout` if given; equal calls give equal batches.

    Re-split pairs are longer than the lengths that filled the budget, by about a quarter at p = 0.1; a pair that would
    exceed `longest` stays as it was. `linking` adds the links of the pairs' words to the batch.
    """
    sides, lengths, same = read(encoded, indices, dropout, epoch, longest, linking)
    batch = pad_pairs(sides[0], sides[1], lengths)
    if linking is None:
        return batch
    return replace(batch, links=linking.links(encoded, np.asarray(indices, np.int64), sides, lengths, same))


def read(
    encoded: Encoded,
    indices: Int[np.ndarray, " b"] | Sequence[int],
    dropout: BpeDropout | None = None,
    epoch: int = 0,
    longest: int | None = None,
    linking: Linking | None = None,
) -> tuple[list[np.ndarray], Int64[np.ndarray, "b 2"], Bool[np.ndarray, " b"] | None]:
    """Return the concatenated tokens of both sides, all lengths, and which re-split pairs still match their links."""
    indices = np.asarray(indices, np.int64)
    lengths = np.asarray(encoded.lengths[indices]).astype(np.int64)
    starts = np.asarray(encoded.offsets[indices])
    sides = [encoded.tokens[expand_ranges(starts + lengths[:, 0] * side, lengths[:, side])] for side in (0, 1)]
    same: Bool[np.ndarray, " b"] | None = None
    if dropout is not None:
        pairs: list[tuple[Sequence[int], Sequence[int]]] = []
        for i in indices.tolist():
            source, target = (side.tolist() for side in encoded.pair(i))
            anew = dropout.pair(source, target, epoch=epoch, index=i)
            pairs.append((source, target) if longest is not None and max(map(len, anew)) > longest else anew)
        before, (sides, lengths) = (sides, lengths), flat(pairs)
        if linking is not None:  # a tokenizer made elsewhere may find other words in the re-split text
            cuts = zip(linking.cuts(*before), linking.cuts(sides, lengths), strict=True)
            same = np.all([old.counts == new.counts for old, new in cuts], 0)
    return sides, lengths, same


def expand_ranges(starts: Int64[np.ndarray, " b"], lengths: Int64[np.ndarray, " b"]) -> Int64[np.ndarray, " t"]:
    """Expand each start and length to start, start + 1, …, and concatenate these ranges."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)


def pad_pairs(
    sources: Int[np.ndarray, " s"], targets: Int[np.ndarray, " t"], lengths: Int64[np.ndarray, "b 2"]
) -> Batch:
    """Pad the concatenated tokens of all rows to a rectangle for each side."""
    m, n = lengths.max(0)
    source = np.full((len(lengths), m), PAD, np.int64)
    source[np.arange(m) < lengths[:, :1]] = sources
    target = np.full((len(lengths), n + 2), PAD, np.int64)
    inside = np.arange(n) < lengths[:, 1:]
    target[:, 0] = START
    target[:, 1:-1][inside] = targets
    target[np.arange(len(lengths)), lengths[:, 1] + 1] = END
    predicted = lengths[:, 1] + 1
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(lengths[:, 0].copy()),
        torch.from_numpy(target),
        torch.from_numpy(predicted),
        int(predicted.sum()),
    )


# ---- packed batches


NOTHING = -1  # the expected token of padding; the loss ignores it
PARTS = 24  # token counts are rounded up by at most 1/24 of the budget, half of that on average
LEAST_ROWS, LEAST_LONGEST = 8, 16


@dataclass(frozen=True)
class PackedBatch(TensorBatch):
    """A batch of concatenated sentences; all numbers are in one tensor, so that one copy moves them to a device."""

    numbers: Int32[Tensor, " k"]
    sizes: tuple[int, int]  # tokens of source and target, including padding
    rows: int  # sentences, including padding sentences and empty ones
    longest: int  # an upper bound of the lengths of sentences
    tokens: int  # tokens to predict
    real: int  # sentences that are not padding; they come first

    def __len__(self) -> int:
        return self.real

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the batch's shape; batches of equal shape differ only in their values."""
        return *self.sizes, self.rows, self.longest

    def parts(self) -> tuple[Tensor, ...]:
        """Split into source, decoder input, expected next tokens, and the offsets of source and target."""
        source, target = self.sizes
        return self.numbers.split([source, target, target, self.rows + 1, self.rows + 1])

    @property
    def source(self) -> Int32[Tensor, " s"]:
        """The source tokens."""
        return self.parts()[0]

    @property
    def target(self) -> Int32[Tensor, " t"]:
        """The tokens that the decoder reads, with START and without END."""
        return self.parts()[1]

    @property
    def expected(self) -> Int32[Tensor, " t"]:
        """The token that follows each target token; -1 for padding."""
        return self.parts()[2]

    def part(self, first: int, last: int) -> "PackedBatch":
        """Return sentences `first` to `last` - 1, for a batch on the host; it pads little, because memory is short."""
        source, _, expected, *offsets = (part.numpy() for part in self.parts())
        bounds = [offset[first : last + 1].astype(np.int64) for offset in offsets]
        lengths = np.stack([np.diff(bound) for bound in bounds], 1)
        lengths[:, 1] -= 1
        cut = [side[bound[0] : bound[-1]] for side, bound in zip((source, expected), bounds, strict=True)]
        inside = np.ones(len(cut[1]), bool)
        inside[np.cumsum(lengths[:, 1] + 1) - 1] = False  # the ENDs
        return pack(cut[0], cut[1][inside], lengths, 1)


def pack(sources: np.ndarray, targets: np.ndarray, lengths: Int64[np.ndarray, "b 2"], step: int) -> PackedBatch:
    """Pack concatenated rows of tokens without start and end; token counts are rounded up to multiples of `step`."""
    lengths = lengths + np.array([0, 1])
    real = lengths.sum(0)
    longest = round_up(int(lengths.max()), LEAST_LONGEST)
    sizes = -(-real // step) * step
    # The padding forms as few sentences as possible, of about equal lengths on each side.
    filling = int((-(-(sizes - real) // longest)).max())
    more = np.stack([np.diff(np.linspace(0, gap, filling + 1).astype(np.int64)) for gap in sizes - real], 1)
    rows = round_up(len(lengths) + filling, LEAST_ROWS)
    all_lengths = np.zeros((rows + 1, 2), np.int64)
    all_lengths[1 : len(lengths) + 1] = lengths
    all_lengths[len(lengths) + 1 : len(lengths) + filling + 1] = more
    offsets = np.cumsum(all_lengths, 0)
    source = np.full(sizes[0], PAD)
    source[: real[0]] = sources
    read, expected = np.full(sizes[1], PAD), np.full(sizes[1], NOTHING)
    begins, ends = offsets[: len(lengths), 1], offsets[1 : len(lengths) + 1, 1] - 1
    first, last = np.ones(real[1], bool), np.ones(real[1], bool)
    first[begins], last[ends] = False, False
    read[begins], expected[ends] = START, END
    read[: real[1]][first] = targets
    expected[: real[1]][last] = targets
    numbers = np.concatenate([source, read, expected, offsets[:, 0], offsets[:, 1]]).astype(np.int32)
    return PackedBatch(
        torch.from_numpy(numbers), (int(sizes[0]), int(sizes[1])), rows, longest, int(real[1]), len(lengths)
    )


def step_of(budget: int) -> int:
    """Choose the multiple to which token counts are rounded up: a power of two, at most 1/24 of the budget or 16."""
    return max(16, 1 << max(0, (budget // PARTS).bit_length() - 1))


def round_up(number: int, least: int) -> int:
    """Round up to a power of two that is at least `least`."""
    return max(least, 1 << (number - 1).bit_length())


def pad_up(batch: Batch, columns: int = 4) -> Batch:
    """Pad a batch further: lengths to multiples of `columns`, and the number of rows to a multiple of 8.

    Batches of more than 256 rows are padded to a larger multiple, by at most a sixteenth of their rows. The additional
    rows have a source of one padding token and no tokens to predict.
    """
    rows = len(batch)
    grain = max(8, round_up(rows, 8) // 32)
    more = -rows % grain
    if batch.links is not None:
        raise ArgumentError("links: given, expected none: a batch with links cannot be rounded up")
    m, n = (-(-size // columns) * columns for size in (batch.source.shape[1], batch.target.shape[1] - 1))
    source = functional.pad(batch.source, (0, m - batch.source.shape[1], 0, more), value=PAD)
    target = functional.pad(batch.target, (0, n + 1 - batch.target.shape[1], 0, more), value=PAD)
    source_lengths = functional.pad(batch.source_lengths, (0, more), value=1)
    return Batch(source, source_lengths, target, functional.pad(batch.target_lengths, (0, more)), batch.tokens)


# ---- pictures


@dataclass(frozen=True)
class PictureBatch(TensorBatch):
    """A batch of different pictures with all their captions, or with their labels."""

    one = "one picture"
    pixels: UInt8[Tensor, "b 3 h w"]
    picture: Int64[Tensor, " r"]  # the index of each caption's picture, ascending
    target: Int64[Tensor, "r n"]  # START … END
    target_lengths: Int64[Tensor, " r"]  # tokens to predict: with END, without START
    labels: Int64[Tensor, " k"]
    tokens: int  # tokens to predict in all captions, or the number of labels

    def __len__(self) -> int:
        return len(self.pixels)

    def part(self, first: int, last: int) -> "PictureBatch":
        """Return pictures `first` to `last` - 1; this reads lengths back from the device."""
        rows = (self.picture >= first) & (self.picture < last)
        lengths, labels = self.target_lengths[rows], self.labels[first:last]
        width = int(lengths.max()) + 1 if len(lengths) else 0
        tokens = int(lengths.sum()) if len(self.picture) else len(labels)
        target = self.target[rows, :width]
        return PictureBatch(self.pixels[first:last], self.picture[rows] - first, target, lengths, labels, tokens)


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

    With `train`, pictures are cropped at random and mirrored as the settings say; otherwise, they are cropped to their
    middle.
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
    """Return each caption's picture, its padded tokens from START to END, and its number of tokens to predict."""
    # `flat` has an END between captions; add one after the last caption of each picture.
    ends = np.cumsum(lengths)
    closed = np.insert(flat, ends, END)
    stops = np.nonzero(closed == END)[0]
    predicted = np.diff(stops, prepend=-1)
    picture = np.searchsorted(ends + np.arange(len(ends)), stops)
    target = np.full((len(stops), int(predicted.max()) + 1), PAD, np.int64)
    target[:, 0] = START
    target[:, 1:][np.arange(target.shape[1] - 1) < predicted[:, None]] = closed
    return picture, target, predicted


def crop_and_flip(
    pixels: UInt8[np.ndarray, "b 3 s s"], indices: Int64[np.ndarray, " b"], data: DataSettings, seed: int, epoch: int
) -> UInt8[np.ndarray, "b 3 h w"]:
    """Crop every picture at a random place and mirror some, as the settings say."""
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
