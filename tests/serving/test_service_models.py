"""Models are found, reloaded and closed, and the number of waiting requests has a limit."""

import asyncio
import contextlib
import re
import shutil
import threading

import pytest
from serving.served import STORED, serve, stored, write_best

TEXT = "A secret that nobody may read."


def test_more_than_may_wait_is_refused_and_what_was_admitted_is_answered():
    """A call keeps the worker busy, so that every request waits."""
    hold = threading.Event()
    with serve(*stored("transformer"), waiting=3) as found:
        (model,) = found.service.models.values()
        table = {"texts": ["the dog"], "beam": 1, "longest": 3, "alignment": True, "scores": True}

        async def ask_many():
            busy = asyncio.wrap_future(model.queue.call(lambda run: hold.wait(60)))
            while model.queue.calls:
                await asyncio.sleep(0.01)
            asked = [asyncio.create_task(found.client.post("/v1/translate", json=table)) for _ in range(3)]
            while model.queue.waiting < 3:
                await asyncio.sleep(0.01)
            refused = await found.client.post("/v1/translate", json=table)
            scored = await found.client.post("/v1/score", json={"texts": ["a"], "targets": ["b"]})
            hold.set()
            return [refused, scored], await asyncio.gather(*asked), await busy

        refused, answered, _ = found.call(ask_many())
        for answer in refused:
            assert answer.status_code == 429
            assert answer.json()["error"]["message"].startswith(
                "3 sentences are waiting, as many as this server allows"
            )
            assert int(answer.headers["retry-after"]) >= 1
        assert [answer.status_code for answer in answered] == [200] * 3  # including their alignments and scores
        assert found.figure("regard_queue_sentences") == found.figure("regard_places_in_use") == 0


def test_a_large_request_is_admitted_where_nothing_waits():
    with serve(*stored("transformer"), waiting=2) as found:
        assert len(found.results("/v1/translate", {"texts": ["a"] * 9, "beam": 1, "longest": 2})) == 9


def test_while_models_are_loaded_requests_are_told_to_come_back():
    with serve(*stored("transformer"), start=False) as found:
        answer = found.post("/v1/translate", {"texts": ["a"]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert answer.json()["error"]["code"] == "loading"
        assert found.get("/readyz").json() == {"status": "not ready", "models": {"transformer": "loading"}}
        assert found.get("/readyz").status_code == 503
        assert found.get("/v1/models").json() == {"models": []}


def test_a_model_that_was_replaced_serves_those_that_began_with_it(tmp_path):
    """A request that began with the old model before a reload gets its scores from that model, too."""
    shutil.copytree(STORED / "transformer", tmp_path / "run", symlinks=True)
    with serve(str(tmp_path / "run")) as found:
        service = found.service
        old = service.models["run"]

        async def replace_under_way():
            with contextlib.ExitStack() as later:
                with service.hold():
                    await asyncio.to_thread(write_best, tmp_path / "run", 200)
                    assert await service.reload() == ["run"]
                    assert service.models["run"] is not old
                    later.enter_context(service.hold())
                    assert await old.call(lambda run: run.step) == 100
                assert old.queue.closed  # a request that began later does not keep it open
            return await service.reload()

        assert found.call(replace_under_way()) == []
        assert found.get("/v1/models").json()["models"][0]["step"] == 200
        for worker in old.workers:
            worker.join(60)
            assert not worker.is_alive()
        assert not service.replaced


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
    assert after[1] - before[1] == 5 * 4  # including the END
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
    assert served.figure("regard_requests_in_flight") == 1  # the client's own request
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
