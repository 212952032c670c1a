"""A service answers like its runs: the same texts, scores, links, labels, captions and samples."""

import json

import pytest
from serving.served import STORED, serve, stored
from tiny import table as tiny_table

from regard.data import picture_pixels
from regard.inspection import exhibit_of, page_parts
from regard.run import load
from regard.tasks import start

TEXTS = ["The child sleeps.", "", "We are here .", "The dog eats. The child sleeps.\nI see the dog."]
SENTENCES = ["The child sleeps.", "We are here .", "I see the dog ."]
NAMES = ("transformer", "rnnsearch", "rnn", "encoder-language-model", "han", "captioner", "convnet", "pointer")
LONG = " ".join(["we were here and the dog sleeps"] * 3)


@pytest.fixture(scope="module")
def served():
    with serve(*stored(*NAMES), f"both={STORED / 'transformer'}+{STORED / 'transformer'}") as found:
        yield found


@pytest.fixture(scope="module")
def runs():
    return {name: load(STORED / name) for name in NAMES}


def picture(number):
    return (STORED / f"{number}.png").read_bytes()


def same(found, expected):
    """Compare the outputs of an answer with those of a run."""
    assert [output["text"] for output in found] == [output.text for output in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["tokens"] == list(theirs.tokens)
        assert mine["finished"] == theirs.finished
        assert mine["score"] == pytest.approx(theirs.score, abs=1e-4)
        assert mine["log_prob"] == pytest.approx(theirs.log_prob, abs=1e-4)
        assert mine.get("alignment") == (theirs.alignment and [list(link) for link in theirs.alignment])


@pytest.mark.parametrize("name", ["transformer", "rnnsearch", "pointer"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 1},
        {"beam": 4, "nbest": 3, "length_penalty": 1.0},
        {"beam": 2, "alignment": True},
        {"replace_unknown": True},
        {"sample": True, "nbest": 2, "seed": 7, "top_k": 5, "longest": 8},
        {"beam": 4, "groups": 2, "no_repeat": 2, "longest": 9},
    ],
    ids=lambda options: " ".join(options) or "defaults",
)
def test_translations_are_those_of_the_run(served, runs, name, options):
    found = served.results("/v1/translate", {"model": name, "texts": SENTENCES, "split": False, **options})
    for result, expected in zip(found, runs[name].stream(SENTENCES, **options), strict=True):
        same(result["outputs"], expected)
        assert result["text"] == expected[0].text
        assert result["cut"] is False


def test_an_ensemble_of_the_same_run_is_that_run(served, runs):
    found = served.results("/v1/translate", {"model": "both", "texts": SENTENCES})
    for result, expected in zip(found, runs["transformer"].stream(SENTENCES), strict=True):
        same(result["outputs"], expected)


def test_prefixes_begin_the_outputs(served, runs):
    prefixes = ["wir sind", "", "das"]
    found = served.results("/v1/translate", {"model": "rnnsearch", "texts": SENTENCES, "prefixes": prefixes})
    for result, expected in zip(found, runs["rnnsearch"].stream(SENTENCES, prefixes=prefixes), strict=True):
        same(result["outputs"], expected)
    assert found[0]["text"].startswith("wir sind")


def test_a_text_of_several_sentences_is_put_together_again(served, runs):
    (result,) = served.results("/v1/translate", {"model": "rnnsearch", "texts": TEXTS[3:], "alignment": True})
    parts = ["The dog eats.", "The child sleeps.", "I see the dog."]
    each = [outputs[0] for outputs in runs["rnnsearch"].stream(parts, alignment=True)]
    assert result["text"] == f"{each[0].text} {each[1].text}\n{each[2].text}"
    output = result["outputs"][0]
    assert output["score"] == pytest.approx(sum(one.score for one in each), abs=1e-4)
    words, written = (0, 3, 6), (0, len(each[0].text.split()), len(f"{each[0].text} {each[1].text}".split()))
    assert output["alignment"] == [
        [source + word, target + begin]
        for one, word, begin in zip(each, words, written, strict=True)
        for source, target in one.alignment
    ]


def test_a_prefix_is_that_of_the_first_sentence(served):
    table = {"model": "rnnsearch", "texts": [TEXTS[3], "The child sleeps."], "prefixes": ["", "das"]}
    first, second = served.results("/v1/translate", table)
    assert second["text"].startswith("das")
    assert first["text"] == served.results("/v1/translate", {"model": "rnnsearch", "texts": [TEXTS[3]]})[0]["text"]


def test_empty_texts_have_empty_translations(served):
    found = served.results("/v1/translate", {"model": "rnnsearch", "texts": ["", " ", "\n\n"], "scores": True})
    assert [result["text"] for result in found] == ["", "", "\n\n"]
    assert all(result["outputs"][0]["tokens"] == [] for result in found)
    assert all(result["outputs"][0]["scores"] == [] for result in found)


