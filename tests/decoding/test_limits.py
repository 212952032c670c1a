"""A search checks its memory needs before it allocates."""

import re
import time

import pytest
import torch
from decoding.cases import Script, found_of, greedy, sentences, small

from regard.data import END
from regard.decoding.limits import check_memory, output_limit, output_limits, row_bytes, search_bytes
from regard.decoding.options import Options
from regard.decoding.scoring import (
    tokens_of,
)
from regard.decoding.sentence_search import search
from regard.errors import ArgumentError
from regard.machine import memory
from regard.models import KINDS, Tokens, build, read_model_config

# ---- a search checks its memory needs before it allocates; the limit on an output's length


needs_memory = pytest.mark.skipif(memory() is None, reason="this system does not say how much memory it has")
TINY = {"kind": "transformer", "size": 16, "heads": 2, "layers": 1, "hidden": 16}
SOURCE = Tokens.of(torch.tensor([[5, 6, 7]]), torch.tensor([3]))


@needs_memory
def test_the_most_that_fits_is_said_and_fits():
    row = 100 * 2**20
    with pytest.raises(
        ArgumentError, match=r"^beam: 10,000 given, with outputs of up to 50 tokens, which would"
    ) as caught:
        check_memory(Options(beam=10_000), row, 1, 50, 8000)
    most = int(re.search(r"expected at most ([\d,]+) here", str(caught.value))[1].replace(",", ""))
    check_memory(Options(beam=most), row, 1, 50, 8000)
    with pytest.raises(ArgumentError, match="beam"):
        check_memory(Options(beam=most + 1), row, 1, 50, 8000)


@needs_memory
def test_samples_and_batches_are_named():
    with pytest.raises(ArgumentError, match="^nbest: 10,000 given, with"):
        check_memory(Options(sample=True, nbest=10_000), 2**30, 1, 50, 8000)
    with pytest.raises(ArgumentError, match=r"^beam: 5 given for 10,000 sentences at a time \(batch_tokens\)"):
        check_memory(Options(beam=5), 2**30, 10_000, 50, 8000)
    with pytest.raises(ArgumentError, match="make longest or shortest smaller"):
        check_memory(Options(beam=5), 2**50, 1, 50, 8000)


@needs_memory
def test_groups_are_compared_with_each_other():
    """Each candidate of a group is compared with all outputs of the others: far more memory than the hypotheses."""
    assert search_bytes(10_000, 2, 0, 50, 30_000) > 50 * search_bytes(10_000, 1, 0, 50, 30_000)
    with pytest.raises(ArgumentError, match="beam: 10,000 given"):
        check_memory(Options(beam=10_000, groups=2), 0, 1, 50, 30_000)


@needs_memory
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "translate" in KINDS[kind].tasks])
def test_outputs_without_end_are_refused_before_their_cache_is_made(kind):
    model = build(kind, read_model_config({"kind": kind, "preset": "tiny"}), 20, 20).eval()
    start = time.process_time()
    with pytest.raises(ArgumentError, match="^beam: 10,000 given"):
        search(model, SOURCE, Options(beam=10_000, longest=1_048_576))
    assert time.process_time() - start < 20


def test_what_fits_is_searched():
    """A small model with a wide beam."""
    model = build("transformer", read_model_config(TINY), 20, 20).eval()
    (found,) = search(model, SOURCE, Options(beam=2_000, nbest=10, longest=3))
    assert len(found.outputs) == 10
    state = model.start(model.encode(SOURCE), 1, 8)
    assert row_bytes(state, 1) >= 2 * 8 * 16 * 4  # keys and values of eight steps


def test_the_limit_of_one_source():
    """By hand: twice its tokens plus twenty, a prefix plus twenty, the requested length, and the model's limit."""
    model = small("transformer")
    assert [output_limit(model, length, Options()) for length in (1, 4, None)] == [22, 28, 60]
    assert [output_limit(model, 4, Options(), prefix) for prefix in (0, 8, 9, 30)] == [28, 28, 29, 50]
    assert output_limit(model, None, Options(), 50) == 70
    assert output_limit(model, 4, Options(longest=5), 30) == 5
    assert output_limit(model, 4, Options(shortest=33)) == 33
    model.limit = 9
    assert [output_limit(model, length, Options(shortest=33)) for length in (1, 4)] == [8, 8]
    found = output_limits(model, tokens_of([[3], [3, 4]]), Options(longest=3), [[3], []])
    assert found.tolist() == [3, 3]


@pytest.mark.unchecked
def test_limits():
    endless = [[5] * 1000, [6] * 1000]
    model = Script(endless)
    found = greedy(model, tokens_of([[4], [4, 4, 4]]))
    assert [len(answer) for answer in found] == [22, 26]  # twice its own source plus twenty
    assert model.size == 27  # and its END
    assert [len(answer) for answer in greedy(Script(endless), tokens_of([[4], [4, 4, 4]]), 5)] == [5, 5]
    assert greedy(Script(endless), tokens_of([[4]]), 1) == [[5]]
    assert greedy(Script(endless), tokens_of([[4]]), 0) == [[]]


def test_learned_positions_are_a_limit():
    model = small("transformer")
    model.limit = 4
    for found in found_of(model, sentences(3), Options(beam=2, shortest=9)):
        assert len(found.outputs[0].tokens) == 3


def test_prefixes_that_do_not_fit():
    model = small("rnn")
    with pytest.raises(ArgumentError, match="prefix: 4 tokens given, expected at most 3, the limit of its output"):
        found_of(model, [[4]], Options(longest=3), prefixes=[[5, 5, 5, 5]])
    with pytest.raises(ArgumentError, match="2 given, expected one for each of 1 sentences"):
        found_of(model, [[4]], Options(), prefixes=[[5], [6]])


def test_prefixes_of_what_cannot_be_said():
    model = small("rnn")
    with pytest.raises(ArgumentError, match="prefix: 2 given, expected tokens of words"):
        found_of(model, [[4]], Options(), prefixes=[[5, END, 5]])
    with pytest.raises(ArgumentError, match="token 11 given, expected less than 11"):
        found_of(model, [[4]], Options(), prefixes=[[11]])


def test_a_long_prefix_has_room_unless_a_limit_was_given():
    model = small("rnn")
    output = found_of(model, [[4]], Options(beam=2), prefixes=[[5] * 30])[0].outputs[0]
    assert output.tokens[:30] == [5] * 30
    assert len(output.tokens) <= 50
