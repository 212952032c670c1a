"""SIGTERM loses nothing: admitted requests are answered, new ones are refused, and the server ends with status 0."""

import signal
import threading
import time

import pytest
from serving.served import serve_process, stored

LONG = {"texts": ["the dog"], "beam": 1, "shortest": 1200, "longest": 1200}
SHORT = {"texts": ["the dog"], "beam": 1, "longest": 2}


@pytest.mark.parametrize(
    ("count", "workers"),
    [
        (3, "thread"),
        (3, "process"),
        *(pytest.param(40, form, marks=pytest.mark.slow) for form in ("thread", "process")),
    ],
)
def test_requests_finish_and_new_ones_are_refused(tmp_path, count, workers):
    grace = 60.0
    settings = {"output_tokens": 1200, "grace": grace, "seconds": 60, "workers": workers}
    with serve_process(*stored("rnnsearch"), folder=tmp_path, **settings) as process:
        answers: list = []

        def ask(number):
            table = {**LONG, "stream": number == 0}
            answers.append(process.post("/v1/translate", table))

        with process.client() as known:  # a connection opened earlier, which stays open
            assert known.get("/readyz").status_code == 200
            threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
            for thread in threads:
                thread.start()
            process.wait_for_figure("regard_places_in_use", count)
            start = time.monotonic()
            process.signal(signal.SIGTERM)
            process.wait_for("stopping: ")
            ready = known.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "draining")
            refused = known.post("/v1/translate", json=SHORT), process.post("/v1/translate", SHORT)
            for answer in refused:
                assert answer.status_code == 503
                assert answer.json()["error"]["code"] == "draining"
                assert int(answer.headers["retry-after"]) > 0
            assert process.get("/livez").status_code == 200
            assert process.figure("regard_places_in_use") == count  # all requests still hold their places
        for thread in threads:
            thread.join(60)
        assert [answer.status_code for answer in answers] == [200] * count
        for answer in answers:
            if answer.headers["content-type"] == "application/json":
                assert len(answer.json()["results"][0]["outputs"][0]["tokens"]) == 1200
            else:
                assert answer.text.split("\n\n")[-2].startswith("event: result")
        assert process.wait(grace).status == 0
        assert time.monotonic() - start < grace
