"""Benchmarks of translation: Regard's search compared with those of Transformers, JoeyNMT and CTranslate2.

Batches have 64 sources, and every output has exactly 15 tokens. The last is Regard's END, which is forbidden before and
forced there, so that all systems take the same number of steps. All Transformers (post-norm, as Marian is) have the
same random weights and must give the same outputs: the benchmark stops if greedy outputs diverge at tokens that are not
tied, or if more than a few beams differ in probability. JoeyNMT's GRU and RNNsearch have different weights, so only
lengths are compared. Each system runs in its own process; the processes take turns of three batches, and the reported
ratio is the median over turns. Weights are packed beforehand, as for a file of sentences.

The last comparison translates one sentence at a time, greedily, as in interactive use: a small model, trained briefly
here like that of `regard demo`, against its own export to CTranslate2, on sentences of 4 to 10 words. The model ends
each output itself, and the outputs must be the same.
"""

import contextlib
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data import END, PAD, START, Batch, collate, generate
from regard.errors import RegardError
from regard.interop import export_model
from regard.kernels import pack_weights
from regard.models import Model, Tokens
from regard.run import Run, load
from regard.tasks import start
from regard_bench import decoding_cuda, decoding_peers, training_peers
from regard_bench.decoding_peers import Decoder, Outputs, transformer
from regard_bench.measure import Result, elsewhere, obstacle
from regard_bench.training_peers import Sizes, make_pairs

ROWS = 64  # sentences of a batch
LENGTH = 14  # tokens of an output; with its END 15
IN_A_ROW = 3  # batches of a turn: measures a stream of batches, not the first one after another system's turn
BEAMS = (1, 5)
TIE = 1e-3  # log-probabilities this close are a tie in float32
APART = 0.05  # share of beams that may differ after a tie
CHECKED = 2  # batches whose outputs are compared
ROUNDED = "CTranslate2 int8"  # its rounded weights give other outputs
OWN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # environment variables that `regard` sets
REST = 0.3  # seconds: OpenMP threads spin for 0.2 after their work

PACKAGES = {
    "Transformers' MarianMT": "transformers",
    "JoeyNMT": "joeynmt",
    "CTranslate2 float32": "ctranslate2",
    ROUNDED: "ctranslate2",
    "JoeyNMT GRU": "joeynmt",
}
TRANSFORMERS = ("Regard", "Transformers' MarianMT", "JoeyNMT", "CTranslate2 float32", ROUNDED)
RNNS = ("Regard rnnsearch", "JoeyNMT GRU")
GOALS = {  # × the peer's speed, greedy and with a beam; all other pairs have no goal
    ("Transformers' MarianMT", 1): 1.3,
    ("Transformers' MarianMT", 5): 2.0,
    ("JoeyNMT GRU", 1): 2.0,
    ("JoeyNMT GRU", 5): 2.0,
}

WORDS = range(4, 11)  # of a single sentence
OF_EACH = 3  # sentences per length in a turn
ALONE = 10  # × the peer's time for a single sentence, at most
DEMO: dict[str, Any] = {  # the model of `regard demo`, trained until it ends its sentences
    "data": {"builtin": "phrasebook", "pair": "en-de", "count": 40_000},
    "model": {"kind": "transformer", "preset": "tiny", "dropout": 0.0, "tied": "all", "positions": "rotary"},
    "training": {
        "steps": 300, "batch_tokens": 640, "rate": 3e-3, "schedule": "cosine", "warmup": 30, "smoothing": 0.05,
        "validate_every": 300, "validate_rows": 10, "seed": 1, "device": "cpu",
    },
}  # fmt: skip


def run(
    rounds: int = 9,
    seed: int = 0,
    sizes: Sizes | None = None,
    rows: int = ROWS,
    length: int = LENGTH,
    device: str = "cpu",
    demo: dict[str, Any] = DEMO,
) -> Iterator[Result]:
    """Run every comparison on this machine's CPU, or those for a GPU; `demo` configures the single sentences' run."""
    if device == "cuda":
        yield from decoding_cuda.run(rounds, seed)
        return
    sizes = Sizes() if sizes is None else sizes
    batches = make_batches(rounds * IN_A_ROW, rows, sizes.vocabulary, seed)
    shape = f"batch {rows}, {length + 1} tokens with END"

    systems = {name: partial(make, name, sizes, seed, length) for name in (*TRANSFORMERS, *RNNS)}
    rates = measure({name: systems[name] for name in TRANSFORMERS}, batches, length + 1)
    regard = make("Regard", sizes, seed, length)
    assert isinstance(regard, decoding_peers.RegardDecoder)
    equal = same_outputs(batches, rates, regard)
    what = f"Transformer {sizes.layers}+{sizes.layers}, width {sizes.size}, {sizes.vocabulary} pieces, {shape}"
    yield from compare_systems(what, rates, TRANSFORMERS, equal)

    rates = measure({name: systems[name] for name in RNNS}, batches, length + 1)
    what = f"rnnsearch, one GRU, all {sizes.size} wide, {sizes.vocabulary} pieces, {shape}"
    yield from compare_systems(what, rates, RNNS)

    with tempfile.TemporaryDirectory() as home:
        yield compare_alone(Path(home), demo, rounds)


