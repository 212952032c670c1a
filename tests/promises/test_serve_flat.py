"""Hours of mixed requests leave no trace: memory stays constant after the start, and no graph is captured again.

`REGARD_SOAK_SECONDS` sets the duration of the slow form.
"""

import asyncio
import gc
import os
import random
import re
import time
import types
from collections import Counter

import pytest
from draws import SEED
from serving.served import STORED, serve, serve_process, stored

from regard.decoding import Options
from regard.serving import models
from regard.serving.requests import ActionRequest, TranslateRequest

PATHS = ("translate", "score", "align", "sample", "classify", "caption", "look")
NAMES = ("transformer", "rnnsearch", "encoder-language-model", "han", "captioner")
WORDS = ["the", "dog", "child", "eats", "sleeps", "here", "we", "see", ",", ".", "Unheard-of", "7", "Zoë"]


def draw_text(rng, most=12):
    return " ".join(rng.choices(WORDS, k=rng.randint(0, most)))


def draw_request(rng):
    """Draw a request of any kind."""
    word = "".join(rng.choices("abcdefghij", k=9))  # a word that no other request has
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
    """Send all kinds of requests from several clients, some of which leave early; return the answers by status."""
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
        mix(process, warm, seed, least=100)  # this sends every kind of request at least once
        before = process.memory
        statuses = mix(process, seconds, seed + 100)
        print(f"{before / 2**20:.1f} MiB, then {process.memory / 2**20:.1f} MiB", statuses)
        assert set(statuses) == {200}
        assert process.memory < 1.05 * before
        assert process.figure("regard_captures") == captures
        for name in ("regard_places_in_use", "regard_queue_sentences"):
            process.wait_for_figure(name, 0)
        assert process.figure("regard_workers_ready") == len(NAMES)


def ask(served, rng, count, *paths):
    """Send so many requests to each of these routes."""
    left = Counter(dict.fromkeys(paths, count))
    while left.total():
        path, request = draw_request(rng)
        if left[path]:
            answer = served.post(f"/v1/{path}", **request)
            assert answer.status_code == 200, answer.text
            left[path] -= 1


async def leave_early(service):
    """Start a stream, and close it after its first event."""
    request = TranslateRequest(texts=("the dog sleeps", "we see"), model="transformer", stream=True)
    events = service.translate_stream(ActionRequest(request, Options(longest=12)))
    await anext(events)
    await events.aclose()


def test_requests_leave_no_garbage():
    """Python would have to collect reference cycles: with pictures in them, thousands of cycles take gigabytes."""
    rng = random.Random(1)
    with serve(*stored(*NAMES)) as served:
        ask(served, rng, 1, *PATHS)  # this creates everything that exists only once
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            ask(served, rng, 2, *PATHS)
            served.call(leave_early(served.service))
            served.get("/metrics")
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            names = [f"{type(each).__module__} {getattr(each, '__module__', '')}" for each in gc.garbage]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
            gc.unfreeze()
    assert any("httpx" in name for name in names)  # those of the client
    assert not {name for name in names if "regard" in name or "numpy" in name or "torch" in name}


def test_words_that_never_come_again_are_forgotten(monkeypatch):
    monkeypatch.setattr(models, "WORDS", 7)
    names = ("transformer", "rnnsearch", "han")
    with serve(*stored(*names)) as served:
        ask(served, random.Random(SEED), 25, "score", "align", "classify")
        words = {text for text in texts_within(served.service) if re.fullmatch("[a-j]{9}", text)}
    assert 0 < len(words) <= 2 * 7 * len(names)  # of 75 words: their pieces, and whether they are known


def texts_within(root):
    """Yield all strings that an object holds, at any depth, except in code."""
    waiting, known = [root], {id(root): root}
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif not isinstance(each, type | types.ModuleType | types.FunctionType | types.CodeType | types.FrameType):
            parts = [*gc.get_referents(each), *(each if isinstance(each, dict) else ())]  # get_referents omits keys
            fresh = [part for part in parts if id(part) not in known]
            known.update((id(part), part) for part in fresh)
            waiting += fresh


def test_some_seconds_of_mixed_requests(tmp_path):
    check(tmp_path, 0, 1.5)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_as_long_as_is_wanted(tmp_path):
    seconds = float(os.environ.get("REGARD_SOAK_SECONDS", "600"))
    check(tmp_path, seconds / 5, seconds)
