"""The languages of a run: the user's choice comes first, then the configuration, then the data."""

import json
import random

import numpy as np
import pytest
from tiny import records, table
from tokenizers import AddedToken, models, pre_tokenizers
from tokenizers import Tokenizer as Library

import regard
from regard.config import parse
from regard.data import run_languages
from regard.data.builtin import generate
from regard.data.languages import (
    CHARACTERS,
    FILE,
    FORMAT,
    LISTED,
    LanguageProfile,
    RunLanguages,
    checksum,
    choose_languages,
    detect_language,
    known_languages,
    languages_of,
    list_trigrams,
    merge_profiles,
    parse_given,
    spoken_languages,
)
from regard.data.settings import DataSettings
from regard.data.tokenizer import Tokenizer, Tokenizers
from regard.errors import CommandError
from regard.tasks import start


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
    assert languages_of(data(builtin="copy")) is None
    assert languages_of(data(), "pt_BR-en") == ("pt_BR", ("en",))  # a pair is split at its hyphen


@pytest.mark.parametrize(("tags", "targets"), [(("<2de>", "<2fr>"), ("de", "fr")), ((">>deu<<", ">>deu<<"), ("deu",))])
def test_tags_name_the_targets(tags, targets):
    corpora = [{"source": f"{i}.en", "target": f"{i}.xx", "tag": tag} for i, tag in enumerate(tags)]
    assert languages_of(data(corpora=corpora)) == ("en", targets)
    assert languages_of(data(corpora=corpora), "en-xx") == ("en", targets)


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


# ---- pieces of languages


WORDS = ["<pad>", "<s>", "</s>", "<unk>", "en", "deu", "hello"]


