"""Benchmarks of a training step: Regard's Transformer and RNNsearch against nn.Transformer, Marian and JoeyNMT.

A step is forward, label-smoothed loss, backward, clipping and AdamW, in float32. Every system uses torch's fused AdamW,
so that only the models differ. In each round every system takes one step in turn; the reported ratio of real target
tokens per second is the median over rounds. Regard, nn.Transformer and MarianMT get the same batches, bucketed by
length. JoeyNMT has no bucketing: it gets the same pairs in its own kind of batches, with the same budget.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_

from regard.data import Batch
from regard.errors import RegardError
from regard.models import TransformerModel
from regard_bench.measure import MIB, Result, agree, compare_memory, obstacle, peak_memory
from regard_bench.training_peers import (
    JoeyRNN,
    JoeyTransformer,
    Learner,
    MarianLearner,
    RegardLearner,
    Sizes,
    TorchTransformer,
    join_at_random,
    make_buckets,
    make_pairs,
)

BUDGET = 4096  # tokens of a batch, padded: rows × longest
PAIRS = 20_000
RATE = 3e-4


TRANSFORMERS: dict[str, Callable[[Sizes], Learner]] = {
    "Regard": lambda sizes: RegardLearner(sizes.transformer(), sizes),  # pre-norm, like nn.Transformer here
    "nn.Transformer": TorchTransformer,
    "MarianMT": MarianLearner,
    "JoeyNMT": JoeyTransformer,
}
RNNS: dict[str, Callable[[Sizes], Learner]] = {
    "Regard rnnsearch": lambda sizes: RegardLearner(sizes.rnnsearch(), sizes),
    "JoeyNMT GRU": JoeyRNN,
}
PACKAGES = {"MarianMT": "transformers", "JoeyNMT": "joeynmt", "JoeyNMT GRU": "joeynmt"}


def run(
    rounds: int = 9, seed: int = 0, sizes: Sizes | None = None, budget: int = BUDGET, device: str = "cpu"
) -> Iterator[Result]:
    """Run every comparison on this machine's CPU, or those for a GPU."""
    if device == "cuda":
        from regard_bench import training_cuda

        yield from training_cuda.run(rounds, seed)
        return
    sizes = Sizes() if sizes is None else sizes
    torch.manual_seed(seed)
    pairs = make_pairs(PAIRS, sizes.vocabulary, seed)
    batches, others = make_buckets(pairs, budget, seed), join_at_random(pairs, budget, seed)
    same_loss(batches[0], sizes)
    what = f"{sizes.layers}+{sizes.layers} layers, width {sizes.size}, {sizes.vocabulary} pieces, ~{budget} tokens"
    rates = measure(TRANSFORMERS, sizes, batches, others, rounds)
    ours = rates["Regard"]
    for name in list(TRANSFORMERS)[1:]:
        least = 2.0 if name == "JoeyNMT" else 1.15
        yield compare_systems(f"Transformer, {what}, a training step", ours, rates.get(name), name, least)
    rates = measure(RNNS, sizes, batches, others, rounds)
    what = f"rnnsearch, one GRU, all {sizes.size} wide, {sizes.vocabulary} pieces, ~{budget} tokens, a training step"
    yield compare_systems(what, rates["Regard rnnsearch"], rates.get("JoeyNMT GRU"), "JoeyNMT GRU", 2.0)
    yield from memory(sizes, budget, seed)


# ---- measuring


def same_loss(batch: Batch, sizes: Sizes) -> None:
    """Check that Regard's Transformer and nn.Transformer with the same weights have the same loss and gradients."""
    sizes = replace(sizes, dropout=0.0)
    ours, peer = RegardLearner(sizes.transformer(), sizes), TorchTransformer(sizes)
    model = ours.objective.model
    assert isinstance(model, TransformerModel)
    peer.copy(model)
    mine, theirs = ours(batch), peer(batch)
    agree("the loss of nn.Transformer", mine, theirs, 1e-4)
    first: Any = model.encoder.blocks[0]
    for one, other in (
        (model.source.tokens.weight, peer.source.weight),
        (model.readout.weight, peer.readout.weight),
        (first.feed[0].weight, peer.net.encoder.layers[0].linear1.weight),
    ):
        gradient, expected = (
            torch.autograd.grad(*each, retain_graph=True)[0] for each in ((mine, one), (theirs, other))
        )
        agree("a gradient of nn.Transformer", gradient, expected, 1e-3)


