"""A decoder step for a few rows on a CPU, as one sequence of matrix products.

`Block.forward` is the specification. The step of one sentence has so little arithmetic that most of its time is
overhead: modules, spans, views of weights. This module looks up everything that stays the same between steps once per
state; only the products, the norms and the attentions remain in a step.
"""

# r rows · s sentences · a heads · d width of the model · w width of a head · m source positions · t steps so far
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.nn.utils.parametrize import ParametrizationList, type_before_parametrizations

from regard.attention.attention import Attention
from regard.attention.block import Block, GELUDropout, ReLUDropout, SiLUDropout, Stack
from regard.attention.cache import Cache, Prepared, SharedBeamCache, State
from regard.attention.fused_stack import KNOWN_FEEDS, ROTARY, heads_features
from regard.attention.heads import Heads, are_original
from regard.attention.positions import Rotary, near_pairs
from regard.attention.score import CHANGES, OLD_NAMES, Dot
from regard.attention.span import Span
from regard.kernels import backends, linear

NAME = "_fused_step"  # the decoder's attribute that holds its FusedStep
OWN = {"forward", "rotate", "table", *OLD_NAMES, *CHANGES}  # functions that a user may replace on a single module
LARGE = 1 << 19  # elements of a weight that `linear` may pack for the steps of several rows
ROWS = 15  # most rows: with more, the overhead between products is small beside the products
ACTIVATIONS: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    ReLUDropout: torch.relu_,
    GELUDropout: F.gelu,
    SiLUDropout: F.silu,
}

Function = Callable[[Tensor], Tensor]


class Parts(NamedTuple):
    """What a block computes with: its functions of tensors and its numbers, each looked up once."""

    norms: tuple[Function, Function, Function]
    heads: int
    depth: int  # width of the queries of all heads
    scale: float
    turns: tuple[Tensor, Tensor] | None  # cosine and signed sine of each element's angle, for each position
    project: Function  # to queries, keys and values side by side
    merge: Function
    query: Function  # of the cross-attention
    memory_scale: float
    merge_memory: Function
    feed: Function | None


