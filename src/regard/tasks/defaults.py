"""Defaults chosen from the corpus when a command names only the data; printed before training starts.

Data first (how much is held out, which pieces), then the model from the number of tokens, then how long it is trained.
What a person has set is never changed, whatever is chosen beside it.

The metric that decides the best checkpoint is chosen from the references that are held out, where `training.metric` is
left open. BLEU counts runs of four words: it is 0 for targets of fewer, whatever a model learns, and in a script
without spaces its words are whole sentences.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from regard.config import show_value
from regard.data import Prepared, TextProfile
from regard.errors import ConfigError
from regard.models import KINDS
from regard.tasks.settings import Settings

HELD_OUT = 0.05  # of built-in documents and pictures: a label is less than a text
LONGEST = 1000  # tokens of a sentence: lines of a few hundred words are kept
LONG = 60  # tokens of a target, on average
PICTURES = 64  # of a batch, where training.batch_rows says nothing
SMALL = {"cuda": 50_000, "cpu": 150_000}  # target tokens from which a small model is chosen, and no tiny one
BASE = 4_000_000  # and from which, on a GPU, a base one
SIDES = re.compile(r"\b(left|right|link[es]n?|rechts|rechten?|gauche|droite|izquierda|derecha|sinistra|destra)\b", re.I)
NAMED = 0.02  # share of captions that may name a side where pictures are mirrored
WIDTHS = ("size", "heads", "hidden", "layers", "embedding", "depth")  # that a preset sets together, or that divide them
LONG_SIDE = 128  # tokens of a side above which attention dropout is slow on a GPU
LONG_SHARE = 0.01  # of the training pairs that may have a longer one
BLEU_WORDS = 4  # in its longest n-grams
SPELLED = 30  # symbols of a line: of more, hardly one is right to the last
CIDER = 50  # pictures: it weighs words by how few of them they speak of
MAJORITY = 0.8  # share of the most frequent label, from which calling everything by it looks good


def data_defaults(settings: Settings) -> Settings:
    """Return the settings with held-out size and pieces to be chosen from the corpus."""
    data: dict[str, Any] = {}
    tokenizer: dict[str, Any] = {}
    if settings.data.builtin:  # it generates as many for validation as it is asked for
        if settings.data.reads in ("documents", "pictures"):
            data["held_out"] = HELD_OUT
    else:
        data["held_out"] = "auto"
        if settings.data.reads == "text":
            data["longest"] = LONGEST
        if settings.data.reads == "pictures":
            data["crop"] = 0.1
    if not settings.tokenizer.has_file:
        tokenizer["kind"] = "auto"
        # One vocabulary, where the model needs it.
        if not KINDS[settings.kind].shares_vocabulary and not settings.model.ties_both_sides():
            tokenizer |= settings.row.defaults.get("tokenizer", {})
    return settings.suggest(data=data, tokenizer=tokenizer)


@dataclass(frozen=True)
class Corpus:
    """The properties of a corpus that a model is chosen by."""

    examples: int
    tokens: int  # of all targets, the END of each among them
    spelled: bool  # targets are spelled in characters, or in symbols of a small inventory

    @classmethod
    def of(cls, prepared: Prepared) -> "Corpus":
        """Describe the prepared corpus."""
        lengths, tokenizers = prepared.train.lengths, prepared.tokenizers
        tokens = int(lengths[:, 1].sum(dtype="int64")) + len(lengths)
        return cls(len(lengths), tokens, tokenizers is not None and tokenizers.target.kind in ("word", "character"))


def model_defaults(settings: Settings, corpus: Corpus, device: str) -> Settings:
    """Choose a model for the corpus: every option of it that nobody set."""
    model: dict[str, Any] = {}
    reads, few, gpu = settings.data.reads, corpus.examples < 2_000, device == "cuda"
    if reads == "pictures":
        model["preset"] = "tiny" if few else "base" if gpu else "small"
        model["dropout"] = 0.2
    elif reads == "documents":
        model |= {"preset": "tiny" if few else "small", "dropout": 0.5}
    else:
        small = corpus.tokens >= SMALL["cuda" if gpu else "cpu"] and not few
        model["preset"] = "base" if gpu and corpus.tokens >= BASE else "small" if small else "tiny"
        # Symbols leave little to guess by heart, and large corpora too.
        model["dropout"] = 0.1 if corpus.spelled or corpus.tokens >= 2 * BASE else 0.3
        model |= settings.model.choose(corpus.tokens > LONG * corpus.examples, bool(settings.tokenizer.joint))
    if model["preset"] not in KINDS[settings.kind].presets:  # a kind of one's own may have none
        del model["preset"]
    return choose_model(settings, {**model, **settings.row.defaults.get("model", {})})


def training_defaults(
    settings: Settings,
    lengths: Int[np.ndarray, "n 2"],
    budget: int,
    processes: int,
    device: str = "cpu",
    base: bool = False,
) -> Settings:
    """Choose the training settings that are left open from the corpus: the tokens of each source and target.

    `base`: a run's weights are the beginning, and are changed more gently.
    """
    examples, tokens = len(lengths), int(lengths[:, 1].sum(dtype="int64")) + len(lengths)
    training = dict(settings.overrides.get("training", {}))
    reads = settings.data.reads
    least = 1_000
    if base:  # trained weights are changed gently; the few numbers of adapters may move further
        training.setdefault("rate", 1e-3 if settings.model.adapter_rank() else 3e-4)
    if reads == "pictures":
        many = device == "cuda" and examples >= 4_000
        batches = examples / training.setdefault("batch_rows", 2 * PICTURES if many else PICTURES)
        epochs = 40 if examples < 100_000 else 20
        training.setdefault("weight_decay", 0.05)
    elif reads == "documents":  # a label is learned from a document with fewer looks than a translation
        batches = int(lengths[:, 0].sum(dtype="int64")) / budget
        epochs, least = 20 if examples < 10_000 else 8 if examples < 100_000 else 4, 300
        training.setdefault("rate", 2e-3)
    else:
        batches = tokens / budget
        # On a GPU a pass is cheap, and a small corpus gains from twice as many.
        epochs = 60 if tokens < 100_000 else 40 if tokens < 2_000_000 else 20 if tokens < 20_000_000 else 8
        epochs *= 2 if device == "cuda" and tokens < 2_000_000 else 1
        if (rate := settings.model.suitable_rate()) is not None:
            training.setdefault("rate", rate)
    updates = epochs * batches / (processes * training.get("accumulate", 1))
    steps = training.setdefault("steps", min(100_000, max(least, math.ceil(updates / 100) * 100)))
    training.setdefault("schedule", "cosine")
    training.setdefault("warmup", max(1, min(4_000, steps // 10)))
    training.setdefault("ema", 0.999)
    training.setdefault("validate_every", max(min(50, steps), min(1_000, steps // 20)))
    training.setdefault("patience", 8)
    return settings.suggest(training=training)


def picture_defaults(settings: Settings, captions: Iterable[Sequence[str]]) -> Settings:
    """Choose whether to mirror pictures in training: only if their captions hardly ever name a side."""
    texts = [text for each in captions for text in each]
    return settings.suggest(data={"flip": mirrored(texts)}) if texts else settings


def mirrored(texts: Sequence[str]) -> bool:
    """Return whether these captions are also true of the mirrored picture."""
    return sum(SIDES.search(text) is not None for text in texts) <= NAMED * len(texts)


def chosen_words(settings: Settings) -> str:
    """Describe the chosen settings in one line."""
    training, model = settings.training, settings.model
    size = f"width {model.size}, " if hasattr(model, "size") else ""
    layers = f"{model.layers} layer{'s' * (model.layers != 1)}, " if hasattr(model, "layers") else ""
    steps = f"up to {training.steps:,} steps"
    if training.fit:
        steps = f"as many steps as fit into {training.minutes:g} minutes"
    return (
        f"chosen from the corpus: {settings.kind}, {size}{layers}dropout {model.dropout:g}; {steps}, "
        f"rate {training.rate:g}, {training.schedule} schedule (change any with --set)"
    )


def choose_model(settings: Settings, chosen: Mapping[str, Any]) -> Settings:
    """Fill in the chosen options that nobody set.

    One that does not go with what was set gives way to its default: positions that cannot be concatenated, where they
    are to be. Sizes do not: they come from the chosen preset, and what was set has to fit them.
    """
    own = {key: value for key, value in settings.overrides.get("model", {}).items() if key not in ("kind", "preset")}
    try:
        return settings.suggest(model=chosen)
    except ConfigError as error:
        first = error
    others = [key for key in chosen if key != "preset" and key not in own]
    for left_out in [*([key] for key in others), others]:
        try:
            return settings.suggest(model={key: value for key, value in chosen.items() if key not in left_out})
        except ConfigError:
            continue
    key = next((key for key in WIDTHS if key in own), next(iter(own), ""))
    if not key or first.key == f"model.{key}":
        raise first
    preset = settings.overrides["model"].get("preset", chosen.get("preset"))
    option = first.key.removeprefix("model.")
    raise ConfigError(
        f"model.{key}",
        f'{show_value(own[key])} given, which does not go with model.{option} of the preset "{preset}" '
        f"({first.problem}); set model.{option}, too, or another model.{key}",
    )


def drop_attention_dropout(
    settings: Settings, device: str, lengths: Int[np.ndarray, "n 2"]
) -> tuple[Settings, str | None]:
    """Choose no attention dropout for long pairs on a GPU, where it is many times slower; and a line that says so.

    `lengths` are the tokens of both sides of the training pairs. A value that somebody set stays.
    """
    usual = settings.model.choose(False, False).get("attention_dropout")
    by_hand = "attention_dropout" in settings.overrides.get("model", {})
    if device != "cuda" or by_hand or not usual or settings.data.reads != "text" or not len(lengths):
        return settings, None
    share = float((lengths.max(axis=1) > LONG_SIDE).mean())
    if share <= LONG_SHARE:
        return settings, None
    return settings.suggest(model={"attention_dropout": 0.0}), (
        f"chosen for long lines: attention dropout 0 rather than {usual:g}, which is slow for them on a GPU: "
        f"{share:.1%} of the training pairs have a side of over {LONG_SIDE} tokens (change it with --set "
        f"model.attention_dropout={usual:g})"
    )


def translation_metric(references: Sequence[str]) -> str:
    """Choose BLEU for sentences; exact match for words, names and symbols; chrF for scripts without spaces."""
    shape = TextProfile.of(references)
    if shape.spelled and shape.words > SPELLED:
        return "chrf"
    return without_bleu(shape) or ("exact" if shape.spelled else "bleu")


def caption_metric(references: Sequence[Sequence[str]]) -> str:
    """Choose CIDEr for enough captions of several words; exact match for one or two words; else chrF."""
    shape = TextProfile.of([text for texts in references for text in texts])
    return without_bleu(shape) or ("cider" if len(references) >= CIDER else "chrf")


def without_bleu(shape: TextProfile) -> str | None:
    """Choose a metric where n-grams of words say nothing: no texts, no spaces, or too few words; else None."""
    if not shape.words:
        return "loss"
    if shape.unspaced:
        return "chrf"
    return "exact" if shape.words < BLEU_WORDS else None


def label_metric(labels: Sequence[int]) -> str:
    """Choose accuracy; macro-F1 where one label dominates; the loss where all have the same label."""
    counts = Counter(labels)
    if len(counts) < 2:
        return "loss"
    return "f1" if max(counts.values()) >= MAJORITY * len(labels) else "accuracy"
