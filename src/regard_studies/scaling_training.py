r"""The gain of dividing dot products by $\sqrt{d_k}$ in trained models.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1: for small $d_k$ additive attention and dot products perform
similarly; for larger $d_k$ additive attention beats unscaled dot products, which, they suspect, push the softmax into
regions with extremely small gradients. The study trains one head of growing width $d_k$, scaled and unscaled, and
additive attention at the smallest and largest widths.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import Block, watch
from regard.data import collate
from regard.inspection import Cell, plot
from regard.models import Model, Tokens, build
from regard_studies import Setting
from regard_studies.corpora import Pairs, english_german
from regard_studies.page import Part, Plot, Table, Verdict, show, signed_training
from regard_studies.scaling import jacobian_norm
from regard_studies.seed_statistics import SeedStatistics, are_alike, margin, over_seeds
from regard_studies.systems import (
    COLUMNS,
    FORMATS,
    TrainedSystem,
    TranslationFigures,
    group_by_name,
    measure_translations,
    train_all,
    translator_training,
)

LOOKED = 32  # sentences whose weights are measured
NAMES = {"scaled": "q·k/√d", "dot": "q·k", "additive": "additive"}
STYLES = {"scaled": (plot.BLUE, "s"), "dot": (plot.RED, "o"), "additive": (plot.GREEN, "^")}
SCORES: dict[str, dict[str, Any]] = {"scaled": {}, "dot": {"scaled": False}, "additive": {"score": "additive"}}
FRACTION = 0.1  # a smaller share of the Jacobian's norm with scaling is called extremely small


@dataclass(frozen=True)
class SoftmaxSharpness:
    """The sharpness of a model's attention: mean entropy and median norm of the Jacobian over queries."""

    entropy: float  # as a share of the logarithm of the number of keys
    jacobian: float
    gradient: float  # norm of the gradient of the query projections


@dataclass(frozen=True)
class ScalingFigures:
    """The figures of a system: its translations, and its softmax before and after training, with a value per seed."""

    translation: TranslationFigures
    before: Sequence[SoftmaxSharpness]
    after: Sequence[SoftmaxSharpness]

    def spread(self, when: str, name: str) -> SeedStatistics:
        """Collect a figure of `before` or `after` over the seeds."""
        return over_seeds(getattr(self, when), lambda each: getattr(each, name))


def before_and_after(system: TrainedSystem, corpus: Pairs) -> tuple[SoftmaxSharpness, SoftmaxSharpness]:
    """Measure the softmax of a model after initialisation and after training, on the same sentences."""
    run = system.run
    tokenizers, settings = run.tokenizers, run.settings
    torch.manual_seed(system.seed)
    fresh = build(settings.kind, settings.model, len(tokenizers.source), len(tokenizers.target)).to(run.device).eval()
    pairs = list(
        zip(
            tokenizers.source.encode_batch(corpus.sources[:LOOKED]),
            tokenizers.target.encode_batch(corpus.references[:LOOKED]),
            strict=True,
        )
    )
    return observe_softmax(fresh, pairs, run.device), observe_softmax(run.model, pairs, run.device)


def observe_softmax(
    model: Model, pairs: Sequence[tuple[list[int], list[int]]], device: torch.device | str = "cpu"
) -> SoftmaxSharpness:
    """Measure every attention of a model on some pairs of sentences, one at a time to avoid padding."""
    shares, norms = [], []
    for pair in pairs:
        with torch.no_grad(), watch(model) as looks:
            source, target = tokens_of([pair], device)
            model.decode(model.encode(source), target)
            for name, look in looks.items():
                causal = name.startswith("decoder") and not name.endswith("cross")
                for share, norm in sharpness(look.weights.cpu().double(), causal):
                    shares.append(share)
                    norms.append(norm)
    entropy, jacobian = torch.cat(shares), torch.cat(norms)
    return SoftmaxSharpness(float(entropy.mean()), float(jacobian.median()), gradient_norm(model, pairs, device))


def sharpness(weights: Tensor, causal: bool) -> list[tuple[Tensor, Tensor]]:
    """Compute the entropy and the Jacobian's norm of each query's weights, for queries with more than one key."""
    weights = weights.flatten(0, -3)  # rows and heads
    n, m = weights.shape[-2:]
    counts = [min(i + 1, m) for i in range(n)] if causal else [m] * n
    return [
        (
            torch.special.entr(weights[:, i, :count]).sum(-1) / math.log(count),
            jacobian_norm(weights[:, i, :count]),
        )
        for i, count in enumerate(counts)
        if count > 1
    ]


def gradient_norm(model: Model, pairs: Sequence[tuple[list[int], list[int]]], device: torch.device | str) -> float:
    """Compute the norm of the loss's gradient with respect to all query projections."""
    source, target = tokens_of(pairs, device)
    ids = collate(pairs).to(device).target[:, 1:]
    logits = model.output(model.decode(model.encode(source), target)[0])
    real = torch.arange(ids.shape[1], device=ids.device) < target.lengths[:, None]
    loss = F.cross_entropy(logits[real].float(), ids[real])
    blocks = [block for block in model.modules() if isinstance(block, Block)]
    projections: list[Any] = [
        heads for block in blocks for heads in (block.attention, block.cross) if heads is not None
    ]
    gradients = torch.autograd.grad(loss, [heads.projection.weight for heads in projections])
    rows = [each[: heads.query_size] for each, heads in zip(gradients, projections, strict=True)]
    return math.sqrt(sum(float(each.double().square().sum()) for each in rows))


