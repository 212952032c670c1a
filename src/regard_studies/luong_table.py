"""Luong's table: global and local attention with every score, side by side.

Luong, Pham and Manning 2015 (arXiv:1508.04025), table 4: global attention with the scores location, dot and general,
local-m and local-p with dot and general; table 1: the gain of input feeding; a footnote of section 5.3 on concat;
section 5.4 and table 6: alignment error rates. As in the paper, LSTMs read the source backwards, use dropout of 0.2,
and feed the attentional state to the next step. Annotations are nevertheless in source order, so that local-m moves
from its beginning to its end. Section 3.2: global attention is impractical for documents, whereas the cost of a window
of 2D + 1 does not depend on the source's length. The study measures this on one attention with as many queries as
annotations, as in a translation.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import Attention, General, Monotonic, Predictive, Span, use_backend
from regard.inspection import plot
from regard_studies import Setting
from regard_studies.corpora import ALIGNED_WORDS, AlignedPairs, Pairs, aligned_texts
from regard_studies.page import Page, Plot, Table, Verdict, show, signed_training
from regard_studies.seed_statistics import SeedStatistics, is_lower, over_seeds
from regard_studies.systems import (
    TrainedSystem,
    error_rates,
    group_by_name,
    perplexity,
    score_heads,
    train_all,
    training_settings,
)

# Keys: perplexity, bleu, written and read (AER, %), aer (the lower of the two), seconds.
Figures = Mapping[str, SeedStatistics]
SYSTEMS: dict[str, dict[str, Any]] = {
    "global-location": {"span": "global", "score": "location"},
    "global-dot": {"span": "global", "score": "dot"},
    "global-general": {"span": "global", "score": "general"},
    "global-concat": {"span": "global", "score": "concat"},
    "local-m-dot": {"span": "local-m", "score": "dot"},
    "local-m-general": {"span": "local-m", "score": "general"},
    "local-p-dot": {"span": "local-p", "score": "dot"},
    "local-p-general": {"span": "local-p", "score": "general"},
    "unfed-global-dot": {"span": "global", "score": "dot", "input_feeding": False},
    "unfed-global-general": {"span": "global", "score": "general", "input_feeding": False},
    "unfed-local-p-general": {"span": "local-p", "score": "general", "input_feeding": False},
}
LABELS = {
    name: f"{each['span']} ({each['score']}){', not fed on' * ('input_feeding' in each)}"
    for name, each in SYSTEMS.items()
}
# Table 4 (perplexity, BLEU before the replacement of unknown words) and table 6 (AER).
PAPER: dict[str, tuple[str, float | None, int | None]] = {
    "global-location": ("6.4", 18.1, 39),
    "global-dot": ("6.1", 18.6, None),
    "global-general": ("6.1", 17.3, None),
    "global-concat": ("6.7", None, None),
    "local-m-dot": ("> 7.0", None, None),
    "local-m-general": ("6.2", 18.6, 34),
    "local-p-dot": ("6.6", 18.0, None),
    "local-p-general": ("5.9", 19.0, 36),
}
COLOURS = {"global": plot.BLUE, "local-m": plot.ORANGE, "local-p": plot.GREEN, "unfed": plot.GREY}
# Smaller differences do not count, whatever the deviation between seeds.
POINTS = 0.5  # BLEU
SHARE = 0.01  # relative difference of perplexities
ERRORS = 1.0  # percentage points of AER
GLOBAL = [name for name in LABELS if name.startswith("global-")]
LOCAL = [name for name in LABELS if name.startswith("local-")]
UNFED = [name for name in LABELS if name.startswith("unfed-")]


def measure_systems(systems: list[TrainedSystem], corpus: Pairs, aligned: AlignedPairs) -> Figures:
    """Measure all seeds of a system."""
    errors, read = zip(*(error_rates(each.run, score_heads(each.run, aligned)) for each in systems), strict=True)
    rates = {"written": SeedStatistics(errors), "read": SeedStatistics(read)}
    return {
        "perplexity": over_seeds(systems, lambda each: perplexity(each.run, corpus)),
        "bleu": over_seeds(systems, lambda each: corpus.bleu(each.run.translate(corpus.sources, beam=1))),
        **rates,
        "aer": min(rates.values(), key=lambda each: each.mean),
        "seconds": over_seeds(systems, lambda each: each.seconds),
    }


def list_figures(figures: Mapping[str, Figures], names: Sequence[str], key: str, style: str = ".1f") -> str:
    """Return one figure of several systems as text."""
    return ", ".join(f"{LABELS[name]} {figures[name][key].as_text(style)}" for name in names)


def best_of(figures: Mapping[str, Figures], names: Sequence[str]) -> str:
    """Return the lowest perplexity and the highest BLEU of several systems as text."""
    sure = min(names, key=lambda name: figures[name]["perplexity"].mean)
    good = max(names, key=lambda name: figures[name]["bleu"].mean)
    perplexity, bleu = list_figures(figures, [sure], "perplexity", ".2f"), list_figures(figures, [good], "bleu")
    return f"perplexity, {perplexity}; BLEU, {bleu}"


def system_table(figures: Mapping[str, Figures]) -> Table:
    """Tabulate the figures of each system."""
    styles = {"perplexity": ".2f", "bleu": ".1f", "written": ".1f", "read": ".1f", "seconds": ".0f"}
    return Table(
        caption="Every system: perplexity, BLEU, and AER of the word a step writes and of the word it reads, %",
        columns=["attention", "perplexity", "BLEU", "AER, written", "AER, read", "seconds of training"],
        rows=[
            [LABELS[name], *(each[key].as_cell(style) for key, style in styles.items())]
            for name, each in figures.items()
        ],
        formats=["", *styles.values()],
    )


def quality_plot(figures: Mapping[str, Figures]) -> Plot:
    """Draw BLEU and AER with a bar per system."""
    figure, axes = plot.panels(2, titles=["BLEU", "AER, %: ● written, ○ read"], height=3.8)
    names = list(figures)[::-1]
    for place, name in enumerate(names):
        colour = COLOURS[next(key for key in COLOURS if name.startswith(key))]
        each = figures[name]
        axes[0].plot(each["bleu"].values, [place] * len(each["bleu"].values), "o", color=colour, markersize=6)
        for key, face in (("written", colour), ("read", "none")):
            values = each[key].values
            axes[1].plot(
                values, [place] * len(values), "o", color=colour, markerfacecolor=face, markersize=6, linestyle="none"
            )
    axes[0].set_yticks(range(len(names)), [LABELS[name] for name in names])
    axes[1].set_yticks(range(len(names)), [""] * len(names))
    return Plot(
        "systems",
        figure,
        "Blue: global; orange: a window that moves on; green: one that is predicted; grey: not fed on. A mark a seed.",
        "Two panels with a row per system: its BLEU, and its alignment error rates by the word written and read.",
    )


def tables(setting: Setting, corpus: Pairs) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system; they differ only in span, score and input feeding."""
    real, quick = setting.corpora is not None, setting.quick
    steps, size = (1000, 512) if real else (300, 96) if quick else (3000, 256)
    longest = 60 if real else 40
    same = {
        "kind": "luong",
        "cell": "lstm",
        "size": size,
        "embedding": size,
        "layers": 1,
        "dropout": 0.2 if real else 0.0,
        "radius": 10 if real else 3 if quick else 5,
        "length": 200 if real else 60,
        "reverse": True,
    }
    training = training_settings(
        steps,
        batch_tokens=16_384 if real else 1024 if quick else 4096,
        rate=5e-3 if quick else 3e-3 if real else 2e-3,
        smoothing=0.0,  # because perplexities are compared
        validate_rows=0,
    )
    data = {**corpus.tables["data"], "longest": longest}
    return {
        name: {**corpus.tables, "data": data, "model": {**same, **each}, "training": dict(training)}
        for name, each in SYSTEMS.items()
    }


