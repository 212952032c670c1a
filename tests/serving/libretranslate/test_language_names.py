"""Names of languages."""

from regard.serving.libretranslate.language_pairs import NAMES, language_name, same_language


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


def test_codes_that_mean_the_same():
    assert same_language("PT-br", "pt_BR")
    assert not same_language("pt", "pt_BR")
