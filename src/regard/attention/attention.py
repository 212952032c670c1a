r"""Attention: from a query and a set of key-value pairs to a weighted sum of the values, $c_i = \sum_j a_{ij} v_j$.

Every attention in the literature is a choice of three parts: a Score, a Span and a Weighting.
"""

# b batch · n queries · m keys, or the keys of a block · dq query width · dk key width · dv value width
import math
from collections.abc import Iterable
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.cache import Cache, Prepared, empty_cache
from regard.attention.checks import (
    check_alike,
    check_dropout,
    check_parameters,
    check_positive,
    check_rows,
    check_shapes,
    check_type,
)
from regard.attention.look import Attentive, Look
from regard.attention.score import Score, check_location, compare_from
from regard.attention.span import (
    Causal,
    Lengths,
    Mask,
    Packed,
    Predictive,
    Shared,
    Span,
    is_exactly,
    join,
    narrow_limits,
    parts_of,
    split_packed,
)
from regard.attention.weighting import Softmax, Weighting, weigh_checked
from regard.errors import ArgumentError, ShapeError
from regard.kernels import (
    Call,
    Layout,
    Plan,
    SharedLimits,
    SpanLimits,
    add_bias,
    backends,
    broadcast,
    describe,
    matmul_wide,
    widen,
)
from regard.kernels import additive_chunked as chunked


class Learned(nn.Module):
    """Learned queries: `count` parameter vectors. HAN's word and sentence vectors are one query each."""

    def __init__(self, count: int, size: int):
        super().__init__()
        count, size = check_positive(count=count, size=size)
        self.vectors = nn.Parameter(torch.empty(count, size))
        nn.init.normal_(self.vectors).data.div_(math.sqrt(size))

    def forward(self) -> Float[Tensor, "count size"]:
        """Return the learned queries."""
        return self.vectors

    def extra_repr(self) -> str:
        return f"{self.vectors.shape[0]}, {self.vectors.shape[1]}"


