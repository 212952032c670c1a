"""A plugin: a small kind of model for every task, none of which does more than the contract requires.

With `attends = true` each uses attention over its input; otherwise it has no attention. They do not use Regard's own
kinds, and Regard does not know them.
"""

from dataclasses import dataclass

import torch
from torch import nn

import regard
from regard.attention import Attention, Causal, Dot, Learned, Lengths, Prepared
from regard.config import option
from regard.models import Kind, Memory, Model, ModelConfig
from regard.models.contract import State


@dataclass(frozen=True)
class OwnConfig(ModelConfig):
    size: int = option(8, "width of embeddings and states", least=1, most=4096)
    attends: bool = option(False, "look at what is read")


class Writer(Model):
    """A GRU that starts from the mean of the memory, and may attend to it before every word."""

    def __init__(self, config, source, target):
        super().__init__()
        self.config, size = config, config.size
        self.words, self.readout = nn.Embedding(target, size), nn.Linear(size, target)
        self.cell = nn.GRUCell(2 * size if config.attends else size, size)
        if config.attends:
            self.attention = Attention(Dot())

    def decode(self, memory, target):
        state, states = mean_of(memory), []
        for words in self.words(target.ids).unbind(1):
            if self.config.attends:
                seen = self.attention(state[:, None], memory.states, memory.states, span=memory.span)
                words = torch.cat([words, seen[:, 0]], -1)
            states.append(state := self.cell(words, state))
        return torch.stack(states, 1), {}

    def start(self, memory, rows=1, size=256, coverage=False):
        row = {"state": mean_of(memory).repeat_interleave(rows, 0)}
        if not self.config.attends:
            return State({"states": memory.states}, row, rows)
        return State({"keys": Prepared(memory.states, memory.states, self.attention, memory.lengths)}, row, rows)

    def step(self, tokens, state):
        words, before = self.words(tokens), state.row["state"].clone()
        if self.config.attends:
            seen = self.attention(state.group_rows(before[:, None]), state.sentence["keys"]).flatten(0, 1)
            words = torch.cat([words, seen], -1)
        state.row["state"].copy_(self.cell(words, before))
        return self.output(state.row["state"]), state


def mean_of(memory):
    """Return the mean of the real states."""
    real = torch.arange(memory.states.shape[1], device=memory.states.device) < memory.lengths[:, None]
    return memory.states.masked_fill(~real[..., None], 0).sum(1) / memory.lengths.clamp(min=1)[:, None]


class Translator(Writer):
    """Translate sentences."""

    def __init__(self, config, source, target):
        super().__init__(config, source, target)
        self.source = nn.Embedding(source, config.size)

    def encode(self, source):
        return Memory(self.source(source.ids), source.span)


class Captioner(Writer):
    """Caption from places of a grid; from their mean alone without attention."""

    def __init__(self, config, source, target):
        super().__init__(config, source, target)
        self.places = nn.Conv2d(3, config.size, 8, 8)

    def encode(self, source):
        grid = self.places(source.pixels / 255)
        states = grid.flatten(-2).mT
        states = states if self.config.attends else states.mean(1, keepdim=True)
        lengths = torch.full((len(states),), states.shape[1], device=states.device)
        return Memory(states, Lengths(lengths), grid=(grid.shape[-2], grid.shape[-1]) if self.config.attends else None)


class LanguageModel(Model):
    """A GRU that may attend to its earlier states."""

    def __init__(self, config, source, target):
        super().__init__()
        self.config, size = config, config.size
        self.words, self.readout = nn.Embedding(target, size), nn.Linear(size, target)
        self.net = nn.GRU(size, size, batch_first=True)
        if config.attends:
            self.back = Attention(Dot())

    def encode(self, source):
        rows = len(source.lengths)
        return Memory(self.readout.weight.new_zeros(rows, 0, 1), Lengths(source.lengths.new_zeros(rows)))

    def decode(self, memory, target):
        states, _ = self.net(self.words(target.ids))
        return states + self.back(states, states, span=Causal()) if self.config.attends else states, {}

    def start(self, memory, rows=1, size=256, coverage=False):
        count, width = len(memory.lengths) * rows, self.config.size
        row = {"state": memory.states.new_zeros(count, width)}
        return State(
            {},
            row | ({"past": self.back.cache(count, size, keys=width, values=width)} if self.config.attends else {}),
            rows,
        )

    def step(self, tokens, state):
        states, last = self.net(self.words(tokens)[:, None], state.row["state"][None])
        state.row["state"].copy_(last[0])
        if self.config.attends:
            state.row["past"].extend(self.back.prepare(states))
            states = states + self.back(states, state.row["past"])
        return self.output(states[:, 0]), state


class Classifier(Model):
    """Classify by the input's mean, or by a learned query's context."""

    def __init__(self, config, source, target):
        super().__init__()
        self.config, size = config, config.size
        self.read = nn.Embedding(source, size) if source else nn.Conv2d(3, size, 8, 8)
        self.readout = nn.Linear(size, target)
        if config.attends:
            self.pooling = Attention(Dot(), query=Learned(1, size))

    def encode(self, source):
        if hasattr(source, "pixels"):
            grid = self.read(source.pixels / 255)
            lengths = torch.full((len(grid),), grid[0, 0].numel(), device=grid.device)
            return Memory(grid.flatten(-2).mT, Lengths(lengths), grid=(grid.shape[-2], grid.shape[-1]))
        return Memory(self.read(source.ids), source.span)

    def classify(self, memory):
        if not self.config.attends:
            return self.output(mean_of(memory))
        return self.output(self.pooling(None, memory.states, span=memory.span)[:, 0])


for name, model, task, reads in (
    ("own-translator", Translator, "translate", "text"),
    ("own-captioner", Captioner, "caption", "pictures"),
    ("own-language-model", LanguageModel, "language-model", "text"),
    ("own-classifier", Classifier, "classify", "text"),
    ("own-picture-classifier", Classifier, "classify", "pictures"),
):
    file = f"{__name__}.{model.__name__}"
    regard.register(kind=Kind(name, "none", "a kind of one's own", OwnConfig, file, (task,), reads))
