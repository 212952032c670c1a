"""The page on serving: servers start and stop, requests get the answers it shows, and its tables are complete."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import typer
from child import Child, command, fork
from documented import ROOT, spans, texts

from regard.cli import app
from regard.config import parse
from regard.serving import ServeSettings

PAGE = (ROOT / "docs" / "guide" / "serve.md").read_text(encoding="utf-8")
STORED = ROOT / "tests" / "stored_runs"
RUNS = {  # stored runs and the names that they replace
    "transformer": ("en-de", "a", "b", "opus", "talks"),
    "han": ("reviews",),
    "captioner": ("photos",),
    "encoder-language-model": ("german",),
}
ADDRESS = "localhost:8080"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n*```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code, _ in BLOCK.findall(PAGE) if language == "python" and ADDRESS in code]
CURLS = {  # each request, and the answer that the page shows
    request: shown if len(requests) == 1 else ""
    for language, code, shown in BLOCK.findall(PAGE)
    if language == "sh" and (requests := re.findall(r"^curl .*?(?<!,)$", code, re.MULTILINE | re.DOTALL))
    for request in requests
}
CURLS |= {line: "" for line in spans(texts()["README.md"])[0] if line.startswith("curl ")}
SERVERS = {
    shlex.join(words): words[1:]
    for text in texts().values()
    for line in spans(text)[0]
    if line.startswith("regard serve ") and (words := shlex.split(line, comments=True))
}


def start(*words: str, folder: Path) -> tuple[Child, str]:
    """Start a server in a folder on a free port, wait until it is ready, and return it with its address."""
    import regard.serving.server  # noqa: F401 (once, for all children)

    def before() -> None:
        os.chdir(folder)
        signal.alarm(300)

    server = fork(command(*words, "--port", "0"), before=before)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        said = os.pread(server.err.fileno(), 2**20, 0).decode()  # a read would move the server's file position
        if ready := re.search(r"ready: (http://\S+)", said):
            return server, ready[1].replace("0.0.0.0", "127.0.0.1")
        if os.waitid(os.P_PID, server.number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.02)
    os.kill(server.number, signal.SIGKILL)
    pytest.fail(f"regard {shlex.join(words)}\n{server.wait()}")


def stop(server: Child) -> None:
    """Stop a server and check that it ends with status 0."""
    os.kill(server.number, signal.SIGTERM)
    ended = server.wait()
    assert ended.status == 0, ended.stderr


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """Create a folder with the runs, pictures and settings that the page uses."""
    folder = tmp_path_factory.mktemp("served")
    for stored, names in RUNS.items():
        for name in names:
            shutil.copytree(STORED / stored, folder / "runs" / name, symlinks=True)
    for name in ("holiday.jpg", "beach.jpg"):
        shutil.copy(STORED / "0.png", folder / name)
    (shown,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (folder / "serve.toml").write_text(shown)
    (folder / "keys.txt").write_text("# for tests\nsecret\n")
    return folder


@pytest.fixture(scope="module")
def address(desk):
    """Start the page's server with the most models, and yield its address."""
    words = max(SERVERS.values(), key=lambda words: sum(word.startswith("runs/") for word in words))
    server, address = start(*words, "--device", "cpu", folder=desk)
    yield address.removeprefix("http://")
    stop(server)


# ---- servers


@pytest.mark.parametrize("line", SERVERS)
def test_a_server_starts_serves_and_stops(line, desk):
    words = [re.sub(r"cuda(:\d)?", "cpu", word) for word in SERVERS[line]]
    words += [] if "--device" in words else ["--device", "cpu"]
    server, address = start(*words, folder=desk)
    try:
        answer = httpx.get(f"{address}/readyz")
        asked = httpx.get(f"{address}/v1/models")
    finally:
        stop(server)
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    assert asked.status_code == (401 if "--config" in words else 200)
    if asked.status_code == 200:
        names = [word.partition("=")[0].rpartition("/")[2] for word in words[1:] if "runs/" in word]
        assert [model["name"] for model in asked.json()["models"]] == names