def make(name: str, sizes: Sizes, seed: int, length: int) -> Decoder:
    """Create a system by its name; all Transformers have the same weights."""
    torch.manual_seed(seed)
    if name == "Regard rnnsearch":
        return decoding_peers.RegardDecoder(sizes.rnnsearch(), length)
    if name == "JoeyNMT GRU":
        return decoding_peers.JoeyDecoder(training_peers.JoeyRNN(sizes), length)
    model = transformer(sizes)
    if name == "Transformers' MarianMT":
        return decoding_peers.MarianDecoder(model, sizes, length)
    if name == "JoeyNMT":
        return decoding_peers.JoeyDecoder(training_peers.JoeyTransformer(sizes, "post"), length, model)
    if name.startswith("CTranslate2"):
        return decoding_peers.CTranslate2Decoder(model, length, name.split()[1])
    return decoding_peers.RegardDecoder(model, length)


# ---- measuring


def make_batches(count: int, rows: int, vocabulary: int, seed: int) -> list[Batch]:
    """Create batches of sources of similar length, in random order."""
    pairs = sorted(make_pairs(count * rows, vocabulary, seed), key=lambda pair: len(pair[0]))
    batches = [collate(pairs[first : first + rows]) for first in range(0, len(pairs), rows)]
    return [batches[i] for i in np.random.default_rng(seed).permutation(count)]


@dataclass
class Rate:
    """The results of one system: for each beam, sentences per second of every turn, and outputs of every batch."""

    rates: dict[int, list[float]] = field(default_factory=lambda: {beam: [] for beam in BEAMS})
    outputs: dict[int, list[Outputs]] = field(default_factory=lambda: {beam: [] for beam in BEAMS})

    def add(self, batches: Sequence[Batch], beam: int, seconds: float, outputs: list[Outputs]) -> None:
        """Add the sentences per second of one more turn."""
        self.rates[beam].append(sum(map(len, batches)) / seconds)
        self.outputs[beam] += outputs


def measure(
    systems: dict[str, Callable[[], Decoder]],
    batches: Sequence[Batch],
    steps: int | None,
    beams: Sequence[int] = BEAMS,
    in_a_row: int = IN_A_ROW,
    warm: int = 1,
) -> dict[str, Rate]:
    """Measure every installed system, each in its own process, some batches of each in turn.

    With `steps`, raise an error if an output has another number of tokens.
    """
    there = [name for name in systems if name not in PACKAGES or obstacle(PACKAGES[name]) is None]
    rates = {name: Rate() for name in there}
    elsewhere.update(PACKAGES[name] for name in there if name in PACKAGES)
    processes: dict[str, DecoderProcess] = {}
    try:
        for name in there:
            processes[name] = DecoderProcess(systems[name], name.startswith("Regard"))
        turns = [batches[i : i + in_a_row] for i in range(0, len(batches), in_a_row)]
        for turn in [batches[:warm], *turns]:  # the first batches twice, to warm up
            for beam in beams:
                for name, rate in rates.items():
                    rate.add(turn, beam, *processes[name].time_batches(turn, beam))
    finally:
        for each in processes.values():
            each.end()
    for rate in rates.values():
        for beam in beams:
            del rate.rates[beam][0], rate.outputs[beam][:warm]
    for name, beam in product(rates if steps is not None else (), beams):
        for tokens in chain.from_iterable(rates[name].outputs[beam]):
            if len(tokens) != steps or {PAD, START, END} & set(tokens[:-1]):
                raise RegardError(
                    f"bench: {name}, beam {beam}: {tokens} written, not {steps} tokens, so no speed is compared"
                )
    return rates


# ---- systems that are measured in turn, each in a process of its own

# In one process, systems would share memory caches, and spinning OpenMP threads of one would slow the others down:
# CTranslate2 in the same process made torch's systems a third slower. Peers get their users' environment, without the
# variables that the command line sets for Regard's own threads.


