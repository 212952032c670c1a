r"""Hierarchical attention: word states form sentence vectors, and these form a document vector, weighted by attention.

Yang et al. 2016 (aclanthology.org/N16-1174). A bidirectional recurrence reads a sentence's words into states $h_{it}$:

$u_{it} = \tanh(W_w h_{it} + b_w)$, $\alpha_{it} \propto \exp(u_{it}^\top u_w)$, $s_i = \sum_t \alpha_{it} h_{it}$

(equations 5 to 7): the score compares u with a learned vector u_w, and the sum is over h. A second level computes v
from the sentences of a document in the same way, and the label is $\mathrm{softmax}(W_c v + b_c)$.

`attention = false` replaces the sums by the mean or by the maximum of each component (the paper's HN-AVE and HN-MAX).
`levels = 1`, which the paper does not have, reads all words of a document as one row with a single attention.

Dropout, which the paper does not use, applies to embeddings, sentences and documents. Embeddings start small, since
most words say nothing about a label. Each annotation starts close to its own word (`favour_own_input`).
"""

# b documents · s sentences, of all documents or of the longest · t of the longest · w words · d width of a state
from collections.abc import Iterator
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Dot, Learned, Lengths, call_records
from regard.errors import ArgumentError
from regard.models.config import HANConfig
from regard.models.contract import Documents, Memory, Model, Notation, Reading, Tokens
from regard.models.encoders import pool_mean
from regard.models.recurrent import Bidirectional, Dropout, can_bypass, make_linear, make_readout


class HANModel(Model):
    """A classifier of `Documents`.

    `watch` names its two attentions `words` and `sentences`, and the attention of a single level `pooling`.
    """

    words: Attention | None
    sentences: Attention | None
    pooling: Attention | None

    def __init__(self, config: HANConfig, source: int, target: int):
        super().__init__()
        self.config = config
        width = 2 * config.size
        self.embedding = nn.Embedding(source, config.embedding)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.word_states = Bidirectional(config.cell, config.embedding, config.size, 1)
        favour_own_input(self.word_states)
        if not self.flat:
            self.sentence_states = Bidirectional(config.cell, width, config.size, 1)
            favour_own_input(self.sentence_states)
        self.words = self.sentences = self.pooling = None
        if config.attention:
            self.word_layer = make_linear(width, config.hidden)
            if self.flat:
                self.pooling = Attention(Dot(), query=Learned(1, config.hidden))
            else:
                self.sentence_layer = make_linear(width, config.hidden)
                self.words = Attention(Dot(), query=Learned(1, config.hidden))
                self.sentences = Attention(Dot(), query=Learned(1, config.hidden))
        self.dropout = Dropout(config.dropout)
        self.readout = make_readout(width, target)

    @property
    def flat(self) -> bool:
        """Return whether there is only one level, over words."""
        return self.config.levels == 1

    def encode(self, source: Documents) -> Memory:
        """Encode every sentence as an annotation [h→; h←] in its document; with one level, every word."""
        if self.flat:
            words = join_sentences(source)
            return Memory(self.word_states(self.dropout(self.embedding(words.ids)), words.lengths), words.span)
        vectors, lengths = self.sentence_vectors(source.words), source.sentences
        most = max(1, int(lengths.max())) if len(lengths) else 1
        real = torch.arange(most, device=lengths.device) < lengths[:, None]
        rows = vectors.new_zeros(*real.shape, vectors.shape[-1]).masked_scatter(real[..., None], vectors)
        return Memory(self.sentence_states(self.dropout(rows), lengths), Lengths(lengths))

    def classify(self, memory: Memory) -> Float[Tensor, "b v"]:
        """Compute the scores of all labels."""
        return self.output(
            self.dropout(self.pool("pooling" if self.flat else "sentences", memory.states, memory.lengths))
        )

    def pool(self, level: str, states: Float[Tensor, "r w d"], lengths: Int[Tensor, " r"]) -> Float[Tensor, "r d"]:
        """Pool each row's states into one vector, by attention or, without it, by their mean or maximum."""
        attention: Attention | None = getattr(self, level)
        if attention is not None:
            layer = self.sentence_layer if level == "sentences" else self.word_layer
            context: Tensor = attention(None, torch.tanh(layer(states)), states, span=Lengths(lengths))
            return context[:, 0]
        if self.config.pooling == "mean":
            return pool_mean(states, lengths)
        real = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        maxima = states.masked_fill(~real[..., None], -torch.inf).amax(1)
        return maxima.masked_fill(lengths[:, None] == 0, 0)  # a row without states gets zeros

    def sentence_vectors(self, words: Tokens) -> Float[Tensor, "s d"]:
        """Compute a vector for each sentence, in groups of similar length, to save padding.

        If a module has a hook, a single call computes all sentences.
        """
        if not can_bypass(self.word_states, *([] if self.words is None else [self.words])):
            return self.read(words.ids, words.lengths)
        vectors, order = [], []
        for rows, longest in group_by_length(words.lengths):
            vectors.append(self.read(words.ids[rows, :longest], words.lengths[rows]))
            order.append(rows)
        if not vectors:
            return self.readout.weight.new_zeros(0, 2 * self.config.size)
        return torch.cat(vectors)[torch.cat(order).argsort()]

    def read(self, ids: Int[Tensor, "s w"], lengths: Int[Tensor, " s"]) -> Float[Tensor, "s d"]:
        """Encode sentences as one vector each."""
        states = self.word_states(self.dropout(self.embedding(ids)), lengths)
        return self.pool("words", states, lengths)

    @torch.no_grad()
    def weigh_documents(self, documents: Documents) -> tuple[Float[Tensor, "s w"], Float[Tensor, "b t"]]:
        """Return the weight of each word in its sentence, and of each sentence in its document; padding gets 0.

        With a single level, a sentence's weight is the sum of its words' weights.
        """
        if not self.config.attention:
            raise ArgumentError("model: attention = false, expected a model that weighs its words")
        with call_records.watch_call(self) as looks:
            self.classify(self.encode(documents))
            if not self.flat:
                return looks["words"].weights[:, 0], looks["sentences"].weights[:, 0]
            weights = looks["pooling"].weights[:, 0]
        lengths, words = documents.sentences, documents.words
        flat = weights[join_sentences(documents).real]
        counts = weights.new_zeros(words.ids.shape).masked_scatter(words.real, flat)
        sums = counts.sum(1)
        real = torch.arange(max(1, int(lengths.max())), device=lengths.device) < lengths[:, None]
        sentences = weights.new_zeros(real.shape).masked_scatter(real, sums)
        return counts / sums.clamp(min=torch.finfo(sums.dtype).tiny)[:, None], sentences

    @cached_property
    def notation(self) -> Notation:
        """Return the formulas and symbols of the paper."""
        return Notation(
            attentions={
                level: {
                    "q": (f"u_{letter}", "the learned vector that decides what counts"),
                    "k": (f"u = tanh(W_{letter} h + b_{letter})", f"every {what}, as it is compared"),
                    "e": (f"uᵀ u_{letter}", "scores"),
                    "a": (f"α = softmax(uᵀ u_{letter})", ""),
                    "v": ("h = [h→; h←]", f"the annotation of every {what}"),
                    "Σ a v": (f"{whole} = Σ α h", f"the vector of {of}"),
                }
                for level, letter, what, whole, of in (
                    ("words", "w", "word", "s_i", "each sentence"),
                    ("sentences", "s", "sentence", "v", "the document"),
                    ("pooling", "w", "word", "v", "the document"),
                )
            },
            readout=(Reading("readout", "input", "document vector v", "what the readout reads"),),
            boxes=(
                {
                    "input": "w_{it}",
                    "embedding": "x_{it} = W_e w_{it}",
                    r"word_states\.forwards": "→h_{it}",
                    r"word_states\.backwards": "←h_{it}",
                    "word_states cat": "h_{it} = [→h_{it}; ←h_{it}]",
                    "word_layer": "W_w h_{it} + b_w",
                    "encoder: tanh$": "u_{it}",
                    r"(words|pooling)\.query": "u_w",
                    "(words|pooling) score": "u_{it}^⊤ u_w",
                    "(words|pooling) weights": "α_{it}",
                    "words sum": "s_i = Σ_t α_{it} h_{it}",
                    "pooling sum": "v = Σ_t α_t h_t",
                    r"sentence_states\.forwards": "→h_i",
                    r"sentence_states\.backwards": "←h_i",
                    "sentence_states cat": "h_i = [→h_i; ←h_i]",
                    "sentence_layer": "W_s h_i + b_s",
                    "encoder: tanh 2$": "u_i",
                    r"sentences\.query": "u_s",
                    "sentences score": "u_i^⊤ u_s",
                    "sentences weights": "α_i",
                    "sentences sum": "v = Σ_i α_i h_i",
                    "readout": "W_c v + b_c",
                    " softmax$": "p(label | document)",
                },
            ),
        )


