"""Peers of Regard for training: torch's nn.Transformer, Marian of Transformers, JoeyNMT; and the pairs to train on.

Each peer is a module that computes the mean label-smoothed cross-entropy of a `Batch`'s target tokens, as its users
would. Dropout applies to residuals, embeddings and the inside of the feed-forward nets, nowhere else.
`pip install 'regard[peers]'` installs Transformers. JoeyNMT 2.3 requires old versions of its dependencies; for training
it is enough to install TensorBoard, and
`pip install --no-deps joeynmt sentencepiece subword-nmt sacremoses 'importlib_metadata<9' zipp`.

The package contains no corpus, so the pairs are artificial: learnable, and as long as those of Multi30k. Lengths are
log-normal and correlated between source and target. Their means are those of Multi30k's English and German, 13 and 12.5
words, in 8,000 joint pieces. Tokens follow Zipf's law. The target is the source with its words renumbered, truncated or
repeated to the target's length, so that the loss can fall.
"""

# b sentences · m source positions · n target positions · v vocabulary
import importlib
import logging
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data import END, PAD, START, UNKNOWN, Batch, Order, collate
from regard.models import Model, RNNSearchConfig, TransformerConfig, TransformerModel, kinds
from regard.training import Prediction

Pair = tuple[np.ndarray, np.ndarray]

MEANS = (14.6, 15.4)  # pieces of source and target
SPREAD = 0.36  # standard deviation of the logarithm of a length
SHARED = 0.8  # correlation of source and target
FIRST = UNKNOWN + 1  # id of the first word
MIN_WORDS, MAX_WORDS = 4, 60


@dataclass(frozen=True)
class Sizes:
    """Sizes that all models of a comparison share."""

    vocabulary: int = 8000
    size: int = 256
    heads: int = 4
    layers: int = 3
    hidden: int = 1024
    dropout: float = 0.1
    smoothing: float = 0.1

    def transformer(self, **more: Any) -> Model:
        """Build Regard's Transformer of these sizes."""
        shape = {"size": self.size, "heads": self.heads, "layers": self.layers, "hidden": self.hidden}
        config = TransformerConfig(**{**shape, "dropout": self.dropout, **more})
        return kinds.build("transformer", config, self.vocabulary, self.vocabulary)

    def rnnsearch(self, **more: Any) -> Model:
        """Build Regard's RNNsearch, every part as wide as the Transformer, the maxout layer too."""
        widths = {"size": self.size, "embedding": self.size, "hidden": self.size, "maxout": self.size}
        config = RNNSearchConfig(**{**widths, "dropout": self.dropout, **more})
        return kinds.build("rnnsearch", config, self.vocabulary, self.vocabulary)


class Learner(nn.Module):
    """A model and its loss."""

    def prepare(self, batch: Batch) -> Any:
        """Convert the batch to the form that this system's loader returns; not timed."""
        return batch


class RegardLearner(Learner):
    """A Regard model with Regard's objective."""

    def __init__(self, model: Model, sizes: Sizes):
        super().__init__()
        self.objective = Prediction(model, sizes.smoothing)

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """Compute the mean loss."""
        total: Tensor = self.objective(batch).total
        return total / batch.tokens


def smoothed_loss(logits: Float[Tensor, "b n v"], batch: Batch, smoothing: float) -> Float[Tensor, ""]:
    """Compute the mean loss of the tokens that are not padding."""
    expected = batch.target[:, 1:].flatten()
    return F.cross_entropy(logits.flatten(0, 1), expected, ignore_index=PAD, label_smoothing=smoothing)


