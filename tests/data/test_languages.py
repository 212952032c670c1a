"""The languages of a run: what a person says counts first, then its configuration, then its data."""

import pytest

from regard.config import parse
from regard.data.languages import languages_of, parse_given
from regard.data.settings import DataSettings
from regard.errors import CommandError


def data(**table):
    return parse(DataSettings, table)


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        ("train.en", "train.de", ("en", ("de",))),
        ("a/train.en.gz", "a/train.de.gz", ("en", ("de",))),
        ("train.lc.tok.en", "train.tok.deu.txt", ("en", ("deu",))),
        ("x.pt_BR", "x.en", ("pt_BR", ("en",))),
        ("train.source", "train.target", None),
        ("train.en", "train.en", None),
        ("train.txt", "train.de", None),
        ("source", "target", None),
        ("train.E1", "train.de", None),
    ],
)
def test_the_endings_of_files_name_them(source, target, languages):
    assert languages_of(data(source=source, target=target)) == languages


def test_a_person_comes_before_the_configuration_and_that_before_the_data():
    files = {"source": "train.en", "target": "train.de"}
    assert languages_of(data(**files, languages="fr-it")) == ("fr", ("it",))
    assert languages_of(data(**files, languages="fr-it"), "es-pt") == ("es", ("pt",))
    assert languages_of(data(builtin="phrasebook", pair="en-es")) == ("en", ("es",))
    assert languages_of(data(builtin="phrasebook", pair="en-es", languages="nl-pt_BR")) == ("nl", ("pt_BR",))


def test_a_corpus_without_languages_has_none():
    assert languages_of(data(builtin="copy")) is None


@pytest.mark.parametrize(("tags", "targets"), [(("<2de>", "<2fr>"), ("de", "fr")), ((">>deu<<", ">>deu<<"), ("deu",))])
def test_tags_name_the_targets(tags, targets):
    corpora = [{"source": f"{i}.en", "target": f"{i}.xx", "tag": tag} for i, tag in enumerate(tags)]
    assert languages_of(data(corpora=corpora)) == ("en", targets)
    assert languages_of(data(corpora=corpora), "en-xx") == ("en", targets)


def test_a_pair_is_split_at_its_hyphen():
    assert languages_of(data(), "en-de") == ("en", ("de",))
    assert languages_of(data(), "pt_BR-en") == ("pt_BR", ("en",))


def test_what_a_person_says_of_models_is_checked():
    assert parse_given(["demo=en-de", "other=pt_BR-en"], ["demo", "other", "third"]) == {
        "demo": "en-de",
        "other": "pt_BR-en",
    }
    expected = "given, expected a model and its languages, such as demo=en-de"
    for text in ("en-de", "demo=en", "demo", "demo=en-de-fr", "demo="):
        with pytest.raises(CommandError, match=f'--languages: "{text}" {expected}'):
            parse_given([text], ["demo"])
    with pytest.raises(CommandError, match=r"--languages: dmeo is not served; .*demo"):
        parse_given(["dmeo=en-de"], ["demo"])
