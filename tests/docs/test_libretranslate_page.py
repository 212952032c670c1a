"""The page on LibreTranslate's clients: requests get the answers it shows, and its tables are complete."""

import json
import re
import shlex
import shutil
import subprocess

import httpx
import pytest
from docs.test_serve_page import ADDRESS, BLOCK, shape, start, stop
from documented import ROOT

from regard.serving.errors import PROTOCOL_PATHS
from regard.serving.libretranslate.routes import parse_srt

PAGE = (ROOT / "docs" / "guide" / "libretranslate.md").read_text(encoding="utf-8")
CURLS = {
    request: shown if number == len(requests) else ""
    for language, code, shown in BLOCK.findall(PAGE)
    if language == "sh"
    for requests in [re.findall(r"^curl .*$", code, re.MULTILINE)]
    for number, request in enumerate(requests, 1)
}
SRT = "1\n00:00:01,000 --> 00:00:02,500\nWhere do you live?\n"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libre")
    shutil.copytree(ROOT / "tests" / "stored_runs" / "transformer", folder / "runs" / "en-de", symlinks=True)
    (folder / "film.srt").write_text(SRT)
    return folder


@pytest.fixture(scope="module")
def address(desk):
    server, address = start("serve", "runs/en-de", "--device", "cpu", folder=desk)
    yield address.removeprefix("http://")
    stop(server)


def by_httpx(line, folder):
    """Send a curl command's request with httpx, for machines without curl."""
    *options, address = shlex.split(line)[1:]
    body, data, files = None, {}, {}
    for option, value in zip(options[::2], options[1::2], strict=True):
        name, _, content = value.partition("=")
        if option == "--json":
            body = json.loads(value)
        elif content.startswith("@"):
            files[name] = (content[1:], (folder / content[1:]).read_bytes())
        else:
            data[name] = content
    method = "POST" if options else "GET"
    return httpx.request(
        method, f"http://{address}", json=body, data=data or None, files=files or None, timeout=60
    ).text


def by_curl(line, folder):
    words = ["curl", "-s", "--max-time", "60", *shlex.split(line)[1:]]
    return subprocess.run(words, cwd=folder, capture_output=True, check=True).stdout.decode()


@pytest.mark.parametrize("tool", ["curl", "httpx"])
@pytest.mark.parametrize("line", CURLS)
def test_a_request_is_answered_as_the_page_shows(line, tool, desk, address):
    if tool == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    answer = json.loads({"curl": by_curl, "httpx": by_httpx}[tool](line.replace(ADDRESS, address), desk))
    shown = CURLS[line]
    if '"error"' in shown:
        assert answer == json.loads(shown)
    else:
        assert "error" not in answer
        if shown:
            assert shape(answer) == shape(json.loads(shown))
    if "translatedFileUrl" in answer:
        file = httpx.get(answer["translatedFileUrl"])
        assert [part for part in parse_srt(file.text).parts if isinstance(part, str)] == ["1", SRT.splitlines()[1], ""]


def test_python_is_answered(address):
    ((code, _),) = [(code, shown) for language, code, shown in BLOCK.findall(PAGE) if language == "python"]
    names: dict[str, object] = {}
    exec(compile(code.replace(ADDRESS, address), "libretranslate.md", "exec"), names)
    assert isinstance(names["translation"], str)


def test_every_route_is_in_the_table(address):
    shown = set(re.findall(r"^\| `((?:GET|POST) \S+?)` \|", PAGE, re.MULTILINE))
    paths = httpx.get(f"http://{address}/spec").json()["paths"]
    assert shown == {
        f"{method.upper()} {path.replace('{key}', '…')}" for path, methods in paths.items() for method in methods
    }
    assert len(shown) == len(PROTOCOL_PATHS) + 1


def test_limits_of_files_are_those_of_the_code():
    from regard.serving.libretranslate import routes

    assert (routes.FILES, routes.BYTES, routes.SECONDS) == (100, 64 * 2**20, 600)
    assert "for ten minutes, at most 100 of them and 64 MiB" in " ".join(PAGE.split())
