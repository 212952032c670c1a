r"""Scores: how well does a query fit a key?

A score transforms the query (`project_query`) and the keys (`project_keys`, once for all queries), and compares the
two. Bilinear scores (dot, scaled, general, cosine) are then a single product, which fused kernels compute.
"""

# b batch · n queries · m keys · dq query width · dk key width · h hidden width · p width of projected keys
import inspect
import math
import warnings
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.checks import check_positive
from regard.attention.weighting import Settling
from regard.errors import ArgumentError, ShapeError
from regard.kernels import Linear, additive_chunked, additive_scores, bilinear_scores, broadcast, matmul_wide

__all__ = ["Additive", "Cosine", "Dot", "General", "Location", "Score", "check_location", "compare_from"]


OLD_NAMES = "ask", "project"
CHANGES = "project_query", "project_keys"  # methods that transform queries and keys before `compare`


class Score(Settling):
    """A measure of how well each query fits each key.

    A subclass overrides `compare`, and also `project_query` and `project_keys` if it transforms queries and keys first.
    It needs no `compare` if it sets `form = "bilinear"`: its score is then the product of the projected query and the
    projected keys, times `scale`, and fused kernels compute it.
    """

    form: ClassVar[Literal["bilinear", "additive", "other"]] = "other"
    query_size: int | None = None  # None: any width
    key_size: int | None = None
    settled: tuple[int, str, float, bool] | None

    def __init_subclass__(cls, delegates: bool = False, **options: object) -> None:
        """Raise TypeError if a subclass overrides what attention does not call; `delegates` allows a `fused_form`."""
        super().__init_subclass__(**options)
        adopt_old_names(cls)
        for name, kind in (("forward", Score), ("__call__", nn.Module)):
            if getattr(cls, name) is not getattr(kind, name):
                raise TypeError(
                    f"{cls.__name__} overrides `{name}`, which attention does not call: override "
                    "`compare(projected_query, projected_keys, first)`, and `project_query` and `project_keys` for "
                    "what is done to the query and the keys"
                )
        if cls.fused_form is not Score.fused_form and not delegates:
            raise TypeError(
                f"{cls.__name__} overrides `fused_form`, which follows from `form` and `compare`: set those"
            )
        if cls.compare is Score.compare and cls.vector is not Score.vector:
            raise TypeError(f"{cls.__name__} overrides `vector`, which only an Additive score has: override `compare`")

    @property
    def fused_form(self) -> str:
        """The form that kernels may compute instead of `compare`: "other" if `compare` is overridden.

        It is "other" for a learned scale too: a kernel takes a plain number, which has no gradient.
        """
        compare = Additive.compare if self.form == "additive" else Score.compare
        if getattr(self.compare, "__func__", None) is not compare:
            return "other"
        return self.form if self.form != "bilinear" or isinstance(self.scale(64), float | int) else "other"

    def settle(self, width: int) -> tuple[str, float]:
        """Return the form that kernels may compute, and its scale for queries of this width.

        A built-in score caches the result until one of its attributes changes; a user's score computes it at every
        call.
        """
        form = self.fused_form
        scale = self.scale(width) if form == "bilinear" else 1.0
        if type(self).__module__ == __name__ and not torch.compiler.is_compiling():
            changes = (getattr(getattr(self, name), "__func__", None) is not getattr(Score, name) for name in CHANGES)
            vars(self)["settled"] = width, form, scale, any(changes)
        return form, scale

    def project_query(self, query: Float[Tensor, "*b n dq"]) -> Float[Tensor, "*b n p"]:
        """Transform the query before it is compared with projected keys."""
        return query

    def project_keys(self, keys: Float[Tensor, "*b m dk"]) -> Float[Tensor, "*b m p"]:
        """Transform the keys before they are compared, once for all queries."""
        return keys

    def compare(
        self, projected_query: Float[Tensor, "*bq n p"], projected_keys: Float[Tensor, "*bk m _"], first: int = 0
    ) -> Float[Tensor, "*b n m"]:
        """Return the scores of projected queries and keys; `first` is the index of the first of these keys."""
        if self.form != "bilinear" and type(self).compare is Score.compare:
            raise TypeError(f"{type(self).__name__} does not say how to compare: override `compare`")
        return bilinear_scores(projected_query, projected_keys, self.scale(projected_query.shape[-1]))

    def scale(self, width: int) -> float:
        """Return the factor of a bilinear product: a number, or a tensor if it is learned."""
        return 1.0

    def projected_size(self, key_size: int) -> int:
        """Return the width of a projected key."""
        return key_size

    @property
    def vector(self) -> Tensor | None:
        """The vector v of an additive score: [h], or [heads h]."""
        return None

    def forward(
        self, query: Float[Tensor, "*bq n dq"], projected_keys: Float[Tensor, "*bk m p"]
    ) -> Float[Tensor, "*b n m"]:
        """Return the score e of every query with every projected key."""
        return self.compare(self.project_query(query), projected_keys)

    def check(self, query_width: int, key_width: int | None) -> None:
        """Raise ShapeError if the widths do not match; `key_width` is None if the keys are already projected."""
        name = type(self).__name__
        if self.query_size is not None and query_width != self.query_size:
            raise ShapeError(f"query: width {query_width} given, {name} expects {self.query_size}")
        if key_width is not None and self.key_size is not None and key_width != self.key_size:
            raise ShapeError(f"keys: width {key_width} given, {name} expects {self.key_size}")