class FusedStep:
    """The fused step of a decoder, valid in this process until one of its modules, weights or options is replaced."""

    def __init__(self, decoder: Stack):
        blocks = list[Any](decoder.blocks)
        self.modules = list(decoder.modules())
        self.hooks = [hooks for each in self.modules for hooks in (each._forward_hooks, each._forward_pre_hooks)]
        self.fingerprint = take_fingerprint(self.modules)
        kinds = {(getattr(block, "norm", None), getattr(block, "has_residual", None)) for block in blocks}
        own = any(OWN & vars(module).keys() for module in self.modules)
        self.known = len(kinds) == 1 and is_norm(decoder.final_norm) and all(map(is_known, blocks)) and not own
        self.dtypes = {parameter.dtype for parameter in decoder.parameters()}
        self.parts: list[Parts] = []
        if self.known:
            self.pre, self.residual = blocks[0].norm == "pre", blocks[0].has_residual
            self.parts = [look_up(block) for block in blocks]
            self.final_norm = norm_function(decoder.final_norm)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Leave it out of copies, which have other weights."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        """Leave it out of pickles."""
        return type(None), ()

    def is_current(self) -> bool:
        """Return whether the decoder still has the modules, weights and options that were looked up."""
        return self.fingerprint == take_fingerprint(self.modules)

    def is_free(self) -> bool:
        """Return whether no hook, training mode, gradient, forced backend or autocast rules out the fused step."""
        if _has_any_global_hook() or any(self.hooks) or self.modules[0].training or torch.is_grad_enabled():
            return False
        return backends.forced_backend() is None and not torch.is_autocast_enabled("cpu")

    def run(self, x: Float[Tensor, "r 1 d"], state: State) -> Float[Tensor, "r 1 d"]:
        """Run the next step of every row; the caches advance in place."""
        x, row = x[:, 0], state.row
        count, pre = len(x), self.pre
        first: Cache = row["past.0"]
        bounds = first.length_range()
        assert bounds is not None
        together = isinstance(first, SharedBeamCache)
        place = bounds[0] if bounds[0] == bounds[1] else first.length
        mask: Tensor | None = None
        angle: tuple[Tensor, Tensor] | None = None
        for i, part in enumerate(self.parts):
            cache: Cache = row[f"past.{i}"]
            projected = part.project(part.norms[0](x) if pre else x)
            both = projected[:, : 2 * part.depth].view(count, 2 * part.heads, 1, -1)
            if part.turns is not None:  # queries and keys lie side by side and rotate by the same angles
                if angle is None:  # one position for all rows, or one per row and a head axis
                    at = place if isinstance(place, int) else (place, None, None)
                    angle = part.turns[0][at], part.turns[1][at]
                neighbours = both.view(count, 2 * part.heads, 1, -1, 2).flip(-1).view_as(both)
                both = torch.addcmul(both * angle[0], neighbours, angle[1])
            query, keys = both[:, : part.heads], both[:, part.heads :]
            cache.write_(keys, projected[:, 2 * part.depth :].view(count, part.heads, 1, -1), bounds)
            filled = cache.used if isinstance(cache, SharedBeamCache) else bounds[1] + 1
            # A row sees the slots of its own past, or its own keys if rows have different lengths.
            if mask is None and isinstance(cache, SharedBeamCache):
                mask = forbid(~cache.lineage[:, None, :, :filled], query.dtype)
            elif mask is None and bounds[0] != bounds[1]:
                mask = forbid((torch.arange(filled) >= cache.length[:, None])[:, None, None], query.dtype)
            past = cache.keys[:, :, :filled], cache.values[:, :, :filled]
            if together:  # the rows of a sentence attend together to its shared cache: [r a 1 w] -> [s a r w]
                query = query.view(-1, state.rows, part.heads, query.shape[-1]).transpose(1, 2)
            context = F.scaled_dot_product_attention(query, *past, attn_mask=mask, scale=part.scale)
            context = context.transpose(1, 2) if together else context
            x = self.add(x, part.merge(context.reshape(count, -1)), part.norms[0])
            query = part.query(part.norms[1](x) if pre else x)
            query = query.view(-1, state.rows, part.heads, query.shape[-1] // part.heads).transpose(1, 2)
            memory: Prepared = state.sentence[f"memory.{i}"]
            context = F.scaled_dot_product_attention(
                query, memory.keys, memory.values, attn_mask=state.memory_mask, scale=part.memory_scale
            )
            x = self.add(x, part.merge_memory(context.transpose(1, 2).reshape(count, -1)), part.norms[1])
            if part.feed is not None:
                x = self.add(x, part.feed(part.norms[2](x) if pre else x), part.norms[2])
        return self.final_norm(x)[:, None]

    def add(self, x: Tensor, y: Tensor, norm: Function) -> Tensor:
        """Add a part's output to its input, in place in the output; apply the norm if it comes after the residual."""
        y = y.add_(x) if self.residual else y
        return y if self.pre else norm(y)


def find_step(decoder: Stack, x: Float[Tensor, "r n d"], state: State, span: Span | None) -> FusedStep | None:
    """Return the decoder's fused step if it can run this step, otherwise None."""
    if x.device.type != "cpu" or len(x) > ROWS or span is not None or torch.compiler.is_compiling():
        return None  # cheap checks before the blocks are examined
    if state.fused is None:
        step = vars(decoder).get(NAME)
        if step is None or not step.is_current():
            step = vars(decoder)[NAME] = FusedStep(decoder)
        visible = visible_memory(state)
        state.fused = step if serves(step, x, state, visible) else False
        state.memory_mask = None if visible is None else forbid(~visible[:, None], x.dtype)
    fused = state.fused
    return fused if isinstance(fused, FusedStep) and x.shape[1] == 1 and fused.is_free() else None


def serves(step: FusedStep, x: Tensor, state: State, visible: Tensor | None) -> bool:
    """Return whether this can run a state's steps: all its caches are known, and every row sees a source position."""
    if not step.known or not step.is_free() or "coverage" in state.row or x.shape[1] > 1:
        return False
    caches = list(state.row.values())
    if any(type(cache) not in (Cache, SharedBeamCache) or type(cache) is not type(caches[0]) for cache in caches):
        return False
    dtypes = {x.dtype, *step.dtypes, *(cache.keys.dtype for cache in caches)}
    return dtypes <= {torch.float32, torch.float64} and (visible is None or bool(visible.any(-1).all()))


