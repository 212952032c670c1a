"""Slots: a search that never asks the host finds what `search` finds, however finished sentences are replaced."""

import random

import numpy as np
import pytest
import torch
from decoding.cases import SMALL, WORDS, same, sentences, small
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import END
from regard.decoding.device_search import DeviceSearch, Hypotheses, SlotOptions, to_bfloat16
from regard.decoding.limits import output_limit
from regard.decoding.options import Options
from regard.decoding.scoring import tokens_of
from regard.decoding.sentence_search import StepSearch, search
from regard.models import build, read_model_config

LONGEST = 7


def put(device_search, index, model, sources, options, prefixes=None):
    """Put sentences into slots, each with its own options."""
    each = zip(sources, options, prefixes or [[]] * len(sources), strict=True)
    most = [output_limit(model, len(source), option, len(prefix)) for source, option, prefix in each]
    begun = tokens_of(prefixes, fill=-1).ids if prefixes is not None and any(prefixes) else None
    device_search.put(index, model.encode(tokens_of(sources)), SlotOptions.of(options, most, "cpu"), begun)


@torch.no_grad()
def by_slots(model, sources, options, prefixes=None, count=3, together=1, rows=None):
    """Search through a few slots: `together` sentences at a time enter free slots; `options` are one, or one each."""
    options = [options] * len(sources) if isinstance(options, Options) else options
    memory = model.encode(tokens_of([[3] * LONGEST]))
    most = max(output_limit(model, len(source), each) for source, each in zip(sources, options, strict=True))
    longest = max((len(prefix) for prefix in prefixes or ()), default=0)
    rows = rows or max(each.beam for each in options)
    device_search = DeviceSearch(model, memory, count, max(most, longest + 20) + 1, rows, longest)
    waiting, inside, found = list(range(len(sources))), [None] * count, {}
    while waiting or any(each is not None for each in inside):
        free = [slot for slot, each in enumerate(inside) if each is None]
        while waiting and len(free) >= min(together, len(waiting)):
            chosen, free = free[:together], free[together:]
            chosen = chosen[: len(waiting)]
            numbers = [waiting.pop(0) for _ in chosen]
            begun = None if prefixes is None else [prefixes[i] for i in numbers]
            neighbours = chosen[-1] - chosen[0] + 1 == len(chosen)
            index = slice(chosen[0], chosen[-1] + 1) if neighbours else torch.tensor(chosen)
            put(device_search, index, model, [sources[i] for i in numbers], [options[i] for i in numbers], begun)
            for slot, i in zip(chosen, numbers, strict=True):
                inside[slot] = i
        device_search.advance()
        for slot, going in enumerate(device_search.active.tolist()):
            if inside[slot] is not None and not going:
                nbest = options[inside[slot]].nbest
                found[inside[slot]] = device_search.collect(torch.tensor([slot])).results(nbest)[0]
                inside[slot] = None
    return [found[i] for i in range(len(sources))]


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("kind", [*SMALL, "both"])
def test_every_model_in_slots(kind, beam):
    model, sources = small(kind), sentences(8, LONGEST)
    options = Options(beam=beam, nbest=beam, longest=9)
    same(by_slots(model, sources, options), search(model, tokens_of(sources), options))


@settings(max_examples=25)
@given(st.data())
def test_slots_have_options_of_their_own(data):
    """Narrower beams than rows, other penalties, limits and prefixes side by side: each slot finds its own result."""
    model, sources, each, prefixes = small("transformer"), sentences(6, LONGEST), [], []
    for _ in sources:
        beam, shortest = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 4))
        numbers = {"shortest": shortest, "longest": data.draw(st.integers(max(4, shortest), 9))}
        each.append(Options(beam=beam, nbest=beam, length_penalty=data.draw(st.floats(0, 2)), **numbers))
        prefixes.append([random.randrange(3, WORDS) for _ in range(data.draw(st.integers(0, 3)))])
    found = by_slots(model, sources, each, prefixes, together=data.draw(st.integers(1, 3)), rows=5)
    for result, source, options, prefix in zip(found, sources, each, prefixes, strict=True):
        same([result], search(model, tokens_of([source]), options, prefixes=[prefix]))


