"""A server reports its health correctly: it is ready only while every model serves."""

import ctypes
import os
import signal
import threading
from pathlib import Path

import pytest
from serving.served import open_slowly, serve_process, stored, wait_until

TEXT = {"texts": ["the dog"], "beam": 1, "longest": 2, "model": "transformer"}


def end_worker_on_signal():
    """Let SIGUSR1 end the thread that runs the Transformer, as an error in it would."""

    def end(*_):
        (worker,) = (each for each in threading.enumerate() if each.name.startswith("regard transformer"))
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident), ctypes.py_object(SystemExit))

    signal.signal(signal.SIGUSR1, end)


def health(process):
    ready, live = (process.get(f"/{name}") for name in ("readyz", "livez"))
    return ready.status_code, ready.json()["models"], live.status_code


def test_it_is_not_ready_while_it_loads(tmp_path):
    gate = tmp_path / "gate"
    with serve_process(
        *stored("transformer", "ntm"), folder=tmp_path, ready=False, before=open_slowly(gate)
    ) as process:
        assert health(process) == (503, {"transformer": "loading", "ntm": "loading"}, 200)
        answer = process.post("/v1/translate", TEXT)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "loading")
        assert int(answer.headers["retry-after"]) > 0
        gate.touch()
        process.wait_for("ready: ")
        assert health(process) == (200, {"transformer": "ready", "ntm": "ready"}, 200)
        assert process.post("/v1/translate", TEXT).status_code == 200


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_dead_worker_is_told(tmp_path, times):
    for _ in range(times):
        with serve_process(*stored("transformer", "ntm"), folder=tmp_path, before=end_worker_on_signal) as process:
            assert health(process) == (200, {"transformer": "ready", "ntm": "ready"}, 200)
            process.signal(signal.SIGUSR1)
            wait_until(lambda: health(process)[0] != 200)
            assert health(process) == (503, {"transformer": "a worker has stopped", "ntm": "ready"}, 200)
            answer = process.post("/v1/translate", TEXT)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "worker_stopped")
            assert process.post("/v1/translate", {**TEXT, "model": "ntm"}).status_code == 200
            assert process.figure("regard_workers_ready", model="transformer") == 0
            assert "the worker has stopped" in process.stderr
            process.signal(signal.SIGTERM)
            assert process.wait().status == 0


def engines(process):
    """Return the ids of a server's worker processes, in the order of its models."""
    tasks = Path(f"/proc/{process.child.number}/task").iterdir()
    return sorted(int(number) for task in tasks for number in (task / "children").read_text().split())


def is_running(number):
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_that_is_killed_is_told_and_none_outlives_its_server(tmp_path):
    """One worker process is killed while it works, then the server itself; the other worker ends without being told."""
    endless = {**TEXT, "shortest": 1_000_000, "longest": 1_000_000}
    settings = {"workers": "process", "output_tokens": 1_000_000, "seconds": 3000}
    with serve_process(*stored("transformer", "ntm"), folder=tmp_path, **settings) as process:
        assert health(process) == (200, {"transformer": "ready", "ntm": "ready"}, 200)
        first, second = engines(process)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # signals of a terminal or systemd
            os.kill(first, number)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(process.post("/v1/translate", endless)))
        thread.start()
        process.wait_for_figure("regard_places_in_use", 1)
        os.kill(first, signal.SIGKILL)
        thread.join(60)
        for answer in (*answers, process.post("/v1/translate", TEXT), process.post("/v1/translate", endless)):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "worker_stopped")
        assert health(process) == (503, {"transformer": "a worker has stopped", "ntm": "ready"}, 200)
        assert process.post("/v1/translate", {**TEXT, "model": "ntm"}).status_code == 200
        assert process.figure("regard_workers_ready", model="transformer") == 0
        assert process.figure("regard_places_in_use") == 0
        assert "the worker has stopped: its process has been ended by signal 9" in process.stderr
        assert is_running(second)
        process.signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: not is_running(second))
        assert "Traceback" not in process.stderr
