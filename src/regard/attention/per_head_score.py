"""One score per head, for `Heads` whose heads have parameters of their own."""

# b batch · a heads · n queries · m keys · d width of a head · p width of a projected key
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.score import Dot, Score, compare_from
from regard.errors import ArgumentError


class PerHead(Score, delegates=True):
    """One score per head, each with its own parameters; heads are the last leading dimension."""

    def __init__(self, scores: list[Score]):
        super().__init__()
        for score in scores:
            if not isinstance(score, Score):
                raise ArgumentError(f"score: a factory of {type(score).__name__} given, expected a factory of scores")
        if len({score_kind(score) for score in scores}) > 1:
            raise ArgumentError(
                "score: a factory of scores that differ in kind given, expected the same kind for all heads"
            )
        self.scores = nn.ModuleList(scores)

    @property
    def head_scores(self) -> list[Score]:
        """Return the score of each head."""
        return cast(list[Score], list(self.scores))

    @property
    def first_score(self) -> Score:
        """The first head's score; all have its form."""
        return self.head_scores[0]

    @property
    def fused_form(self) -> str:
        """The form of each head's score."""
        return self.first_score.fused_form

    def ask(self, query: Float[Tensor, "*b a n d"]) -> Float[Tensor, "*b a n p"]:
        return torch.stack([score.ask(q) for score, q in zip(self.head_scores, query.unbind(-3), strict=True)], dim=-3)

    def project(self, keys: Float[Tensor, "*b a m d"]) -> Float[Tensor, "*b a m p"]:
        return torch.stack(
            [score.project(k) for score, k in zip(self.head_scores, keys.unbind(-3), strict=True)], dim=-3
        )

    def compare(
        self, projected_query: Float[Tensor, "*bq n p"], projected_keys: Float[Tensor, "*bk m _"], first: int = 0
    ) -> Float[Tensor, "*b n m"]:
        pairs = zip(self.head_scores, projected_query.unbind(-3), projected_keys.unbind(-3), strict=True)
        return torch.stack([compare_from(score, q, k, first) for score, q, k in pairs], dim=-3)

    def check(self, query_width: int, key_width: int | None) -> None:
        for score in self.head_scores:
            score.check(query_width, key_width)

    def scale(self, width: int) -> float:
        return self.first_score.scale(width)

    def projected_size(self, key_size: int) -> int:
        return self.first_score.projected_size(key_size)

    @property
    def vector(self) -> Tensor | None:
        vectors = [score.vector for score in self.head_scores if score.vector is not None]
        return torch.stack(vectors) if vectors else None


def score_kind(score: Score) -> tuple[str, float]:
    """Return the form of a score, and its scale if a kernel needs it."""
    return score.fused_form, score.scale(64) if score.fused_form == "bilinear" else 1.0


def join_scores(scores: list[Score]) -> Score:
    """The heads' scores as one; dot products have no parameters, and one of them serves all heads."""
    dots = [score for score in scores if type(score) is Dot and score.fused_form == "bilinear"]
    if len(dots) == len(scores) and len({dot.scaled for dot in dots}) == 1:
        return dots[0]
    return PerHead(scores)
