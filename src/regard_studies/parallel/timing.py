"""Timing of systems: an update of training, and an encoder by the length of what it reads.

Systems are timed in turns, so that whatever else a machine does meanwhile slows all of them alike.
"""

import contextlib
import json
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from regard.data import generate
from regard.evaluation import read_texts
from regard.io import disk
from regard.models import Model, Tokens, build
from regard.run import Run, load
from regard.training import metrics
from regard_studies.corpora.pairs import Pairs
from regard_studies.seed_statistics import SeedStatistics
from regard_studies.systems import TrainedSystem

__all__ = [
    "EncoderFigures",
    "Milliseconds",
    "SeedFigures",
    "average_seeds",
    "measure_seed",
    "median_pace",
    "records",
    "seconds_to_reach",
    "time_encoders",
    "time_updates",
]

PAIRS = 8000  # of the training set, that updates are timed on
TURNS, ROUNDS = 3, 2
TOKENS = 32_768  # that an encoder reads at a time on a GPU
PIECE = 5  # the first piece of a vocabulary that is no mark; about so

Milliseconds = Mapping[str, Sequence[float]]  # by name of the system, one per length


def time_updates(systems: Mapping[str, TrainedSystem], corpus: Pairs) -> dict[str, float]:
    """Time an update in milliseconds: on a GPU here, after the training; elsewhere from the training's own records."""
    first = next(iter(systems.values())).run
    if first.device.type != "cuda":
        return {name: median_pace(records(each.run.folder, "step")) for name, each in systems.items()}
    from regard_bench import PairTask, RegardLoop

    loops, rates = {}, {}
    pairs = training_pairs(first, corpus)
    for name, each in systems.items():
        settings, run = each.run.settings, each.run
        model = build(settings.kind, settings.model, run.tokenizers.source.size, run.tokenizers.target.size)
        budget = settings.training.batch_tokens
        assert isinstance(budget, int)
        loops[name], rates[name] = (
            RegardLoop(PairTask(model, pairs, settings.training.smoothing, budget)),
            list[float](),
        )
    for _ in range(TURNS):
        for name, ours in loops.items():
            rates[name].append(ours.rate(ROUNDS)[0])
    times = {}
    for name, ours in loops.items():
        plans = ours.task.plans
        tokens = sum(map(ours.task.count, range(len(plans)))) / len(plans)
        times[name] = 1e3 * tokens / statistics.median(rates[name])
    return times


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Read the records of a training: every so many steps, or at every validation."""
    return [each for each in metrics.read_records(folder / "metrics.jsonl") if each.get("kind") == kind]


def median_pace(steps: Sequence[Mapping[str, Any]]) -> float:
    """Compute the median milliseconds of an update between two records, most of which have no validation between."""
    paces = [(b["seconds"] - a["seconds"]) / (b["step"] - a["step"]) for a, b in pairwise(steps)]
    return 1e3 * statistics.median(paces or [steps[-1]["seconds"] / steps[-1]["step"]])


def training_pairs(run: Run, corpus: Pairs) -> list[Any]:
    """Return the first pairs of the training set, as token numbers."""
    data = run.settings.data
    if data.builtin is None:
        files = [corpus.tables["data"][side] for side in ("source", "target")]
        sides = [read_texts(file)[:PAIRS] for file in files]
    else:
        options = dict(each.split("=") for each in corpus.tables["data"].get("builtin_options", ()))
        numbers = {key: int(value) for key, value in options.items()}
        examples = list(generate("phrasebook", PAIRS, split="train", pair="en-de", seed=0, edition=1, **numbers))
        sides = [[each.source for each in examples], [each.target for each in examples]]
    tokenizers = run.tokenizers
    encoded = [tokenizers.source.encode_batch(sides[0]), tokenizers.target.encode_batch(sides[1])]
    return [pair for pair in zip(*encoded, strict=True) if all(pair)]


@torch.no_grad()
def time_encoders(
    models: Mapping[str, Model], lengths: Sequence[int], vocabulary: int, rounds: int = 7
) -> Milliseconds:
    """Time encoders on random words: on a GPU the same number at every length, elsewhere one sentence on one thread."""
    device = next(next(iter(models.values())).parameters()).device
    cuda = device.type == "cuda"
    timings: dict[str, list[float]] = {name: [] for name in models}
    with one_thread():
        for n in lengths:
            rows = max(1, TOKENS // n) if cuda else 1
            # Lengths stay on the host, where it is seen that no sentence is shorter than another.
            source = Tokens.of(torch.randint(PIECE, vocabulary, (rows, n), device=device), torch.full((rows,), n))
            times: dict[str, list[float]] = {name: [] for name in models}
            for number in range(rounds + 2):
                for name, model in models.items():
                    seconds = read_once(model, source, cuda)
                    if number > 1:  # the first ones compile, allocate and warm up
                        times[name].append(seconds)
            for name, each in times.items():
                timings[name].append(1e3 * statistics.median(each))
    return timings


def read_once(model: Model, source: Tokens, cuda: bool) -> float:
    """Time one reading, in seconds: of the clock on a GPU, else of this thread, which other programs do not slow."""
    clock = time.perf_counter if cuda else time.thread_time
    if cuda:
        torch.cuda.synchronize()
    began = clock()
    with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
        model.encode(source)
    if cuda:
        torch.cuda.synchronize()
    return clock() - began


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one CPU thread inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class EncoderFigures:
    """The figures of a system, a value per seed, its pace and its size."""

    test: SeedStatistics  # BLEU after the last update
    bleu: Sequence[SeedStatistics]  # of the validation set, at every quarter
    perplexity: Sequence[SeedStatistics]
    pace: float  # milliseconds of an update
    steps: int
    parameters: int
    of_encoder: int

    @property
    def seconds(self) -> list[float]:
        """Return the seconds of training at every quarter."""
        return [self.pace * self.steps * (number + 1) / len(self.bleu) / 1e3 for number in range(len(self.bleu))]


@dataclass(frozen=True)
class SeedFigures:
    """The figures of one system with one seed."""

    test: float  # BLEU after the last update
    bleu: Sequence[float]  # of the validation set, at every quarter
    perplexity: Sequence[float]


def measure_seed(system: TrainedSystem, pairs: Pairs) -> SeedFigures:
    """Read the training's records of every quarter, and measure BLEU on the test set, which is stored beside them."""
    file = system.run.folder / "tested.json"
    record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if record.get("step") != system.step or record.get("sentences") != len(pairs.sources):
        last = load(system.run.folder, checkpoint="last", device=system.run.device.type)
        bleu = pairs.bleu(last.translate(pairs.sources, beam=1))
        record = {"step": system.step, "sentences": len(pairs.sources), "bleu": bleu}
        disk.write_whole(file, json.dumps(record) + "\n")
    quarters = records(system.run.folder, "valid")
    losses = [math.exp(each["loss"]) for each in quarters]
    return SeedFigures(record["bleu"], [each["bleu"] for each in quarters], losses)


def average_seeds(first: TrainedSystem, seeds: Sequence[SeedFigures], pace: float) -> EncoderFigures:
    """Average the seeds of a system."""
    bleu = [SeedStatistics(each) for each in zip(*(seed.bleu for seed in seeds), strict=True)]
    perplexity = [SeedStatistics(each) for each in zip(*(seed.perplexity for seed in seeds), strict=True)]
    model = first.run.model
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    of_encoder = sum(size for name, size in sizes.items() if name.startswith("encoder."))
    test = SeedStatistics(tuple(seed.test for seed in seeds))
    return EncoderFigures(test, bleu, perplexity, pace, first.step, sum(sizes.values()), of_encoder)


def seconds_to_reach(figures: EncoderFigures, bleu: float) -> float | None:
    """Return the seconds of training until a quarter's mean BLEU is at least this."""
    quarters = zip(figures.seconds, figures.bleu, strict=True)
    return next((seconds for seconds, each in quarters if each.mean >= bleu), None)
