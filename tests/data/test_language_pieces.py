"""Languages as pieces, in the four forms that models have them."""

import json

import pytest
from tokenizers import AddedToken, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from regard.data.language_pieces import choose_languages, known_languages, spoken_languages
from regard.data.tokenizer import Tokenizer, Tokenizers
from regard.errors import CommandError

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
    for word in ("hello", "</s>", "<unk>", "", "en"):  # words of the vocabulary are no languages
        with pytest.raises(CommandError, match="which the run does not know"):
            choose_languages(both, word, None)
    with pytest.raises(CommandError, match='^target_language: "xx" given'):
        choose_languages(both, None, "xx", flags=("source_language", "target_language"))
    with pytest.raises(CommandError, match="has no pieces for languages"):
        choose_languages(tokenizers(), "en", None)
