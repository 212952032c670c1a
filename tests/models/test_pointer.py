"""Pointer networks against their formulas, and in code that handles tokens: objective, search, alignments."""

import math

import oracles
import pytest
import torch
from models import formulas
from models.cases import TARGETS, fit, model_of, pair, pointer, row, sentences
from oracles import agree

from regard.attention import watch
from regard.data import END, START, collate
from regard.decoding import Options, search
from regard.errors import ArgumentError
from regard.models.contract import Tokens
from regard.models.kinds import build
from regard.models.pointer import mark_used
from regard.training import Prediction

CASES = ["pointer", "pointer-bidirectional", "pointer-once"]
every_case = pytest.mark.parametrize("name", CASES)
LEAST = math.log(torch.finfo(torch.float64).tiny)


def oracle(model, words, read, fault=None, seen=None):
    """Equation 3: return the log-probability of every token of the vocabulary after each of `read`."""
    words = words.tolist()
    annotations, states = formulas.annotate(model.encoder, [model.words.weight[word] for word in words])
    annotations, said, used = [*annotations, model.end], [*words, END], set()
    result = []
    for word in read.tolist():
        if model.config.once and word in words and word != END:
            used.update([j for j, other in enumerate(words) if other == word and j not in used][:1])
        before = states[0][0]
        d, states = formulas.step_stack(model.decoder.layers, model.words.weight[word], states)
        query = before if fault == "the state before the word" else d
        free = [j for j in range(len(said)) if j not in used]
        span = lambda place, free=free: oracles.Answer(place.j in free)  # noqa: E731
        a = formulas.look(model.attention, query, annotations, span=span).weights
        if seen is not None:
            seen.append(a)
        line = []
        for token in range(model.vocabulary):
            places = [j for j in free if said[j] == token]
            places = places[:1] if fault == "one place a token" else places
            line.append(torch.log(sum(a[j] for j in places)) if places else torch.tensor(LEAST, dtype=torch.float64))
        result.append(torch.stack(line))
    return result


def by_sentence(model, source, target, **options):
    lines = []
    for index in range(len(source.ids)):
        lines += oracle(model, row(source, index).ids[0], row(target, index).ids[0], **options)
    return torch.stack(lines)


def repeated_words() -> tuple[Tokens, Tokens]:
    """Return sources that repeat a word, and targets with that word once, twice and too often."""
    source = torch.tensor([[4, 7, 4, 4, 9], [5, 5, 0, 0, 0], [8, 0, 0, 0, 0]])
    target = torch.tensor([[START, 4, 4, 9, 4, 7, 4], [START, 5, 6, 5, 5, 5, 0], [START, 8, 0, 0, 0, 0, 0]])
    return Tokens.of(source, torch.tensor([5, 2, 1])), Tokens.of(target, torch.tensor([7, 6, 2]))


@every_case
@pytest.mark.parametrize("drawn", [pair, repeated_words])
def test_equals_the_papers_formulas(name, drawn):
    model, (source, target) = model_of(name), drawn()
    agree(model(source, target)[target.real], by_sentence(model, source, target), model.parameters())


@pytest.mark.parametrize("fault", ["the state before the word", "one place a token"])
def test_the_formulas_tell_a_fault(fault):
    model, (source, target) = model_of("pointer"), repeated_words()
    with torch.no_grad(), pytest.raises(AssertionError):
        agree(model(source, target)[target.real], by_sentence(model, source, target, fault=fault))


@every_case
@torch.no_grad()
def test_probabilities_are_of_the_sources_words_and_the_end(name):
    model, (source, target) = model_of(name), repeated_words()
    p = model(source, target).exp()
    for index in range(3):
        length = int(target.lengths[index])
        words = sorted({*row(source, index).ids[0].tolist(), END})
        agree(p[index, :length, words].sum(-1), torch.ones(length, dtype=torch.float64))
        assert (p[index, :length, END] > 0).all()


@every_case
def test_watching_gives_the_weights_and_the_end_stands_behind_the_words(name):
    model, (source, target) = model_of(name), pair()
    assert model.cross_attentions == ["attention"]
    with watch(model) as looks:
        model(source, target)
    formulas.check_weights(oracle, model, source, target, looks["attention"].weights, more=1)


