"""A walk: one word through its attention in the model's own numbers, from q and k over e and a to Σ a v.

    walk(load("runs/demo"), "I ate pizza yesterday .", view="decoder.blocks.1.cross", head=0, row=2)

Of a recurrent network the states come with it, one by one, as they arrived.
"""

# b rows of a batch: sentences of a document, otherwise one · r keys in reach · d width · h width of an additive score
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.grid import GridSelfAttention
from regard.attention.heads import Heads, in_third_place
from regard.attention.look import Look
from regard.attention.per_head_score import PerHead
from regard.attention.score import Additive, Cosine, General, Location, Score
from regard.attention.span import join
from regard.attention.watch import CallRecord
from regard.data.tokenizer import START
from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import Stage, State, View, Walk, find_view
from regard.inspection.collect.memory_heads import MEMORY_VIEWS, memory_stages
from regard.inspection.collect.open_run import OpenRun
from regard.inspection.collect.teacher_forcing import ForwardPass, Item, force, watch_forward
from regard.inspection.collect.views import by_sentence, views_of
from regard.kernels.reference import Call

__all__ = ["Which", "stages_of", "walk", "walk_of"]


@dataclass(frozen=True)
class Which:
    """The choice of what is walked: a view by its name or title, one of its heads, and one of its rows, or a word of
    them.

    All are counted from 0. By default it is the attention to the source, its first head, and the first word.
    """

    view: str | None = None
    head: int | None = None
    row: int | None = None
    word: int | None = None


@torch.no_grad()
def walk(
    run: OpenRun,
    item: Item,
    *,
    target: str | None = None,
    view: str | None = None,
    head: int | None = None,
    row: int | None = None,
    word: int | None = None,
    **options: Any,
) -> Walk:
    """One row of a view through its attention, as `Which` says; `options` are those of the search."""
    forward = watch_forward(run.aligning, force(run, item, target=target, tree=False, **options))
    views = views_of(forward, run.settings.kind)
    return walk_of(forward, views, Which(view, head, row, word))


@torch.no_grad()
def walk_of(forward: ForwardPass, views: Sequence[View], which: Which = Which()) -> Walk:  # noqa: B008
    """Walk through a pass that was watched."""
    return replace(stages_of(forward, views, which), states=states_of(forward))


@torch.no_grad()
def stages_of(forward: ForwardPass, views: Sequence[View], which: Which) -> Walk:
    """The walk without the states."""
    if not views:
        if which.view is not None or which.head is not None:
            raise ArgumentError("view: given, and the model has no attention to walk through")
        return Walk("", 0, 0, ())
    view = find_view(views, which.view)
    head, row = which.head or 0, row_of(forward, view, which)
    for name, number, count in (("head", head, len(view.weights)), ("row", row, view.weights.shape[1])):
        if not 0 <= number < count:
            raise ArgumentError(f"{name}: number {number + 1} asked for, and {view.name} has {count}")
    columns = forward.pieces(view.columns, view.weights.shape[2])
    if view.name in MEMORY_VIEWS:
        step = forward.head_steps[row if view.rows == "source" else len(forward.forced.sides["source"].pieces) + row]
        return Walk(view.name, head, row, memory_stages(step, view.name, head, columns))
    call, at = call_of(forward, view.name, row)
    contexts = forward.sides["sentences"].pieces if by_sentence(forward, view.name) else ("context",)
    return Walk(view.name, head, row, attention_stages(call, head, at, columns, contexts))


def row_of(forward: ForwardPass, view: View, which: Which) -> int:
    """The row that is meant: of a word its first piece; by default the first word that looks at anything."""
    side, count = forward.sides.get(view.rows), view.weights.shape[1]
    words = tuple(range(count)) if side is None else side.words
    if which.row is not None:
        return which.row
    if which.word is not None:
        if which.word not in words:
            count = len({word for word in words if word is not None})
            raise ArgumentError(
                f"word: number {which.word + 1} asked for, and there are {count} that look in {view.name}"
            )
        return words.index(which.word)
    looks = (view.weights.abs().sum((0, 2)) > 0).tolist()
    return next((row for row, word in enumerate(words) if word is not None and looks[row]), 0)


@dataclass(frozen=True, eq=False)
class ResolvedCall:
    """A call of an attention, resolved: what each stage of it is."""

    score: Score
    query: Tensor | None  # before the score has transformed it; None where that is the same
    call: Call
    look: Look
    heads: bool
    learned: bool = False
    turned: bool = False  # by rotary positions


