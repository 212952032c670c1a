"""Self-attention inside a ConvNet, on questions that need two distant places of a picture.

Zhang et al. 2018 (arXiv:1805.08318), section 3: a convolution sees only its neighbourhood, so that distant places
interact only after many layers; a layer of self-attention, whose weight γ grows from 0, relates any two places at once.
Wang et al. 2018 (arXiv:1711.07971), table 2: a non-local layer helps more than an equal amount of other layers. The
question (built-in scenes): one shape has a ring; how large is the other shape of its colour, at least half of the
picture away? A third shape, of another colour, is as far away. Counting sizes without relating the two shapes gives the
right answer in three of four cases.
"""

# b pictures · y x rows and columns of the grid · m places

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import watch
from regard.data import generate
from regard.inspection import Cell, plot, word_grounding
from regard.models import ConvNetModel, Model, Pictures
from regard_corpora import Pictured
from regard_studies import Setting
from regard_studies.page import Page, Plot, Table, Verdict, show, signed
from regard_studies.seed_statistics import SeedStatistics, over_figures
from regard_studies.systems import TrainedSystem, group_by_name, train_all, training_settings

Figures = Mapping[str, SeedStatistics]
BINS = ((50, 54), (54, 60), (60, 101))  # distances between the two shapes, in hundredths of the picture
ROWS = 64  # pictures in a batch
SYSTEMS = {
    "attention": "self-attention",
    "none": "without it",
    "wider": "wider without it",
    "deeper": "deeper without it",
}
SHAPES = ("the ringed shape", "the one of its colour", "the third")
COLOURS = {"attention": plot.BLUE, "none": plot.GREY, "wider": plot.ORANGE, "deeper": plot.GREEN}
COUNTED = 75.0  # accuracy of counting sizes, in percent
POINTS = 10.0  # required gain of the layer, in points of accuracy
CONTROLS = {
    "none": "the same network without the layer does not",
    "wider": "as many parameters spent on width do not take its place",
    "deeper": "as many parameters spent on depth do not take its place",
}
QUESTION = {"question": "which-size", "shapes": 1}


@dataclass(frozen=True)
class ShapeAttention:
    """The attention, in percent, from the places of each shape to those of every shape and to all other places."""

    share: list[list[float]]  # from each shape to every shape, then to places without a shape
    chance: list[float]  # share of all places, in the same order

    @staticmethod
    def mean(several: Sequence["ShapeAttention"]) -> "ShapeAttention":
        """Average over seeds."""
        share = np.mean([each.share for each in several], 0)
        return ShapeAttention(share.tolist(), cast(list[float], np.mean([each.chance for each in several], 0).tolist()))


@torch.no_grad()
def measure_attention(model: Model, tests: Sequence[Pictured]) -> ShapeAttention:
    """Average the attention over scenes, which all have the same number of shapes."""
    device, shapes = next(model.parameters()).device, len(tests[0].scene.shapes)
    share, chance = np.zeros((shapes, shapes + 1)), np.zeros(shapes + 1)
    for first in range(0, len(tests), ROWS):
        some = tests[first : first + ROWS]
        pixels = torch.stack([torch.from_numpy(each.picture()).movedim(-1, 0) for each in some])
        with watch(model, only=["attention"]) as looks:
            model.encode(Pictures(pixels.to(device)))
        for test, weights in zip(some, looks["attention"].weights.float().cpu(), strict=True):
            on = shape_places(test, (weights.shape[0], weights.shape[1]))
            share += attention_between(weights.flatten(2).flatten(0, 1), on)
            chance += on.float().mean(1).numpy()
    return ShapeAttention((100 * share / len(tests)).tolist(), (100 * chance / len(tests)).tolist())


def shape_places(test: Pictured, grid: tuple[int, int]) -> Tensor:
    """Return masks [shapes + 1, m] of the places of each shape and, last, of places without a shape."""
    on = torch.stack([word_grounding.on_box(box, grid, test.size).flatten() for box in test.boxes])
    return torch.cat([on, ~on.any(0, keepdim=True)])


