"""Clients of a server: each sends its next request after the answer to its last."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from regard_bench.http_load import drive


class Echo(BaseHTTPRequestHandler):
    """Echo the request body; refuse a text "wrong"."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(422 if b"wrong" in body else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Print nothing."""


@pytest.fixture
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_clients_take_bodies_in_turn_and_count_what_is_answered(address):
    bodies = [{"number": number} for number in range(3)]
    plan = {"address": address, "path": "/", "clients": 2, "seconds": 0.5, "bodies": bodies, "keep": 3}
    figures = drive(plan)
    assert set(figures["statuses"]) == {"200"}
    assert 3 <= len(figures["seconds"]) <= figures["statuses"]["200"]
    assert all(0 < each < 5 for each in figures["seconds"])
    assert all(sent == answered for sent, answered in figures["answers"])
    assert len(figures["answers"]) == 3
    json.dumps(figures)


def test_what_is_refused_is_no_answer(address):
    plan = {"address": address, "path": "/", "clients": 1, "seconds": 0.2, "bodies": [{"text": "wrong"}]}
    figures = drive(plan)
    assert figures["seconds"] == []
    assert set(figures["statuses"]) == {"422"}
