"""Quality against time: a Transformer's encoder with each layer of table 1, and a recurrent system.

Vaswani et al. 2017 (arXiv:1706.03762), section 4 and table 1: self-attention, self-attention within r words, a
convolution, a recurrence. The study trains each of them in the blocks of the same encoder, with about the same number
of parameters, the same decoder and the same batches. It adds RNNsearch (Bahdanau et al. 2015), which is completely
recurrent: the paper's abstract says that the Transformer takes "significantly less time to train".

Systems are timed in turns, so that other work on the machine slows all of them equally.
"""

import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from regard.data import generate
from regard.evaluation import read_texts
from regard.inspection import plot
from regard.io import disk
from regard.models import Model, Tokens, build
from regard.run import Run, load
from regard.training import metrics
from regard_studies import Setting
from regard_studies.corpora import Pairs, multi30k, phrasebook
from regard_studies.page import Part, Plot, Table, Verdict, show, signed_training
from regard_studies.seed_statistics import SeedStatistics, over_seeds
from regard_studies.systems import TrainedSystem, group_by_name, train_all, training_settings

PAIRS = 8000  # pairs of the training set for timing updates
TURNS, ROUNDS = 3, 2
TOKENS = 32_768  # tokens in an encoder's batch on a GPU
PIECE = 5  # about the first number of a vocabulary that is no special token
Milliseconds = Mapping[str, Sequence[float]]  # by system, one value per length
LABELS = {
    "attention": "self-attention",
    "window": "window",
    "convolution": "convolution",
    "recurrence": "recurrence",
    "rnnsearch": "RNNsearch",
}
COLOURS = {
    "attention": plot.BLUE,
    "window": plot.GREEN,
    "convolution": plot.ORANGE,
    "recurrence": plot.RED,
    "rnnsearch": plot.GREY,
}
MIXED = ("attention", "window", "convolution", "recurrence")  # layers that mix words in the encoder's blocks
REACH = {"window": 4, "convolution": 1}
QUARTERS = 4  # checkpoints at which a system is measured
LENGTHS = (32, 64, 128, 256, 512, 1024)
LOSS = 0.5  # BLEU; smaller differences are noise on a thousand sentences
SEEN = 1.1  # ratio of two times; smaller ratios do not count as a difference


def time_updates(systems: Mapping[str, TrainedSystem], corpus: Pairs) -> dict[str, float]:
    """Time an update in milliseconds: by a benchmark on a GPU, otherwise from the records of the training."""
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
    """Read a training's records of one kind: "step" or "valid"."""
    return [each for each in metrics.read_records(folder / "metrics.jsonl") if each.get("kind") == kind]


