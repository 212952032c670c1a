"""Small models of every kind and option, and sentences for them."""

import dataclasses

import torch

from regard.models.config import (
    EncoderConfig,
    LSTMNConfig,
    LuongConfig,
    ModelConfig,
    NTMConfig,
    PointerConfig,
    RNNConfig,
    RNNSearchConfig,
    TransformerConfig,
)
from regard.models.contract import Model, Pictures, Tokens
from regard.models.kinds import build

SOURCES, TARGETS = 11, 13
RECURRENT = ("rnn", "rnnsearch", "luong", "pointer", "ntm")
JOINT = ("encoder", "pointer")  # one vocabulary: every source token is also a target token


def rnn(**options):
    return RNNConfig(size=5, embedding=3, **options)


def rnnsearch(**options):
    return RNNSearchConfig(**{"size": 5, "embedding": 3, "hidden": 7, "maxout": 4, **options})


def luong(**options):
    return LuongConfig(**{"size": 5, "embedding": 3, "layers": 1, "radius": 1, "length": 20, **options})


def transformer(**options):
    return TransformerConfig(**{"size": 8, "heads": 2, "layers": 2, "hidden": 12, "length": 12, **options})


def encoder(**options):
    return EncoderConfig(
        **{"job": "language-model", "size": 8, "heads": 2, "layers": 2, "hidden": 12, "length": 12, **options}
    )


def lstmn(**options):
    return LSTMNConfig(size=5, embedding=3, hidden=7, **options)


def pointer(**options):
    return PointerConfig(**{"size": 5, "embedding": 3, "hidden": 7, **options})


def ntm(**options):
    return NTMConfig(**{"controller": "lstm", "size": 5, "embedding": 3, "slots": 6, "width": 4, **options})


CASES: dict[str, tuple[str, ModelConfig]] = {
    "rnn": ("rnn", rnn()),
    "rnn-cho-zero": ("rnn", rnn(start="zero", reverse=True)),
    "rnn-elman-relu": ("rnn", rnn(cell="rnn", nonlinearity="relu", layers=2, start="copy")),
    "rnn-elman-start": ("rnn", rnn(cell="rnn", context="start", reverse=True)),
    "rnn-sutskever": ("rnn", rnn(cell="lstm", layers=2, context="start", start="copy", reverse=True)),
    "rnn-lstm-tanh": ("rnn", rnn(cell="lstm", layers=2)),
    "rnnsearch": ("rnnsearch", rnnsearch()),
    "rnnsearch-previous": ("rnnsearch", rnnsearch(output="previous", layers=2)),
    "rnnsearch-lstm": ("rnnsearch", rnnsearch(cell="lstm")),
    "rnnsearch-lstm-previous": ("rnnsearch", rnnsearch(cell="lstm", output="previous")),
    "rnnsearch-elman": ("rnnsearch", rnnsearch(cell="rnn")),
    "rnnsearch-relu": ("rnnsearch", rnnsearch(cell="rnn", nonlinearity="relu")),
    "rnnsearch-forwards": ("rnnsearch", rnnsearch(bidirectional=False, layers=2)),
    "rnnsearch-lstm-encoder": ("rnnsearch", rnnsearch(encoder="lstm")),
    "rnnsearch-elman-forwards": ("rnnsearch", rnnsearch(cell="lstm", encoder="rnn", bidirectional=False)),
    "rnnsearch-convolution": ("rnnsearch", rnnsearch(encoder="convolution", reach=2, layers=2)),
    "rnnsearch-self-attention": ("rnnsearch", rnnsearch(encoder="self-attention", size=6, embedding=6, heads=2)),
    **{
        f"luong-{score}-{span}": ("luong", luong(score=score, span=span))
        for score in ("dot", "general", "concat")
        for span in ("global", "local-m", "local-p")
    },
    "luong-location": ("luong", luong(score="location", layers=2)),
    "luong-unfed": ("luong", luong(input_feeding=False, layers=2)),
    "luong-unfed-local-m": ("luong", luong(input_feeding=False, span="local-m", reverse=True)),
    "luong-unfed-local-p": ("luong", luong(input_feeding=False, span="local-p", score="concat")),
    "luong-gru-reverse": ("luong", luong(cell="gru", reverse=True, layers=2)),
    "luong-bidirectional": ("luong", luong(bidirectional=True, size=6, layers=2)),
    "luong-elman": ("luong", luong(cell="rnn", nonlinearity="relu", layers=2)),
    "luong-gru-encoder": ("luong", luong(encoder="gru", bidirectional=True, size=6, layers=2)),
    "luong-elman-encoder": ("luong", luong(cell="gru", encoder="rnn", reverse=True)),
    "luong-convolution-local-p": ("luong", luong(encoder="convolution", span="local-p")),
    "luong-self-attention": ("luong", luong(encoder="self-attention", size=6, heads=3, layers=2)),
    "transformer": ("transformer", transformer()),
    "transformer-post": ("transformer", transformer(norm="post", tied="none", positions="learned", join="concatenate")),
    "transformer-rotary": ("transformer", transformer(positions="rotary")),
    "transformer-alibi": ("transformer", transformer(positions="alibi")),
    "transformer-none": ("transformer", transformer(positions="none", decoder_layers=1)),
    "transformer-unscaled": ("transformer", transformer(scaled=False, positions="rotary", depth=6)),
    "transformer-sliced": ("transformer", transformer(split="input", norm="post")),
    "transformer-additive": ("transformer", transformer(score="additive", depth=3)),
    "transformer-window": ("transformer", transformer(mixing="window", reach=1)),
    "transformer-convolution": ("transformer", transformer(mixing="convolution", norm="post")),
    "transformer-convolution-wide": ("transformer", transformer(mixing="convolution", reach=3, positions="alibi")),
    "transformer-recurrence": ("transformer", transformer(mixing="recurrence")),
    "transformer-marian": (
        "transformer",
        transformer(norm="post", activation="silu", sines="halves", scale_embeddings=False),
    ),
    "transformer-nllb": (
        "transformer",
        transformer(
            size=9, heads=3, sines="fairseq", activation="gelu", output_bias=False, decoder_layers=1, start_as_end=True
        ),
    ),
    "transformer-bare": ("transformer", transformer(norm="none", feed_forward=False)),
    "encoder": ("encoder", encoder()),
    "encoder-bare": ("encoder", encoder(residual=False, feed_forward=False)),
    "encoder-rotary": ("encoder", encoder(positions="rotary", tied=False, norm="post")),
    "encoder-gelu": ("encoder", encoder(activation="gelu")),
    "encoder-alibi": ("encoder", encoder(positions="alibi")),
    "encoder-learned": ("encoder", encoder(positions="learned")),
    "lstmn": ("lstmn", lstmn()),
    "lstmn-deep": ("lstmn", lstmn(fusion="deep")),
    "lstmn-two-layers": ("lstmn", lstmn(layers=2, fusion="deep")),
    "lstmn-plain": ("lstmn", lstmn(intra=False, layers=2)),
    "lstmn-plain-deep": ("lstmn", lstmn(intra=False, fusion="deep")),
    "lstmn-language-model": ("lstmn", lstmn(job="language-model")),
    "pointer": ("pointer", pointer()),
    "pointer-bidirectional": ("pointer", pointer(bidirectional=True, size=6)),
    "pointer-once": ("pointer", pointer(once=True)),
    "ntm": ("ntm", ntm()),
    "ntm-feedforward-two-heads": ("ntm", ntm(controller="feedforward", heads=2, shift=2, slots=7)),
    "ntm-fed": ("ntm", ntm(feed=True, shift=0)),
}
RECURRENT_CASES = {name: case for name, case in CASES.items() if case[0] in RECURRENT}


