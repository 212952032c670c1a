"""What a translation costs on a GPU: Regard's replayed search beside Transformers' Marian.

Sources of 25 tokens, 28 tokens for each, END forbidden before the last and forced there, so that every system takes the
same number of steps. Before anything is timed, results are compared in float32: greedy outputs with Marian's, which has
the same weights, and beams with Regard's own search, step by step. Timed is bfloat16, from lists of token numbers to
lists of outputs, everything on the host included; every system at the batch size that suits it best.
"""

import importlib.util
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from regard.bench import decoders, training_cuda
from regard.bench.decoding import transformer
from regard.bench.measure import Result
from regard.bench.peers import Sizes
from regard.data.tokenizer import UNKNOWN
from regard.decoding.options import Options
from regard.decoding.replay import Replay
from regard.decoding.rows import tokens_of
from regard.decoding.search import search
from regard.errors import RegardError
from regard.models.contract import Model

__all__ = ["run"]

SENTENCES = 16_384
IN, OUT = 25, 28  # tokens, END among the latter
CHECKED = 64  # sentences whose outputs are compared
TIE = 1e-3  # scores this close may fall either way in float32
ALIKE = 0.9  # the share of greedy outputs that must be Marian's, token by token: the rest may follow a tie
MARIAN = (256, 1024)  # sentences of a batch that are tried
GOALS = {("Transformer", 1): 40_000, ("Transformer", 5): 10_000, ("rnnsearch", 1): 50_000, ("rnnsearch", 5): 10_000}


def run(rounds: int = 5, seed: int = 0, sizes: Sizes = training_cuda.BASE) -> Iterator[Result]:
    """Every comparison, one after the other."""
    if not torch.cuda.is_available():
        raise RegardError("bench: --device cuda given, and torch sees no CUDA device here")
    torch.manual_seed(seed)
    random.seed(seed)
    products, copies = training_cuda.ceilings()
    card = f"of {products:.0f} TFLOP/s and {copies:.2f} TB/s"
    sources = [[random.randrange(UNKNOWN + 1, sizes.vocabulary) for _ in range(IN)] for _ in range(SENTENCES)]
    models: dict[str, Model] = {
        "Transformer": transformer(sizes).cuda().eval(),
        "rnnsearch": training_cuda.rnnsearch(sizes).cuda().eval(),
    }
    for name, model in models.items():
        same_search(name, model, sources[:CHECKED])
        replay = Replay(model)
        for beam in (1, 5):
            what = f"{name}, width {sizes.size}, {IN} tokens in, {OUT} out, {'greedy' if beam == 1 else f'beam {beam}'}"
            mine = rate(partial(replay.search, sources, options(beam)), len(sources), rounds)
            goal = GOALS[name, beam]
            told, details = f"Regard {mine:,.0f} sentences/s", {"ours_sentences_s": mine, "beam": float(beam)}
            yield Result(what, told, card, mine / goal, f"{goal:,} sentences/s", mine >= goal, details)
            if name == "Transformer":
                yield beside_marian(what, told, model, sizes, sources, beam, mine, rounds)


def options(beam: int, precision: str = "auto") -> Options:
    """A number of tokens that is the same for all."""
    return Options(beam=beam, length_penalty=0.0, shortest=OUT - 1, longest=OUT - 1, precision=precision)  # type: ignore[arg-type]


def rate(call: Callable[[], object], count: int, rounds: int) -> float:
    """Sentences a second, the median of rounds; the first two pay for graphs and kernels."""
    seconds = []
    for number in range(2 + rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if number >= 2:
            seconds.append(time.perf_counter() - began)
    return count / statistics.median(seconds)


def same_search(name: str, model: Model, sources: Sequence[Sequence[int]]) -> None:
    """Replayed, in float32, the best of every beam has the score that the search finds step by step."""
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    try:
        for beam in (1, 5):
            found = Replay(model).search(sources, options(beam, "fp32"))
            expected = search(model, tokens_of(sources, "cuda"), options(beam, "fp32"))
            pairs = zip(found, expected, strict=True)
            apart = max(abs(one.outputs[0].score - other.outputs[0].score) for one, other in pairs)
            if not apart <= TIE * OUT:
                raise RegardError(
                    f"bench: {name}, beam {beam}: scores of the replayed search differ by {apart:.2e}, so no speed is "
                    "compared"
                )
    finally:
        torch.backends.cudnn.allow_tf32 = before


def beside_marian(
    what: str,
    told: str,
    model: Any,
    sizes: Sizes,
    sources: Sequence[Sequence[int]],
    beam: int,
    mine: float,
    rounds: int,
) -> Result:
    """The same weights in MarianMTModel.generate."""
    goal = "none"
    if importlib.util.find_spec("transformers") is None:
        return Result(what, told, "Transformers' Marian is not installed", None, goal, False)
    peer = decoders.Marian(model.cpu(), sizes, OUT - 1)
    model.cuda()
    peer.net.cuda()
    details = {"ours_sentences_s": mine, "beam": float(beam)}
    if beam == 1:
        longer = Options(beam=1, length_penalty=0.0, shortest=OUT, longest=OUT, precision="fp32")
        ours = [found.outputs[0].tokens for found in Replay(model).search(sources[:CHECKED], longer)]
        said = peer.tokens(peer(prepared(sources[:CHECKED]), 1), None)  # type: ignore[arg-type]
        details["equal_outputs"] = sum(a == b for a, b in zip(ours, said, strict=True)) / CHECKED
        if details["equal_outputs"] < ALIKE:
            raise RegardError(
                f"bench: {details['equal_outputs']:.0%} of the greedy outputs are Marian's, with the same weights, so "
                "no speed is compared"
            )
    peer.net.to(torch.bfloat16)
    rates = {}
    for size in MARIAN:
        given = prepared(sources[:size])
        rates[size] = rate(partial(peer, given, beam), size, min(rounds, 3))
    best = max(rates, key=lambda size: rates[size])
    details |= {"peer_sentences_s": rates[best], "peer_batch": float(best)}
    peer_told = f"Transformers' Marian in bf16 {rates[best]:,.0f} sentences/s (batch {best})"
    return Result(what, told, peer_told, mine / rates[best], goal, True, details)


def prepared(sources: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """Rows and a mask of what is there, which is all of it."""
    ids = tokens_of(sources, "cuda").ids
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
