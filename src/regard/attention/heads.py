r"""Heads: multi-head attention, each head with its own projections.

$\mathrm{head}_h = \mathrm{Attention}(x W^Q_h, m W^K_h, m W^V_h)$, then $[\mathrm{head}_1; \dots; \mathrm{head}_H] W^O$.
"""

# b batch · a heads · n queries · m keys · d width of a head · p width of a projected key
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.cache import BeamIndexCache, Cache, Prepared, SharedBeamCache, empty_cache
from regard.attention.checks import check_alike, check_parameters, check_positive
from regard.attention.look import Attentive, Look
from regard.attention.positions import Rotary, position_index
from regard.attention.score import Dot, Score, compare_from
from regard.attention.span import Mask, Shared, Span, Start
from regard.attention.weighting import Weighting
from regard.errors import ArgumentError, ShapeError
from regard.kernels import Linear, Plan, backends, planning
from regard.kernels import linear as apply_linear

KERNEL = "decode-step"  # writes the step's key and value into the cache, and attends to the cache in place
WIDEST = 256  # largest head width that this kernel supports


class Heads(Attentive):
    """Multi-head attention: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.2.

    `query_size` is the total width D_Q of queries and keys over all heads, `value_size` that of the values; both are
    free and default to `size`. `score` makes one score per head from its width (default: scaled dot). `split="input"`
    gives each head its own slice of the input instead of a projection of the whole input, and has no output projection.
    A departure: with `bias`, the default, projections have biases; the paper's have none.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        query_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        score: Callable[[int], Score] | None = None,
        weighting: Weighting | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        split: Literal["projection", "input"] = "projection",
        rotary: Rotary | None = None,
    ):
        super().__init__()
        if split not in ("projection", "input"):
            raise ArgumentError(f"split: {split!r} given, expected 'projection' or 'input'")
        self.size, self.heads, self.split = *check_positive(size=size, heads=heads), split
        self.query_size, self.value_size, self.memory_size = check_positive(
            query_size=size if query_size is None else query_size,
            value_size=size if value_size is None else value_size,
            memory_size=size if memory_size is None else memory_size,
        )
        widths = {"query_size": self.query_size, "value_size": self.value_size}
        if split == "input":
            widths |= {"size": size, "memory_size": self.memory_size}
        for name, width in widths.items():
            if width % heads:
                raise ArgumentError(f"{name}: {width} is not divisible by {heads} heads")
        self.width = self.query_size // heads
        if rotary is not None and rotary.size != self.width:
            raise ShapeError(f"rotary: size {rotary.size} given, expected {self.width}, the width of a head")
        self.rotary = rotary
        self.projection: nn.Linear | None = None
        self.query: nn.Module
        self.key: nn.Module
        self.value: nn.Module
        if split == "input":
            self.query = SlicedProjection(size, self.query_size, heads, bias)
            self.key = SlicedProjection(self.memory_size, self.query_size, heads, bias)
            self.value = SlicedProjection(self.memory_size, self.value_size, heads, bias)
            self.output = None
        else:
            wide, deep = 2 * self.query_size + self.value_size, self.query_size
            if self.memory_size == size:  # one matrix, so that self-attention is one product
                self.projection = xavier_linear(size, wide, bias)
                self.query, self.key, self.value = (
                    ProjectionRows(self, *bounds) for bounds in ((0, deep), (deep, 2 * deep), (2 * deep, wide))
                )
            else:
                self.query = xavier_linear(size, deep, bias)
                self.key = xavier_linear(self.memory_size, deep, bias)
                self.value = xavier_linear(self.memory_size, self.value_size, bias)
            self.output = xavier_linear(self.value_size, size, bias)
        if isinstance(score, Score):
            name = type(score).__name__
            raise ArgumentError(f"score: a {name} given, expected a function that makes one from a head's width")
        per_head = Dot(scaled=True) if score is None else join_scores([score(self.width) for _ in range(heads)])
        per_head.check(self.width, self.width)
        self.attention = Attention(per_head, weighting=weighting, dropout=dropout)

    def forward(
        self,
        x: Float[Tensor, "*b n size"],
        memory: Float[Tensor, "*bm m width"] | Prepared | None = None,
        values: Float[Tensor, "*bv m width"] | Span | None = None,
        span: Span | Start | None = None,
        start: Start = 0,
    ) -> Float[Tensor, "*b n out"]:
        """MultiHead(Q, K, V): queries from x, keys from memory, and values from `values`, by default from memory.

        Without memory, or if memory is x itself, this is self-attention. A call without values may pass the span third.
        `start` is the index of the first query for rotary positions, and in self-attention also of the first key; the
        keys of another memory count from 0, and prepared keys from the start given to `prepare`.
        """
        if values is not None or not (span is None or isinstance(span, Span)):
            values, span, start = parse_arguments(values, span, start)
        projected_query, prepared = self.project_inputs(x, memory, span, start, values)
        return self.merge_heads(self.attention.attend_projected(projected_query, prepared, x, span, heads=True))

    def step(
        self, x: Float[Tensor, "r 1 size"], past: Cache, span: Span | None = None, start: Start = 0
    ) -> Float[Tensor, "r 1 out"]:
        """Attend from the next position of every row, whose key and value are first appended to the cache.

        Queries, keys and values are one matrix product; all rows of a beam attend to their shared cache together.
        """
        nothing = span is None or (type(span) is Shared and span.span is None)
        if type(self).forward is not Heads.forward:  # a subclass's own forward, over the whole cache
            if isinstance(past, SharedBeamCache):
                raise ArgumentError(
                    f"past: a SharedBeamCache given, expected another cache for {type(self).__name__}.forward"
                )
            past.extend(self.prepare(x, start, span))
            return self(x, past, span, start)
        projected_query, prepared = self.project_inputs(x, None, span, start)
        if isinstance(past, BeamIndexCache) and nothing and self.has_step_kernel(projected_query, past):
            from regard.kernels import follow

            scale = self.attention.score.scale(projected_query.shape[-1]) / self.attention.weighting.temperature
            with torch.cuda.device_of(projected_query):  # which may differ from the current one
                context = follow(
                    projected_query,
                    prepared.keys,
                    prepared.values,
                    past.keys,
                    past.values,
                    past.row_index,
                    past.length,
                    scale,
                )
            past.length += 1
            return self.merge_heads(context)
        past.extend(prepared)
        if not isinstance(past, SharedBeamCache):
            whole = past.contents() if isinstance(past, BeamIndexCache) else past
            return self.merge_heads(self.attention.attend_projected(projected_query, whole, x, span, heads=True))
        if not nothing:
            raise ArgumentError(f"span: {span!r} given, expected none: the rows of a beam see their own past")
        queries = projected_query[..., 0, :].unflatten(0, (-1, past.rows)).transpose(1, 2)  # [r a 1 d] -> [s a r d]
        if self.attention.span is None:
            context = self.attention.attend_within(queries, *past.contents_within())
        else:
            x, slots = x.view(-1, past.rows, x.shape[-1]), Mask(past.lineage[..., : past.used])
            context = self.attention.attend_projected(queries, past.contents(), x, slots, heads=True)
        return self.merge_heads(context).view(len(projected_query), 1, -1)

    def look(
        self,
        x: Float[Tensor, "*b n size"],
        memory: Float[Tensor, "*bm m width"] | Prepared | None = None,
        values: Float[Tensor, "*bv m width"] | Span | None = None,
        span: Span | Start | None = None,
        start: Start = 0,
    ) -> Look:
        """Attend, and return every stage; weights are [*b heads n m], the context is the output."""
        values, span, start = parse_arguments(values, span, start)
        projected_query, prepared = self.project_inputs(x, memory, span, start, values)
        look = self.attention.look_projected(projected_query, prepared, x, span, heads=True)
        return replace(look, context=self.merge_heads(look.context), how=f"{self.heads} heads · {look.how}")

    def backend(self, *args: Any, **kwargs: Any) -> str:
        """Return the name of the backend that would serve a call of these arguments."""
        return self.plan(*args, **kwargs).name

    def plan(
        self,
        x: Float[Tensor, "*b n size"],
        memory: Float[Tensor, "*bm m width"] | Prepared | None = None,
        values: Float[Tensor, "*bv m width"] | Span | None = None,
        span: Span | Start | None = None,
        start: Start = 0,
    ) -> Plan:
        """Return which backend would run this call, and why those before it do not; it prints one line for each."""
        values, span, start = parse_arguments(values, span, start)
        projected_query, prepared = self.project_inputs(x, memory, span, start, values)
        return self.attention.plan_projected(projected_query, prepared, x, span, heads=True)

    def prepare(
        self,
        memory: Float[Tensor, "*b m width"],
        start: Start = 0,
        span: Span | None = None,
        values: Float[Tensor, "*bv m width"] | None = None,
    ) -> Prepared:
        """Project keys and values and split them into heads, once for all later queries."""
        if memory.ndim < 2 or memory.shape[-1] != self.memory_size:
            check_width("memory", memory, self.memory_size)
        if values is not None:
            check_width("values", values, self.memory_size)
            if values.shape[-2] != memory.shape[-2]:
                raise ShapeError(f"values: {values.shape[-2]} given, expected one per key, {memory.shape[-2]}")
            keys, values = self.key(memory), self.value(values)
        # Adjacent rows of one matrix are a single product.
        elif self.projection is not None and are_original(self.key, self.value):
            whole, deep = self.projection, self.query_size
            bias = None if whole.bias is None else whole.bias[deep:]
            keys, values = apply_linear(memory, whole.weight[deep:], bias).split((deep, self.value_size), dim=-1)
        else:
            keys, values = self.key(memory), self.value(memory)
        turns = None if self.rotary is None else self.rotary_table(keys, start, span, keys=True)
        keys, values, score = self.split_heads(keys, turns), self.split_heads(values), self.attention.score
        if score.settled is None or score.settled[3] or torch.compiler.is_compiling():
            keys = score.project_keys(keys)
        return Prepared(keys, values, self)

    def cache(
        self,
        rows: int,
        size: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Cache:
        """Return an empty cache with room for `size` keys and values per row; `extend` fills it."""
        rows, size = check_positive(rows=rows, size=size)
        keys = (rows, self.heads, size, self.attention.score.projected_size(self.width))
        cache = empty_cache(self, keys, (rows, self.heads, size, self.value_size // self.heads), dtype, device)
        return cache if cache.keys.device.type == "cpu" else BeamIndexCache.from_cache(cache)

    # ---- for other parts of Regard

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """Return whether a training forward draws keys at random."""
        return self.attention.draws

    def has_step_kernel(self, query: Tensor, past: BeamIndexCache) -> bool:
        """Return whether the decode-step kernel can run a step without a span over this cache."""
        inner, widest = self.attention, max(past.keys.shape[-1], past.values.shape[-1])
        if self.training or type(inner) is not Attention or inner.span is not None or query.dtype != past.keys.dtype:
            return False
        if inner.score.fused_form != "bilinear" or inner.weighting.fused_name != "softmax" or widest > WIDEST:
            return False
        return backends.forced_backend() in (None, KERNEL) and planning.has_kernel(query.device.type, query.dtype)

    def project_inputs(
        self, x: Tensor, memory: Tensor | Prepared | None, span: Span | None, start: Start, values: Tensor | None = None
    ) -> tuple[Tensor, Prepared]:
        """Return the projected queries with a head axis, and the prepared keys."""
        if x.ndim < 2 or x.shape[-1] != self.size:
            check_width("x", x, self.size)
        projection, rotary = self.projection, self.rotary
        weight = (self.query if projection is None else projection)._parameters.get("weight")
        if weight is None or x.device != weight.device or x.dtype != weight.dtype:
            check_parameters(self.query if projection is None else projection, x=x)
        score = self.attention.score
        plain = score.settled is not None and not score.settled[3] and not torch.compiler.is_compiling()
        if isinstance(memory, Prepared):
            if memory.owner is not self:
                memory.check_owner(self, "memory")
            if x.device != memory.keys.device or x.dtype != memory.keys.dtype or not x.is_floating_point():
                check_alike(x=x, memory=memory.keys)
            if values is not None:
                raise ArgumentError(
                    "values: given together with a prepared memory, which has its own; give them to `prepare`"
                )
            query, prepared = self.query(x), memory.contents() if isinstance(memory, BeamIndexCache) else memory
        elif values is None and (memory is None or memory is x):
            if self.memory_size != self.size:
                raise ShapeError(f"memory: x itself given, expected width {self.memory_size}, the memory's")
            prepared = None
            if projection is not None and are_original(self.query, self.key, self.value):
                deep, wide = self.query_size, self.value_size
                if rotary is not None and plain:  # queries and keys lie side by side and rotate by the same angles
                    both, values = projection(x).split((2 * deep, wide), dim=-1)
                    both = both.unflatten(-1, (2 * self.heads, -1)).transpose(-3, -2)
                    query, keys = rotary.rotate(both, self.rotary_table(both, start, span)).chunk(2, dim=-3)
                    return query, Prepared(keys, values.unflatten(-1, (self.heads, -1)).transpose(-3, -2), self)
                query, keys, values = projection(x).split((deep, deep, wide), dim=-1)
            else:
                query, keys, values = self.query(x), self.key(x), self.value(x)
        else:
            memory = x if memory is None else memory
            if memory.ndim < 2 or memory.shape[-1] != self.memory_size:
                check_width("memory", memory, self.memory_size)
            alike = x.device == memory.device and x.dtype == memory.dtype and x.is_floating_point()
            if values is not None or not alike:
                check_alike(x=x, memory=memory, values=memory if values is None else values)
            if memory.shape[-2] == 0:
                raise ShapeError(f"memory: {list(memory.shape)} given, expected at least one key")
            first = start if memory is x else 0
            query, prepared = self.query(x), self.prepare(memory, first, span, values)
        query = query.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        turns = None if rotary is None else self.rotary_table(query, start, span)
        if rotary is not None and turns is not None:
            query = rotary.rotate(query, turns)
        query = query if plain else score.project_query(query)
        if prepared is not None:
            return query, prepared
        assert values is not None
        keys, values = (each.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for each in (keys, values))
        if rotary is not None and turns is not None:
            keys = rotary.rotate(keys, turns)
        return query, Prepared(keys if plain else score.project_keys(keys), values, self)

    def split_heads(self, x: Tensor, turns: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Reshape [*b n D] to [*b a n d], and rotate it if positions are rotary."""
        x = x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        return x if self.rotary is None or turns is None else self.rotary.rotate(x, turns)

    def rotary_table(self, x: Tensor, start: Start, span: Span | None, keys: bool = False) -> tuple[Tensor, Tensor]:
        """Return the sines and cosines that rotate queries or keys at every position; a shared span caches them."""
        rotary = self.rotary
        assert rotary is not None
        count, whole = x.shape[-2], start if isinstance(start, int) else id(start)
        place = "rotary", rotary.size, count, x.device, x.dtype, whole, keys
        if type(span) is Shared and place in span.made:
            made: tuple[Tensor, Tensor] = span.made[place]
            return made
        index = position_index(count, x.device, start, span, keys)
        turns = rotary.table(index if index.ndim == 1 else index.unsqueeze(-2), x.dtype)  # add a head axis
        if type(span) is Shared:
            span.made[place] = turns
        return turns

    def merge_heads(self, context: Float[Tensor, "*b a n d"]) -> Float[Tensor, "*b n out"]:
        """Concatenate the heads, and apply W^O if there is one."""
        side_by_side = context.transpose(-3, -2).flatten(-2)
        output = self.output
        return side_by_side if output is None else output(side_by_side)

    def extra_repr(self) -> str:
        return f"{self.size}, heads={self.heads}, query_size={self.query_size}, value_size={self.value_size}"


