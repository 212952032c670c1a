"""The stages inside an attention: their names and shapes for a graph, the numbers of one query for a walk.

They follow from the attention's own score, span and weighting: x, q, k, e, ÷ √d, mask, a, Σ a v, concatenation.
"""

# b rows of a batch: sentences of a document, otherwise one · m keys · d width · c any width
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Block,
    Causal,
    Cosine,
    Dot,
    General,
    GridSelfAttention,
    Heads,
    Lengths,
    Location,
    Look,
    Mask,
    Monotonic,
    Packed,
    PerHead,
    Predictive,
    Prepared,
    Score,
    Softmax,
    Span,
    Weighting,
    call_records,
    join,
    parse_arguments,
    parts_of,
)
from regard.inspection.collect.exhibit import Stage
from regard.inspection.collect.forward_pass import ForwardPass, Recording
from regard.kernels import Call

INPUT, ATTENTION = "The input", "Scores, weights, sum"  # headings of stages
FORMULAS: dict[type[Score], str] = {
    Dot: "q_i · k_j",
    General: "q_iᵀ W k_j",
    Additive: "vᵀ tanh(W q_i + U k_j)",
    Cosine: "β cos(q_i, k_j)",
    Location: "(W q_i)_j",
}
SPANS: dict[type[Span], str] = {  # what Regard's own spans mask or add; other spans appear by their class name
    Alibi: "ALiBi, by distance",
    Causal: "what comes later",
    Lengths: "padding",
    Monotonic: "|j − i| > {radius}",
    Predictive: "|j − p_i| > {radius}",
    Mask: "what a mask forbids",
    Packed: "other sentences",
}
Name = Literal["score", "scale", "bias", "mask", "weights", "gate", "sum", "concatenate"]
Source = Literal["q", "k", "v", "x"]  # projected query, keys and values; x, the query before its projection


@dataclass(frozen=True, eq=False)
class ResolvedCall:
    """A call of an attention with the tensors of each of its stages."""

    score: Score
    query: Tensor | None  # before the score's projection; None if it was not recorded
    call: Call
    look: Look
    heads: bool
    learned: bool = False
    rotated: bool = False  # by rotary positions
    memory: str = "x"  # symbol of the input of `Heads`' keys and values: x itself, or a memory m

    def row(self, tensor: Tensor, number: int = 0) -> Float[Tensor, "h x c"]:
        """Return one batch row of a tensor [*b (h) x c] of the call, with its heads."""
        full = tensor.expand(*self.look.weights.shape[:-2], *tensor.shape[-2:])
        full = full if self.heads else full.unsqueeze(-3)
        return full.reshape(-1, *full.shape[-3:])[number].float().cpu()


def call_of(forward: ForwardPass, name: str, row: int) -> tuple[ResolvedCall, int]:
    """Find the call that a view's row belongs to, and the row's index among the call's queries."""
    module = forward.looks.modules[name]
    for call in forward.looks.calls[name]:
        if isinstance(module, Attention) and module.query is not None:
            count = len(module.query.vectors)
        else:
            asking: Tensor = call.args[0] if call.args else next(iter(call.kwargs.values()))
            count = asking.shape[-2:].numel() if isinstance(module, GridSelfAttention) else asking.shape[-2]
        if row < count:
            return resolve_call(module, call, projections(forward.recording, name)), row
        row -= count
    raise AssertionError("a view has as many rows as its calls have queries")


def projections(recording: Recording, name: str) -> list[Tensor] | None:
    """Return the recorded outputs of the heads' query, key and value projections; None if they were not recorded."""
    parts = [f"{name}.{part}" for part in ("query", "key", "value")]
    if any(len(recording.calls.get(part, ())) != 1 for part in parts):
        return None
    return [recording.calls[part][0].output for part in parts]