@torch.no_grad()
def test_a_narrower_beam_is_done_as_soon_as_by_itself():
    """With two of five rows a sentence waits for two finished hypotheses, not for five."""
    model, early = small("transformer", scale=1.0), 0
    model.readout.bias[END] += 3.0  # make sentences end
    for source in sentences(12, LONGEST):
        options = Options(beam=2, longest=40, length_penalty=0.0)
        alone = StepSearch(model, tokens_of([source]), options)
        alone.run()
        device_search = DeviceSearch(model, model.encode(tokens_of([[3] * LONGEST])), 1, 41, 5)
        put(device_search, slice(0, 1), model, [source], [options])
        steps = 0
        while device_search.active.any():
            device_search.advance()
            steps += 1
        assert steps == alone.step
        early += steps < 41
    assert early > 3


def test_lengths_by_the_source():
    model, sources = small("rnnsearch"), sentences(5, LONGEST)
    same(by_slots(model, sources, Options()), search(model, tokens_of(sources), Options()))


def test_a_vocabulary_smaller_than_the_beam():
    model, sources = small("transformer", words=5), [[3, 4], [4]]
    options = Options(beam=6, nbest=6, longest=3)
    same(by_slots(model, sources, options), search(model, tokens_of(sources), options))


def test_a_slot_that_is_done_waits_without_effect():
    model, options = small("transformer"), Options(beam=2, nbest=2, longest=4)
    with torch.no_grad():
        device_search = DeviceSearch(model, model.encode(tokens_of([[3] * LONGEST])), 2, 5, 2)
        assert not device_search.active.any()
        put(device_search, slice(1, 2), model, [[3, 4, 5]], [options])
        for _ in range(30):  # many more steps than the buffers have room for
            device_search.advance()
        assert not device_search.active.any()
        found = device_search.collect(slice(0, 2)).results(2)
    assert found[0].outputs == []
    same(found[1:], search(model, tokens_of([[3, 4, 5]]), options))


def test_a_slot_that_is_stopped_is_free():
    model, options = small("transformer"), Options(beam=2, longest=6, shortest=6)
    with torch.no_grad():
        device_search = DeviceSearch(model, model.encode(tokens_of([[3] * LONGEST])), 2, 7, 2)
        put(device_search, slice(0, 2), model, [[3, 4, 5], [6]], [options] * 2)
        device_search.advance()
        device_search.stop(slice(0, 1))
        assert device_search.active.tolist() == [False, True]
        while device_search.active.any():
            device_search.advance()
        found = device_search.collect(slice(1, 2)).results(1)
    same(found, search(model, tokens_of([[6]]), options))


def test_states_keep_their_addresses():
    """A graph records addresses: a step, and putting or taking a sentence, must move no tensor."""
    model, options = small("transformer"), Options(beam=2, longest=4)
    with torch.no_grad():
        device_search = DeviceSearch(model, model.encode(tokens_of([[3] * LONGEST])), 2, 5, 2)
        before = {
            name: value.data_ptr() for name, value in vars(device_search).items() if isinstance(value, torch.Tensor)
        }
        put(device_search, torch.tensor([0, 1]), model, [[3, 4, 5], [6]], [options] * 2)
        device_search.advance()
        device_search.collect(torch.tensor([1]))
        after = {
            name: value.data_ptr() for name, value in vars(device_search).items() if isinstance(value, torch.Tensor)
        }
    assert before == after


# ---- hypotheses are read along the parents of their rows


def history():
    """Return the history of two slots of two rows: in the first slot the rows swap at the second step."""
    parents = np.array([[[0, 0], [1, 0], [0, 1]], [[0, 0], [0, 1], [0, 1]]], dtype=np.int16)
    words = np.array([[[5, 6], [7, 8], [9, 4]], [[10, 11], [12, 13], [14, 15]]], dtype=np.int32)
    return parents, words