class ProjectionRows(nn.Module):
    """Some rows of the projection that q, k and v share: a separate module, so that it can have hooks."""

    def __init__(self, heads: "Heads", first: int, last: int):
        super().__init__()
        self.heads = (heads,)  # in a tuple, so that its parameters are not registered twice
        self.first, self.last = first, last

    def forward(self, x: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n e"]:
        """Return the product of x with these rows."""
        whole = self.heads[0].projection
        assert whole is not None
        bias = None if whole.bias is None else whole.bias[self.first : self.last]
        return apply_linear(x, whole.weight[self.first : self.last], bias)

    def extra_repr(self) -> str:
        return f"rows {self.first} … {self.last}"


class SlicedProjection(nn.Module):
    """One projection per head, each from its own slice of the input."""

    def __init__(self, size: int, out: int, heads: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, out // heads, size // heads))
        for matrix in self.weight.data:
            nn.init.xavier_uniform_(matrix)
        self.bias = nn.Parameter(torch.zeros(out)) if bias else None

    def forward(self, x: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n e"]:
        """Project [*b n d] to [*b n e], with the heads side by side."""
        slices = x.unflatten(-1, (self.weight.shape[0], -1)).transpose(-3, -2)
        projected = (slices @ self.weight.mT).transpose(-3, -2).flatten(-2)
        return projected if self.bias is None else projected + self.bias


def xavier_linear(size: int, out: int, bias: bool) -> nn.Linear:
    """Return a projection with Xavier initialisation, as in Transformers."""
    module = Linear(size, out, bias=bias)
    nn.init.xavier_uniform_(module.weight)
    if bias:
        nn.init.zeros_(module.bias)
    return module


def are_original(*parts: nn.Module) -> bool:
    """Return whether these are still the original ProjectionRows, without hooks."""
    for part in parts:
        if not isinstance(part, ProjectionRows) or len(part._forward_hooks) > 0 or len(part._forward_pre_hooks) > 0:
            return False
        if len(part._backward_hooks) > 0 or len(part._backward_pre_hooks) > 0:
            return False
    return True


def parse_arguments(
    values: Tensor | Span | None, span: Span | Start | None, start: Start
) -> tuple[Tensor | None, Span | None, Start]:
    """Return values, span and start; a call without values may be (x, memory, span, start)."""
    if isinstance(span, Span) or span is None:
        if not isinstance(values, Span):
            return values, span, start
        if span is not None:
            raise ArgumentError(
                f"values: {values!r} given together with span={span!r}, expected a tensor; join spans with &"
            )
        return None, values, start
    if isinstance(values, Tensor):
        raise ArgumentError(f"span: {type(span).__name__} given, expected a Span such as Lengths or Causal")
    return None, values, span


def check_width(name: str, x: Tensor, size: int) -> None:
    """Raise ShapeError unless the tensor is [*b n size]."""
    if x.ndim == 1:
        raise ShapeError(
            f"{name}: {list(x.shape)} given, expected [*b n {size}]; for a single vector give {name}[None]"
        )
    if x.ndim < 2 or x.shape[-1] != size:
        raise ShapeError(f"{name}: {list(x.shape)} given, expected width {size}: [*b n {size}]")


# ---- one score per head


class PerHead(Score, delegates=True):
    """One score per head, each with its own parameters; heads are the last leading dimension."""

    def __init__(self, scores: list[Score]):
        super().__init__()
        for score in scores:
            if not isinstance(score, Score):
                raise ArgumentError(f"score: a factory of {type(score).__name__} given, expected a factory of scores")
        # The form of each score, and its scale if a kernel needs it.
        kinds = {(each.fused_form, each.scale(64) if each.fused_form == "bilinear" else 1.0) for each in scores}
        if len(kinds) > 1:
            raise ArgumentError(
                "score: a factory of scores that differ in kind given, expected the same kind for all heads"
            )
        self.scores = nn.ModuleList(scores)

    @property
    def head_scores(self) -> list[Score]:
        """The score of each head; all have one form."""
        return cast(list[Score], list(self.scores))

    @property
    def fused_form(self) -> str:
        """The form of every head's score."""
        return self.head_scores[0].fused_form

    def project_query(self, query: Float[Tensor, "*b a n d"]) -> Float[Tensor, "*b a n p"]:
        return torch.stack(
            [score.project_query(q) for score, q in zip(self.head_scores, query.unbind(-3), strict=True)], dim=-3
        )

    def project_keys(self, keys: Float[Tensor, "*b a m d"]) -> Float[Tensor, "*b a m p"]:
        return torch.stack(
            [score.project_keys(k) for score, k in zip(self.head_scores, keys.unbind(-3), strict=True)], dim=-3
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
        return self.head_scores[0].scale(width)

    def projected_size(self, key_size: int) -> int:
        return self.head_scores[0].projected_size(key_size)

    @property
    def vector(self) -> Tensor | None:
        vectors = [score.vector for score in self.head_scores if score.vector is not None]
        return torch.stack(vectors) if vectors else None


def join_scores(scores: list[Score]) -> Score:
    """Return the heads' scores as one; dot products have no parameters, so one of them serves all heads."""
    dots = [score for score in scores if type(score) is Dot and score.fused_form == "bilinear"]
    if len(dots) == len(scores) and len({dot.scaled for dot in dots}) == 1:
        return dots[0]
    return PerHead(scores)
