"""Self-attention inside a ConvNet, on questions that need two distant places of a picture.

Zhang et al. 2018 (arXiv:1805.08318), section 3: a convolution sees its neighbourhood, and what is far apart meets only
after many of them; a layer of self-attention, whose share γ grows from 0, relates any two places at once. Wang et al.
2018 (arXiv:1711.07971), table 2: a non-local layer helps more than as much of other layers. The question (built-in
scenes): one shape wears a ring; how large is the other one of its colour, at least half of the picture away? A third
shape, of another colour, is as far. Without relating the two one can count sizes, which is right three times of four.
"""

from collections.abc import Mapping
from typing import Any, cast

from regard.data import generate
from regard_corpora import Pictured
from regard_studies.convnet.draw import SYSTEMS, accuracy_plot, accuracy_table, distance_table, looks_table
from regard_studies.convnet.measure import BINS, Figures, ShapeAttention, measure_attention, measure_system
from regard_studies.page import Page, Verdict, show, signed
from regard_studies.seed_statistics import SeedStatistics
from regard_studies.setting import Setting
from regard_studies.systems import group_by_name, train_all

__all__ = ["run", "tables", "verdicts"]

COUNTED = 75.0  # per cent that are right by counting sizes
POINTS = 10.0  # what the layer is to be worth, in points of accuracy
CONTROLS = {
    "none": "the same network without the layer does not",
    "wider": "as many parameters spent on width do not take its place",
    "deeper": "as many parameters spent on depth do not take its place",
}
QUESTION = {"question": "which-size", "shapes": 1}


def tables(quick: bool) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system; two controls have as many parameters as the one with the layer, spent on
    width or on depth.
    """
    steps = 3500 if quick else 2000  # of half as many pictures
    nets = {"attention": (16, 1), "none": (16, 1), "wider": (18, 1), "deeper": (12, 2)}
    return {
        name: {
            "task": "classify",
            "data": {
                "builtin": "scenes",
                "builtin_options": [f"{key}={value}" for key, value in QUESTION.items()],
                "count": 12_000 if quick else 20_000,
                "held_out_most": 100,
                "image_size": picture_side(quick),
            },
            "model": {
                "kind": "convnet",
                "channels": channels,
                "stages": 2,
                "blocks": blocks,
                "attention": name == "attention",
                "after": 2,
                "reduction": 1,
                "dropout": 0.0,
            },
            "training": {
                "steps": steps,
                "batch_rows": 32 if quick else 64,
                "rate": 2e-3,
                "schedule": "cosine",
                "warmup": 100,
                "smoothing": 0.0,
                "validate_every": steps,
                "metric": "accuracy",
                "precision": "fp32",  # networks so small gain nothing by less
            },
        }
        for name, (channels, blocks) in nets.items()
        if not quick or name in ("attention", "wider")  # for a first look
    }


def picture_side(quick: bool) -> int:
    """Return the height and width of a picture in pixels."""
    return 32 if quick else 48


def make_tests(count: int, side: int) -> list[Pictured]:
    """Generate unseen scenes and their questions."""
    stream = generate("scenes", count, split="test", seed=0, size=side, **cast(Any, QUESTION))
    return [cast(Pictured, each) for each in stream]


def run(setting: Setting) -> Page:
    """Train the systems, ask them the questions, and judge the claims."""
    tests = make_tests(400 if setting.quick else 1000, picture_side(setting.quick))
    with signed(seed=setting.seeds[0], quick=setting.quick, dtype="float32", setting=setting) as clock:
        systems = group_by_name(train_all("convnet", tables(setting.quick), setting))
        each = {name: [measure_system(system, tests) for system in several] for name, several in systems.items()}
        results = {
            name: {key: SeedStatistics(tuple(one[key] for one in figures)) for key in figures[0]}
            for name, figures in each.items()
        }
        looks = ShapeAttention.mean([measure_attention(system.run.model, tests) for system in systems["attention"]])
        signature = clock.signature()
    updates = systems["attention"][0].step
    return Page(
        name="convnet",
        title="Places that are far apart, related in one layer",
        claim="Convolutions see their neighbourhood; self-attention over the grid relates places that are far apart.",
        source="Zhang et al. 2018, section 3 (arXiv:1805.08318); Wang et al. 2018, table 2 (arXiv:1711.07971)",
        measured=[
            f"{len(tests):,} unseen drawn scenes of {picture_side(setting.quick)} pixels, in each a ringed shape, "
            "one of "
            "its colour at least half of the picture away, and a third of another colour as far: how large is the "
            f"second? Every system had the same {updates:,} updates of as many pictures.",
            "Who counts how many shapes are large is right in 75 % (all where the second and the third are of one "
            "size, half where they are not), and never more without telling the second from the third.",
        ],
        tables=[accuracy_table(results), distance_table(results, tests), looks_table(looks)],
        plots=[accuracy_plot(results, looks)],
        verdicts=verdicts(results, looks),
        caveats=[
            "Norms are those of single places, and the places are added up at the end: nothing else than the layer "
            "carries word across the picture, beyond the reach of the convolutions.",
            "The deeper control sees further than the wider one: its reach is told in the table, and where two shapes "
            "are within it of a place between them, it can relate them."
            if not setting.quick
            else "The full form has two more networks without the layer: the very same, and a deeper one.",
            "Distance is not all that differs: small shapes find room further apart, so that of the furthest three in "
            "four are small, and a network that tells nothing apart, too, is right less often there.",
            "How soon a network comes to use the layer is luck: of some seeds it takes more updates than there were.",
            "The seconds may be those of trainings side by side with others on the machine, and compare little.",
            "Drawn scenes are not the paper's photographs, and a classifier is not its GAN.",
        ],
        signature=signature,
    )


def describe_gain(figures: Mapping[str, Figures]) -> str:
    """Describe the layer's gain at either distance; that far shapes are mostly small does not affect it."""
    if "none" not in figures:
        return ""
    near, far = (
        figures["attention"][f"distance-{i}"].mean - figures["none"][f"distance-{i}"].mean for i in (0, len(BINS) - 1)
    )
    return f"; that is {show(near, '.1f')} and {show(far, '.1f')} points more than without it"


