"""Answers as JSON: outputs, and errors in the words of the command line."""

import math

import pytest
from serving.served import stored

from regard.decoding import Options, Output
from regard.run import load
from regard.serving.answers import as_table, check_pairs, error_of, join_texts, split_texts, write_texts
from regard.serving.requests import ApiError
from regard.tasks import Translation, to_translations


def test_an_output_holds_what_was_asked_for_and_no_infinity():
    output = Translation("a b", -math.inf, -1.5, ("a", "b"), True)
    plain = {"text": "a b", "score": None, "log_prob": -1.5, "tokens": ["a", "b"], "finished": True}
    assert as_table(output) == plain
    more = Translation("a b", -1.0, -1.5, ("a", "b"), True, ((0, 1),), (-0.5, -math.inf))
    assert as_table(more) == {**plain, "score": -1.0, "alignment": [[0, 1]], "scores": [-0.5, None]}


def test_lists_of_other_lengths_are_refused():
    check_pairs(["a"], ["b"])
    with pytest.raises(ApiError, match="targets: 1 given, expected one for each of 2 texts"):
        check_pairs(["a", "b"], ["c"])


def test_an_unknown_error_is_a_fault_of_the_server():
    assert error_of(ZeroDivisionError()) is None
    assert error_of(MemoryError()).status == 503
    known = ApiError(404, "x", "y")
    assert error_of(known) is known


@pytest.mark.parametrize("nbest", [1, 3])
def test_outputs_are_written_as_they_are_joined(nbest):
    """Texts of one piece take a shorter way, to the same answer; the rest are joined."""
    tokenizer = load(*stored("transformer")).tokenizers.source
    given = ["the dog eats", "", "a cat. A dog!", "one\ntwo three", " white space "]
    texts, ids = split_texts(given, tokenizer, 200, True)
    assert {each.whole for each in texts} == {True, False}
    outputs = [
        [Output([*tokens, 4 + rank], -rank - 0.5, -math.inf if rank else -1.0, rank == 0) for rank in range(nbest)]
        for tokens in ids
    ]
    options = Options(nbest=nbest)
    expected = join_texts(texts, to_translations(outputs, tokenizer), options)
    assert write_texts(texts, outputs, tokenizer, options) == expected
    assert [len(each["outputs"]) for each in expected] == [nbest] * len(given)
