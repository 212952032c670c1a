"""What a service says of words: which an output left out, and which training never saw."""

import pytest
from serving.served import STORED, serve, stored
from tiny import table

from regard.run import load
from regard.tasks import start

LONG = " ".join(["we were here and the dog sleeps"] * 3)
NAMES = ("transformer", "rnnsearch", "rnn", "encoder-language-model", "han")


@pytest.fixture(scope="module")
def served():
    with serve(*stored(*NAMES)) as found:
        yield found


@pytest.mark.parametrize("name", ["transformer", "rnnsearch"])
@pytest.mark.parametrize("asked", ["coverage", "alignment"])
def test_words_that_an_output_leaves_out_are_those_of_the_run(served, name, asked):
    texts = [LONG, "we were", ""]
    given = {"beam": 2, "nbest": 2, "longest": 1}
    found = served.results("/v1/translate", {"model": name, "texts": texts, asked: True, **given})
    for result, expected in zip(found, load(STORED / name).stream(texts, coverage=True, **given), strict=True):
        assert [output["untranslated"] for output in result["outputs"]] == [
            [list(span) for span in output.untranslated or ()] for output in expected
        ]
        assert [("alignment" in output) for output in result["outputs"]] == [asked == "alignment"] * len(expected)
    assert found[0]["outputs"][0]["untranslated"]
    plain = served.results("/v1/translate", {"model": name, "texts": texts, **given})
    assert all("untranslated" not in output for result in plain for output in result["outputs"])


def test_of_a_text_of_several_sentences_words_are_counted_in_the_whole(served):
    text = f"we were here .\n{LONG}. We were here."
    (found,) = served.results(
        "/v1/translate", {"model": "transformer", "texts": [text], "coverage": True, "longest": 1, "split": True}
    )
    spans = found["outputs"][0]["untranslated"]
    assert spans
    assert all(4 <= start < end <= len(text.split()) for start, end in spans if start >= 4)
    assert any(start >= 4 for start, _ in spans)


def test_a_kind_without_attention_is_refused_where_it_is_asked_and_silent_else(served):
    answer = served.post("/v1/translate", {"model": "rnn", "texts": [LONG], "coverage": True})
    assert answer.status_code == 422
    assert "has no attention to its source" in answer.json()["error"]["message"]
    (found,) = served.results("/v1/translate", {"model": "rnn", "texts": [LONG], "scores": True})
    assert "untranslated" not in found["outputs"][0]


def test_words_that_training_never_saw_are_named(served):
    text, words = "we жук were (жаба), жук .", ["жук", "жаба"]
    targets = ["wir waren hier ."]
    for route, fields in (
        ("translate", {"model": "transformer"}),
        ("translate", {"model": "transformer", "alignment": True, "scores": True}),
        ("score", {"model": "transformer", "targets": targets * 2}),
        ("align", {"model": "rnnsearch", "targets": targets * 2}),
        ("score", {"model": "encoder-language-model"}),
    ):
        found = served.results(f"/v1/{route}", {"texts": [text, ""], **fields})
        assert [result["unknown"] for result in found] == [words, []], route
    look = served.post("/v1/look", {"model": "transformer", "text": text}).json()
    assert look["unknown"] == words
    assert served.service.models["transformer"].run.unknown.words == {}  # nothing is kept of what people send


def test_the_words_of_training_are_those_of_the_run(tmp_path):
    data = {"builtin": "phrasebook", "pair": "en-de", "count": 400, "cache": str(tmp_path / "cache")}
    start(table(tmp_path, data=data, tokenizer={"kind": "bpe", "size": 600}, training__steps=2), tmp_path / "run")
    with serve(str(tmp_path / "run")) as found:
        texts = ["I have not the zorp.", "I have not the."]
        results = found.results("/v1/translate", {"texts": texts, "longest": 2})
        assert [result["unknown"] for result in results] == [["zorp"], []]