def call_of(forward: ForwardPass, name: str, row: int) -> tuple[ResolvedCall, int]:
    """The call that a row of a view belongs to, and its place among the call's queries."""
    module = forward.module(name)
    for call in forward.calls(name):
        count = count_queries(module, call)
        if row < count:
            return resolve_call(module, call), row
        row -= count
    raise AssertionError("a view has as many rows as its calls have queries")


def count_queries(module: nn.Module, record: CallRecord) -> int:
    """Count the queries of a call."""
    if isinstance(module, Attention) and module.query is not None:
        return len(module.query.vectors)
    asking: Tensor = record.args[0] if record.args else next(iter(record.kwargs.values()))
    return asking.shape[-2:].numel() if isinstance(module, GridSelfAttention) else asking.shape[-2]


def resolve_call(module: nn.Module, record: CallRecord) -> ResolvedCall:
    """A noted call with the tensors that the attention itself works with."""
    if isinstance(module, Heads):
        arguments = dict(zip(("x", "memory", "values", "span", "start"), record.args, strict=False)) | record.kwargs
        x, (values, span) = arguments["x"], in_third_place(arguments.get("values"), arguments.get("span"))
        start = arguments.get("start", 0)
        projected_query, prepared = module.project_inputs(x, arguments.get("memory"), span, start, values)
        inner = module.attention
        call = inner.resolve_call(projected_query, prepared, x, join(inner.span, span), heads=True)
        look = inner.dense_look(call, span)
        return ResolvedCall(inner.score, None, call, look, True, turned=module.rotary is not None)
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
    call = inner.resolve_call(inner.score.ask(query), prepared, query, join(inner.span, span), heads=False)
    return ResolvedCall(inner.score, query, call, inner.dense_look(call, span), False, learned=inner.query is not None)


def attention_stages(
    resolved: ResolvedCall, head: int, row: int, columns: Sequence[str], contexts: Sequence[str]
) -> tuple[Stage, ...]:
    """Every stage of one query, over the keys that it may look at."""
    call, look = resolved.call, resolved.look
    score = resolved.score.head_scores[head] if isinstance(resolved.score, PerHead) else resolved.score
    batch = look.weights.shape[0]

    def part(tensor: Tensor, batched: int) -> Float[Tensor, "x c"]:
        """[*b (h) n c] of one row of the batch and the head."""
        full = tensor.expand(*look.weights.shape[:-2], *tensor.shape[-2:])
        return (full[batched, head] if resolved.heads else full[batched]).float().cpu()

    def query(tensor: Tensor) -> Float[Tensor, "1 c"]:
        return part(tensor, 0)[row, None]

    reach = [reachable_keys(resolved, each, head, row) for each in range(batch)]
    # Names stand for the keys of all rows of the batch, one after the other.
    names = list(columns) if batch > 1 else list(columns[: look.weights.shape[-1]])
    if batch == 1:
        names = [name for name, there in zip(names, reach[0].tolist(), strict=True) if there]
    named = tuple(names)

    def keys(tensor: Tensor) -> Float[Tensor, "r c"]:
        return torch.cat([part(tensor, each)[there] for each, there in enumerate(reach)])

    def weights(tensor: Tensor) -> Float[Tensor, "r 1"]:
        return keys(tensor[..., row, :, None])

    stages = [query_stage(resolved, score, query)]
    if not named:
        return (*stages, Stage("Σ a v", "nothing to look at: the context is zero", query(look.context), ("context",)))
    if type(score).compare not in (Score.compare, Additive.compare, Location.compare):  # one's own
        stages.append(Stage("k", "every key, as the score projects it", keys(call.keys), named))
        stages.append(Stage("e", f"scores: {type(score).__name__} of q and k", weights(look.scores), named))
    elif isinstance(score, Additive):
        stages.append(Stage("W q", "the query, projected", query(call.query), ("W q",)))
        stages.append(Stage("U k + b", "every key, projected", keys(call.keys), named))
        sums = torch.tanh(keys(call.keys) + query(call.query))
        stages.append(Stage("tanh(W q + U k + b)", "query and key together", sums, named))
        stages.append(Stage("e", "scores: v · tanh(W q + U k + b)", weights(look.scores), named))
    elif isinstance(score, Location):
        stages.append(Stage("e", "scores: (W q)ⱼ, from the query alone", weights(look.scores), named))
    else:
        symbol, words = key_words(score, resolved)
        stages.append(Stage(symbol, words, keys(call.keys), named))
        scale = score.scale(call.query.shape[-1])
        product = "q · W k" if isinstance(score, General) else "q · k"
        stages.append(Stage("e", f"scores: {product}", weights(look.scores) / scale, named))
        if scale != 1:
            root = f"divided by √{call.query.shape[-1]}, the width of a key"
            stages.append(Stage("e/√d", root, weights(look.scores), named))
    bias, gate = call.limits.bias(), call.limits.gate()
    if bias is not None:
        biased = weights(look.scores) + weights(bias.expand_as(look.scores).float())
        stages.append(Stage("e + b", "with what distance takes away", biased, named))
    if look.probabilities is not None and (gate is not None or look.picked is not None):
        why = "before the window's Gaussian" if gate is not None else "the probability of each to be taken"
        stages.append(Stage("softmax(e)", why, weights(look.probabilities), named))
    explanation = "weights: the one that is taken" if look.picked is not None else "weights: they sum to one"
    explanation = "weights: what the Gaussian leaves of them" if gate is not None else explanation
    stages.append(Stage("a", explanation, weights(look.weights), named))
    stages.append(Stage("v", "the value of every key", keys(call.values), named))
    context = torch.stack([part(look.context, each)[row] for each in range(batch)])
    stages.append(Stage("Σ a v", "the context: values, weighed and summed", context, tuple(contexts)))
    return tuple(stages)


