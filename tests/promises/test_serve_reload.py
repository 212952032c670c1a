"""SIGHUP loads the newest best checkpoint without losing a request: the old or the new model answers each."""

import asyncio
import shutil
import signal

import pytest
from serving.served import STORED, serve_process, write_best

from regard.run import load

TABLE = {"texts": ["the dog eats"], "beam": 2, "shortest": 20, "longest": 20, "scores": True, "alignment": True}


@pytest.mark.parametrize(
    ("moves", "workers"),
    [
        (2, "thread"),
        *(pytest.param(moves, form, marks=pytest.mark.slow) for moves, form in ((20, "thread"), (3, "process"))),
    ],
)
@pytest.mark.timeout(600)
def test_no_request_is_lost(tmp_path, moves, workers):
    run = tmp_path / "run"
    shutil.copytree(STORED / "transformer", run, symlinks=True)
    options = {name: TABLE[name] for name in ("beam", "shortest", "longest")}
    expected = [next(load(run).stream(TABLE["texts"], **options))[0].log_prob]
    with serve_process(str(run), folder=tmp_path, workers=workers) as process:

        async def ask_until(stop):
            answers = []
            async with process.async_client() as client:
                while not stop.is_set():
                    answers.append(await client.post("/v1/translate", json=TABLE))
            return answers

        async def move():
            stop = asyncio.Event()
            clients = [asyncio.create_task(ask_until(stop)) for _ in range(4)]
            for number in range(1, moves + 1):
                step = 100 + number
                await asyncio.to_thread(write_best, run, step, 0.9)
                expected.append(next(load(run).stream(TABLE["texts"], **options))[0].log_prob)
                process.signal(signal.SIGHUP)
                await asyncio.to_thread(process.wait_for, f"run: step {step} from now on")
                async with process.async_client() as client:
                    assert (await client.get("/v1/models")).json()["models"][0]["step"] == step
                    last = (await client.post("/v1/translate", json=TABLE)).json()
                assert last["results"][0]["outputs"][0]["log_prob"] == pytest.approx(expected[-1], abs=1e-4)
            stop.set()
            return [answer for answers in await asyncio.gather(*clients) for answer in answers]

        answers = asyncio.run(move())
        assert len(answers) > 4
        assert {answer.status_code for answer in answers} == {200}
        log_probs = [answer.json()["results"][0]["outputs"][0]["log_prob"] for answer in answers]
        assert all(any(abs(found - each) < 1e-3 for each in expected) for found in log_probs)
        assert len({round(found, 2) for found in log_probs}) > 1  # of both models
        process.wait_for_figure("regard_workers_ready", 1)
        process.wait_for_figure("regard_places_in_use", 0)
