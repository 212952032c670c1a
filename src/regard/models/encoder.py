"""A single stack of Transformer blocks: a text classifier, or, with a causal mask, a language model.

The encoder of Vaswani et al. 2017 (arXiv:1706.03762). A classifier pools all positions into one vector, by their mean
or by attention with one learned query (as in Yang et al. 2016), and scores all labels. A language model attends only to
earlier positions; in the contract it is a decoder whose memory holds only the number of sentences.
"""

# b sentences · m positions · n target positions · d width · v vocabulary or labels · r rows
from functools import cached_property
from typing import Any, cast

from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import Alibi, Attention, Block, Causal, Dot, Learned, Lengths, Packed, Span, Start, blocks, join
from regard.errors import ArgumentError
from regard.kernels import Linear
from regard.models.config import EncoderConfig
from regard.models.contract import Memory, Model, Notation, Reading, State, Tokens
from regard.models.encoders import Embedding, block_options, initialise, name_activation, pool_mean


class EncoderModel(Model):
    """A classifier (with `classify`) or a language model (with `decode` and `step`), depending on its config's job."""

    def __init__(self, config: EncoderConfig, source: int, target: int):
        super().__init__()
        self.config = config
        self.limit = config.known_positions()
        self.tokens = Embedding(source, config.size, config.positions, "add", config.length, config.dropout)
        options = block_options(config)
        self.encoder = blocks.Encoder(config.size, config.heads, config.layers, config.hidden, **options)
        self.readout = Linear(config.size, target)
        initialise(self)
        self.pooling: Attention | None = None
        if not config.writes and config.pooling == "attention":
            self.pooling = Attention(Dot(scaled=True), query=Learned(1, config.size))
        if config.writes and config.tied:
            if source != target:
                raise ArgumentError(f"tied: true given, expected one vocabulary, not {source} and {target} pieces")
            self.readout.weight = self.tokens.tokens.weight

    def bias(self, start: Start = 0) -> Span | None:
        """Return the bias of ALiBi; None with other positions."""
        return Alibi(self.config.heads, start) if self.config.positions == "alibi" else None

    # ---- the classifier

    def encode(self, source: Tokens) -> Memory:
        """Encode the source with self-attention; for a language model, return an empty memory that counts sentences."""
        if self.config.writes:
            empty = self.readout.weight.new_zeros(len(source.lengths), 0, self.config.size)
            return Memory(empty, Lengths(source.lengths.new_zeros(len(source.lengths))))
        x = self.tokens(source.ids, source.span)
        return Memory(self.encoder(x, span=join(source.span, self.bias())), source.span)

    def classify(self, memory: Memory) -> Float[Tensor, "b v"]:
        """Compute the scores of all labels."""
        if self.config.writes:
            raise ArgumentError('job: "language-model", expected "classify" for a classifier')
        memory = memory.pad()
        if self.pooling is not None:
            pooled = self.pooling(None, memory.states, span=memory.span)[:, 0]
        else:
            pooled = pool_mean(memory.states, memory.lengths)
        return self.output(pooled)

    # ---- the language model

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Take all steps at once under the causal mask."""
        self.check_language_model()
        packed = target.span if isinstance(target.span, Packed) else None
        x = self.tokens(target.ids, target.span)
        return self.encoder(x, span=join(Causal(), packed, self.bias())), {}

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return a state of empty caches."""
        self.check_language_model()
        if coverage:
            raise ArgumentError("coverage: true given, expected false: a language model has no source to cover")
        count = len(memory.lengths) * rows
        stack = cast(list[Block], list(self.encoder.blocks))
        row: dict[str, Any] = {f"past.{i}": block.attention.cache(count, size) for i, block in enumerate(stack)}
        for part in row.values():
            part.private_rows = self.config.positions == "alibi"
        return State({}, row, rows)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Take one step: one query per row over the caches."""
        start = state.row["past.0"].length.clone()
        x, bias = self.tokens(tokens[:, None], None, start), self.bias(start)
        for i, block in enumerate(self.encoder.blocks):
            x = block(x, span=bias, start=start, past=state.row[f"past.{i}"])
        return self.output(self.encoder.final_norm(x)[:, 0]), state

    def check_language_model(self) -> None:
        """Raise an error for a classifier, which cannot write."""
        if not self.config.writes:
            raise ArgumentError('job: "classify", expected "language-model" for one that writes')

    @cached_property
    def notation(self) -> Notation:
        """Return the formulas of a classifier's readout, and the graph's symbols for both jobs."""
        readout = (Reading("readout", "input", "pooled", "the document, which the readout reads"),)
        return Notation(readout=readout, boxes=(name_activation(self.config), BOXES))


BOXES = {
    "decoder:input": "x_1 … x_n",
    "decoder: softmax$": "p(x_{i+1} | x_{≤i})",
    "encoder: softmax$": "p(label | x)",
}
