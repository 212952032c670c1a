"""The decoding benchmark: every system has our weights and gives our outputs, is reported as missing, or is refused."""

import importlib.util
import itertools
from functools import partial

import pytest
import torch
from bench.cases import DEMO, LENGTH, ROWS, TINY, Here
from forked import fork_for_spawn

from regard.data import END, collate
from regard.errors import RegardError
from regard.run import load
from regard_bench import decoding, decoding_peers
from regard_bench.decoding import DecoderProcess


def test_batches_hold_all_sources_with_those_of_like_length_together():
    batches = decoding.make_batches(5, 64, 8000, seed=0)
    lengths = torch.stack([batch.source_lengths for batch in batches])
    assert lengths.shape == (5, 64)
    assert 13 < lengths.float().mean() < 16
    bounds = sorted((int(each.min()), int(each.max())) for each in lengths)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(bounds))


def test_it_runs_and_names_who_is_not_there(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    results = list(decoding.run(rounds=1, sizes=TINY, rows=ROWS, length=LENGTH, demo=DEMO))
    names = [name for name in decoding.PACKAGES for _ in decoding.BEAMS] + ["CTranslate2 float32"]
    assert [result.peer for result in results] == [f"{name} is not installed" for name in names]
    for result in results:
        assert result.ratio is None
        assert not result.reached
    assert all(result.details["ours_sentences_s"] > 0 for result in results[:-1])
    assert results[-1].details["ours_ms"] > 0
    assert [result.goal for result in results if "greedy" in result.what] == [
        "at least 1.3 × its speed", "none", "none", "none", "at least 2 × its speed", "at most 10 × its time",
    ]  # fmt: skip


def test_a_sentence_alone_is_timed_beside_its_own_export(tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr(decoding, "DecoderProcess", Here)
    result = decoding.compare_alone(tmp_path, DEMO, rounds=2)
    assert result.details["equal_outputs"] == 1.0
    assert result.details["least_ratio"] <= result.ratio <= result.details["largest_ratio"]
    assert result.ratio > 0
    opened = load(tmp_path / "run", device="cpu")
    batches = decoding.make_sentences(opened, 2)
    texts = [opened.tokenizers.source.decode(batch.source[0].tolist()) for batch in batches]
    assert [len(text.split()) for text in texts] == 2 * list(decoding.WORDS)
    assert len(set(texts)) == len(texts)


def test_a_sentence_alone_that_says_something_else_is_refused(model):
    batches = [collate([([4, 5, 6], [])]), collate([([7, 8], [])])]
    ours = decoding_peers.RegardDecoder(model, LENGTH)
    said = [ours.tokens(ours(given, 1), given) for given in map(ours.prepare, batches)]
    one, other = decoding.Rate(), decoding.Rate()
    for rate in (one, other):
        rate.add(batches, 1, 1.0, said)
    assert decoding.equal_alone(model, batches, one, other, "another") == 1.0
    first = said[0][0][0]
    other.outputs[1][0] = [[5 if first == 4 else 4, END]]
    with pytest.raises(RegardError, match="bench: another, sentences alone: 1 of 2 outputs differ from Regard's"):
        decoding.equal_alone(model, batches, one, other, "another")


class Echo(decoding_peers.RegardDecoder):
    """A peer that is Regard itself, except that `spoil` changes its outputs."""

    def __init__(self, model, spoil=lambda outputs: outputs):
        super().__init__(model, LENGTH)
        self.spoil = spoil

    def tokens(self, outputs, given):
        return self.spoil(self.without_end(given, self.beam))

    def __call__(self, given, beam):
        self.beam = beam


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(decoding, "DecoderProcess", Here)

    def measure(model, batches, spoil):
        systems = {"Regard": lambda: decoding_peers.RegardDecoder(model, LENGTH), "another": lambda: Echo(model, spoil)}
        return decoding.measure(systems, batches, LENGTH + 1)

    return measure


def test_a_peer_that_says_the_same_is_compared(model, measured):
    batches = decoding.make_batches(3 * decoding.IN_A_ROW, ROWS, TINY.vocabulary, seed=0)
    found = measured(model, batches, lambda outputs: outputs)
    assert {beam: len(found["another"].rates[beam]) for beam in decoding.BEAMS} == {1: 3, 5: 3}
    ours = decoding_peers.RegardDecoder(model, LENGTH)
    assert decoding.same_outputs(batches, found, ours) == {("another", 1): 1.0, ("another", 5): 1.0}
    greedy, beam = decoding.compare_systems("what", found, ["Regard", "another"], {("another", 1): 1.0})
    rates = zip(found["Regard"].rates[1], found["another"].rates[1], strict=True)
    assert greedy.ratio == sorted(a / b for a, b in rates)[1]
    assert greedy.details["equal_outputs"] == 1.0
    assert beam.goal == "none"
    assert beam.reached


def test_a_peer_that_says_something_else_is_refused(model, measured):
    def spoil(outputs):
        return [[*outputs[0][:2], 4 if outputs[0][2] != 4 else 5, *outputs[0][3:]], *outputs[1:]]

    batches = decoding.make_batches(2, ROWS, TINY.vocabulary, seed=0)
    with pytest.raises(RegardError, match="bench: another, beam 1: 2 of 10 outputs differ from Regard's"):
        decoding.same_outputs(batches, measured(model, batches, spoil), decoding_peers.RegardDecoder(model, LENGTH))


def test_a_tie_may_fall_either_way(model, measured):
    with torch.no_grad():  # make two words identical to the model
        model.target.tokens.weight[5] = model.target.tokens.weight[4]
        model.readout.bias[[4, 5]] = 30.0

    def other(outputs):
        return [[9 - token if token in (4, 5) else token for token in each] for each in outputs]

    batches = decoding.make_batches(1, ROWS, TINY.vocabulary, seed=0)
    found = measured(model, batches, other)
    ours = decoding_peers.RegardDecoder(model, LENGTH)
    assert decoding.same_outputs(batches, found, ours)["another", 1] == 0.0  # no output is equal, and none is refused


@pytest.mark.parametrize(
    "spoil", [lambda outputs: [each[:-1] for each in outputs], lambda outputs: [[END, *each[1:]] for each in outputs]]
)
def test_another_length_is_refused(model, measured, spoil):
    batches = decoding.make_batches(1, ROWS, TINY.vocabulary, seed=0)
    with pytest.raises(RegardError, match=f"another, beam 1: .* written, not {LENGTH + 1} tokens"):
        measured(model, batches, spoil)


def test_what_goes_wrong_elsewhere_is_told_here(monkeypatch):
    fork_for_spawn(monkeypatch)
    with pytest.raises(RegardError, match="bench: ZeroDivisionError: .*by zero"):
        DecoderProcess(partial(divmod, 1, 0), ours=True)
    gone = DecoderProcess(partial(decoding.make, "Regard", TINY, 0, LENGTH), ours=False)
    gone.process.kill()
    with pytest.raises(RegardError, match="a system ended with status -9"):
        gone.time_batches([], 1)