class Rate:
    """The training of one system: tokens per second and loss of each step, and its number of parameters."""

    def __init__(self, learner: Learner, batches: list[Batch]):
        self.learner, self.batches = learner.train(), batches
        self.optimiser = torch.optim.AdamW(learner.parameters(), lr=RATE, fused=True)
        self.parameters = sum(each.numel() for each in learner.parameters() if each.requires_grad)
        self.rates: list[float] = []
        self.losses: list[float] = []

    def step(self) -> None:
        """Take and time one training step."""
        batch = self.batches[len(self.losses) % len(self.batches)]
        inputs = self.learner.prepare(batch)
        begin = time.perf_counter()
        loss = self.learner(inputs)
        loss.backward()
        clip_grad_norm_(self.learner.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.rates.append(batch.tokens / (time.perf_counter() - begin))
        self.losses.append(float(loss.detach()))

    @property
    def median(self) -> float:
        """Return the median of tokens per second, without the first two steps, which warm up."""
        return statistics.median(self.rates[2:])


def measure(
    systems: dict[str, Callable[[Sizes], Learner]],
    sizes: Sizes,
    batches: list[Batch],
    others: list[Batch],
    rounds: int,
) -> dict[str, Rate]:
    """Measure every installed system, one step of each in turn; raise an error if a loss does not fall."""
    rates = {}
    for name, make in systems.items():
        if name not in PACKAGES or obstacle(PACKAGES[name]) is None:
            torch.manual_seed(0)
            rates[name] = Rate(make(sizes), others if name.startswith("JoeyNMT") else batches)
    for _ in range(rounds + 2):
        for rate in rates.values():
            rate.step()
    for name, rate in rates.items():
        if not statistics.mean(rate.losses[-2:]) < rate.losses[0]:
            raise RegardError(f"bench: {name} does not learn: its losses were {rate.losses}, so no speed is compared")
    return rates


def compare_systems(what: str, ours: Rate, peer: Rate | None, name: str, least: float) -> Result:
    """Compare Regard with a peer by the median of the rounds' ratios, as one line."""
    goal = f"at least {least:g} × its speed"
    mine = f"Regard {ours.median:,.0f} tokens/s"
    if peer is None:
        details = {"ours_tokens_s": ours.median}
        return Result(what, mine, f"{name} {obstacle(PACKAGES[name])}", None, goal, False, details)
    ratio = statistics.median(a / b for a, b in zip(ours.rates[2:], peer.rates[2:], strict=True))
    details = {"ours_tokens_s": ours.median, "peer_tokens_s": peer.median}
    details |= {"ours_parameters": ours.parameters, "peer_parameters": peer.parameters}
    for side, rate in (("ours", ours), ("peer", peer)):
        details |= {f"{side}_first_loss": rate.losses[0], f"{side}_last_loss": rate.losses[-1]}
    return Result(what, mine, f"{name} {peer.median:,.0f} tokens/s", ratio, goal, ratio >= least, details)


# ---- memory


def memory(sizes: Sizes, budget: int, seed: int) -> Iterator[Result]:
    """Compare the peak memory of a training step, with model and optimiser, of all systems on the same batch."""
    for systems in (TRANSFORMERS, RNNS):
        mine, *names = systems
        ours = peak_memory(partial(train_once, mine, sizes, budget, seed), partial(load, mine))
        for name in names:
            what, goal = f"peak memory of a training step beside {name}", "not above its"
            if name in PACKAGES and (hindrance := obstacle(PACKAGES[name])):
                yield Result(what, f"{mine} {ours / MIB:.0f} MiB", f"{name} {hindrance}", None, goal, False)
                continue
            peer = peak_memory(partial(train_once, name, sizes, budget, seed), partial(load, name))
            yield compare_memory(what, (mine, name), (ours, peer), goal, 1)


def load(name: str) -> None:
    """Import a system's modules by training a tiny model."""
    train_once(name, Sizes(vocabulary=20, size=8, heads=2, layers=1, hidden=8), 64, 0)


def train_once(name: str, sizes: Sizes, budget: int, seed: int) -> None:
    """Take two steps of a new model; in the second, the optimiser's moments are allocated too."""
    torch.manual_seed(seed)
    batches = make_buckets(make_pairs(1000, sizes.vocabulary, seed), budget, seed)
    rate = Rate((TRANSFORMERS | RNNS)[name](sizes), batches[:1])
    rate.step()
    rate.step()