def tokens_of(pairs: Sequence[tuple[list[int], list[int]]], device: torch.device | str) -> tuple[Tokens, Tokens]:
    """Return sources, and targets as the decoder reads them: with START and without END."""
    batch = collate(pairs).to(device)
    return Tokens.of(batch.source, batch.source_lengths), Tokens.of(batch.target[:, :-1], batch.target_lengths)


def split_name(name: str) -> tuple[str, int]:
    """Split a system's name into its score and its width."""
    score, width = name.split("-")
    return score, int(width)


def sort_systems(figures: Mapping[str, ScalingFigures]) -> list[str]:
    """Sort systems by width, then by score."""
    return sorted(figures, key=lambda name: (split_name(name)[1], list(NAMES).index(split_name(name)[0])))


def figures_tables(figures: Mapping[str, ScalingFigures]) -> list[Table]:
    """Tabulate the figures of the trained systems, and the softmax before and after training."""
    trained: list[list[Cell]] = []
    softmax: list[list[Cell]] = []
    for name in sort_systems(figures):
        score, width = split_name(name)
        trained.append([width, NAMES[score], *figures[name].translation.cells])
        parts = [(when, part) for when in ("before", "after") for part in ("entropy", "jacobian", "gradient")]
        softmax.append([width, NAMES[score], *(figures[name].spread(*part).mean for part in parts)])
    start = Table(
        caption="Its softmax before training, and after it",
        columns=["d_k", "score", "entropy", "‖J‖", "‖∂W_Q‖", "entropy after", "‖J‖ after", "‖∂W_Q‖ after"],
        rows=softmax,
        formats=["d", "", ".0%", ".2g", ".2g", ".0%", ".2g", ".2g"],
        note="Means over seeds and over all attentions. ‖J‖ is the median norm of the softmax's Jacobian, ‖∂W_Q‖ the "
        "norm of the gradient of all query projections.",
    )
    return [Table("Trained: one head of width d_k", ["d_k", "score", *COLUMNS], trained, ["d", "", *FORMATS]), start]


def trained_plot(figures: Mapping[str, ScalingFigures]) -> Plot:
    """Draw BLEU and entropy against the width."""
    titles = ["BLEU after training", "Entropy of the weights"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.1)
    for score, (colour, mark) in STYLES.items():
        names = [name for name in sort_systems(figures) if split_name(name)[0] == score]
        widths = [split_name(name)[1] for name in names]
        for name in names:
            values = figures[name].translation.bleu.values
            left.plot([split_name(name)[1]] * len(values), values, mark, color=colour, ms=4, alpha=0.5)
        left.plot(
            widths, [figures[name].translation.bleu.mean for name in names], color=colour, lw=1.6, label=NAMES[score]
        )
        for when, style in (("before", (0, (2, 2))), ("after", "-")):
            means = [100 * figures[name].spread(when, "entropy").mean for name in names]
            right.plot(widths, means, mark, color=colour, ms=4, lw=1.4, linestyle=style)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({split_name(name)[1] for name in figures}))
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set_xlabel("d_k")
    right.set_ylim(0, 103)
    right.set_ylabel("% of log m")
    plot.legend(left, loc="best")
    return Plot(
        "trained",
        figure,
        "Left: BLEU by the width of the one head, a point a seed. Right: the entropy of its weights before training "
        "(dashed) and after it.",
        "Two line plots against the width of a head: BLEU, and the entropy of the weights before and after training, "
        "with and without scaling.",
    )


