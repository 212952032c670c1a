r"""The gain of dividing dot products by $\sqrt{d_k}$ in a model that is trained.

Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1: for small $d_k$ additive attention and dot products do alike; for
larger ones additive attention does better than dot products that are not scaled, which they suspect to push the softmax
to where its gradients are extremely small. One head of growing width $d_k$, scaled or not, and additive at both ends.
"""

from collections.abc import Mapping
from typing import Any

from regard_studies.corpora.pairs import Pairs, english_german
from regard_studies.page import Part, Verdict, show, signed_training
from regard_studies.scaling.draw import figures_table, start_table, trained_plot
from regard_studies.scaling.measure import ScalingFigures, before_and_after
from regard_studies.seed_statistics import SeedStatistics, are_alike, margin
from regard_studies.setting import Setting
from regard_studies.systems import group_by_name, train_all
from regard_studies.translation import measure_translations

__all__ = ["run", "tables", "verdicts"]

SCORES: dict[str, dict[str, Any]] = {"scaled": {}, "dot": {"scaled": False}, "additive": {"score": "additive"}}
FRACTION = 0.1  # of the Jacobian's norm with scaling: what is less is called extremely small


def tables(setting: Setting, corpus: Pairs) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system, which differ in the score and its width alone."""
    real, quick = setting.corpora is not None, setting.quick
    steps = 800 if real else 300 if quick else 2000
    widths = (8, 128) if quick else (8, 64, 512)
    size = 64 if quick else 256
    model: dict[str, Any] = {"kind": "transformer", "size": size, "heads": 1, "layers": 2, "hidden": 4 * size}
    model |= {"dropout": 0.1 if real else 0.0, "tied": "all"}
    training = {
        "steps": steps,
        "batch_tokens": 8192 if real else 1024 if quick else 4096,
        "rate": 3e-3 if quick else 1.5e-3,
        "schedule": "cosine",
        "warmup": steps // 5 if real else steps // 10,
        "smoothing": 0.1 if real else 0.05,
        "validate_every": steps,
        "validate_rows": 50,
        "metric": "bleu" if real else "exact",
        "keep": 1,
    }
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
        tables=[figures_table(figures), start_table(figures)],
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
    """Judge by BLEU; a difference counts where it is beyond chance."""
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

    def share(when: str, figure: str) -> SeedStatistics:  # of what it is with scaling
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
