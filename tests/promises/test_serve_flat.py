"""Hours of mixed requests leave no trace: memory stays as it is after the start, and nothing is captured again.

`REGARD_SOAK_SECONDS` says how long the full form takes.
"""

import asyncio
import os
import random
import time

import pytest
from serving.served import STORED, serve_process, stored

NAMES = ("transformer", "rnnsearch", "encoder-language-model", "han", "captioner")
WORDS = ["the", "dog", "child", "eats", "sleeps", "here", "we", "see", ",", ".", "Unheard-of", "7", "Zoë"]


def draw_text(rng, most=12):
    return " ".join(rng.choices(WORDS, k=rng.randint(0, most)))


def draw_request(rng):
    """A request of any kind."""
    word = "".join(rng.choices("abcdefghij", k=9))  # one that never comes again
    kind = rng.randrange(9)
    if kind < 4:
        options = rng.choice([{"beam": 1}, {"beam": 5, "nbest": 2}, {"sample": True}, {"beam": 3, "no_repeat": 2}])
        table = {"texts": [f"{word} {draw_text(rng)}" for _ in range(rng.choice([1, 1, 3, 12]))], "longest": 12}
        prefixes = {"prefixes": ["a"] * len(table["texts"])}
        extra = rng.choice([{}, {"stream": True}, {"alignment": True}, {"scores": True}, prefixes])
        return "translate", {"json": {**table, **options, **extra, "model": rng.choice(NAMES[:2])}}
    if kind == 4:
        pairs = {"texts": [f"{word} {draw_text(rng)}"], "targets": [draw_text(rng)], "model": rng.choice(NAMES[:2])}
        return rng.choice(["score", "align"]), {"json": pairs}
    if kind == 5:
        return "sample", {"json": {"count": rng.randint(1, 9), "longest": 9, "stream": rng.random() < 0.3}}
    if kind == 6:
        return "classify", {"json": {"texts": [f"{word} {draw_text(rng, 60)}"]}}
    if kind == 7:
        picture = (STORED / f"{rng.randrange(3)}.png").read_bytes()
        return "caption", {"files": {"pictures": picture}, "data": {"longest": "5"}}
    return "look", {"json": {"text": f"{word} {draw_text(rng, 6)}", "model": rng.choice(NAMES[:4]), "beam": 2}}


def mix(process, seconds, seed, least=0):
    """Some clients ask for all kinds of things, and now and then go before they are answered; answers by status."""
    statuses: dict[int, int] = {}

    async def ask(client, rng):
        end = time.monotonic() + seconds
        while time.monotonic() < end or sum(statuses.values()) < least:
            path, request = draw_request(rng)
            patience = 0.02 if rng.random() < 0.05 else 60
            try:
                answer = await asyncio.wait_for(client.post(f"/v1/{path}", **request), patience)
            except TimeoutError:
                continue
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1

    async def ask_all():
        async with process.async_client() as client:
            await asyncio.gather(*(ask(client, random.Random(seed + number)) for number in range(4)))

    asyncio.run(ask_all())
    return statuses


def check(tmp_path, warm, seconds):
    seed = random.randrange(2**32)
    print("seed", seed)
    with serve_process(*stored(*NAMES), folder=tmp_path, flags=["--quiet"]) as process:
        captures = process.figure("regard_captures")
        mix(process, warm, seed, least=100)  # everything was asked for once
        before = process.memory
        statuses = mix(process, seconds, seed + 100)
        print(f"{before / 2**20:.1f} MiB, then {process.memory / 2**20:.1f} MiB", statuses)
        assert set(statuses) == {200}
        assert process.memory < 1.05 * before
        assert process.figure("regard_captures") == captures
        for name in ("regard_places_in_use", "regard_queue_sentences"):
            process.wait_for_figure(name, 0)
        assert process.figure("regard_workers_ready") == len(NAMES)


def test_some_seconds_of_mixed_requests(tmp_path):
    check(tmp_path, 0, 1.5)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_as_long_as_is_wanted(tmp_path):
    seconds = float(os.environ.get("REGARD_SOAK_SECONDS", "600"))
    check(tmp_path, seconds / 5, seconds)
