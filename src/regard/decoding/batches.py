"""Search, score and label many inputs in batches.

Results are in the order of the inputs. Batches hold sentences and documents of similar length, to save padding, and a
limited number of pictures.
"""

# n inputs · b inputs of a batch · h w height and width of a picture · v labels, or vocabulary
# r rows, hypotheses of all sentences
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.data import PAD, Batch, collate
from regard.decoding.ensemble import Ensemble
from regard.decoding.limits import select_prefixes
from regard.decoding.options import Options, Output, SearchResult
from regard.decoding.replay import Replay
from regard.decoding.scoring import check_finite, source_of, tokens_of
from regard.decoding.sentence_search import search
from regard.errors import ArgumentError
from regard.kernels import pack_weights, planning
from regard.models import Model, Pictures, Source, Tokens

BUDGET = 8192  # source tokens per batch, counted once per hypothesis
FEW = 32  # sentences; for fewer, capturing a CUDA graph does not pay
LABEL_BUDGET = 16_384  # tokens per batch
PICTURES = 64  # pictures per batch
HYPOTHESES = 1024  # the most hypotheses per batch of pictures, unless a single picture has more
SCORE_BUDGET = 2048  # tokens per batch and side; each target token holds scores of the whole vocabulary
Pixels = UInt8[Tensor, "b 3 h w"] | UInt8[np.ndarray, "b 3 h w"]


SEARCH = planning.Table(
    "search",
    planning.Row(
        name="replayed",
        devices=("cuda",),
        conditions=(
            planning.Condition(
                lambda request: request.sizes["sentences"] >= FEW, f"a graph pays for {FEW} sentences and more"
            ),
        ),
    ),
    planning.Row(name="step by step", features=None),
    steps={"sentences": (FEW - 1,)},
)


def describe(model: Model, count: int, options: Options, device: str, trace: bool = False) -> planning.Request:
    """Describe a search for `count` sentences as a request to the table of searches."""
    needs = [*host_features(options)]
    if trace:
        needs.append("a trace")
    if not model.replays:
        needs.append("a model whose steps wait for the host")
    # Only CUDA graphs would skip hooks.
    if device == "cuda" and any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        needs.append(planning.HOOKS)
    return planning.Request(device, (), tuple(needs), {"sentences": count})


def host_features(options: Options) -> tuple[str, ...]:
    """Return the features of a search that need the host between steps; an empty tuple: it can be replayed."""
    asked = {
        "sampling": options.sample,
        "a coverage penalty": options.coverage_penalty,
        "no_repeat": options.no_repeat,
        "groups of a beam": options.groups > 1,
    }
    return tuple(name for name, given in asked.items() if given)


