"""Languages of a request: a multilingual model serves each request in its own language, in one batch with others."""

import json
from pathlib import Path

import pytest
from cli.typing_in import Command
from pretrained import m2m100_folder
from serving.served import serve

from regard import import_model, load

TEXTS = ["the dog sees a cat .", "a man rides the old horse .", "we eat bread , and the woman laughs ."]
CODES = ("de", "fr", "en", "nl", "zu")
SHORT = {"beam": 2, "longest": 8, "length_penalty": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    pytest.importorskip("transformers")
    desk = tmp_path_factory.mktemp("languages")
    m2m100_folder(desk / "theirs", init_std=0.6)
    import_model(desk / "theirs", desk / "many", source_language="en", target_language="de")
    return desk / "many"


@pytest.fixture(scope="module")
def served(folder):
    with serve(str(folder)) as served:
        yield served


@pytest.fixture(scope="module")
def expected(folder) -> dict[str, list[str]]:
    """Return the outputs of a run for each target language."""
    found = {}
    for code in CODES:
        run = load(folder)
        run.set_languages(target=code)
        found[code] = run.translate(TEXTS, beam=2, longest=8, length_penalty=0.0)
    return found


def texts_of(answer) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["text"] for each in answer.json()["results"]]


def test_requests_in_flight_together_have_their_own_languages(served, expected):
    assert len({tuple(each) for each in expected.values()}) > 1, "languages that differ in nothing would show nothing"
    codes = [*CODES, *reversed(CODES)] * 3
    requests = [("/v1/translate", {"texts": TEXTS, "target_language": code, **SHORT}) for code in codes]
    for code, answer in zip(codes, served.all_at_once(requests), strict=True):
        assert texts_of(answer) == expected[code]
    assert texts_of(served.post("/v1/translate", {"texts": TEXTS, **SHORT})) == expected["de"], "its own again"


def test_a_stream_is_in_its_language(served, expected):
    question = {"texts": TEXTS, "target_language": "zu", "stream": True, **SHORT}
    events = served.post("/v1/translate", question).text.strip().split("\n\n")
    assert len(events) > 1
    data = json.loads(events[-1].partition("data: ")[2])
    assert [each["text"] for each in data["results"]] == expected["zu"]


def test_another_engine_has_languages_too(folder, tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    run = load(folder)
    run.set_languages(target="fr")
    with serve(str(folder), engine="ctranslate2") as served:
        requests = [
            ("/v1/translate", {"texts": TEXTS, "beam": 1, "longest": 8, "target_language": code})
            for code in ("fr", "de")
        ]
        answers = [texts_of(answer) for answer in served.all_at_once(requests)]
    assert answers == [each.translate(TEXTS, beam=1, longest=8) for each in (run, load(folder))]


def test_it_is_what_the_command_prints(served, folder):
    options = ["--beam", "2", "--longest", "8", "--length-penalty", "0"]
    typed = Command("translate").typed(folder, TEXTS[0], "--source-language", "nl", "--target-language", "fr", *options)
    question = {"texts": TEXTS[:1], "source_language": "nl", "target_language": "fr", "split": False, **SHORT}
    assert [typed.output.strip()] == [text.strip() for text in texts_of(served.post("/v1/translate", question))]


def test_prefixes_alignments_and_scores_of_another_language(served, folder):
    run = load(folder)
    run.set_languages("fr", "nl")
    question = {"texts": TEXTS[:2], "source_language": "fr", "target_language": "nl", "prefixes": ["a", ""]}
    results = served.results("/v1/translate", {**question, **SHORT, "alignment": True, "scores": True, "split": False})
    own = list(run.stream(TEXTS[:2], prefixes=["a", ""], alignment=True, **SHORT))
    for found, mine in zip(results, own, strict=True):
        assert found["text"] == mine[0].text
        assert found["outputs"][0]["alignment"] == [list(link) for link in mine[0].alignment]
        assert found["outputs"][0]["log_prob"] == pytest.approx(mine[0].log_prob, abs=1e-4)


def test_other_routes_take_languages(served, folder):
    run = load(folder)
    run.set_languages("en", "fr")
    pairs = {"texts": TEXTS[:1], "targets": ["ein Mann"], "source_language": "en", "target_language": "fr"}
    (scored,) = served.results("/v1/score", pairs)
    assert scored["log_prob"] == pytest.approx(run.score(TEXTS[:1], ["ein Mann"])[0].log_prob, abs=1e-4)
    assert scored["log_prob"] != pytest.approx(load(folder).score(TEXTS[:1], ["ein Mann"])[0].log_prob, abs=1e-4)
    (aligned,) = served.results("/v1/align", pairs)
    assert aligned["alignment"] == [list(link) for link in next(run.links([(TEXTS[0], "ein Mann")]))]
    page = served.post("/v1/look", {"text": "a man", "target": "ein Mann", "target_language": "fr"})
    assert page.status_code == 200
    assert "__fr__" in page.text
    assert "__de__" not in page.text


@pytest.mark.parametrize("route", ["translate", "score", "align", "look"])
def test_a_language_that_there_is_not(served, route):
    table = {"text": "a man"} if route == "look" else {"texts": ["a man"]}
    table |= {"targets": ["ein Mann"]} if route in ("score", "align") else {}
    for field in ("source_language", "target_language"):
        answer = served.post(f"/v1/{route}", {**table, field: "tlh"})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
        assert answer.json()["error"]["message"].startswith(f'{field}: "tlh" given, which the run does not know')


def test_a_model_without_languages(furnish):
    with serve(str(furnish(run="phrasebook") / "run")) as served:
        answer = served.post("/v1/translate", {"texts": ["the dog"], "target_language": "de"})
        message = 'target_language: "de" given, but the vocabulary has no pieces for languages'
        assert (answer.status_code, answer.json()["error"]["message"]) == (422, message)
        assert served.get("/v1/models").json()["models"][0]["known_languages"] is None


def test_libretranslate_lists_and_uses_them(served, expected, folder):
    card = served.get("/v1/models").json()["models"][0]
    assert len(card["known_languages"]["sources"]) == len(card["known_languages"]["targets"]) == 100
    rows = {row["code"]: row for row in served.get("/languages").json()}
    assert len(rows) == 100
    assert set(rows["nl"]["targets"]) == set(rows)
    run = load(folder)
    run.set_languages("nl", "fr")
    found = served.post("/translate", {"q": TEXTS[0], "source": "nl", "target": "fr"}).json()
    assert found["translatedText"] == run.translate(TEXTS[:1], beam=5)[0]
    same = served.post("/translate", {"q": TEXTS[0], "source": "nl", "target": "nl"}).json()
    assert same["translatedText"] == TEXTS[0]
    wrong = served.post("/translate", {"q": TEXTS[0], "source": "nl", "target": "tlh"})
    assert wrong.status_code == 400
