"""Benchmarks of a training step on a GPU: Regard's own loop, packed and replayed, beside Marian and JoeyNMT.

A Transformer base (Vaswani et al. 2017, table 3) and RNNsearch, bf16 with weights in float32, about 25,000 target
tokens per batch. Regard's updates are those of `training.loop`, with all they do: loading, clipping, skipping, sums.
Peers step as their users would write it: autocast, fused AdamW, clipping. All get the same pairs in the same order,
every figure is real target tokens per second over whole rounds, and the card's own ceilings stand beside them. What is
compiled has one shape of batch to be compiled for, and so long and no longer to be ready.
"""

import contextlib
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
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
WARM, MAX_ROUNDS = 1, 3  # rounds of a peer that are not counted, and that are
LIMIT = 40.0  # seconds that a compiled peer may take, compiling included
GOAL = 1_000_000  # target tokens per second
RNN_GOAL = 1_500_000


class PairTask(Task):
    """The next token of made-up pairs: a few batches, the same ones over and over."""

    can_prefetch = True

    def __init__(self, model: Model, pairs: list[Pair], smoothing: float = 0.1, budget: int = BUDGET, seed: int = 0):
        self.model, self.pairs, self.budget = model, pairs, budget
        self.objective = Prediction(model, smoothing)
        self.lengths = np.array([[len(source), len(target)] for source, target in pairs])
        plans = list(Order(self.lengths, budget, seed=seed).epoch(0))
        self.plans = [plan for plan in plans if self.lengths[plan, 1].sum() > budget / 2] or plans  # not the remainder
        self.form: str | None = None
        self.batches: dict[int, Any] = {}

    def stream(self, position: Position) -> Iterator[tuple[Position, int]]:
        """Numbers of batches, without end."""
        number = position.batch
        while True:
            yield Position(0, number), number % len(self.plans)
            number += 1

    def count(self, plan: int) -> int:
        """Count the target tokens of a batch."""
        return int(self.lengths[self.plans[plan], 1].sum()) + len(self.plans[plan])

    def batch(self, plan: int, position: Position) -> Any:
        """A batch, made once: what is measured is not numpy."""
        if plan not in self.batches:
            self.batches[plan] = self.form_of(plan).pin_memory()
        return self.batches[plan]

    def form_of(self, plan: int) -> Any:
        """A batch as Regard's tasks form it."""
        some = [self.pairs[i] for i in self.plans[plan]]
        if self.form == "packed":
            sides = [np.concatenate([pair[side] for pair in some]) for side in (0, 1)]
            return batching.pack(sides[0], sides[1], self.lengths[self.plans[plan]], batching.step_of(self.budget))
        return collate(some) if self.form is None else batching.pad_up(collate(some))

    def limit_shapes(self, half: bool) -> None:
        """Limit batches to few shapes, as a translation task does."""
        self.form = "packed" if half and self.model.packs else "padded"

    def move(self, batch: Any, device: torch.device) -> Any:
        """The batch on a device."""
        return batch.to(device, non_blocking=True)


def transformer(sizes: Sizes, **more: Any) -> Model:
    """Regard's base: post-norm as in the paper, one matrix for all embeddings and the output."""
    return sizes.transformer(**{"norm": "post", "tied": "all", **more})


def run(rounds: int = 9, seed: int = 0, sizes: Sizes = BASE) -> Iterator[Result]:
    """Every comparison, one after the other."""
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
        rate, first, last = RegardLoop(PairTask(sizes.rnnsearch(cell=cell), pairs, sizes.smoothing, seed=seed)).rate(
            rounds
        )
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
    """One line: Regard beside a peer, if that is there and was ready in time."""
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
        """Target tokens per second, the median of rounds over all batches; the first and the last loss of a token."""
        trainer, count, rates, losses = self.trainer, len(self.task.plans), [], []
        with trainer.shares() as shares:
            for number in range(3 + rounds):  # three to compile, to capture and to warm up
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
    """Measure a peer's tokens per second, with its first and last loss."""
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
    """Measure compiled Marian in a process of its own, as compiling cannot be interrupted; or say why it was not
    measured.
    """
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
                    os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own, with what compiles for it
                else:
                    process.kill()
        process.join()


def compiled_rate(sizes: Sizes, batches: list[Batch], rounds: int, sender: Any) -> None:
    """Inside the process."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    sender.send(peer_rate(MarianLearner, sizes, batches, rounds, compiled=True))


def same_loss(pairs: list[Pair], sizes: Sizes) -> None:
    """Packed, in bf16 and with the kernels of a GPU, a batch has the loss that nn.Transformer finds in float32."""
    still = Sizes(**{**vars(sizes), "dropout": 0.0})
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
    """Refuse the speed of what learns nothing."""
    if not last < first:
        raise RegardError(
            f"bench: {name} does not learn: its loss went from {first} to {last}, so no speed is compared"
        )
