"""A walk: one word from its input to the likeliest words, in the model's own numbers, with every stage between.

    walk(load("runs/demo"), "I ate pizza yesterday.", view="decoder.blocks.1.cross", head=0, row=2)

Of a recurrent network states and gates come with it, word by word.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.data import START
from regard.decoding import first_model
from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import Stage, State, View, Walk, find_view
from regard.inspection.collect.gates import gates_of
from regard.inspection.collect.memory_heads import MEMORY_VIEWS, memory_stages
from regard.inspection.collect.readout import Vocabulary, after_stages, reading_stages, word_stages
from regard.inspection.collect.stages import attention_stages, call_of, input_stages
from regard.inspection.collect.teacher_forcing import ForwardPass, Item, OpenRun, force, watch_forward
from regard.inspection.collect.views import by_sentence, views_of

WORDS, SENTENCES = "The words of each sentence", "The sentences"  # parts of the way through a document


@dataclass(frozen=True)
class Which:
    """The choice of what to walk through: a view by name or title, one of its heads, and one of its rows, or a word of
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
    """One row of a view through its attention and on to a word, as `Which` says; `options` are those of the search."""
    forward = watch_forward(first_model(run.model), force(run, item, target=target, tree=False, **options), record=True)
    views = views_of(forward, run.settings.kind)
    return walk_of(forward, views, Which(view, head, row, word), vocabulary_of(run))


def vocabulary_of(run: OpenRun) -> Vocabulary:
    """Name the possible outputs of a run: its labels, or the pieces of its target's tokenizer."""
    if run.labels:
        return lambda numbers: [run.labels[number] for number in numbers]
    return run.tokenizers.target.pieces


def numbered(numbers: Sequence[int]) -> list[str]:
    """Name outputs by their numbers, where there is no vocabulary."""
    return [str(number) for number in numbers]


@torch.no_grad()
def walk_of(
    forward: ForwardPass,
    views: Sequence[View],
    which: Which = Which(),  # noqa: B008
    vocabulary: Vocabulary = numbered,
) -> Walk:
    """Build the walk of a pass that was watched and recorded, with states and gates."""
    stages = stages_of(forward, views, which, vocabulary)
    return replace(stages, states=states_of(forward), gates=gates_of(forward))


@torch.no_grad()
def stages_of(forward: ForwardPass, views: Sequence[View], which: Which, vocabulary: Vocabulary = numbered) -> Walk:
    """List the stages of the walk, without states and gates."""
    if not views:
        if which.view is not None or which.head is not None:
            raise ArgumentError("view: given, but the model has no attention to walk through")
        row = 0 if forward.forced.target is None else find_row(forward.sides["written"].words, which, "the output")
        if forward.forced.target is not None:
            check_number("row", row, len(forward.logits), "the output")
        stages = [*reading_stages(forward, None, row), *word_stages(forward, None, row, vocabulary)]
        return Walk("", 0, row, tuple(stages))
    view = find_view(views, which.view)
    head, row = which.head or 0, row_of(forward, view, which)
    check_number("head", head, len(view.weights), view.title)
    check_number("row", row, view.weights.shape[1], view.title)
    stages = [*looking_stages(forward, views, view, head, row), *word_stages(forward, view, row, vocabulary)]
    return Walk(view.name, head, row, tuple(stages))


def check_number(name: str, number: int, count: int, where: str) -> None:
    """Refuse a head or a row that does not exist."""
    if not 0 <= number < count:
        raise ArgumentError(f"{name} {number + 1}: {where} has {count} {name}s, numbered 1 to {count}")


def looking_stages(forward: ForwardPass, views: Sequence[View], view: View, head: int, row: int) -> list[Stage]:
    """List the stages between the input of a view's row and the readout."""
    columns = forward.names(view.columns, view.weights.shape[2])
    if view.name in MEMORY_VIEWS:
        step = forward.head_steps[row if view.rows == "source" else len(forward.forced.sides["source"].pieces) + row]
        return [*memory_stages(step, view.name, head, columns), *reading_stages(forward, view, row)]
    call, at = call_of(forward, view.name, row)
    each_sentence = by_sentence(forward, view.name)
    contexts = forward.sides["sentences"].pieces if each_sentence else ("context",)
    notation = forward.model.notation.of(view.name)
    stages = attention_stages(call, head, at, columns, contexts, notation)
    if each_sentence:
        stages = [replace(stage, part=WORDS) for stage in stages] + sentence_stages(forward, views)
    return [*input_stages(forward, view.name, head, row, columns), *stages, *after_stages(forward, view, row)]


def sentence_stages(forward: ForwardPass, views: Sequence[View]) -> list[Stage]:
    """List the stages of the attention over sentences, if one follows the attention over words."""
    all_stages = list[Stage]()
    for view in views:
        if view.columns == "sentences":
            call, at = call_of(forward, view.name, 0)
            columns = forward.names(view.columns, view.weights.shape[2])
            stages = attention_stages(call, 0, at, columns, ("document",), forward.model.notation.of(view.name))
            all_stages += [
                replace(
                    stage, symbol=f"{stage.symbol} of sentences", formula=stage.formula or stage.symbol, part=SENTENCES
                )
                for stage in stages
            ]
    return all_stages


def row_of(forward: ForwardPass, view: View, which: Which) -> int:
    """Choose the row: a word's first piece; by default that of the first word that looks at anything."""
    side = forward.sides.get(view.rows)
    words = tuple(range(view.weights.shape[1])) if side is None else side.words
    if which.row is not None or which.word is not None:
        return find_row(words, which, view.title)
    looks = (view.weights.abs().sum((0, 2)) > 0).tolist()
    return next((row for row, word in enumerate(words) if word is not None and looks[row]), 0)


def find_row(words: Sequence[int | None], which: Which, where: str) -> int:
    """Find the row that is asked for by its number, or by its word's."""
    if which.row is not None:
        return which.row
    if which.word is None:
        return 0
    if which.word not in words:
        count = len({word for word in words if word is not None})
        raise ArgumentError(f"word {which.word + 1}: {where} has only {count} words")
    return words.index(which.word)


# ---- states of a recurrent network


@torch.no_grad()
def states_of(forward: ForwardPass) -> tuple[State, ...]:
    """List every state in the order of computation; none for a model that is not recurrent.

    They are those of the top layer, h without c of an LSTM; of an encoder that reads from both ends both halves.
    """
    states = list(encoder_states(forward))
    if forward.forced.target is not None:
        states += decoder_states(forward)
    return tuple(states)


def encoder_states(forward: ForwardPass) -> Iterator[State]:
    """List the encoder's states, in the order of reading, which may be backwards."""
    states = forward.model.source_states(forward.memory)
    if states is None or "source" not in forward.forced.sides:
        return
    pairs = list(zip(forward.forced.sides["source"].names, states[0].float().cpu(), strict=False))
    for piece, values in reversed(pairs) if forward.model.reads_backwards else pairs:
        yield State(piece, values, "source")


def decoder_states(forward: ForwardPass) -> Iterator[State]:
    """List the decoder's states, each after a piece was read: the same steps as a search takes."""
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
