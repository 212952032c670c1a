"""Language pairs: which model serves a pair, the meaning of a code, and the language of a text."""

from types import SimpleNamespace

import pytest
from serving.served import STORED

from regard.config import parse
from regard.data import DataSettings, generate, run_languages
from regard.serving.libretranslate.language_pairs import (
    NAMES,
    LanguagePair,
    LanguageTable,
    as_detection,
    language_name,
)


def test_names():
    assert language_name("en") == "English"
    assert language_name("pt_BR") == "Portuguese (BR)"
    assert language_name("zh-Hans") == "Chinese (Hans)"
    assert language_name("xx") == "xx"
    assert language_name("tlh-Latn") == "tlh-Latn"


def test_every_code_is_of_two_or_three_letters_and_every_name_is_one():
    assert len(NAMES) > 100
    for code, name in NAMES.items():
        assert code.isascii()
        assert code.islower()
        assert 2 <= len(code) <= 3
        assert name[0].isupper()


def model(name, source, targets, folder=STORED, tags=(), translates=True, many=()):
    """Return a model with the attributes that the table of pairs reads."""
    corpora = [{"source": "a.x", "target": "b.x", "tag": tag} for tag in tags]
    data = parse(DataSettings, {"corpora": corpora})
    run = SimpleNamespace(folder=folder, settings=SimpleNamespace(data=data))
    known = {"sources": list(many), "targets": list(many)} if many else None
    languages = None if source is None else {"source": source, "targets": list(targets)}
    card = {"languages": languages, "known_languages": known}
    return SimpleNamespace(name=name, run=run, translates=translates, card=card)


@pytest.fixture
def profiled(tmp_path):
    """Create a folder with language profiles of English and German."""
    examples = list(generate("phrasebook", 300))
    english, german = (
        run_languages.LanguageProfile.of([getattr(each, side) for each in examples]) for side in ("source", "target")
    )
    (tmp_path / run_languages.FILE).write_text(
        run_languages.RunLanguages(english, {"": german}).dumps(), encoding="utf-8"
    )
    return tmp_path


def test_codes_and_targets():
    table = LanguageTable([model("a", "en", ["de"]), model("b", "de", ["en", "fr"]), model("c", None, [])])
    assert table.codes == ["en", "de", "fr"]
    assert table.targets("en") == ["de", "en"]
    assert table.targets("de") == ["en", "fr", "de"]
    assert table.targets("fr") == ["fr"]
    assert table.unknown == ["c"]
    assert LanguageTable([model("d", None, [], translates=False)]).unknown == []


def test_a_model_with_many_languages_has_every_pair():
    table = LanguageTable([model("a", "en", ["de"]), model("m", None, [], many=("de", "en", "zu"))])
    assert table.codes == ["en", "de", "zu"]
    assert table.targets("zu") == ["de", "en", "zu"]
    assert table.find_pair("en", "de") == LanguagePair("a", "en", "de")
    assert table.find_pair("zu", "de") == LanguagePair("m", "zu", "de", named=True)
    assert table.find_pair("zu", "zu") is None
    assert table.find_pair("zu", "fr") is None
    assert table.unknown == []


def test_what_a_code_means():
    table = LanguageTable([model("a", "en", ["pt_BR"]), model("b", "en", ["zh-Hans"]), model("c", "en", ["zh-Hant"])])
    for given, code in (("en", "en"), ("EN", "en"), ("en-GB", "en"), ("pt", "pt_BR"), ("pt-br", "pt_BR")):
        assert table.find_code(given) == code
    both = LanguageTable([model("a", "en", ["pt_BR", "pt"])])
    assert [both.find_code(given) for given in ("PT-br", "pt")] == ["pt_BR", "pt"]
    for given in ("zh", "fr", "", "e", "auto"):  # two models match, or none
        assert table.find_code(given) is None


def test_the_first_model_of_a_pair_serves_it():
    table = LanguageTable([model("a", "en", ["de"]), model("b", "en", ["de"])])
    assert table.find_pair("en", "de") == LanguagePair("a", "en", "de")
    assert table.find_pair("de", "en") is None
    tagged = LanguageTable([model("c", "en", ["de", "fr"], tags=["<2de>", "<2fr>"])])
    assert tagged.find_pair("en", "fr") == LanguagePair("c", "en", "fr", "<2fr>")


def test_the_tag_of_a_language():
    table = LanguageTable([model("a", "en", ["de", "fra", "it"], tags=["<2de>", ">>fra<<"])])
    assert [(pair.target, pair.tag) for pair in table.pairs] == [("de", "<2de>"), ("fra", ">>fra<<"), ("it", None)]


def test_detection(profiled):
    table = LanguageTable([model("a", "en", ["de"], profiled), model("b", "nl", ["de"])])
    english = table.detect("Where do you live now?")
    assert [code for code, _ in english] == ["en", "de", "nl"]
    assert english[2][1] == 0
    assert table.detect("Wo wohnst du denn?")[0][0] == "de"
    assert as_detection(("en", 99.98)) == {"confidence": 100.0, "language": "en"}


def test_the_source_that_is_detected_can_be_translated(profiled):
    table = LanguageTable([model("a", "en", ["de"], profiled), model("b", "nl", ["fr"])])
    assert table.detect_source("Where do you live now?", "de")[0] == "en"
    code, confidence = table.detect_source("Wo wohnst du denn, mein Freund?", "de")
    assert (code, confidence > 50) == ("de", True)  # the text is in the target language already
    # Only a Dutch model translates into French, and it has no profile.
    assert table.detect_source("Where do you live now?", "fr") == ("nl", 0.0)
    assert table.detect_source("", "de") == ("en", 0.0)