def run(setting: Setting) -> Page:
    """Train all systems, measure them, and judge the claims."""
    corpus, aligned = aligned_texts(setting)
    with signed_training(setting, corpus.name) as clock:
        configs = tables(setting, corpus)
        systems = group_by_name(train_all("luong-table", configs, setting))
        figures = {name: measure_systems(each, corpus, aligned) for name, each in systems.items()}
        device = next(iter(systems.values()))[0].run.device
        cost = measure_cost(device, quick=setting.quick)
        signature = clock.signature()
    first = next(iter(configs.values()))
    steps, model = first["training"]["steps"], first["model"]
    return Page(
        name="luong-table",
        title="Global and local attention, with every score",
        claim="Dot is the best score of global attention and general of local attention; local attention whose window "
        "is predicted is best of all; feeding the attentional state on helps; and windows align words better.",
        source="Luong, Pham and Manning 2015, tables 1, 4 and 6, sections 3 and 5 (arXiv:1508.04025)",
        measured=[
            f"{corpus.name}: {len(corpus.sources):,} test sentences, translated greedily, and {len(aligned.sources):,} "
            f"pairs with gold links. {len(figures)} systems of one LSTM layer, {model['size']} wide, the source read "
            f"backwards, windows of ±{model['radius']} pieces; {steps:,} updates of "
            f"{first['training']['batch_tokens']:,} tokens each, the same rates.",
            "Perplexity is that of a piece of a word. AER is of the links of the largest weights, the translation "
            "given: of the word that a step writes, and of the word that it reads, as the paper reads dot and general "
            "(a footnote of section 5.3); systems are judged by the lower of the two. A difference counts from "
            f"{POINTS} BLEU, {100 * SHARE:g} % of a perplexity and {ERRORS:g} point of AER on, and beyond the "
            "deviations of the seeds where there are several.",
        ],
        tables=[
            system_table(figures),
            Table(
                caption="The paper's figures, English to German, WMT 2014",
                columns=["attention", "perplexity", "BLEU", "AER, %"],
                rows=[[LABELS[name], *each] for name, each in PAPER.items()],
                formats=["", "", ".1f", "d"],
                note="BLEU before unknown words are replaced. Perplexity of concat: a footnote of section 5.3. AER: "
                "table 6, where the Berkeley aligner has 32. Input feeding (table 1): global (location) without it 7.3 "
                "and 16.8.",
            ),
            cost_table(cost),
        ],
        plots=[quality_plot(figures), cost_plot(cost)],
        verdicts=[*verdicts(figures), *cost_verdicts(cost)],
        caveats=caveats(corpus, setting),
        signature=signature,
    )


