"""The demonstration: one small translator, five attentions, trained on the spot.

A hand-written grammar gives English sentences, their German translations with real reordering, and the word alignments;
the same encoder-decoder learns them with each mechanism in turn. Whether its weights point at the right words is then
counted, on sentences that it has not seen.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import torch

from regard.demo.grammar import Pair, sentence, split
from regard.demo.lesson import Lesson, Result
from regard.demo.translator import MECHANISMS

__all__ = ["Demonstration", "demonstrate"]


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """What came out."""

    results: list[Result]
    example: Pair
    train: int
    test: int
    unmoved: float
    picture: Path


def demonstrate(
    out: str | Path,
    *,
    seed: int = 0,
    steps: int = 500,
    tell: Callable[[str, int, int], None] = lambda mechanism, step, steps: None,
) -> Demonstration:
    """Train every mechanism and draw its alignment of "I ate pizza yesterday" into `out`/alignment.png.

    `tell` hears (mechanism, step, steps) as it goes. The seed and the number of threads are set back afterwards.
    """
    from regard.inspection import heatmap

    example = sentence("plain", "I", "eat", "pizza", "", "yesterday")
    train, test = split(train=2000, test=200, seed=seed, first=example)
    lesson = Lesson(train, test, seed)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)  # the matrices are small: a second thread waits more than it works
    try:
        results = [
            lesson.learn(name, steps, lambda step, name=name: tell(name, step + 1, steps))  # type: ignore[misc]
            for name in MECHANISMS
        ]
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
    picture = Path(out) / "alignment.png"
    heatmap(
        torch.stack([result.weights for result in results]),
        example.source,
        example.target,
        title=[result.mechanism for result in results],
        path=picture,
    )
    return Demonstration(results, example, len(train), len(test), lesson.unmoved(), picture)
