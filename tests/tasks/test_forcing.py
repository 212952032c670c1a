"""Forced outputs: those of a search with its tree, or those that a user gives."""

import math

import pytest
import torch
from inspection.subjects import (
    CLASSIFIERS,
    PAIRS,
    REVIEW,
    SHORT,
    TEXT,
    TRANSLATORS,
    WRITERS,
    exhibit_of_subject,
    item_of,
    subject,
)

from regard.config import parse
from regard.data import UNKNOWN
from regard.decoding import Options, batches, first_model
from regard.inspection import exhibit_of
from regard.tasks import TrainedRun

NEEDED = [name for name in vars(TrainedRun) if not name.startswith("_")]


@pytest.mark.parametrize("name", [*TRANSLATORS, *WRITERS])
def test_the_log_probability_is_that_of_the_pair(name):
    run, exhibit = subject(name), exhibit_of_subject(name)
    said = run.tokenizers.target.library
    target = [said.token_to_id(piece) for piece in exhibit.sides["written"].pieces[:-1]]
    source = [UNKNOWN] if name in WRITERS else run.tokenizers.source.encode(TEXT)
    (expected,) = batches.score_pairs(run.model, [source], [target])
    assert exhibit.log_prob == pytest.approx(expected.log_prob, rel=1e-4)
    assert exhibit.output == run.tokenizers.target.decode(target)
    assert exhibit.sides["read"].pieces[0] == "<s>"
    assert exhibit.sides["read"].pieces[1:] == exhibit.sides["written"].pieces[:-1]


def test_a_language_model_reads_its_text():
    exhibit = exhibit_of_subject("lstmn-writes")
    assert exhibit.output == TEXT
    assert exhibit.sides["written"].texts == tuple(TEXT.split())
    assert exhibit.tree is None
    assert exhibit.aligned is None


@pytest.mark.parametrize("name", [*CLASSIFIERS, "convnet"])
def test_a_label_can_be_given(name):
    exhibit = exhibit_of_subject(name, target="neither")
    assert exhibit.output == "neither"
    assert math.exp(exhibit.log_prob) == pytest.approx(exhibit.labels["neither"], rel=1e-4)
    assert sum(exhibit.labels.values()) == pytest.approx(1)


def test_a_text_classifier_reads_the_end_of_each_sentence():
    side = exhibit_of_subject("encoder-pools").sides["source"]
    ends = [i for i, piece in enumerate(side.pieces) if piece == "</s>"]
    assert [side.words[i] for i in ends] == [None] * len(ends)
    assert len(ends) == max(side.sentences) + 1 > 1
    assert side.texts == tuple(REVIEW.split())


def test_a_picture_is_read_from_its_file(tmp_path):
    from PIL import Image

    from regard.data import picture_pixels

    path = tmp_path / "drawn.png"
    Image.fromarray(item_of("captioner").movedim(0, -1).numpy()).save(path)
    run = subject("captioner")
    for given in (path, str(path)):
        exhibit = exhibit_of(run, given, **SHORT)
        assert exhibit.title == "drawn.png"
        assert torch.equal(exhibit.picture, torch.from_numpy(picture_pixels.read_for(run.settings.data, path)))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rnnsearch", {"beam": 1}),
        ("rnnsearch", {"beam": 4, "groups": 2}),
        ("rnnsearch", {"beam": 3, "length_penalty": 0.0, "shortest": 3}),
        ("rnnsearch", {"beam": 3, "coverage_penalty": 0.2}),
        ("rnn", {"sample": True, "seed": 5}),
        ("transformer", {"beam": 4}),
    ],
    ids=str,
)
def test_the_tree_is_what_the_search_considered(name, options):
    run, given = subject(name), {"longest": 9, **options}
    exhibit = exhibit_of(run, TEXT, **given)
    (found,) = batches.search_in_batches(
        run.model, [run.tokenizers.source.encode(TEXT)], parse(Options, given), trace=True
    )
    best = found.outputs[0]
    assert exhibit.output == run.tokenizers.target.decode(best.tokens)
    assert exhibit.log_prob == pytest.approx(best.log_prob, rel=1e-4)
    tree = exhibit.tree
    assert tree.beam == (1 if options.get("sample") else options["beam"])
    assert len(tree.steps) == len(found.steps)
    totals = {0: 0.0}
    for step, noted in zip(tree.steps, found.steps, strict=True):
        assert [each.total for each in step] == [each.log_prob for each in noted]
        assert [each.fate for each in step] == [each.fate for each in noted]
        for each in step:
            assert each.total == pytest.approx(totals[each.parent] + each.log_prob, abs=1e-6)
            assert each.log_prob <= 1e-6
        totals = {each.row: each.total for each in step if each.row is not None}
        assert len(totals) <= tree.beam
    way = [each for step in tree.steps for each in step if each.best]
    assert tuple(each.piece for each in way) == exhibit.sides["written"].pieces
    assert way[-1].fate == "finished"
    assert way[-1].total == pytest.approx(best.log_prob)
    assert sum(each.log_prob for each in way) == pytest.approx(best.log_prob, rel=1e-5)
    assert [each.row for each in way[:-1]] == [each.parent for each in way[1:]]


def test_a_tree_can_be_left_out():
    assert exhibit_of_subject("rnn", tree=False).tree is None
    assert exhibit_of_subject("rnn").tree.steps
    assert exhibit_of_subject("captioner", tree=False).tree is None


def test_a_target_is_forced():
    run, text = subject("luong"), PAIRS[3].target
    exhibit = exhibit_of(run, TEXT, target=text)
    assert exhibit.output == text
    assert exhibit.tree is None
    assert exhibit.log_prob == pytest.approx(run.score([TEXT], [text])[0].log_prob, rel=1e-4)
    weights = run.align(TEXT, text).weights
    from regard.inspection.collect.exhibit import merge

    rows, columns = exhibit.sides["written"].words, exhibit.sides["source"].words
    torch.testing.assert_close(merge(exhibit.views[0].weights.mean(0), rows, columns), weights)


@pytest.mark.parametrize("name", ["rnnsearch", "han", "captioner"])
def test_a_run_is_one(name):
    run = subject(name)
    assert {*NEEDED} <= {*dir(run)}
    assert run.settings.kind == name
    assert first_model(run.model) is run.model
    assert run.device == next(run.model.parameters()).device


def test_less_than_that_is_none():
    assert not {*NEEDED} & {*dir(object())}
