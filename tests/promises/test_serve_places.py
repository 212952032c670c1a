"""A request that takes too long, or whose client has gone, frees its place in the search and in the queue."""

import asyncio
import socket

import pytest
from serving.served import serve_process, stored

FREE = ("regard_places_in_use", "regard_queue_sentences")
# A request that never ends by itself. Four of these fill the worker; the rest waits.
ENDLESS = {"texts": ["the dog " * 60], "beam": 7, "shortest": 1_000_000, "longest": 1_000_000}


@pytest.fixture(scope="module", params=[1, pytest.param(40, marks=pytest.mark.slow)], ids=["once", "often"])
def rounds(request):
    return request.param


@pytest.fixture(scope="module", params=["thread", pytest.param("process", marks=pytest.mark.slow)])
def workers(request):
    return request.param


def start(tmp_path, **settings):
    return serve_process(*stored("rnnsearch"), folder=tmp_path, output_tokens=1_000_000, **settings)


def wait_until_free(process):
    for name in FREE:
        process.wait_for_figure(name, 0)
    process.wait_for_figure("regard_requests_in_flight", 1)  # the client's own request for metrics


def test_a_deadline_frees_the_place(tmp_path, rounds, workers):
    with start(tmp_path, seconds=0.4, workers=workers) as process:

        async def ask():
            async with process.async_client() as client:
                tables = [{**ENDLESS, "stream": number % 2 == 1} for number in range(12)]
                return await asyncio.gather(*(client.post("/v1/translate", json=table) for table in tables))

        for _ in range(rounds):
            for number, answer in enumerate(asyncio.run(ask())):
                if number % 2 and answer.status_code == 200:  # the answer had begun to stream
                    assert '"code": "deadline"' in answer.text.splitlines()[-2]
                else:
                    assert answer.status_code == 504
                    assert answer.json()["error"]["code"] == "deadline"
            wait_until_free(process)
        assert process.post("/v1/translate", {"texts": ["a"], "longest": 2}).status_code == 200


def test_a_client_that_goes_frees_the_place(tmp_path, rounds, workers):
    with start(tmp_path, seconds=3000, workers=workers) as process:

        async def ask_and_go(client, stream):
            async with client.stream("POST", "/v1/translate", json={**ENDLESS, "stream": stream}) as answer:
                assert answer.status_code == 200
                async for _ in answer.aiter_lines():
                    pass

        async def ask_many():
            clients = [process.async_client() for _ in range(10)]
            tasks = [asyncio.create_task(ask_and_go(client, number % 2 == 1)) for number, client in enumerate(clients)]
            async with process.async_client() as other:
                while True:  # until some are in the search, and some wait
                    page = (await other.get("/metrics")).text
                    if 'regard_places_in_use{model="rnnsearch"} 4.0' in page and (
                        'regard_queue_sentences{model="rnnsearch"} 6.0' in page
                    ):
                        break
                    await asyncio.sleep(0.02)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in ended} == {asyncio.CancelledError}
            for client in clients:
                await client.aclose()

        for _ in range(rounds):
            asyncio.run(ask_many())
            wait_until_free(process)
        assert process.post("/v1/translate", {"texts": ["a"], "longest": 2}).status_code == 200


def test_a_client_that_goes_while_it_sends_is_no_fault(tmp_path):
    with start(tmp_path) as process:
        host, _, port = process.address.removeprefix("http://").partition(":")
        for path, kind, body in (
            ("translate", "application/json", '{"texts": '),
            ("caption", "multipart/form-data; boundary=x", "--x\r\nContent-"),
        ):
            with socket.create_connection((host, int(port)), 60) as raw:
                lines = f"POST /v1/{path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", "Content-Length: 99"
                raw.sendall("\r\n".join([*lines, "", body]).encode())
                process.wait_for_figure("regard_requests_in_flight", 2)
            wait_until_free(process)
        assert "Traceback" not in process.stderr
        assert process.figure("regard_requests_total", status="499") == 2
        assert process.figure("regard_requests_total", status="500") == 0
