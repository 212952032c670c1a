"""Reading a request: limits for the size and lines of its head, and for the time in which it must arrive."""

import errno
import json
import socket
import time

import pytest
from child import command, fork
from serving.raw_client import RawClient, head_of, status_of
from serving.served import serve_process, stored, wait_until

from regard.errors import CommandError
from regard.serving.server import RESERVE, bind, explain, fit_descriptors

SECONDS = 1.0
BYTES, LINES = 8192, 40
TABLE = {"texts": ["the dog"], "beam": 1, "longest": 2}
BODY = json.dumps(TABLE).encode()
POST = head_of("/v1/translate", "POST", "Content-Type: application/json", f"Content-Length: {len(BODY)}") + b"\r\n"
CHUNKED = head_of("/v1/translate", "POST", "Content-Type: application/json", "Transfer-Encoding: chunked") + b"\r\n"


def test_a_port_that_is_taken_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = fork(command("serve", *stored("ntm"), "--port", port, "--device", "cpu")).wait()
    assert ended.status == 2
    assert ended.stderr == (
        f"regard: --port: {port} on 127.0.0.1 is in use; stop what listens there, or choose another port (0: any free "
        "one)\n"
    )


@pytest.mark.parametrize("host", ["nobody.invalid", "a" * 300, "256.1.1.1", "\ud800"])
def test_a_host_that_is_none_is_one_sentence(host):
    with pytest.raises(CommandError, match="--host: .* is no address or name of this machine; give one that is"):
        bind(host, 0)


def test_an_address_of_another_machine_is_one_sentence():
    with pytest.raises(CommandError, match="--host: 192.0.2.1 is no address of this machine"):
        bind("192.0.2.1", 0)


@pytest.mark.parametrize("number", [errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL, errno.ENETDOWN])
def test_every_reason_names_what_to_do(number):
    message = explain(OSError(number, "no"), "127.0.0.1", 80)
    assert message.startswith(("--port: 80 on 127.0.0.1", "--host: 127.0.0.1"))


def test_every_address_of_a_name_is_bound():
    sockets = bind("localhost", 0)
    assert sockets
    for each in sockets:
        with each:
            assert each.getsockname()[0] in ("127.0.0.1", "::1")
            assert each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [(400, 400, 400 - RESERVE), (100, 100, 50), (64, 1000, 500), (64, 600, 600 - RESERVE), (1000, 1000, 500)],
)
def test_connections_are_as_many_as_there_are_descriptors_for(soft, hard, expected):
    def work():
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        print(fit_descriptors(500))

    assert fork(work).wait().stdout == f"{expected}\n"


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    limits = {"seconds": SECONDS, "header_bytes": BYTES, "headers": LINES}
    with serve_process(*stored("transformer"), folder=folder, **limits) as found:
        yield found
        assert "Traceback" not in found.stderr


def ask(process, *pieces, pause=0.0):
    with RawClient(process) as client:
        client.send(*pieces, pause=pause)
        return client.receive()


def chunk(body, extension=b""):
    return b"%x%s\r\n%s\r\n" % (len(body), extension, body)


def check_refusal(answer, status, code):
    assert status_of(answer) == status, answer[:200]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == code
    assert answer.count(b"HTTP/1.1 ") == 1


# ---- size