def verdicts(results: Mapping[str, Figures], looks: ShapeAttention) -> list[Verdict]:
    """Judge by accuracy, in points; the layer should gain ten."""
    right = {name: figures["accuracy"] for name, figures in results.items()}

    def evidence(*names: str) -> str:
        return ", ".join(f"{SYSTEMS[name]} {right[name].as_text()} %" for name in names)

    def worth(other: str) -> bool:
        more = right["attention"].mean - right[other].mean
        return more > max(POINTS, right["attention"].deviation, right[other].deviation)

    near, far = (results["attention"][f"distance-{i}"] for i in (0, len(BINS) - 1))
    gamma = results["attention"]["gamma"]
    return [
        Verdict(
            "self-attention answers what needs two distant places",
            right["attention"].mean - COUNTED > max(POINTS, right["attention"].deviation),
            f"{evidence('attention')}; counting sizes gives {COUNTED:.0f} %",
        ),
        *(
            Verdict(claim, worth(name), evidence("attention", name))
            for name, claim in CONTROLS.items()
            if name in results
        ),
        Verdict(
            "with the layer it makes no difference how far apart the two are",
            right["attention"].mean - COUNTED > POINTS and near.mean - far.mean < 5,
            f"nearest {near.as_text()} %, furthest {far.as_text()} %{describe_gain(results)}",
        ),
        Verdict(
            "the network learns to use the layer: γ grows from 0",
            all(abs(each) > 0.1 for each in gamma.values),
            f"γ after training: {', '.join(show(each, '.2f') for each in gamma.values)}",
        ),
        Verdict(
            "places look at others like them rather than at what is near",
            looks.share[0][1] > max(2 * looks.chance[1], looks.share[0][2]),
            f"the ringed shape's places give {looks.share[0][1]:.0f} % of their attention to the far shape of their "
            f"colour ({looks.chance[1]:.0f} % of all places are its), {looks.share[0][2]:.0f} % to the one of another",
        ),
    ]
