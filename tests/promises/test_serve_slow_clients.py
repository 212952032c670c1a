"""Clients that open connections and send next to nothing stop neither the server nor its shutdown."""

import contextlib
import json
import signal
import time

import pytest
from serving.raw_client import RawClient, head_of, status_of
from serving.served import serve_process, stored

BODY = json.dumps({"texts": ["the dog"], "beam": 1, "longest": 2}).encode()
POST = head_of("/v1/translate", "POST", "Content-Type: application/json", f"Content-Length: {len(BODY)}") + b"\r\n"
OPENINGS = {"nothing": b"", "half a head": head_of(), "half a body": POST + BODY[:5]}


def limit_descriptors(number):
    """Limit the number of open files of a process."""

    def before():
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))

    return before


@contextlib.contextmanager
def open_many(process, number, opening):
    """Open connections that wait; the system accepts them even if the server does not."""
    with contextlib.ExitStack() as clients:
        found = []
        for _ in range(number):
            with contextlib.suppress(OSError):
                found.append(clients.enter_context(RawClient(process, 5)))
                found[-1].send(opening)
        yield found


@pytest.mark.parametrize(
    ("number", "opening"),
    [
        (1100, "nothing"),
        (300, "half a head"),
        *(pytest.param(1100, each, marks=pytest.mark.slow) for each in ("half a head", "half a body")),
    ],
)
def test_half_open_sockets_stop_nothing(tmp_path, number, opening):
    """There are ten times as many sockets as the process may open files; open and later connections get answers."""
    with serve_process(
        *stored("transformer"),
        folder=tmp_path,
        seconds=1.5,
        before=limit_descriptors(300),
        flags=["--quiet"],
    ) as process:
        process.wait_for("at most 172 connections, not 1,000")
        with RawClient(process, 30) as known:
            known.send(head_of() + b"\r\n")
            assert status_of(known.receive(b"alive")) == 200
            with open_many(process, number, OPENINGS[opening]):
                known.send(head_of() + b"\r\n")
                assert status_of(known.receive(b"alive")) in (200, None)  # closed for another if idle
                start = time.monotonic()
                with RawClient(process, 60) as late:
                    late.send(head_of() + b"\r\n")
                    assert status_of(late.receive(b"alive")) == 200
                assert time.monotonic() - start < 45
        assert process.get("/livez").status_code == 200
        assert "Traceback" not in process.stderr
        assert process.stderr.count("new ones wait") <= 2
        assert len(process.stderr) < 2000


def test_no_descriptor_is_left(tmp_path):
    """Something else has opened all files: the server waits, says so once, and continues when descriptors are free."""
    held = tmp_path / "held"

    def use_up():
        import threading

        def hold():
            while not held.exists():
                time.sleep(0.01)
            files = []
            with contextlib.suppress(OSError):
                while True:
                    files.append(open("/dev/null"))  # noqa: SIM115
            while held.exists():
                time.sleep(0.01)
            for each in files:
                each.close()

        limit_descriptors(300)()
        threading.Thread(target=hold, daemon=True).start()

    with (
        serve_process(*stored("transformer"), folder=tmp_path, flags=["--quiet"], before=use_up) as process,
        RawClient(process) as known,
    ):
        known.send(head_of() + b"\r\n")
        assert status_of(known.receive(b"alive")) == 200
        held.touch()
        time.sleep(0.3)
        with open_many(process, 20, head_of() + b"\r\n") as clients:
            process.wait_for("no descriptor is left for a connection")
            known.send(head_of() + b"\r\n")
            assert status_of(known.receive(b"alive")) == 200
            time.sleep(1)
            held.unlink()
            for each in clients:
                assert status_of(each.receive(b"alive")) == 200
        assert process.stderr.count("no descriptor is left") == 1
        assert "Traceback" not in process.stderr


def test_one_connection_serves_many_clients_in_turn(tmp_path):
    """With a limit of one connection, an idle client is disconnected for the next."""
    with serve_process(*stored("transformer"), folder=tmp_path, connections=1, seconds=3) as process:
        for _ in range(3):
            clients = [RawClient(process, 20) for _ in range(2)]
            for each in clients:
                each.send(head_of() + b"\r\n")
                assert status_of(each.receive(b"alive")) == 200
            for each in clients:
                each.close()


@pytest.mark.parametrize("opening", OPENINGS)
def test_they_do_not_hold_its_end(tmp_path, opening):
    with (
        serve_process(*stored("transformer"), folder=tmp_path, grace=60.0, seconds=60.0) as process,
        open_many(process, 20, OPENINGS[opening]) as clients,
    ):
        time.sleep(0.3)
        start = time.monotonic()
        process.signal(signal.SIGTERM)
        assert process.wait(30).status == 0
        assert time.monotonic() - start < 8
        for each in clients:
            assert status_of(each.receive()) == (503 if opening == "half a body" else None)
    assert "Traceback" not in process.stderr