def adopt_old_names(cls: type[Score]) -> None:
    """Let a score override and call `ask` and `project`, the old names of `project_query` and `project_keys`."""
    for old, new in zip(OLD_NAMES, CHANGES, strict=True):
        if old in vars(cls):
            warnings.warn(f"{cls.__name__}.{old} is now called {new}", DeprecationWarning, stacklevel=4)
            setattr(cls, new, vars(cls)[old])
        elif new in vars(cls):
            setattr(cls, old, vars(cls)[new])


adopt_old_names(Score)


class Dot(Score):
    r"""Dot product: $e_{ij} = q_i \cdot k_j$; scaled, $q_i \cdot k_j / \sqrt{d}$.

    Luong et al. 2015 (arXiv:1508.04025), section 3.1; scaled: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1. d
    is the width of a key, not the number of keys: unit-normal q and k have products of standard deviation √d.
    """

    form = "bilinear"

    def __init__(self, scaled: bool = False):
        super().__init__()
        self.scaled = scaled

    def scale(self, width: int) -> float:
        return 1 / math.sqrt(width) if self.scaled else 1.0

    def check(self, query_width: int, key_width: int | None) -> None:
        if key_width is not None and query_width != key_width:
            raise ShapeError(f"query: width {query_width} given, Dot expects the width of the keys, {key_width}")

    def extra_repr(self) -> str:
        return f"scaled={self.scaled}"


class General(Score):
    r"""Multiplicative attention: $e_{ij} = q_i^\top W k_j$.

    Luong et al. 2015 (arXiv:1508.04025), section 3.1. W k is computed once for all queries. W is initialised so that
    scores of unit-normal vectors have the standard deviation of a plain dot product, √d for equal widths.
    """

    form = "bilinear"

    def __init__(self, query_size: int, key_size: int):
        super().__init__()
        self.query_size, self.key_size = check_positive(query_size=query_size, key_size=key_size)
        self.weight = nn.Parameter(torch.empty(query_size, key_size))
        nn.init.xavier_uniform_(self.weight)

    def project_keys(self, keys: Float[Tensor, "*b m dk"]) -> Float[Tensor, "*b m dq"]:
        """Return W k_j."""
        return F.linear(keys, self.weight)

    def projected_size(self, key_size: int) -> int:
        return self.weight.shape[0]

    def extra_repr(self) -> str:
        return f"{self.query_size}, {self.key_size}"


