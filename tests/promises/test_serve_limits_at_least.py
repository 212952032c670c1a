"""No input causes a server error if the server asks for keys, its limits are minimal, and its clients are slow."""

import dataclasses
import json
import random
import time

import pytest
from hypothesis import strategies
from serving.generated import draw_case, every_mode, generate, read_schema
from serving.raw_client import RawClient, head_of, status_of
from serving.served import serve_process, stored

from regard.serving import ServeSettings

KEY = "clé-ключ"
NAMES = ("transformer", "han", "encoder-language-model")
SIZES = ("characters", "texts", "body_bytes", "header_bytes", "headers", "pictures", "picture_bytes", "beam")
LIMITS = (*SIZES, "output_tokens", "look_words", "waiting", "connections", "rate")
ROUTES = (
    *("/v1/translate", "/v1/sample", "/v1/score", "/v1/align", "/v1/look", "/v1/classify", "/v1/caption"),
    *("/translate", "/detect", "/translate_file", "/suggest"),
)
ALLOWED = (200, 400, 401, 403, 404, 405, 408, 413, 414, 415, 421, 422, 429, 431, 503, 504)


def least(name):
    """Return the smallest value of a limit that still limits: zero means no limit."""
    (field,) = [each for each in dataclasses.fields(ServeSettings) if each.name == name]
    return max(1, field.metadata["least"])


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(f"{KEY}\nother\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def process(tmp_path_factory, keys):
    folder = tmp_path_factory.mktemp("serve")
    with serve_process(*stored(*NAMES), folder=folder, flags=["--log-texts"], keys=keys, output_tokens=40) as found:
        yield found
        assert "Traceback" not in found.stderr
        assert KEY not in found.stderr
        assert json.dumps(KEY)[1:-1] not in found.stderr


@pytest.fixture(scope="module")
def schema(process):
    return read_schema(process, 400, 401, 403, 404, 413, 415, 422)


@pytest.mark.parametrize("route", ROUTES)
@every_mode(4)
def test_with_keys(schema, route, mode, count):
    """Send allowed and forbidden requests with a right key, a wrong one, and arbitrary bytes."""
    given = strategies.one_of(
        strategies.sampled_from([KEY.encode(), b"other", b"wrong", b"", None]),
        strategies.binary(max_size=20).map(lambda each: bytes(c for c in each if c > 32 and c != 127)),
    )
    places = strategies.sampled_from(["authorization", "x-api-key", "api_key"])

    @generate(count, draw_case(schema[route]["post"], mode), given, places)
    def send(case, key, place):
        headers = {}
        if key is not None and place == "api_key" and isinstance(case.body, dict):
            case.body[place] = key.decode("utf-8", "replace")
        elif key is not None:
            headers = {place: (b"Bearer " if place == "authorization" else b"") + key}
        answer = case.call(headers=headers, timeout=60)
        assert answer.status_code in ALLOWED, answer.text
        known = key in (KEY.encode(), b"other") and place != "api_key"
        assert not known or answer.status_code != 401
        assert known or not route.startswith("/v1/") or answer.status_code == 401


def draw_request(rng):
    """Draw a request as bytes: intact or damaged, with valid and invalid fields."""
    path = rng.choice((*ROUTES, "/livez", "/readyz", "/metrics", "/languages", "/", "/v1/models", "/" + "a" * 3000))
    values = (
        "", "a", "the dog", ["the dog"], ["a", "b"], [], 1, 0, -1, 1e9, None, True, {"a": ["b"]}, "x" * 3000, "\ud800",
    )  # fmt: skip
    names = (
        "texts", "text", "targets", "q", "source", "target", "format", "beam", "nbest", "longest", "count", "api_key",
    )  # fmt: skip
    table = {name: rng.choice(values) for name in rng.sample(names, rng.randint(0, 5))}
    if rng.random() < 0.5:
        table |= {"q": "<b>a", "source": "en", "target": "de", "format": "html"}
    elif rng.random() < 0.5:
        table |= {"texts": ["the dog"], "model": "transformer", "beam": 1, "longest": 1}
    body = json.dumps(table).encode()
    lines = ["Content-Type: application/json"]
    lines += rng.choice(
        ([], ["Authorization: Bearer other"], ["X-Api-Key: wrong"], ["X: y"] * 30, ["X: " + "y" * 2000])
    )
    if rng.random() < 0.3:
        lines.append("Transfer-Encoding: chunked")
        cut = rng.randint(0, len(body))
        body = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in (body[:cut], body[cut:]) if each) + b"0\r\n\r\n"
    else:
        lines.append(f"Content-Length: {len(body) + rng.choice((0, 0, 0, 0, 5))}")
    lines.append("Connection: close")
    whole = head_of(path, rng.choice(("POST", "POST", "POST", "GET", "PUT")), *lines) + b"\r\n" + body
    if rng.random() < 0.2:
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        whole = bytes(damaged)
    return whole


def send_slowly(process, rng, count):
    """Send requests in pieces, with pauses between them, and disconnect now and then."""
    for _ in range(count):
        whole = draw_request(rng)
        with RawClient(process, 30) as client:
            cuts = sorted(rng.randrange(len(whole) + 1) for _ in range(rng.choice((0, 1, 3))))
            pieces = [whole[one:two] for one, two in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
            client.send(*(pieces[:-1] if rng.random() < 0.1 else pieces), pause=rng.choice((0, 0, 0.01)))
            if rng.random() < 0.1:
                continue  # the server has closed the connection
            answer = client.receive()
            assert not answer or status_of(answer) in ALLOWED, (whole, answer)
            assert b" 500 " not in answer[:20]


def check_limits(tmp_path, keys, names, count, **others):
    """Fuzz a server with minimal values for these limits."""
    seed = random.randrange(2**32)
    print("seed", seed)
    limits = {"seconds": 0.5, **others, **{name: least(name) for name in names}}
    with serve_process(
        *stored("transformer", "han"), folder=tmp_path, flags=["--quiet"], keys=keys, **limits
    ) as process:
        send_slowly(process, random.Random(seed), count)
        time.sleep(0.1)
        with RawClient(process, 30) as client:
            client.send(head_of() + b"Connection: close\r\n\r\n")
            assert status_of(client.receive()) == 200
        assert "Traceback" not in process.stderr, process.stderr


def test_with_all_limits_at_their_least(tmp_path, keys):
    check_limits(tmp_path, keys, LIMITS, 40)


def test_with_the_least_time(tmp_path, keys):
    check_limits(tmp_path, keys, ("connections",), 20, seconds=0.001, grace=0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LIMITS)
def test_with_each_limit_at_its_least(tmp_path, keys, name):
    check_limits(tmp_path, keys, (name,), 500)
