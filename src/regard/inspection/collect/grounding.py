"""Attention over many items without exhibits: the places that a caption's words attend to, and a document's weights.

A captioning model is teacher forced. In drawn scenes it is known which shape a word describes, so that the share of
words that attend to their shape can be measured. A `han` model gives the weights of a document's words and sentences.
"""

# b pictures · n pieces · i words · y x rows and columns of the grid · h w height and width of a picture
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.attention import Look, call_records
from regard.data import PAD, START, DataSettings, PicturedExample, Splitter, Tokenizer, document_texts
from regard.decoding import documents_of
from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import merge
from regard.models import Model, Pictures, Tokens

ROWS = 64  # pictures in a batch
Box = tuple[int, int, int, int]


@torch.no_grad()
def attention_maps(
    model: Model, tokenizer: Tokenizer, pixels: UInt8[Tensor, "b 3 h w"], texts: Sequence[str]
) -> list[Float[Tensor, "i y x"]]:
    """Return the weight of each word of a picture's caption on each place of the grid, averaged over heads.

    The weights are of the last but one cross-attention of more than three, otherwise of the last. Words are those of
    the text as the tokenizer writes it.
    """
    maps = list[Tensor]()
    for ids, look, grid in watch_captions(model, tokenizer, pixels, texts):
        weights = look.weights
        weights = (weights.mean(1) if weights.ndim == 4 else weights).float().cpu()
        for each, rows in zip(ids, weights, strict=True):
            # The weights with which a piece is written are in the row of the piece before it.
            words = merge(rows[: len(each)], tokenizer.words(each), list(range(rows.shape[-1])))
            maps.append(words.unflatten(-1, grid))
    return maps


def watch_captions(
    model: Model, tokenizer: Tokenizer, pixels: UInt8[Tensor, "b 3 h w"], texts: Sequence[str]
) -> Iterator[tuple[list[list[int]], Look, tuple[int, int]]]:
    """Yield, batch by batch, the token numbers of captions, the `Look` of the cross-attention, and the grid's size."""
    device = next(model.parameters()).device
    if not model.cross_attentions:
        raise ArgumentError("model: no attention in it, expected a model that looks at places of the picture")
    if len(texts) != len(pixels):
        raise ArgumentError(f"texts: {len(texts)} given, expected one for each of {len(pixels)} pictures")
    name = model.alignment_attention
    for first in range(0, len(pixels), ROWS):
        ids = tokenizer.encode_batch(list(texts[first : first + ROWS]))
        read = torch.full((len(ids), max(map(len, ids)) + 1), PAD)
        read[:, 0] = START
        for row, each in enumerate(ids):
            read[row, 1 : len(each) + 1] = torch.tensor(each, dtype=torch.long)
        target = Tokens.of(read.to(device), torch.tensor([len(each) + 1 for each in ids], device=device))
        memory = model.encode(Pictures(pixels[first : first + ROWS].to(device)))
        with call_records.watch_call(model, only=[name]) as looks:
            model.decode(memory, target)
        assert memory.grid is not None
        yield ids, looks[name], memory.grid


@dataclass(frozen=True)
class Grounding:
    """The share of words that attend to the shape that they describe."""

    words: int  # number of words that describe a shape
    right: int
    chance: float  # the expected share for random places

    @property
    def share(self) -> float:
        """Return the share of correct words, 0 to 1."""
        return self.right / self.words if self.words else 0.0

    def __str__(self) -> str:
        return f"{self.share:.1%} of {self.words:,} words look at their shape ({self.chance:.1%} by chance)"


def grounding(model: Model, tokenizer: Tokenizer, examples: Sequence[PicturedExample]) -> Grounding:
    """Measure how often the largest weight of a word for a size, colour or kind of shape is on the shape it describes.

    A place is on a shape if its centre is within the shape's box, enlarged by half a place on every side, because a
    shape can reach into a place without covering its centre. The words are those of the scenes' own captions.
    """
    pixels = torch.stack([torch.from_numpy(each.picture()).movedim(-1, 0) for each in examples])
    words = right = 0
    chance = 0.0
    for example, maps in zip(
        examples, attention_maps(model, tokenizer, pixels, [each.target for each in examples]), strict=True
    ):
        on = [on_box(box, (maps.shape[1], maps.shape[2]), example.size) for box in example.boxes]
        for shape, weights in zip(example.speaks_of, maps, strict=True):
            if shape >= 0:
                words += 1
                right += bool(on[shape].flatten()[weights.argmax()])
                chance += float(on[shape].float().mean())
    return Grounding(words, right, chance / max(1, words))


def on_box(box: Box, grid: tuple[int, int], side: int) -> Tensor:
    """Return a mask [y x] of the places of a grid that are on a box, by the rule of `grounding`."""
    left, top, right, bottom = box
    (down, across), (height, width) = (torch.arange(size) for size in grid), (side / size for size in grid)
    rows, columns = (down + 0.5) * height, (across + 0.5) * width
    inside = (rows >= top - height / 2) & (rows <= bottom + height / 2)
    beside = (columns >= left - width / 2) & (columns <= right + width / 2)
    return inside[:, None] & beside


# ---- documents


@dataclass(frozen=True)
class WeighedSentence:
    """A sentence with its weight in the document and the weights of its words; both kinds of weights sum to one."""

    words: list[str]
    weights: list[float]
    weight: float

    @property
    def counts(self) -> list[float]:
        """Return the share of each word in the document; over all sentences they sum to one."""
        return [self.weight * weight for weight in self.weights]


def weigh(
    model: Model, tokenizer: Tokenizer, data: DataSettings, texts: Sequence[str], splitter: Splitter | None = None
) -> list[list[WeighedSentence]]:
    """Return the sentences of each text with the weights of a `han` model; a text without words has no sentences.

    A word's weight is the sum of its pieces' weights. Texts are processed one by one because they may be of any length.
    """
    rows, _ = document_texts.encode_documents(texts, tokenizer, data, document_texts.splitter_of(data, splitter))
    device = next(model.parameters()).device
    result = list[list[WeighedSentence]]()
    for row in rows:
        documents = documents_of([row], device)
        words, sentences = model.weigh_documents(documents) if row else (torch.zeros(0, 0), torch.zeros(1, 0))
        result.append([])
        for number, length in enumerate(documents.words.lengths.tolist()):
            ids = documents.words.ids[number, :length].tolist()
            written = tokenizer.decode(ids).split()
            summed = [0.0] * len(written)
            for place, weight in zip(tokenizer.words(ids), words[number].tolist(), strict=False):
                if place is not None and place < len(written):
                    summed[place] += weight
            result[-1].append(WeighedSentence(written, summed, float(sentences[0, number])))
    return result