def take_fingerprint(modules: list[nn.Module]) -> list[object]:
    """Return values that differ once a module, weight or option is replaced; a parametrised weight always differs."""
    found = list[object]()
    for module in modules:
        found.append(OWN & vars(module).keys())
        found += map(id, module._modules.values())
        found += [None if each is None else each.data_ptr() for each in module._parameters.values()]
        if isinstance(module, Block):
            found += (module.norm, module.has_residual)
        elif type(module) is Heads and type(module.attention) is Attention and type(module.attention.score) is Dot:
            found.append(scale_of(module))
        elif isinstance(module, ParametrizationList):
            found.append(object())
    return found


def is_known(block: nn.Module) -> bool:
    """Return whether a block consists of known modules, and its projections have no hooks."""
    if type(block) is not Block or block.cross is None:
        return False
    for heads in (block.attention, block.cross):
        if not {ROTARY}.issuperset(heads_features(heads, any_width=True)):
            return False
        if not are_original(heads.query, heads.key, heads.value):
            return False
    if block.cross.rotary is not None or type(block.attention.rotary) not in (Rotary, type(None)):
        return False
    feed = block.feed
    if feed is not None and (
        type(feed) is not nn.Sequential or [type_before_parametrizations(part) for part in feed] not in KNOWN_FEEDS
    ):
        return False
    return all(map(is_norm, (block.attention_norm, block.cross_norm, block.feed_norm)))


def is_norm(norm: nn.Module | None) -> bool:
    """Return whether this is a layer norm, an identity or None."""
    return norm is None or type(norm) in (nn.LayerNorm, nn.Identity)


def look_up(block: Any) -> Parts:
    """Look up the functions and numbers of a block."""
    itself, across, deep = block.attention, block.cross, block.cross.query_size
    rotary = itself.rotary
    return Parts(
        (norm_function(block.attention_norm), norm_function(block.cross_norm), norm_function(block.feed_norm)),
        itself.heads,
        itself.query_size,
        scale_of(itself),
        None if rotary is None else near_pairs(rotary.size, itself.projection.weight.dtype),
        linear_function(itself.projection),
        linear_function(itself.output),
        linear_function(across.projection, deep),
        scale_of(across),
        linear_function(across.output),
        None if block.feed is None else feed_function(*block.feed),
    )


def scale_of(heads: Heads) -> Any:
    """Return the scale of the scores, with the softmax's temperature."""
    inner = heads.attention
    return inner.score.scale(heads.width) / inner.weighting.temperature


def linear_function(module: Any, rows: int | None = None) -> Function:
    """Return the function x Wᵀ + b of a module, or of its matrix's first rows; it returns a new tensor."""
    weight, bias = module.weight[:rows], None if module.bias is None else module.bias[:rows]
    if weight.numel() >= LARGE:
        return lambda x: linear(x, weight, bias)
    turned = weight.t()
    return (lambda x: x @ turned) if bias is None else lambda x: torch.addmm(bias, x, turned)


def feed_function(inner: nn.Module, active: nn.Module, outer: nn.Module) -> Function:
    """Return the feed-forward net as a function; its activation may overwrite its input."""
    first, middle, last = linear_function(inner), ACTIVATIONS[type(active)], linear_function(outer)
    return lambda x: last(middle(first(x)))


def norm_function(module: nn.Module | None) -> Function:
    """Return a module's layer norm as a function, or the identity."""
    if not isinstance(module, nn.LayerNorm):
        return lambda x: x
    shape, weight, bias = list(module.normalized_shape), module.weight, module.bias
    return lambda x: torch.layer_norm(x, shape, weight, bias, module.eps)


def forbid(hidden: Bool[Tensor, "*b"], dtype: torch.dtype) -> Float[Tensor, "*b"]:
    """Return a bias for the scores: -inf where `hidden` is true, otherwise 0."""
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)


def visible_memory(state: State) -> Bool[Tensor, "s 1 m"] | None:
    """Return which source positions each sentence has; None if it has all of them."""
    lengths, visible = state.sentence.get("lengths"), state.sentence.get("mask")
    if lengths is not None:
        count = state.sentence["memory.0"].keys.shape[-2]
        if min(lengths.tolist(), default=count) < count:
            there = torch.arange(count) < lengths[:, None, None]
            visible = there if visible is None else visible & there
    return visible
