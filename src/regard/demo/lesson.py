"""Train a small translator with one attention mechanism, and see what it learned."""

import dataclasses
import time
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.demo.grammar import Pair
from regard.demo.translator import END, MECHANISMS, PAD, START, Translator, Vocabulary

__all__ = ["Lesson", "Result"]

SIZE, BATCH, RATE = 64, 64, 8e-3


@dataclasses.dataclass(frozen=True)
class Result:
    """What one mechanism learned: shares between 0 and 1, over sentences it has not seen in training."""

    mechanism: str
    paper: str
    exact: float
    aligned: float
    seconds: float
    translation: tuple[str, ...]
    weights: Float[Tensor, "n m"]


class Lesson:
    """The sentences, as numbers, and the same training for whatever attention is asked for."""

    def __init__(self, train: list[Pair], test: list[Pair], seed: int):
        self.train, self.test, self.seed = train, test, seed
        self.sources = Vocabulary([pair.source for pair in train])
        self.targets = Vocabulary([pair.target for pair in train])

    def learn(self, mechanism: str, steps: int, tell: Callable[[int], None] = lambda step: None) -> Result:
        """Train with `mechanism` for so many steps; `tell` hears of each."""
        torch.manual_seed(self.seed)
        paper, build = MECHANISMS[mechanism]
        model = Translator(len(self.sources), len(self.targets), build(SIZE), SIZE)
        began = time.perf_counter()
        source, target = self._numbers(self.train)
        optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps, pct_start=0.1)
        for step in range(steps):
            rows = torch.randint(len(source), (BATCH,))
            scores = model(source[rows], _shifted(target[rows]))
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), target[rows].flatten(), ignore_index=PAD)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            tell(step)
        return self._examine(model.eval(), mechanism, paper, time.perf_counter() - began)

    def unmoved(self) -> float:
        """How often the right alignment is simply the same position: what there is to gain by attending."""
        return _share([i in links for pair in self.test for i, links in enumerate(pair.links)])

    def _examine(self, model: Translator, mechanism: str, paper: str, seconds: float) -> Result:
        source, target = self._numbers(self.test)
        written = [self.targets.decode(row) for row in model.translate(source).tolist()]
        weights = model.weights(source, _shifted(target))
        looked = weights.argmax(-1).tolist()
        links = [
            (row[i], pair.links[i]) for row, pair in zip(looked, self.test, strict=True) for i in range(len(pair.links))
        ]
        first = self.test[0]
        return Result(
            mechanism=mechanism,
            paper=paper,
            exact=_share([found == pair.target for found, pair in zip(written, self.test, strict=True)]),
            aligned=_share([found in right for found, right in links]),
            seconds=seconds,
            translation=written[0],
            weights=weights[0, : len(first.target), : len(first.source)],
        )

    def _numbers(self, pairs: list[Pair]) -> tuple[Int[Tensor, "b m"], Int[Tensor, "b n"]]:
        source = self.sources.encode([pair.source for pair in pairs])
        return source, self.targets.encode([pair.target for pair in pairs], end=True)


def _shifted(target: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """What the decoder reads: START, then the words without END."""
    start = torch.full_like(target[:, :1], START)
    read = torch.cat([start, target[:, :-1]], 1)
    return read.masked_fill(read == END, PAD)


def _share(right: list[bool]) -> float:
    return sum(right) / len(right)