def caveats(corpus: Pairs, setting: Setting) -> list[str]:
    """List the differences from the paper."""
    words = sum(len(text.split()) for text in corpus.sources) / max(1, len(corpus.sources))
    jobs = setting.jobs
    remarks = [
        "The paper has four layers of 1,000, and twelve passes over 4.5 million pairs with SGD; here it is one layer, "
        "fewer and shorter sentences, and a short training with Adam.",
        f"The test's sentences have {words:.0f} words on average, hardly more than a window holds: what windows are "
        "worth on long ones, but for their cost, is not asked here.",
        "Words are cut into pieces, so that there are no unknown ones to be replaced: figures stand beside the paper's "
        "before replacement, and windows count pieces.",
        "The time of training is that of this implementation: with windows and concat every step is a call of its own"
        + (f"; {jobs} systems at a time shared the machine, with each other and with other work." if jobs > 1 else "."),
    ]
    if len(setting.seeds) == 1:
        remarks.append("One seed: what another would change is not known.")
    if setting.corpora is not None:
        return [*remarks, f"German to English, the paper's other direction; sentences of up to {ALIGNED_WORDS} words."]
    return [*remarks, "The phrasebook's sentences are made by a grammar: short, regular, and easy to align."]


def higher(figures: Mapping[str, Figures], one: str, other: str) -> bool:
    """Return whether one system has a higher BLEU than the other, beyond chance."""
    return is_lower(figures[other]["bleu"], figures[one]["bleu"], POINTS)


def likelier(figures: Mapping[str, Figures], one: str, other: str) -> bool:
    """Return whether one system has a lower perplexity than the other, beyond chance."""
    worse = figures[other]["perplexity"]
    return is_lower(figures[one]["perplexity"], worse, SHARE * worse.mean)


