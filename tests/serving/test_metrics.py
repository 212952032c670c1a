"""The page of metrics: it counts, its gauges return to 0, and no label of it holds a text."""

import re

import pytest
from serving.served import serve, stored

TEXT = "A secret that nobody may read."


@pytest.fixture(scope="module")
def served():
    with serve(*stored("transformer", "rnnsearch")) as found:
        yield found


def translate(served, model="transformer", **options):
    return served.post("/v1/translate", {"model": model, "texts": [TEXT], "beam": 2, "longest": 4, **options})


def test_requests_are_counted_by_route_and_status(served):
    def count(route, status):
        return served.figure("regard_requests_total", route=route, status=str(status))

    before = count("/v1/translate", 200), count("/v1/translate", 422), count("other", 404)
    translate(served)
    translate(served, beam=0)
    served.get(f"/v1/{TEXT}")
    after = count("/v1/translate", 200), count("/v1/translate", 422), count("other", 404)
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 1, 1]
    assert served.figure("regard_request_seconds_count", route="/v1/translate") >= 2


def test_sentences_and_tokens_are_counted_by_model(served):
    names = "regard_sentences_total", "regard_tokens_total"
    before = [served.figure(name, model="rnnsearch") for name in names]
    answer = served.post("/v1/translate", {"model": "rnnsearch", "texts": ["the dog"] * 5, "shortest": 3, "longest": 3})
    assert answer.status_code == 200
    after = [served.figure(name, model="rnnsearch") for name in names]
    assert after[0] - before[0] == 5
    assert after[1] - before[1] == 5 * 4  # the end is one of them
    assert served.figure("regard_sentences_per_second", model="rnnsearch") > 0
    assert served.figure("regard_search_seconds_total", model="rnnsearch") > 0


def test_stages_are_measured(served):
    before = {
        name: served.figure("regard_stage_seconds_count", stage=name)
        for name in ("prepare", "wait", "search", "finish")
    }
    translate(served)
    for name, count in before.items():
        assert served.figure("regard_stage_seconds_count", stage=name) == count + 1
    calls = served.figure("regard_call_seconds_total", model="transformer")
    translate(served, alignment=True)
    assert served.figure("regard_call_seconds_total", model="transformer") > calls


def test_gauges_return_to_nothing(served):
    answers = served.all_at_once([("/v1/translate", {"model": "transformer", "texts": [TEXT] * 9})] * 8)
    assert [answer.status_code for answer in answers] == [200] * 8
    for name in ("regard_queue_sentences", "regard_places_in_use", "regard_captures"):
        assert served.figure(name) == 0
    assert served.figure("regard_requests_in_flight") == 1  # this one
    assert served.figure("regard_workers_ready") == 2


def test_no_label_holds_a_text_or_a_client(served):
    translate(served)
    translate(served, model=TEXT)
    served.post(f"/v1/{TEXT}", {"texts": [TEXT]}, headers={"user-agent": TEXT, "x-api-key": TEXT})
    page = served.get("/metrics")
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "secret" not in page.text
    labels = set(re.findall(r"(\w+)=\"", page.text))
    assert labels == {"route", "status", "stage", "model", "le"}
    assert set(re.findall(r'model="([^"]*)"', page.text)) == {"transformer", "rnnsearch"}
    assert set(re.findall(r'route="([^"]*)"', page.text)) <= {"/v1/translate", "/metrics", "other"}