def time_decoder(decoder: Decoder, batches: Sequence[Batch], beam: int) -> tuple[float, list[Outputs]]:
    """Decode batches one after the other; return the seconds and the outputs."""
    inputs = [decoder.prepare(batch) for batch in batches]
    begin = time.perf_counter()
    outputs = [decoder(each, beam) for each in inputs]
    seconds = time.perf_counter() - begin
    return seconds, [decoder.tokens(*each) for each in zip(outputs, inputs, strict=True)]


class DecoderProcess:
    """A decoder in another process; `make` is a top-level function, or a partial of one."""

    def __init__(self, make: Callable[[], Decoder], ours: bool):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        before = {} if ours else {name: os.environ.pop(name) for name in OWN if name in os.environ}
        try:
            self.process = context.Process(target=serve, args=(make, torch.get_num_threads(), other), daemon=True)
            self.process.start()
        finally:
            os.environ.update(before)
        other.close()
        self.answer()  # wait until the process is ready

    def time_batches(self, batches: Sequence[Batch], beam: int) -> tuple[float, list[Outputs]]:
        """Time the decoder in the other process, when all others are idle."""
        time.sleep(REST)
        with contextlib.suppress(OSError):  # if the process has ended, `answer` raises the error
            self.pipe.send((batches, beam))
        seconds, outputs = self.answer()
        return seconds, outputs

    def answer(self) -> Any:
        """Receive the other process's answer."""
        try:
            problem, answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            raise RegardError(f"bench: a system ended with status {self.process.exitcode}") from None
        if problem is not None:
            raise RegardError(f"bench: {problem}")
        return answer

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join()


def serve(make: Callable[[], Decoder], threads: int, pipe: Any) -> None:
    """In the child process, decode the batches that arrive through the pipe until it is closed."""
    torch.set_num_threads(threads)
    try:
        decoder = make()
        pipe.send((None, None))
        with pack_weights():  # pack once for all batches, as `search_in_batches` does
            while True:
                pipe.send((None, time_decoder(decoder, *pipe.recv())))
    except EOFError:
        pass
    except Exception as error:  # send any error to the parent
        pipe.send((f"{type(error).__name__}: {error}", None))


# ---- comparing outputs


def same_outputs(
    batches: Sequence[Batch], rates: dict[str, Rate], regard: decoding_peers.RegardDecoder
) -> dict[tuple[str, int], float]:
    """Return each system's share of outputs equal to Regard's, by beam; raise an error if too many others differ.

    Regard's search scores the END of an output, the others do not. So the peers' outputs are compared with those of a
    second search, without END; for greedy search, the timed outputs must equal these too.
    """
    ours, *names = rates
    shares = {}
    for beam in BEAMS:
        equal, different = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        for number, batch in enumerate(batches[:CHECKED]):
            inputs = regard.prepare(batch)
            mine = regard.without_end(inputs, beam)
            if beam == 1 and any(a[:-1] != b[:-1] for a, b in zip(mine, rates[ours].outputs[1][number], strict=True)):
                raise RegardError("bench: Regard's outputs in the timed search differ from those that are compared")
            for name in names:
                theirs = rates[name].outputs[beam][number]
                equal[name] += sum(a == b for a, b in zip(mine, theirs, strict=True))
                different[name] += count_different(regard.model, inputs, mine, theirs, beam)
        count = sum(map(len, batches[:CHECKED]))
        for name in names:
            if name != ROUNDED and different[name] > (0 if beam == 1 else APART * count):
                raise RegardError(
                    f"bench: {name}, beam {beam}: {different[name]} of {count} outputs differ from Regard's with the "
                    "same weights, so no speed is compared"
                )
            shares[name, beam] = equal[name] / count
    return shares


def count_different(model: Model, inputs: Tokens, mine: Outputs, theirs: Outputs, beam: int) -> int:
    """Count outputs that differ by more than a tie: where greedy ones diverge, or in the whole score of beams."""
    rows = [i for i, (one, other) in enumerate(zip(mine, theirs, strict=True)) if one != other]
    if not rows:
        return 0
    differing = Tokens.of(inputs.ids[rows], inputs.lengths[rows])
    pairs = [[mine[i], theirs[i]] for i in rows]
    count = 0
    for (one, other), likely in zip(pairs, decoding_peers.log_probs(model, differing, pairs), strict=True):
        parting = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        a, b = (each[parting] if beam == 1 else sum(each) for each in likely)
        count += abs(a - b) > TIE
    return count


# ---- single sentences


