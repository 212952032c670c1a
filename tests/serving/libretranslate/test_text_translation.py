"""Texts and documents through a service: outputs of each, with the space around them and the links of their words."""

import pytest
from serving.served import serve, stored

from regard.decoding import Options
from regard.serving.libretranslate.language_pairs import LanguagePair
from regard.serving.libretranslate.markup import parse_html
from regard.serving.libretranslate.translation import keep_space, render_all, translate_linked, translate_plain

PAIR = LanguagePair("transformer", "en", "de")


@pytest.fixture(scope="module")
def server():
    with serve(*stored("transformer", "rnn"), languages=["rnn=en-de"]) as found:
        yield found


def test_the_space_around_a_text_is_kept():
    assert keep_space(" \n a b\t", "c") == " \n c\t"
    assert keep_space("a", "b") == "b"
    assert keep_space("", "b") == ""
    assert keep_space(" \n", "b") == " \n"


def test_links_are_those_of_the_service(server):
    texts = ["the dog sleeps", "", "where do you live ? I eat bread ."]
    found = server.call(translate_linked(server.service, PAIR, texts, Options(nbest=2)))
    assert found[1] == [("", ())]
    table = {"texts": [texts[0], texts[2]], "model": "transformer", "nbest": 2, "alignment": True}
    expected = server.results("/v1/translate", table)
    for own, other in zip((found[0], found[2]), expected, strict=True):
        assert own == [(each["text"], [tuple(link) for link in each["alignment"]]) for each in other["outputs"]]
    assert any(links for _, links in found[0])


def test_a_model_without_attention_has_no_links(server):
    found = server.call(translate_linked(server.service, LanguagePair("rnn", "en", "de"), ["the dog"], Options()))
    assert found[0][0][1] == []


def test_plain_texts_and_nothing_at_all(server):
    assert server.call(translate_plain(server.service, PAIR, [], Options())) == []
    assert server.call(translate_plain(server.service, PAIR, [" "], Options())) == [[" "]]
    (one,) = server.call(translate_plain(server.service, PAIR, [" the dog\n"], Options(nbest=3)))
    assert len(one) == 3
    assert all(each.startswith(" ") and each.endswith("\n") for each in one)


def test_documents_share_one_request(server):
    documents = [parse_html("<p>the <b>dog</b></p><p>the cat</p>"), parse_html("<hr>"), parse_html("the dog")]
    one, two, three = server.call(render_all(server.service, PAIR, documents, Options(nbest=2)))
    assert len(one) == len(three) == 2
    assert two == ["<hr>"]
    assert all(each.count("<p>") == 2 and each.count("<b>") == 1 for each in one)
