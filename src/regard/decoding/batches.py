"""Many sentences: those of like length searched together, the answers in the order given."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch

from regard.decoding.found import Found, Output
from regard.decoding.options import GREEDY, Options
from regard.decoding.replay import FEW, Replay, serves
from regard.decoding.rows import tokens_of
from regard.decoding.search import PACK, search
from regard.errors import ArgumentError
from regard.kernels.linear import packed
from regard.models.contract import Model

__all__ = ["BUDGET", "greedy_in_batches", "search_in_batches", "tokens_of"]

BUDGET = 8192  # source tokens of a batch, counted for each of the hypotheses


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
) -> list[Found]:
    """What `search` finds for each of them; for an empty one an empty output.

    `budget` is the source tokens of a batch, counted for each hypothesis. On a GPU many sentences are searched by
    graphs that are replayed; `replay` keeps them for the next call.
    """
    if prefixes is not None and len(prefixes) != len(sources):
        raise ArgumentError(f"prefixes: {len(prefixes)} given, expected one for each of {len(sources)} sources")
    if options.precision == "bf16" and torch.device(device).type != "cuda":
        raise ArgumentError(f"precision: bf16 given, expected fp32 or auto: a search on {device} is in fp32")
    if replayed(model, sources, options, torch.device(device), trace):
        return (replay or Replay(model)).search(sources, options, prefixes, budget)
    budget = BUDGET if budget is None else budget
    answers = [Found([Output([], 0.0, 0.0, True)], [] if trace else None) for _ in sources]
    order = sorted((i for i in range(len(sources)) if len(sources[i])), key=lambda i: -len(sources[i]))
    rows = options.nbest if options.sample else options.beam
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


def replayed(
    model: Model,
    sources: Sequence[Sequence[int]],
    options: Options,
    device: torch.device,
    trace: bool,
) -> bool:
    """Whether this search is one for a graph."""
    return (
        device.type == "cuda"
        and not trace
        and len(sources) >= FEW
        and model.replays
        and serves(options)
        and not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    )


def greedy_in_batches(
    model: Model, sources: Sequence[Sequence[int]], device: torch.device | str, budget: int | None = None
) -> list[list[int]]:
    """Greedy search for many sentences."""
    found = search_in_batches(model, sources, GREEDY, device=device, budget=budget)
    return [each.outputs[0].tokens for each in found]
