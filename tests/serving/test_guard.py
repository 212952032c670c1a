"""The guard: who may send requests, how much, and what it counts."""

import hashlib
import json
import logging

import httpx
import pytest
from serving.served import serve, settings_of, stored

from regard.errors import ConfigError
from regard.serving import app
from regard.serving.app import KeyRing, host_name, read_keys
from regard.serving.errors import ApiError

TEXT = {"texts": ["The child sleeps."], "model": "ntm", "beam": 1, "longest": 2}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("# of the first client\nkey-one\n\n  key-two  \nclé-ключ-鍵\nclé-un\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def served(keys):
    settings = {"keys": keys, "hosts": ["translate.example"], "origins": ["https://page.example"], "body_bytes": 2048}
    with serve(*stored("ntm"), **settings, picture_bytes=4096, pictures=2) as found:
        yield found


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that only the test moves."""
    now = [1000.0]
    monkeypatch.setattr(app.time, "monotonic", lambda: now[0])
    return now


def ask(served, path="/v1/translate", key="key-one", host="localhost", **options):
    headers = {"host": host, **({"authorization": f"Bearer {key}"} if key else {}), **options.pop("headers", {})}
    if not options:
        options["json"] = TEXT
    return served.post(path, headers=headers, **options)


# ---- names and keys

NO_HOSTS = (
    "", "localhost:port", "localhost:65536", "localhost:80:80", "localhost:-1", "localhost:\u0663", "evil@localhost",
    "localhost@evil", "localhost/evil", "localhost evil", "localhost,evil", "::1", "[::1", "[::1]evil", "[::1]:8080:1",
    "[localhost]", "a" * 300,
)  # fmt: skip


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8080", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:8080", "::1"),
        ("[::1]", "::1"),
        ("example.org", "example.org"),
        ("localhost.example.org:80", "localhost.example.org"),
        ("localhost.", "localhost"),
        ("localhost:", "localhost"),  # RFC 9110 allows an empty port
        *((host, None) for host in NO_HOSTS),
    ],
)
def test_the_name_in_a_host_header(host, name):
    assert host_name(host) == name


@pytest.mark.parametrize(
    "host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "translate.example", "Translate.Example"]
)
def test_a_known_host_is_served(served, host):
    assert ask(served, host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example", "[::2]"),
        *("localhost:x", "evil@localhost", "localhost@evil", "[::1]evil"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/translate", "/livez", "/metrics"])
def test_another_host_is_refused(served, host, path):
    answer = ask(served, path, host=host) if path.startswith("/v1") else served.get(path, headers={"host": host})
    assert answer.status_code == 421
    assert answer.json()["error"]["code"] == "wrong_host"
    assert answer.json()["error"]["message"].startswith(f"Host: {host!r} is not served here")


def test_a_host_is_given_once(served):
    for hosts in (("localhost", "localhost"), ("localhost", "evil.example"), ("evil.example", "localhost")):
        answer = served.call(served.client.get("/livez", headers=[("host", each) for each in hosts]))
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "Host: given 2 times, expected one"


def test_the_address_that_is_listened_on_is_a_host_of_its_own():
    with serve(*stored("ntm"), start=False, host="10.1.2.3") as found:
        assert found.get("/livez", headers={"host": "10.1.2.3:8080"}).status_code == 200
        assert found.get("/livez", headers={"host": "10.1.2.4:8080"}).status_code == 421
    with serve(*stored("ntm"), start=False, host="0.0.0.0") as found:
        assert found.get("/livez", headers={"host": "0.0.0.0"}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer key-one"},
        {"authorization": "bearer   key-two"},
        {"x-api-key": "key-two"},
    ],
)
def test_a_key_opens(served, headers):
    assert ask(served, key=None, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({}, "missing"),
        ({"authorization": "Basic key-one"}, "missing"),
        ({"authorization": "Bearer "}, "not known here"),
        ({"authorization": "Bearer key-on"}, "not known here"),
        ({"x-api-key": "# of the first client"}, "not known here"),
        ({"x-api-key": "clé"}, "not known here"),
    ],
)
def test_without_a_key_there_is_no_answer(served, headers, problem):
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    answer = ask(served, key=None, headers=encoded)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    message = f"the API key is {problem}; send it as Authorization: Bearer KEY"
    assert answer.json() == {"error": {"code": "unauthorised", "message": message, "field": None}}


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("clé-ключ-鍵".encode(), 200),
        ("clé-un".encode(), 200),
        ("clé-un".encode("latin-1"), 200),  # some clients send keys in Latin-1
        ("clé-ключ-鍶".encode(), 401),
        (b"cl", 401),
        (b"\xff\xfe", 401),
    ],
)
def test_a_key_need_not_be_ascii(served, key, status):
    for headers in ({"authorization": b"Bearer " + key}, {"x-api-key": key}):
        assert ask(served, key=None, headers=headers).status_code == status
    try:
        field = key.decode()
    except UnicodeDecodeError:
        return
    fields = {"q": "a", "source": "en", "target": "de", "api_key": field}
    for options in ({"json": fields}, {"data": fields}, {"params": fields, "data": {"x": ""}}):
        answer = served.post("/translate", **options)
        assert ("API key" in answer.text) == (status == 401), answer.text


@pytest.mark.parametrize("key", ["\ud800", "a\udfff", ["key-one"], {"a": 1}, 5, True, "\0"], ids=ascii)
def test_a_field_that_is_no_key_is_refused(served, key):
    body = json.dumps({"q": "a", "source": "en", "target": "de", "api_key": key}).encode()
    for path in ("/translate", "/detect", "/suggest"):
        answer = served.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 403, answer.text


def test_pages_for_machines_need_no_key(served):
    for path in ("/livez", "/readyz", "/metrics", "/openapi.json"):
        assert served.get(path).status_code == 200
    assert served.get("/v1/models").status_code == 401


def test_every_key_is_compared_whole(monkeypatch):
    """All digests are compared, with a function whose time does not depend on where they differ."""
    compared = []

    def compare(one, other, compare=app.hmac.compare_digest):
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(app.hmac, "compare_digest", compare)
    ring = KeyRing(["a", "b", "c"], 0)
    for given in ("a", "c"):
        ring.check(given)
    for given in ("d", None):
        with pytest.raises(ApiError):
            ring.check(given)
    digests = [hashlib.sha256(key).digest() for key in (b"a", b"b", b"c")]
    assert [other for _, other in compared] == digests * 4
    assert "a" not in map(str, vars(ring).values())


def test_a_key_may_be_used_so_many_times_a_minute(clock):
    ring = KeyRing(["a", "b"], 3)
    for _ in range(3):
        ring.check("a")
    with pytest.raises(ApiError, match="this API key may send 3 requests per minute; try again in 20 s") as caught:
        ring.check("a")
    assert (caught.value.status, caught.value.code) == (429, "rate_limited")
    assert caught.value.headers == {"Retry-After": "20"}
    ring.check("b")  # the limit of one key does not affect another
    clock[0] += 20
    ring.check("a")
    with pytest.raises(ApiError):
        ring.check("a")
    clock[0] += 3600
    for _ in range(3):  # no more at once, even after a long pause
        ring.check("a")
    with pytest.raises(ApiError):
        ring.check("a")


def test_the_seconds_to_wait_are_enough(clock):
    """A client that waits as long as the answer says is not refused again."""
    for rate in (1, 7, 11, 40, 90, 1000):
        ring = KeyRing(["a"], rate)
        for _ in range(rate):
            ring.check("a")
        for part in (0.0, 0.3, 0.49):
            clock[0] += part * 60 / rate
            with pytest.raises(ApiError) as caught:
                ring.check("a")
        clock[0] += int(caught.value.headers["Retry-After"])
        ring.check("a")


def test_a_file_of_keys_that_cannot_be_used(tmp_path):
    for name, content, problem in (
        ("none", None, "No such file"),
        ("empty", b"# nothing\n\n", "no key in it, expected one per line"),
        ("bytes", b"\xff\xfe", "cannot be read"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=f"keys: .*{name}: .*{problem}"):
            read_keys(str(path))


# ---- sizes


def test_a_body_that_is_too_large_is_refused_by_its_length(served):
    for length in ("2049", "9" * 30, "9" * 5000):
        answer = ask(served, content=b"{}", headers={"content-length": length})
        assert answer.status_code == 413, len(length)
        assert answer.json()["error"]["message"] == "the body is larger than 2,048 bytes, the most that is allowed"


def test_a_body_without_a_length_is_counted(served):
    async def parts():
        for _ in range(3):
            yield b" " * 1000

    answer = ask(served, content=parts())
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_large"


def test_a_body_that_just_fits_is_read(served):
    body = json.dumps(TEXT).encode().ljust(2048)
    assert ask(served, content=body).status_code == 200
    assert ask(served, content=body + b" ").status_code == 413


def test_pictures_may_be_larger(served):
    files = [("pictures", b"x" * 4000), ("pictures", b"x" * 4000)]
    assert ask(served, "/v1/classify", files=files).status_code == 422  # the body is read: no model serves it
    assert ask(served, "/v1/translate", files=files).status_code == 413
    answer = ask(served, "/v1/classify", files=[("pictures", b"x" * 12_000)])
    assert answer.status_code == 413


# ---- web pages


def test_a_web_page_that_is_allowed_may_ask_and_no_other(served):
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}

    def options(origin):
        work = served.client.options("/v1/translate", headers={"origin": origin, **preflight})
        return served.call(work)

    allowed = options("https://page.example")  # a browser sends this request without the key
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://page.example"
    assert "access-control-allow-origin" not in options("https://evil.example").headers
    for key, status in (("key-one", 200), ("none", 401)):  # the page can read the error
        answer = ask(served, key=key, json=TEXT, headers={"origin": "https://page.example"})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == "https://page.example"


def test_without_origins_no_web_page_may_ask():
    with serve(*stored("ntm"), start=False) as found:
        headers = {"origin": "https://page.example", "access-control-request-method": "POST"}
        answer = found.call(found.client.options("/v1/translate", headers=headers))
        assert answer.status_code == 405
        assert "access-control-allow-origin" not in answer.headers


# ---- metrics and logs


def test_a_server_that_stops_refuses_what_is_new():
    with serve(*stored("ntm")) as found:
        found.service.draining = True
        answer = found.post("/v1/translate", TEXT)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert answer.headers["connection"] == "close"
        assert answer.json()["error"]["code"] == "draining"
        assert found.get("/livez").status_code == 200
        assert found.get("/readyz").status_code == 503
        assert found.get("/readyz").json()["status"] == "draining"


def test_the_log_has_routes_and_no_texts(served, caplog):
    with caplog.at_level(logging.INFO, logger="regard.serving"):
        ask(served)
        ask(served, "/v1/secret-path")
        ask(served, content=b"secret")
    lines = [record.getMessage() for record in caplog.records if record.name == "regard.serving"]
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        "POST /v1/translate 200",
        "POST other 404",
        "POST /v1/translate 400",
    ]
    assert "child" not in caplog.text


def test_texts_are_logged_where_a_person_wants_them(caplog):
    with serve(*stored("ntm"), log_texts=True) as found, caplog.at_level(logging.INFO, logger="regard.serving"):
        found.post("/v1/translate", TEXT)
        assert "The child sleeps." in caplog.text


def test_no_key_is_logged_with_the_texts(keys, caplog):
    fields = {"q": "The child sleeps.", "source": "en", "target": "de", "api_key": "key-one"}
    nested = {**fields, "API-Key": "key-one", "more": [{"apikey": "key-one", "x": {"token": ["key-one"]}}]}
    with serve(*stored("ntm"), log_texts=True, keys=keys) as found, caplog.at_level(logging.INFO):
        headers = {"authorization": "Bearer key-one", "x-api-key": "key-one"}
        for options in (
            {"json": fields},
            {"json": nested},
            {"json": nested, "headers": headers},
            {"data": fields},
            {"data": fields, "files": {"file": ("a.txt", b"text")}},
            {"params": fields, "data": {"x": "y"}},
            {"params": {"api_key": "key-one"}, "json": fields},
        ):
            for path in ("/translate", "/detect", "/translate_file", "/suggest"):
                found.post(path, **options)
        found.post("/v1/translate?api_key=key-one", TEXT, headers=headers)
        found.post("/v1/translate", {**TEXT, "api_key": "key-one"}, headers=headers)
    assert "The child sleeps." in caplog.text
    assert "key-one" not in caplog.text.replace("POST /translate?", "")


def test_texts_nested_as_deep_as_json_may_be_are_logged(caplog):
    with serve(*stored("ntm"), log_texts=True, start=False) as found, caplog.at_level(logging.INFO):
        for depth in (300, 480, 600, 900, 3000):
            body = b'{"q": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
            answer = found.post("/suggest", content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (400, 403), answer.text


def test_an_error_of_its_own_is_answered_and_logged(caplog):
    """A client gets an answer even if an error escapes the application behind the guard."""

    async def broken(scope, receive, send):
        raise ZeroDivisionError("a secret")

    with serve(*stored("ntm"), start=False) as found:
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app.Guard(broken, found.service)), base_url="http://localhost"
        )
        answer = found.call(client.get("/v1/models"))
        found.call(client.aclose())
    assert answer.status_code == 500
    assert answer.json()["error"] == {
        "code": "internal",
        "message": "a fault of the server; see its log",
        "field": None,
    }
    assert "a secret" in caplog.text
    assert settings_of().log_texts is False