def hypotheses():
    scores = np.array([[-0.5, -0.75], [-1.0, -np.inf]])
    lengths, rows = np.array([[3, 2], [1, 0]]), np.array([[1, 0], [1, 0]])
    natural = np.array([[True, False], [True, True]])
    return Hypotheses(scores, 2 * scores, lengths, rows, natural, *history())


def test_words_are_read_from_the_last_to_the_first():
    first, second = hypotheses().results(2)
    assert [output.tokens for output in first.outputs] == [[5, 8, 4], [6, 7]]
    assert [(output.score, output.log_prob, output.finished) for output in first.outputs] == [
        (-0.5, -1.0, True),
        (-0.75, -1.5, False),
    ]
    assert [output.tokens for output in second.outputs] == [[11]]  # there is no second output


def test_each_slot_has_its_own_number_of_outputs():
    counts = [len(result.outputs) for result in hypotheses().results([1, 2])]
    assert counts == [1, 1]
    assert [len(result.outputs) for result in hypotheses().results([2, 1])] == [2, 1]
    assert [len(result.outputs) for result in hypotheses().results(9)] == [2, 1]


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_read(count):
    empty = Hypotheses(*(part[:count] for part in vars(hypotheses()).values()))
    assert len(empty.results(0)) == count
    assert all(result.outputs == [] for result in empty.results(0))


@torch.no_grad()
def test_what_was_collected_stays_when_its_slot_is_used_again():
    model = small("transformer")
    memory = model.encode(tokens_of([[4, 5, 6]]))
    device_search, options = DeviceSearch(model, memory, 1, 8, 2), SlotOptions.of([Options(beam=2)], [6], "cpu")
    for _ in range(2):
        device_search.put(slice(0, 1), memory, options)
        for _ in range(7):
            device_search.advance()
        collected = device_search.collect(slice(0, 1))
        before = collected.results(2)
        device_search.put(slice(0, 1), model.encode(tokens_of([[7, 8, 9]])), options)
        device_search.advance()
        assert collected.results(2) == before


# ---- a model's copy in bfloat16: close to the original, with scores in float32


@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", "both"])
def test_half_is_near_the_whole(kind):
    """With weights rounded to eight bits, the next token's scores change little and stay in float32."""
    model = small(kind, scale=1.0, dtype=torch.float32)
    half = to_bfloat16(model)
    assert next(model.parameters()).dtype == torch.float32
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    source = tokens_of(sentences(4))
    with torch.no_grad():
        scores = []
        for each in (model, half):
            state = each.start(each.encode(source), 1, 4)
            scores.append(each.step(torch.tensor([1, 1, 1, 1]), state)[0])
    assert scores[1].dtype == torch.float32
    torch.testing.assert_close(scores[1], scores[0], atol=0.1, rtol=0.05)


def test_a_bias_is_not_rounded():
    """In bfloat16, scores around a large bias would be equal."""
    model = build("transformer", read_model_config(SMALL["transformer"]), WORDS, WORDS).eval()
    with torch.no_grad():
        model.readout.bias.copy_(20 + torch.arange(WORDS) / 100)
        half = to_bfloat16(model)
        x = torch.zeros(2, 8, dtype=torch.bfloat16)
        torch.testing.assert_close(half.output(x), model.readout.bias.expand(2, -1), atol=2e-4, rtol=0)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("words", [16, 17, 30])
def test_rows_of_scores_are_whole_whatever_the_vocabulary_is(words, biased):
    """Products of other widths are slow; the columns past the vocabulary are unused."""
    config = read_model_config({**SMALL["transformer"], "output_bias": biased})
    model = build("transformer", config, words, words).eval()
    half = to_bfloat16(model)
    x = torch.randn(3, 5, 8).to(torch.bfloat16)
    with torch.no_grad():
        scores = half.output(x)
        expected = x.float() @ model.readout.weight.to(torch.bfloat16).float().t()
        if biased:
            expected += model.readout.bias
    assert scores.shape == (3, 5, words)
    assert scores.stride(1) % 16 == 0
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)