def test_a_long_text_is_cut_where_splitting_is_not_wanted(served):
    long = "the dog " * 150
    cut, whole = (
        served.results(
            "/v1/translate", {"model": "rnnsearch", "texts": [long], "split": split, "beam": 1, "longest": 3}
        )
        for split in (False, True)
    )
    assert (cut[0]["cut"], whole[0]["cut"]) == (True, False)
    assert len(whole[0]["outputs"][0]["tokens"]) == 2 * len(cut[0]["outputs"][0]["tokens"])


def test_scores_are_those_of_every_token(served, runs):
    table = {"model": "rnnsearch", "texts": SENTENCES, "scores": True, "beam": 3, "nbest": 2}
    for text, result in zip(SENTENCES, served.results("/v1/translate", table), strict=True):
        for output in result["outputs"]:
            (expected,) = runs["rnnsearch"].score([text], [output["text"]])
            assert len(output["scores"]) == len(output["tokens"])
            if "<unk>" not in output["tokens"]:
                assert output["scores"] == pytest.approx(list(expected.tokens[:-1]), abs=1e-4)


def test_many_pairs_are_scored_and_aligned_in_order(served, runs):
    texts = [f"the dog {'eats ' * (i % 5)}" for i in range(37)]
    targets = [f"der hund {'isst ' * (i % 4)}" for i in range(37)]
    found = served.results("/v1/score", {"model": "rnnsearch", "texts": texts, "targets": targets})
    for result, expected in zip(found, runs["rnnsearch"].score(texts, targets), strict=True):
        assert result["log_prob"] == pytest.approx(expected.log_prob, abs=1e-4)
        assert result["tokens"] == pytest.approx(list(expected.tokens), abs=1e-4)
    links = served.results("/v1/align", {"model": "rnnsearch", "texts": texts, "targets": targets})
    assert [each["alignment"] for each in links] == [
        [list(link) for link in each] for each in runs["rnnsearch"].links(list(zip(texts, targets, strict=True)))
    ]


def test_texts_of_a_language_model_are_scored(served, runs):
    name = "encoder-language-model"
    found = served.results("/v1/score", {"model": name, "texts": SENTENCES})
    assert [each["log_prob"] for each in found] == pytest.approx(
        [each.log_prob for each in runs[name].score(SENTENCES)], abs=1e-4
    )


@pytest.mark.parametrize("options", [{}, {"temperature": 0.5, "seed": 3}, {"top_k": 3, "longest": 5}, {"top_p": 0.5}])
def test_samples_are_those_of_the_run(served, runs, options):
    found = served.results("/v1/sample", {"count": 5, "prefix": "The", **options})
    same(found, runs["encoder-language-model"].sample(5, prefix="The", **options))