def resolve_call(
    module: nn.Module, record: call_records.CallRecord, projected: list[Tensor] | None = None
) -> ResolvedCall:
    """Compute the tensors that an attention uses in a recorded call; `projected` contains the heads' q, k and v."""
    if isinstance(module, Heads):
        arguments = dict(zip(("x", "memory", "values", "span", "start"), record.args, strict=False)) | record.kwargs
        x, positional = arguments["x"], (arguments.get("values"), arguments.get("span"), arguments.get("start", 0))
        own_values, span, start = parse_arguments(*positional)
        memory = arguments.get("memory")
        own = memory is None or memory is x
        raw: Tensor | None = None
        if projected is None:
            projected_query, prepared = module.project_inputs(x, memory, span, start, own_values)
        else:
            query, keys, values = projected
            table = None if module.rotary is None else module.rotary_table(keys, start if own else 0, span, not own)
            raw = module.split_heads(query, None if module.rotary is None else module.rotary_table(query, start, span))
            projected_query = module.attention.score.project_query(raw)
            keys = module.attention.score.project_keys(module.split_heads(keys, table))
            prepared = Prepared(keys, module.split_heads(values), module)
        inner = module.attention
        call = inner.resolve_call(projected_query, prepared, x, join(inner.span, span), heads=True)
        look = inner.dense_look(call, span)
        return ResolvedCall(
            inner.score, raw, call, look, True, rotated=module.rotary is not None, memory="x" if own else "m"
        )
    if isinstance(module, GridSelfAttention):
        inner = module.attention
        query, keys, values = module.project(module.flatten_batch(record.args[0]))
        arguments = {"query": query, "keys": keys, "values": values}
    else:
        assert isinstance(module, Attention)
        inner = module
        arguments = dict(zip(("query", "keys", "values", "span"), record.args, strict=False)) | record.kwargs
    span = arguments.get("span")
    query, prepared = inner.check_inputs(arguments["query"], arguments["keys"], arguments.get("values"))
    call = inner.resolve_call(inner.score.project_query(query), prepared, query, join(inner.span, span), heads=False)
    return ResolvedCall(inner.score, query, call, inner.dense_look(call, span), False, learned=inner.query is not None)


# ---- the input, before the scores


def block_of(forward: ForwardPass, name: str) -> tuple[str, Block, str] | None:
    """Return the name of an attention's block, the block, and the attention's part in it ("attention" or "cross")."""
    parent, _, part = name.rpartition(".")
    block = forward.model.get_submodule(parent)
    return (parent, block, part) if isinstance(block, Block) else None


def input_stages(forward: ForwardPass, name: str, head: int, row: int, columns: Sequence[str]) -> list[Stage]:
    """List the stages of the attention's input: x and, with rotary positions, the projections before the rotation."""
    module = forward.looks.modules[name]
    if isinstance(module, GridSelfAttention):
        features = forward.recording.calls[name][0].inputs[0][0].flatten(1).mT.float().cpu()
        return [
            one("x", "the features of this place", features[row], part=INPUT),
            Stage("x_j", "the features of every place", features, tuple(columns), "", INPUT, False),
        ]
    if not isinstance(module, Heads):
        return []
    recording, stages = forward.recording, list[Stage]()
    block = block_of(forward, name)
    if block is not None and block[1].norm == "pre":
        stream = recording.input(f"{block[0]}.{block[2]}_norm", row)
        stages.append(one("r", "the residual stream at this word, as it comes in", stream, part=INPUT))
        stages.append(one("x", "the input of this attention", recording.input(name, row), "x = LayerNorm(r)", INPUT))
    else:
        stages.append(one("x", "the input of this attention: the residual stream at this word",
                          recording.input(name, row), part=INPUT))  # fmt: skip
    inputs = recording.calls[name][0].inputs
    memory = inputs[1] if len(inputs) > 1 and isinstance(inputs[1], Tensor) else None
    keys = inputs[0] if memory is None else memory
    symbol, words = ("x_j", "the inputs of all words") if memory is None else ("m_j", "the memory that is looked at")
    stages.append(
        Stage(symbol, words, keys.reshape(-1, keys.shape[-1]).float().cpu(), tuple(columns), "", INPUT, False)
    )
    if module.rotary is None:
        return stages
    query = recording.output(f"{name}.query", row).unflatten(-1, (module.heads, -1))[head]
    projected = recording.calls[f"{name}.key"][0].output.unflatten(-1, (module.heads, -1))[0, :, head].float().cpu()
    stages.append(one("x W_Q", "the query of this word in this head, before its place rotates it", query, part=INPUT))
    stages.append(
        Stage(f"{symbol[0]} W_K", "every key in this head, before its place rotates it", projected, tuple(columns),
              "", INPUT, False)
    )  # fmt: skip
    return stages


