"""An exhibit of a look by itself, without a model or a run: only the words and the weights between them."""

# b batch · h heads · n rows · m columns · y x rows and columns of a grid
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention import Look
from regard.errors import ArgumentError, ShapeError
from regard.inspection.collect.exhibit import Exhibit, Role, Side, View


def as_exhibit(what: Any, source: Sequence[str] | None, target: Sequence[str] | None) -> Exhibit:
    """Return an exhibit as it is, or make one of a look and its words."""
    if isinstance(what, Exhibit):
        if source is not None or target is not None:
            raise ArgumentError("source, target: given with an exhibit, which has its own words; leave them out")
        return what
    if isinstance(what, Look):
        return exhibit_of_look(what, source, target)
    raise ArgumentError(f"{type(what).__name__} given, expected an Exhibit or a Look")


def exhibit_of_look(look: Look, source: Sequence[str] | None = None, target: Sequence[str] | None = None) -> Exhibit:
    """Make an exhibit of a look at one example: weights [n, m] or heads of such; leading dimensions of one are dropped.

    `source` names the m columns and `target` the n rows; without them they are counted from 1. Places of a grid need no
    names.
    """
    weights, grid = look.weights.detach().float().cpu(), None
    if look.grid:
        grid = (int(weights.shape[-2]), int(weights.shape[-1]))
        weights = weights.flatten(-2)
    if look.grid == "both":
        weights = weights.flatten(-3, -2)
    shape = list(weights.shape)
    while weights.dim() > 3 and weights.shape[0] == 1:
        weights = weights[0]
    if weights.dim() == 2:
        weights = weights[None]
    if weights.dim() != 3 or 0 in shape:
        raise ShapeError(f"look: one example [n, m] or [heads, n, m] can be shown, got weights of {shape}")
    heads, n, m = weights.shape
    itself = look.grid == "both" or (target is None and source is not None and n == m)
    role: Role = "places" if look.grid == "both" else "encoder" if itself else "cross"
    columns = "places" if grid else "source"
    sides = {columns: _side("source", source, m, grid)}
    if not itself:
        sides["written"] = _side("target", target, n, None)
    view = View(
        name="look",
        title="what was looked at",
        role=role,
        layer=0,
        rows=columns if itself else "written",
        columns=columns,
        weights=weights,
        entropy=_rows(look.entropy, heads, n),
        centre=_rows(look.centre, heads, n),
        picked=_rows(look.picked, heads, n),
        how=look.how,
    )
    return Exhibit(
        kind="",
        task="",
        title=" ".join(source) if source else "",
        run="",
        sides=sides,
        views=(view,),
        output=" ".join(target) if target and not itself else "",
    )


def _side(name: str, words: Sequence[str] | None, count: int, grid: tuple[int, int] | None) -> Side:
    if isinstance(words, str):
        raise ArgumentError(f"{name}: a sequence of words was expected, got one string; split it first")
    if words is None:
        words = [str(index + 1) for index in range(count)]
    if len(words) != count:
        raise ShapeError(f"{name}: {count} words were expected, one for each {name} position, got {len(words)}")
    texts = tuple(str(word) for word in words)
    return Side(texts, tuple(range(count)), texts, grid)


def _rows(values: Tensor | None, heads: int, n: int) -> Tensor | None:
    """Return [h n], where there is a number for each row."""
    if values is None or values.numel() != heads * n:
        return None
    values = values.detach().reshape(heads, n).cpu()
    return values.float() if values.is_floating_point() else values.to(torch.int64)