def test_a_request_that_outlasts_the_grace_is_answered_and_the_server_ends_well(desk):
    """The client learns that the server has stopped; the log has no traceback."""
    server, address = start("serve", "runs/en-de", "--device", "cpu", "--grace", "0.1", folder=desk)
    long = {"texts": ["Where is the dog? " * 60] * 8, "beam": 100, "longest": 1000, "shortest": 999}
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(httpx.post, f"{address}/v1/translate", json=long, timeout=60)
        while 'regard_places_in_use{model="en-de"} 0.0' in httpx.get(f"{address}/metrics").text:
            assert not answer.done()
        os.kill(server.number, signal.SIGTERM)
        answer = answer.result()
    ended = server.wait()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
    assert (ended.status, "Traceback" in ended.stderr) == (0, False)


def test_its_settings_are_settings():
    (shown,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert parse(ServeSettings, tomllib.loads(shown)).hosts == ("translate.example.org",)


@pytest.mark.parametrize("language", ["ini", "dockerfile"])
def test_the_commands_of_a_unit_and_a_container_are_understood(language):
    ((code, _),) = [(code, shown) for found, code, shown in BLOCK.findall(PAGE) if found == language]
    if language == "ini":
        words = shlex.split(re.search(r"^ExecStart=\S+/regard (.*)", code, re.MULTILINE)[1])
    else:
        lists = re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])", code, re.MULTILINE)
        words = [word for each in lists for word in json.loads(each)][1:]
    assert words[0] == "serve"
    group = typer.main.get_command(app)
    with (
        group.make_context("regard", ["serve"]) as above,
        group.commands["serve"].make_context("serve", words[1:], parent=above) as context,
    ):
        assert context.params["runs"] == [f"de=/{'srv/' * (language == 'ini')}runs/en-de"]


# ---- requests