def compare_alone(home: Path, demo: dict[str, Any], rounds: int) -> Result:
    """Train and export a model, and compare the times of single sentences by the median of the turns' ratios."""
    peer = "CTranslate2 float32"
    folder, exported = home / "run", home / "exported"
    start({**demo, "data": {**demo["data"], "cache": str(home / "cache")}}, folder)
    opened = load(folder, device="cpu")
    systems: dict[str, Callable[[], Decoder]] = {"Regard": partial(decoding_peers.RunDecoder, folder)}
    if obstacle(PACKAGES[peer]) is None:
        export_model(opened, exported, to="ctranslate2")
        systems[peer] = partial(decoding_peers.ExportDecoder, exported)
    batches = make_sentences(opened, rounds * OF_EACH)
    turn = OF_EACH * len(WORDS)
    rates = measure(systems, batches, None, beams=(1,), in_a_row=turn, warm=turn)
    what = f"regard demo's Transformer, one sentence alone, {WORDS[0]} to {WORDS[-1]} words in turn, greedy"
    row = result(what, rates["Regard"], rates.get(peer), peer, 1, alone=True)
    if peer in rates:
        row.details["equal_outputs"] = equal_alone(opened.model, batches, rates["Regard"], rates[peer], peer)
    return row


def make_sentences(opened: Run, count: int) -> list[Batch]:
    """Create `count` batches of a single sentence for each length, from the test split, with the lengths in turn."""
    found: dict[int, list[str]] = {words: [] for words in WORDS}
    data = opened.settings.data
    for example in generate("phrasebook", 400 * count, split="test", pair=data.pair, seed=0):
        of_length = found.get(len(example.source.split()))
        if of_length is not None and len(of_length) < count and example.source not in of_length:
            of_length.append(example.source)
            if all(len(each) == count for each in found.values()):
                break
    texts = [text for turn in zip(*found.values(), strict=True) for text in turn]
    return [collate([(ids, [])]) for ids in opened.tokenizers.source.encode_batch(texts)]


def equal_alone(model: Model, batches: Sequence[Batch], ours: Rate, theirs: Rate, peer: str) -> float:
    """Return the share of equal outputs; raise an error if any differ by more than a tie."""
    equal = different = 0
    for batch, mine, others in zip(batches, ours.outputs[1], theirs.outputs[1], strict=True):
        equal += mine == others
        inputs = Tokens.of(batch.source, batch.source_lengths)
        different += count_different(model, inputs, mine, others, 1)
    if different:
        raise RegardError(
            f"bench: {peer}, sentences alone: {different} of {len(batches)} outputs differ from Regard's with the same "
            "weights, so no speed is compared"
        )
    return equal / len(batches)


# ---- results


def compare_systems(
    what: str, rates: dict[str, Rate], names: Sequence[str], equal: dict[tuple[str, int], float] | None = None
) -> Iterator[Result]:
    """Yield a result per peer and beam: the median of the turns' ratios."""
    mine, *others = names
    for name in others:
        for beam in BEAMS:
            how = "greedy" if beam == 1 else f"beam {beam}"
            row = result(f"{what}, {how}", rates[mine], rates.get(name), name, beam)
            if equal is not None and (name, beam) in equal:
                row.details["equal_outputs"] = equal[name, beam]
            yield row


def result(what: str, ours: Rate, peer: Rate | None, name: str, beam: int, alone: bool = False) -> Result:
    """Compare a peer's rate with Regard's, or with `alone` their times per sentence, as one line of the benchmark."""
    unit, form = ("ms", ".2f") if alone else ("sentences/s", ",.0f")
    key = unit.replace("/", "_")
    least = GOALS.get((name, beam))
    goal = f"at most {ALONE} × its time" if alone else "none" if least is None else f"at least {least:g} × its speed"

    def figure(side: Rate) -> float:
        rate = statistics.median(side.rates[beam])
        return 1e3 / rate if alone else rate

    mine = figure(ours)
    details: dict[str, float] = {"beam": beam, f"ours_{key}": mine}
    text = f"Regard {mine:{form}} {unit}"
    if peer is None:
        return Result(what, text, f"{name} {obstacle(PACKAGES[name])}", None, goal, False, details)
    ratios = [b / a if alone else a / b for a, b in zip(ours.rates[beam], peer.rates[beam], strict=True)]
    ratio = statistics.median(ratios)
    theirs = figure(peer)
    details |= {f"peer_{key}": theirs, "least_ratio": min(ratios), "largest_ratio": max(ratios)}
    reached = ratio <= ALONE if alone else least is None or ratio >= least
    return Result(what, text, f"{name} {theirs:{form}} {unit}", ratio, goal, reached, details)
