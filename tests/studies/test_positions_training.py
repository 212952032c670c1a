"""Positions in training: how the study counts copies and judges, and, in the slow form, its findings."""

from pathlib import Path

import pytest
import torch
from models.cases import model_of

from regard.data import generate
from regard.models import Tokens
from regard.tasks import read_settings
from regard_studies import Setting, positions_training, run
from regard_studies.corpora import phrasebook
from regard_studies.positions_training import (
    ENCODINGS,
    TIMES,
    LengthFigures,
    correct_prefix,
    further_verdicts,
    tables,
    verdicts,
)
from regard_studies.seed_statistics import SeedStatistics
from regard_studies.systems import TranslationFigures

SETTINGS = [Setting(quick=True), Setting(), Setting(data=Path("corpora"))]


@pytest.mark.parametrize("setting", SETTINGS, ids=["quick", "built in", "real"])
def test_systems_of_a_task_differ_in_positions_alone(setting):
    made = {name: read_settings(table) for name, table in tables(setting, phrasebook(10, 1)).items()}
    copying = {name: each for name, each in made.items() if name.startswith("copy-")}
    for found in (copying, {name: each for name, each in made.items() if name not in copying}):
        assert len({(each.model.positions, each.model.join) for each in found.values()}) == len(found)
        same = {(each.model.size, each.model.layers, each.model.heads, each.model.dropout) for each in found.values()}
        assert (
            len(same)
            == len({each.training for each in found.values()})
            == len({each.data for each in found.values()})
            == 1
        )
    assert {each.data.builtin for each in copying.values()} == {"copy"}


@pytest.mark.parametrize("setting", SETTINGS, ids=["quick", "built in", "real"])
def test_tests_are_as_long_as_they_say(setting, monkeypatch):
    monkeypatch.setattr(positions_training, "generate", lambda name, count, **options: generate(name, 5, **options))
    for times in TIMES:
        size = round(positions_training.longest(setting) * times)
        found = positions_training.sequences(setting, times)
        assert {len(example.source.split()) for example in found} == {size}
        assert all(example.source == example.target for example in found)


def test_what_is_right_before_the_first_mistake():
    target = list("abcd")
    for output, share in (("abcd", 1.0), ("abxd", 0.5), ("ab", 0.5), ("", 0.0), ("xbcd", 0.0), ("abcde", 1.0)):
        assert correct_prefix(list(output), target) == share


@pytest.mark.parametrize("name", ["transformer-alibi", "transformer-rotary"])
@torch.no_grad()
def test_biases_that_are_the_same_to_both_sides_see_no_direction(name):
    """The encoder with ALiBi turns a mirrored sentence into the mirror image, as the page says."""
    model, ids = model_of(name), torch.randint(4, 9, (1, 7))
    plain, mirrored = (model.encode(Tokens.of(each, torch.tensor([7]))).states for each in (ids, ids.flip(1)))
    assert torch.allclose(mirrored.flip(1), plain) == (name == "transformer-alibi")


def made(**bleu):
    return {
        name.replace("_", "-"): TranslationFigures(
            SeedStatistics((value - 0.1, value + 0.1)), SeedStatistics((5.0,) * 2), SeedStatistics((1.0,) * 2), 10
        )
        for name, value in bleu.items()
    }


def test_verdicts_follow_the_figures():
    joined = {"sinusoidal_joined": 36.1, "learned_joined": 36.0}
    papers = made(none=25.0, sinusoidal=36.0, learned=36.1, rotary=36.5, alibi=35.9, **joined)
    assert [each.agrees for each in verdicts(papers)] == [True] * 3
    joined = {"sinusoidal_joined": 30.1, "learned_joined": 32.0}
    other = made(none=31.0, sinusoidal=36.0, learned=32.0, rotary=36.5, alibi=35.9, **joined)
    assert [each.agrees for each in verdicts(other)] == [False] * 3


def copied(**far):
    return {
        name: {
            times: LengthFigures(SeedStatistics((value[i],)), SeedStatistics((0.0,)), SeedStatistics((value[2],)))
            for i, times in enumerate((1.0, 2.0))
        }
        for name, value in far.items()
    }


def test_going_further_is_judged():
    press = copied(
        none=(20, 5, 90.0),
        sinusoidal=(99, 40, 50.0),
        learned=(100, 45, 60.0),
        rotary=(99, 60, 3.0),
        alibi=(99, 90, 1.1),
    )
    assert [each.agrees for each in further_verdicts(press)] == [True] * 5
    other = copied(
        none=(20, 5, 90.0), sinusoidal=(99, 80, 1.2), learned=(90, 70, 1.5), rotary=(99, 60, 3.0), alibi=(99, 82, 1.3)
    )
    assert [each.agrees for each in further_verdicts(other)] == [False] * 5


def test_a_page_of_a_hardly_trained_study(shorten):
    small = phrasebook(100, 2, longest=5)
    setting = shorten(
        positions_training,
        data={"count": 100},
        training={"steps": 1, "validate_every": 1, "validate_rows": 0, "metric": "loss"},
        model={"size": 16, "hidden": 16, "layers": 1},
        longest_output=2,
        english_german=lambda setting, tests: small,
        generate=lambda name, count, **options: generate(name, 2, **options),
        longest=lambda setting: 4,
        FURTHER=("sinusoidal", "learned", "alibi"),
    )
    page = run("positions", quick=True, setting=setting)
    assert len(page.tables[0].rows) == len(ENCODINGS)
    assert len(page.tables[1].rows) == len(positions_training.FURTHER)
    assert page.signature.command(page.name) == "regard study positions --seeds 4 --quick"
    assert page.write(setting.out).is_file()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_claims_hold(tmp_path):
    """Not asserted: rotary positions and ALiBi, which so few updates hardly train."""
    page = run("positions", quick=True, setting=Setting((0,), quick=True, device="cpu", out=tmp_path))
    expected = ("learned positions do not go beyond", "sinusoidal positions do not go beyond")
    judged = [verdict for verdict in page.verdicts if verdict.claim.startswith(expected)]
    assert len(judged) == len(expected)
    for verdict in judged:
        assert verdict.agrees, verdict.evidence
    right = {row[0]: float(row[1]) for row in page.tables[1].rows}  # at the longest length of training
    assert right["sinusoidal, added"] > 90
