"""Untrained toy runs of every kind, for the tests of inspection."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from regard.data import Tokenizers, generate, train
from regard.inspection import exhibit_of
from regard.inspection.collect.exhibit import Ablation, Exhibit, Graph, Stage, View, Walk
from regard.inspection.collect.forward_pass import ForwardPass, force, watch_forward
from regard.inspection.collect.from_run import ablation_of, views_of
from regard.inspection.collect.walk import Which, vocabulary_of, walk_of
from regard.models import KINDS, Model, build, read_model_config
from regard.run import Run
from regard.tasks import build_model, read_settings

PAIRS = list(generate("phrasebook", 60, longest=8, edition=1))
REVIEWS = list(generate("reviews", 40, edition=1))
TEXT = PAIRS[3].source
REVIEW = min((each.source for each in REVIEWS if each.source.count(" . ") > 1), key=len)
SMALL = {"size": 6, "embedding": 4}
STACK = {"size": 8, "heads": 2, "layers": 2, "hidden": 12}
GRID = {"channels": 8, "stages": 2, "blocks": 1}
SUTSKEVER = {"context": "start", "start": "copy", "reverse": True}
TRANSLATORS: dict[str, dict[str, Any]] = {
    "rnn": {"kind": "rnn", **SMALL},
    "rnn-sutskever": {"kind": "rnn", **SMALL, "cell": "lstm", "layers": 2, **SUTSKEVER},
    "rnnsearch": {"kind": "rnnsearch", **SMALL, "hidden": 5, "maxout": 4},
    "rnnsearch-blocks": {"kind": "rnnsearch", **SMALL, "hidden": 5, "encoder": "self-attention", "heads": 2},
    "luong": {"kind": "luong", **SMALL, "layers": 2},
    "luong-both-ends": {"kind": "luong", **SMALL, "layers": 2, "bidirectional": True},
    "luong-dot-unfed": {"kind": "luong", **SMALL, "score": "dot", "input_feeding": False},
    "luong-concat": {"kind": "luong", **SMALL, "score": "concat"},
    "luong-location": {"kind": "luong", **SMALL, "score": "location"},
    "luong-local-m": {"kind": "luong", **SMALL, "span": "local-m", "radius": 2, "reverse": True},
    "luong-local-p": {"kind": "luong", **SMALL, "span": "local-p", "radius": 2},
    "transformer": {"kind": "transformer", **STACK},
    "transformer-post": {"kind": "transformer", **STACK, "norm": "post"},
    "transformer-bare": {"kind": "transformer", **STACK, "norm": "none", "residual": False, "feed_forward": False},
    "transformer-no-norm": {"kind": "transformer", **STACK, "norm": "none"},
    "transformer-silu": {"kind": "transformer", **STACK, "activation": "silu", "output_bias": False, "layers": 1},
    "transformer-additive": {"kind": "transformer", **STACK, "score": "additive", "layers": 1},
    "transformer-slices": {"kind": "transformer", **STACK, "split": "input", "layers": 1},
    "transformer-recurrence": {"kind": "transformer", **STACK, "mixing": "recurrence"},
    "transformer-rotary": {"kind": "transformer", **STACK, "positions": "rotary", "decoder_layers": 1},
    "transformer-alibi": {"kind": "transformer", **STACK, "positions": "alibi"},
    "lstmn": {"kind": "lstmn", **SMALL, "hidden": 5, "layers": 2},
    "lstmn-deep": {"kind": "lstmn", **SMALL, "hidden": 5, "fusion": "deep"},
    "lstmn-plain": {"kind": "lstmn", **SMALL, "hidden": 5, "intra": False},
    "pointer": {"kind": "pointer", **SMALL, "hidden": 5},
    "pointer-once": {"kind": "pointer", **SMALL, "hidden": 5, "once": True},
    "ntm": {"kind": "ntm", **SMALL, "slots": 7, "width": 5, "heads": 2},
    "ntm-lstm": {"kind": "ntm", "controller": "lstm", **SMALL, "slots": 7, "width": 5, "feed": True},
}
WRITERS = {
    "encoder-writes": {"kind": "encoder", **STACK},
    "lstmn-writes": {"kind": "lstmn", **SMALL, "hidden": 5},
}
CLASSIFIERS = {
    "han": {"kind": "han", "size": 4, "embedding": 6, "hidden": 5},
    "han-mean": {"kind": "han", "size": 4, "embedding": 6, "hidden": 5, "attention": False},
    "han-flat": {"kind": "han", "size": 4, "embedding": 6, "hidden": 5, "levels": 1},
    "encoder-classifies": {"kind": "encoder", **STACK},
    "encoder-pools": {"kind": "encoder", **STACK, "pooling": "attention"},
    "lstmn-classifies": {"kind": "lstmn", **SMALL, "hidden": 5},
}
CAPTIONERS = {
    "captioner": {"kind": "captioner", **GRID, **SMALL, "hidden": 5},
    "captioner-hard": {"kind": "captioner", **GRID, **SMALL, "hidden": 5, "attention": "hard"},
    "captioner-through": {"kind": "captioner", **GRID, **SMALL, "hidden": 5, "attention": "straight-through"},
    "captioner-none": {"kind": "captioner", **GRID, **SMALL, "hidden": 5, "attention": "none"},
    "captioner-transformer": {"kind": "captioner", **GRID, **STACK, "decoder": "transformer"},
}
CONVNETS = {"convnet": {"kind": "convnet", **GRID, "after": 1}}
ALL = {**TRANSLATORS, **WRITERS, **CLASSIFIERS, **CAPTIONERS, **CONVNETS}
ATTENTIVE = [name for name in ALL if name not in ("rnn", "rnn-sutskever", "han-mean", "captioner-none")]


@cache
def tokenizers(kind: str = "bpe") -> Tokenizers:
    """Return one tokenizer for both sides, with subwords."""
    texts = [each.source for each in PAIRS] + [each.target for each in PAIRS]
    return Tokenizers(train(texts + [each.source for each in REVIEWS], kind, 300 if kind == "bpe" else "auto"))


@cache
def subject(name: str, words: str = "bpe") -> Run:
    """Return a run with random parameters, so that no weights are uniform and no γ is zero."""
    task, data = "translate", {"builtin": "phrasebook", "builtin_edition": 1}
    if name in WRITERS:
        task = "language-model"
    if name in CLASSIFIERS:
        task, data = "classify", {"builtin": "reviews"}
    if name in CAPTIONERS:
        task, data = "caption", {"builtin": "scenes"}
    if name in CONVNETS:
        task, data = "classify", {"builtin": "scenes", "builtin_options": ["question=which-size"]}
    settings = read_settings({"task": task, "data": data, "tokenizer": {"joint": True}, "model": ALL[name]})
    labels = ("bad", "good", "neither") if task == "classify" else ()
    texts = None if name in CONVNETS else tokenizers(words)
    torch.manual_seed(sum(map(ord, name)))
    model = build_model(settings, texts, labels).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return Run(Path("toy") / name, settings, texts, model, 40, labels)


def item_of(name: str) -> Any:
    """Return an input for a run: a text, a document or pixels."""
    if name in CAPTIONERS or name in CONVNETS:
        return torch.randint(256, (3, 16, 24), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return REVIEW if name in CLASSIFIERS else TEXT


def kind_of(name: str) -> str:
    return KINDS[ALL[name]["kind"]].name


@cache
def recorded(name: str) -> tuple[ForwardPass, tuple[View, ...]]:
    """Return a fully recorded pass over a run's own input, and its views."""
    run = subject(name)
    forward = watch_forward(run.model, force(run, item_of(name), beam=2, longest=5), record=True)
    return forward, views_of(forward, run.settings.kind)


