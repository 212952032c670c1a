"""Sentences that join a running search get the same answers as alone, and so do the earlier ones."""

import random

import pytest
import torch
from decoding.cases import SMALL, WORDS, sentences, small
from hypothesis import given, settings
from hypothesis import strategies as st
from models.cases import CASES, model_of

from regard.decoding.options import Options
from regard.decoding.scoring import tokens_of
from regard.decoding.sentence_search import StepSearch, can_join, join_searches, search, shared_options


def begin(model, sources, options, prefixes=None):
    """Begin a search with options per sentence, and run its first step."""
    under_way = StepSearch(model, tokens_of(sources), options[0], prefixes, each=options)
    under_way.advance()
    return under_way


@torch.no_grad()
def joined(model, batches):
    """Join each batch to the running ones some steps after them; return all results in order."""
    every, running = [], None
    for sources, options, prefixes, steps in batches:
        new = StepSearch(model, tokens_of(sources), options[0], prefixes, each=options)
        every += new.sentences
        while new.advance() and not can_join(new, new):
            pass
        if not can_join(new, new):  # all of its sentences are done
            continue
        new_going = [each for each in new.sentences if not each.done]
        if running is None or all(each.done for each in running.sentences):
            running = new if new_going else None
        elif new_going:
            assert can_join(running, new)
            join_searches(running, new)
        for _ in range(steps):
            if running is not None and not running.advance():
                running = None
    while running is not None and running.advance():
        pass
    return [each.result() for each in every]


def same(found, expected, tolerance=1e-9):
    for one, other in zip(found, expected, strict=True):
        assert len(one.outputs) == len(other.outputs)
        # Equal scores may come in either order, and the last output may have a dropped equal.
        scores = [output.score for output in other.outputs]
        tied = [
            any(abs(score - near) <= tolerance for near in scores[:i] + scores[i + 1 :])
            for i, score in enumerate(scores)
        ]
        if len(scores) > 1:
            tied[-1] = True
        for mine, theirs, tie in zip(one.outputs, other.outputs, tied, strict=True):
            assert mine.tokens == theirs.tokens or (tie and abs(mine.score - theirs.score) <= tolerance)
        for mine, theirs in zip(one.outputs, other.outputs, strict=True):
            assert mine.finished == theirs.finished
            assert mine.log_prob == pytest.approx(theirs.log_prob, abs=tolerance)
            assert mine.score == pytest.approx(theirs.score, abs=tolerance)


@pytest.mark.parametrize("beam", [1, 3, 9])
@pytest.mark.parametrize("kind", [*SMALL, "both"])
def test_every_model_joins(kind, beam):
    """Sources and outputs have different lengths; a beam of nine copies its past into each row."""
    model, options = small(kind), Options(beam=beam, nbest=beam, shortest=2, longest=9)
    groups = [sentences(3, 4), sentences(2, 9), sentences(4, 7), sentences(1, 2)]
    steps = (3, 1, 2, 0)
    found = joined(model, [(group, [options] * len(group), None, n) for group, n in zip(groups, steps, strict=True)])
    same(found, [search(model, tokens_of([each]), options)[0] for group in groups for each in group])


@pytest.mark.parametrize("name", [name for name in CASES if name.split("-")[0] in ("ntm", "pointer", "captioner")])
def test_pointers_and_machines_join(name):
    model, options = model_of(name), Options(beam=2, nbest=2, shortest=2, longest=6)
    groups = [[[3, 4, 5], [4]], [[5, 3, 4, 3, 5]], [[3], [4, 4]]]
    found = joined(model, [(group, [options] * len(group), None, 2) for group in groups])
    same(found, [search(model, tokens_of([each]), options)[0] for group in groups for each in group])


