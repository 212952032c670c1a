"""An overloaded server refuses requests at once, answers all that it admitted, and does not grow."""

import asyncio
import time

import pytest
from serving.served import serve_process, stored

DEADLINE = 20.0
# About a hundred words in sixteen hypotheses: two such requests fill the worker, and eight more may wait.
HEAVY = {"texts": ["the dog " * 60], "beam": 16, "shortest": 12, "longest": 12}


async def overload(process, clients, requests):
    """Let every client send its requests as fast as it can; return all answers and their seconds."""
    async with process.async_client() as client:

        async def ask():
            rows = []
            for _ in range(requests):
                start = time.monotonic()
                answer = await client.post("/v1/translate", json=HEAVY)
                rows.append((answer, time.monotonic() - start))
            return rows

        return [row for rows in await asyncio.gather(*(ask() for _ in range(clients))) for row in rows]


def check(rows):
    """Check the statuses, headers and times of all answers."""
    statuses = {answer.status_code for answer, _ in rows}
    assert {200, 429} <= statuses <= {200, 429, 504}
    for answer, seconds in rows:
        error = answer.json().get("error", {})
        if answer.status_code == 200:
            assert seconds < DEADLINE
            assert len(answer.json()["results"][0]["outputs"][0]["tokens"]) == 12
        elif answer.status_code == 429:
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert error["code"] == "overloaded"
        else:
            assert error["code"] == "deadline"
            assert seconds > DEADLINE


@pytest.mark.parametrize(
    ("clients", "requests", "rounds"),
    [(60, 2, 0), pytest.param(200, 3, 10, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])],
)
def test_many_clients_and_eight_places_in_the_queue(tmp_path, clients, requests, rounds):
    """In the slow form, the server's memory stays constant, too."""
    with serve_process(
        *stored("transformer"), folder=tmp_path, flags=["--quiet"], waiting=8, seconds=DEADLINE
    ) as process:
        for _ in range(2 if rounds else 1):
            check(asyncio.run(overload(process, clients, requests)))
        before = process.memory
        for _ in range(rounds):
            check(asyncio.run(overload(process, clients, requests)))
        assert not rounds or process.memory < 1.05 * before
        process.wait_for_figure("regard_places_in_use", 0)
        process.wait_for_figure("regard_queue_sentences", 0)
        with process.client() as client:
            assert client.post("/v1/translate", json=HEAVY).status_code == 200