def verdicts(figures: Mapping[str, Figures]) -> list[Verdict]:
    """Judge the paper's claims."""
    fed = [name for name in figures if name not in UNFED]
    others = [name for name in fed if name != "local-p-general"]
    windows = ["local-m-general", "local-p-general"]
    return [
        Verdict(
            "of the global scores dot is the best",
            all(higher(figures, "global-dot", name) for name in GLOBAL if name != "global-dot"),
            f"BLEU: {list_figures(figures, GLOBAL, 'bleu')}; perplexity: "
            f"{list_figures(figures, GLOBAL, 'perplexity', '.2f')}",
        ),
        Verdict(
            "in a window general is better than dot",
            all(
                higher(figures, f"{span}-general", f"{span}-dot")
                and likelier(figures, f"{span}-general", f"{span}-dot")
                for span in ("local-m", "local-p")
            ),
            f"BLEU: {list_figures(figures, LOCAL, 'bleu')}; perplexity: "
            f"{list_figures(figures, LOCAL, 'perplexity', '.2f')}",
        ),
        Verdict(
            "a predicted window with general is the best of all, by perplexity and BLEU",
            all(
                likelier(figures, "local-p-general", name) and higher(figures, "local-p-general", name)
                for name in others
            ),
            f"perplexity {figures['local-p-general']['perplexity'].as_text('.2f')}, BLEU "
            f"{figures['local-p-general']['bleu'].as_text()}; best of the others: {best_of(figures, others)}",
        ),
        Verdict(
            "the best predicted window beats the best global attention",
            higher(figures, "local-p-general", max(GLOBAL, key=lambda name: figures[name]["bleu"].mean)),
            f"BLEU: {list_figures(figures, [*GLOBAL, 'local-p-general'], 'bleu')}",
        ),
        Verdict(
            "location compares worst of the global scores, and aligns worst",
            all(
                likelier(figures, name, "global-location")
                and is_lower(figures[name]["aer"], figures["global-location"]["aer"], ERRORS)
                for name in ("global-dot", "global-general")
            ),
            f"perplexity: {list_figures(figures, GLOBAL, 'perplexity', '.2f')}; AER: "
            f"{list_figures(figures, GLOBAL, 'aer')}",
        ),
        Verdict(
            "concat is no better than dot and general",
            not any(higher(figures, "global-concat", name) for name in ("global-dot", "global-general")),
            f"BLEU: {list_figures(figures, ['global-concat', 'global-dot', 'global-general'], 'bleu')}; the paper's "
            "perplexities: concat 6.7, dot and general 6.1",
        ),
        Verdict(
            "input feeding helps, whatever the attention",
            all(
                higher(figures, name.removeprefix("unfed-"), name)
                and likelier(figures, name.removeprefix("unfed-"), name)
                for name in UNFED
            ),
            "; ".join(
                f"{LABELS[name.removeprefix('unfed-')]}: perplexity {figures[name]['perplexity'].as_text('.2f')} → "
                f"{figures[name.removeprefix('unfed-')]['perplexity'].as_text('.2f')}, BLEU "
                f"{figures[name]['bleu'].as_text()} → "
                f"{figures[name.removeprefix('unfed-')]['bleu'].as_text()}"
                for name in UNFED
            ),
        ),
        Verdict(
            "windows align better than global attention by location",
            all(is_lower(figures[name]["aer"], figures["global-location"]["aer"], ERRORS) for name in windows),
            f"AER: {list_figures(figures, ['global-location', *windows], 'aer')}; in the paper 39, 34 and 36",
        ),
        Verdict(
            "windows align better than global attention with the same score",
            all(is_lower(figures[name]["aer"], figures["global-general"]["aer"], ERRORS) for name in windows),
            f"AER: {list_figures(figures, ['global-general', *windows], 'aer')}",
        ),
    ]


# ---- the cost of a window: b sentences · n queries and annotations · d width

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
RADIUS = 10
COUNTED = 64  # width for counting operations, which are all proportional to it
SPANS = {span: COLOURS[span] for span in ("global", "local-m", "local-p")}


@dataclass(frozen=True)
class Cost:
    """The cost by span: multiply-adds per query and seconds per call, with a value per length."""

    lengths: Sequence[int]
    width: int
    rows: int
    device: str
    operations: Mapping[str, Sequence[float]]
    seconds: Mapping[str, Sequence[float]]


def layer(span: str, width: int) -> Attention:
    """Build Luong's attention with the general score."""
    spans: dict[str, Span | None] = {"global": None, "local-m": Monotonic(RADIUS), "local-p": None}
    return Attention(
        General(width, width), span=Predictive(width, RADIUS) if span == "local-p" else spans[span]
    ).requires_grad_(False)


def operations(span: str, length: int, width: int = COUNTED) -> float:
    """Count the multiply-adds of a query's matrix products without the keys' projection, on a CPU, which counts all."""
    attention = layer(span, width)
    keys = attention.prepare(torch.randn(1, length, width))
    query = torch.randn(1, length, width)
    with use_backend("dense" if span == "global" else "window"), FlopCounterMode(display=False) as counter:
        attention(query, keys)
    return float(counter.get_total_flops()) / 2 / length


