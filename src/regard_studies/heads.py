"""Several heads are better than one, too many are not, and most can be removed after training.

Vaswani et al. 2017 (arXiv:1706.03762), table 3: rows A vary the number of heads at constant computation (h · d_k is the
width of the model), rows B the width d_k of a head's queries and keys. Michel et al. 2019 (arXiv:1905.10650) and Voita
et al. 2019 (arXiv:1905.09418) remove heads from trained models. The study adds a system that is in no paper: heads that
see a slice of the input instead of a projection of the whole input.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from regard.attention import Heads, call_records
from regard.inspection import Cell, plot, silence_head
from regard.models import Model
from regard.run import Run
from regard_studies import Setting
from regard_studies.corpora import Pairs, english_german
from regard_studies.page import Page, Plot, Table, Verdict, show, signed_training
from regard_studies.seed_statistics import SeedStatistics, margin
from regard_studies.systems import (
    COLUMNS,
    FORMATS,
    TranslationFigures,
    group_by_name,
    log_probs,
    measure_translations,
    train_all,
    translator_training,
)

KINDS = {"encoder": "encoder, self", "decoder": "decoder, self", "cross": "decoder to source"}
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
COLOURS = {"encoder": plot.BLUE, "decoder": plot.GREEN, "cross": plot.RED}
# Table 3 of the paper, newstest2013: BLEU by heads (d_k = 512 / heads) and by d_k at 8 heads.
PAPER = {"heads-1": 24.9, "heads-4": 25.5, "heads-8": 25.8, "heads-16": 25.8, "heads-32": 25.4}
LITTLE = 0.02  # log-probability per token, a growth of perplexity by 2 %
SEVERAL = 0.2  # the share of heads that Michel et al. remove together without a noticeable loss (their figure 3)


class Head(NamedTuple):
    """A head of an attention: the module's name and the head's number, from 0."""

    module: str
    head: int


class AblationLoss(NamedTuple):
    """The loss of log-probability per token without each head, and without the least important share of all heads."""

    heads: dict[Head, float]
    shares: dict[float, float]
    whole: float  # the log-probability per token with all heads


def list_heads(model: Model) -> list[Head]:
    """List all attention heads of a model."""
    return [
        Head(name, head)
        for name, module in call_records.find_outermost(model).items()
        if isinstance(module, Heads)
        for head in range(module.heads)
    ]


def attention_kind(head: Head) -> str:
    """Return the kind of a head's attention: "encoder", "decoder" or "cross"."""
    return "cross" if head.module.endswith("cross") else head.module.split(".")[0]


@contextmanager
def silence_heads(model: Model, heads: Iterable[Head]) -> Iterator[None]:
    """Silence these heads in all batch rows inside the block."""
    modules, rows = call_records.find_outermost(model), slice(None)
    with ExitStack() as hooks:
        for name, head in heads:
            hooks.callback(silence_head(modules[name], [(rows, head)], 1).remove)
        yield


def ablate_heads(run: Run, corpus: Pairs) -> AblationLoss:
    """Measure the loss without each single head, and without more and more heads, the least important first.

    The odd sentences of the corpus determine the order of heads; the loss in that order is measured on the even ones.
    """

    def scored(silent: Sequence[Head]) -> list[float]:
        with silence_heads(run.model, silent):
            return log_probs(run, corpus.sources, corpus.references)[0]

    before, tokens = log_probs(run, corpus.sources, corpus.references)
    every = list_heads(run.model)

    def a_token(after: Sequence[float], rows: slice) -> float:
        return (sum(before[rows]) - sum(after[rows])) / max(1, sum(tokens[rows]))

    alone = {head: scored([head]) for head in every}
    order = sorted(every, key=lambda head: a_token(alone[head], slice(1, None, 2)))
    return AblationLoss(
        {head: a_token(after, slice(None)) for head, after in alone.items()},
        {share: a_token(scored(order[: round(share * len(order))]), slice(0, None, 2)) for share in SHARES},
        sum(before) / sum(tokens),
    )


def label_of(name: str) -> str:
    """Return the label of a system."""
    kind, number = name.split("-")
    if kind == "heads":
        return "1 head" if number == "1" else f"{number} heads"
    return f"d_k = {number}" if kind == "depth" else f"{number} heads, sliced input"