def search_in_batches(
    model: Model,
    sources: Sequence[Sequence[int]],
    options: Options = Options(),  # noqa: B008
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | str = "cpu",
    budget: int | None = None,
    trace: bool = False,
    replay: Replay | None = None,
) -> list[SearchResult]:
    """Search for outputs for all sources, in batches; an empty source gets an empty output.

    `budget` is the number of source tokens per batch, counted once per hypothesis. On a GPU a search for many sentences
    replays CUDA graphs; `replay` keeps them for the next call.
    """
    if prefixes is not None and len(prefixes) != len(sources):
        raise ArgumentError(f"prefixes: {len(prefixes)} given, expected one for each of {len(sources)} sources")
    if options.precision == "bf16" and torch.device(device).type != "cuda":
        raise ArgumentError(f"precision: bf16 given, expected fp32 or auto: a search on {device} is in fp32")
    request = describe(model, len(sources), options, torch.device(device).type, trace)
    if SEARCH.choose(request).name == "replayed":
        return (replay or Replay(model)).search(sources, options, prefixes, budget)
    budget = BUDGET if budget is None else budget
    answers: list[SearchResult | None] = [None] * len(sources)
    there = [i for i, source in enumerate(sources) if len(source)]
    sizes = [len(sources[i]) + 1 for i in there]
    rows = options.nbest if options.sample else options.beam
    with pack_weights(len(there) * rows):
        # Caches have room for the output's limit, which may be longer than the source.
        for places in batches_of_like_size(sizes, budget // rows, (options.longest or 0) + 1):
            chunk = [there[place] for place in places]
            batch = tokens_of([sources[i] for i in chunk], device)
            begun = select_prefixes(prefixes, chunk)
            results = search(model, batch, options, prefixes=begun, trace=trace)
            for i, result in zip(chunk, results, strict=True):
                answers[i] = result
    return [
        SearchResult([Output([], 0.0, 0.0, True)], [] if trace else None) if each is None else each for each in answers
    ]


def batches_of_like_size(sizes: Sequence[int], budget: int, least: int = 1) -> Iterator[list[int]]:
    """Yield batches of indices of items of similar size, largest first: as many as fit the budget, at least one.

    An item smaller than `least` counts as `least`.
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    while order:
        count = max(1, budget // max(least, sizes[order[0]]))
        chunk, order = order[:count], order[count:]
        yield chunk


def label_in_batches(
    model: Model,
    rows: Sequence[Sequence[int]],
    reads: str,
    device: torch.device | str = "cpu",
    budget: int = LABEL_BUDGET,
) -> Float[Tensor, "n v"]:
    """Compute the log-probabilities of all labels for documents encoded by `encode_documents`.

    `reads` is the kind's: "documents" (sentence by sentence) or "text" (as a whole).
    """
    scores = dict[int, Tensor]()
    for chunk in batches_of_like_size([len(row) + 1 for row in rows], budget):
        batch = source_of([rows[i] for i in chunk], reads).to(device)
        scores |= zip(chunk, label_log_probs(model, batch).cpu(), strict=True)
    return torch.stack([scores[i] for i in range(len(rows))]) if rows else torch.zeros(0, model.readout.out_features)


def label_pictures(
    model: Model, pixels: Iterable[np.ndarray | Tensor], device: torch.device | str = "cpu", rows: int = PICTURES
) -> Float[Tensor, "n v"]:
    """Compute the log-probabilities of all labels for pictures of one size, [3 h w] each, in batches of `rows`."""
    none = torch.zeros(0, model.readout.out_features)
    return torch.cat([none, *(label_log_probs(model, batch).cpu() for batch in picture_batches(pixels, device, rows))])


def picture_batches(pixels: Iterable[np.ndarray | Tensor], device: torch.device | str, rows: int) -> Iterator[Pictures]:
    """Yield batches of `rows` pictures of one size."""
    each = iter(pixels)
    while chunk := list(itertools.islice(each, rows)):
        yield Pictures(torch.stack([torch.as_tensor(one) for one in chunk]).to(device))


@torch.no_grad()
def label_log_probs(model: Model, source: Source) -> Float[Tensor, "b v"]:
    """Compute the log-probabilities of all labels for a batch."""
    scores = model.classify(model.encode(source))
    check_finite(model, scores, impossible=False)
    return (scores if scores.dtype == torch.float64 else scores.float()).log_softmax(-1)


def search_pictures(
    model: Model,
    pixels: Pixels | Iterable[np.ndarray | Tensor],
    options: Options = Options(),  # noqa: B008
    *,
    device: torch.device | str = "cpu",
    rows: int = PICTURES,
) -> Iterator[SearchResult]:
    """Search lazily for captions for pictures of one size, [b 3 h w] or an iterable of [3 h w], and yield the results.

    A batch holds at most `rows` pictures.
    """
    if rows < 1:
        raise ArgumentError(f"rows: {rows} given, expected at least 1")
    hypotheses = options.nbest if options.sample else options.beam
    for batch in picture_batches(pixels, device, min(rows, max(1, HYPOTHESES // hypotheses))):
        yield from search(model, batch, options)


class Scored(NamedTuple):
    """The log-probability of a target given its source, END included, and those of its tokens, END last."""

    log_prob: float
    tokens: list[float]


@torch.no_grad()
def score_pairs(
    model: Model,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    device: torch.device | str = "cpu",
    budget: int = SCORE_BUDGET,
) -> list[Scored]:
    """Score each pair of token sequences by the model, in the order of the pairs."""
    if len(sources) != len(targets):
        raise ArgumentError(f"targets: {len(targets)} given, expected one for each of {len(sources)} sources")
    sizes = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    if model.limit is not None and targets and max(map(len, targets)) >= model.limit:
        raise ArgumentError(
            f"target: {max(map(len, targets))} tokens given, expected fewer than {model.limit}, the model's length"
        )
    answers: list[Scored] = [Scored(0.0, [])] * len(sources)
    for chunk in batches_of_like_size(sizes, budget):
        batch = collate([(sources[i], targets[i]) for i in chunk]).to(device)
        for i, row in zip(chunk, log_probs(model, batch).cpu(), strict=True):
            tokens = row[: len(targets[i]) + 1].double()
            check_finite(model, tokens)
            answers[i] = Scored(float(tokens.sum()), tokens.tolist())
    return answers


def log_probs(model: Model, batch: Batch) -> Float[Tensor, "b n"]:
    """Compute the log-probability of every target token; for an ensemble, the logarithm of the mean probability."""
    if isinstance(model, Ensemble):
        return torch.stack([log_probs(each, batch) for each in model.each]).logsumexp(0) - math.log(len(model.each))
    ids = batch.source if batch.source.shape[1] else F.pad(batch.source, (0, 1), value=PAD)  # all sources are empty
    source = Tokens.of(ids, batch.source_lengths)
    read = Tokens.of(batch.target[:, :-1], batch.target_lengths)  # START first, without END
    hidden, _ = model.decode(model.encode(source), read)
    logits = model.output(hidden)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return -F.cross_entropy(logits.transpose(1, 2), batch.target[:, 1:], reduction="none")