def measure_cost(device: torch.device, *, quick: bool) -> Cost:
    """Count operations, and time calls on a device with the backends that Regard chooses there."""
    lengths = LENGTHS[:5] if quick else LENGTHS
    width, rows, rounds = (64, 1, 20) if quick else (512, 8, 10) if device.type == "cuda" else (256, 1, 5)
    counted = {span: [operations(span, length) for length in lengths] for span in SPANS}
    seconds: dict[str, list[float]] = {span: [] for span in SPANS}
    with torch.no_grad():
        for length in lengths:
            states = torch.randn(rows, length, width, device=device)
            for span, times in seconds.items():
                times.append(time_attention(layer(span, width).to(device), states, rounds))
    return Cost(lengths, width, rows, device.type, counted, seconds)


def time_attention(attention: Attention, states: Tensor, rounds: int) -> float:
    """Return the shortest time of several calls, in seconds, to exclude the effect of other work on the machine."""
    keys, best = attention.prepare(states), float("inf")
    for _ in range(rounds + 2):
        synchronise(states.device)
        began = time.perf_counter()
        attention(states, keys)
        synchronise(states.device)
        best = min(best, time.perf_counter() - began)
    return best


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def cost_verdicts(cost: Cost) -> list[Verdict]:
    """Judge whether a window's cost depends on the source's length."""
    first, last = cost.lengths[0], cost.lengths[-1]
    counts, times = cost.operations, cost.seconds
    grown = {span: each[-1] / each[0] for span, each in counts.items()}
    saved = {span: times["global"][-1] / each[-1] for span, each in times.items() if span != "global"}
    return [
        Verdict(
            "a query's operations do not grow with the source in a window, and grow with it without one",
            all(grown[span] < 1.5 for span in grown if span != "global") and grown["global"] > last / first / 2,
            f"from {first} to {last:,} annotations: "
            + ", ".join(f"{span} × {show(value, '.2f' if value < 10 else '.0f')}" for span, value in grown.items()),
        ),
        Verdict(
            "of a long source a window is the faster one",
            all(value > 1 for value in saved.values()),
            f"{last:,} annotations: {', '.join(f'{span} {value:.1f} × as fast' for span, value in saved.items())}",
        ),
    ]


def cost_table(cost: Cost) -> Table:
    """Tabulate milliseconds and operations, with a row per span."""
    return Table(
        caption=f"Milliseconds of a call by annotations n, with n queries ({cost.rows} × n × {cost.width}, "
        f"{'GPU' if cost.device == 'cuda' else 'CPU'}); thousand multiply-adds per query",
        columns=[
            "span",
            *(f"n = {n:,}" for n in cost.lengths),
            *(f"per query, n = {cost.lengths[place]:,}" for place in (0, -1)),
        ],
        rows=[
            [
                span,
                *(1e3 * each for each in cost.seconds[span]),
                *(cost.operations[span][place] / 1e3 for place in (0, -1)),
            ]
            for span in cost.seconds
        ],
        formats=["", *[".3f"] * len(cost.lengths), ".1f", ".1f"],
        note=f"Score general, windows of ±{RADIUS}. Multiply-adds are counted at a width of {COUNTED}; slices of keys "
        "that neighbouring queries share are counted whole.",
    )


def cost_plot(cost: Cost) -> Plot:
    """Draw time and operations against length."""
    figure, axes = plot.panels(2, titles=["Milliseconds of a call", "Multiply-adds a query"], height=3.2)
    for span, colour in SPANS.items():
        axes[0].plot(cost.lengths, [1e3 * each for each in cost.seconds[span]], "o-", color=colour, markersize=3)
        axes[1].plot(cost.lengths, cost.operations[span], "o-", color=colour, markersize=3, label=span)
    for panel in axes:
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(list(cost.lengths), [str(n) for n in cost.lengths])
        low, high = panel.get_ylim()
        marks = [digit * 10.0**power for power in range(-3, 8) for digit in (1, 2, 5)]
        visible = [mark for mark in marks if low <= mark <= high]
        panel.set_yticks(visible, [f"{mark:,g}" if mark < 1 else f"{mark:,.0f}" for mark in visible])
        panel.set_yticks([], minor=True)
        panel.set_xlabel("annotations, and as many queries")
    plot.legend(axes[1])
    return Plot(
        "windows",
        figure,
        f"One call with as many queries as annotations, windows of ±{RADIUS}, on two logarithmic axes.",
        "Two panels of three lines against the length of the source: the global ones rise fastest.",
    )