class TorchTransformer(Learner):
    """nn.Transformer with the parts that it lacks: embeddings, sinusoidal positions, the output projection."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes = sizes
        self.source, self.target = (nn.Embedding(sizes.vocabulary, sizes.size) for _ in range(2))
        for embedding in (self.source, self.target):
            nn.init.normal_(embedding.weight, std=sizes.size**-0.5)
        with warnings.catch_warnings():  # ignore one about nested tensors, which training does not use
            warnings.simplefilter("ignore")
            self.net = nn.Transformer(
                sizes.size,
                sizes.heads,
                sizes.layers,
                sizes.layers,
                sizes.hidden,
                sizes.dropout,
                batch_first=True,
                norm_first=True,
            )
        for module in self.net.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
        self.dropout = nn.Dropout(sizes.dropout)
        self.readout = nn.Linear(sizes.size, sizes.vocabulary)
        self.readout.weight = self.target.weight
        nn.init.zeros_(self.readout.bias)
        # Positional encodings of Vaswani et al. 2017, section 3.5
        frequency = torch.arange(0, sizes.size, 2) * (-math.log(10_000.0) / sizes.size)
        angle = torch.arange(512)[:, None] * torch.exp(frequency)
        self.register_buffer("waves", torch.stack([angle.sin(), angle.cos()], -1).flatten(1), persistent=False)

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """Compute the mean loss."""
        there = torch.arange(batch.source.shape[1], device=batch.source.device) < batch.source_lengths[:, None]
        # Pass no padding mask if the source has no padding. The target never needs one: its padding comes last.
        padding = None if bool(there.all()) else ~there
        read = batch.target[:, :-1]
        hidden = self.net(
            self.embed(self.source, batch.source),
            self.embed(self.target, read),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(read.shape[1], device=read.device),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return smoothed_loss(self.readout(hidden), batch, self.sizes.smoothing)

    def embed(self, embedding: nn.Embedding, ids: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        """Embed tokens: embeddings times √d, plus positions, with dropout."""
        x = embedding(ids) * math.sqrt(self.sizes.size) + self.waves[: ids.shape[1]]  # type: ignore[index]
        return self.dropout(x)

    @torch.no_grad()
    def copy(self, model: TransformerModel) -> None:
        """Copy all weights from a Regard Transformer with `norm="pre"`."""
        self.source.weight.copy_(model.source.tokens.weight)
        self.target.weight.copy_(model.target.tokens.weight)
        self.readout.bias.copy_(model.readout.bias)
        for mine, theirs in ((self.net.encoder, model.encoder), (self.net.decoder, model.decoder)):
            mine.norm.load_state_dict(theirs.final_norm.state_dict())
            layers: Iterable[tuple[Any, Any]] = zip(mine.layers, theirs.blocks, strict=True)
            for layer, block in layers:
                pairs = [(layer.self_attn, block.attention)]
                norms = [block.attention_norm, block.feed_norm]
                if block.cross is not None:
                    pairs.append((layer.multihead_attn, block.cross))
                    norms.insert(1, block.cross_norm)
                for attention, heads in pairs:
                    attention.in_proj_weight.copy_(heads.projection.weight)
                    attention.in_proj_bias.copy_(heads.projection.bias)
                    attention.out_proj.load_state_dict(heads.output.state_dict())
                for number, norm in enumerate(norms, 1):
                    getattr(layer, f"norm{number}").load_state_dict(norm.state_dict())
                layer.linear1.load_state_dict(block.feed[0].state_dict())
                layer.linear2.load_state_dict(block.feed[2].state_dict())


class MarianLearner(Learner):
    """The post-norm MarianMTModel of Transformers; raises ImportError if Transformers is not installed."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        transformers = importlib.import_module("transformers")
        self.sizes = sizes
        config = transformers.MarianConfig(
            vocab_size=sizes.vocabulary,
            decoder_vocab_size=sizes.vocabulary,
            d_model=sizes.size,
            encoder_layers=sizes.layers,
            decoder_layers=sizes.layers,
            encoder_attention_heads=sizes.heads,
            decoder_attention_heads=sizes.heads,
            encoder_ffn_dim=sizes.hidden,
            decoder_ffn_dim=sizes.hidden,
            activation_function="relu",
            dropout=sizes.dropout,
            activation_dropout=sizes.dropout,
            attention_dropout=0.0,
            max_position_embeddings=512,
            scale_embedding=True,
            share_encoder_decoder_embeddings=False,
            tie_word_embeddings=True,
            init_std=sizes.size**-0.5,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=START,
            use_cache=False,
            attn_implementation="sdpa",
        )
        self.net = transformers.MarianMTModel(config)

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """Compute the mean loss."""
        there = torch.arange(batch.source.shape[1], device=batch.source.device) < batch.source_lengths[:, None]
        logits = self.net(
            input_ids=batch.source, attention_mask=there.long(), decoder_input_ids=batch.target[:, :-1]
        ).logits
        return smoothed_loss(logits, batch, self.sizes.smoothing)


class JoeyLearner(Learner):
    """A JoeyNMT model with its own loss, which smooths over all words except padding and the correct one."""

    def __init__(self, sizes: Sizes, encoder: dict[str, Any], decoder: dict[str, Any], tied: bool):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = ("batch", "model", "vocabulary")
            batch, model, vocabulary = (importlib.import_module(f"joeynmt.{name}") for name in names)
        model.logger.setLevel(logging.ERROR)
        self.batch = batch.Batch
        words = build_vocabulary(vocabulary.Vocabulary, sizes.vocabulary)
        config = {"encoder": encoder, "decoder": decoder, "tied_softmax": tied}
        self.net = model.build_model(config, src_vocab=words, trg_vocab=words)
        self.net.loss_function = ("crossentropy", sizes.smoothing)

    def sort(self, batch: Batch, target: Tensor | None) -> tuple[Any, Any]:
        """Return JoeyNMT's batch, longest sources first as its encoder packs, and the indices of the old order."""
        rows, device = torch.arange(len(batch)), batch.source.device
        made = self.batch(batch.source, batch.source_lengths, None, target, None, rows, device, PAD, END)
        return made, made.sort_by_src_length()

    def prepare(self, batch: Batch) -> Any:
        """Convert the batch to the form that JoeyNMT's loader returns."""
        return self.sort(batch, batch.target)[0]

    def forward(self, batch: Any) -> Float[Tensor, ""]:
        """Compute the mean loss."""
        fields = {name: value for name, value in vars(batch).items() if value is not None}
        loss = self.net(return_type="loss", **fields)[0]
        return loss / batch.ntokens