HEADS = {
    "one long line": (b"X: " + b"a" * 100_000, 431, "headers_too_large"),
    "one long name": (b"X" * 100_000 + b": a", 431, "headers_too_large"),
    "many lines": (b"\r\n".join(b"X-%d: a" % i for i in range(LINES)), 431, "headers_too_large"),
    "many empty lines": (b"\r\n".join(b"X%d:" % i for i in range(5000)), 431, "headers_too_large"),
    "the same line": (b"\r\n".join([b"Cookie: " + b"a" * 500] * 30), 431, "headers_too_large"),
    "no end": (b"X: " + b"a" * 2_000_000, 431, "headers_too_large"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_beyond_its_limits_is_refused(process, name):
    lines, status, code = HEADS[name]
    end = b"" if name == "no end" else b"\r\n\r\n"
    before = process.memory
    check_refusal(ask(process, head_of() + lines + end), status, code)
    pieces = [lines[i : i + 900] for i in range(0, min(len(lines), 60_000), 900)]
    check_refusal(ask(process, head_of(), *pieces, end, pause=0.001), status, code)
    assert process.memory - before < 20_000_000


def test_a_head_within_its_limits_is_read(process):
    lines = b"".join(b"X-%d: a\r\n" % i for i in range(LINES - 2))
    assert status_of(ask(process, head_of() + lines + b"Connection: close\r\n\r\n")) == 200
    assert status_of(ask(process, head_of() + b"X: " + b"a" * (BYTES - 200) + b"\r\nConnection: close\r\n\r\n")) == 200


def test_an_address_that_is_too_long_is_refused(process):
    for size in (BYTES, 1_000_000):
        check_refusal(ask(process, head_of("/livez?" + "a" * size) + b"\r\n"), 414, "address_too_long")
    assert status_of(ask(process, b"A" * 100_000)) == 400


def test_every_byte_by_itself_is_a_request(process):
    whole = POST.replace(b"Content-Type", b"Connection: close\r\nContent-Type") + BODY
    assert status_of(ask(process, *(whole[i : i + 1] for i in range(len(whole))))) == 200


def test_headers_after_the_body_are_counted_and_dropped(process):
    body = chunk(BODY[:9]) + chunk(BODY[9:]) + b"0\r\n"
    with RawClient(process) as client:  # the connection stays open, and the next request has its own headers
        client.send(CHUNKED + body + b"Host: evil.example\r\nX-Api-Key: a\r\n\r\n")
        assert status_of(client.receive(b"}]}")) == 200
        client.send(head_of() + b"Connection: close\r\n\r\n")
        assert status_of(client.receive()) == 200
    many = b"".join(b"X-%d: a\r\n" % i for i in range(LINES))
    check_refusal(ask(process, CHUNKED + body + many + b"\r\n"), 431, "headers_too_large")


def test_what_is_between_chunks_is_counted(process):
    small = b"".join(chunk(BODY[i : i + 1], b";a=b") for i in range(len(BODY)))
    closing = CHUNKED.replace(b"Content-Type", b"Connection: close\r\nContent-Type")
    assert status_of(ask(process, closing + small + b"0\r\n\r\n")) == 200
    for body in (chunk(BODY[:1], b";a=" + b"x" * 300_000), b"".join([chunk(b" ", b";" + b"x" * 200)] * 1000)):
        check_refusal(ask(process, CHUNKED + body), 400, "invalid_http")


def test_requests_that_do_not_wait_for_answers_are_answered_in_order_up_to_a_number(process):
    few = ask(process, (head_of() + b"\r\n") * 9 + head_of("/readyz") + b"Connection: close\r\n\r\n")
    assert few.count(b"HTTP/1.1 200") == 10
    assert few.index(b"models") > few.rindex(b"alive")
    many = ask(process, (head_of() + b"\r\n") * 20_000)
    assert 10 < many.count(b"HTTP/1.1 200") < 100


def test_what_is_no_http_is_refused_behind_an_answer_and_not_in_it(process):
    check_refusal(ask(process, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200), 400, "invalid_http")
    answer = ask(process, POST + BODY + b"no request\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert status_of(answer) == 200
    check_refusal(ask(process, CHUNKED + b"zz\r\n"), 400, "invalid_http")


def test_an_upgrade_is_not_taken_and_what_follows_is_read(process):
    upgrade = head_of() + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
    answer = ask(process, upgrade + head_of("/readyz") + b"Connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 2


# ---- time

STALLED = {
    "nothing": [b""],
    "ends of lines": [b"\r\n"] * 100,
    "half a line": [b"GET /livez HT"],
    "half a head": [head_of()],
    "a head that trickles": [b"GET /livez HTTP/1.1\r\nX: ", *[b"a"] * 200],
    "half a body": [POST + BODY[:5]],
    "a body that trickles": [POST.replace(b"%d" % len(BODY), b"5000"), *[b" "] * 200],
    "no chunk": [CHUNKED],
    "half a chunk": [CHUNKED + chunk(BODY)[:9]],
    "chunks that trickle": [CHUNKED, *[chunk(b" ")] * 200],
    "a body that nobody reads": [head_of("/livez", "GET", "Content-Length: 5000") + b"\r\n"],
}


@pytest.mark.parametrize("name", STALLED)
def test_a_request_that_does_not_arrive_is_refused_in_time(process, name):
    pieces = STALLED[name]
    start = time.monotonic()
    with RawClient(process) as client:
        client.socket.settimeout(10)
        if len(pieces) == 1:
            client.send(*pieces)
        else:
            for piece in pieces:
                client.send(piece)
                time.sleep(0.02)
                if time.monotonic() - start > SECONDS + 0.5:
                    break
        answer = client.receive()
    assert 0.8 * SECONDS < time.monotonic() - start < SECONDS + 3
    if name in ("nothing", "ends of lines"):
        assert answer == b""
    elif name == "a body that nobody reads":
        assert status_of(answer) == 200
    else:
        check_refusal(answer, 408, "request_timeout")
        assert b"did not arrive within 1 s" in answer


def test_an_idle_connection_is_kept_longer_than_a_request_may_take(process):
    with RawClient(process) as client:
        for _ in range(2):
            client.send(head_of() + b"\r\n")
            assert status_of(client.receive(b"alive")) == 200
            time.sleep(1.5 * SECONDS)
        client.send(POST, BODY[:9], pause=0.3)
        client.send(BODY[9:])
        assert status_of(client.receive(b"}]}")) == 200


def test_a_request_behind_another_has_a_time_of_its_own(process):
    with RawClient(process) as client:
        client.send(head_of() + b"\r\n" + head_of())
        answer = client.receive()
    assert answer.count(b"HTTP/1.1 200") == 1
    assert answer.count(b"HTTP/1.1 408") == 1


def test_refusals_are_counted(process):
    before = process.figure("regard_requests_total", route="other", status="431")
    ask(process, head_of() + b"X: " + b"a" * 100_000)
    assert process.figure("regard_requests_total", route="other", status="431") == before + 1
    assert process.figure("regard_requests_in_flight") == 1  # the client's own request


# ---- answers


def test_a_client_that_does_not_take_its_answer_is_dropped(tmp_path):
    """A client asks for the OpenAPI document many times, and never reads an answer."""
    with serve_process(*stored("transformer"), folder=tmp_path, seconds=SECONDS) as process:
        with RawClient(process) as client:
            client.socket.settimeout(0.2)
            try:
                for _ in range(3000):
                    client.socket.sendall(head_of("/openapi.json") + b"\r\n")
            except OSError:
                pass
            wait_until(lambda: process.figure("regard_requests_in_flight") <= 1)
        assert process.get("/livez").status_code == 200
        assert "Traceback" not in process.stderr
