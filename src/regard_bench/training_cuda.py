"""Benchmarks of a training step on a GPU: Regard's own loop, packed and replayed, against Marian and JoeyNMT.

The models are a Transformer base (Vaswani et al. 2017, table 3) and RNNsearch, in bf16 with float32 weights, with about
25,000 target tokens per batch. Regard's updates are complete ones of `training.loop`: loading, clipping, skipping,
sums. Peers use a typical training step: autocast, fused AdamW, clipping. All get the same pairs in the same order.
Figures are real target tokens per second over whole rounds, shown beside the GPU's measured peak rates. Compiled Marian
gets batches of a single shape, and a time limit that includes compilation.
"""

import contextlib
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_

from regard.data import Batch, Order, Position, batching, collate
from regard.errors import RegardError
from regard.models import Model, TransformerModel
from regard.training import Group, Prediction, Progress, Task, Trainer, TrainingSettings
from regard_bench.measure import Result, agree, ceilings, obstacle
from regard_bench.training_peers import (
    JoeyTransformer,
    Learner,
    MarianLearner,
    Pair,
    Sizes,
    TorchTransformer,
    make_pairs,
)

BASE = Sizes(vocabulary=16_000, size=512, heads=8, layers=6, hidden=2048)
BUDGET = 28_672  # rows × longest, of which about 25,000 are real target tokens
PAIRS = 6_000
MEANS, MAX_WORDS = (24.0, 24.0), 100
RATE = 3e-4
WARM, MAX_ROUNDS = 1, 3  # warm-up rounds of a peer, and measured ones
LIMIT = 40.0  # seconds for a compiled peer, including compilation
GOAL = 1_000_000  # target tokens per second
RNN_GOAL = 1_500_000


class PairTask(Task):
    """The task of predicting the next token of artificial pairs, in a few batches that repeat."""

    can_prefetch = True

    def __init__(self, model: Model, pairs: list[Pair], smoothing: float = 0.1, budget: int = BUDGET, seed: int = 0):
        self.model, self.pairs, self.budget = model, pairs, budget
        self.objective = Prediction(model, smoothing)
        self.lengths = np.array([[len(source), len(target)] for source, target in pairs])
        plans = list(Order(self.lengths, budget, seed=seed).epoch(0))
        self.plans = [plan for plan in plans if self.lengths[plan, 1].sum() > budget / 2] or plans  # no small rest
        self.form: str | None = None
        self.batches: dict[int, Any] = {}

    def stream(self, position: Position) -> Iterator[tuple[Position, int]]:
        """Yield the batches' numbers endlessly."""
        number = position.batch
        while True:
            yield Position(0, number), number % len(self.plans)
            number += 1

    def count(self, plan: int) -> int:
        """Count the target tokens of a batch."""
        return int(self.lengths[self.plans[plan], 1].sum()) + len(self.plans[plan])

    def batch(self, plan: int, position: Position) -> Any:
        """Return a batch, created only once, so that the benchmark does not measure numpy."""
        if plan not in self.batches:
            self.batches[plan] = self.form_of(plan).pin_memory()
        return self.batches[plan]

    def form_of(self, plan: int) -> Any:
        """Create a batch in the form that Regard's tasks use."""
        some = [self.pairs[i] for i in self.plans[plan]]
        if self.form == "packed":
            sides = [np.concatenate([pair[side] for pair in some]) for side in (0, 1)]
            return batching.pack(sides[0], sides[1], self.lengths[self.plans[plan]], batching.step_of(self.budget))
        return collate(some) if self.form is None else batching.pad_up(collate(some))

    def limit_shapes(self, half: bool) -> None:
        """Choose packed or padded-up batches, as a translation task does."""
        self.form = "packed" if half and self.model.packs else "padded"

    def move(self, batch: Any, device: torch.device) -> Any:
        """Move the batch to a device."""
        return batch.to(device, non_blocking=True)


def transformer(sizes: Sizes, **more: Any) -> Model:
    """Build Regard's Transformer base: post-norm as in the paper, one matrix for all embeddings and the output."""
    return sizes.transformer(**{"norm": "post", "tied": "all", **more})