def median_pace(steps: Sequence[Mapping[str, Any]]) -> float:
    """Compute the median milliseconds per update between two records; few of these intervals contain a validation."""
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
    """Time encoders on random words: on a GPU, as many at every length; otherwise one sentence on one thread."""
    device = next(next(iter(models.values())).parameters()).device
    cuda = device.type == "cuda"
    timings: dict[str, list[float]] = {name: [] for name in models}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for n in lengths:
            rows = max(1, TOKENS // n) if cuda else 1
            # The lengths stay on the CPU, where the model sees without a synchronisation that there is no padding.
            source = Tokens.of(torch.randint(PIECE, vocabulary, (rows, n), device=device), torch.full((rows,), n))
            times: dict[str, list[float]] = {name: [] for name in models}
            for number in range(rounds + 2):
                for name, model in models.items():
                    seconds = read_once(model, source, cuda)
                    if number > 1:  # skip the first rounds, which compile, allocate and warm up
                        times[name].append(seconds)
            for name, each in times.items():
                timings[name].append(1e3 * statistics.median(each))
    finally:
        torch.set_num_threads(threads)
    return timings


def read_once(model: Model, source: Tokens, cuda: bool) -> float:
    """Time one encoder pass in seconds: wall-clock time on a GPU, otherwise this thread's CPU time."""
    clock = time.perf_counter if cuda else time.thread_time
    if cuda:
        torch.cuda.synchronize()
    began = clock()
    with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
        model.encode(source)
    if cuda:
        torch.cuda.synchronize()
    return clock() - began


@dataclass(frozen=True)
class EncoderFigures:
    """The figures of a system, with a value per seed, its time per update and its size."""

    test: SeedStatistics  # BLEU after the last update
    bleu: Sequence[SeedStatistics]  # on the validation set, after every quarter of the training
    perplexity: Sequence[SeedStatistics]
    pace: float  # milliseconds per update
    steps: int
    parameters: int
    of_encoder: int

    @property
    def seconds(self) -> list[float]:
        """Return the seconds of training until each quarter."""
        return [self.pace * self.steps * (number + 1) / len(self.bleu) / 1e3 for number in range(len(self.bleu))]


@dataclass(frozen=True)
class SeedFigures:
    """The figures of one system with one seed."""

    test: float  # BLEU after the last update
    bleu: Sequence[float]  # on the validation set, after every quarter of the training
    perplexity: Sequence[float]


def measure_seed(system: TrainedSystem, pairs: Pairs) -> SeedFigures:
    """Read the validation records of every quarter, and measure BLEU on the test set; cache it in the run folder."""
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
    """Combine the figures of a system's seeds."""
    bleu = [SeedStatistics(each) for each in zip(*(seed.bleu for seed in seeds), strict=True)]
    perplexity = [SeedStatistics(each) for each in zip(*(seed.perplexity for seed in seeds), strict=True)]
    model = first.run.model
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    of_encoder = sum(size for name, size in sizes.items() if name.startswith("encoder."))
    test = over_seeds(seeds, lambda each: each.test)
    return EncoderFigures(test, bleu, perplexity, pace, first.step, sum(sizes.values()), of_encoder)


def seconds_to_reach(figures: EncoderFigures, bleu: float) -> float | None:
    """Return the seconds of training until a quarter's mean BLEU is at least `bleu`; None if it never is."""
    quarters = zip(figures.seconds, figures.bleu, strict=True)
    return next((seconds for seconds, each in quarters if each.mean >= bleu), None)


def quality_table(figures: Mapping[str, EncoderFigures]) -> Table:
    """Tabulate the quality and the cost of each system."""
    quarters = len(next(iter(figures.values())).bleu)
    parts = [f"after {number}/{quarters}" for number in range(1, quarters)]
    return Table(
        caption="BLEU of the validation set by the share of the updates and of the test set, and what they cost",
        columns=[
            "encoder", *parts, "at the end", "test", "perplexity", "ms per update", "seconds of updates",
            "million parameters", "of the encoder",
        ],
        rows=[
            [
                LABELS[name],
                *(spread.as_text() for spread in each.bleu),
                each.test.as_text(),
                each.perplexity[-1].as_text(".2f"),
                each.pace,
                each.seconds[-1],
                each.parameters / 1e6,
                each.of_encoder / 1e6 if each.of_encoder else None,
            ]
            for name, each in figures.items()
        ],
        formats=["", *[""] * (quarters + 1), "", ".2f", ".1f", ".2f", ".2f"],
        note="RNNsearch has no Transformer's decoder: a system of its own, recurrent as a whole.",
    )  # fmt: skip


def encoder_table(times: Milliseconds, lengths: Sequence[int], on_gpu: bool) -> Table:
    """Tabulate the encoders' times by length."""
    how = f"{TOKENS:,} words, as sentences of n each" if on_gpu else "one sentence of n words, one thread"
    return Table(
        caption=f"Milliseconds of the trained encoders: {how}",
        columns=["encoder", *(f"n = {n:,}" for n in lengths)],
        rows=[[LABELS[name], *each] for name, each in times.items()],
        formats=["", *[".2f"] * len(lengths)],
    )


def curve_plot(
    figures: Mapping[str, EncoderFigures], times: Milliseconds, lengths: Sequence[int], on_gpu: bool
) -> Plot:
    """Draw quality against time, and time against length."""
    titles = ["BLEU (validation) against seconds of updates", "Milliseconds of the encoder"]
    figure, (quality, encoder) = plot.panels(2, titles=titles, height=3.4)
    for name, each in figures.items():
        means = [spread.mean for spread in each.bleu]
        style = {"color": COLOURS[name], "marker": "o", "markersize": 3.5, "label": LABELS[name]}
        quality.plot(each.seconds, means, **style)  # type: ignore[arg-type]
    quality.set_xlim(left=0)
    quality.set_xlabel("seconds of updates")
    plot.legend(quality, loc="lower right")
    for name, spent in times.items():
        encoder.plot(lengths, spent, color=COLOURS[name], marker="o", markersize=3.5, label=LABELS[name])
    encoder.set_xscale("log", base=2)
    encoder.set_yscale("log")
    encoder.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    encoder.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    encoder.yaxis.set_minor_formatter(NullFormatter())
    encoder.set_xticks(list(lengths), [f"{n:,}" for n in lengths])
    encoder.set_xlabel(f"words of a sentence{f', {TOKENS:,} in all' * on_gpu}")
    return Plot(
        "quality",
        figure,
        "Left: after each quarter of the updates. Right: reading, in the same colours.",
        "Two panels: BLEU against time for five systems, and milliseconds against length for four encoders.",
    )


def corpus(setting: Setting) -> Pairs:
    """Choose the corpus to train on and translate."""
    if setting.corpora is not None:
        return multi30k(setting.corpora)
    return phrasebook(20_000, 200) if setting.quick else phrasebook(200_000, 1000, longest=18)


def tables(pairs: Pairs, quick: bool) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system; the Transformers differ only in the layer that mixes the encoder's words.

    RNNsearch has its own best dropout and learning rate, and the same batches.
    """
    real = "source" in pairs.tables["data"]
    steps = 400 if quick else 1500 if real else 2500
    training = training_settings(
        steps,
        batch_tokens=1024 if quick else 8192,
        rate=3e-3 if quick else 1.5e-3,
        warmup=steps // 5,
        smoothing=0.1 if real else 0.05,
        validate_every=steps // QUARTERS,
        validate_rows=100 if quick else 1014,
        metric="bleu",
    )
    shape = {"size": 64, "heads": 4, "layers": 2, "hidden": 256} if quick else {"preset": "small"}
    model = {"kind": "transformer", **shape, "dropout": 0.3 if real else 0.0, "tied": "all"}
    model |= {"attention_dropout": 0.1 if real else 0.0}
    configs: dict[str, dict[str, Any]] = {}
    for mixing in MIXED:
        reach = {"reach": REACH[mixing]} if mixing in REACH else {}
        configs[mixing] = {**pairs.tables, "model": {**model, "mixing": mixing, **reach}, "training": training}
    widths = {"size": 64, "embedding": 64, "hidden": 64, "maxout": 32} if quick else {"preset": "base"}
    recurrent = {"kind": "rnnsearch", **widths, "dropout": 0.5 if real else 0.0}
    configs["rnnsearch"] = {
        **pairs.tables,
        "model": recurrent,
        "training": {**training, "rate": 3e-3 if quick else 1e-3, "warmup": steps // 6},
    }
    return configs


def run(setting: Setting) -> Part:
    """Train five systems, measure BLEU at every quarter of the training, measure times, and judge the claims."""
    pairs = corpus(setting)
    with signed_training(setting, pairs.name) as clock:
        systems = group_by_name(train_all("parallel", tables(pairs, setting.quick), setting))
        seeds = {name: [measure_seed(each, pairs) for each in some] for name, some in systems.items()}
        firsts = {name: some[0] for name, some in systems.items()}
        pace = time_updates(firsts, pairs)
        lengths = LENGTHS[:-1] if setting.quick else LENGTHS
        models = {name: firsts[name].run.model for name in MIXED}
        times = time_encoders(models, lengths, firsts["attention"].run.tokenizers.source.size)
        on_gpu = firsts["attention"].run.device.type == "cuda"
        signature = clock.signature()
    figures = {name: average_seeds(firsts[name], seeds[name], pace[name]) for name in systems}
    width = firsts["attention"].run.settings.model.size  # type: ignore[attr-defined]
    return Part(
        measured=describe_training(pairs, figures, on_gpu, width),
        tables=[quality_table(figures), encoder_table(times, lengths, on_gpu)],
        plots=[curve_plot(figures, times, lengths, on_gpu)],
        verdicts=verdicts(figures, times, lengths, width, on_gpu),
        caveats=[
            "The decoder attends to the source and to itself in all of the first four: what an encoder does not "
            "relate, it can still find.",
            "The sentences are short: a window of 4 on each side, in every block, reaches nearly all of each.",
            "One size, one rate: each layer might do better with its own. RNNsearch has the rate and the dropout of "
            "its own configuration.",
            "A convolution and a recurrence know what is near from the start, and self-attention has to learn it: the "
            "shorter the training, the more that may count, and this one is short.",
            *(
                [
                    "In training, recurrent encoders step through lengths that are rounded up to powers of two.",
                    "Encoders are timed as they are called, without graphs: what the host takes to order the work is "
                    "in it, and most of what a GPU does is the same at every length. Up to 1,024 words the part of "
                    "self-attention that grows with the square of the length hardly counts there.",
                ]
                if on_gpu
                else []
            ),
        ],
        signature=signature,
    )


def describe_training(pairs: Pairs, figures: Mapping[str, EncoderFigures], on_gpu: bool, width: int) -> list[str]:
    """Describe how the systems were trained."""
    steps = figures["attention"].steps
    timed = (
        "An update is timed after the training, systems in turns, on the training's batches, captured as graphs"
        if on_gpu
        else "An update's time is the median of the training"
    )
    return [
        f"{pairs.name}. A Transformer of width {width} is trained four times, {steps:,} updates each, and what differs "
        "is what the encoder's blocks mix words by: self-attention; self-attention within "
        f"{REACH['window']} words on each side; a gated convolution with kernels of three (Gehring et al. 2017, "
        "arXiv:1705.03122); a GRU from either end. RNNsearch has as many updates. All translate greedily: "
        f"{len(pairs.sources):,} unseen sentences after the last update, and the validation set, of which the "
        f"perplexity is, too, after each quarter of them. {timed}.",
    ]


def verdicts(
    figures: Mapping[str, EncoderFigures], times: Milliseconds, lengths: Sequence[int], width: int, on_gpu: bool
) -> list[Verdict]:
    """Judge the paper's claims about its table 1 and about training time."""
    final = {name: each.test for name, each in figures.items()}
    bleus = "; ".join(f"{LABELS[name]} {each.as_text()}" for name, each in final.items() if name != "rnnsearch")
    best = max(each.mean for each in figures["rnnsearch"].bleu)
    needed = seconds_to_reach(figures["rnnsearch"], best)
    took = seconds_to_reach(figures["attention"], best)
    assert needed is not None
    short = [n for n in lengths if n < width]
    at = {name: dict(zip(lengths, each, strict=True)) for name, each in times.items()}
    # On a GPU the number of words is the same at every length, so that a linear cost is constant.
    low, high = (128, lengths[-1]) if on_gpu else lengths[-2:]
    growth = {name: at[name][high] / at[name][low] for name in ("attention", "window")}
    # Two bounds, because slower than linear growth is not linear either; on a CPU, part of the time is constant.
    least, most = (1 / 1.3, 1.3) if on_gpu else (high / low / 1.4, 1.2 * high / low)
    return [
        Verdict(
            "the Transformer reaches the recurrent system's quality in less time",
            took is not None and took < needed,
            f"of the validation set RNNsearch has BLEU {show(best, '.1f')} after {show(needed, '.1f')} s of updates; "
            + "the Transformer "
            + ("does not reach that" if took is None else f"has no less after {show(took, '.1f')} s")
            + f", and {figures['attention'].bleu[-1].as_text()} at its end",
        ),
        Verdict(
            "in the same encoder, self-attention translates no worse than a convolution or a recurrence",
            all(final["attention"].mean > final[name].mean - LOSS for name in ("convolution", "recurrence")),
            f"BLEU: {bleus}",
        ),
        Verdict(
            f"kept to {REACH['window']} words on each side, self-attention loses nothing on short sentences",
            final["window"].mean > final["attention"].mean - LOSS,
            f"BLEU {final['window'].as_text()} against {final['attention'].as_text()}",
        ),
        Verdict(
            "an update takes longer with a recurrence in the place of self-attention",
            figures["recurrence"].pace > figures["attention"].pace,
            ", ".join(f"{LABELS[name]} {show(each.pace, '.2f')} ms" for name, each in figures.items()),
        ),
        Verdict(
            "self-attention reads faster than a recurrence while sentences are shorter than vectors are wide",
            all(at["attention"][n] < at["recurrence"][n] for n in short),
            ", ".join(
                f"n = {n}: {show(at['recurrence'][n] / at['attention'][n], '.1f')} × as fast"
                for n in (*short, lengths[-1])
            ),
        ),
        Verdict(
            "a window makes the cost of an encoder linear in the length, which it is not without",
            least < growth["window"] < most and growth["attention"] > SEEN * growth["window"],
            f"from {low} to {high} words{', as many in all' * on_gpu}: window × {show(growth['window'], '.2f')}, "
            f"self-attention × {show(growth['attention'], '.2f')}",
        ),
    ]
