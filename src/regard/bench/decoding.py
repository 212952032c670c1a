"""What a translation costs: Regard's search beside Transformers', JoeyNMT's and CTranslate2's.

Batches of 64 sources, and exactly 15 tokens for each: END is forbidden before, and the search stops there, so that all
systems take the same number of steps. The Transformers (post-norm, as Marian is) have one and the same set of random
weights, and must say the same: greedy outputs that part where the two tokens were not a tie are refused, and so is more
than a few beams of another probability. JoeyNMT's GRU has other weights than RNNsearch; there only lengths are
compared. Systems take turns, batch by batch; compared is the median of the batches' ratios.
"""

import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from regard.bench import decoders, peers, training
from regard.bench.decoders import Decoder, Outputs
from regard.bench.measure import Result
from regard.bench.pairs import make_pairs
from regard.bench.peers import Sizes
from regard.data.batching import Batch, collate
from regard.data.tokenizer import END, PAD, START
from regard.errors import RegardError
from regard.kernels.linear import packed
from regard.models import kinds
from regard.models.contract import Model, Tokens
from regard.models.transformer import TransformerModel

__all__ = ["run"]

ROWS = 64  # sentences of a batch
LENGTH = 14  # tokens of an output; with its END 15
IN_A_ROW = 3  # batches of a turn: what a stream of them costs, not the first one after others
BEAMS = (1, 5)
REST = 0.3  # seconds: threads of another OpenMP spin for 0.2 after their work
TIE = 1e-3  # log-probabilities this close may fall either way in float32
APART = 0.05  # the share of beams that may end elsewhere after such a tie
CHECKED = 2  # batches whose outputs are compared
ROUNDED = "CTranslate2 int8"  # whose weights are no longer the same

PACKAGES = {
    "Transformers' Marian": "transformers",
    "JoeyNMT": "joeynmt",
    "CTranslate2 float32": "ctranslate2",
    ROUNDED: "ctranslate2",
    "JoeyNMT GRU": "joeynmt",
}
GOALS = {  # × the peer's speed, greedy and with a beam; what is not here is for comparison
    ("Transformers' Marian", 1): 1.3,
    ("Transformers' Marian", 5): 2.0,
    ("JoeyNMT GRU", 1): 2.0,
    ("JoeyNMT GRU", 5): 2.0,
}


def run(
    rounds: int = 9, seed: int = 0, sizes: Sizes | None = None, rows: int = ROWS, length: int = LENGTH
) -> Iterator[Result]:
    """Every comparison, one after the other, on this machine's CPU."""
    sizes = Sizes() if sizes is None else sizes
    batches = make_batches(rounds * IN_A_ROW, rows, sizes.vocabulary, seed)
    shape = f"batch {rows}, {length} tokens"

    torch.manual_seed(seed)
    model = transformer(sizes)
    systems: dict[str, Callable[[], Decoder]] = {
        "Regard": partial(decoders.Regard, model, length),
        "Transformers' Marian": partial(decoders.Marian, model, sizes, length),
        "JoeyNMT": lambda: decoders.Joey(decoders.joey_transformer(sizes), length, model),
        "CTranslate2 float32": partial(decoders.CTranslate2, model, length),
        ROUNDED: partial(decoders.CTranslate2, model, length, "int8"),
    }
    measured = measure(systems, batches)
    equal = same_outputs(batches, measured)
    what = f"Transformer {sizes.layers}+{sizes.layers}, width {sizes.size}, {sizes.vocabulary} pieces, {shape}"
    yield from compared(what, measured, list(systems), equal)

    torch.manual_seed(seed)
    systems = {
        "Regard": partial(decoders.Regard, training.rnnsearch(sizes).objective.model, length),
        "JoeyNMT GRU": lambda: decoders.Joey(peers.JoeyRNN(sizes), length),
    }
    what = f"rnnsearch, one GRU, all {sizes.size} wide, {sizes.vocabulary} pieces, {shape}"
    yield from compared(what, measure(systems, batches), list(systems))


# ---- what is compared


def make_batches(count: int, rows: int, vocabulary: int, seed: int) -> list[Batch]:
    """Sources of like length together, in any order."""
    pairs = sorted(make_pairs(count * rows, vocabulary, seed), key=lambda pair: len(pair[0]))
    batches = [collate(pairs[first : first + rows]) for first in range(0, len(pairs), rows)]
    return [batches[i] for i in np.random.default_rng(seed).permutation(count)]


def transformer(sizes: Sizes) -> TransformerModel:
    """A Regard Transformer, post-norm, whose random weights say different things at each step and for each source.

    As they are drawn, attention means everything at once, and a tied output repeats its input. Here queries and keys
    are larger, the last norm turns the signs of every other number, and larger embeddings make the output surer.
    Special words have none, so that no system prefers one of them.
    """
    config = kinds.Transformer(
        size=sizes.size, heads=sizes.heads, layers=sizes.layers, hidden=sizes.hidden, norm="post", dropout=sizes.dropout
    )
    model = kinds.build("transformer", config, sizes.vocabulary, sizes.vocabulary)
    assert isinstance(model, TransformerModel)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("projection.weight"):
                parameter[: 2 * sizes.size].mul_(3)
            elif name.endswith("tokens.weight"):
                parameter.mul_(3)
        model.get_parameter(f"decoder.blocks.{sizes.layers - 1}.feed_norm.weight")[::2] = -1
        model.target.tokens.weight[[PAD, START, END]] = 0
    return model


