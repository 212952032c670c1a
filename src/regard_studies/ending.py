"""The end of a sentence becomes likelier with its length, for a model that knows the position.

Self-attention by itself is permutation equivariant, which is why Vaswani et al. 2017 (arXiv:1706.03762, section 3.5)
add positions: the distance to the end of a bag of words can be judged only by counting. The study compares language
models with the same words and the same causal mask that differ only in their positions, by their probability of the end
after each word. For sequences whose words do not depend on their length, the right probability is known: the share of
the sequences of at least this length that end here.

t places: the number of words before the end, from 0
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from regard.data import END, START, generate
from regard.inspection import Cell, plot
from regard.models import Tokens
from regard.run import Run
from regard_studies import Setting
from regard_studies.page import Page, Plot, Table, Verdict, show, signed_training
from regard_studies.systems import TrainedSystem, group_by_name, train_all, training_settings

LABELS = {"sinusoidal": "sinusoidal", "rotary": "rotary", "none": "no positions"}
COLOURS = {"sinusoidal": plot.BLUE, "rotary": plot.GREEN, "none": plot.RED}
Truth = Mapping[str, Float[np.ndarray, " t"]]
MIN_WORDS, MAX_WORDS = 3, 12  # words of a sequence; all lengths are equally likely
CORPORA = {"symbols": "symbols that say nothing of the length", "phrasebook": "German sentences of the phrasebook"}
STOPS = {"symbols": None, "phrasebook": "."}  # the last word of every text, if there is one
POSITIONS = ("sinusoidal", "rotary", "none")
EDITION = 1  # edition of the phrasebook in which the full stop is a separate word
CLOSE = 3.0  # maximum mean distance from the true share, in points, that counts as following it


@dataclass(frozen=True, eq=False)
class Endings:
    """The probability of the end by place, over all texts and over texts that end there; means over all seeds."""

    anywhere: Float[np.ndarray, " t"]  # after t words, over all texts of at least t words; NaN if there are none
    here: Float[np.ndarray, " t"]  # over texts that end there
    perplexity: float  # per word, including the end
    parameters: int


def hazard(lengths: Iterable[int], size: int) -> Float[np.ndarray, " t"]:
    """Compute the share of texts with at least t words that end after t: the best prediction from the place alone."""
    ends, reach = np.zeros(size), np.zeros(size)
    for length in lengths:
        reach[: length + 1] += 1
        if length < size:
            ends[length] += 1
    return np.divide(ends, reach, out=np.full(size, np.nan), where=reach > 0)


@torch.no_grad()
def end_probabilities(run: Run, texts: Sequence[str], stop: str | None = None) -> list[Float[np.ndarray, " _"]]:
    """Return the probability of each text's end before its first word and after every word.

    With `stop`, return the probability of this word instead of the end; the texts must not contain it.
    """
    rows, stop_token = [], END if stop is None else run.tokenizers.target.encode(stop)[0]
    for ids in run.tokenizers.target.encode_batch(list(texts)):
        read = Tokens.of(*(torch.tensor(each, device=run.device) for each in ([[START, *ids]], [len(ids) + 1])))
        states, _ = run.model.decode(run.model.encode(read), read)
        logits = run.model.output(states).float()[0]
        rows.append(logits.softmax(-1)[:, stop_token].cpu().numpy())
    return rows


def measure_endings(
    systems: Sequence[TrainedSystem], texts: Sequence[str], size: int, stop: str | None = None
) -> Endings:
    """Measure every seed of a system on the texts; a place is a word, because the tokenizer has one piece per word.

    If the corpus has a `stop`, the texts must not contain it.
    """
    anywhere, here, counts, ends = (np.zeros(size) for _ in range(4))
    nll, tokens = 0.0, 0
    for system in systems:
        for row in end_probabilities(system.run, texts, stop):
            row = row[:size]
            anywhere[: len(row)] += row
            counts[: len(row)] += 1
            here[len(row) - 1] += row[-1]
            ends[len(row) - 1] += 1
        whole = [text if stop is None else f"{text} {stop}" for text in texts]
        for scored in system.run.score(whole):
            nll -= sum(scored.tokens)
            tokens += len(scored.tokens)
    nothing = np.full(size, np.nan)
    return Endings(
        np.divide(anywhere, counts, out=nothing.copy(), where=counts > 0),
        np.divide(here, ends, out=nothing.copy(), where=ends > 0),
        float(np.exp(nll / tokens)),
        systems[0].parameters,
    )


def wasted(predicted: Float[np.ndarray, " t"], truth: Float[np.ndarray, " t"]) -> float:
    """Compute the mean of |P(end) − truth| over the places at which both are known, in points."""
    defined = ~(np.isnan(predicted) | np.isnan(truth))
    return 100 * float(np.abs(predicted[defined] - truth[defined]).mean())


def system_table(figures: Mapping[str, Mapping[str, Endings]], truth: Truth, names: Mapping[str, str]) -> Table:
    """Tabulate the figures of each system on each corpus."""
    rows: list[list[Cell]] = [
        [names[corpus], LABELS[name], wasted(each.anywhere, truth[corpus]), each.perplexity, each.parameters]
        for corpus, systems in figures.items()
        for name, each in systems.items()
    ]
    columns = ["corpus", "positions", "distance from the true share, points", "perplexity of a word", "parameters"]
    return Table("How well the end is known", columns, rows, ["", "", ".2f", ".2f", ",d"])


def place_table(corpus: str, systems: Mapping[str, Endings], truth: Float[np.ndarray, " t"]) -> Table:
    """Tabulate P(end) by place, in percent, over all texts that reach the place and over those that end there."""
    positions = [place for place in range(len(truth)) if not np.isnan(truth[place])]
    rows: list[list[Cell]] = [["the true share", *(100 * float(truth[place]) for place in positions)]]
    for name, each in systems.items():
        rows.append([LABELS[name], *(100 * float(each.anywhere[place]) for place in positions)])
    for name, each in systems.items():
        ends = [None if np.isnan(each.here[place]) else 100 * float(each.here[place]) for place in positions]
        rows.append([f"{LABELS[name]}, where it does end", *ends])
    columns = ["P(end), %, after so many words", *map(str, positions)]
    return Table(f"The end by place: {corpus}", columns, rows, ["", *[".1f"] * len(positions)])


def ending_plot(figures: Mapping[str, Mapping[str, Endings]], truth: Truth, names: Mapping[str, str]) -> Plot:
    """Draw P(end) by place, with a panel per corpus."""
    titles = [names[corpus][0].upper() + names[corpus][1:] for corpus in figures]
    figure, axes = plot.panels(len(figures), titles=titles, height=3.2, width=7.6)
    for panel, (corpus, systems) in zip(axes, figures.items(), strict=True):
        panel.plot(100 * truth[corpus], color=plot.FAINT, linestyle="--", linewidth=1.6, label="the true share")
        for name, each in systems.items():
            panel.plot(100 * each.anywhere, color=COLOURS[name], marker="o", markersize=3, label=LABELS[name])
        panel.set_xlabel("words before it")
        panel.set_ylim(bottom=0)
    axes[0].set_ylabel("P(end), %")
    plot.legend(axes[0], loc="upper left")
    return Plot(
        "ending",
        figure,
        "The probability of the end after so many words, the mean over all texts that are at least so long. Dashed: "
        "how many of them do end there.",
        "A panel a corpus: P(end) over the number of words for each way to tell positions, beside the true share.",
    )


def tables(quick: bool) -> dict[str, dict[str, Any]]:
    """Build a configuration for each corpus and position encoding; systems of a corpus differ in nothing else."""
    sequence = [f"shortest={MIN_WORDS}", f"longest={MAX_WORDS}", "symbols=30"]
    data = {
        "symbols": {"builtin": "copy", "count": 60_000, "builtin_options": sequence},
        "phrasebook": {"builtin": "phrasebook", "builtin_edition": EDITION, "count": 20_000 if quick else 60_000},
    }
    steps = 3000 if quick else 2000  # a quick run has small batches, because it needs updates more than words
    training = training_settings(steps, batch_tokens=512 if quick else 4096, rate=3e-3, validate_every=steps // 2)
    widths = {"size": 64, "layers": 2, "hidden": 256} if quick else {"size": 128, "layers": 3, "hidden": 512}
    model = {"kind": "encoder", "heads": 4, "dropout": 0.0, **widths}
    return {
        f"{corpus}-{positions}": {
            "task": "language-model",
            "data": data[corpus],
            "tokenizer": {"kind": "word", "size": 4000},
            "model": {**model, "positions": positions},
            "training": training,
        }
        for corpus in CORPORA
        for positions in POSITIONS
    }


def tests(corpus: str, quick: bool) -> list[str]:
    """Return texts that are not in the training data, without their stop."""
    count = 500 if quick else 2000
    if corpus == "symbols":
        options: dict[str, Any] = {"shortest": MIN_WORDS, "longest": MAX_WORDS, "symbols": 30}
        return [each.target for each in generate("copy", count, split="test", seed=0, **options)]
    sentences = (each.target for each in generate("phrasebook", count, split="test", seed=0, edition=EDITION))
    return [text.removesuffix(" .") for text in sentences if text.endswith(" .")]


def run(setting: Setting) -> Page:
    """Train the systems, measure the probability of the end after each word, and judge the claims."""
    texts = {corpus: tests(corpus, setting.quick) for corpus in CORPORA}
    lengths = {corpus: [len(text.split()) for text in each] for corpus, each in texts.items()}
    sizes = {corpus: max(each) + 1 for corpus, each in lengths.items()}
    with signed_training(setting, "") as clock:
        systems = group_by_name(train_all("ending", tables(setting.quick), setting))
        figures = {
            corpus: {
                positions: measure_endings(
                    systems[f"{corpus}-{positions}"], texts[corpus], sizes[corpus], STOPS[corpus]
                )
                for positions in POSITIONS
            }
            for corpus in CORPORA
        }
        signature = clock.signature()
    truth = {corpus: hazard(each, sizes[corpus]) for corpus, each in lengths.items()}
    truth["symbols"] = even_hazard(sizes["symbols"])
    return Page(
        name="ending",
        title="Claim: the full stop knows when",
        claim="The end of a sentence grows likelier the longer it is, and a model of attention has to be told where it "
        "stands to know.",
        source="Vaswani et al. 2017, Attention Is All You Need, section 3.5 (arXiv:1706.03762)",
        measured=[
            "Language models of the encoder's blocks under a causal mask, two layers in a first look and three else, "
            "that differ in positions alone. The probability of the end after each word of "
            f"{', '.join(f'{len(each):,} {CORPORA[corpus]}' for corpus, each in texts.items())}, teacher forced.",
            f"Sequences of symbols have {MIN_WORDS} to {MAX_WORDS}, every length equally likely, and their symbols say "
            "nothing of it: after t of them the end has come for one in so many as could still come. Of sentences it "
            "is the full stop that is asked for, behind which the end is certain, and the true share is counted in the "
            "test; questions are left out.",
        ],
        tables=[
            system_table(figures, truth, CORPORA),
            *(place_table(CORPORA[corpus], figures[corpus], truth[corpus]) for corpus in CORPORA),
        ],
        plots=[ending_plot(figures, truth, CORPORA)],
        verdicts=verdicts(figures, truth),
        caveats=[
            "A causal mask tells a model where it stands in part: the first word has nothing to look at but the start, "
            "the tenth has nine words more, and the share of the start's weight falls with each. What is lost without "
            "positions is what cannot be counted in this way.",
            "In sentences words say more of the end than places do: after a verb that closes its clause a stop may "
            "follow, after an article it may not.",
        ],
        signature=signature,
    )


def even_hazard(size: int) -> Float[np.ndarray, " t"]:
    """Compute the true probability of the end for sequences of symbols, whose lengths are equally likely."""
    share = np.zeros(size)
    for place in range(MIN_WORDS, min(size, MAX_WORDS + 1)):
        share[place] = 1 / (MAX_WORDS - place + 1)
    return share


def verdicts(
    figures: Mapping[str, Mapping[str, Endings]], truth: Mapping[str, Float[np.ndarray, " t"]]
) -> list[Verdict]:
    """Judge by the distance of P(end) from the truth on symbols, and by the perplexity on both corpora."""
    own = {name: wasted(each.anywhere, truth["symbols"]) for name, each in figures["symbols"].items()}
    evidence = "; ".join(f"{LABELS[name]} {show(points, '.1f')} points" for name, points in own.items())
    rising = {
        name: np.diff(each.anywhere[MIN_WORDS : MAX_WORDS + 1]) for name, each in figures["symbols"].items()
    }  # on symbols, the true probability grows at every place
    with_positions = [name for name in own if name != "none"]
    worse = {
        corpus: each["none"].perplexity / min(each[name].perplexity for name in with_positions)
        for corpus, each in figures.items()
    }
    return [
        Verdict(
            "with positions the end grows likelier with every word",
            all((rising[name] > 0).all() for name in with_positions),
            "; ".join(
                f"{LABELS[name]} from {show(100 * figures['symbols'][name].anywhere[MIN_WORDS], '.1f')} % after "
                f"{MIN_WORDS} to {show(100 * figures['symbols'][name].anywhere[MAX_WORDS], '.1f')} % after {MAX_WORDS}"
                for name in with_positions
            ),
        ),
        Verdict(
            "with positions it follows the true share of what ends there",
            all(own[name] < CLOSE for name in with_positions),
            f"mean distance: {evidence}",
        ),
        Verdict(
            "without positions it does not",
            own["none"] > max(CLOSE, 2 * max(own[name] for name in with_positions)),
            f"mean distance: {evidence}",
        ),
        Verdict(
            "without positions a language model is worse",
            all(ratio > 1.01 for ratio in worse.values()),
            "perplexity, as a multiple of the best with positions: "
            + "; ".join(f"{corpus} {show(ratio, '.3f')}" for corpus, ratio in worse.items()),
        ),
    ]