def attention_between(weights: Float[Tensor, "m m"], on: Tensor) -> np.ndarray:
    """Average over each shape's places their attention to the places of every shape, and to the places of none."""
    shares = weights @ on.float().T
    means: np.ndarray = torch.stack([shares[shape].mean(0) for shape in on[:-1]]).double().numpy()
    return means


def measure_system(system: TrainedSystem, tests: Sequence[Pictured]) -> dict[str, float]:
    """Measure accuracy in percent (of all questions, of those where counting does not help, by distance) and cost."""
    model = cast(ConvNetModel, system.run.model)
    pixels = [np.ascontiguousarray(each.picture().transpose(2, 0, 1)) for each in tests]
    answers = [cast(Any, answer).label for answer in system.run.classify(pixels)]
    return {
        **shares(answers, tests),
        "parameters": float(system.parameters),
        "reach": float(receptive_field(model)),
        "gamma": model.attention.gamma.item() if model.attention is not None else 0.0,
        "seconds": system.seconds,
    }


def shares(answers: Sequence[str], tests: Sequence[Pictured]) -> dict[str, float]:
    """Return the share of right answers in each group of questions, in percent."""
    right = [answer == test.target for answer, test in zip(answers, tests, strict=True)]
    differing = [i for i, test in enumerate(tests) if test.scene.shapes[1].size != test.scene.shapes[2].size]
    groups = {"accuracy": list(range(len(tests))), "differing": differing}
    for number, (low, high) in enumerate(BINS):
        groups[f"distance-{number}"] = [i for i, test in enumerate(tests) if low <= distance(test) < high]
    return {name: 100 * sum(right[i] for i in each) / max(1, len(each)) for name, each in groups.items()}


def distance(test: Pictured) -> int:
    """Measure the distance of the ringed shape from that of its colour, along the longer axis, in percent of a side."""
    one, other, *_ = test.scene.shapes
    return max(abs(one.x - other.x), abs(one.y - other.y))


def receptive_field(model: ConvNetModel) -> int:
    """Return the receptive field of the last grid's places, in pixels; a 3 × 3 convolution adds two of its steps."""
    size, step = 3, 2  # the stem
    for stage in range(model.config.stages):
        for block in range(model.config.blocks):
            size += 2 * step
            step *= 2 if stage and not block else 1
            size += 2 * step
    return size


def accuracy_table(results: Mapping[str, Figures]) -> Table:
    """Tabulate the accuracy of each system."""
    return Table(
        caption="Answered right, %",
        columns=["network", "all", "the third of another size", "parameters", "reach, pixels", "γ", "seconds"],
        rows=[
            [
                SYSTEMS[name],
                figures["accuracy"].as_text(),
                figures["differing"].as_text(),
                int(figures["parameters"].mean),
                "all" if name == "attention" else f"{figures['reach'].mean:.0f}",
                figures["gamma"].as_text(".2f") if name == "attention" else None,
                figures["seconds"].as_text(".0f"),
            ]
            for name, figures in results.items()
        ],
    )


def distance_table(results: Mapping[str, Figures], tests: Sequence[Pictured]) -> Table:
    """Tabulate the accuracy by the distance of the two shapes."""
    counts = [sum(low <= distance(test) < high for test in tests) for low, high in BINS]
    return Table(
        caption="Answered right, %, by the distance of the two shapes in hundredths of the picture",
        columns=["network", *map(span, BINS)],
        rows=[
            ["scenes", *map(str, counts)],
            *(
                [SYSTEMS[name], *(figures[f"distance-{i}"].as_text() for i in range(len(BINS)))]
                for name, figures in results.items()
            ),
        ],
    )


def looks_table(looks: ShapeAttention) -> Table:
    """Tabulate the attention from shapes to shapes."""
    rows: list[list[Cell]] = [[name, *share] for name, share in zip(SHAPES, looks.share, strict=True)]
    return Table(
        caption="Where the places of a shape look, % of their attention",
        columns=["from", *(f"to {name}" for name in SHAPES), "to the ground"],
        rows=[*rows, ["share of all places", *looks.chance]],
        formats=["", *[".1f"] * 4],
    )


