r"""A small encoder-decoder whose attention is handed to it.

The encoder is a bidirectional GRU (Bahdanau et al. 2015, arXiv:1409.0473, section 3.2). The decoder is Luong's (2015,
arXiv:1508.04025, section 3): the query is the current state $h_t$ and $\tilde h_t = \tanh(W [c_t; h_t])$, without input
feeding, so that in training all steps attend at once. Whatever maps (query, memory, span) to a context fits in: an
`Attention` or `Heads`.

Two departures keep an annotation about its own word, and so make the weights readable as alignments: the word's
embedding is added to its annotation, two fifths of whose recurrent part are dropped in training, and the decoder starts
from a summary too narrow to carry words.

b sentences · n target words · m source words · d width
"""

import typing
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Heads
from regard.attention.score import Additive, Dot, General
from regard.attention.span import Lengths, Predictive

__all__ = ["MECHANISMS", "Mechanism", "Translator", "Vocabulary"]

PAD, START, END = 0, 1, 2
SUMMARY = 8  # numbers: enough for the form of a sentence, not for its words


class Mechanism(typing.NamedTuple):
    """An attention, by the paper it is from."""

    paper: str
    build: Callable[[int], Attention | Heads]


MECHANISMS = {
    "additive": Mechanism("Bahdanau 2015", lambda d: Attention(Additive(d, d, hidden=d))),
    "general": Mechanism("Luong 2015", lambda d: Attention(General(d, d))),
    "scaled dot": Mechanism("Vaswani 2017", lambda d: Attention(Dot(scaled=True))),
    "local-p": Mechanism("Luong 2015", lambda d: Attention(General(d, d), span=Predictive(d, radius=3))),
    "multi-head": Mechanism("Vaswani 2017", lambda d: Heads(d, heads=2)),
}


class Vocabulary:
    """Words and their numbers."""

    def __init__(self, sentences: Sequence[Sequence[str]]):
        self.words = ["", "<s>", "</s>", *sorted({word for sentence in sentences for word in sentence})]
        self.numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, sentences: Sequence[Sequence[str]], end: bool = False) -> Int[Tensor, "b m"]:
        """Words to numbers, END after each sentence if asked for, PAD to the same length."""
        last = [END] if end else []
        rows = [torch.tensor([*(self.numbers[word] for word in sentence), *last]) for sentence in sentences]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)

    def decode(self, row: Sequence[int]) -> tuple[str, ...]:
        """Numbers to words, up to the first END."""
        stop = row.index(END) if END in row else len(row)
        return tuple(self.words[number] for number in row[:stop])


class Translator(nn.Module):
    """Encoder, decoder, and any attention between them."""

    def __init__(self, sources: int, targets: int, attention: Attention | Heads, size: int):
        super().__init__()
        self.source = nn.Embedding(sources, size, padding_idx=PAD)
        self.target = nn.Embedding(targets, size, padding_idx=PAD)
        self.encoder = nn.GRU(size, size // 2, bidirectional=True, batch_first=True)
        self.summary = nn.Sequential(nn.Linear(size, SUMMARY), nn.Tanh(), nn.Linear(SUMMARY, size), nn.Tanh())
        self.decoder = nn.GRU(size, size, batch_first=True)
        self.attention = attention
        self.mix = nn.Linear(2 * size, size)
        self.output = nn.Linear(size, targets)
        self.dropout, self.doubt = nn.Dropout(0.1), nn.Dropout(0.4)
        with torch.no_grad():  # queries are states between -1 and 1; keys of a like size keep the first softmax soft
            self.source.weight.mul_(0.3)
            self.target.weight.mul_(0.3)

    def encode(self, source: Int[Tensor, "b m"]) -> tuple[Float[Tensor, "b m d"], Lengths]:
        """What the decoder attends to, and how much of it is padding."""
        lengths = (source != PAD).sum(-1)
        embedded = self.dropout(self.source(source))
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        annotations, _ = nn.utils.rnn.pad_packed_sequence(
            self.encoder(packed)[0], batch_first=True, total_length=source.shape[1]
        )
        return self.doubt(annotations) + embedded, Lengths(lengths)

    def begin(self, memory: Float[Tensor, "b m d"]) -> Float[Tensor, "1 b d"]:
        """The decoder's first state, from the annotation that the backward GRU reached last."""
        return self.summary(memory[:, 0])[None]

    def states(self, memory: Float[Tensor, "b m d"], target: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        """The decoder's state after reading each of `target`."""
        return self.decoder(self.dropout(self.target(target)), self.begin(memory))[0]

    def read(self, states: Float[Tensor, "b n d"], context: Float[Tensor, "b n d"]) -> Float[Tensor, "b n v"]:
        """From states and contexts to the scores of the next word."""
        return self.output(self.dropout(torch.tanh(self.mix(torch.cat([context, states], -1)))))

    def forward(self, source: Int[Tensor, "b m"], target: Int[Tensor, "b n"]) -> Float[Tensor, "b n v"]:
        """Teacher forcing: all steps at once."""
        memory, span = self.encode(source)
        states = self.states(memory, target)
        return self.read(states, self.attention(states, memory, span=span))

    @torch.no_grad()
    def weights(self, source: Int[Tensor, "b m"], target: Int[Tensor, "b n"]) -> Float[Tensor, "b n m"]:
        """Where it looked for each word; the mean over heads where there are heads."""
        memory, span = self.encode(source)
        weights = self.attention.look(self.states(memory, target), memory, span=span).weights
        return weights if weights.dim() == 3 else weights.mean(1)

    @torch.no_grad()
    def translate(self, source: Int[Tensor, "b m"], limit: int = 16) -> Int[Tensor, "b n"]:
        """The best next word, again and again."""
        memory, span = self.encode(source)
        words = torch.full((len(source), 1), START)
        state = self.begin(memory)
        for _ in range(limit):
            last, state = self.decoder(self.target(words[:, -1:]), state)
            scores = self.read(last, self.attention(last, memory, span=span))
            words = torch.cat([words, scores.argmax(-1)], 1)
            if bool((words == END).any(1).all()):
                break
        return words[:, 1:]