def heads_table(figures: Mapping[str, TranslationFigures]) -> Table:
    """Tabulate every system."""
    return Table(
        caption="Heads, their width, and what they see",
        columns=["system", *COLUMNS, "BLEU in the paper"],
        rows=[[label_of(name), *each.cells, PAPER.get(name)] for name, each in figures.items()],
        formats=["", *FORMATS, ".1f"],
        note="Systems named by d_k have 4 heads. The paper's figures are of newstest2013 and another size of model: "
        "only their differences compare.",
    )


def loss_by_kind(silenced: Sequence[AblationLoss]) -> dict[str, SeedStatistics]:
    """Average the loss without one head, for each kind of attention and each seed."""
    return {
        kind: SeedStatistics(
            tuple(
                statistics.fmean(loss for head, loss in each.heads.items() if attention_kind(head) == kind)
                for each in silenced
            )
        )
        for kind in KINDS
    }


def layers_of(each: AblationLoss, kind: str) -> dict[int, list[float]]:
    """Group the losses of an attention's heads by layer, from 1."""
    by_layer: dict[int, list[float]] = {}
    for head, loss in each.heads.items():
        if attention_kind(head) == kind:
            by_layer.setdefault(int(head.module.split(".")[2]) + 1, []).append(loss)
    return by_layer


def ablation_table(silenced: Sequence[AblationLoss]) -> Table:
    """Tabulate the ablated heads of all seeds by attention and layer."""
    rows: list[list[Cell]] = []
    for kind, title in KINDS.items():
        for layer in layers_of(silenced[0], kind):
            losses = [loss for each in silenced for loss in layers_of(each, kind)[layer]]
            rows.append([title, layer, min(losses), statistics.median(losses), max(losses), statistics.fmean(losses)])
    return Table(
        caption="Log-probability a token that is lost without one head",
        columns=["attention", "layer", "least", "median", "most", "mean"],
        rows=rows,
        formats=["", "d", ".3f", ".3f", ".3f", ".3f"],
        note="A loss of 0.01 is a perplexity that is 1 % higher; below 0 the model does better without the head.",
    )


def heads_plot(figures: Mapping[str, TranslationFigures]) -> Plot:
    """Draw BLEU against the number of heads, and against d_k."""
    figure, (left, right) = plot.panels(2, titles=["Heads, with h · d_k kept", "d_k, with 4 heads"], height=3.1)
    width = {name: int(name.split("-")[1]) for name in figures}
    counts = [name for name in figures if name.startswith("heads-")]
    depths = [name for name in figures if name.startswith("depth-")]
    for axes, names, colour in ((left, counts, plot.BLUE), (right, depths, plot.GREEN)):
        for name in names:
            values = figures[name].bleu.values
            axes.plot([width[name]] * len(values), values, "o", color=colour, ms=4, alpha=0.5)
        axes.plot([width[name] for name in names], [figures[name].bleu.mean for name in names], color=colour, lw=1.6)
        axes.set_xscale("log", base=2)
        axes.set_xticks([width[name] for name in names], [str(width[name]) for name in names])
    sliced = next(name for name in figures if name.startswith("input-"))
    left.plot(width[sliced], figures[sliced].bleu.mean, "s", color=plot.RED, ms=5, label="sliced input")
    right.axhline(figures["heads-4"].bleu.mean, color=plot.FAINT, lw=1, linestyle=(0, (2, 2)), label="d_k = size / 4")
    left.set(xlabel="heads", ylabel="BLEU")
    right.set(xlabel="d_k")
    for axes in (left, right):
        plot.legend(axes, loc="best")
    return Plot(
        "heads",
        figure,
        "BLEU by the number of heads at the same computation, and by the width of a head's queries and keys; a point a "
        "seed.",
        "Two line plots of BLEU: against the number of heads, and against the width of queries and keys.",
    )


