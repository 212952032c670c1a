"""Benchmarks of translation on a GPU: Regard's replayed search against Transformers, JoeyNMT and CTranslate2.

Sources have 25 tokens and outputs 28. END is forbidden before the last token and forced there, so that every system
takes the same number of steps. Before timing, results are compared in float32: greedy outputs with those of the peers,
which have the same weights, and scores with Regard's own search, step by step. Timing is in half precision. Regard's
time runs from lists of token ids to lists of outputs, including all work on the host; peers use the better of two batch
sizes.
"""

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from regard.data import UNKNOWN, Batch, collate
from regard.decoding import Options, Replay, search, tokens_of
from regard.errors import RegardError
from regard.models import Model, TransformerModel
from regard_bench import decoding_peers, training_cuda, training_peers
from regard_bench.decoding_peers import Decoder, transformer
from regard_bench.measure import Result, ceilings, elsewhere, obstacle, time_interleaved
from regard_bench.training_peers import Sizes

SENTENCES = 16_384
IN, OUT = 25, 28  # tokens of a source, and of an output including END
CHECKED = 64  # sentences whose outputs are compared
TIE = 1e-3  # scores this close are a tie in float32
ALIKE = 0.9  # share of greedy outputs that must equal a peer's: the rest may differ after a tie
SIZES = (256, 1024)  # sentences per batch of a peer: both are tried
GOALS = {("Transformer", 1): 40_000, ("Transformer", 5): 10_000, ("rnnsearch", 1): 50_000, ("rnnsearch", 5): 10_000}


def run(rounds: int = 5, seed: int = 0, sizes: Sizes = training_cuda.BASE) -> Iterator[Result]:
    """Run every comparison."""
    if not torch.cuda.is_available():
        raise RegardError("bench: --device cuda given, but torch finds no CUDA device")
    torch.manual_seed(seed)
    random.seed(seed)
    products, copies = ceilings()
    card = f"of {products:.0f} TFLOP/s and {copies:.2f} TB/s"
    sources = [[random.randrange(UNKNOWN + 1, sizes.vocabulary) for _ in range(IN)] for _ in range(SENTENCES)]
    models: dict[str, Model] = {
        "Transformer": transformer(sizes).cuda().eval(),
        "rnnsearch": sizes.rnnsearch(cell="lstm").cuda().eval(),
    }
    for name, model in models.items():
        same_search(name, model, sources[:CHECKED])
        replay = Replay(model)
        for beam in (1, 5):
            what = f"{name}, width {sizes.size}, {IN} tokens in, {OUT} out, {'greedy' if beam == 1 else f'beam {beam}'}"
            (seconds,) = time_interleaved([partial(replay.search, sources, options(beam))], rounds)
            mine = len(sources) / seconds.median
            goal = GOALS[name, beam]
            text, details = f"Regard {mine:,.0f} sentences/s", {"ours_sentences_s": mine, "beam": float(beam)}
            yield Result(what, text, card, mine / goal, f"{goal:,} sentences/s", mine >= goal, details)
            if name == "Transformer":
                assert isinstance(model, TransformerModel)
                yield from beside(what, text, model, sizes, sources, beam, mine)


def options(beam: int, precision: str = "auto") -> Options:
    """Return search options with a fixed number of tokens."""
    return Options(beam=beam, length_penalty=0.0, shortest=OUT - 1, longest=OUT - 1, precision=precision)  # type: ignore[arg-type]


def same_search(name: str, model: Model, sources: Sequence[Sequence[int]]) -> None:
    """Check in float32 that the replayed search finds the same best scores as the search step by step."""
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    try:
        for beam in (1, 5):
            results = Replay(model).search(sources, options(beam, "fp32"))
            expected = search(model, tokens_of(sources, "cuda"), options(beam, "fp32"))
            pairs = zip(results, expected, strict=True)
            difference = max(abs(one.outputs[0].score - other.outputs[0].score) for one, other in pairs)
            if not difference <= TIE * OUT:
                raise RegardError(
                    f"bench: {name}, beam {beam}: scores of the replayed search differ by {difference:.2e}, so "
                    "no speed is compared"
                )
    finally:
        torch.backends.cudnn.allow_tf32 = before


class Peer(NamedTuple):
    """A system that has the weights of a Regard Transformer."""

    name: str
    package: str
    make: Callable[[TransformerModel, Sizes, str], Decoder]
    exact: bool = True  # whether its greedy outputs in float32 must equal Regard's


PEERS = (
    Peer(
        "Transformers' MarianMT, bf16", "transformers",
        lambda model, sizes, device: decoding_peers.MarianDecoder(model, sizes, OUT - 1, device),
    ),
    Peer(
        "JoeyNMT, bf16", "joeynmt",
        lambda model, sizes, device: decoding_peers.JoeyDecoder(
            training_peers.JoeyTransformer(sizes, "post").to(device), OUT - 1, model
        ),
    ),
    Peer(  # always in half precision
        "CTranslate2, float16", "ctranslate2",
        lambda model, sizes, device: decoding_peers.CTranslate2Decoder(
            model, OUT - 1, "float16" if device == "cuda" else "float32", device
        ),
        exact=False,
    ),
)  # fmt: skip


def beside(
    what: str,
    text: str,
    model: TransformerModel,
    sizes: Sizes,
    sources: Sequence[Sequence[int]],
    beam: int,
    mine: float,
) -> Iterator[Result]:
    """Time every installed peer with the same weights."""
    for peer in PEERS:
        if hindrance := obstacle(peer.package):
            yield Result(what, text, f"{peer.name.split(',')[0]} {hindrance}", None, "none", False)
            continue
        elsewhere.add(peer.package)
        decoder = peer.make(copy.deepcopy(model).cpu(), sizes, "cuda")
        details = {"ours_sentences_s": mine, "beam": float(beam)}
        if beam == 1:
            longer = Options(beam=1, length_penalty=0.0, shortest=OUT, longest=OUT, precision="fp32")
            ours = [result.outputs[0].tokens for result in Replay(model).search(sources[:CHECKED], longer)]
            details["equal_outputs"] = alike(decoder, sources[:CHECKED], ours)
            if peer.exact and details["equal_outputs"] < ALIKE:
                raise RegardError(
                    f"bench: only {details['equal_outputs']:.0%} of the greedy outputs equal those of {peer.name} with "
                    "the same weights, so no speed is compared"
                )
        decoder = decoder.halve()
        rates: dict[int, float] = {}
        for size in SIZES:
            (seconds,) = time_interleaved([partial(decoder, decoder.prepare(batch_of(sources[:size])), beam)], 3)
            rates[size] = size / seconds.median
        best = max(rates, key=lambda size: rates[size])
        details |= {"peer_sentences_s": rates[best], "peer_batch": float(best)}
        theirs = f"{peer.name} {rates[best]:,.0f} sentences/s (batch {best})"
        yield Result(what, text, theirs, mine / rates[best], "none", True, details)


def batch_of(sources: Sequence[Sequence[int]], device: str = "cuda") -> Batch:
    """Create a padded batch of sources for peers."""
    return collate([(np.array(source), np.array([], dtype=np.int64)) for source in sources]).to(device)


def alike(decoder: Decoder, sources: Sequence[Sequence[int]], ours: list[list[int]], device: str = "cuda") -> float:
    """Return the share of greedy outputs that equal a peer's."""
    inputs = decoder.prepare(batch_of(sources, device))
    theirs = decoder.tokens(decoder(inputs, 1), inputs)
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)