def join_sentences(source: Documents) -> Tokens:
    """Join the sentences of each document into one row of words."""
    ends = F.pad(source.words.lengths.cumsum(0), (1, 0))[source.sentences.cumsum(0)]  # words up to each document's end
    lengths = ends.diff(prepend=ends.new_zeros(1))
    most = max(1, int(lengths.max())) if len(lengths) else 1
    real = torch.arange(most, device=lengths.device) < lengths[:, None]
    ids = source.words.ids.new_zeros(real.shape).masked_scatter(real, source.words.ids[source.words.real])
    return Tokens.of(ids, lengths)


@torch.no_grad()
def favour_own_input(states: Bidirectional) -> None:
    """Initialise GRUs so that an annotation starts close to its own word or sentence.

    Every state of a sentence can hold information about all its words, so that attention may weight a neighbour of the
    informative word, or the full stop, instead. An update gate with a negative bias keeps little of the earlier state
    at first, and learns to keep more.
    """
    for layer in (*states.forwards, *states.backwards):
        if layer.kind == "gru":
            _, update, _ = layer.net.bias_ih_l0.chunk(3)
            update.fill_(-1.0)


def group_by_length(lengths: Int[Tensor, " s"]) -> Iterator[tuple[Int[Tensor, " r"], int]]:
    """Group rows whose lengths are within a factor of two; yield each group's indices and longest length."""
    sizes, order = lengths.cpu().sort()
    start, count = 0, len(sizes)
    while start < count:
        most = max(1, 2 * int(sizes[start]))
        end = int(torch.searchsorted(sizes, most, right=True))
        yield order[start:end].to(lengths.device), max(1, int(sizes[end - 1]))
        start = end
