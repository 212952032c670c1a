"""What workers call: it crosses to another process, and gives what the run itself does."""

import functools
import pickle

import pytest
from serving.served import stored

from regard.decoding import Options, search, tokens_of
from regard.run import load
from regard.serving.worker import collect_page, list_alignments, list_links, score_tokens

TEXTS, TARGETS = ["the dog eats", "a cat"], ["sie wer", "wer"]


@pytest.fixture(scope="module")
def run():
    return load(*stored("transformer"))


def call(function, run, **given):
    """What comes back from another process."""
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(functools.partial(function, **given)))(run)))


def test_alignments_are_those_of_the_run(run):
    ids = run.tokenizers.source.encode_batch(TEXTS)
    outputs = [search(run.model, tokens_of([each]), Options(longest=4))[0].outputs for each in ids]
    expected = list(run.stream(TEXTS, longest=4, alignment=True))
    found = call(list_alignments, run, given=(TEXTS, ids, outputs, True, False))
    assert [[each.alignment for each in row] for row in found] == [[each.alignment for each in row] for row in expected]
    assert [row[0].text for row in found] == [row[0].text for row in expected]


def test_links_are_those_of_the_run(run):
    pairs = list(zip(TEXTS, TARGETS, strict=True))
    assert call(list_links, run, pairs=pairs) == list(run.links(pairs))


def test_scores_are_those_of_the_run(run):
    ids = [side.encode_batch(each) for side, each in ((run.tokenizers.source, TEXTS), (run.tokenizers.target, TARGETS))]
    found = call(score_tokens, run, sources=ids[0], targets=ids[1])
    for mine, theirs in zip(found, run.score(TEXTS, TARGETS), strict=True):
        assert mine.tokens == pytest.approx(theirs.tokens, abs=1e-5)


def test_a_page_is_plain_data(run):
    page = call(collect_page, run, item=TEXTS[0], target=TARGETS[0], table={})
    assert page == collect_page(run, TEXTS[0], TARGETS[0], {})
    assert "sie" in repr(page)
