"""Alignment of a corpus by a run: settings as typed, pairs that are read or translated, links of both directions."""

import pytest
from inspection.subjects import PAIRS, subject

from regard.alignment import AlignmentSettings, flip_links, symmetrise
from regard.decoding import first_model
from regard.errors import CommandError
from regard.inspection.corpus_alignment import AlignedPair, align_pairs, change_settings, choose_settings, read_pairs

CROSSINGS = ["decoder.blocks.0.cross", "decoder.blocks.1.cross"]
USUAL = AlignmentSettings(CROSSINGS[1], threshold=0.2)


@pytest.fixture
def files(tmp_path):
    for name, lines in (("source", [each.source for each in PAIRS]), ("target", [each.target for each in PAIRS])):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(tmp_path / "source"), str(tmp_path / "target")


@pytest.mark.parametrize(
    ("typed", "settings"),
    [
        ({}, USUAL),
        ({"view": "1"}, AlignmentSettings(CROSSINGS[0], threshold=0.2)),
        ({"view": CROSSINGS[0], "head": "3"}, AlignmentSettings(CROSSINGS[0], 2, threshold=0.2)),
        ({"head": "mean", "offset": 1}, AlignmentSettings(CROSSINGS[1], None, 1, threshold=0.2)),
        ({"threshold": 0.0, "join": "union"}, AlignmentSettings(CROSSINGS[1], join="union")),
        ({"join": "none", "balance": 5}, AlignmentSettings(CROSSINGS[1], threshold=0.2, balance=5)),
    ],
)
def test_settings_are_changed_as_typed(typed, settings):
    assert change_settings(USUAL, CROSSINGS, **typed) == settings


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"view": "3"}, "--view: 3 given, expected a layer, 1 to 2"),
        ({"view": "0"}, "--view: 0 given, expected a layer, 1 to 2"),
        ({"head": "0"}, "--head: 0 given, expected a number from 1, or mean"),
        ({"view": "cross"}, "--view: cross given"),
        ({"head": "first"}, "--head: first given, expected a number from 1, or mean"),
        ({"head": "-1"}, "--head: -1 given"),
        ({"join": "both"}, "--join: both given, expected one of intersection, union, grow-diag or none"),
    ],
)
def test_what_is_typed_wrong_is_named(typed, said):
    with pytest.raises(CommandError, match=said):
        change_settings(USUAL, CROSSINGS, **typed)


def test_pairs_are_read_and_aligned_as_the_run_does(files):
    run = subject("transformer")
    total, chunks = read_pairs(run, *files, print)
    (pairs,) = chunks
    assert pairs == [AlignedPair(each.source, each.target) for each in PAIRS]
    assert total in (None, len(PAIRS))
    found = align_pairs(run, None, pairs, "grow-diag")
    assert [pair.links for pair in found] == list(run.links([(each.source, each.target) for each in PAIRS]))


def test_without_a_target_the_translations_are_aligned(files):
    run = subject("luong")
    pairs = [pair for chunk in read_pairs(run, files[0], None, print, beam=1)[1] for pair in chunk]
    outputs = [each[0] for each in run.stream([each.source for each in PAIRS], alignment=True, beam=1)]
    assert [(pair.target, tuple(pair.links)) for pair in pairs] == [(each.text, each.alignment) for each in outputs]
    assert align_pairs(run, None, pairs, "union") == pairs  # the pairs are not aligned again


def test_links_of_both_directions_are_joined():
    run, reverse = subject("transformer"), subject("luong")
    pairs = [AlignedPair(each.source, each.source) for each in PAIRS[:9]]  # one text twice: both runs can read it
    texts = [(pair.source, pair.target) for pair in pairs]
    backward = [flip_links(links) for links in reverse.links(texts)]
    expected = [symmetrise(one, two, "union") for one, two in zip(run.links(texts), backward, strict=True)]
    assert [pair.links for pair in align_pairs(run, reverse, pairs, "union")] == expected


def test_runs_choose_by_agreement(files):
    one, two = subject("transformer"), subject("luong")
    for run, settings, readings in choose_settings(one, two, *files, None, None, print):
        assert settings.view in first_model(run.model).cross_attentions
        assert min(each.aer for each in readings) == pytest.approx(settings.aer)
        assert settings.by.startswith("agreement with a reverse run on")
