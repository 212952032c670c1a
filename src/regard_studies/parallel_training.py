"""Quality against time: a Transformer whose encoder mixes words by each layer of table 1, and a recurrent system.

Vaswani et al. 2017 (arXiv:1706.03762), section 4 and table 1: self-attention, self-attention within r words, a
convolution, a recurrence. Here each stands in the blocks of the same encoder, with about the same number of parameters
and the same decoder, and is trained with the same batches. Beside them RNNsearch (Bahdanau et al. 2015), recurrent as a
whole: the paper's abstract says that the Transformer takes "significantly less time to train".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from regard_studies.corpora.pairs import Pairs, multi30k, phrasebook
from regard_studies.page import Part, Verdict, show, signed_training
from regard_studies.parallel.draw import LABELS, curve_plot, encoder_table, quality_table
from regard_studies.parallel.timing import (
    EncoderFigures,
    Milliseconds,
    average_seeds,
    measure_seed,
    seconds_to_reach,
    time_encoders,
    time_updates,
)
from regard_studies.setting import Setting
from regard_studies.systems import group_by_name, train_all

__all__ = ["corpus", "run", "tables", "verdicts"]

MIXED = ("attention", "window", "convolution", "recurrence")  # what the encoder's blocks mix words by
REACH = {"window": 4, "convolution": 1}
QUARTERS = 4  # checkpoints at which a system is measured
LENGTHS = (32, 64, 128, 256, 512, 1024)
LOSS = 0.5  # BLEU that is not told from noise on a thousand sentences
SEEN = 1.1  # times: what a difference between two times has to be, to be one


def corpus(setting: Setting) -> Pairs:
    """Choose the corpus to train on and translate."""
    if setting.corpora is not None:
        return multi30k(setting.corpora)
    return phrasebook(20_000, 200) if setting.quick else phrasebook(200_000, 1000, longest=18)


def tables(pairs: Pairs, quick: bool) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system; the Transformers differ only in the layer that mixes the encoder's words.

    RNNsearch has the dropout and the rate that it is best with, and the same batches.
    """
    real = "source" in pairs.tables["data"]
    steps = 400 if quick else 1500 if real else 2500
    training = {
        "steps": steps,
        "batch_tokens": 1024 if quick else 8192,
        "rate": 3e-3 if quick else 1.5e-3,
        "schedule": "cosine",
        "warmup": steps // 5,
        "smoothing": 0.1 if real else 0.05,
        "validate_every": steps // QUARTERS,
        "validate_rows": 100 if quick else 1014,
        "metric": "bleu",
    }
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
    """Train five systems, translate at every quarter of the training, take times, and judge the claims."""
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
    """Judge what the paper says about its table, and about training time."""
    final = {name: each.test for name, each in figures.items()}
    bleus = "; ".join(f"{LABELS[name]} {each.as_text()}" for name, each in final.items() if name != "rnnsearch")
    best = max(each.mean for each in figures["rnnsearch"].bleu)
    needed = seconds_to_reach(figures["rnnsearch"], best)
    took = seconds_to_reach(figures["attention"], best)
    assert needed is not None
    short = [n for n in lengths if n < width]
    at = {name: dict(zip(lengths, each, strict=True)) for name, each in times.items()}
    # On a GPU as many words are read at every length: linear is then constant.
    low, high = (128, lengths[-1]) if on_gpu else lengths[-2:]
    growth = {name: at[name][high] / at[name][low] for name in ("attention", "window")}
    # Both ways, as less than linear is not linear; on a CPU a part of the time is the same at every length.
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