def run(rounds: int = 9, seed: int = 0, sizes: Sizes = BASE) -> Iterator[Result]:
    """Run every comparison."""
    if not torch.cuda.is_available():
        raise RegardError("bench: --device cuda given, but torch finds no CUDA device")
    torch.manual_seed(seed)
    pairs = make_pairs(PAIRS, sizes.vocabulary, seed, MEANS, MAX_WORDS)
    products, copies = ceilings()
    same_loss(pairs, sizes)
    what = f"Transformer, {sizes.layers}+{sizes.layers} layers, width {sizes.size}, {sizes.vocabulary} pieces, bf16"
    task = PairTask(transformer(sizes), pairs, sizes.smoothing, seed=seed)
    ours = RegardLoop(task)
    batches = [collate([pairs[i] for i in plan]) for plan in task.plans]
    mine, first, last = ours.rate(rounds)
    learns("Regard", first, last)
    tokens = sum(map(task.count, range(len(task.plans)))) / len(task.plans)
    card = f"of {products:.0f} TFLOP/s and {copies:.2f} TB/s"
    details = {"ours_tokens_s": mine, "tflops_of_products": products, "tb_s_of_copies": copies, "tokens": tokens}
    text = f"Regard {mine:,.0f} tokens/s, {tokens / mine * 1e3:.2f} ms per step of {tokens:,.0f} tokens"
    yield Result(f"{what}, a whole update", text, card, mine / GOAL, f"{GOAL:,} tokens/s", mine >= GOAL, details)
    del ours
    for cell in ("lstm", "gru"):
        task = PairTask(sizes.rnnsearch(cell=cell), pairs, sizes.smoothing, seed=seed)
        rate, first, last = RegardLoop(task).rate(rounds)
        learns(f"rnnsearch ({cell})", first, last)
        line, figures = f"Regard {rate:,.0f} tokens/s", {"ours_tokens_s": rate}
        goal, whole = f"{RNN_GOAL:,} tokens/s", f"rnnsearch, one {cell}, all {sizes.size} wide, bf16, a whole update"
        yield Result(whole, line, card, rate / RNN_GOAL, goal, rate >= RNN_GOAL, figures)
    rates: tuple[float, float, float] | str
    for name, make, package in PEERS:
        rates = obstacle(package) or peer_rate(make, sizes, batches, rounds)
        yield compare_rates(what, text, mine, name, rates)
    rates = obstacle("transformers") or in_time(sizes, batches[:1], rounds)
    yield compare_rates(what, text, mine, "MarianMT, compiled for one shape", rates)


def compare_rates(what: str, text: str, mine: float, name: str, rates: tuple[float, float, float] | str) -> Result:
    """Compare Regard with a peer as one line; `rates` may say instead why the peer was not measured."""
    goal = f"above {name}"
    if isinstance(rates, str):
        return Result(what, text, f"{name} {rates}", None, goal, False)
    theirs, first, last = rates
    learns(name, first, last)
    details = {"ours_tokens_s": mine, "peer_tokens_s": theirs}
    return Result(what, text, f"{name} {theirs:,.0f} tokens/s", mine / theirs, goal, mine > theirs, details)


PEERS: tuple[tuple[str, Callable[[Sizes], Learner], str], ...] = (
    ("MarianMT", MarianLearner, "transformers"),
    ("JoeyNMT", JoeyTransformer, "joeynmt"),
)