def query_stage(resolved: ResolvedCall, score: Score, query: Any) -> Stage:
    """q."""
    words = "the learned query" if resolved.learned else "the query of this word"
    if resolved.heads:
        words += " in this head" + (", turned by its place" if resolved.turned else "")
    if isinstance(score, Cosine):
        return Stage("β q/|q|", words, query(resolved.call.query), ("q",))
    return Stage("q", words, query(resolved.call.query if resolved.query is None else resolved.query), ("q",))


def key_words(score: Score, resolved: ResolvedCall) -> tuple[str, str]:
    """Name the keys, behind the score's projection."""
    if isinstance(score, General):
        return "W k", "every key, projected"
    if isinstance(score, Cosine):
        return "k/|k|", "every key, of length one"
    return "k", "every key" + (" in this head" if resolved.heads else "") + (", turned by its place" * resolved.turned)


def reachable_keys(resolved: ResolvedCall, each: int, head: int, row: int) -> Bool[Tensor, " m"]:
    """Mark which keys a query may look at."""
    shape = resolved.look.weights.shape
    mask = resolved.call.limits.mask()
    if mask is None:
        return torch.ones(shape[-1], dtype=torch.bool)
    full = mask.expand(shape)
    return (full[each, head, row] if resolved.heads else full[each, row]).cpu()


# ---- states of a recurrent network


@torch.no_grad()
def states_of(forward: ForwardPass) -> tuple[State, ...]:
    """Every state in the order in which they came about; none of a model that is not recurrent.

    They are those of the top layer, h without c of an LSTM; of an encoder that reads from both ends both halves.
    """
    states = list(encoder_states(forward))
    if forward.forced.target is not None:
        states += decoder_states(forward)
    return tuple(states)


def encoder_states(forward: ForwardPass) -> Iterator[State]:
    """The encoder's states; a source that is read backwards arrives backwards."""
    states = forward.model.source_states(forward.memory)
    if states is None or "source" not in forward.forced.sides:
        return
    pairs = list(zip(forward.forced.sides["source"].pieces, states[0].float().cpu(), strict=False))
    for piece, values in reversed(pairs) if forward.model.reads_backwards else pairs:
        yield State(piece, values, "source")


def decoder_states(forward: ForwardPass) -> Iterator[State]:
    """The decoder's states, each after a piece was read: the same steps as a search takes."""
    target = forward.forced.target
    assert target is not None
    state = forward.model.start(forward.memory, 1, len(target) + 1)
    if forward.model.hidden_state(state) is None:
        return
    for piece, token in zip(forward.forced.sides["read"].pieces, (START, *target), strict=True):
        _, state = forward.model.step(torch.tensor([token], device=forward.memory.states.device), state)
        hidden = forward.model.hidden_state(state)
        assert hidden is not None
        yield State(piece, hidden[0].float().cpu().clone(), "target")
