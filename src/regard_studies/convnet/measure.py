"""Measurements of where the shapes of a scene look, in a ConvNet with self-attention over its grid."""

# b pictures · y x rows and columns of the grid · m places
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import watch
from regard.inspection import word_grounding
from regard.models import ConvNetModel, Model, Pictures
from regard_corpora import Pictured
from regard_studies.seed_statistics import SeedStatistics
from regard_studies.systems import TrainedSystem

__all__ = [
    "BINS",
    "Figures",
    "ShapeAttention",
    "distance",
    "measure_attention",
    "measure_system",
    "receptive_field",
    "shares",
]

Figures = Mapping[str, SeedStatistics]

BINS = ((50, 54), (54, 60), (60, 101))  # hundredths of the picture between the two shapes

ROWS = 64  # pictures of a batch


@dataclass(frozen=True)
class ShapeAttention:
    """The attention, in percent, that the places of each shape pay to those of every shape, and to all others."""

    share: list[list[float]]  # from each shape to each, then to where no shape is
    chance: list[float]  # what share of all places each has

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
    """Return which places each shape has, and last which have none: [shapes + 1, m]."""
    on = torch.stack([word_grounding.on_box(box, grid, test.size).flatten() for box in test.boxes])
    return torch.cat([on, ~on.any(0, keepdim=True)])


def attention_between(weights: Float[Tensor, "m m"], on: Tensor) -> np.ndarray:
    """Average, over a shape's places, the attention that they pay to the places of each shape, and of none."""
    shares = weights @ on.float().T
    means: np.ndarray = torch.stack([shares[shape].mean(0) for shape in on[:-1]]).double().numpy()
    return means


def measure_system(system: TrainedSystem, tests: Sequence[Pictured]) -> dict[str, float]:
    """Measure accuracy in percent: of all, of those where counting does not help, and by distance; and the cost."""
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
    """Return the share of right answers, in percent."""
    right = [answer == test.target for answer, test in zip(answers, tests, strict=True)]
    differing = [i for i, test in enumerate(tests) if test.scene.shapes[1].size != test.scene.shapes[2].size]
    groups = {"accuracy": list(range(len(tests))), "differing": differing}
    for number, (low, high) in enumerate(BINS):
        groups[f"distance-{number}"] = [i for i, test in enumerate(tests) if low <= distance(test) < high]
    return {name: 100 * sum(right[i] for i in each) / max(1, len(each)) for name, each in groups.items()}


def distance(test: Pictured) -> int:
    """Measure the distance of the ringed shape and that of its colour, along the longer axis, in percent of a side."""
    one, other, *_ = test.scene.shapes
    return max(abs(one.x - other.x), abs(one.y - other.y))


def receptive_field(model: ConvNetModel) -> int:
    """Return how many pixels across a place of the last grid sees without the layer: every 3 × 3 convolution adds 2 of
    its own steps.
    """
    size, step = 3, 2  # the stem
    for stage in range(model.config.stages):
        for block in range(model.config.blocks):
            size += 2 * step
            step *= 2 if stage and not block else 1
            size += 2 * step
    return size