def ablation_plot(silenced: Sequence[AblationLoss]) -> Plot:
    """Draw every head's loss, sorted by size, and the loss without more and more heads."""
    titles = ["Lost without one head", "Lost without a share of all heads"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.1)
    ranked = sorted(
        ((loss, attention_kind(head)) for each in silenced for head, loss in each.heads.items()), reverse=True
    )
    for kind, title in KINDS.items():
        positions = [place for place, (_, own) in enumerate(ranked, 1) if own == kind]
        left.plot(positions, [ranked[place - 1][0] for place in positions], "o", color=COLOURS[kind], ms=3, label=title)
    for each in silenced:
        shares = [0.0, *each.shares]
        right.plot([100 * share for share in shares], [0.0, *each.shares.values()], "o-", color=plot.BLUE, ms=3, lw=1.4)
    left.set(xlabel="heads, by what is lost", ylabel="log-probability per token")
    right.set(xlabel="% of the heads silenced, least needed first")
    plot.legend(left, loc="upper right")
    return Plot(
        "silenced",
        figure,
        "Left: a point a head, of all seeds. Right: heads silenced together, a line a seed.",
        "Left, losses without single heads from the largest to the smallest, coloured by attention; right, a curve "
        "that rises as more heads are silenced.",
    )


def tables(setting: Setting, corpus: Pairs) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system; they differ in the heads' number, width and input."""
    real, quick = setting.corpora is not None, setting.quick
    steps = 1000 if real else 500 if quick else 3000
    model: dict[str, Any] = {"kind": "transformer", "preset": "tiny", "dropout": 0.0, "tied": "all"}
    if quick:
        model |= {"size": 64, "hidden": 256}
    else:
        model |= {"preset": "small", "dropout": 0.3 if real else 0.1, "attention_dropout": 0.1 if real else 0.0}
    counts, depths = ((1, 4, 16), (2,)) if quick else ((1, 4, 8, 16, 32), (4, 16))
    sliced = 4 if quick else 8
    options: dict[str, dict[str, Any]] = {f"heads-{count}": {"heads": count} for count in counts}
    options |= {f"depth-{depth}": {"heads": 4, "depth": depth} for depth in depths}
    options[f"input-{sliced}"] = {"heads": sliced, "split": "input"}
    training = translator_training(setting, steps)
    return {name: {**corpus.tables, "model": model | each, "training": training} for name, each in options.items()}


def run(setting: Setting) -> Page:
    """Train the systems, translate, silence every head in turn, and judge the claims."""
    corpus = english_german(setting, 300)
    with signed_training(setting, corpus.name) as clock:
        systems = group_by_name(train_all("heads", tables(setting, corpus), setting))
        figures = {}
        for name, each in systems.items():
            figures[name] = measure_translations(each, corpus)
            setting.say(f"{label_of(name)}: BLEU {figures[name].bleu.as_text()}")
        silenced = [ablate_heads(each.run, corpus) for each in systems[ablated_system(figures)]]
        signature = clock.signature()
    step = next(iter(systems.values()))[0].step
    words = statistics.fmean(len(source.split()) for source in corpus.sources)
    return Page(
        name="heads",
        title="Claim: several heads are better than one",
        claim="At the same computation, several attention heads translate better than one, and too many worse again; "
        "queries and keys that are too narrow hurt; and once trained, most heads can be taken out with little loss.",
        source="Vaswani et al. 2017, table 3, rows A and B (arXiv:1706.03762); Michel et al. 2019, sections 3 to 5 "
        "(arXiv:1905.10650); Voita et al. 2019 (arXiv:1905.09418)",
        measured=[
            f"{corpus.name}: {len(corpus.sources):,} sentences translated with a beam of 5, and the perplexity per "
            f"token of their references. Systems with the same data, rates and number of updates ({step:,}), which "
            "differ in the number of heads, in d_k, the width of a head's queries and keys, or in that each head sees "
            "a slice of the input.",
            f"Then, of the system with {label_of(ablated_system(figures))}, each head silenced in turn: zeros in the "
            "place of what it gives, and how much log-probability per token of the references loses. Last, more and "
            "more heads together, in the order of what each loses by itself: the order is found on half of the "
            "sentences, the loss measured on the other half.",
        ],
        tables=[heads_table(figures), ablation_table(silenced)],
        plots=[heads_plot(figures), ablation_plot(silenced)],
        verdicts=[*verdicts(figures), *ablation_verdicts(silenced)],
        caveats=[
            "The paper's systems are 512 wide with 6 layers, trained on 4.5 million pairs for 100,000 updates, and "
            "the differences that it reports are of one run each.",
            f"Sentences are short, {words:.0f} words on average: one softmax over so few may be enough, where one over "
            "the paper's longer sentences is not.",
            "Two means differ here where they are further apart than twice the standard error of their difference, "
            "the deviation between seeds pooled over all systems; of one seed, by more than half a point of BLEU.",
            "Heads that see a slice have no output projection and narrower matrices, so that they have fewer "
            "parameters, too; a smaller d_k has fewer as well, as in the paper.",
            "Heads are silenced without any training after it, as by Michel et al.; Voita et al. train on, and can "
            "take out more.",
        ],
        signature=signature,
    )