class RegardLoop:
    """Regard's own loop on a task."""

    def __init__(self, task: PairTask, **settings: Any):
        options = {"steps": 10**9, "rate": RATE, "schedule": "constant", "warmup": 0, "device": "cuda", **settings}
        self.task = task
        self.folder = tempfile.TemporaryDirectory()
        self.trainer = Trainer(task, TrainingSettings(**options), Path(self.folder.name), Progress(), Group("cuda"))
        self.trainer.prepare(False)
        self.trainer.objective.train()

    def rate(self, rounds: int) -> tuple[float, float, float]:
        """Measure the median of target tokens per second over rounds; also return the first and last loss per token."""
        trainer, count, rates, losses = self.trainer, len(self.task.plans), [], []
        with trainer.shares() as shares:
            for number in range(3 + rounds):  # three to compile, capture and warm up
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(count):
                    trainer.update(shares)
                torch.cuda.synchronize()
                seconds = time.perf_counter() - began
                trainer.updater.read_sums(trainer.now)
                sums, trainer.now.sums = trainer.now.sums, {}
                losses.append(sums["loss"] / sums["tokens"])
                if number >= 3:
                    rates.append(sums["count"] / seconds)
        return statistics.median(rates), losses[0], losses[-1]


def peer_rate(
    make: Callable[[Sizes], Learner], sizes: Sizes, batches: list[Batch], rounds: int, compiled: bool = False
) -> tuple[float, float, float]:
    """Measure a peer's tokens per second; also return its first and last loss."""
    torch.manual_seed(0)
    learner = make(sizes).cuda().train()
    call: Any = torch.compile(learner) if compiled else learner
    optimiser = torch.optim.AdamW(learner.parameters(), lr=RATE, fused=True)
    inputs = [learner.prepare(batch.to("cuda")) for batch in batches]
    rates, losses = [], []
    for number in range(WARM + min(MAX_ROUNDS, rounds)):
        torch.cuda.synchronize()
        began, summed = time.perf_counter(), torch.zeros((), device="cuda")
        for each in inputs:
            with torch.autocast("cuda", torch.bfloat16):
                loss = call(each)
            loss.backward()
            clip_grad_norm_(learner.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            summed += loss.detach()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        losses.append(float(summed) / len(inputs))
        if number >= WARM:
            rates.append(sum(batch.tokens for batch in batches) / seconds)
    return statistics.median(rates), losses[0], losses[-1]


def in_time(sizes: Sizes, batches: list[Batch], rounds: int) -> tuple[float, float, float] | str:
    """Measure compiled Marian in a new process, which a time limit can end; or return why it was not measured."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=compiled_rate, args=(sizes, batches * 8, rounds, sender))
    process.start()
    sender.close()
    try:
        rates: tuple[float, float, float] | str = f"was not ready within {LIMIT:.0f} seconds"
        if receiver.poll(LIMIT):
            rates = receiver.recv()
        return rates
    except EOFError:
        return "did not finish"
    finally:
        if process.is_alive() and isinstance(process.pid, int):
            with contextlib.suppress(ProcessLookupError):
                if hasattr(os, "killpg") and hasattr(signal, "SIGKILL"):
                    os.killpg(process.pid, signal.SIGKILL)  # its process group includes the compiler's processes
                else:
                    process.kill()
        process.join()


def compiled_rate(sizes: Sizes, batches: list[Batch], rounds: int, sender: Any) -> None:
    """In the child process, measure compiled Marian and send the rates."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    sender.send(peer_rate(MarianLearner, sizes, batches, rounds, compiled=True))


def same_loss(pairs: list[Pair], sizes: Sizes) -> None:
    """Check that a packed batch in bf16, with the GPU's kernels, has nn.Transformer's loss in float32."""
    still = replace(sizes, dropout=0.0)
    model = transformer(still, norm="pre", tied="output")
    assert isinstance(model, TransformerModel)
    task, peer = PairTask(model.cuda(), pairs, sizes.smoothing), TorchTransformer(still)
    task.form = "packed"
    peer.copy(model)
    peer.cuda().train()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        ours = task.objective.train()(task.batch(0, Position()).to("cuda"))
    batch = collate([pairs[i] for i in task.plans[0]]).to("cuda")
    with torch.no_grad():
        agree("the loss of nn.Transformer", ours.total / batch.tokens, peer(batch), 5e-3)


def learns(name: str, first: float, last: float) -> None:
    """Raise an error if a system's loss does not fall."""
    if not last < first:
        raise RegardError(
            f"bench: {name} does not learn: its loss went from {first} to {last}, so no speed is compared"
        )