def one(
    symbol: str, words: str, values: Float[Tensor, " d"], formula: str = "", part: str = "", main: bool = True
) -> Stage:
    """Make a stage of one vector."""
    return Stage(symbol, words, values[None].float().cpu(), (symbol,), formula, part, main)


# ---- scores, weights, sum


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices of a call's tensors for the stages: one head, one query, all keys."""

    resolved: ResolvedCall
    head: int
    row: int
    rows: tuple[Bool[Tensor, " m"], ...]  # for each batch row: which keys have a name

    def part(self, tensor: Tensor, batched: int) -> Float[Tensor, "x c"]:
        """Return one batch row of the head from [*b (h) n c]."""
        return self.resolved.row(tensor, batched)[self.head]

    def query(self, tensor: Tensor) -> Float[Tensor, "1 c"]:
        """Return the row of a tensor that belongs to the walk's query."""
        return self.part(tensor, 0)[self.row, None]

    def keys(self, tensor: Tensor) -> Float[Tensor, "m c"]:
        """Return the rows of a tensor that belong to keys with a name."""
        return torch.cat([self.part(tensor, each)[named] for each, named in enumerate(self.rows)])

    def weights(self, tensor: Tensor) -> Float[Tensor, "m 1"]:
        """Return the query's score or weight for every key with a name."""
        return self.keys(tensor[..., self.row, :, None])


def attention_stages(
    resolved: ResolvedCall,
    head: int,
    row: int,
    columns: Sequence[str],
    contexts: Sequence[str],
    notation: Mapping[str, tuple[str, str]],
) -> list[Stage]:
    """List every stage of one query, over all keys; the score of a masked key becomes -∞."""
    call, look = resolved.call, resolved.look
    score = resolved.score.head_scores[head] if isinstance(resolved.score, PerHead) else resolved.score
    batch, count = look.weights.shape[0], look.weights.shape[-1]
    mask = call.limits.mask()
    if mask is None:  # reach: the keys to which the query may attend
        reach = [torch.ones(count, dtype=torch.bool)] * batch
    else:
        reach = [resolved.row(mask.expand(look.weights.shape), each)[head, row] > 0 for each in range(batch)]
    # For several sentences in one batch, the names are concatenated, and padding has no name.
    slices = Slices(resolved, head, row, tuple(reach) if batch > 1 else (torch.ones(count, dtype=torch.bool),))
    names = tuple(columns) if batch > 1 else tuple(columns[:count])
    if not any(bool(each.any()) for each in reach):
        nothing = Stage("Σ a v", "nothing to look at: the context is zero", slices.query(look.context), ("context",))
        return rename([query_stage(resolved, score, slices), nothing], notation)
    stages = [query_stage(resolved, score, slices), *score_stages(resolved, score, slices, names)]
    scores, bias, gate = look.scores.float(), call.limits.bias(), call.limits.gate()
    if bias is not None:
        scores = scores + bias.expand_as(scores).float()
        stages.append(
            Stage("e + b", "with what distance takes away", slices.weights(scores), names, "e + b", main=False)
        )
    there = torch.cat([each[named] for each, named in zip(reach, slices.rows, strict=True)])
    masked = slices.weights(scores).masked_fill(~there[:, None], -torch.inf)
    forbidden = int((~there).sum())
    allowed = "nothing is forbidden" if resolved.learned else "nothing is forbidden to this word"
    words = f"{forbidden} of {len(there)} may not be looked at: −∞" if forbidden else allowed
    stages.append(Stage("e masked", words, masked, names, "e, −∞ where it may not look", main=forbidden > 0))
    if look.probabilities is not None and (gate is not None or look.picked is not None):
        why = "before the window's Gaussian" if gate is not None else "the probability of each to be taken"
        stages.append(Stage("softmax(e)", why, slices.weights(look.probabilities), names))
    words = "weights: they sum to one" + " in each sentence" * (batch > 1)
    words = "weights: the one that is taken" if look.picked is not None else words
    words = "weights: what the Gaussian leaves of them" if gate is not None else words
    stages.append(Stage("a", words, slices.weights(look.weights), names, "a = softmax(e)"))
    projected = f"v = {resolved.memory} W_V + b_V" if resolved.heads else ""
    stages.append(Stage("v", "the value of every key", slices.keys(call.values), names, projected, main=False))
    sums = torch.stack([slices.part(look.context, each)[row] for each in range(len(slices.rows))])
    stages.append(Stage("Σ a v", "the context: values, weighed and summed", sums, tuple(contexts)))
    return rename(stages, notation, exact=gate is None and look.picked is None)