class Attention(Attentive):
    """A score, a span and a weighting, combined.

    `query=Learned(…)` makes the queries parameters; call it with None instead of a query. The span given here holds for
    every call, joined with the call's own. In training, dropout applies to the weights, which are not renormalised.
    """

    def __init__(
        self,
        score: Score,
        *,
        span: Span | None = None,
        weighting: Weighting | None = None,
        query: Learned | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.score = check_type("score", score, Score)
        self.span = check_type("span", span, Span)
        self.weighting = Softmax() if weighting is None else check_type("weighting", weighting, Weighting)
        self.query = check_type("query", query, Learned)
        self.dropout = check_dropout(dropout)

    def forward(
        self,
        query: Float[Tensor, "*bq n dq"] | None,
        keys: Float[Tensor, "*bk m dk"] | Prepared,
        values: Float[Tensor, "*bv m dv"] | None = None,
        span: Span | None = None,
    ) -> Float[Tensor, "*b n dv"]:
        """Return the context of every query; without `values`, the keys are the values."""
        query, prepared = self.check_inputs(query, keys, values)
        return self.attend_projected(self.score.project_query(query), prepared, query, span)

    def prepare(self, keys: Float[Tensor, "*bk m dk"], values: Float[Tensor, "*bv m dv"] | None = None) -> Prepared:
        """Project the keys once for all later queries; the result is accepted wherever keys are."""
        check_rows(keys=keys)
        if self.score.key_size is not None and keys.shape[-1] != self.score.key_size:
            name = type(self.score).__name__
            raise ShapeError(f"keys: width {keys.shape[-1]} given, {name} expects {self.score.key_size}")
        return Prepared(self.score.project_keys(keys), keys if values is None else values, self)

    def cache(
        self,
        rows: int,
        size: int,
        *,
        keys: int,
        values: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Cache:
        """Return an empty cache for `size` keys (width `keys`) and values (width `values`) per row, to `extend`."""
        rows, size = check_positive(rows=rows, size=size)
        key_shape = (rows, size, self.score.projected_size(keys))
        return empty_cache(self, key_shape, (rows, size, values), dtype, device)

    def look(
        self,
        query: Float[Tensor, "*bq n dq"] | None,
        keys: Float[Tensor, "*bk m dk"] | Prepared,
        values: Float[Tensor, "*bv m dv"] | None = None,
        span: Span | None = None,
    ) -> Look:
        """Attend, and return every stage: scores, weights and context, from one differentiable pass and one sample."""
        query, prepared = self.check_inputs(query, keys, values)
        return self.look_projected(self.score.project_query(query), prepared, query, span)

    def backend(self, *args: Any, **kwargs: Any) -> str:
        """Return the name of the backend that would serve a call of these arguments."""
        return self.plan(*args, **kwargs).name

    def plan(
        self,
        query: Float[Tensor, "*bq n dq"] | None,
        keys: Float[Tensor, "*bk m dk"] | Prepared,
        values: Float[Tensor, "*bv m dv"] | None = None,
        span: Span | None = None,
    ) -> Plan:
        """Return which backend would run this call, and why those before it do not; it prints one line for each."""
        query, prepared = self.check_inputs(query, keys, values)
        return self.plan_projected(self.score.project_query(query), prepared, query, span)

    def fold(
        self,
        query: Float[Tensor, "*bq n dq"] | None,
        blocks: Iterable[tuple[Tensor | Prepared, Tensor | None]],
        span: Span | None = None,
    ) -> Float[Tensor, "*b n dv"]:
        """Return the context over blocks of (keys, values) from an iterator of any length.

        Without values (None), a block's keys are its values, as in `forward`; keys may be Prepared.

        Partial softmaxes are merged by log-sum-exp. Without gradients, memory does not grow with the number of blocks;
        with gradients, every block's graph is kept.
        """
        prepared = (self.check_inputs(query, keys, values)[1] for keys, values in blocks)
        dropout = self.dropout if self.training else 0.0
        return fold(self._resolve_query(query), prepared, join(self.span, span), self.score, self.weighting, dropout)

    # ---- for other parts of Regard

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """Return whether a training forward draws keys at random."""
        return self.weighting.draws and self.weighting.training

    def _resolve_query(self, query: Tensor | None) -> Tensor:
        """Return the call's query, or the learned one."""
        if query is None:
            if self.query is None:
                raise ArgumentError("query: None given, expected a tensor [*b n dq] (only query=Learned(…) needs none)")
            return cast(Tensor, self.query())
        if self.query is not None:
            raise ArgumentError("query: a tensor given, expected None: this attention's query is Learned")
        return query

    def check_inputs(
        self, query: Tensor | None, keys: Tensor | Prepared, values: Tensor | None
    ) -> tuple[Tensor, Prepared]:
        """Return the query and the prepared keys of a call, after checking them."""
        query = self._resolve_query(query)
        if isinstance(keys, Prepared):
            keys.check_owner(self)
            prepared, key_width = keys, None
            if values is not None:
                prepared = Prepared(keys.keys, values, self, keys.length)
        else:
            check_rows(query=query, keys=keys)
            key_width = keys.shape[-1]
            prepared = None
        self.score.check(query.shape[-1], key_width)
        check_parameters(self.score, query=query)
        if prepared is None:
            assert isinstance(keys, Tensor)
            check_alike(query=query, keys=keys, values=keys if values is None else values)
            prepared = self.prepare(keys, values)
        else:
            check_alike(query=query, keys=prepared.keys, values=prepared.values)
        check_shapes(query, prepared.keys, prepared.values)
        return query, prepared

    def attend_projected(
        self, projected_query: Tensor, prepared: Prepared, query: Tensor, span: Span | None, heads: bool = False
    ) -> Tensor:
        """Attend after the projections; with `heads`, only `projected_query` and `prepared` have a head axis."""
        if type(span) is Shared and span.packed is None and self.span is None and not isinstance(prepared, Cache):
            call, padded = self.resolve_call(projected_query, prepared, query, span, heads), None
        else:
            call, padded = self.resolve(projected_query, prepared, query, span, heads)
        context = backends.choose(describe(call)).attend(call)
        return context if padded is None else padded.unpad(context, heads)

    def attend_within(self, projected_query: Tensor, prepared: Prepared, limits: SpanLimits) -> Tensor:
        """Attend after the projections, within limits that the caller has resolved."""
        call = self._build_call(projected_query, prepared.keys, prepared.values, limits)
        return backends.choose(describe(call)).attend(call)

    def look_projected(
        self, projected_query: Tensor, prepared: Prepared, query: Tensor, span: Span | None, heads: bool = False
    ) -> Look:
        """Return the look, after the projections."""
        span = join(self.span, span)
        packed, rest = split_packed(span)
        if packed is None:
            return self.dense_look(self.resolve_call(projected_query, prepared, query, span, heads), span)
        packed = packed.to(projected_query.device)
        call = self.resolve_call(*self.pad_packed(projected_query, prepared, query, packed, rest, heads), heads)
        look = self.dense_look(call, span)

        def rows(tensor: Tensor | None) -> Tensor | None:  # [s (a) N] -> [(a) ΣN]
            return None if tensor is None else packed.unpad(tensor[..., None], heads and tensor.ndim > 2)[..., 0]

        return Look(
            packed.unpad(look.context, heads),
            packed.unpad_pairs(look.scores, heads),
            packed.unpad_pairs(look.weights, heads),
            rows(look.picked),
            rows(look.log_prob),
            rows(look.centre),
            None if look.probabilities is None else packed.unpad_pairs(look.probabilities, heads),
            shapes(projected_query, prepared.keys, prepared.values),
            look.how,
        )

    def plan_projected(
        self, projected_query: Tensor, prepared: Prepared, query: Tensor, span: Span | None, heads: bool = False
    ) -> Plan:
        """Return the plan of the forward, after the projections."""
        return backends.plan(describe(self.resolve(projected_query, prepared, query, span, heads)[0]))

    def resolve(
        self, projected_query: Tensor, prepared: Prepared, query: Tensor, span: Span | None, heads: bool
    ) -> tuple[Call, Packed | None]:
        """Return the call to run, and the Packed if its sequences were padded for it, to unpad the context."""
        if type(span) is Shared and self.span is None:
            packed, rest = span.packed, span.rest
        elif span is None and self.span is None:
            packed, rest = None, []
        else:
            span = join(self.span, span)
            packed, rest = split_packed(span)
        if packed is None:
            if isinstance(prepared, Cache) and not any(isinstance(part, Mask) for part in rest):
                prepared = prepared.contents()  # a mask covers the cache's whole size
            return self.resolve_call(projected_query, prepared, query, span, heads), None
        packed = packed.to(projected_query.device)
        call = self.resolve_packed_call(projected_query, prepared, packed, rest)
        if backends.packed_natively(describe(call)):
            return call, None
        inputs = self.pad_packed(projected_query, prepared, query, packed, rest, heads)
        return self.resolve_call(*inputs, heads), packed

    def resolve_call(
        self, projected_query: Tensor, prepared: Prepared, query: Tensor, span: Span | None, heads: bool
    ) -> Call:
        """Resolve the span into limits, and return the call with everything a backend needs."""
        keys, values = prepared.keys, prepared.values
        batch = projected_query.shape[:-2]
        if not batch == keys.shape[:-2] == values.shape[:-2]:
            batch = torch.Size(broadcast(batch, keys.shape[:-2], values.shape[:-2]))
        n, m, device = projected_query.shape[-2], keys.shape[-2], projected_query.device
        if type(span) is Shared and prepared.length is None:
            shape = batch, n, m, device, heads, query.dtype
            limits: SpanLimits | None = span.made.get(shape)
            if limits is None:
                limits = span.made[shape] = SharedLimits(**vars(narrowed(span, batch, n, m, query, None, heads)))
        else:
            limits = narrowed(span, batch, n, m, query, prepared.length, heads)
        for slopes, _ in limits.slopes:
            if not batch or batch[-1] != len(slopes):
                raise ShapeError(f"Alibi: {len(slopes)} heads given, expected {batch[-1] if batch else 'a head axis'}")
        if limits.window is not None:
            check_location(self.score)
        return self._build_call(projected_query, keys, values, limits)

    def resolve_packed_call(
        self, projected_query: Tensor, prepared: Prepared, packed: Packed, rest: list[Span]
    ) -> Call:
        """Return the call for packed sequences without padding, for a kernel that takes offsets."""
        packed.check(projected_query.shape[-2], prepared.keys.shape[-2])
        limits = SpanLimits(
            projected_query.shape[-2],
            prepared.keys.shape[-2],
            projected_query.device,
            causal=0 if any(is_exactly(part, Causal) for part in rest) else None,
            layout=Layout(packed.offsets, packed.key_offsets, packed.longest, packed.longest_key),
            needs_padding=not all(  # kernels for packed sequences support only causality from 0 on
                isinstance(part, Causal)
                and is_exactly(part, Causal)
                and isinstance(part.start, int)
                and part.start == 0
                for part in rest
            ),
        )
        return self._build_call(projected_query, prepared.keys, prepared.values, limits)

    def pad_packed(
        self, projected_query: Tensor, prepared: Prepared, query: Tensor, packed: Packed, rest: list[Span], heads: bool
    ) -> tuple[Tensor, Prepared, Tensor, Span]:
        """Pad packed queries, keys and values to one row per sequence, with a span to match."""
        for name, tensor in (("query", projected_query), ("keys", prepared.keys), ("values", prepared.values)):
            if tensor.ndim != 2 + heads:
                shape = list(tensor.shape)
                raise ShapeError(f"{name}: {shape} given, expected one row per token with Packed sequences")
        packed.check(projected_query.shape[-2], prepared.keys.shape[-2])
        keys, values = packed.pad_keys(prepared.keys, heads), packed.pad_keys(prepared.values, heads)
        return (
            packed.pad_queries(projected_query, heads),
            Prepared(keys, values, prepared.owner),
            packed.pad_queries(query),
            packed.padded_span(rest),
        )

    def _build_call(self, query: Tensor, keys: Tensor, values: Tensor, limits: SpanLimits) -> Call:
        """Return the call with its functions and numbers; under autocast, all tensors get one dtype."""
        if torch.is_autocast_enabled(query.device.type):
            dtype = torch.get_autocast_dtype(query.device.type)
            if not query.dtype == keys.dtype == values.dtype == torch.float64:
                query, keys, values = (x.to(dtype) for x in (query, keys, values))
        width, compiling = query.shape[-1], torch.compiler.is_compiling()
        score, weigh = self.score, self.weighting
        settled = None if compiling else score.settled
        form, scale = settled[1:3] if settled is not None and settled[0] == width else score.settle(width)
        if form != "other" and width != keys.shape[-1]:
            raise ShapeError(f"keys: width {keys.shape[-1]} given, expected the query's, {width} (both projected)")
        weighting = None if compiling else weigh.settled
        if weighting is None:
            weighting = weigh.settle()
        return Call(
            query,
            keys,
            values,
            limits,
            compare=score.compare,
            weigh=weigh,
            score=form,
            weighting=weighting[0],
            scale=scale,
            vector=score.vector if form == "additive" else None,
            temperature=weighting[1],
            dropout=self.dropout if self.training else 0.0,
        )

    def dense_look(self, call: Call, span: Span | None) -> Look:
        """Compute every stage of a call by its definition."""
        rows = math.prod(broadcast(call.query.shape[:-2], call.keys.shape[:-2]))
        if (
            call.vector is not None
            and rows * call.limits.queries * call.keys.shape[-2] * call.keys.shape[-1] >= backends.LARGE
        ):
            scores = chunked.scores(call.query, call.keys, call.vector)
        else:
            scores = call.compare(call.query, call.keys)
        gate = call.limits.gate()
        weighed = weigh_checked(self.weighting, add_bias(scores, call.limits), call.limits.mask())
        weights = weighed.weights if gate is None else weighed.weights * gate.to(weighed.weights.dtype)
        window = call.limits.window
        centre = None if window is None else window.centres(call.limits.queries, call.limits.device)
        if centre is not None:
            wide = torch.promote_types(scores.dtype, torch.float32)
            centre = centre.to(wide).expand(scores.shape[:-1])
        return Look(
            matmul_wide(weights, call.values).to(call.values.dtype),
            scores,
            weights,
            weighed.picked,
            weighed.log_prob,
            centre,
            weighed.probabilities,
            shapes(call.query, call.keys, call.values),
            " · ".join([describe_part(self.score), *map(describe_part, parts_of(span)), describe_part(self.weighting)]),
        )


def narrowed(
    span: Span | None, batch: tuple[int, ...], n: int, m: int, query: Tensor, length: Tensor | None, heads: bool
) -> SpanLimits:
    """Resolve a span for n queries and m keys, of which `length` exist; with `heads`, the batch ends in the heads."""
    alone, count = (batch[:-1], batch[-1]) if heads else (batch, None)
    if span is None and length is None:
        return SpanLimits(n, m, query.device, (*alone, 1) if heads else batch, heads=count)
    limits = SpanLimits(n, m, query.device, alone, heads=count)
    if length is not None:
        limits = limits.with_lengths(length, None)
    if span is not None:
        limits = narrow_limits(span, limits, query)
    return limits.over_heads() if heads else limits


def shapes(query: Tensor, keys: Tensor, values: Tensor) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a call's inputs, after the projections, for `explain`."""
    return {"query": tuple(query.shape), "keys": tuple(keys.shape), "values": tuple(values.shape)}


def describe_part(part: object) -> str:
    """Describe a module without its children."""
    return f"{type(part).__name__}({part.extra_repr()})" if isinstance(part, nn.Module) else repr(part)


# ---- blocks of keys from an iterator, by merging partial softmaxes


UNKNOWN = 1 << 60  # number of keys, not known yet


def fold(
    query: Tensor, blocks: Iterable[Prepared], span: Span | None, score: Score, weighting: Weighting, dropout: float
) -> Tensor:
    """Return the context of every query over the keys and values of all blocks."""
    if getattr(weighting.weigh, "__func__", None) is not Softmax.weigh:
        raise ArgumentError(f"fold: {type(weighting).__name__} given, expected Softmax, whose sums can be merged")
    parts = parts_of(span)
    if any(isinstance(part, Packed) for part in parts):
        raise ArgumentError("fold: Packed given, expected padded sequences")
    if any(isinstance(part, Predictive) for part in parts) and not any(isinstance(part, Lengths) for part in parts):
        raise ArgumentError("fold: Predictive given without Lengths, expected both: its centre needs the true length")
    widths = {part.mask.shape[-1] for part in parts if isinstance(part, Mask) and is_exactly(part, Mask)} - {1}
    expected = widths.pop() if widths else UNKNOWN
    state: tuple[Tensor, Tensor, Tensor] | None = None
    first = 0
    for prepared in blocks:
        last = first + prepared.keys.shape[-2]
        if last > expected:
            raise ShapeError(f"mask: {expected} keys given, expected at least {last}, the keys so far")
        new = fold_block(query, prepared, span, score, weighting.temperature, dropout, expected, first)
        if state is not None:  # rescale both to the higher maximum
            highest = torch.maximum(state[0], new[0])
            mine, theirs = torch.exp(state[0] - highest), torch.exp(new[0] - highest)
            new = highest, state[1] * mine + new[1] * theirs, state[2] * mine + new[2] * theirs
        state, first = new, last
    if state is None:
        raise ShapeError("blocks: none given, expected at least one (keys, values)")
    if first != expected != UNKNOWN:
        raise ShapeError(f"mask: {expected} keys given, expected {first}, the number of keys")
    for part in parts:
        if isinstance(part, Lengths) and part.max_length is not None and part.max_length > first:
            raise ShapeError(f"lengths: {part.max_length} given, expected 0 … {first}, the number of keys")
    # A query that sees no key has sums of zero; divided by one they stay zero, with finite gradients.
    _, total, weighted_sum = state
    return (weighted_sum / total.masked_fill(total == 0, 1.0)).to(query.dtype)


def fold_block(
    query: Tensor,
    prepared: Prepared,
    span: Span | None,
    score: Score,
    temperature: float,
    dropout: float,
    keys: int,
    first: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return one block's highest score, sum of exponentials [*b n 1] and sum of weighted values [*b n dv]."""
    projected_query = score.project_query(query)
    last = first + prepared.keys.shape[-2]
    batch = broadcast(projected_query.shape[:-2], prepared.keys.shape[:-2])
    limits = SpanLimits(projected_query.shape[-2], keys, projected_query.device, batch)
    if span is not None:
        try:
            limits = narrow_limits(span, limits, query)
        except RuntimeError as error:
            if keys != UNKNOWN:
                raise
            raise ArgumentError(
                f"fold: {span!r} given, whose `narrow` needs the number of keys, which is not known while blocks come"
            ) from error
    if limits.window is not None:
        check_location(score)
    scores = widen(compare_from(score, projected_query, prepared.keys, first))
    bias, gate, mask = (part(first, last) for part in (limits.bias, limits.gate, limits.mask))
    if prepared.length is not None:  # a cache that is not full
        there = torch.arange(last - first, device=projected_query.device) < prepared.length[..., None, None]
        mask = there if mask is None else mask & there
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    scores = scores / temperature
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    highest = scores.amax(-1, keepdim=True).detach()
    weights = torch.exp(scores - highest)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    total = weights.sum(-1, keepdim=True)
    if gate is not None:
        weights = weights * gate.to(weights.dtype)
    if dropout:
        weights = F.dropout(weights, dropout)
    return highest, total, matmul_wide(weights, prepared.values)
