"""The server process: ports, signals, and how it ends."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest
from serving.served import STORED, open_slowly, serve_process, stored, wait_until, write_best

ENDLESS = {"texts": ["the dog"], "beam": 1, "shortest": 1_000_000, "longest": 1_000_000}
SHORT = {"texts": ["the dog"], "beam": 1, "longest": 3}


def send(process, table):
    """Send a request from a thread; the answer or the exception is appended to a list."""
    answers: list = []

    def ask():
        try:
            answers.append(process.post("/v1/translate", table))
        except httpx.HTTPError as error:
            answers.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, answers


def test_a_new_interpreter_serves_and_ends_with_sigterm(tmp_path):
    """Start the command like a shell; other tests fork it from here, which is faster."""
    command = [sys.executable, "-m", "regard", "serve", *stored("transformer"), "--port", "0", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "ready: " in line:
                    break
            address = re.search(r"http://127\.0\.0\.1:\d+", lines[-1])[0]
            assert httpx.post(f"{address}/v1/translate", json=SHORT, timeout=60).status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            lines += process.stderr.readlines()
        finally:
            process.kill()
    text = "".join(lines)
    assert text.startswith(f"regard: listening on {address}; opening transformer\n")
    assert "regard: transformer: translate, en to de, transformer, step 100\n" in text
    assert f"regard: ready: {address} in a browser, {address}/v1 for programs (Ctrl-C stops)\n" in text
    assert re.search(r"\d\d:\d\d:\d\d POST /v1/translate 200 \d+ ms\n", text)
    assert text.endswith("regard: stopping: 0 requests to finish\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(tmp_path, number):
    with (
        serve_process(*stored("transformer"), folder=tmp_path, flags=["--quiet"]) as process,
        process.client() as client,
    ):
        assert client.post("/v1/translate", json=SHORT).status_code == 200
        process.signal(number)  # although a connection is open
        ended = process.wait()
    assert (ended.status, ended.stdout) == (0, "")
    assert "POST" not in ended.stderr
    assert ended.stderr.endswith("regard: stopping: 0 requests to finish\n")


def test_what_does_not_finish_in_time_is_let_go(tmp_path):
    with serve_process(*stored("rnnsearch"), folder=tmp_path, grace=0.3, output_tokens=1_000_000) as process:
        thread, answers = send(process, ENDLESS)
        process.wait_for_figure("regard_places_in_use", 1)
        start = time.monotonic()
        process.signal(signal.SIGTERM)
        assert process.wait(20).status == 0
        assert time.monotonic() - start < 10
        thread.join(60)
    assert [answer.status_code for answer in answers] == [503]
    assert answers[0].json()["error"]["code"] == "draining"
    assert "stopping: 1 request to finish" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_second_signal_does_not_wait(tmp_path):
    with serve_process(*stored("rnnsearch"), folder=tmp_path, grace=600, output_tokens=1_000_000) as process:
        thread, _ = send(process, ENDLESS)
        process.wait_for_figure("regard_places_in_use", 1)
        process.signal(signal.SIGTERM)
        process.wait_for("stopping: 1 request to finish")
        process.signal(signal.SIGTERM)
        assert process.wait(20).status == 0
        thread.join(60)


def test_a_signal_ends_it_while_it_loads(tmp_path):
    with serve_process(
        *stored("transformer"), folder=tmp_path, ready=False, grace=1.0, before=open_slowly(tmp_path / "never")
    ) as process:
        assert process.get("/readyz").status_code == 503
        process.signal(signal.SIGTERM)
        assert process.wait(20).status == 0
    assert "Traceback" not in process.stderr
    assert "ready: " not in process.stderr


def test_a_run_that_cannot_be_opened_ends_it(tmp_path):
    shutil.copytree(STORED / "transformer", tmp_path / "run", symlinks=True)
    (tmp_path / "run" / "tokenizer.json").write_text("{}")
    with serve_process(str(tmp_path / "run"), folder=tmp_path, ready=False) as process:
        ended = process.wait()
    assert ended.status == 2
    assert "tokenizer.json" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_sighup_opens_what_has_moved_and_nothing_else(tmp_path):
    shutil.copytree(STORED / "transformer", tmp_path / "run", symlinks=True)
    with serve_process(str(tmp_path / "run"), *stored("ntm"), folder=tmp_path) as process:

        def steps():
            cards = process.get("/v1/models").json()["models"]
            return {card["name"]: card["step"] for card in cards}

        before = steps()
        process.signal(signal.SIGHUP)
        process.wait_for("no best checkpoint has moved")
        write_best(tmp_path / "run", 200)
        process.signal(signal.SIGHUP)
        process.wait_for("run: step 200 from now on")
        assert steps() == {**before, "run": 200}
        weights = tmp_path / "run" / "checkpoints" / "step-000300" / "model.safetensors"
        write_best(tmp_path / "run", 300)
        weights.write_bytes(b"damaged")
        process.signal(signal.SIGHUP)
        process.wait_for("not opened anew: ")  # the old model continues
        assert steps() == {**before, "run": 200}
        assert process.post("/v1/translate", {**SHORT, "model": "run"}).status_code == 200


def test_the_page_is_opened_in_a_browser_where_that_is_asked_for(tmp_path):
    def watch() -> None:
        import webbrowser

        webbrowser.open = lambda address: bool((tmp_path / "opened").write_text(address))

    with serve_process(*stored("ntm"), folder=tmp_path, flags=("--open",), before=watch) as process:
        wait_until((tmp_path / "opened").exists)
        assert (tmp_path / "opened").read_text() == process.address
        assert process.wait_for("ready: ").startswith(f"{process.address} in a browser")
        assert process.get("/").text.startswith("<!doctype html>")