def by_curl(line: str, folder: Path) -> str:
    ended = subprocess.run(["curl", "-s", "--max-time", "60", *shlex.split(line)[1:]], cwd=folder, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode()


def by_httpx(line: str, folder: Path) -> str:
    """Send a curl command's request with httpx, for machines without curl."""
    words = [word for word in shlex.split(line)[1:] if word != "-N"]
    *options, address = words
    fields, files, body = {}, [], None
    for option, value in zip(options[::2], options[1::2], strict=True):
        name, _, content = value.partition("=")
        if option == "--json":
            body = json.loads(value)
        elif content.startswith("@"):
            files.append((name, (folder / content[1:]).open("rb")))
        else:
            assert option == "-F"
            fields[name] = content
    method = "POST" if options else "GET"
    answer = httpx.request(method, f"http://{address}", json=body, data=fields or None, files=files or None, timeout=60)
    for _, file in files:
        file.close()
    return answer.text


def shape(value):
    """Return the types in an answer by name: of a list, those of its first item; lists of words vary with the model."""
    if isinstance(value, dict):
        return {name: "words" if name in ("unknown", "untranslated") else shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return "number" if type(value) in (int, float) else type(value).__name__


def events(text: str) -> list[tuple[str, dict]]:
    """Parse server-sent events."""
    parts = re.findall(r"event: (\w+)\ndata: (.*)\n", text)
    return [(name, json.loads(data.replace("[…]", "[]"))) for name, data in parts]


@pytest.mark.parametrize("tool", ["curl", "httpx"])
@pytest.mark.parametrize("line", CURLS)
def test_a_request_is_answered_as_the_page_shows(line, tool, desk, address):
    if tool == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    text = {"curl": by_curl, "httpx": by_httpx}[tool](line.replace(ADDRESS, address), desk)
    shown = CURLS[line]
    if "event: " in shown:
        given, expected = events(text), events(shown)
        assert {name for name, _ in given} == {name for name, _ in expected}
        assert given[-1][0] == expected[-1][0] == "result"
        assert set(given[-1][1]["results"][0]) == set(expected[-1][1]["results"][0])
        assert shape(given[0]) == shape(expected[0])
    elif '"error"' in shown:
        assert json.loads(text) == json.loads(shown)
    else:
        answer = json.loads(text)
        assert "error" not in answer
        if shown:
            assert shape(answer) == shape(json.loads(shown))


def test_python_is_answered(address):
    names: dict[str, object] = {}
    for code in PYTHON:
        exec(compile(code.replace(ADDRESS, address), "serve.md", "exec"), names)
    assert len(PYTHON) == 2
    assert len(names["links"]) > 0
    assert names["so_far"] == names["event"]["results"][0]["text"] != ""


# ---- tables


def column(head: str, number: int = 0) -> list[str]:
    """Return a column of the table with this heading."""
    lines = PAGE.partition(f"{head}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [line.split("|")[number + 1].strip() for line in lines]


def test_every_route_is_in_the_table(address):
    paths = httpx.get(f"http://{address}/openapi.json").json()["paths"]
    served = {
        f"{method.upper()} {path}"
        for path, methods in paths.items()
        for method, operation in methods.items()
        if "LibreTranslate" not in operation.get("tags", ())  # LibreTranslate's routes have a page of their own
    }
    shown = {
        name
        for cell in column("| route | what it does | what it answers for each input |")
        for name in re.findall(r"`([^`]+)`", cell)
    }
    assert shown == served | {"GET /openapi.json"}


def test_every_answer_has_the_fields_of_the_table(address):
    """This covers the routes whose row names only fields."""
    cells = column("| route | what it does | what it answers for each input |", 2)
    routes = column("| route | what it does | what it answers for each input |")
    named = {
        route.strip("`").rpartition("/")[2]: set(re.findall(r"`(\w+)`", cell))
        for route, cell in zip(routes, cells, strict=True)
    }
    schemas = httpx.get(f"http://{address}/openapi.json").json()["paths"]
    for route in ("align", "score", "caption", "classify"):
        schema = schemas[f"/v1/{route}"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert named[route] == set(schema["properties"]["results"]["items"]["properties"]), route
    schema = schemas["/v1/translate"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    result = schema["properties"]["results"]["items"]["properties"]
    assert named["translate"] == set(result) | set(result["outputs"]["items"]["properties"])


def test_every_code_is_in_the_table():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/regard/serving").glob("*.py"))
    raised = set(re.findall(r"(?:ApiError|super\(\).__init__)\(\s*(\d{3}), \"(\w+)\"", source))
    raised |= set(re.findall(r"self\.(?:stop|refuse)\((\d{3}), \"(\w+)\"", source))  # errors before there is a request
    raised |= set(re.findall(r"(\d{3}): \"(not_found|wrong_method)\"", source))
    head = "| status | code | what is wrong |"
    shown = {
        (status, code)
        for status, cell in zip(column(head), column(head, 1), strict=True)
        for code in re.findall(r"`(\w+)`", cell)
    }
    assert shown == raised


def test_every_limit_is_the_default():
    head = "| key | default | beyond it |"
    fields = {field.name: field.default for field in dataclasses.fields(ServeSettings)}
    shown = {
        key.strip("`"): int(re.match(r"[\d,]+", cell)[0].rstrip(",").replace(",", ""))
        for key, cell in zip(column(head), column(head, 1), strict=True)
    }
    assert shown == {name: fields[name] for name in shown}
    least = {"characters", "texts", "body_bytes", "pictures", "picture_bytes", "waiting", "seconds"}
    assert least <= set(shown)


def test_every_figure_is_in_the_table(address):
    page = httpx.get(f"http://{address}/metrics").text
    counted = {name for name in re.findall(r"^# TYPE (\w+)", page, re.MULTILINE) if not name.endswith("_created")}
    shown = {name for cell in column("| figure | what it counts |") for name in re.findall(r"`(\w+)`", cell)}
    assert shown == counted
