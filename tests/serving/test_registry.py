"""Models are found, opened anew and let go, and no more waits for them than may."""

import asyncio
import contextlib
import shutil
import threading

from serving.served import STORED, serve, stored, write_best


def test_more_than_may_wait_is_refused_and_what_was_admitted_is_answered():
    """The worker is busy with a call, so that everything waits."""
    hold = threading.Event()
    with serve(*stored("transformer"), waiting=3) as found:
        (model,) = found.service.models.values()
        table = {"texts": ["the dog"], "beam": 1, "longest": 3, "alignment": True, "scores": True}

        async def ask_many():
            busy = asyncio.wrap_future(model.line.call(lambda run: hold.wait(60)))
            while model.line.calls:
                await asyncio.sleep(0.01)
            asked = [asyncio.create_task(found.client.post("/v1/translate", json=table)) for _ in range(3)]
            while model.line.waiting < 3:
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
        assert [answer.status_code for answer in answered] == [200] * 3  # their alignments and scores as well
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
    """A request that holds the old model when it is replaced has its scores from it, too."""
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
                    assert await service.call(old, lambda run: run.step) == 100
                assert old.line.closed  # one that began later does not keep it open
            return await service.reload()

        assert found.call(replace_under_way()) == []
        assert found.get("/v1/models").json()["models"][0]["step"] == 200
        for worker in old.workers:
            worker.join(60)
            assert not worker.is_alive()
        assert not service.replaced
