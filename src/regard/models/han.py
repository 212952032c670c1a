r"""Hierarchical attention: words to sentences, sentences to a document, each weighed by how much it says.

Yang et al. 2016 (aclanthology.org/N16-1174). Of a sentence's words, read from both ends,

$u_{it} = \tanh(W_w h_{it} + b_w)$, $\alpha_{it} \propto \exp(u_{it}^\top u_w)$, $s_i = \sum_t \alpha_{it} h_{it}$

(equations 5 to 7): what is scored is u, against a learned vector u_w, and what is summed is h. The same over the
sentences of a document gives v, and its label is $\mathrm{softmax}(W_c v + b_c)$.

Dropout, which the paper does without, falls on embeddings, sentences and documents. Embeddings begin small, as most
words say nothing about a label, and annotations as little more than their own word (`mostly_own`).
"""

# b documents · s sentences, of all documents or of the longest · w words · d width of a state · h of an attention
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Learned, watch
from regard.attention.score import Dot
from regard.attention.span import Lengths
from regard.errors import ArgumentError
from regard.models.cells import Bidirectional, Dropout
from regard.models.contract import Documents, Memory, Model, Tokens
from regard.models.options import HAN
from regard.models.recurrent import linear, readout, unwatched

__all__ = ["HANModel", "weighed"]


class HANModel(Model):
    """Names a label for each of `Documents`. `watch` sees its two attentions as `words` and `sentences`."""

    words: Attention | None
    sentences: Attention | None

    def __init__(self, config: HAN, source: int, target: int):
        super().__init__()
        self.config, width = config, 2 * config.size
        self.embedding = nn.Embedding(source, config.embedding)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.word_states = Bidirectional(config.cell, config.embedding, config.size, 1)
        self.sentence_states = Bidirectional(config.cell, width, config.size, 1)
        for states in (self.word_states, self.sentence_states):
            mostly_own(states)
        self.words = self.sentences = None
        if config.attention:
            self.word_layer, self.sentence_layer = linear(width, config.hidden), linear(width, config.hidden)
            self.words = Attention(Dot(), query=Learned(1, config.hidden))
            self.sentences = Attention(Dot(), query=Learned(1, config.hidden))
        self.dropout = Dropout(config.dropout)
        self.readout = readout(width, target)

    def encode(self, source: Documents) -> Memory:
        """The annotations of every sentence, [h→; h←], having read all sentences of its document."""
        vectors, lengths = self.sentence_vectors(source.words), source.sentences
        most = max(1, int(lengths.max())) if len(lengths) else 1
        real = torch.arange(most, device=lengths.device) < lengths[:, None]
        rows = vectors.new_zeros(*real.shape, vectors.shape[-1]).masked_scatter(real[..., None], vectors)
        return Memory(self.sentence_states(self.dropout(rows), lengths), Lengths(lengths))

    def classify(self, memory: Memory) -> Float[Tensor, "b v"]:
        """The scores of every label."""
        layer = self.sentence_layer if self.sentences is not None else None
        return self.output(self.dropout(pooled(self.sentences, layer, memory.states, memory.lengths)))

    def sentence_vectors(self, words: Tokens) -> Float[Tensor, "s d"]:
        """A vector for each sentence. Those of like length are read together: most are far shorter than the longest.

        A watcher sees all of them in one call.
        """
        if self.words is not None and not unwatched(self.words):
            return self.read(words.ids, words.lengths)
        found, order = [], []
        for rows, longest in alike(words.lengths):
            found.append(self.read(words.ids[rows, :longest], words.lengths[rows]))
            order.append(rows)
        if not found:
            return self.readout.weight.new_zeros(0, 2 * self.config.size)
        return torch.cat(found)[torch.cat(order).argsort()]

    def read(self, ids: Int[Tensor, "s w"], lengths: Int[Tensor, " s"]) -> Float[Tensor, "s d"]:
        """A vector for each of some sentences."""
        states = self.word_states(self.dropout(self.embedding(ids)), lengths)
        return pooled(self.words, self.word_layer if self.words is not None else None, states, lengths)


def pooled(
    attention: Attention | None, layer: nn.Module | None, states: Float[Tensor, "s w d"], lengths: Int[Tensor, " s"]
) -> Float[Tensor, "s d"]:
    """Each row's states as one: weighed, or, where there is no attention, their mean."""
    if attention is not None and layer is not None:
        context: Tensor = attention(None, torch.tanh(layer(states)), states, span=Lengths(lengths))
        return context[:, 0]
    real = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
    return states.masked_fill(~real[..., None], 0).sum(1) / lengths.clamp(min=1)[:, None].to(states)


@torch.no_grad()
def mostly_own(states: Bidirectional) -> None:
    """Let an annotation begin as little more than its own word or sentence.

    Every state of a sentence can tell of each word in it, and so the word next to the one that counts, or the full
    stop, may be weighed in its place. A GRU whose update gate lets go more than it keeps begins at the word itself, and
    learns to carry what it needs.
    """
    for layer in (*states.forwards, *states.backwards):
        if layer.kind == "gru":
            _, update, _ = layer.net.bias_ih_l0.chunk(3)
            update.fill_(-1.0)


def alike(lengths: Int[Tensor, " s"]) -> Iterator[tuple[Int[Tensor, " r"], int]]:
    """Rows whose lengths are within a factor of two, and the longest of them: at most half of it all is padding."""
    sizes, order = lengths.cpu().sort()
    start, count = 0, len(sizes)
    while start < count:
        most = max(1, 2 * int(sizes[start]))
        end = int(torch.searchsorted(sizes, most, right=True))
        yield order[start:end].to(lengths.device), max(1, int(sizes[end - 1]))
        start = end


def weighed(model: HANModel, documents: Documents) -> tuple[Float[Tensor, "s w"], Float[Tensor, "b t"]]:
    """How much each word counts in its sentence, and each sentence in its document; rows sum to one, padding is 0."""
    if model.words is None:
        raise ArgumentError("model: attention = false, expected a model that weighs its words")
    with torch.no_grad(), watch(model) as looks:
        model.classify(model.encode(documents))
        return looks["words"].weights[:, 0], looks["sentences"].weights[:, 0]