def model_of(name: str, dropout: float = 0.0) -> Model:
    """Return a model in float64 with random parameters, including those that begin as zeros and ones."""
    kind, config = CASES[name]
    config = dataclasses.replace(config, dropout=dropout)
    sources = TARGETS if kind in JOINT else SOURCES
    model = build(kind, config, sources, TARGETS).double().eval()
    deviation = 0.2 if getattr(config, "norm", None) == "none" else 0.5  # nothing else keeps numbers small there
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=deviation)
    return model


def fit(model, loss, steps: int, rate: float, clip: float | None = None, warm: bool = False) -> None:
    """Train with Adam; `loss` draws a batch and returns its loss. `warm`: the rate rises, then falls to zero."""
    optimizer = torch.optim.Adam(model.parameters(), rate, fused=warm)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps) if warm else None
    for _ in range(steps):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if schedule is not None:
            schedule.step()
    model.eval()


def sentences(vocabulary: int, lengths: list[int], room: int = 0) -> Tokens:
    """Draw random ids, in the padding too."""
    return Tokens.of(torch.randint(vocabulary, (len(lengths), max(lengths) + room)), torch.tensor(lengths))


def pair(room: int = 0) -> tuple[Tokens, Tokens]:
    """Draw three sentences with their targets, of odd lengths."""
    return sentences(SOURCES, [5, 1, 3], room), sentences(TARGETS, [4, 6, 1], room)


def row(tokens: Tokens | Pictures, index: int) -> Tokens | Pictures:
    """Return one sentence without its padding, or one picture."""
    if isinstance(tokens, Pictures):
        return Pictures(tokens.pixels[index : index + 1])
    length = int(tokens.lengths[index])
    return Tokens.of(tokens.ids[index : index + 1, :length], torch.tensor([length]))