def tables(setting: Setting, corpus: Pairs) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system; they differ only in the score and its width."""
    real, quick = setting.corpora is not None, setting.quick
    steps = 800 if real else 300 if quick else 2000
    widths = (8, 128) if quick else (8, 64, 512)
    size = 64 if quick else 256
    model: dict[str, Any] = {"kind": "transformer", "size": size, "heads": 1, "layers": 2, "hidden": 4 * size}
    model |= {"dropout": 0.1 if real else 0.0, "tied": "all"}
    training = translator_training(setting, steps)
    return {
        f"{score}-{width}": {**corpus.tables, "model": model | options | {"depth": width}, "training": training}
        for score, options in SCORES.items()
        for width in (widths if score != "additive" else (widths[0], widths[-1]))
    }


def run(setting: Setting) -> Part:
    """Train the systems, translate, measure the softmax, and judge the claims."""
    corpus = english_german(setting, 200)
    with signed_training(setting, corpus.name) as clock:
        systems = group_by_name(train_all("scaling", tables(setting, corpus), setting))
        figures = {}
        for name, each in systems.items():
            before, after = zip(*(before_and_after(one, corpus) for one in each), strict=True)
            figures[name] = ScalingFigures(measure_translations(each, corpus, beam=1), before, after)
            setting.say(f"{name}: BLEU {figures[name].translation.bleu.as_text()}")
        signature = clock.signature()
    step = next(iter(systems.values()))[0].step
    return Part(
        measured=[
            f"{corpus.name}: Transformers of two layers with one head, whose queries and keys are d_k wide, trained "
            f"with dot products, scaled or not ({step:,} updates each, the same data and rates), and with additive "
            "scores at the smallest and the largest d_k. BLEU of greedy translations, perplexity per token, and before "
            "and after training: the entropy of the weights (as a share of the logarithm of the number of keys), the "
            "median norm of the softmax's Jacobian, and the norm of the gradient of the query projections.",
        ],
        tables=figures_tables(figures),
        plots=[trained_plot(figures)],
        verdicts=verdicts(figures),
        caveats=[
            "Queries and keys start from Glorot and Bengio's matrices on normed inputs, with less than unit variance: "
            "an unscaled product of width d_k has a deviation below √d_k, and a model can learn to make it smaller.",
            "The gradient of an unscaled score reaches queries and keys √d_k times as large as that of a scaled one; "
            "where the softmax is saturated the two effects work against each other.",
            "Adam divides a gradient by its own size, and large ones are clipped before, so that the size of a "
            "gradient says little about that of a step.",
            "A wider d_k has more parameters; scaled and unscaled products have the same, additive scores some more.",
        ],
        signature=signature,
    )


def verdicts(figures: Mapping[str, ScalingFigures]) -> list[Verdict]:
    """Judge by BLEU; only differences beyond chance count."""
    widths = sorted(int(name.split("-")[1]) for name in figures if name.startswith("scaled-"))
    few, many = widths[0], widths[-1]
    least = margin([each.translation.bleu for each in figures.values()])
    bleu = {name: each.translation.bleu for name, each in figures.items()}

    def evidence(width: int, *names: str, same: bool = False) -> str:
        parts = ", ".join(f"{name} {bleu[f'{name}-{width}'].as_text()}" for name in names)
        rule = "alike if no further apart than their deviations together"
        return f"BLEU at d_k = {width}: {parts}; {rule if same else 'beyond chance from ' + show(least, '.2f')}"

    def ahead(width: int, name: str) -> float:
        return bleu[f"{name}-{width}"].mean - bleu[f"dot-{width}"].mean

    entropy = {name: figures[f"{name}-{many}"].spread("before", "entropy") for name in ("scaled", "dot")}

    def share(when: str, figure: str) -> SeedStatistics:  # unscaled, as a share of scaled
        both = zip(*(figures[f"{name}-{many}"].spread(when, figure).values for name in ("dot", "scaled")), strict=True)
        return SeedStatistics(tuple(dot / max(scaled, 1e-30) for dot, scaled in both))

    jacobian, gradient, last = share("before", "jacobian"), share("before", "gradient"), share("after", "jacobian")
    after = {name: figures[f"{name}-{many}"].spread("after", "entropy") for name in ("scaled", "dot")}
    differences = [abs(each["scaled"].mean - each["dot"].mean) for each in (entropy, after)]
    return [
        Verdict(
            "for small d_k, additive scores and unscaled dot products do alike",
            are_alike(bleu[f"additive-{few}"], bleu[f"dot-{few}"]),
            evidence(few, "additive", "dot", same=True),
        ),
        Verdict(
            "for large d_k, additive scores do better than unscaled dot products",
            ahead(many, "additive") > least,
            evidence(many, "additive", "dot"),
        ),
        Verdict(
            "for large d_k, scaled dot products do better than unscaled ones",
            ahead(many, "scaled") > least,
            evidence(many, "scaled", "dot"),
        ),
        Verdict(
            "for small d_k, scaling makes no difference",
            are_alike(bleu[f"scaled-{few}"], bleu[f"dot-{few}"]),
            evidence(few, "scaled", "dot", same=True),
        ),
        Verdict(
            "a model with wide unscaled products starts with a saturated softmax",
            entropy["dot"].mean < entropy["scaled"].mean / 2,
            f"entropy at d_k = {many} before training, as a share: {entropy['dot'].as_text('.0%')} without scaling, "
            f"{entropy['scaled'].as_text('.0%')} with it",
        ),
        Verdict(
            "its softmax passes on extremely small gradients from the start",
            jacobian.mean < FRACTION,
            f"the median norm of its Jacobian at d_k = {many} is {jacobian.as_text('.2f')} of that with scaling before "
            f"training, and the gradient that query projections get is {gradient.as_text('.1f')} times as large",
        ),
        Verdict(
            "its softmax passes on extremely small gradients in the end",
            last.mean < FRACTION,
            f"the median norm of its Jacobian at d_k = {many} is {last.as_text('.3f')} of that with scaling after "
            "training",
        ),
        Verdict(
            "training brings the entropies with and without scaling together",
            differences[1] < differences[0] / 2,
            f"the entropies at d_k = {many} are {show(differences[0], '.0%')} apart before training, "
            f"{show(differences[1], '.0%')} after it",
        ),
    ]