def rename(stages: Sequence[Stage], notation: Mapping[str, tuple[str, str]], exact: bool = True) -> list[Stage]:
    """Replace the stages' formulas and words by those of the model's paper; unless `exact`, a is no plain softmax."""
    named = list[Stage]()
    for stage in stages:
        formula, words = notation.get(stage.symbol, ("", ""))
        if stage.symbol == "e masked" and "e" in notation:
            formula = stage.formula.replace("e", notation["e"][0].split(" = ")[0], 1)
        if stage.symbol == "a" and not exact:
            formula = (formula or stage.formula).split(" = ")[0]
            named.append(replace(stage, formula=formula, part=ATTENTION))
            continue
        named.append(replace(stage, formula=formula or stage.formula, words=words or stage.words, part=ATTENTION))
    return named


def query_stage(resolved: ResolvedCall, score: Score, slices: Slices) -> Stage:
    """Return the stage of the query q."""
    words = "the learned query" if resolved.learned else "the query of this word"
    if resolved.heads:
        words += " in this head" + (", rotated by its place" if resolved.rotated else "")
    if isinstance(score, Cosine):
        return Stage("β q/|q|", words, slices.query(resolved.call.query), ("q",))
    values = slices.query(resolved.call.query if resolved.query is None else resolved.query)
    return Stage("q", words, values, ("q",), "q = x W_Q + b_Q" if resolved.heads and not resolved.rotated else "")


def score_stages(resolved: ResolvedCall, score: Score, slices: Slices, names: tuple[str, ...]) -> list[Stage]:
    """List the stages of k and e, by the score's formula."""
    call, scores = resolved.call, slices.weights(resolved.look.scores)
    if type(score).compare not in (Score.compare, Additive.compare, Location.compare):  # a user's own score
        words = f"scores: {type(score).__name__} of q and k"
        return [
            Stage("k", "every key, as the score projects it", slices.keys(call.keys), names),
            Stage("e", words, scores, names),
        ]
    if isinstance(score, Additive):
        sums = torch.tanh(slices.keys(call.keys) + slices.query(call.query))
        return [
            Stage("W q", "the query, projected", slices.query(call.query), ("W q",), main=False),
            Stage("U k + b", "every key, projected", slices.keys(call.keys), names),
            Stage("tanh(W q + U k + b)", "query and key together", sums, names, main=False),
            Stage("e", "scores: v · tanh(W q + U k + b)", scores, names),
        ]
    if isinstance(score, Location):
        return [Stage("e", "scores: (W q)ⱼ, from the query alone", scores, names)]
    if isinstance(score, General):
        symbol, words, formula = "W k", "every key, projected", ""
    elif isinstance(score, Cosine):
        symbol, words, formula = "k/|k|", "every key, of length one", ""
    else:
        heads, rotated = resolved.heads, resolved.rotated
        symbol, words = "k", "every key" + " in this head" * heads + ", rotated by its place" * rotated
        formula = f"k = {resolved.memory} W_K + b_K" if heads and not rotated else ""
    scale, product = score.scale(call.query.shape[-1]), "q · W k" if isinstance(score, General) else "q · k"
    stages = [
        Stage(symbol, words, slices.keys(call.keys), names, formula),
        Stage("e", "scores: how well each key fits", scores / scale, names, f"e = {product}"),
    ]
    if scale != 1:
        width = call.query.shape[-1]
        stages.append(Stage("e/√d", f"divided by √{width}, the width of a key", scores, names, f"{product} / √{width}"))
    return stages


# ---- by name and shape


