"""The engine of a run is its model: what it searches, scores and aligns is what the library's functions give."""

import pytest

import regard
from regard.decoding import Options, batches
from regard.inspection import extraction
from regard.tasks.engine import ModelEngine

TEXTS, TARGETS = ["who are you ?", "the man"], ["wer bist du ?", "der mann"]


@pytest.fixture(scope="module")
def run():
    return regard.load("tests/stored_runs/transformer")


def test_a_model_searches_scores_and_aligns(run):
    engine = run.engine
    assert isinstance(engine, ModelEngine)
    sources, targets = run.tokenizers.source.encode_batch(TEXTS), run.tokenizers.target.encode_batch(TARGETS)
    options = Options(beam=3, nbest=2)
    assert engine.search(sources, options, prefixes=targets) == batches.search_in_batches(
        run.model, sources, options, prefixes=targets
    )
    assert engine.score(sources, targets) == batches.score_pairs(run.model, sources, targets)
    pairs, settings = list(zip(sources, targets, strict=True)), run.alignment_settings
    weights = extraction.word_weights(run.model, run.tokenizers, pairs, settings)
    assert all((a == b).all() for a, b in zip(engine.word_weights(pairs, settings), weights, strict=True))
    assert engine.link_words(pairs, settings) == extraction.link_words(run.model, run.tokenizers, pairs, settings)


def test_it_refuses_no_option(run):
    run.engine.check(Options(sample=True, temperature=0.5, no_repeat=2, coverage_penalty=0.1))


def test_another_model_has_another_engine(run):
    other = regard.load("tests/stored_runs/transformer")
    before = other.engine
    other.model = run.model
    assert other.engine.model is run.model is not before.model