def test_of_a_word_said_its_first_place_is_taken():
    ids = torch.tensor([[4, 7, 4, END, END]])
    got = mark_used(torch.tensor([[START, 4, 7, 4, 4, END]]), ids)[0].long().tolist()
    nothing = [0, 0, 0, 0, 0]
    assert got == [nothing, [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]


@torch.no_grad()
def test_where_all_is_taken_only_the_end_is_left():
    model, (source, target) = model_of("pointer-once"), repeated_words()
    agree(model(source, target)[2, 1, END], torch.zeros((), dtype=torch.float64))


@torch.no_grad()
def test_of_a_sentence_without_words_there_is_nothing_to_say():
    model = model_of("pointer")
    logits = model(sentences(TARGETS, [0, 3]), sentences(TARGETS, [2, 2]))
    agree(logits[0, :, END], torch.zeros(2, dtype=torch.float64))
    agree(
        model(Tokens.of(torch.zeros(1, 0, dtype=torch.long), torch.tensor([0])), sentences(TARGETS, [1]))[0, 0, END],
        logits[0, 0, END] * 0,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@torch.no_grad()
def test_more_hypotheses_than_words_to_say(dtype):
    """Words outside the source have finite scores, so low that no output contains them."""
    model = model_of("pointer").to(dtype)
    source = sentences(TARGETS, [1, 2, 5])
    source.ids[:] = source.ids.clamp(min=END + 2)
    logits, _ = model.step(torch.full((3,), START), model.start(model.encode(source)))
    assert logits.isfinite().all()
    assert logits.min() < -80
    for index, found in enumerate(search(model, source, Options(beam=6, nbest=2, longest=3))):
        for output in found.outputs:
            assert math.isfinite(output.score)
            assert {*output.tokens} <= {*row(source, index).ids[0].tolist()}


def test_training_and_scores_under_autocast_are_as_without():
    """The objective's loss is the sum of the logarithms, and half precision does not affect them."""
    model = model_of("pointer").float()
    batch = collate([([5, 9, 5], [5, 5, 9]), ([7], [7]), ([8, 4], [4, 8])])
    source, target = Tokens.of(batch.source, batch.source_lengths), batch.target
    logits = model(source, Tokens.of(target[:, :-1], batch.target_lengths))
    wanted = -sum(logits[i, n, target[i, n + 1]] for i in range(3) for n in range(int(batch.target_lengths[i])))
    loss = Prediction(model, smoothing=0.1).train()(batch)
    torch.testing.assert_close(loss.total, wanted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(source, Tokens.of(target[:, :-1], batch.target_lengths))
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.clamp(min=-80), logits.clamp(min=-80), rtol=0.05, atol=0.05)


def test_two_vocabularies_are_refused():
    with pytest.raises(ArgumentError, match="11 and 13 pieces given, expected one for both sides.*joint = true"):
        build("pointer", pointer(), 11, 13)


@pytest.mark.unchecked
def test_learns_to_sort_and_to_end():
    """Trained on up to four numbers, correct on six: search decodes it, and ends where the model writes END."""
    torch.manual_seed(1)
    model = build("pointer", pointer(size=32, embedding=16, hidden=32, once=True, dropout=0.0), 12, 12)
    objective = Prediction(model)

    def drawn(count: int, longest: int) -> list[tuple[list[int], list[int]]]:
        words = [torch.randint(4, 12, (int(torch.randint(1, longest + 1, ())),)).tolist() for _ in range(count)]
        return [(each, sorted(each)) for each in words]

    fit(model, lambda: objective(collate(drawn(48, 4))).total / 48, 120, 1e-2)
    pairs = drawn(100, 6)
    batch = collate(pairs)
    found = search(model, Tokens.of(batch.source, batch.source_lengths), Options(beam=1))
    right = sum(each.outputs[0].tokens == wanted for each, (_, wanted) in zip(found, pairs, strict=True))
    assert right >= 95
