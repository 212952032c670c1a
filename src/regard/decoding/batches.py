"""Many sentences: those of like length searched together, the answers in the order given."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch

from regard.data.tokenizer import PAD
from regard.decoding.found import Found, Output
from regard.decoding.options import GREEDY, Options
from regard.decoding.search import PACK, search
from regard.errors import ArgumentError
from regard.kernels.linear import packed
from regard.models.contract import Model, Tokens

__all__ = ["BUDGET", "greedy_in_batches", "search_in_batches", "tokens_of"]

BUDGET = 8192  # source tokens of a batch, counted for each of the hypotheses


def tokens_of(rows: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Tokens:
    """Sentences of token numbers as a padded batch."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), max(1, int(lengths.max()))), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    return Tokens.of(ids.to(device), lengths.to(device))


def search_in_batches(
    model: Model,
    sources: Sequence[Sequence[int]],
    options: Options = Options(),  # noqa: B008
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | str = "cpu",
    budget: int = BUDGET,
    trace: bool = False,
) -> list[Found]:
    """What `search` finds for each of them; for an empty one an empty output."""
    answers = [Found([Output([], 0.0, 0.0, True)], [] if trace else None) for _ in sources]
    order = sorted((i for i in range(len(sources)) if len(sources[i])), key=lambda i: -len(sources[i]))
    rows = options.nbest if options.sample else options.beam
    if prefixes is not None and len(prefixes) != len(sources):
        raise ArgumentError(f"prefixes: {len(prefixes)} given, expected one for each of {len(sources)} sources")
    with packed() if len(order) * rows >= PACK else nullcontext():
        while order:
            # The caches have room for the limit, which may be more than the source.
            size = max(len(sources[order[0]]), options.longest or 0) + 1
            count = max(1, budget // (rows * size))
            chunk, order = order[:count], order[count:]
            given = None if prefixes is None else [prefixes[i] for i in chunk]
            batch = tokens_of([sources[i] for i in chunk], device)
            for i, found in zip(chunk, search(model, batch, options, prefixes=given, trace=trace), strict=True):
                answers[i] = found
    return answers


def greedy_in_batches(
    model: Model, sources: Sequence[Sequence[int]], device: torch.device | str, budget: int = BUDGET
) -> list[list[int]]:
    """Greedy search for many sentences."""
    found = search_in_batches(model, sources, GREEDY, device=device, budget=budget)
    return [each.outputs[0].tokens for each in found]
