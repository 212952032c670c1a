"""What all tasks share: vocabulary sizes, halves of batches, evenly spread samples; a run's engine is its model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import first, table

import regard
from regard.alignment import extraction
from regard.data import Position, Tokenizers, prepare, train
from regard.decoding import Options, Output, batches
from regard.errors import ArgumentError, ConfigError, TrainingError
from regard.tasks.settings import read_settings
from regard.tasks.task import ModelEngine, RunTask, build_model, halve, pick_three, to_translation, vocabulary_sizes

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
    weights = [each.weights for each in extraction.word_attention(run.model, run.tokenizers, pairs, settings)]
    assert all((a == b).all() for a, b in zip(engine.word_weights(pairs, settings), weights, strict=True))
    assert engine.link_words(pairs, settings) == extraction.link_words(run.model, run.tokenizers, pairs, settings)


def test_it_refuses_no_option(run):
    run.engine.check(Options(sample=True, temperature=0.5, no_repeat=2, coverage_penalty=0.1))


def test_another_model_has_another_engine(run):
    other = regard.load("tests/stored_runs/transformer")
    before = other.engine
    other.model = run.model
    assert other.engine.model is run.model is not before.model


@pytest.mark.parametrize("text", ["", "a", "b a c"])
def test_an_output_as_text(text):
    tokenizer = train(["a b c"], "word")
    tokens = tokenizer.encode(text)
    made = to_translation(Output(tokens, log_prob=-2.0, score=-1.5, finished=True), tokenizer)
    assert made.text == text
    assert made.tokens == tuple(tokenizer.pieces(tokens))
    assert (made.score, made.log_prob, made.finished, made.alignment) == (-1.5, -2.0, True, None)


def word(*texts):
    return train(list(texts), "word")


TWO = Tokenizers(word("a b c"), word("d e"))
ONE = Tokenizers(word("a b c"))
SMALL = {"size": 8, "heads": 2, "layers": 1, "hidden": 8}


@given(st.lists(st.integers(0, 99), unique=True, max_size=30))
def test_three_of_an_order_or_fewer(order):
    chosen = pick_three(order)
    assert len(chosen) == min(3, len(order))
    assert set(chosen) <= set(order)


def test_they_are_a_quarter_a_half_and_three_quarters_along():
    assert pick_three(range(100, 108)) == [102, 104, 106]


class Single:
    def halves(self):
        raise ArgumentError("one row")


class Double:
    def halves(self):
        return [1, 2]


def test_one_example_cannot_be_halved():
    assert halve(Double(), "") == [1, 2]
    with pytest.raises(TrainingError, match="^set the size lower$"):
        halve(Single(), "set the size lower")


@pytest.mark.parametrize(
    ("table", "tokenizers", "labels", "sizes"),
    [
        ({}, TWO, (), (TWO.source.size, TWO.target.size)),
        ({"task": "language-model"}, ONE, (), (ONE.target.size, ONE.target.size)),
        ({"task": "classify"}, ONE, ("good", "bad", "so so"), (ONE.source.size, 3)),
        ({"task": "classify", "model": {"kind": "convnet"}}, None, ("cat", "dog"), (0, 2)),
    ],
)
def test_sizes_of_what_is_read_and_written(table, tokenizers, labels, sizes):
    assert vocabulary_sizes(read_settings(table), tokenizers, labels) == sizes


def test_one_numbering_of_two_tokenizers_can_be_tied():
    table = {"model": {"kind": "transformer", **SMALL, "tied": "all"}}
    same = Tokenizers(word("a b c"), word("a b c"))
    assert (same.joint, same.same_ids, TWO.same_ids, ONE.same_ids) == (False, True, False, True)
    build_model(read_settings(table), same)


def test_two_vocabularies_cannot_be_tied():
    table = {"model": {"kind": "transformer", **SMALL, "tied": "all"}}
    with pytest.raises(ConfigError, match="model.tied"):
        build_model(read_settings(table), TWO)
    build_model(read_settings(table), ONE)


def test_a_task_says_that_it_cannot_be_measured_or_looked_into():
    class Opened:
        folder, settings = "runs/x", read_settings({})

    with pytest.raises(ArgumentError, match="which cannot be measured"):
        RunTask.evaluate(Opened())
    with pytest.raises(ArgumentError, match="which cannot be inspected"):
        RunTask.force(Opened(), "a", None, None, False)


# ---- tasks of text pairs: batches by a token budget, padded or packed, and their halves


@pytest.fixture
def task(tmp_path):
    settings = read_settings(table(tmp_path))
    return settings.row.load()(settings, prepare(settings.data, settings.tokenizer), 64)


def test_counts_are_the_tokens_that_are_predicted(task):
    for position, plan in first(task.stream(Position()), 20):
        assert task.count(plan) == task.batch(plan, position).tokens


@pytest.mark.parametrize("half", [True, False])
def test_batches_of_few_shapes_hold_the_same_sentences(task, half):
    task.objective.eval()
    plans = first(task.stream(Position()), 5)
    before = [task.objective(task.batch(plan, position)) for position, plan in plans]
    task.limit_shapes(half)
    assert task.form == ("packed" if half else "padded")
    for (position, plan), expected in zip(plans, before, strict=True):
        batch = task.batch(plan, position)
        found = task.objective(batch)
        assert batch.tokens == task.count(plan)
        assert float(found.parts["tokens"]) == task.count(plan)
        assert float(found.total.detach()) == pytest.approx(float(expected.total.detach()), rel=1e-4)
        assert sum(half.tokens for half in task.halves(batch)) == batch.tokens
    with pytest.raises(TrainingError, match=r"out of memory with one sentence of \d+ tokens"):
        task.halves(task.batch(plan[:1], position).part(0, 1))
