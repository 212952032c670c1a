"""A model with planted attention: some heads look at the gold links, the others at random words."""

# b pairs · n rows · m source pieces
import torch
from torch import Tensor

from regard.attention import Attentive, Look
from regard.data import Tokenizers, train
from regard.models import Memory, Model, Tokens

WORDS = [f"w{number}" for number in range(12)]
TOKENIZERS = Tokenizers(train([" ".join(WORDS)], "word"))


def largest(weights: Tensor) -> list[tuple[int, int]]:
    """Return each row's first column of largest weight, as (column, row); skip rows that are zero or NaN."""
    found = []
    for i, row in enumerate(weights.tolist()):
        best = max(row, default=0.0) if all(value == value for value in row) else 0.0
        if best > 0:
            found.append((row.index(best), i))
    return found


class Cross(Attentive):
    """Cross-attention heads; each looks at the source word being written (0), read (1), or a random one (None)."""

    def __init__(self, heads: tuple[int | None, ...], noise: float = 0.1):
        super().__init__()
        self.heads, self.noise = heads, noise

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return source.new_zeros(1)

    def look(self, source: Tensor, target: Tensor) -> Look:
        """Compute the weights; the last row writes END, which is not a source word."""
        written = torch.cat([target[:, 1:], torch.full_like(target[:, :1], 2)], 1)
        rows = {0: written, 1: target}
        generator = torch.Generator().manual_seed(int(source.sum()))
        drawn = [torch.rand(*target.shape, source.shape[1], generator=generator) for _ in self.heads]
        weights = torch.stack(
            [
                self.noise * noise + (0 if which is None else (rows[which][..., None] == source[:, None]).float())
                for which, noise in zip(self.heads, drawn, strict=True)
            ],
            1,
        )
        weights = weights / weights.sum(-1, keepdim=True)
        return Look(context=weights, scores=weights, weights=weights)


class Planted(Model):
    """A model with one layer per argument, each with its heads. It cheats: it reads the whole target."""

    def __init__(self, *layers: tuple[int | None, ...]):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.ModuleDict({"cross": Cross(heads)}) for heads in layers)
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def encode(self, source: Tokens) -> Memory:
        return Memory(source.ids[..., None].float(), source.span, {"ids": source.ids})

    def decode(self, memory: Memory, target: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
        for layer in self.layers:
            layer["cross"](memory.sentence["ids"], target.ids)
        return target.ids[..., None].float(), {}


def pairs(sizes, draw) -> tuple[list[tuple[list[int], list[int]]], list[frozenset[tuple[int, int]]]]:
    """Return token numbers of sentence pairs and their links: distinct words, reversed or shuffled in the target."""
    found, gold = [], []
    for size in sizes:
        words = draw.sample(range(4, 4 + len(WORDS)), size)
        said = draw.sample(words, size)
        found.append((words, said))
        gold.append(frozenset((words.index(word), i) for i, word in enumerate(said)))
    return found, gold
