"""Which heads look at a word's syntactic head: planted self-attention against a count by hand."""

import pytest
import torch
from alignment.planted import TOKENIZERS, WORDS

from regard.alignment.dependencies import best_distance, measure_dependencies
from regard.attention import Attentive, Look
from regard.data import Example, generate
from regard.errors import ArgumentError
from regard.models import Memory, Model

# Heads of words; -1 is the root. In the decoder, the heads of words 0 and 1 come later, so only 3 and 4 count.
EXAMPLES = [
    Example(" ".join(WORDS[:4]), " ".join(WORDS[4:9]), (), (1, -1, 1, 2), (1, 2, -1, 2, 3)),
    Example(" ".join(WORDS[:2]), " ".join(WORDS[5:6]), (), (-1, 0), (-1,)),
]


class Distance(Attentive):
    """Each head looks a fixed number of words away, or at itself if none is there; a decoder's START is not a word."""

    def __init__(self, *distances):
        super().__init__()
        self.distances = distances

    def forward(self, ids):
        return ids

    def look(self, ids):
        size = ids.shape[1]
        weights = torch.zeros(len(ids), len(self.distances), size, size)
        for head, distance in enumerate(self.distances):
            for row in range(size):
                at = row + distance
                weights[:, head, row, at if 0 <= at < size else row] = 1.0
        return Look(context=weights, scores=weights, weights=weights)


class Model_(Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = torch.nn.ModuleList(encoder), torch.nn.ModuleList(decoder)
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def encode(self, source):
        for each in self.encoder:
            each(source.ids)
        return Memory(source.ids[..., None].float(), source.span)

    def decode(self, memory, target):
        for each in self.decoder:
            each(target.ids)
        return target.ids[..., None].float(), {}


def test_shares_are_those_counted_by_hand():
    model = Model_([Distance(1, -1), Distance(0)], [Distance(-1, -2)])
    found = {
        (each.view, each.head): (each.share, each.words) for each in measure_dependencies(model, TOKENIZERS, EXAMPLES)
    }
    assert found == {
        ("encoder.0", 0): (1 / 4, 4),  # 0 → 1, of four words that have a head
        ("encoder.0", 1): (3 / 4, 4),  # 2 → 1, 3 → 2, and 1 → 0 of the second
        ("encoder.1", 0): (0.0, 4),
        ("decoder.0", 0): (1.0, 2),  # 3 → 2 and 4 → 3
        ("decoder.0", 1): (0.0, 2),
    }
    assert best_distance("encoder", EXAMPLES) == (-1, 3 / 4)
    assert best_distance("decoder", EXAMPLES)[1] == 1.0


def test_a_model_without_self_attention():
    with pytest.raises(ArgumentError, match="model: no self-attention in it, expected a model with self-attention"):
        measure_dependencies(Model_([], []), TOKENIZERS, EXAMPLES)
    with pytest.raises(ArgumentError, match="examples: no heads given"):
        best_distance("encoder", list(generate("copy", 3)))