def test_documents_are_labelled(served, runs):
    texts = ["This pizza is not too bad.", "", "I am here. We are not."]
    found = served.results("/v1/classify", {"model": "han", "texts": texts})
    assert found[1] == {"label": None, "probability": None, "probabilities": None, "unknown": []}
    for number in (0, 2):
        (expected,) = runs["han"].classify([texts[number]])
        assert found[number]["label"] == expected.label
        assert found[number]["probability"] == pytest.approx(expected.probability, abs=1e-5)
        assert found[number]["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)


def test_pictures_are_labelled_and_captioned(served, runs):
    files = [("pictures", (f"{number}.png", picture(number))) for number in range(3)]
    paths = [STORED / f"{number}.png" for number in range(3)]
    labels = served.results("/v1/classify", files=files, data={"model": "convnet"})
    assert [each["label"] for each in labels] == [each.label for each in runs["convnet"].classify(paths)]
    found = served.results("/v1/caption", files=files, data={"beam": "3", "nbest": "2"})
    for result, expected in zip(found, runs["captioner"].captions(paths, beam=3, nbest=2), strict=True):
        same(result["outputs"], expected)


def test_looking_gives_the_data_of_a_page(served, runs):
    for name, table in (
        ("rnnsearch", {"beam": 3}),
        ("rnnsearch", {"target": "das kind schläft ."}),
        ("han", {}),
        ("encoder-language-model", {}),
    ):
        answer = served.post("/v1/look", {"model": name, "text": "The child sleeps.", **table})
        assert answer.status_code == 200, answer.text
        expected = json.loads(json.dumps(page_parts.page_data([exhibit_of(runs[name], "The child sleeps.", **table)])))
        assert answer.json()["page"] == about(expected)
        assert answer.json()["page"]["exhibits"]


@pytest.mark.parametrize(
    ("name", "table"), [("captioner", {}), ("captioner", {"target": "a red star"}), ("convnet", {})]
)
def test_looking_at_a_picture_that_is_uploaded(served, runs, name, table):
    path = STORED / "0.png"
    answer = served.post("/v1/look", data={"model": name, **table}, files={"pictures": path.read_bytes()})
    assert answer.status_code == 200, answer.text
    exhibit = exhibit_of(runs[name], picture_pixels.read_for(runs[name].settings.data, path), **table)
    assert answer.json()["page"] == about(json.loads(json.dumps(page_parts.page_data([exhibit]))))
    assert answer.json()["page"]["exhibits"][0]["picture"].startswith("data:image/png")


@pytest.mark.parametrize(
    ("table", "count", "status", "message"),
    [
        ({"model": "captioner"}, 2, 422, "pictures: 2 given, expected one to look into"),
        ({"model": "captioner", "text": "a"}, 1, 422, "text: given beside a picture, expected one of them"),
        ({"model": "captioner", "target": "a " * 201}, 1, 413, "target: 201 words given, expected at most 200"),
        ({"model": "han"}, 1, 422, "han: reads texts, expected JSON with a text"),
        ({"model": "rnnsearch"}, 1, 422, "its task is translate, expected caption"),
        ({"model": "captioner", "bem": "3"}, 1, 422, "bem: no such field; did you mean 'beam'?"),
    ],
)
def test_pictures_that_cannot_be_looked_at(served, table, count, status, message):
    files = [("pictures", (STORED / "0.png").read_bytes())] * count
    answer = served.post("/v1/look", data=table, files=files)
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (status, True), answer.text


def about(value):
    """Allow small differences in the floats of an answer."""
    if isinstance(value, dict):
        return {key: about(each) for key, each in value.items()}
    if isinstance(value, list):
        return [about(each) for each in value]
    return pytest.approx(value, abs=1e-3) if isinstance(value, float) else value


# ---- the choice of a model


def test_the_only_model_that_can_is_meant(served):
    for path, table, name in (
        ("/v1/sample", {"longest": 2}, "encoder-language-model"),
        ("/v1/look", {"model": "han", "text": "a"}, "han"),
        ("/v1/classify", {"model": "han", "texts": ["a"]}, "han"),
    ):
        assert served.post(path, table).json()["model"] == name
    answer = served.post("/v1/translate", {"texts": ["a"]})
    assert answer.status_code == 422
    assert (
        answer.json()["error"]["message"]
        == "model: missing, expected one of transformer, rnnsearch, rnn, pointer, both"
    )
    assert answer.json()["error"]["field"] == "model"


@pytest.mark.parametrize(
    ("path", "table", "status", "message"),
    [
        ("translate", {"model": "none", "texts": ["a"]}, 404, "model: 'none' is not served"),
        ("translate", {"model": "rnnsaerch", "texts": ["a"]}, 404, "model: 'rnnsaerch' is not served; did you mean"),
        ("translate", {"model": "han", "texts": ["a"]}, 422, "its task is classify, expected translate"),
        ("sample", {"model": "han"}, 422, "its task is classify, expected language-model"),
        ("translate", {"model": "rnnsearch", "texts": []}, 422, "texts: missing, expected a list of texts"),
        (
            "translate",
            {"model": "rnnsearch", "texts": ["a", "b"], "prefixes": ["c"]},
            422,
            "prefixes: 1 given, expected one for each of 2 texts",
        ),
        (
            "translate",
            {"model": "rnnsearch", "texts": ["a"], "precision": "bf16"},
            422,
            "precision: bf16 given, expected fp32 or auto",
        ),
        (
            "translate",
            {"model": "rnnsearch", "texts": ["a"], "prefixes": ["a b c"], "longest": 2},
            422,
            "prefix: 3 tokens given, expected at most 2",
        ),
        ("score", {"model": "rnnsearch", "texts": ["a"]}, 422, "targets: 0 given, expected one for each of 1 texts"),
        (
            "score",
            {"model": "encoder-language-model", "texts": ["a"], "targets": ["b"]},
            422,
            "targets: given to a language model, expected only texts",
        ),
        ("align", {"model": "rnnsearch", "texts": ["a"], "targets": []}, 422, "targets: 0 given"),
        ("classify", {"model": "convnet", "texts": ["a"]}, 422, "convnet: reads pictures, expected them uploaded"),
        ("look", {"model": "rnnsearch", "text": " "}, 422, "text: empty, expected a text to look into"),
        ("look", {"model": "rnnsearch", "text": "a " * 201}, 413, "text: 201 words given, expected at most 200"),
        ("look", {"model": "convnet", "text": "a"}, 422, "convnet: reads pictures, expected one uploaded as a form"),
        ("look", {"model": "han", "text": "a", "target": "neither"}, 422, "neither"),
        ("sample", {"count": 129}, 422, "count: 129 given, expected at most 128 on this server"),
    ],
)
def test_mistakes_are_one_sentence(served, path, table, status, message):
    answer = served.post(f"/v1/{path}", table)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]
    assert "\n" not in answer.json()["error"]["message"]


# ---- words that an output leaves out, and words that training never saw


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
    assert served.service.models["transformer"].run.unknown.words == {}  # the server stores nothing from requests


def test_the_words_of_training_are_those_of_the_run(tmp_path):
    data = {"builtin": "phrasebook", "pair": "en-de", "count": 400, "cache": str(tmp_path / "cache")}
    start(tiny_table(tmp_path, data=data, tokenizer={"kind": "bpe", "size": 600}, training__steps=2), tmp_path / "run")
    with serve(str(tmp_path / "run")) as found:
        texts = ["I have not the zorp.", "I have not the."]
        results = found.results("/v1/translate", {"texts": texts, "longest": 2})
        assert [result["unknown"] for result in results] == [["zorp"], []]