def span(limits: tuple[int, int]) -> str:
    low, high = limits
    return f"{low}–{high - 1}" if high <= 100 else f"{low} and more"


def accuracy_plot(results: Mapping[str, Figures], looks: ShapeAttention) -> Plot:
    """Draw accuracy by distance, and the attention from shapes to shapes."""
    figure, (left, right) = plot.panels(2, titles=["Answered right, %", "The ringed shape looks at, %"], height=3.0)
    at = range(len(BINS))
    for name, figures in results.items():
        each = [figures[f"distance-{i}"] for i in at]
        left.errorbar(
            at,
            [one.mean for one in each],
            yerr=[one.deviation for one in each] if len(each[0].values) > 1 else None,
            color=COLOURS[name],
            marker="o",
            markersize=4,
            capsize=2,
            label=SYSTEMS[name],
        )
    left.axhline(75, color=plot.GREY, linewidth=0.8, linestyle="--")
    left.set_ylim(45, 102)
    left.set_xticks(at, [span(each) for each in BINS])
    left.set_xlim(-0.3, len(BINS) - 0.7)
    left.set_xlabel("distance, hundredths of the picture")
    plot.legend(left, loc="lower left")
    names = ["itself", "its colour", "the third", "the ground"]
    right.bar(range(4), looks.share[0], color=plot.BLUE, width=0.38, align="edge", label="attention")
    right.bar(range(4), looks.chance, color=plot.GREY, width=-0.38, align="edge", label="share of places")
    right.set_xticks(range(4), names)
    right.grid(visible=False, axis="x")
    plot.legend(right, loc="upper left")
    return Plot(
        "distance",
        figure,
        "Left: right answers by the distance of the two shapes; the dashed line is what counting sizes gives. Right: "
        "where the places of the ringed shape look, beside how many of all places are there.",
        "Left, a line a network over three distances. Right, bars: the attention of the ringed shape, and chance.",
    )


def tables(quick: bool) -> dict[str, dict[str, Any]]:
    """Build a configuration for each system; two controls spend the layer's parameters on width or on depth."""
    steps = 3500 if quick else 2000  # a quick run has batches of half as many pictures
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
            # Such small networks gain nothing from lower precision.
            "training": training_settings(
                steps, batch_rows=32 if quick else 64, rate=2e-3, warmup=100, metric="accuracy", precision="fp32"
            ),
        }
        for name, (channels, blocks) in nets.items()
        if not quick or name in ("attention", "wider")  # a quick run trains only these
    }


def picture_side(quick: bool) -> int:
    """Return the height and width of a picture in pixels."""
    return 32 if quick else 48


def make_tests(count: int, side: int) -> list[Pictured]:
    """Generate unseen scenes and their questions."""
    stream = generate("scenes", count, split="test", seed=0, size=side, **cast(Any, QUESTION))
    return [cast(Pictured, each) for each in stream]


def run(setting: Setting) -> Page:
    """Train the systems, let them answer the questions, and judge the claims."""
    tests = make_tests(400 if setting.quick else 1000, picture_side(setting.quick))
    with signed(seed=setting.seeds[0], quick=setting.quick, dtype="float32", setting=setting) as clock:
        systems = group_by_name(train_all("convnet", tables(setting.quick), setting))
        results = {name: over_figures([measure_system(each, tests) for each in some]) for name, some in systems.items()}
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
            "one of its colour at least half of the picture away, and a third of another colour as far: how large is "
            f"the second? Every system had the same {updates:,} updates of as many pictures.",
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
    gain = ""
    if "none" in results:  # distant shapes are mostly small, but that does not affect the gain
        plain = (results["none"][f"distance-{i}"].mean for i in (0, len(BINS) - 1))
        more = [show(each.mean - other, ".1f") for each, other in zip((near, far), plain, strict=True)]
        gain = f"; that is {more[0]} and {more[1]} points more than without it"
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
            f"nearest {near.as_text()} %, furthest {far.as_text()} %{gain}",
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