def build_vocabulary(kind: Any, size: int) -> Any:
    """Build JoeyNMT's vocabulary with Regard's ids of the special words, which its constructor does not allow."""
    vocabulary = kind.__new__(kind)
    special = {UNKNOWN: "unk", PAD: "pad", START: "bos", END: "eos"}
    vocabulary._itos = [f"<{special.get(index, index)}>" for index in range(size)]
    vocabulary._stoi = {word: index for index, word in enumerate(vocabulary._itos)}
    for index, name in special.items():
        setattr(vocabulary, f"{name}_index", index)
    vocabulary.specials = [f"<{name}>" for name in special.values()]
    vocabulary.lang_tags, vocabulary.sep_index = [], None
    return vocabulary


class JoeyTransformer(JoeyLearner):
    """JoeyNMT's Transformer."""

    def __init__(self, sizes: Sizes, norm: str = "pre"):
        part = {
            "type": "transformer",
            "num_layers": sizes.layers,
            "num_heads": sizes.heads,
            "hidden_size": sizes.size,
            "ff_size": sizes.hidden,
            "dropout": sizes.dropout,
            "layer_norm": norm,
            "activation": "relu",
            "embeddings": {"embedding_dim": sizes.size, "scale": True, "dropout": sizes.dropout},
        }
        super().__init__(sizes, dict(part), dict(part), tied=True)
        for module in self.net.modules():
            if type(module).__name__ == "MultiHeadedAttention":
                module.dropout.p = 0.0


class JoeyRNN(JoeyLearner):
    """JoeyNMT's Bahdanau GRU, with embeddings, each direction, decoder and attention of width `sizes.size`."""

    def __init__(self, sizes: Sizes):
        part = {
            "type": "recurrent",
            "rnn_type": "gru",
            "num_layers": 1,
            "hidden_size": sizes.size,
            "dropout": sizes.dropout,
            "embeddings": {"embedding_dim": sizes.size, "scale": False, "dropout": sizes.dropout},
        }
        decoder = part | {"attention": "bahdanau", "hidden_dropout": sizes.dropout, "init_hidden": "bridge"}
        super().__init__(sizes, part | {"bidirectional": True}, decoder, tied=False)


def make_pairs(
    count: int, vocabulary: int, seed: int = 0, means: tuple[float, float] = MEANS, longest: int = MAX_WORDS
) -> list[Pair]:
    """Create artificial encoded pairs, without START and END."""
    random = np.random.default_rng(seed)
    common, own = random.standard_normal((count, 1)), random.standard_normal((count, 2))
    logs = math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * own
    lengths = np.array(means) * np.exp(SPREAD * logs - SPREAD**2 / 2)
    lengths = lengths.round().astype(np.int64).clip(MIN_WORDS, longest)
    words = vocabulary - FIRST
    frequency = 1 / np.arange(1, words + 1)
    renumbered = random.permutation(words)
    pairs = []
    for m, n in lengths:
        source = random.choice(words, size=m, p=frequency / frequency.sum())
        pairs.append((FIRST + source, FIRST + renumbered[np.resize(source, n)]))
    return pairs


def make_buckets(pairs: list[Pair], budget: int, seed: int = 0) -> list[Batch]:
    """Create batches as Regard does: sort by length, fill to the budget, shuffle; drop the last."""
    order = Order(np.array([[len(source), len(target)] for source, target in pairs]), budget, seed=seed)
    return [collate([pairs[i] for i in indices]) for indices in order.epoch(0)][:-1]


def join_at_random(pairs: list[Pair], budget: int, seed: int = 0) -> list[Batch]:
    """Create batches as JoeyNMT 2.3 does: in random order, until rows × longest, including END, reaches the budget."""
    batches, rows, longest = [], [], 0
    for i in np.random.default_rng(seed).permutation(len(pairs)):
        rows.append(pairs[i])
        longest = max(longest, *(len(side) + 1 for side in pairs[i]))
        if longest * len(rows) >= budget:
            batches.append(collate(rows))
            rows, longest = [], 0
    return batches