def walked(name: str, *which: Any) -> tuple[Walk, dict[str, Stage]]:
    """Return the walk `Which(*which)` through a recorded pass, and its stages by symbol."""
    made = walk_of(*recorded(name), Which(*which), vocabulary_of(subject(name)))
    stages = {stage.symbol: stage for stage in made.stages}
    assert len(stages) == len(made.stages)  # each symbol is unique
    return made, stages


SHORT = {"longest": 7, "beam": 3}


@cache
def exhibit_of_subject(name: str, **options: Any) -> Exhibit:
    """Collect an exhibit of a run's own input with a short search."""
    return exhibit_of(subject(name), item_of(name), **{**SHORT, **options})


def walk(run: Run, item: Any, target: str | None = None, view=None, head=None, row=None, word=None, **options) -> Walk:
    """Walk one row of a view through its attention and on to a word; `options` go to the search."""
    forward = watch_forward(run.model, force(run, item, target=target, tree=False, **options), record=True)
    return walk_of(forward, views_of(forward, run.settings.kind), Which(view, head, row, word), vocabulary_of(run))


def ablate(run: Run, item: Any, **options: Any) -> Ablation:
    """Measure how much each head contributes to the output of a search with these options."""
    forced = force(run, item, tree=False, **options)
    views = views_of(watch_forward(run.model, forced), run.settings.kind)
    with torch.no_grad():
        return ablation_of(run.model, forced, views)


# ---- small models for graphs


def make(kind: str, vocabulary: int = 20, **options: object) -> Model:
    torch.manual_seed(1)
    config = read_model_config({"kind": kind, "size": 8, **options})
    return build(kind, config, vocabulary, vocabulary).eval()


def stack(kind: str = "transformer", **options: object) -> Model:
    """Return a model of blocks."""
    return make(kind, **{"heads": 2, "layers": 2, "hidden": 12, **options})


def reads(graph: Graph, name: str) -> list[str]:
    """Return the boxes that a box reads."""
    return [edge.source for edge in graph.edges if edge.target == name]