class Additive(Score):
    r"""Additive attention: $e_{ij} = v^\top \tanh(W q_i + U k_j + b)$.

    Bahdanau et al. 2015 (arXiv:1409.0473), appendix A.1.2. Luong's "concat" (arXiv:1508.04025, section 3.1) is the
    same function with W and U as the two halves of one matrix. Neither formula has the bias b.
    """

    form = "additive"

    def __init__(self, query_size: int, key_size: int, hidden: int):
        super().__init__()
        self.query_size, self.key_size, self.hidden = check_positive(
            query_size=query_size, key_size=key_size, hidden=hidden
        )
        self.query = Linear(query_size, hidden, bias=False)
        self.key = Linear(key_size, hidden)
        self.v = nn.Parameter(torch.empty(hidden).uniform_(-1, 1) / math.sqrt(hidden))

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError if a subclass overrides `scale`, which an additive score does not have."""
        super().__init_subclass__(**options)
        if cls.compare is Additive.compare and cls.scale is not Score.scale:
            raise TypeError(f"{cls.__name__} overrides `scale`, which only a bilinear score has: override `compare`")

    def project_query(self, query: Float[Tensor, "*b n dq"]) -> Float[Tensor, "*b n h"]:
        """Return W q_i."""
        projected_query: Tensor = self.query(query)
        return projected_query

    def project_keys(self, keys: Float[Tensor, "*b m dk"]) -> Float[Tensor, "*b m h"]:
        """Return U k_j + b, once for all queries."""
        projected_keys: Tensor = self.key(keys)
        return projected_keys

    def compare(
        self, projected_query: Float[Tensor, "*bq n h"], projected_keys: Float[Tensor, "*bk m h"], first: int = 0
    ) -> Float[Tensor, "*b n m"]:
        scores = additive_scores if torch.is_grad_enabled() else additive_chunked.scores_without_gradient
        return scores(projected_query, projected_keys, self.vector)

    def projected_size(self, key_size: int) -> int:
        return self.hidden

    @property
    def vector(self) -> Tensor:
        return self.v

    def extra_repr(self) -> str:
        return f"hidden={self.hidden}"


class Cosine(Score):
    r"""Content addressing: $e_{ij} = \beta \cos(q_i, k_j)$.

    Graves et al. 2014 (arXiv:1410.5401), section 3.3.1. The sharpness β is a number, "learned" (one positive
    parameter), or "query": each query then carries it as its last element, and β is the softplus of that. A zero vector
    has a cosine of 0 with every other vector.
    """

    form = "bilinear"

    def __init__(self, sharpness: float | str = 1.0):
        super().__init__()
        if not (sharpness in ("learned", "query") if isinstance(sharpness, str) else 0 < sharpness < math.inf):
            raise ArgumentError(f"sharpness: {sharpness!r} given, expected a number above 0, 'learned' or 'query'")
        self.sharpness = sharpness
        if sharpness == "learned":
            self.log_sharpness = nn.Parameter(torch.zeros(()))

    def project_query(self, query: Float[Tensor, "*b n dq"]) -> Float[Tensor, "*b n dk"]:
        """Return β q / |q| if the query carries β, otherwise √β q / |q|."""
        if self.sharpness == "query":
            return unit_vectors(query[..., :-1]) * F.softplus(query[..., -1:])
        return unit_vectors(query, self.root())

    def project_keys(self, keys: Float[Tensor, "*b m dk"]) -> Float[Tensor, "*b m dk"]:
        """Return k / |k|, times the other √β if queries do not carry β: both factors fit in float16 if β does."""
        return unit_vectors(keys) if self.sharpness == "query" else unit_vectors(keys, self.root())

    def root(self) -> Tensor | float:
        """Return √β."""
        if isinstance(self.sharpness, str):
            return torch.exp(self.log_sharpness / 2)
        return math.sqrt(self.sharpness)

    def check(self, query_width: int, key_width: int | None) -> None:
        extra = int(self.sharpness == "query")
        if key_width is not None and query_width != key_width + extra:
            plus = " + 1 (its sharpness)" if extra else ""
            raise ShapeError(
                f"query: width {query_width} given, Cosine expects the width of the keys, {key_width}{plus}"
            )

    def extra_repr(self) -> str:
        return f"sharpness={self.sharpness!r}"


class Location(Score):
    r"""Location-based attention: $e_{ij} = (W q_i)_j$, from the query alone.

    Luong et al. 2015 (arXiv:1508.04025), equation 8. Only the number of keys matters, at most `length`. It is global: a
    window would select by position what is already scored by position, and the paper has no such model. The paper takes
    the softmax over all `length` positions, so that positions beyond the sentence get weight; here, as for every score,
    the softmax is over the existing keys, whose weights sum to one.
    """

    def __init__(self, query_size: int, length: int):
        super().__init__()
        self.query_size, self.length = check_positive(query_size=query_size, length=length)
        self.weight = nn.Parameter(torch.empty(length, query_size))
        nn.init.xavier_uniform_(self.weight)

    def compare(
        self, projected_query: Float[Tensor, "*bq n dq"], projected_keys: Float[Tensor, "*bk m dk"], first: int = 0
    ) -> Float[Tensor, "*b n m"]:
        last = first + projected_keys.shape[-2]
        if last > self.length:
            raise ShapeError(
                f"keys: {last} given, Location was built for at most {self.length}; build it with length={last}"
            )
        batch = broadcast(projected_query.shape[:-2], projected_keys.shape[:-2])
        scores = matmul_wide(projected_query, self.weight[first:last].mT)
        return scores.expand(*batch, *scores.shape[-2:])

    def extra_repr(self) -> str:
        return f"{self.query_size}, length={self.length}"


def compare_from(score: Score, projected_query: Tensor, projected_keys: Tensor, first: int) -> Tensor:
    """Return the scores of a block of keys; `compare` gets `first`, the index of its first key, only if it takes it."""
    if not first:
        return score.compare(projected_query, projected_keys)
    try:
        inspect.signature(score.compare).bind(projected_query, projected_keys, first)
    except TypeError:  # its `compare` depends on the keys' contents, not on their positions
        return score.compare(projected_query, projected_keys)
    return score.compare(projected_query, projected_keys, first)


def check_location(score: Score) -> None:
    """Raise ArgumentError for a Location score under a window, which would select by position what position scores."""
    if isinstance(score, Location):
        raise ArgumentError("span: a window given, expected none: Location scores are global (Luong 2015, 3.2)")


def unit_vectors(vectors: Tensor, size: Tensor | float = 1.0) -> Tensor:
    """Return vectors of length `size`; a zero vector stays zero, with a finite gradient."""
    wide = vectors if vectors.dtype == torch.float64 else vectors.float()
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return (wide / length.masked_fill(length == 0, 1.0) * size).to(vectors.dtype)