def ablated_system(figures: Mapping[str, object]) -> str:
    """Choose the system whose heads are silenced: with 8 heads, as in the paper, or with 4 in a quick run."""
    return "heads-8" if "heads-8" in figures else "heads-4"


def verdicts(figures: Mapping[str, TranslationFigures]) -> list[Verdict]:
    """Judge by BLEU, as the paper does; only differences beyond chance count."""
    counted = {name: each.bleu for name, each in figures.items() if name.startswith("heads-")}
    least = margin([each.bleu for each in figures.values()])
    one, most = (pick(counted, key=count_heads) for pick in (min, max))
    best = max(counted, key=lambda name: counted[name].mean)
    deep = min((name for name in figures if name.startswith("depth-")), key=count_heads)
    sliced = next(name for name in figures if name.startswith("input-"))
    whole = f"heads-{count_heads(sliced)}"

    def evidence(*names: str) -> str:
        parts = [f"{label_of(name)} {figures[name].bleu.as_text()}" for name in names]
        return f"BLEU: {', '.join(parts)}; beyond chance from {show(least, '.2f')}"

    def better(name: str, other: str) -> bool:
        return figures[name].bleu.mean - figures[other].bleu.mean > least

    return [
        Verdict("one head is worse than the best number of heads", better(best, one), evidence(one, best)),
        Verdict("too many heads are worse than the best number", better(best, most), evidence(most, best)),
        Verdict("queries and keys that are too narrow hurt", better("heads-4", deep), evidence(deep, "heads-4")),
        Verdict(
            "heads that project the whole input do better than heads that see a slice of it",
            better(whole, sliced),
            evidence(sliced, whole),
        ),
    ]


def ablation_verdicts(silenced: Sequence[AblationLoss]) -> list[Verdict]:
    """Judge the findings of Michel et al. about the removal of heads."""
    every = [loss for each in silenced for loss in each.heads.values()]
    little = sum(loss < LITTLE for loss in every) / len(every)
    kinds = loss_by_kind(silenced)
    together = statistics.fmean(each.shares[SEVERAL] for each in silenced)
    others = max(kinds["encoder"].mean, kinds["decoder"].mean)
    return [
        Verdict(
            "most heads can be taken out, one at a time, with little loss",
            little > 0.5,
            f"without {show(little, '.0%')} of the {len(every)} heads the perplexity grows by less than 2 %; in the "
            f"median by {perplexity_growth(statistics.median(every))}, at most by {perplexity_growth(max(every))}",
        ),
        Verdict(
            f"{SEVERAL:.0%} of the heads can be taken out together without a noticeable loss",
            together < LITTLE,
            f"the perplexity grows by {perplexity_growth(together)} without the {SEVERAL:.0%} that are needed least",
        ),
        Verdict(
            "attention from decoder to encoder depends on its heads more than self-attention does",
            kinds["cross"].mean > others + margin(kinds.values(), floor=0.0),
            "log-probability per token lost without one head, on average: "
            + "; ".join(f"{name} {kinds[key].as_text('.3f')}" for key, name in KINDS.items()),
        ),
    ]


def perplexity_growth(loss: float) -> str:
    """Convert a loss of log-probability to a growth of perplexity."""
    return show(math.expm1(loss), ".1%")


def count_heads(name: str) -> int:
    """Read the number of heads from a system's name."""
    return int(name.split("-")[1])