@settings(max_examples=25)
@given(st.data())
def test_every_sentence_has_options_of_its_own(data):
    model, batches, alone = small("transformer"), [], []
    beam, no_repeat = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 2))
    for _ in range(3):
        sources = sentences(data.draw(st.integers(1, 3)), 6)
        options, prefixes = [], []
        for _ in sources:
            shortest = data.draw(st.integers(0, 5))
            numbers = {"shortest": shortest, "longest": data.draw(st.integers(max(4, shortest), 9))}
            numbers |= {"length_penalty": data.draw(st.floats(0, 2)), "nbest": data.draw(st.integers(1, beam))}
            options.append(Options(beam=beam, no_repeat=no_repeat, **numbers))
            prefixes.append([random.randrange(3, WORDS) for _ in range(data.draw(st.integers(0, 3)))])
        batches.append((sources, options, prefixes, data.draw(st.integers(0, 4))))
        for source, own, prefix in zip(sources, options, prefixes, strict=True):
            alone.append(search(model, tokens_of([source]), own, prefixes=[prefix])[0])
    same(joined(model, batches), alone)


@pytest.mark.parametrize(
    "others",
    [
        {"sample": True, "nbest": 2, "temperature": 0.8, "top_k": 5},
        {"coverage_penalty": 0.3},
        {"groups": 2, "diversity": 0.7, "beam": 4, "nbest": 4},
    ],
)
def test_other_ways_to_search_join(others):
    model = small("transformer")
    groups = [sentences(2, 4), sentences(3, 7), sentences(1, 2)]
    each = [Options(shortest=1, longest=8, seed=seed, **others) for seed in (3, 4, 5)]
    batches = [(group, [own] * len(group), None, 2) for group, own in zip(groups, each, strict=True)]
    alone = [search(model, tokens_of([one]), own)[0] for group, own in zip(groups, each, strict=True) for one in group]
    same(joined(model, batches), alone)


@torch.no_grad()
def test_a_sentence_that_is_stopped_leaves_and_the_others_stay():
    model, options = small("transformer"), Options(beam=3, shortest=6, longest=8)
    running = begin(model, [[3, 4], [5, 6, 7], [8]], [options] * 3)
    (first, gone, last) = running.sentences
    running.stop(gone)
    while running.advance():
        assert gone.done or running.step == 2
    same([first.result(), last.result()], [search(model, tokens_of([each]), options)[0] for each in ([3, 4], [8])])


@torch.no_grad()
def test_what_cannot_be_joined():
    model, options = small("transformer"), Options(beam=2, shortest=3)
    one = begin(model, [[3, 4]], [options])
    assert can_join(one, begin(model, [[5]], [Options(beam=2, nbest=2, shortest=2, length_penalty=0.0, longest=9)]))
    assert not can_join(one, begin(model, [[5]], [Options(beam=3, shortest=3)]))
    assert not can_join(one, begin(small("transformer"), [[5]], [options]))
    assert not can_join(one, StepSearch(model, tokens_of([[5]]), options))  # the second has not begun
    traced = StepSearch(model, tokens_of([[5]]), options, trace=True)
    traced.advance()
    assert not can_join(one, traced)
    inside_prefix = begin(model, [[5]], [options], [[4, 4, 4]])
    assert not can_join(one, inside_prefix)  # it has one hypothesis until its prefix ends
    assert shared_options(options) == shared_options(Options(beam=2, seed=9, precision="fp32"))


@torch.no_grad()
def test_a_search_that_is_joined_for_long_holds_no_more():
    """Sentences come and go: the search frees every position before the oldest sentence."""
    model, options = small("transformer"), Options(beam=3, shortest=4, longest=6)
    running, widths, slots = begin(model, [[3, 4, 5]], [options]), [], []
    for _ in range(40):
        new = begin(model, sentences(1, 5), [options])
        join_searches(running, new)
        running.advance()
        running.advance()
        widths.append(running.history.shape[-1])
        slots.append(running.state.row["past.0"].keys.shape[-2])
        assert len(running.sentences) <= 8
    assert max(widths[20:]) <= max(widths[:20])
    assert max(slots[20:]) <= max(slots[:20]) + 3
