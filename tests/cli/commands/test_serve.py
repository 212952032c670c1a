"""`regard serve` from the command line, with mistakes: each gives one sentence before any run is opened."""

import socket
import sys
from pathlib import Path

import pytest
from child import regard
from cli.typing_in import Command

from regard import serving

COMMAND = Command("serve")
RUN = Path(__file__).parents[2] / "stored_runs" / "ntm"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing argument"),
        (["none"], "none: no such folder, expected a run folder; regard runs lists run folders"),
        (["a=none"], "none: no such folder, expected a run folder; regard runs lists run folders"),
        ([RUN, RUN], f"{RUN}: ntm is the name of another model; give it one of its own: NAME={RUN}"),
        (["=x"], "=x: expected RUN, NAME=RUN, or NAME=RUN+RUN for an ensemble"),
        ([RUN, "--port", "65536"], "--port: 65536 given, expected at most 65535"),
        ([RUN, "--port", "http"], "--port: "),
        ([RUN, "--grace", "-1"], "--grace: -1"),
        ([RUN, "--precision", "fp8"], '--precision: "fp8" given, expected "auto", "fp32" or "bf16"'),
        ([RUN, "--languages", "en-de"], '--languages: "en-de" given, expected a model and its languages'),
        ([RUN, "--languages", "x=en-de"], "--languages: x is not served; expected one of ntm"),
        ([RUN, "--device", "tpu", "--port", "0"], "--device: "),
        ([RUN, "--config", "none.toml"], "none.toml: "),
        ([RUN, "--config", "wrong.toml"], "wrong.toml: wiating: no such key; did you mean 'waiting'?"),
        ([RUN, "--config", "low.toml"], "low.toml: seconds: 0.0 given, expected more than 0"),
        ([RUN, "--config", "broken.toml"], "broken.toml"),
        ([RUN, "--config", "keys.toml", "--port", "0"], "keys: none.txt: cannot be read: No such file or directory"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("wrong.toml").write_text("wiating = 3\n")
    Path("low.toml").write_text("seconds = 0\n")
    Path("broken.toml").write_text("port = = 1\n")
    Path("keys.toml").write_text('keys = "none.txt"\n')
    assert COMMAND.refused(*arguments).startswith(message)


def test_a_port_that_is_taken_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        shown = regard("serve", RUN, "--port", port, "--device", "cpu")
    assert (shown.status, shown.stdout) == (2, "")
    what = "stop what listens there, or choose another port (0: any free one)"
    assert shown.stderr == f"regard: --port: {port} on 127.0.0.1 is in use; {what}\n"


def test_a_flag_counts_more_than_the_file(tmp_path):
    """The port in the file is invalid; the port of the flag is in use."""
    (tmp_path / "serve.toml").write_text('port = 1\ndevice = "cpu"\n')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        shown = regard("serve", RUN, "--config", tmp_path / "serve.toml", "--port", port)
    assert f"--port: {port} on" in shown.stderr


def test_without_the_extra_it_says_what_to_install():
    def forget():
        for name in [name for name in sys.modules if name.partition(".")[0] in ("uvicorn", "fastapi")]:
            del sys.modules[name]
        for name in [name for name in sys.modules if name in ("regard.serving.server", "regard.serving.app")]:
            del sys.modules[name]
        for name in vars(serving)["__all__"]:  # the names that the package has loaded already
            vars(serving).pop(name, None)
        sys.modules["uvicorn"] = sys.modules["fastapi"] = None  # as if they were not installed

    shown = regard("serve", RUN, before=forget)
    assert (shown.status, shown.stdout) == (2, "")
    assert shown.stderr.count("\n") == 1
    assert "pip install 'regard[serve]'" in shown.stderr