@dataclass
class Rate:
    """One system: for each beam the sentences a second and the outputs of every batch."""

    decoder: Decoder
    rates: dict[int, list[float]] = field(default_factory=lambda: {beam: [] for beam in BEAMS})
    outputs: dict[int, list[Outputs]] = field(default_factory=lambda: {beam: [] for beam in BEAMS})

    def decode(self, batches: Sequence[Batch], beam: int) -> None:
        """Some more batches, timed."""
        given = [self.decoder.prepare(batch) for batch in batches]
        time.sleep(REST)
        begin = time.perf_counter()
        outputs = [self.decoder(each, beam) for each in given]
        self.rates[beam].append(sum(map(len, batches)) / (time.perf_counter() - begin))
        self.outputs[beam] += [self.decoder.tokens(*each) for each in zip(outputs, given, strict=True)]


def measure(systems: dict[str, Callable[[], Decoder]], batches: Sequence[Batch]) -> dict[str, Rate]:
    """Every system that is installed, batch by batch in turn."""
    found: dict[str, Rate] = {}
    for name, make in systems.items():
        if name not in PACKAGES or importlib.util.find_spec(PACKAGES[name]) is not None:
            found[name] = Rate(make())
    with packed():  # once for all batches, as `search_in_batches` does
        turns = [batches[i : i + IN_A_ROW] for i in range(0, len(batches), IN_A_ROW)]
        for turn in [batches[:1], *turns]:  # the first batch twice: it pays for allocation
            for beam in BEAMS:
                for rate in found.values():
                    rate.decode(turn, beam)
    for name, rate in found.items():
        for beam in BEAMS:
            del rate.rates[beam][0], rate.outputs[beam][0]
            for tokens in (tokens for outputs in rate.outputs[beam] for tokens in outputs):
                if len(tokens) != rate.decoder.steps or {PAD, START, END} & set(tokens[:-1]):
                    raise RegardError(
                        f"bench: {name}, beam {beam}: {tokens} said, expected {rate.decoder.steps} tokens, so no speed "
                        "is compared"
                    )
    return found


# ---- whether all say the same


def same_outputs(batches: Sequence[Batch], measured: dict[str, Rate]) -> dict[tuple[str, int], float]:
    """The share of outputs that are Regard's, by system and beam; refused where they should be and are not."""
    ours, *names = measured
    regard = measured[ours].decoder
    assert isinstance(regard, decoders.Regard)
    shares = {}
    for beam in BEAMS:
        equal, apart = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        for number, batch in enumerate(batches[:CHECKED]):
            given = regard.prepare(batch)
            mine = regard.without_end(given, beam)
            for name in names:
                theirs = measured[name].outputs[beam][number]
                equal[name] += sum(a == b for a, b in zip(mine, theirs, strict=True))
                apart[name] += count_apart(regard.model, given, mine, theirs, beam)
        count = sum(map(len, batches[:CHECKED]))
        for name in names:
            if name != ROUNDED and apart[name] > (0 if beam == 1 else APART * count):
                raise RegardError(
                    f"bench: {name}, beam {beam}: {apart[name]} of {count} outputs are not Regard's, with the same "
                    "weights, so no speed is compared"
                )
            shares[name, beam] = equal[name] / count
    return shares


def count_apart(model: Model, given: Tokens, mine: Outputs, theirs: Outputs, beam: int) -> int:
    """How many outputs differ by more than a tie: at the token where greedy ones part, or of beams as a whole."""
    rows = [i for i, (one, other) in enumerate(zip(mine, theirs, strict=True)) if one != other]
    if not rows:
        return 0
    differing = Tokens.of(given.ids[rows], given.lengths[rows])
    pairs = [[mine[i], theirs[i]] for i in rows]
    count = 0
    for (one, other), likely in zip(pairs, decoders.log_probs(model, differing, pairs), strict=True):
        parting = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        a, b = (each[parting] if beam == 1 else sum(each) for each in likely)
        count += abs(a - b) > TIE
    return count


# ---- a line for each comparison


def compared(
    what: str, measured: dict[str, Rate], names: list[str], equal: dict[tuple[str, int], float] | None = None
) -> Iterator[Result]:
    """Greedy and with a beam: the median of the batches' ratios."""
    mine, *others = names
    for name in others:
        for beam in BEAMS:
            found = result(what, measured[mine], measured.get(name), name, beam)
            if equal is not None and (name, beam) in equal:
                found.details["equal_outputs"] = equal[name, beam]
            yield found


def result(what: str, ours: Rate, peer: Rate | None, name: str, beam: int) -> Result:
    """One line."""
    least = GOALS.get((name, beam))
    goal = "none" if least is None else f"at least {least:g} × its speed"
    what = f"{what}, {'greedy' if beam == 1 else f'beam {beam}'}"
    speed = statistics.median(ours.rates[beam])
    told = f"Regard {speed:,.0f} sentences/s"
    details: dict[str, float] = {"beam": beam, "ours_sentences_s": speed}
    if peer is None:
        return Result(what, told, f"{name} is not installed", None, goal, False, details)
    theirs = statistics.median(peer.rates[beam])
    ratios = [a / b for a, b in zip(ours.rates[beam], peer.rates[beam], strict=True)]
    ratio = statistics.median(ratios)
    details |= {"peer_sentences_s": theirs, "least_ratio": min(ratios), "largest_ratio": max(ratios)}
    reached = least is None or ratio >= least
    return Result(what, told, f"{name} {theirs:,.0f} sentences/s", ratio, goal, reached, details)