@dataclass(frozen=True)
class AttentionStage:
    """One stage of a call, with its inputs besides the previous stage and the part whose parameters it uses."""

    name: Name
    shape: tuple[int, ...]
    note: str = ""
    reads: tuple[Source, ...] = ()
    part: str = ""  # the attention's attribute: score, span or weighting
    follows: bool = True  # it reads the previous stage
    pairs: bool = True  # its last axis counts keys and is not a width


def stages_of(
    attention: Attention,
    projected_query: Tensor,
    prepared: Prepared,
    query: Tensor,
    span: Span | None,
    heads: bool,
    context: tuple[int, ...],
) -> list[AttentionStage]:
    """List the stages of one call by the attention's parts, with the shapes of the tensors in its `Look`."""
    look = attention.look_projected(projected_query, prepared, query, span, heads)
    pairs = tuple(look.scores.shape)
    score = attention.score.head_scores[0] if isinstance(attention.score, PerHead) else attention.score
    reads: tuple[Source, ...] = ("q",) if isinstance(score, Location) else ("q", "k")
    stages = [
        AttentionStage("score", pairs, FORMULAS.get(type(score), type(score).__name__), reads, "score", follows=False)
    ]
    if isinstance(score, Dot) and score.scaled and score.fused_form == "bilinear":
        stages.append(AttentionStage("scale", pairs, f"√{projected_query.shape[-1]}"))
    joined = join(attention.span, span)
    parts = parts_of(joined)
    if any(isinstance(part, Packed) for part in parts):
        masked, biased, gated = True, False, False
    else:
        limits = attention.resolve_call(projected_query, prepared, query, joined, heads).limits
        masked, biased, gated = (each is not None for each in (limits.mask(), limits.bias(), limits.gate()))
    if prepared.length is not None and not bool(prepared.length.any()):
        masked = False  # there are no keys yet
    if biased:
        stages.append(AttentionStage("bias", pairs, list_words(parts, biases=True)))
    if masked:
        words = list_words(parts, biases=False)
        if prepared.length is not None and "padding" not in words:
            words = ", ".join(filter(None, [words, "padding"]))
        learned = any(isinstance(part, nn.Module) for part in parts)
        stages.append(AttentionStage("mask", pairs, words, ("x",) if learned else (), "span"))
    stages.append(
        AttentionStage("weights", tuple(look.weights.shape), weighting_words(attention.weighting), (), "weighting")
    )
    if gated:
        own = ", ".join(type(part).__name__ for part in parts if type(part) not in SPANS)
        words = "exp(−(j − p_i)² / 2σ²)" if any(isinstance(part, Predictive) for part in parts) else own
        stages.append(AttentionStage("gate", tuple(look.weights.shape), words))
    # If the values are the identity matrix, the sum equals the weights.
    values, width = prepared.values, prepared.values.shape[-1]
    pairs_of_keys = values.shape[-2] == width and bool(
        (values == torch.eye(width, dtype=values.dtype, device=values.device)).all()
    )
    words = "each key is its own value" if pairs_of_keys else ""
    stages.append(AttentionStage("sum", context, words, ("v",), pairs=pairs_of_keys))
    if heads:
        *batch, count, queries, width = context
        stages.append(AttentionStage("concatenate", (*batch, queries, count * width), f"{count} heads", pairs=False))
    return stages


def weighting_words(weighting: Weighting) -> str:
    """Return the name of a weighting as displayed."""
    if isinstance(weighting, Softmax) and weighting.temperature != 1.0:
        return f"softmax, T = {weighting.temperature:g}"
    names = {"hard": "hard: one key", "gumbel": "Gumbel: one key", "plain": "the scores themselves"}
    return type(weighting).__name__ if weighting.name == "other" else names.get(weighting.name, weighting.name)


def list_words(parts: tuple[Span, ...], biases: bool) -> str:
    """Describe what the spans of a call mask or, with `biases`, add to the scores."""
    named = [part for part in parts if type(part) not in SPANS or isinstance(part, Alibi) is biases]
    words = (SPANS.get(type(part), type(part).__name__).format(radius=getattr(part, "radius", "")) for part in named)
    return ", ".join(dict.fromkeys(words))