def tokenizers(*pieces: str, special: bool = True) -> Tokenizers:
    library = Library(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.add_special_tokens(WORDS[:4])
    add = library.add_special_tokens if special else library.add_tokens
    add([AddedToken(piece, normalized=False) for piece in pieces])
    return Tokenizers(Tokenizer(json.loads(library.to_str())))


@pytest.mark.parametrize("form", ["{}", "__{}__"])
def test_a_language_of_a_text_stands_before_it(form):
    both = tokenizers(*(form.format(code) for code in ("eng_Latn", "deu_Latn", "fra_Latn")))
    around = choose_languages(both, "eng_Latn", "deu_Latn")
    assert around == {"before": (form.format("eng_Latn"),), "after": (), "first": (form.format("deu_Latn"),)}
    both = both.surround(**{**around, "after": ["</s>"]})
    assert both.source.pieces(both.source.encode("hello")) == [form.format("eng_Latn"), "hello", "</s>"]
    again = choose_languages(both, None, "fra_Latn")
    assert again == {**around, "after": ("</s>",), "first": (form.format("fra_Latn"),)}


@pytest.mark.parametrize("form", [">>{}<<", "<2{}>"])
@pytest.mark.parametrize("special", [True, False])
def test_a_request_stands_before_the_source(form, special):
    both = tokenizers(form.format("deu"), form.format("nld"), special=special).surround(after=["</s>"])
    around = choose_languages(both, None, "nld")
    assert around == {"before": (form.format("nld"),), "after": ("</s>",), "first": ()}
    assert choose_languages(both.surround(**around), None, "deu")["before"] == (form.format("deu"),)
    with pytest.raises(CommandError, match='--source-language: "deu" given, but the vocabulary has no pieces'):
        choose_languages(both, "deu", None)


def test_languages_of_both_sides():
    assert spoken_languages(tokenizers("deu_Latn", "ace_Arab")) == (("ace_Arab", "deu_Latn"),) * 2
    assert spoken_languages(tokenizers(">>deu<<", ">>nld<<")) == ((), ("deu", "nld"))
    assert spoken_languages(tokenizers()) == ((), ())


def test_a_language_that_is_not_there_is_named():
    both = tokenizers("eng_Latn", "deu_Latn")
    assert known_languages(both.source) == {"eng_Latn": "eng_Latn", "deu_Latn": "deu_Latn"}
    with pytest.raises(CommandError, match='--target-language: "deu_Lat" given.*did you mean .deu_Latn'):
        choose_languages(both, None, "deu_Lat")
    for word in ("hello", "</s>", "<unk>", "", "en"):  # words of the vocabulary are not languages
        with pytest.raises(CommandError, match="which the run does not know"):
            choose_languages(both, word, None)
    with pytest.raises(CommandError, match='^target_language: "xx" given'):
        choose_languages(both, None, "xx", flags=("source_language", "target_language"))
    with pytest.raises(CommandError, match="has no pieces for languages"):
        choose_languages(tokenizers(), "en", None)


# ---- profiles


EXAMPLES = list(generate("phrasebook", 1500))
HELD_OUT = list(generate("phrasebook", 200, split="valid"))
SIDES = {"en": [each.source for each in EXAMPLES], "de": [each.target for each in EXAMPLES]}
PROFILES = {language: LanguageProfile.of(texts) for language, texts in SIDES.items()}
CHINESE = ["我昨天吃了披萨", "他们在公园里散步", "孩子睡着了", "我不知道你在说什么"]
RUSSIAN = ["я вчера ел пиццу", "они гуляют в парке", "ребёнок спит", "я не знаю"]


def test_trigrams_are_of_words_in_lower_case():
    assert list_trigrams("An Ox!") == [" an", "an ", " ox", "ox "]
    assert list_trigrams("a 1 2, I'm") == [" a ", " i ", " m "]
    assert list_trigrams("E\u0301te\u0301") == [" ét", "été", "té "]  # composed or decomposed letters give the same
    assert list_trigrams("123 … 🍕") == []
    # Compare with the definition, on newly drawn words.
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(50):
        word = "".join(rng.choices("abcäß", k=rng.randint(1, 9)))
        padded = f" {word} "
        assert list_trigrams(word) == [padded[i] + padded[i + 1] + padded[i + 2] for i in range(len(padded) - 2)]


def test_shares_are_those_of_the_texts():
    profile = LanguageProfile.of(["ab ab", "abc"])
    assert profile.trigrams == {" ab": 3 / 7, "ab ": 2 / 7, "abc": 1 / 7, "bc ": 1 / 7}
    assert profile.letters == pytest.approx({" ": 6 / 21, "a": 6 / 21, "b": 7 / 21, "c": 2 / 21})
    assert LanguageProfile.of(["1 2 3", ""]) is None


@pytest.mark.parametrize("length", [20, 40])
def test_twenty_characters_are_enough(length):
    """Detect unseen sentences from any twenty characters of them."""
    rng = random.Random(length)
    texts = [("en", each.source) for each in HELD_OUT] + [("de", each.target) for each in HELD_OUT]
    windows = []
    for language, text in texts:
        if len(text) >= length:
            start = rng.randrange(len(text) - length + 1)
            windows.append((language, text[start : start + length]))
    right = [detect_language(window, PROFILES)[0][0] == language for language, window in windows]
    assert len(windows) > 100
    assert sum(right) >= 0.98 * len(right)


def test_confidence_means_something():
    sure = detect_language("Where do you live? I ate pizza yesterday.", PROFILES)
    assert sure[0][0] == "en"
    assert sure[0][1] > 90 > 10 > sure[1][1] >= 0
    # A word of both languages, and texts in neither.
    assert detect_language("Pizza", PROFILES)[0][1] < 90
    assert detect_language("我昨天吃了披萨", PROFILES)[0][1] == 0
    assert detect_language("я вчера ел пиццу", PROFILES)[0][1] == 0
    for nothing in ("", " ", "123", "…!", "🍕"):
        assert detect_language(nothing, PROFILES) == [("en", 0.0), ("de", 0.0)]
    assert detect_language("hello", {}) == []
    assert all(0 <= each <= 100 for text in SIDES["de"][:50] for _, each in detect_language(text, PROFILES))


def test_a_language_that_is_not_known_has_little_confidence():
    """French where English and German are known, and text of unknown words only, however long."""
    french = [each.target for each in generate("phrasebook", 300, split="valid", pair="en-fr")]
    known = [each.source for each in HELD_OUT] + [each.target for each in HELD_OUT]
    long_french, long_known = ([text for text in texts if len(text) >= 30] for texts in (french, known))
    strange = sorted(detect_language(text, PROFILES)[0][1] for text in long_french)
    own = sorted(detect_language(text, PROFILES)[0][1] for text in long_known)
    assert len(strange) > 50 < len(own)
    assert strange[len(strange) // 2] < 10
    assert strange[int(0.9 * len(strange))] < 50
    assert own[len(own) // 2] > 95
    assert own[len(own) // 10] > 80
    assert detect_language("xq" * 2000, PROFILES)[0][1] < 0.01
    assert detect_language("xqz " * 2000 + "披", PROFILES)[0][1] < 0.01


def test_the_share_that_own_texts_have_is_their_mean():
    for language, profile in PROFILES.items():
        trigrams = [trigram for text in SIDES[language] for trigram in list_trigrams(text)]
        mean = sum(map(profile.log_prob, trigrams)) / len(trigrams)
        assert profile.own_log_prob == pytest.approx(mean, abs=0.1)


def test_scripts_without_spaces_and_rare_letters():
    profiles = PROFILES | {"zh": LanguageProfile.of(CHINESE), "ru": LanguageProfile.of(RUSSIAN)}
    # Letters decide if no trigram was seen.
    assert detect_language("披萨睡着昨天", profiles)[0][0] == "zh"
    assert detect_language("пицца спит в парке", profiles)[0][0] == "ru"
    assert detect_language("The child sleeps", profiles)[0][0] == "en"


def test_long_texts_cost_no_more():
    text = "Where do you live? " * 100_000
    assert detect_language(text, PROFILES)[0][0] == "en"


def test_profiles_of_one_language_are_merged():
    halves = [LanguageProfile.of(SIDES["en"][:700]), LanguageProfile.of(SIDES["en"][700:])]
    merged = merge_profiles(halves)
    assert sum(merged.trigrams.values()) == pytest.approx(sum(sum(each.trigrams.values()) for each in halves) / 2)
    assert merge_profiles(halves[:1]) is halves[0]
    assert detect_language("Where do you live?", {"de": PROFILES["de"], "en": merged})[0][0] == "en"


# ---- in a run


def test_a_file_holds_them_and_its_own_checksum(tmp_path):
    languages = RunLanguages(PROFILES["en"], {"": PROFILES["de"]})
    text = languages.dumps()
    assert len(text.encode()) < 80_000
    assert text == RunLanguages(PROFILES["en"], {"": PROFILES["de"]}).dumps()
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    again = RunLanguages.read(tmp_path)
    assert again.dumps() == text
    found = detect_language("Wo wohnst du denn?", {"en": again.source, "de": again.targets[""]})
    before = detect_language("Wo wohnst du denn?", PROFILES)
    assert found[0][0] == before[0][0] == "de"
    assert found[0][1] == pytest.approx(before[0][1], abs=0.1)
    assert len(again.source.trigrams) <= LISTED


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_is_no_profile(tmp_path, seed):
    rng = random.Random(seed)
    content = bytearray(RunLanguages(PROFILES["en"], {"": PROFILES["de"]}).dumps().encode())
    at = rng.randrange(len(content))
    content[at] ^= 1 << rng.randrange(7)
    (tmp_path / FILE).write_bytes(bytes(content))
    found = RunLanguages.read(tmp_path)
    assert found == RunLanguages() or found.dumps() == RunLanguages(PROFILES["en"], {"": PROFILES["de"]}).dumps()


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", "{}", '{"format": 1}', '{"source": 1, "targets": []}', "[" * 100_000, "\0", '"a"', "1e999"],
    ids=lambda text: text[:12],
)
def test_what_is_no_file_of_profiles(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    assert RunLanguages.read(tmp_path) == RunLanguages()
    assert RunLanguages.read(tmp_path / "none") == RunLanguages()


def test_values_that_are_no_shares_are_refused(tmp_path):
    """A valid checksum is not enough: the file may come from elsewhere."""
    for trigrams in ({"abcd": 1}, {"abc": -1}, {"abc": "1"}, {"abc": 1.5}, ["abc"], {"abc": None}):
        body = {"source": {"trigrams": trigrams, "letters": {}}, "targets": {}}
        (tmp_path / FILE).write_text(json.dumps({"format": FORMAT, "sha256": checksum(body), **body}))
        assert RunLanguages.read(tmp_path) == RunLanguages()


def test_training_writes_them(furnish):
    """Training writes profiles of a built-in corpus and of corpora with tags; a run of digits has none."""
    folder = furnish(one="phrasebook", two="tagged", three="transformer")
    one = RunLanguages.read(folder / "one")
    assert detect_language("Where do you live?", {"en": one.source, "de": one.targets[""]})[0][0] == "en"
    two = RunLanguages.read(folder / "two")
    assert set(two.targets) == {"<2de>", "<2fr>"}
    assert not any("<" in trigram or "2" in trigram for trigram in two.source.trigrams)
    profiles = {"en": two.source, "de": two.targets["<2de>"], "fr": two.targets["<2fr>"]}
    for language, text in (("en", "the dog sleeps"), ("de", "der Hund schläft"), ("fr", "le chien dort")):
        assert detect_language(text, profiles)[0][0] == language
    assert not (folder / "three" / FILE).exists()


def test_training_from_lists_writes_them(tmp_path):
    texts = {"source": SIDES["en"][:60], "target": SIDES["de"][:60]}
    short = {"steps": 1, "device": "cpu", "validate_rows": 1, "batch_tokens": 64}
    regard.train(**texts, out=tmp_path / "run", model="rnn", preset="tiny", **short)
    found = RunLanguages.read(tmp_path / "run")
    assert found.source is not None
    assert set(found.targets) == {""}


def test_no_more_than_a_sample_is_looked_at(furnish, monkeypatch):
    """A large corpus is sampled: pairs at even intervals, up to a maximum of characters."""
    folder = furnish(one="phrasebook")
    run = regard.load(folder / "one")
    row = np.array(run.tokenizers.source.encode("the dog"))

    class Large:
        starts = (0,)

        def __init__(self):
            self.asked = []

        def __len__(self):
            return 5_000_000

        def pair(self, i):
            self.asked.append(i)
            return row, row

    large = Large()
    found = run_languages.profile_corpus(large, run.tokenizers, [None])
    assert len(large.asked) <= 2 * run_languages.PAIRS
    assert max(large.asked) > 4_900_000
    assert found.source.trigrams == LanguageProfile.of(["the dog"]).trigrams
    monkeypatch.setattr(run_languages, "CHARACTERS", 100)
    assert run_languages.profile_corpus(large, run.tokenizers, [None]).source is not None
    assert CHARACTERS > 100


def test_a_resumed_run_gets_them_and_no_loss_changes(tmp_path, monkeypatch):
    given = table(tmp_path, training__steps=2)
    given["data"] = {"builtin": "phrasebook", "count": 60, "cache": str(tmp_path / "cache")}
    start(given, tmp_path / "with")
    with monkeypatch.context() as patch:
        patch.setattr(run_languages, "profile_corpus", lambda *_: RunLanguages())
        start(given, tmp_path / "without")
    assert records(tmp_path / "with") == records(tmp_path / "without")
    assert not (tmp_path / "without" / FILE).exists()
    start(given, tmp_path / "without", resume=True)
    assert (tmp_path / "without" / FILE).read_bytes() == (tmp_path / "with" / FILE).read_bytes()
